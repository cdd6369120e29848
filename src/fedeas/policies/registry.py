"""Policies by name: built in, from installed packages (entry points), or by dotted path."""

from fedeas.errors import InputError
from fedeas.plan import Plan
from fedeas.policies.balance import FillToMean, FullBalance, NoGeneration
from fedeas.policies.copies import OwnClasses
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.greedy import Greedy
from fedeas.policies.matched import MissingOnly, Uniform
from fedeas.policies.policy import Policy
from fedeas.policies.waterfill import WaterFill
from fedeas.specs import Registry, parse
from fedeas.targets import FEDERATION, UNIFORM, inline_shares

_OURS = (
    FedEAS, Uniform, MissingOnly, WaterFill, Greedy, FillToMean, FullBalance, OwnClasses,
    NoGeneration,
)  # fmt: skip
_REGISTRY = Registry(
    "policy", "fedeas.policies", {policy.name: policy for policy in _OURS}, "plan(counts)"
)


def policy_names() -> list[str]:
    """Return the names that `make_policy` knows: built-in, then from installed packages."""
    return _REGISTRY.names()


def make_policy(spec: str, **offered: object) -> Policy:
    """Make a policy from its name and settings: 'fedeas', 'fedeas(beta=8, entropy=false)'.

    A policy also gets those `offered` settings, such as a total to match, that it takes and that
    `spec` does not set. A name with a colon is a dotted path, 'package.module:Policy'.

    Parameters
    ----------
    spec : str
        The policy's name, with settings in brackets.
    **offered : object
        Settings to use where the policy takes them and `spec` does not set them.

    >>> make_policy("fedeas(beta=8, below_mean=false)")
    FedEAS(beta=8, size_exponent=0.5, entropy=True, below_mean=False)
    >>> make_policy("uniform", total=100, beta=12.0)
    Uniform(total=100)
    """
    if "price" in parse(spec, "policy")[1]:
        offered.pop("total", None)  # a price already says how much
    policy = _REGISTRY.make(spec, offered)
    if not isinstance(policy, Policy):
        raise InputError(
            f"{spec!r} is not a policy", allowed="an object with a method `plan(counts)`"
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
