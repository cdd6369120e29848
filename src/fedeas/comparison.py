"""The matched-budget table: several policies on the same counts and the same total, no training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.plan import Plan
from fedeas.policies import FedEAS, Policy, make_plan, make_policy
from fedeas.policy_settings import policy_name
from fedeas.targets import Target

DEFAULT_POLICIES = (
    "fedeas",
    "uniform",
    "missing-only",
    "waterfill",
    "fill-to-mean",
    "full-balance",
)


@dataclass(frozen=True)
class Row:
    """What one policy does with the counts; only `policy` and `note` if it cannot be applied."""

    policy: str
    total: int | None = None
    reduction: float | None = None  # part of the imbalance score that is removed
    synthetic_share: float | None = None
    negative_gain: int | None = None  # samples where they raise the score, to first order
    budget_ratio: float | None = None  # largest over smallest number of samples of a client, if any
    clients: int | None = None  # clients that generate anything
    classes: int | None = None  # classes of which anything is generated
    pairs: int | None = None  # client-class pairs that receive anything
    note: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The rows of a matched-budget table and the total that was matched."""

    total: int
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


def compare(
    counts: CountsLike,
    policies: Sequence[str | Policy] = DEFAULT_POLICIES,
    reference: Policy | None = None,
) -> Comparison:
    """Plan with every policy; those that take a total get that of the reference.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    policies : sequence of str or Policy
        Names with settings, or policies.
    reference : Policy, optional
        Its total is what the others spend, and its target what all are measured against; FedEAS
        with beta 12 by default.

    >>> for row in compare(LabelCounts([[90, 10, 0], [30, 40, 30]]), ["fedeas", "uniform"]):
    ...     print(row.policy, row.total, round(row.reduction, 3))
    fedeas 86 0.918
    uniform 86 0.511
    """
    chosen = reference or FedEAS()
    counts = LabelCounts.of(counts)
    planned = make_plan(chosen, counts)
    matched, target = planned.total, planned.target
    rows = []
    for given in policies:
        policy = _resolve(given, chosen, matched, target) if isinstance(given, str) else given
        label = given if isinstance(given, str) else policy_name(given)
        try:
            plan = make_plan(policy, counts).scored_for(counts, target)
            rows.append(_row(label, plan))
        except InfeasibleError as error:
            rows.append(Row(label, note=str(error)))
    return Comparison(matched, tuple(rows))


def _resolve(spec: str, reference: Policy, total: int, target: Target | None) -> Policy:
    """Make a policy; the reference's own name stands for the reference with all its settings."""
    if spec == getattr(reference, "name", None):
        return reference
    return make_policy(spec, total=total, target=target)


def _row(label: str, plan: Plan) -> Row:
    busy = plan.per_client[plan.per_client > 0]
    return Row(
        label,
        plan.total,
        plan.reduction,
        plan.synthetic_share,
        plan.harmful,
        float(busy.max() / busy.min()) if busy.size else None,
        int(busy.size),
        int(plan.samples.any(axis=0).sum()),
        int((plan.samples > 0).sum()),
    )
