"""The settings of a policy, as plans record them and as it is shown."""

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import LabelCounts
from fedeas.errors import InputError
from fedeas.per_name import (
    CLASSES,
    CLIENTS,
    PerName,
    described,
    make_per_name,
    missing_number,
)
from fedeas.targets import Target, aim

_P = TypeVar("_P")

# Of a field that plans and records mention only where it is in use.
OPTIONAL = {"optional": True}


def policy_name(policy: object) -> str:
    """Return a policy's name, or that of its class."""
    return str(getattr(policy, "name", type(policy).__name__))


def settings_of(policy: object) -> dict[str, Any]:
    """Return the fields of a policy that is a dataclass, as plain values."""
    if not is_dataclass(policy):
        return {}
    values = {name: getattr(policy, name) for name in shown_settings(policy)}
    try:
        # As they come back from a file: a tuple as a list, a NumPy number as a plain one.
        plain: dict[str, Any] = json.loads(json.dumps(values, default=_plain))
    except (TypeError, ValueError, AttributeError):
        raise InputError(
            f"policy {policy_name(policy)!r} has settings that cannot be saved", got=values
        ) from None
    return plain


def shown_settings(policy: Any) -> list[str]:
    """Return the names of a policy's settings, without optional ones that are not in use.

    >>> from fedeas import FedEAS
    >>> shown_settings(FedEAS(beta=8))
    ['beta', 'size_exponent', 'entropy', 'below_mean']
    """
    return [
        f.name
        for f in fields(policy)
        if not (f.metadata.get("optional") and getattr(policy, f.name) is None)
    ]


def quality_of(policy: object, classes: int) -> NDArray[np.float64] | None:
    """Return what a policy takes a synthetic sample of each class to be worth; None for 1."""
    made = make_per_name(getattr(policy, "quality", None), "quality")
    return None if made is None else made.array(classes, described("quality"))


def with_quality(policy: _P, quality: Sequence[float]) -> _P:
    """Return a policy that knows what samples are worth, if it can take that and does not yet."""
    if getattr(policy, "quality", quality) is not None or not is_dataclass(policy):
        return policy
    return replace(policy, quality=PerName(tuple(quality)))  # type: ignore[type-var]


def settle(policy: _P, counts: LabelCounts) -> _P:
    """Return a policy whose target, costs, limits and qualities are in the order of the counts."""
    policy = aim(policy, counts)
    settled: dict[str, Any] = {}
    for kind in (*CLIENTS, *CLASSES):
        given = make_per_name(getattr(policy, kind, None), kind)
        if given is not None:
            names = counts.client_names if kind in CLIENTS else counts.class_names
            settled[kind] = given.ordered(names, described(kind), missing_number(kind))
    return replace(policy, **settled) if settled else policy  # type: ignore[type-var]


def _plain(value: Any) -> Any:
    if isinstance(value, PerName):
        return list(value.values)
    return value.to_dict() if isinstance(value, Target) else value.item()
