"""The client app: its introduction, and one turn of local training, on any grid."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedeas.errors import InputError
from fedeas.flower import records
from fedeas.flower.limits import check_method, check_task, check_training
from fedeas.flower.queries import check_cost, training_cost
from fedeas.flower.secure_round import Layout, content_digest, encode_question, read_question
from fedeas.flower.secure_sum import Summand, answer_secure_sum, begin_sum, reply_with
from fedeas.flower.site import OpenSite, Site
from fedeas.flower.state import Kept
from fedeas.methods.method import Method, Outcome, Turn
from fedeas.methods.registry import make_method
from fedeas.privacy.ledger import Ledger
from fedeas.privacy.secure_sum.identity import Members
from fedeas.privacy.secure_sum.memory import end_sums
from fedeas.privacy.secure_sum.messages import STAGES, RefusedError, Words
from fedeas.seeds import child_rng
from fedeas.settings.deployment import SiteConfig
from fedeas.settings.reading import read_settings
from fedeas.settings.training import Local, ModelSettings
from fedeas.specs import parse
from fedeas.tensors import Tensors, check_values, choose_device
from fedeas.training.loop import fit, keep_memory, use_threads
from fedeas.training.models import Classifier, make_model
from fedeas.training.optimizers import find_optimizer
from fedeas.training.task import Task

HELLO, TRAIN = "query.hello", "train"


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
        number, seed, last = (int(asked[name]) for name in ("round", "seed", "last"))
        policy = str(asked.get("policy", ""))
        # The name comes from another party: only its hash becomes a path.
        experiment = hashlib.sha256(str(asked["experiment"]).encode()).hexdigest()[:32]
        kept = Kept(site.folder / experiment)
        if site.limits is not None:
            kept.check_policy(policy)
        return cls(asked, local, settings, threads, method, task, number, seed, last, policy, kept)


@dataclass(frozen=True)
class _Result:
    """What a turn leads to."""

    before: Tensors
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
    found = _turn(message, site, request)
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
    sent = [records.tensors(message.content, group) for group in ("weights", "method")]
    told = (str(request.asked["experiment"]), request.number, content_digest(sent[0], sent[1]))
    if told != (question.experiment, question.round, question.content):
        raise RefusedError("the sum is about another round or another model than the message")
    found = _turn(message, site, request)
    layout = Layout(question, found.before, request.method, found.model)
    hidden = 0 if question.rho else 1
    words = layout.words(
        dict(found.model.state_dict()),
        found.outcome.added,
        len(site.real),
        hidden * found.trained_on,
        hidden * found.steps,
    )
    if question.rho:
        words = words + layout.noise(members).part(layout.length).view(np.uint64)
    return words


def _turn(message: Message, site: Site, request: _Request) -> _Result:
    """Train; what the client keeps for its next turn is on disk afterwards."""
    local, method, kept = request.local, request.method, request.kept
    keep_memory()
    use_threads(request.threads)
    device = choose_device(site.device)
    before = {k: v.to(device) for k, v in records.tensors(message.content, "weights").items()}
    received = {k: v.to(device) for k, v in records.tensors(message.content, "method").items()}
    # A simulation runs its own config; what a real server names has to be installed here.
    model = _made(request.model, request.task, installed=site.limits is not None).to(device)
    # Rounding to other numbers, or an overflow, would depend on the samples: refused before any.
    records.check_like(before, dict(model.state_dict()), "weights")
    check_values(before)
    model.load_state_dict(before)
    own = kept.after(request.last) if method.keeps else {}
    turn = Turn(
        model,
        before,
        received,
        {k: v.to(device) for k, v in own.items()},
        site.samples(request.policy),
        local,
        request.number,
        child_rng(request.seed, "method", request.number, site.partition),
    )
    if site.limits is not None:
        kept.note_policy(request.policy)
    rng = child_rng(request.seed, "train", request.number, site.partition)
    steps = fit(model, turn.samples, local, rng, method.correction(turn))
    outcome = method.finish(turn, steps)
    kept.save(request.number, request.last, outcome.kept)
    if site.limits is not None:
        kept.make_room(site.limits.max_state_mb * 1_000_000)
    if site.hide_sample_counts:
        # Both follow from what was generated, and that from the site's labels.
        return _Result(before, model, outcome, 0, 0)
    return _Result(before, model, outcome, len(turn.samples), steps)


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
