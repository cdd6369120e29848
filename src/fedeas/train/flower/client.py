"""The client app: its introduction, and one turn of local training, on any grid."""

import hashlib
import logging
import math
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedeas._internal.files import atomic_write
from fedeas._internal.seeds import child_rng
from fedeas._internal.settings import Count, Natural, checked, read_settings
from fedeas.errors import InputError
from fedeas.train.flower import records
from fedeas.train.flower.deployment import SiteConfig
from fedeas.train.flower.site import OpenSite, Site, check_method, check_task, check_training
from fedeas.train.loop import find_optimizer, fit, keep_memory, make_optimizer, use_threads
from fedeas.train.methods import make_method
from fedeas.train.methods.method import ClientContext, ClientUpdate, Method
from fedeas.train.models import Classifier, make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings
from fedeas.train.tensors import (
    Tensors,
    check_like,
    check_values,
    choose_device,
    load_tensors,
    save_tensors,
)

HELLO, TRAIN = "query.hello", "train"
_LOG = logging.getLogger("fedeas")
_LAST_ROUND = 2**31
_MOST_EXPERIMENTS = 500
_POLICY = "policy"

Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]


def make_client_app(open_site: OpenSite, mods: Sequence[Mod] = ()) -> ClientApp:
    """Return a Flower ClientApp; `open_site` opens what the client has, `mods` wrap messages."""
    app = ClientApp(mods=list(mods))
    app.query("hello")(lambda message, context: hello(message, open_site(context)))
    app.train()(lambda message, context: train(message, open_site(context)))
    return app


def hello(message: Message, site: Site) -> Message:
    """Report which client this is, how many real samples it has, and what the method asks for."""
    asked = records.settings(message.content)
    rng = child_rng(asked["seed"], "hello", site.partition)
    # A site whose updates do not leave it trains with nobody, and tells no method anything.
    known = _method(asked, site).client_init(site.real, rng) if site.updates else {}
    numbers = {"partition": site.partition, "num-examples": site.size}
    return Message(records.pack({"known": known}, numbers=numbers), reply_to=message)


class ClientStateStore:
    """What stays on a client's disk between its turns, by the round that it comes from.

    It is identified by experiment, partition and round, never by node or run. The server says
    which of a client's turns counted last, and the next one starts from exactly that state. So a
    turn that is run twice, or whose reply came too late, does no harm.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def after(self, number: int) -> Tensors:
        """Return the state after a round; empty for round 0, before the first turn."""
        if not number:
            return {}
        path = self._file(number)
        if not path.exists():
            raise InputError(
                f"{path} is missing: a client's state after round {number}",
                fix="restore it, or remove the run's folder and start again",
            )
        return load_tensors(path)[0]

    def save(self, number: int, last: int, tensors: Tensors) -> None:
        """Keep the state after a round; remove those before the last one that counted."""
        if not tensors:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        save_tensors(self._file(number), tensors, {"round": number})
        for old in self._numbers():
            if old < last:
                self._file(old).unlink(missing_ok=True)

    def check_policy(self, policy: str) -> None:
        """Refuse a policy other than the one that the experiment started with.

        What a site generates, and how long that takes, follows from its labels: an experiment may
        ask one such question.
        """
        path = self._folder / _POLICY
        if path.exists() and path.read_text(encoding="utf-8") != policy:
            raise InputError("the experiment started with another policy", got=policy)

    def note_policy(self, policy: str) -> None:
        """Record the policy of the experiment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._folder / _POLICY) as temporary:
            temporary.write_text(policy, encoding="utf-8")

    def make_room(self, number: int, last: int, needed: int, most: int) -> None:
        """Remove the oldest other experiments, so that a state of `needed` bytes has room.

        The server names experiments: without a bound it could fill a site's disk with new ones.
        Nothing is written where the experiment's own states leave too little.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        # What `save` removes or replaces makes room too.
        sizes = {path: _size(path) for path in self._folder.parent.iterdir() if path.is_dir()}
        gone = [own for own in self._numbers() if own < last or own == number]
        sizes[self._folder] += needed - sum(self._file(own).stat().st_size for own in gone)
        if sizes[self._folder] > most:
            raise InputError(
                "the experiment's state is too large",
                got=f"{sizes[self._folder]:,} bytes",
                allowed=f"{most:,} bytes at this site",
            )
        for path in sorted(sizes, key=lambda p: p.stat().st_mtime_ns):
            if sum(sizes.values()) <= most and len(sizes) <= _MOST_EXPERIMENTS:
                return
            if path != self._folder:
                shutil.rmtree(path, ignore_errors=True)
                del sizes[path]

    def _numbers(self) -> list[int]:
        """Return the rounds whose states are there."""
        found = (re.fullmatch(r"(\d+)\.safetensors", p.name) for p in self._folder.glob("*"))
        return [int(match[1]) for match in found if match]

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class _Request:
    """What the server asks of a turn, checked before any of it is acted on."""

    local: Local
    model: ModelSettings
    threads: int
    method: Method
    task: Task
    number: int
    seed: int
    last: int
    policy: str
    kept: ClientStateStore

    @classmethod
    def read(cls, message: Message, site: Site) -> "_Request":
        asked = records.settings(message.content)
        local, threads = read_settings(Local, asked["local"], "local"), int(asked["threads"])
        settings = read_settings(ModelSettings, {**asked["model"], "weights": ""}, "model")
        if site.limits is not None:
            check_training(site.limits, local, settings, threads)
        method, task = _method(asked, site), Task.from_dict(asked["task"])
        check_task(task, site.real)
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
        kept = ClientStateStore(site.folder / experiment)
        if site.limits is not None:
            kept.check_policy(policy)
        return cls(local, settings, threads, method, task, number, seed, last, policy, kept)


@dataclass(frozen=True)
class _Start:
    """What a turn starts from: everything but the client's samples."""

    before: Tensors
    received: Tensors
    kept: Tensors
    model: Classifier

    def turn(self, request: _Request, samples: Samples, rng: np.random.Generator) -> ClientContext:
        """Return the turn on some samples, with the model as the server sent it."""
        self.model.load_state_dict(self.before)
        return ClientContext(
            self.model, self.before, self.received, self.kept, samples, request.local,
            request.number, rng,
        )  # fmt: skip


@dataclass(frozen=True)
class _Result:
    """What a turn leads to."""

    model: Classifier
    outcome: ClientUpdate
    trained_on: int
    steps: int


def train(message: Message, site: Site) -> Message:
    """Train on the client's samples, from the server's weights."""
    if not site.updates:
        raise InputError(
            "the owner of this site lets no update of training leave it",
            fix="add `updates` to `allow` in site.toml; it tells the label counts",
        )
    request = _Request.read(message, site)
    found = _turn(site, request, _start(message, site, request))
    outcome = found.outcome
    arrays = {
        "weights": found.model.state_dict(), "added": outcome.summed, "shown": outcome.upload
    }  # fmt: skip
    numbers = {
        "partition": site.partition,
        "num-examples": site.size,
        "trained-on": found.trained_on,
        "steps": found.steps,
    }
    return Message(records.pack(arrays, numbers=numbers), reply_to=message)


def _start(message: Message, site: Site, request: _Request) -> _Start:
    """Make the model with the server's weights, or refuse them; no samples are looked at.

    At a deployed site all that can be wrong is found here: what a site refuses later would tell the
    server about its samples.
    """
    keep_memory()
    use_threads(request.threads)
    device = choose_device(site.device)
    before, received = (records.tensors(message.content, group) for group in ("weights", "method"))
    if site.limits is not None:
        _check_model(site.limits, request, before, received)
    kept = request.kept.after(request.last) if request.method.stateful else {}
    model = _model(site, request).to(device)
    # Rounding to other numbers, or an overflow, would depend on the samples: refused before.
    check_like(before, dict(model.state_dict()), "weights")
    check_values(before)
    before, received, kept = (
        {k: v.to(device) for k, v in each.items()} for each in (before, received, kept)
    )
    start = _Start(before, received, kept, model)
    if site.limits is not None:
        _rehearse(site, request, start, site.limits.max_state_mb * 1_000_000)
    return start


def _check_model(limits: SiteConfig, request: _Request, before: Tensors, received: Tensors) -> None:
    """Refuse a model that is not the one of the message, before it takes any memory."""
    with torch.device("meta"):
        bare = make_model(request.model, request.task, seed=0, by_owner=False)
    size = sum(t.numel() * t.element_size() for t in (*bare.parameters(), *bare.buffers()))
    if size > limits.max_model_mb * 1_000_000:
        raise InputError(
            "the model is larger than this site allows",
            got=f"{size:,} bytes",
            allowed=f"max-model-mb = {limits.max_model_mb}",
        )
    own = bare.state_dict()
    check_like(before, own, "weights")
    known = {name: tensor for name, tensor in received.items() if name in own}
    check_like(known, {name: own[name] for name in known}, "what the method sends")
    check_values(received, most=math.inf)
    make_optimizer(request.local, bare.parameters())


def _rehearse(site: Site, request: _Request, start: _Start, most: int) -> None:
    """Take one step on blank samples: what cannot be trained at all is refused here.

    So is what the method would keep, where that is more than `most` bytes.
    """
    data, local = site.real.data, request.local.replace(epochs=1, steps=1)
    size = request.local.batch
    labels = np.arange(size) % len(data.classes)
    blank = np.zeros((size, *data.samples.shape[1:]), data.samples.dtype)
    samples = Samples.of(replace(data, samples=blank, labels=labels), np.arange(size))
    rng = child_rng(request.seed, "rehearsal")
    turn = start.turn(request, samples, rng)
    steps = fit(start.model, samples, local, rng, request.method.local_objective(turn))
    kept = request.method.client_update(turn, steps).state
    size = sum(t.numel() * t.element_size() + len(name) + 128 for name, t in kept.items())
    request.kept.make_room(request.number, request.last, size, most)


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
    local = request.local if site.steps is None else request.local.replace(steps=site.steps)
    try:
        objective = method.local_objective(turn)
        # Its steps may come to none: `steps = 0` of the settings would mean epochs.
        steps = 0 if site.steps == 0 else fit(model, samples, local, rng, objective)
        outcome = method.client_update(turn, steps)
    except Exception:
        if site.limits is None:
            raise
        # A step on blank samples went well: this follows from the samples, and a refusal would
        # tell the server of them.
        _LOG.exception("training failed: this site sends the weights as they came")
        model.load_state_dict(start.before)
        steps, outcome = 0, method.client_update(turn, 0)
    request.kept.save(request.number, request.last, outcome.state)
    if site.hide_sample_counts:
        # Both follow from what was generated, and that from the site's labels.
        return _Result(model, outcome, 0, 0)
    return _Result(model, outcome, len(samples), steps)


def _method(asked: dict[str, Any], site: Site) -> Method:
    """Return the method that the server names, if the site takes part in it."""
    spec = str(asked["method"])
    if site.methods is not None:
        check_method(spec, site.methods)
    return make_method(spec)


def _model(site: Site, request: _Request) -> Classifier:
    """Make a model, once where the site keeps it: every turn overwrites its weights and buffers."""
    key = (request.model, request.task)
    if key not in site.models:
        site.models.clear()
        # A simulation runs its own config; what a real server names has to be installed here.
        by_owner = site.limits is None
        site.models[key] = make_model(request.model, request.task, seed=0, by_owner=by_owner)
    return site.models[key]
