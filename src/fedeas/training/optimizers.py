"""Optimisers by torch's names: 'sgd', 'adamw', 'rmsprop(alpha=0.9)', ..."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from fedeas.errors import InputError
from fedeas.specs import parse

# Needs the loss once more within a step.
_LEFT_OUT = ("lbfgs",)


def make_optimizer(
    spec: str, parameters: Iterable[torch.nn.Parameter], learning_rate: float, **settings: float
) -> Optimizer:
    """Make an optimiser; `settings` that are 0 keep its defaults.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> type(make_optimizer("adamw(eps=1e-6)", [weight], 0.001)).__name__
    'AdamW'
    """
    kind, own = find_optimizer(spec, **settings)
    given = {key: value for key, value in settings.items() if value}
    try:
        made: Optimizer = kind(parameters, lr=learning_rate, **given, **own)
    except (TypeError, ValueError) as error:
        raise InputError(f"optimizer {spec!r} cannot be made: {error}") from None
    return made


def find_optimizer(spec: str, **settings: float) -> tuple[type[Any], dict[str, Any]]:
    """Return the class and the settings that a spec names; what it does not take is refused."""
    name, own = parse(spec, "optimizer")
    known = _known()
    if name.lower() not in known:
        raise InputError("unknown optimizer", got=name, allowed=", ".join(known))
    kind = known[name.lower()]
    takes = inspect.signature(kind).parameters
    for key in (*own, *(key for key, value in settings.items() if value)):
        if key not in takes or key in ("params", "lr"):
            allowed = ", ".join(k for k in takes if k not in ("params", "lr"))
            raise InputError(f"optimizer {name!r} has no setting {key!r}", allowed=allowed)
    return kind, own


def _known() -> dict[str, type[Optimizer]]:
    """Return torch's optimisers by their names in lower case."""
    return {
        name.lower(): found
        for name, found in sorted(vars(torch.optim).items())
        if isinstance(found, type)
        and issubclass(found, Optimizer)
        and found is not Optimizer
        and name.lower() not in _LEFT_OUT
    }
