"""Optimisers by torch's names: 'sgd', 'adamw', 'rmsprop(alpha=0.9)', ..."""

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch.optim import Optimizer

from fedeas.errors import InputError
from fedeas.settings.training import Local
from fedeas.specs import parse

# Needs the loss once more within a step.
_LEFT_OUT = ("lbfgs",)


def make_optimizer(local: Local, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """Make the optimiser of a client's training.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> type(make_optimizer(Local(optimizer="adamw(eps=1e-6)"), [weight])).__name__
    'AdamW'
    """
    kind, settings = find_optimizer(local)
    try:
        made: Optimizer = kind(parameters, lr=local.learning_rate, **settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"optimizer {local.optimizer!r} cannot be made: {error}") from None
    return made


def find_optimizer(local: Local) -> tuple[type[Any], dict[str, Any]]:
    """Return an optimiser's class and settings, and refuse what torch does not have.

    Momentum and weight decay of 0 are left to the optimiser.
    """
    name, own = parse(local.optimizer, "optimizer")
    shared = {k: v for k in ("momentum", "weight_decay") if (v := getattr(local, k))}
    known = _known()
    if name.lower() not in known:
        raise InputError("unknown optimizer", got=name, allowed=", ".join(known))
    kind = known[name.lower()]
    takes = [k for k in inspect.signature(kind).parameters if k not in ("params", "lr")]
    for key in (*own, *shared):
        if key not in takes:
            raise InputError(f"optimizer {name!r} has no setting {key!r}", allowed=", ".join(takes))
        if key in own and key in shared:
            raise InputError(f"{key!r} is set twice", got=local.optimizer, fix="set it once")
    return kind, own | shared


@cache
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
