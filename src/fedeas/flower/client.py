"""The client app: its introduction, and one turn of local training, on any grid."""

import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedeas.errors import InputError
from fedeas.flower import records
from fedeas.flower.limits import check_method, check_task, check_training
from fedeas.flower.queries import check_cost, training_cost
from fedeas.flower.secure_round import Layout, content_digest, encode_question, read_question
from fedeas.flower.secure_sum import Summand, answer_secure_sum, begin_sum, reply_with
from fedeas.flower.site import OpenSite, Site
from fedeas.flower.state import Kept, file_bytes
from fedeas.methods.method import Method, Outcome, Turn
from fedeas.methods.registry import make_method
from fedeas.privacy.ledger import Ledger
from fedeas.privacy.secure_sum.identity import Members
from fedeas.privacy.secure_sum.memory import end_sums
from fedeas.privacy.secure_sum.messages import STAGES, RefusedError, Words
from fedeas.seeds import child_rng
from fedeas.settings.base import Count, Natural
from fedeas.settings.deployment import SiteConfig
from fedeas.settings.reading import checked, read_settings
from fedeas.settings.training import Local, ModelSettings
from fedeas.specs import parse
from fedeas.tensors import Tensors, check_values, choose_device
from fedeas.training.loop import fit, keep_memory, use_threads
from fedeas.training.models import Classifier, make_model
from fedeas.training.optimizers import find_optimizer, make_optimizer
from fedeas.training.samples import Samples
from fedeas.training.task import Task

HELLO, TRAIN = "query.hello", "train"
_LOG = logging.getLogger("fedeas")
_LAST_ROUND = 2**31

Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]


def make_client_app(
    open_site: OpenSite, mods: Sequence[Mod] = (), *, answers_queries: bool = False
) -> ClientApp:
    """Return a Flower ClientApp; `open_site` opens what the client has, `mods` wrap messages.

    One that `answers_queries` gets the handlers of secure sums from there.
    """
    app = ClientApp(mods=list(mods))
    app.query("hello")(lambda message, context: hello(message, open_site(context)))
    app.train()(lambda message, context: train(message, open_site(context)))
    if not answers_queries:
        # A round's sum begins with training itself.
        answer_secure_sum(app, lambda context: _later(open_site(context)), STAGES[1:])
    return app


def _later(site: Site) -> Summand:
    """Return a simulated client's part in a sum after its first message."""
    identity = site.identity()
    if identity is None or site.sums is None:
        raise RefusedError("this client has no list of members")
    return Summand(identity, lambda _: np.empty(0, np.uint64), site.sums)


def hello(message: Message, site: Site) -> Message:
    """Report which client this is, how many real samples it has, and what the method asks for."""
    asked = records.settings(message.content)
    rng = child_rng(asked["seed"], "hello", site.partition)
    known = _method(asked, site).introduce(site.real, rng)
    numbers = {"partition": site.partition, "num-examples": len(site.real)}
    return Message(records.pack({"known": known}, numbers=numbers), reply_to=message)


@dataclass(frozen=True)
class _Request:
    """What the server asks of a turn, checked before any of it is acted on."""

    asked: dict[str, Any]
    local: Local
    model: ModelSettings
    threads: int
    method: Method
    task: Task
    number: int
    seed: int
    last: int
    policy: str
    kept: Kept

    @classmethod
    def read(cls, message: Message, site: Site) -> "_Request":
        asked = records.settings(message.content)
        local, threads = read_settings(Local, asked["local"], "local"), int(asked["threads"])
        settings = read_settings(ModelSettings, {**asked["model"], "weights": ""}, "model")
        if site.limits is not None:
            check_training(site.limits, local, settings, threads)
        method, task = _method(asked, site), _task(asked, site)
        find_optimizer(local)
        number, last = (
            checked(kind, asked[name], "the message", (name,))
            for name, kind in (("round", Count), ("last", Natural))
        )
        if max(number, last) > _LAST_ROUND:  # it names a file
            raise InputError("not a round", got=max(number, last), allowed=f"to {_LAST_ROUND}")
        seed = int(asked["seed"])
        policy = str(asked.get("policy", ""))
        # The name comes from another party: only its hash becomes a path.
        experiment = hashlib.sha256(str(asked["experiment"]).encode()).hexdigest()[:32]
        kept = Kept(site.folder / experiment)
        if site.limits is not None:
            kept.check_policy(policy)
        return cls(asked, local, settings, threads, method, task, number, seed, last, policy, kept)


@dataclass(frozen=True)
class _Start:
    """What a turn starts from: everything but the client's samples."""

    before: Tensors
    received: Tensors
    kept: Tensors
    model: Classifier

    def turn(self, request: _Request, samples: Samples, rng: np.random.Generator) -> Turn:
        """Return the turn on some samples, with the model as the server sent it."""
        self.model.load_state_dict(self.before)
        return Turn(
            self.model, self.before, self.received, self.kept, samples, request.local,
            request.number, rng,
        )  # fmt: skip


@dataclass(frozen=True)
class _Result:
    """What a turn leads to."""

    model: Classifier
    outcome: Outcome
    trained_on: int
    steps: int


def train(message: Message, site: Site) -> Message:
    """Train on the client's samples, from the server's weights."""
    request = _Request.read(message, site)
    if "secure" in request.asked:
        return _train_secretly(message, site, request)
    if site.limits is not None and site.limits.secure:
        raise InputError("the owner of this site lets updates leave only in secure sums")
    if site.sums is not None:
        end_sums(site.sums)  # whatever was summed before is over when training begins
    found = _turn(site, request, _start(message, site, request))
    outcome = found.outcome
    arrays = {"weights": found.model.state_dict(), "added": outcome.added, "shown": outcome.shown}
    numbers = {
        "partition": site.partition,
        "num-examples": len(site.real),
        "trained-on": found.trained_on,
        "steps": found.steps,
    }
    return Message(records.pack(arrays, numbers=numbers), reply_to=message)


def _train_secretly(message: Message, site: Site, request: _Request) -> Message:
    """Train, keep the update, and begin the secure sum that it goes into."""
    session = str(request.asked["secure"])
    identity = site.identity()
    if identity is None or site.sums is None:
        raise InputError("this site has no list of members", fix="set identity-key and members")

    def words(asked: object) -> Words:
        return _update_words(asked, message, site, request, identity.members)

    def check(asked: object) -> None:
        if site.limits is not None:
            _check_sum(asked, site.limits)

    summand = Summand(identity, words, site.sums, check=check)
    return reply_with(begin_sum(session, summand), message)


def _check_sum(asked: object, limits: SiteConfig) -> None:
    """Refuse a round's sum that the owner of the site does not allow, or that it cannot pay for."""
    rho = training_cost(encode_question(read_question(asked)), limits.allow.split())
    check_cost("train", rho, Ledger.open(limits.ledger_folder, limits.epsilon, limits.delta))


def _update_words(
    asked: object, message: Message, site: Site, request: _Request, members: Members
) -> Words:
    """Return the words of a client's update, with its part of the noise if there is any."""
    question = read_question(asked)
    weights, method = (records.tensors(message.content, group) for group in ("weights", "method"))
    content = content_digest(weights, method, request.asked)
    of_message = (str(request.asked["experiment"]), request.number, content)
    if of_message != (question.experiment, question.round, question.content):
        raise RefusedError("the sum is about another round or another model than the message")
    start = _start(message, site, request)
    layout = Layout(question, start.before, request.method, start.model)
    noise = layout.noise(members) if question.rho else None
    found = _turn(site, request, start)
    hidden = 0 if question.rho else 1
    words = layout.words(
        dict(found.model.state_dict()),
        found.outcome.added,
        len(site.real),
        hidden * found.trained_on,
        hidden * found.steps,
    )
    if noise is not None:
        words = words + noise.part(layout.length).view(np.uint64)
    return words


def _start(message: Message, site: Site, request: _Request) -> _Start:
    """Read the weights that a server sends, and make the model; no samples are looked at.

    At a deployed site all that can be wrong is found here: what a site refuses later would tell
    the server about its samples.
    """
    keep_memory()
    use_threads(request.threads)
    device = choose_device(site.device)
    before, received = (records.tensors(message.content, g) for g in ("weights", "method"))
    if site.limits is not None:
        _check_model(site.limits, request, before, received)
    own = request.kept.after(request.last) if request.method.keeps else {}
    # A simulation runs its own config; what a real server names has to be installed here.
    model = _made(request.model, request.task, installed=site.limits is not None).to(device)
    # Rounding to other numbers, or an overflow, would depend on the samples: refused before any.
    records.check_like(before, dict(model.state_dict()), "weights")
    check_values(before)
    before, received, own = (
        {k: v.to(device) for k, v in each.items()} for each in (before, received, own)
    )
    start = _Start(before, received, own, model)
    if site.limits is not None:
        _rehearse(site, request, start)
    return start


def _check_model(limits: SiteConfig, request: _Request, before: Tensors, received: Tensors) -> None:
    """Refuse a model that is not the one of the message, before it takes any memory."""
    with torch.device("meta"):
        bare = make_model(request.model, request.task, seed=0, installed=True)
    size = sum(t.numel() * t.element_size() for t in (*bare.parameters(), *bare.buffers()))
    if size > limits.max_model_mb * 1_000_000:
        raise InputError(
            "the model is larger than this site allows",
            got=f"{size:,} bytes",
            allowed=f"max-model-mb = {limits.max_model_mb}",
        )
    own = bare.state_dict()
    records.check_like(before, own, "weights")
    known = {name: tensor for name, tensor in received.items() if name in own}
    records.check_like(known, {name: own[name] for name in known}, "what the method sends")
    check_values(received, most=math.inf)
    make_optimizer(request.local, bare.parameters())


def _rehearse(site: Site, request: _Request, start: _Start) -> None:
    """Take one step on blank samples: what cannot be trained at all is refused here."""
    data, local = site.real.data, request.local.replace(epochs=1, steps=1)
    size = request.local.batch
    labels = np.arange(size) % len(data.classes)
    blank = np.zeros((size, *data.samples.shape[1:]), data.samples.dtype)
    samples = Samples.of(replace(data, samples=blank, labels=labels), np.arange(size))
    rng = child_rng(request.seed, "rehearsal")
    turn = start.turn(request, samples, rng)
    steps = fit(start.model, samples, local, rng, request.method.correction(turn))
    kept = request.method.finish(turn, steps).kept
    if site.limits is not None:
        most = site.limits.max_state_mb * 1_000_000
        request.kept.make_room(request.number, request.last, file_bytes(kept), most)


def _turn(site: Site, request: _Request, start: _Start) -> _Result:
    """Train; what the client keeps for its next turn is on disk afterwards."""
    method, model = request.method, start.model
    samples = site.samples(request.policy)
    turn = start.turn(
        request, samples, child_rng(request.seed, "method", request.number, site.partition)
    )
    if site.limits is not None:
        request.kept.note_policy(request.policy)
    rng = child_rng(request.seed, "train", request.number, site.partition)
    try:
        steps = fit(model, samples, request.local, rng, method.correction(turn))
        outcome = method.finish(turn, steps)
    except Exception:
        if site.limits is None:
            raise
        # A step on blank samples went well: this follows from the samples, and a refusal would
        # tell the server of them.
        _LOG.exception("training failed: this site sends the weights as they came")
        model.load_state_dict(start.before)
        steps, outcome = 0, method.finish(turn, 0)
    request.kept.save(request.number, request.last, outcome.kept)
    if site.hide_sample_counts:
        # Both follow from what was generated, and that from the site's labels.
        return _Result(model, outcome, 0, 0)
    return _Result(model, outcome, len(samples), steps)


def _method(asked: dict[str, Any], site: Site) -> Method:
    """Return the method that the server names, if the site takes part in it."""
    spec = str(asked["method"])
    name = parse(spec, "method")[0]
    if site.methods is not None and name not in site.methods:
        raise InputError(
            "the site does not take part in this method", got=name, allowed=", ".join(site.methods)
        )
    if site.limits is not None:
        check_method(spec)
    return make_method(spec)


def _task(asked: dict[str, Any], site: Site) -> Task:
    """Return the task that the server describes, if it matches the client's own data."""
    task = Task.from_dict(asked["task"])
    check_task(task, site.real)
    return task


@lru_cache(maxsize=2)
def _made(settings: ModelSettings, task: Task, installed: bool) -> Classifier:
    """Make a model once per process: every turn overwrites all of its weights and buffers."""
    return make_model(settings, task, seed=0, installed=installed)
