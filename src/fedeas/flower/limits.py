"""What the owner of a site lets a server ask for. Anything beyond is refused before any work.

A server that may name any batch size, shape or number of threads can exhaust a site. A refusal that
gives its reason, or depends on the site's labels, is an answer: the server always gets the same
refusal, and the reason stays in the site's own log.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedeas.cores import usable_cores
from fedeas.errors import FedeasError, InputError
from fedeas.settings.deployment import SiteConfig
from fedeas.settings.training import Local, ModelSettings
from fedeas.specs import parse
from fedeas.training.samples import Samples
from fedeas.training.task import Task

REFUSAL = "this site refuses the request; its own log says why"
_LOG = logging.getLogger("fedeas")
_DAY = 24 * 3600.0
_SKEW = 60.0  # seconds that a clock may be put back
_MODEL_SETTING = 4096  # any number in a model's settings: widths, depths
_METHOD_SETTING = 1e5  # any number in a method's settings
# An optimiser's rates and decays are parts of 1. Beyond, they would undo `max-learning-rate`.
_OPTIMIZER_SETTING = 1.0
_SWITCHES = ("nesterov", "amsgrad", "centered")  # of optimisers; others choose how it is computed
_OTHER_SWITCHES = ("maximize", "foreach", "fused", "capturable", "differentiable")
_NOT_HERE = ("sparseadam",)  # optimisers that take no step with an ordinary model
_LEAST_RATE = 1e-12  # of learning


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


def check_method(spec: str) -> None:
    """Refuse a method with settings that could exhaust the site."""
    _check_numbers("method", parse(spec, "method")[1], _METHOD_SETTING)


def _check_optimizer(spec: str) -> None:
    name, settings = parse(spec, "optimizer")
    if name.lower() in _NOT_HERE:
        raise InputError("an optimizer that trains no ordinary model", got=name)
    for key, value in settings.items():
        if key in _OTHER_SWITCHES or (isinstance(value, bool) and key not in _SWITCHES):
            raise InputError(
                f"a server does not choose an optimizer's {key}", allowed=", ".join(_SWITCHES)
            )
        if not isinstance(value, int | float) or not 0 <= value <= _OPTIMIZER_SETTING:
            raise InputError(
                f"the optimizer's {key} is out of range",
                got=value,
                allowed=f"0 to {_OPTIMIZER_SETTING:g}",
            )


def _check_numbers(kind: str, settings: Mapping[str, object], most: float) -> None:
    for name, value in settings.items():
        # A comparison with NaN is false.
        if isinstance(value, int | float) and not abs(value) <= most:
            raise InputError(f"the {kind}'s {name} is too large", got=value, allowed=f"to {most:g}")


def check_task(task: Task, samples: Samples) -> None:
    """Refuse a task that does not match the client's own data: a model is made for it."""
    data = samples.data
    own = (data.kind, len(data.classes), tuple(data.samples.shape[1:]))
    asked = (task.kind, task.classes, task.shape)
    if asked != own:
        raise InputError("the task does not match this client's data", got=asked)
    if task.schema != data.schema:
        raise InputError(
            "the task's columns or categories are not those of this client's table",
            fix="give the server and all sites the same schema",
        )
    for name, values in (("mean", task.mean), ("spread", task.spread)):
        if len(values) != task.shape[-1] or not all(math.isfinite(v) for v in values):
            raise InputError(f"the task's {name} has the wrong length", got=len(values))
    if not all(v > 0 for v in task.spread):
        raise InputError("the task's spread is not positive", got=task.spread)


class RefusalLog:
    """How often a site has refused recently: a server that is refused over and over is probing.

    A line a refusal, only ever appended. A line that cannot be read counts as one of today, of
    every run: damage must not open what the limit closes.
    """

    def __init__(self, path: Path, per_run: int = 20, per_day: int = 200) -> None:
        self._path, self._per_run, self._per_day = path, per_run, per_day

    def exhausted(self, run: int) -> bool:
        """Whether no further request of a run, or none today, is read at all."""
        recent = self._recent()
        own = sum(each in (run, None) for each in recent)
        return len(recent) >= self._per_day or own >= self._per_run

    def add(self, run: int) -> None:
        """Count one more refusal."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # In one write to the end of the file, so that processes do not get in each other's way;
        # on a line of its own, whatever a killed one has left.
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, f"\n{time.time():.0f} {run}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def _recent(self) -> list[int | None]:
        """Return the runs of refusals within a day, None for one that cannot be read."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        now, found = time.time(), list[int | None]()
        for line in filter(None, lines):
            try:
                at, run = (int(part) for part in line.split(b" "))
            except ValueError:
                found.append(None)
                continue
            # A time that is yet to come is of a clock that was wrong.
            if now - _DAY < at <= now + _SKEW:
                found.append(run)
        return found


def refuse_alike(log_of: Callable[[Any], RefusalLog]) -> Callable[..., Any]:
    """Return a Flower mod that gives the server one constant refusal, whatever the reason."""

    def mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        run = int(context.run_id)
        try:
            refusals = log_of(context)
            if refusals.exhausted(run):
                raise InputError(
                    "too many refused requests",
                    fix="ask the server's operator why, then remove `refusals` in the state folder",
                )
        except Exception as error:
            raise _refusal(message, run, error) from None
        try:
            return call_next(message, context)
        except Exception as error:
            refusals.add(run)
            raise _refusal(message, run, error) from None

    return mod


def _refusal(message: Any, run: int, error: Exception) -> FedeasError:
    _LOG.warning(
        "refused %s of run %s: %s: %s",
        message.metadata.message_type,
        run,
        type(error).__name__,
        error,
    )
    return FedeasError(REFUSAL)
