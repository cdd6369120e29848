"""The client app: its introduction, and one turn of local training, on any grid."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedeas.errors import InputError
from fedeas.flower import records
from fedeas.flower.limits import check_method, check_task, check_training
from fedeas.flower.state import Kept
from fedeas.methods.method import Method, Turn
from fedeas.methods.registry import make_method
from fedeas.seeds import child_rng
from fedeas.settings.deployment import SiteConfig
from fedeas.settings.reading import read_settings
from fedeas.settings.training import Local, ModelSettings
from fedeas.specs import parse
from fedeas.tensors import choose_device
from fedeas.training.loop import fit, keep_memory, use_threads
from fedeas.training.models import Classifier, make_model
from fedeas.training.optimizers import find_optimizer
from fedeas.training.samples import Samples
from fedeas.training.task import Task

HELLO, TRAIN = "query.hello", "train"


@dataclass(frozen=True)
class Site:
    """What one client has: its number, its real samples, a folder of its own."""

    partition: int
    real: Samples  # N_k of them: its weight, whatever is generated
    # Real and generated samples; takes the policy that the server of a deployed site names.
    samples: Callable[[str], Samples]
    folder: Path
    device: str = "auto"
    methods: tuple[str, ...] | None = None  # that it takes part in; None: in all
    hide_sample_counts: bool = False  # whether it does not tell how much it generated
    limits: SiteConfig | None = None  # of what a server may ask for; None in a simulation


OpenSite = Callable[[Context], Site]
Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]


def make_client_app(open_site: OpenSite, mods: Sequence[Mod] = ()) -> ClientApp:
    """Return a Flower ClientApp; `open_site` opens what the client has, `mods` wrap messages."""
    app = ClientApp(mods=list(mods))

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return _hello(message, open_site(context))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return _train(message, open_site(context))

    return app


def _hello(message: Message, site: Site) -> Message:
    """Report which client this is, how many real samples it has, and what the method asks for."""
    asked = records.settings(message.content)
    rng = child_rng(asked["seed"], "hello", site.partition)
    known = _method(asked, site).introduce(site.real, rng)
    numbers = {"partition": site.partition, "num-examples": len(site.real)}
    return Message(records.pack({"known": known}, numbers=numbers), reply_to=message)


def _train(message: Message, site: Site) -> Message:
    """Train on the client's samples, from the server's weights."""
    asked = records.settings(message.content)
    # All of the request is checked before any of it is acted on.
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
    keep_memory()
    use_threads(threads)
    device = choose_device(site.device)
    before = {k: v.to(device) for k, v in records.tensors(message.content, "weights").items()}
    received = {k: v.to(device) for k, v in records.tensors(message.content, "method").items()}
    # A simulation runs its own config; what a real server names has to be installed here.
    model = _made(settings, task, installed=site.limits is not None).to(device)
    model.load_state_dict(before)
    own = kept.after(last) if method.keeps else {}
    turn = Turn(
        model,
        before,
        received,
        {k: v.to(device) for k, v in own.items()},
        site.samples(policy),
        local,
        number,
        child_rng(seed, "method", number, site.partition),
    )
    if site.limits is not None:
        kept.note_policy(policy)
    rng = child_rng(seed, "train", number, site.partition)
    steps = fit(model, turn.samples, local, rng, method.correction(turn))
    outcome = method.finish(turn, steps)
    kept.save(number, last, outcome.kept)
    if site.limits is not None:
        kept.make_room(site.limits.max_state_mb * 1_000_000)
    arrays = {"weights": model.state_dict(), "added": outcome.added, "shown": outcome.shown}
    numbers = {
        "partition": site.partition,
        "num-examples": len(site.real),
        # Both follow from what was generated, and that from the site's labels.
        "trained-on": 0 if site.hide_sample_counts else len(turn.samples),
        "steps": 0 if site.hide_sample_counts else steps,
    }
    return Message(records.pack(arrays, numbers=numbers), reply_to=message)


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
    described = asked["task"]
    task = Task(
        int(described["classes"]),
        tuple(map(int, described["shape"])),
        tuple(map(float, described["mean"])),
        tuple(map(float, described["spread"])),
        str(described.get("kind", "image")),  # older servers know nothing else
    )
    check_task(task, site.real)
    return task


@lru_cache(maxsize=2)
def _made(settings: ModelSettings, task: Task, installed: bool) -> Classifier:
    """Make a model once per process: every turn overwrites all of its weights and buffers."""
    return make_model(settings, task, seed=0, installed=installed)
