"""What the owner of a site lets a server ask for. Anything beyond is refused before any work.

A server that may name any batch size, shape or number of threads can exhaust a site, or ask a
question whose answer is the site's histogram. A refusal that gives its reason, or depends on the
site's labels, is an answer too: the server always gets the same refusal, and the reason stays in
the site's own log.
"""

import logging
import math
import time
from collections.abc import Callable
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
_PROJECTION = 4096  # width of a projection head
_METHOD_SETTING = 1e5  # any number in a method's settings


def check_training(site: SiteConfig, local: Local, model: ModelSettings, threads: int) -> None:
    """Refuse to train more than the owner of a site allows."""
    for name, value, most in (
        ("batch", local.batch, site.max_batch),
        ("epochs", local.epochs, site.max_epochs),
        ("steps", local.steps, site.max_steps),
        ("learning_rate", local.learning_rate, site.max_learning_rate),
        ("threads", threads, site.max_threads or usable_cores()),
        ("projection", model.projection, _PROJECTION),
    ):
        if not 0 <= value <= most:
            raise InputError(
                f"{name} is more than this site allows", got=value, allowed=f"up to {most}"
            )
    if model.is_generator and not site.train_generator:
        raise InputError(
            "the owner of this site lets it train no generators", fix="set train-generator = true"
        )
    if local.compile:
        raise InputError("the server asks to compile the model", allowed="compile = false")


def check_method(spec: str) -> None:
    """Refuse a method with settings that could exhaust the site."""
    for name, value in parse(spec, "method")[1].items():
        if isinstance(value, int | float) and not abs(value) <= _METHOD_SETTING:
            raise InputError(
                f"the method's {name} is too large",
                got=value,
                allowed=f"up to {_METHOD_SETTING:g}",
            )


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
    """How often a site has refused recently: a server that is refused over and over is probing."""

    def __init__(self, path: Path, per_run: int = 20, per_day: int = 200) -> None:
        self._path, self._per_run, self._per_day = path, per_run, per_day

    def exhausted(self, run: int) -> bool:
        """Whether no further request of a run, or none today, is read at all."""
        recent = self._recent()
        return len(recent) >= self._per_day or sum(r == run for _, r in recent) >= self._per_run

    def add(self, run: int) -> None:
        """Count one more refusal; those older than a day are dropped."""
        kept = [*self._recent(), (time.time(), run)][-self._per_day :]
        lines = "".join(f"{at:.0f} {own}\n" for at, own in kept)
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.write_text(lines, encoding="utf-8")

    def _recent(self) -> list[tuple[float, int]]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
            found = [(float(at), int(run)) for at, run in map(str.split, lines)]
        except (OSError, ValueError):
            return []
        return [one for one in found if one[0] > time.time() - _DAY]


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
