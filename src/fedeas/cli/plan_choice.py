"""Which policy `fedeas plan` plans with: its beta as given, for a total, or chosen."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedeas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from fedeas import BetaChoice, Cost, LabelCounts, Plan, Target
    from fedeas.cost import SiteCosts
    from fedeas.per_name import PerName
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
    limits: "PerName | None" = None
    quality: "PerName | None" = None
    costs: "SiteCosts | None" = None
    amount: float | None = None  # to spend at these costs

    @property
    def differs(self) -> bool:
        """Whether sites or classes differ in cost, limit or quality."""
        return not (self.limits is None and self.quality is None and self.costs is None)

    def at_costs(self, file: "Path", spend: str | None, counts: "LabelCounts") -> "Wanted":
        """Return the same with a cost for each client, and what to spend at these costs."""
        from fedeas.cost import SiteCosts

        costs = SiteCosts.load(file, counts.client_names)
        return replace(self, costs=costs, amount=None if spend is None else costs.amount_for(spend))

    def scored(self, plan: "Plan", counts: "LabelCounts", cost: "Cost | None") -> "Plan":
        """Return a plan scored for the target and the qualities, with what its samples cost."""
        if self.target or self.quality:
            plan = plan.scored_for(counts, plan.target or self.target, self.quality)
        priced = self.costs or cost
        return plan.with_cost(priced) if priced else plan

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
    budget = wanted.total if wanted.amount is None else wanted.amount
    if budget is not None:
        if in_spec:
            raise InputError("give a beta or a total, not both", got=(wanted.spec, budget))
        costs = wanted.costs.array if wanted.costs and wanted.amount is not None else None
        return Chosen(replace(policy, beta=beta_for_total(counts, budget, policy, costs)), TOTAL)
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
    kinds = ("beta", "target", "limits", "quality")
    offered: dict[str, object] = {kind: getattr(wanted, kind) for kind in kinds}
    total: float | None = wanted.total
    if wanted.costs is not None and (wanted.amount is not None or "price" in settings):
        offered["costs"], total = wanted.costs.per_sample, wanted.amount
    if wanted.limits is not None or wanted.amount is not None:
        _check_sites(make_policy(wanted.spec, total=1, **offered), wanted)
    try:
        return make_policy(wanted.spec, total=total, **offered)
    except InputError as error:
        try:
            make_policy(wanted.spec, total=1 if total is None else total, **offered)
        except InputError:
            raise error from None
        raise InputError(f"{name} needs a budget", fix="add --total 1000") from None


def _check_sites(policy: "Policy", wanted: Wanted) -> None:
    """Refuse limits, or an amount at different costs, that a policy cannot keep to."""
    name = getattr(policy, "name", type(policy).__name__)
    takes = getattr(policy, "__dataclass_fields__", {})
    if wanted.limits is not None and "limits" not in takes:
        raise InputError(f"policy {name!r} takes no limits", allowed="fedeas, waterfill")
    if wanted.amount is not None and not {"beta", "costs"} & takes.keys():
        raise InputError(
            f"policy {name!r} takes a number of samples",
            fix="give --total, or use fedeas or waterfill",
        )


def _check_taken(policy: "Policy", wanted: Wanted) -> None:
    """Refuse a beta or total that the policy does not take, instead of ignoring it."""
    total = wanted.total if wanted.amount is None else wanted.amount
    for option, value in (("beta", wanted.beta), ("total", total)):
        if value is not None and getattr(policy, option, None) != value:
            name = getattr(policy, "name", type(policy).__name__)
            raise InputError(
                f"policy {name!r} takes no {option}", got=value, fix=f"leave out --{option}"
            )
