"""`plan`: a policy by name, or FedEAS with a beta for the counts, and what it plans."""

from dataclasses import dataclass, replace

from fedeas._internal.specs import Spec
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.errors import InputError
from fedeas.planning.beta import SHARE, BetaChoice, choose_beta
from fedeas.planning.cost import Cost
from fedeas.planning.named_values import NamedValuesLike
from fedeas.planning.plan import Plan
from fedeas.planning.policies import EqualReduction, FedEAS, Policy, make_plan, make_policy
from fedeas.planning.targets import TargetLike, make_target, retarget


def plan(
    counts: CountsLike,
    policy: str | Policy | None = None,
    target: TargetLike = None,
    total: int | None = None,
    cost: Cost | str | None = None,
) -> Plan:
    """Plan who generates how many samples of which class.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    policy : str or Policy, optional
        A policy, or its name with settings. FedEAS by default; if its beta is not given in a name,
        it is chosen for the counts, see `choose_beta`. Where no beta keeps the synthetic share
        below a quarter, `EqualReduction` plans instead.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.
    total : int, optional
        The most samples of all clients together.
    cost : Cost or str, optional
        The cost of a sample, such as '0.8s' or '0.002EUR'; kept with the plan.

    >>> plan([[90, 10, 0], [30, 40, 30]])
    Plan(fedeas: 30 samples for 1 of 2 clients, imbalance -59.5 %, synthetic share 13.0 %)
    >>> plan([[90, 10, 0], [30, 40, 30]], "waterfill", total=100, cost="0.8s").cost.each
    '0.8 s'
    """
    table = LabelCounts.of(counts)
    aim = make_target(target)
    if policy is None or isinstance(policy, str):
        answer = choose_policy(table, policy or "fedeas", total, target=aim).plan
    elif total is not None:
        raise InputError("give the total to the policy", got=total, fix="Uniform(total=...)")
    elif aim is None or not hasattr(policy, "target"):
        answer = make_plan(policy, table)
    elif policy.target is not None:
        raise InputError("give a target or a policy with a target, not both", got=policy)
    else:
        answer = make_plan(retarget(policy, aim), table)
    if aim is not None and answer.target is None:
        answer = answer.scored_for(table, aim)
    return answer.with_cost(Cost.parse(cost) if isinstance(cost, str) else cost) if cost else answer


@dataclass(frozen=True)
class Chosen:
    """A policy for given counts, and what it plans.

    Parameters
    ----------
    policy : Policy
        The policy.
    plan : Plan
        Its plan.
    beta : BetaChoice, optional
        Which beta was chosen, and why, if one was.
    """

    policy: Policy
    plan: Plan
    beta: BetaChoice | None = None

    @property
    def instead(self) -> str:
        """Why equal reduction plans in the place of FedEAS; empty if it does not."""
        if self.beta is None or isinstance(self.policy, FedEAS):
            return ""
        return (
            f"no beta keeps fewer than {100 * self.beta.max_share:g} % of all samples synthetic, "
            "so each client removes the same part of its own imbalance"
        )


def choose_policy(
    counts: LabelCounts,
    spec: str,
    total: float | None = None,
    costs: NamedValuesLike = None,
    **settings: object,
) -> Chosen:
    """Make a policy with these settings, and its plan; FedEAS without a beta gets one.

    What is given twice is refused, and so is a budget or a limit that the policy cannot keep to. A
    target and qualities are also for scoring, so a policy need not take them.

    Parameters
    ----------
    counts : LabelCounts
        The counts to plan for.
    spec : str
        The policy's name, with settings in brackets.
    total : float, optional
        The most samples; with `costs` the most to spend.
    costs : number, sequence, mapping, str or path, optional
        The cost of a sample at each client.
    **settings : object
        Settings of the policy, None for those that are not given.
    """
    parsed = Spec.parse(spec, "policy")
    written = parsed.settings
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given.keys() & written.keys():
        raise InputError(f"give a {key} or a policy with a {key}, not both", got=spec)
    try:
        rule = make_policy(parsed, total=total, costs=costs, **given)
    except InputError:
        if total is None and not written:  # what it lacks is a budget, if it can be made with one
            make_policy(parsed, total=0, costs=costs, **given)
            raise InputError(f"{spec} needs a budget", fix="give a total, such as 1000") from None
        raise
    if isinstance(rule, FedEAS) and (total is not None or "beta" not in given | written):
        if "beta" in given | written:
            raise InputError("give a beta or a total, not both", got=(rule.beta, total))
        choice = choose_beta(counts, policy=rule, total=total, costs=costs)
        if (
            choice.chosen_by == SHARE
            and not choice.plan.total
            and not (rule.limits or rule.quality)
        ):
            equal = EqualReduction(target=rule.target)
            return Chosen(equal, make_plan(equal, counts), choice)
        return Chosen(replace(rule, beta=choice.beta), choice.plan, choice)
    asked = {"total": total, "costs": costs, **given}
    for key in ("beta", "total", "costs", "limits"):
        if asked.get(key) is not None and getattr(rule, key, None) is None:
            raise InputError(f"policy {spec!r} takes no {key}", fix="leave it out")
    return Chosen(rule, make_plan(rule, counts))
