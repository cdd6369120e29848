"""Which policy `fedeas plan` plans with: its beta as given, for a total, or chosen."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import BetaChoice, LabelCounts, Target
    from fedeas.policies import Policy
    from fedeas.policies.policy import LocalPolicy

GIVEN, TOTAL = "given", "total"


@dataclass(frozen=True)
class Wanted:
    """A policy's spec, and what the command line says besides."""

    spec: str
    beta: "float | None"
    total: int | None
    target: "Target | None"

    def settled(self, counts: "LabelCounts") -> "Wanted":
        """Return the same with a target whose shares are known from these counts."""
        return replace(self, target=self.target.for_counts(counts) if self.target else None)

    def restored(self, policy: "LocalPolicy") -> "LocalPolicy":
        """Return a policy with the target as it was wanted."""
        from fedeas.targets import retarget

        return retarget(policy, self.target) if self.target else policy


@dataclass(frozen=True)
class Chosen:
    """The policy to plan with, and how its beta came about."""

    policy: "Policy"
    beta_chosen_by: str | None  # None for a policy without beta
    choice: "BetaChoice | None" = None

    def to_dict(self) -> dict[str, object]:
        """Return what JSON says about the choice."""
        if self.choice is None:
            return {"beta_chosen_by": self.beta_chosen_by, "conditions": None}
        asked = {
            "min_reduction": self.choice.min_reduction,
            "max_share": self.choice.max_share,
            "met": self.choice.interval is not None,
        }
        return {"beta_chosen_by": self.beta_chosen_by, "conditions": asked}


def choose(wanted: Wanted, counts: "LabelCounts") -> Chosen:
    """Make the policy; FedEAS gets the beta given, the largest within a total, or a fitting one."""
    from fedeas import FedEAS, beta_for_total, choose_beta
    from fedeas.specs import parse

    policy = _make(wanted)
    if not isinstance(policy, FedEAS):
        _check_taken(policy, wanted)
        return Chosen(policy, None)
    in_spec = "beta" in parse(wanted.spec)[1]
    if wanted.total is not None:
        if in_spec:
            raise InputError("give a beta or a total, not both", got=(wanted.spec, wanted.total))
        return Chosen(replace(policy, beta=beta_for_total(counts, wanted.total, policy)), TOTAL)
    if wanted.beta is not None or in_spec:
        _check_taken(policy, wanted)
        return Chosen(policy, GIVEN)
    found = choose_beta(counts, policy=policy)
    return Chosen(replace(policy, beta=found.beta), found.chosen_by, found)


def _make(wanted: Wanted) -> "Policy":
    """Make the policy; if only a total is missing, say so."""
    from fedeas.policies import make_policy
    from fedeas.specs import parse

    name, settings = parse(wanted.spec)
    if wanted.target is not None and "target" in settings:
        raise InputError("give --target or a policy with a target, not both", got=wanted.spec)
    offered = {"beta": wanted.beta, "target": wanted.target}
    try:
        return make_policy(wanted.spec, total=wanted.total, **offered)
    except InputError as error:
        try:
            make_policy(wanted.spec, total=1 if wanted.total is None else wanted.total, **offered)
        except InputError:
            raise error from None
        raise InputError(f"{name} needs a budget", fix="add --total 1000") from None


def _check_taken(policy: "Policy", wanted: Wanted) -> None:
    """Refuse a beta or total that the policy does not take, instead of ignoring it."""
    for option, value in (("beta", wanted.beta), ("total", wanted.total)):
        if value is not None and getattr(policy, option, None) != value:
            name = getattr(policy, "name", type(policy).__name__)
            raise InputError(
                f"policy {name!r} takes no {option}", got=value, fix=f"leave out --{option}"
            )
