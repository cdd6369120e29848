"""Policies by name: ours, those of installed packages (entry points), and any dotted path."""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from fedeas.errors import FedeasError, InputError
from fedeas.policies.balance import FillToMean, FullBalance, NoGeneration
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.greedy import Greedy
from fedeas.policies.matched import MissingOnly, Uniform
from fedeas.policies.policy import Policy
from fedeas.policies.waterfill import WaterFill

ENTRY_POINTS = "fedeas.policies"
_OURS: dict[str, Callable[..., Policy]] = {
    policy.name: policy
    for policy in (
        FedEAS,
        Uniform,
        MissingOnly,
        WaterFill,
        Greedy,
        FillToMean,
        FullBalance,
        NoGeneration,
    )
}
_SPEC = re.compile(r"\s*([\w.:-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)


def policy_names() -> list[str]:
    """Return the names that `make_policy` knows: ours, then those of installed packages."""
    return [*_OURS, *(point.name for point in entry_points(group=ENTRY_POINTS))]


def make_policy(spec: str, **offered: object) -> Policy:
    """Make a policy from its name and settings: 'fedeas', 'fedeas(beta=8, entropy=false)'.

    `offered` are settings at hand, such as a total to match; a policy takes those that it has and
    that `spec` does not set. A name with a colon is a dotted path, 'package.module:Policy'.

    >>> make_policy("fedeas(beta=8, below_mean=false)")
    FedEAS(beta=8, size_exponent=0.5, entropy=True, below_mean=False)
    >>> make_policy("uniform", total=100, beta=12.0)
    Uniform(total=100)
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise InputError("not a policy", got=spec, allowed="NAME or NAME(setting=value, ...)")
    name, settings = match[1], _settings(match[2] or "", spec)
    factory = _find(name)
    parameters = inspect.signature(factory).parameters
    if unknown := [key for key in settings if key not in parameters]:
        raise InputError(
            f"policy {name!r} has no setting {unknown[0]!r}",
            allowed=", ".join(parameters) or "no settings",
        )
    # A price given replaces the total that a comparison offers, so settings go before offers.
    exclusive = {"total", "price"} & settings.keys()
    for key, value in offered.items():
        if key in parameters and key not in settings and value is not None:
            if key == "total" and exclusive:
                continue
            settings[key] = value
    missing = [
        key
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty and key not in settings
    ]
    if missing:
        raise InputError(
            f"policy {name!r} needs {missing[0]!r}", fix=f"say {name}({missing[0]}=...)"
        )
    try:
        policy = factory(**settings)
    except FedeasError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"policy {name!r} cannot be made: {error}", got=settings) from None
    if not isinstance(policy, Policy):
        raise InputError(f"{name!r} is no policy", allowed="an object with a method `plan(counts)`")
    return policy


def _find(name: str) -> Callable[..., Policy]:
    if name in _OURS:
        return _OURS[name]
    for point in entry_points(group=ENTRY_POINTS, name=name):
        loaded: Callable[..., Policy] = point.load()
        return loaded
    if ":" in name:
        return _import(name)
    close = difflib.get_close_matches(name, policy_names(), n=1)
    raise InputError(
        "unknown policy",
        got=name,
        allowed=", ".join(policy_names()) + ", or a dotted path package.module:Policy",
        fix=f"did you mean {close[0]!r}?" if close else None,
    )


def _import(path: str) -> Callable[..., Policy]:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cannot import policy {path!r}: {error}") from None
    if not callable(found):
        raise InputError(f"{path!r} is no policy", allowed="a class, or a function that makes one")
    made: Callable[..., Policy] = found
    return made


def _settings(text: str, spec: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier() or not value.strip():
            raise InputError("not a setting", got=part, allowed="name=value", fix=f"in {spec!r}")
        settings[key.strip()] = _value(value.strip())
    return settings


def _value(text: str) -> object:
    constants: Mapping[str, object] = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
