"""Who generates how much: the FedEAS rule, and the policies that it is compared with.

Policies by name are entry points, ours and those of other packages, or at a dotted path.
"""

from fedeas._internal.specs import Registry, Spec, parse
from fedeas.errors import InputError
from fedeas.planning.plan import Plan
from fedeas.planning.policies.baselines import (
    FullBalance,
    MissingOnly,
    NoGeneration,
    Random,
    Uniform,
)
from fedeas.planning.policies.equal_reduction import EqualReduction
from fedeas.planning.policies.fedeas import FedEAS
from fedeas.planning.policies.policy import LocalPolicy, Policy, check_total, make_plan
from fedeas.planning.policies.waterfill import (
    HeldClassesOnly,
    WaterFill,
    copyable,
    reachable_reduction,
)
from fedeas.planning.targets import FEDERATION, UNIFORM, inline_shares

__all__ = [
    "EqualReduction",
    "FedEAS",
    "FullBalance",
    "HeldClassesOnly",
    "LocalPolicy",
    "MissingOnly",
    "NoGeneration",
    "Policy",
    "Random",
    "Uniform",
    "WaterFill",
    "check_total",
    "copyable",
    "make_installed_policy",
    "make_plan",
    "make_policy",
    "policy_names",
    "reachable_reduction",
    "settled_spec",
    "with_target",
]
_REGISTRY = Registry("policy", "fedeas.policies", method="plan(counts)")


def policy_names() -> list[str]:
    """Return the names that `make_policy` knows: ours, then those of other packages."""
    return _REGISTRY.names()


def make_policy(spec: str | Spec, **defaults: object) -> Policy:
    """Make a policy from its name and settings: 'fedeas', 'fedeas(beta=8, entropy=false)'.

    A policy also gets those of the `defaults`, such as a total to match, that it takes and that
    `spec` does not set. A name with a colon is a dotted path, 'package.module:Policy'.

    Parameters
    ----------
    spec : str or Spec
        The policy's name, with settings in brackets.
    **defaults : object
        Settings to use where the policy takes them and `spec` does not set them.

    >>> make_policy("fedeas(beta=8, below_mean=false)")
    FedEAS(beta=8, size_exponent=0.5, entropy=True, below_mean=False)
    >>> make_policy("uniform", total=100, beta=12.0)
    Uniform(total=100)
    """
    return _make(spec, defaults, by_owner=True)


def make_installed_policy(spec: str) -> Policy:
    """Make a policy from text that somebody else may have written: a dotted path is refused."""
    return _make(spec, {}, by_owner=False)


def _make(spec: str | Spec, defaults: dict[str, object], by_owner: bool) -> Policy:
    parsed = Spec.parse(spec, "policy")
    if defaults.get("costs") is not None and not {"beta", "costs"} & _REGISTRY.parameters(
        parsed.name, by_owner=by_owner
    ):
        raise InputError(f"policy {parsed.name!r} takes a number of samples", fix="give a total")
    policy = _REGISTRY.make(parsed, defaults, by_owner=by_owner)
    if not isinstance(policy, Policy):
        raise InputError(
            f"{parsed.text!r} is not a policy", allowed="an object with a method `plan(counts)`"
        )
    return policy


def settled_spec(spec: str, plan: Plan) -> str:
    """Return a spec with the shares of its target in the place of a file's name.

    What a run depends on is the content of a file, not where it is.
    """
    target = parse(spec, "policy")[1].get("target")
    if plan.target is None or plan.target.shares is None or target in (None, UNIFORM, FEDERATION):
        return spec
    return with_target(spec, inline_shares(plan.target.shares))


def with_target(spec: str, target: str) -> str:
    """Return a spec with another target.

    >>> with_target("fedeas(beta=8, target=federation)", "0.6:0.4")
    'fedeas(beta=8, target=0.6:0.4)'
    """
    name, settings = parse(spec, "policy")
    settings["target"] = target
    return f"{name}({', '.join(f'{key}={value}' for key, value in settings.items())})"
