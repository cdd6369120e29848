"""Names become arrays: a policy for given counts, all of it in their order.

Every public entry that takes a policy and counts calls `resolve`, or `resolve_client` for a single
client. What is behind them knows the order of the counts only: a target without class names, and
limits, costs and qualities without names.
"""

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedeas.counts.label_counts import LabelCounts
from fedeas.errors import InputError
from fedeas.planning.named_values import CLASSES, CLIENTS, NamedValues, make_named_values
from fedeas.planning.targets import Target, aim_at_classes, make_target, retarget

_P = TypeVar("_P")

# Of a field that plans and records mention only where it is in use.
OPTIONAL = {"optional": True}
# Of a field that is no setting: what a policy knows of the counts that it is resolved for.
HIDDEN = {"hidden": True}


def resolve(policy: _P, counts: LabelCounts) -> _P:
    """Return a policy for these counts: nothing in it has a name, all is in their order.

    >>> from fedeas import FedEAS
    >>> counts = LabelCounts([[90, 10], [30, 40]], classes=["cat", "dog"])
    >>> resolve(FedEAS(target={"dog": 3, "cat": 1}), counts).target.shares
    (0.25, 0.75)
    """
    target = make_target(getattr(policy, "target", None))
    if target is not None:
        aim = target.for_counts(counts)
        policy = retarget(policy, None if aim.uniform else aim)
    return resolve_names(policy, counts.class_names, counts.client_names)


def resolve_names(policy: _P, classes: Sequence[str] | int, clients: Sequence[str] | int) -> _P:
    """Return a policy in the order of these classes and clients.

    If only their numbers are known, values by name are refused.
    """
    policy = aim_at_classes(policy, classes)
    ordered = {
        kind: values.ordered(names)
        for kinds, names in ((CLASSES, classes), (CLIENTS, clients))
        for kind, values in _values(policy, kinds).items()
    }
    return _replace(policy, ordered)


def resolve_client(policy: _P, classes: Sequence[str] | int, client: str | None = None) -> _P:
    """Return a policy for one client: as `resolve`, but the federation's shares stay unknown.

    What the policy names is refused where `classes` or `client` do not say which one it is.
    """
    if client is not None:
        values = _values(policy, CLIENTS)
        policy = _replace(policy, {kind: each.only(client) for kind, each in values.items()})
    return resolve_names(policy, classes, 1)


def _values(policy: object, kinds: Sequence[str]) -> dict[str, NamedValues]:
    """Return the costs and limits, or the qualities, that a policy has."""
    values = {kind: make_named_values(getattr(policy, kind, None), kind) for kind in kinds}
    return {kind: each for kind, each in values.items() if each is not None}


def _replace(policy: _P, settings: dict[str, Any]) -> _P:
    if not settings:
        return policy
    if not is_dataclass(policy) or isinstance(policy, type):
        raise InputError(f"this policy takes no other {' or '.join(settings)}", got=policy)
    return replace(policy, **settings)


def quality_of(policy: object, classes: int) -> NDArray[np.float64] | None:
    """Return what a policy takes a synthetic sample of each class to be worth; None for 1."""
    quality = make_named_values(getattr(policy, "quality", None), "quality")
    return None if quality is None else quality.array(classes)


def with_quality(policy: _P, quality: Sequence[float]) -> _P:
    """Return a policy that knows what samples are worth, if it can take that and does not yet."""
    if getattr(policy, "quality", quality) is not None or not is_dataclass(policy):
        return policy
    return _replace(policy, {"quality": NamedValues("quality", tuple(quality))})


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
        if not f.metadata.get("hidden")
        and not (f.metadata.get("optional") and getattr(policy, f.name) is None)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, NamedValues):
        return list(value.values)
    return value.to_dict() if isinstance(value, Target) else value.item()
