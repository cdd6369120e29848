"""The settings of a policy, as plans record them and as it is shown."""

import json
from collections.abc import Iterator, Sequence
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
from fedeas.targets import Target, aim_at_classes, make_target, retarget

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
    """Return a policy for these counts: nothing in it has a name, all is in their order.

    Whoever takes counts and a policy calls this first; what is behind it knows no names.
    """
    target = make_target(getattr(policy, "target", None))
    if target is not None:
        aim = target.for_counts(counts)
        policy = retarget(policy, None if aim.uniform else aim)
    return settle_clients(settle_classes(policy, counts.class_names), counts.client_names)


def settle_row(policy: _P, classes: Sequence[str] | int, client: str | None = None) -> _P:
    """Return a policy for one client: as `settle`, but the federation's shares stay unknown.

    What the policy names is refused where `classes` or `client` do not say which one it is.
    """
    policy = settle_classes(policy, classes)
    if client is None:
        return settle_clients(policy, 1)
    own = {
        kind: given.only(client, described(kind), missing_number(kind))
        for kind, given in _given(policy, CLIENTS)
    }
    return settle_clients(_replaced(policy, own), 1)


def settle_classes(policy: _P, classes: Sequence[str] | int) -> _P:
    """Return a policy whose target and qualities are in the order of these classes.

    Of classes that only have a number, values by name are refused.
    """
    return _ordered(aim_at_classes(policy, classes), CLASSES, classes)


def settle_clients(policy: _P, clients: Sequence[str] | int) -> _P:
    """Return a policy whose costs and limits are in the order of these clients."""
    return _ordered(policy, CLIENTS, clients)


def _ordered(policy: _P, kinds: Sequence[str], names: Sequence[str] | int) -> _P:
    ordered = {
        kind: given.ordered(names, described(kind), missing_number(kind))
        for kind, given in _given(policy, kinds)
    }
    return _replaced(policy, ordered)


def _given(policy: object, kinds: Sequence[str]) -> Iterator[tuple[str, PerName]]:
    """Yield the costs and limits, or the qualities, that a policy has."""
    for kind in kinds:
        given = make_per_name(getattr(policy, kind, None), kind)
        if given is not None:
            yield kind, given


def _replaced(policy: _P, settings: dict[str, Any]) -> _P:
    if not settings:
        return policy
    if not is_dataclass(policy) or isinstance(policy, type):
        raise InputError(f"this policy takes no other {' or '.join(settings)}", got=policy)
    return replace(policy, **settings)


def _plain(value: Any) -> Any:
    if isinstance(value, PerName):
        return list(value.values)
    return value.to_dict() if isinstance(value, Target) else value.item()
