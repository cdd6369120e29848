"""What one client has, wherever it is, and what its owner lets a server ask for.

A server that may name any batch size, shape or number of threads can exhaust a site: anything
beyond the owner's limits is refused before any work.

Does not import torch: in a deployment every message starts a new process.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from fedeas._internal.blocks import usable_cores
from fedeas._internal.specs import parse
from fedeas.cache import ClientSamples
from fedeas.errors import InputError
from fedeas.train.flower.deployment import SiteConfig
from fedeas.train.samples import Samples, Task, outputs_of
from fedeas.train.settings import Local, ModelSettings

if TYPE_CHECKING:
    from fedeas.train.models import Classifier

_MODEL_SETTING = 4096  # any number in a model's settings: widths, depths
_METHOD_SETTING = 1e5  # any number in a method's settings
# An optimiser's rates and decays are parts of 1. Beyond, they would undo `max-learning-rate`.
_OPTIMIZER_SETTING = 1.0
_SWITCHES = ("nesterov", "amsgrad", "centered")  # of optimisers; others choose how it is computed
_OTHER_SWITCHES = ("maximize", "foreach", "fused", "capturable", "differentiable")
_NOT_HERE = ("sparseadam",)  # optimisers that take no step with an ordinary model
_LEAST_RATE = 1e-12  # of learning


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
    # The model that it trains, by its settings, where several turns share a process.
    models: "dict[object, Classifier]" = field(default_factory=dict)
    steps: int | None = None  # of a turn, whatever it trains on; None: as the server says
    updates: bool = True  # whether its owner lets what it trains leave it
    # Units of privacy that it has, where these are not samples: told in place of N_k.
    units: int | None = None

    @property
    def size(self) -> int:
        """N_k as the server is told it, and the client's weight."""
        return len(self.real) if self.units is None else self.units


OpenSite = Callable[[Context], Site]


def with_synthetic(
    real: Samples, synthetic: ClientSamples, counts: NDArray[np.int64] | None = None
) -> Samples:
    """Return a client's real samples and its synthetic ones, generated on first use.

    What is planned follows from the counts: those of its samples, unless it counts something else.
    """
    counts = real.counts() if counts is None else counts
    made = synthetic.draw(counts, real.data.classes, real.data.samples, real)
    return Samples.of(real.data, real.indices, *made)


def check_training(site: SiteConfig, local: Local, model: ModelSettings, threads: int) -> None:
    """Refuse to train more than the owner of a site allows."""
    for name, value, least, most in (
        ("batch", local.batch, 2, site.max_batch),
        ("epochs", local.epochs, 1, site.max_epochs),
        ("steps", local.steps, 0, site.max_steps),
        ("learning_rate", local.learning_rate, _LEAST_RATE, site.max_learning_rate),
        ("threads", threads, 1, site.max_threads or usable_cores()),
        ("projection", model.projection, 0, _MODEL_SETTING),
        ("weight_decay", local.weight_decay, 0, _OPTIMIZER_SETTING),
    ):
        if not least <= value <= most:
            raise InputError(
                f"{name} is more or less than this site allows",
                got=value,
                allowed=f"{least:g} to {most:g}",
            )
    if model.is_generator and not site.train_generator:
        raise InputError(
            "the owner of this site lets it train no generators", fix="set train-generator = true"
        )
    if local.compile:
        raise InputError("the server asks to compile the model", allowed="compile = false")
    _check_numbers("model", parse(model.name, "model")[1] if model.name else {}, _MODEL_SETTING)
    _check_optimizer(local.optimizer)


def check_method(spec: str, methods: Sequence[str]) -> None:
    """Refuse a method that a site does not take part in, or whose settings could exhaust it."""
    name, settings = parse(spec, "method")
    if name not in methods:
        raise InputError(
            "the site does not take part in this method", got=name, allowed=", ".join(methods)
        )
    _check_numbers("method", settings, _METHOD_SETTING)


def _check_optimizer(spec: str) -> None:
    name, settings = parse(spec, "optimizer")
    if name.lower() in _NOT_HERE:
        raise InputError("an optimizer that trains no ordinary model", got=name)
    for key, value in settings.items():
        hidden = key in _OTHER_SWITCHES or (isinstance(value, bool) and key not in _SWITCHES)
        if hidden or not isinstance(value, int | float) or not 0 <= value <= _OPTIMIZER_SETTING:
            raise InputError(
                f"a server may not set the optimizer's {key} to this",
                got=value,
                allowed=f"0 to {_OPTIMIZER_SETTING:g}, or a switch: {', '.join(_SWITCHES)}",
            )


def _check_numbers(kind: str, settings: Mapping[str, object], most: float) -> None:
    for name, value in settings.items():
        # A comparison with NaN is false.
        if isinstance(value, int | float) and not abs(value) <= most:
            raise InputError(f"the {kind}'s {name} is too large", got=value, allowed=f"to {most:g}")


def check_task(task: Task, samples: Samples) -> None:
    """Refuse a task that does not match the client's own data: a model is made for it."""
    data = samples.data
    own = (data.kind, *outputs_of(data), tuple(data.samples.shape[1:]), data.schema)
    if (task.kind, task.classes, task.label_sets, task.shape, task.schema) != own:
        raise InputError(
            "the task does not match this client's data",
            got=(task.kind, task.classes, task.shape),
            fix="give the server and all sites the same classes, shape of samples and schema",
        )
    channels = task.shape[-1]
    for values, least in ((task.mean, -math.inf), (task.std, 0.0)):
        if len(values) != channels or not all(least < value < math.inf for value in values):
            raise InputError(
                "the task's mean or std is not valid",
                got=values,
                allowed=f"{channels} finite numbers, those of std above 0",
            )
