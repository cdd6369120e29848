"""The matched-budget table: several policies on the same counts and the same total, no training."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedeas._internal.frames import html_lines, record_frame
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.planning.beta import beta_for_total
from fedeas.planning.plan import Plan
from fedeas.planning.policies import (
    FedEAS,
    HeldClassesOnly,
    Policy,
    WaterFill,
    copyable,
    make_plan,
    make_policy,
    reachable_reduction,
)
from fedeas.planning.resolve import policy_name

DEFAULT_POLICIES = (
    "fedeas",
    "uniform",
    "missing-only",
    "waterfill",
    "full-balance",
    "copies",
)
_HEAD = ("policy", "total", "removed", "share")


@dataclass(frozen=True)
class Row:
    """What one policy does with the counts; only `policy` and `note` if it cannot be applied.

    `reach` is given for what has no part in classes that a client lacks.
    """

    policy: str
    total: int | None = None
    reduction: float | None = None  # part of the imbalance score that is removed
    synthetic_share: float | None = None
    negative_gain: int | None = None  # samples where they raise the score, to first order
    budget_ratio: float | None = None  # largest over smallest number of samples of a client, if any
    clients: int | None = None  # clients that generate anything
    classes: int | None = None  # classes of which anything is generated
    pairs: int | None = None  # client-class pairs that receive anything
    reach: float | None = None  # the most of the imbalance that it could remove at any total
    note: str | None = None
    remark: str | None = None  # what the numbers do not say


@dataclass(frozen=True, repr=False)
class Comparison:
    """The rows of a matched-budget table and the total that was matched.

    >>> compare(LabelCounts([[90, 10, 0], [30, 40, 30]]), ["fedeas", "uniform"])
    Comparison at a total of 86 samples
    policy   total  removed   share
    fedeas      86   91.8 %  30.1 %
    uniform     86   51.1 %  30.1 %
    """

    total: int
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def to_pandas(self) -> Any:
        """Return a pandas data frame with a row per policy."""
        return record_frame([asdict(row) for row in self.rows])

    def _cells(self) -> list[list[str]]:
        def percent(part: float | None) -> str:
            return "-" if part is None else f"{100 * part:.1f} %"

        return [
            [
                row.policy,
                "-" if row.total is None else f"{row.total:,}",
                percent(row.reduction),
                percent(row.synthetic_share),
            ]
            for row in self.rows
        ]

    def __repr__(self) -> str:
        cells = [list(_HEAD), *self._cells()]
        wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            f"{name:<{wide[0]}}  "
            + "  ".join(f"{cell:>{w}}" for cell, w in zip(rest, wide[1:], strict=True))
            for name, *rest in cells
        ]
        return "\n".join([self._title, *lines])

    def _repr_html_(self) -> str:
        return html_lines(self._title, self._cells(), _HEAD)

    @property
    def _title(self) -> str:
        return f"Comparison at a total of {self.total:,} samples"


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
    reference = reference or FedEAS()
    counts = LabelCounts.of(counts)
    matched = make_plan(reference, counts)
    total, target = matched.total, matched.target
    rows = []
    for given in policies:
        label = given if isinstance(given, str) else policy_name(given)
        try:
            policy = _make(given, counts, reference, total) if isinstance(given, str) else given
        except InfeasibleError as error:
            rows.append(Row(label, note=str(error)))
            continue
        if isinstance(policy, WaterFill | HeldClassesOnly) and target is not None:
            rows.append(Row(label, note="plans for the uniform target only"))
            continue
        try:
            row = _row(label, make_plan(policy, counts).scored_for(counts, target))
            copies = isinstance(policy, HeldClassesOnly)
            rows.append(_with_reach(row, matched, counts) if copies else row)
        except InfeasibleError as error:
            rows.append(Row(label, note=str(error)))
    return Comparison(total, tuple(rows))


def _make(spec: str, counts: LabelCounts, reference: Policy, total: int) -> Policy:
    """Make a policy; the reference's own name stands for the reference with all its settings.

    FedEAS beside another reference has the beta that comes closest to its total.
    """
    target = getattr(reference, "target", None)
    if spec == getattr(reference, "name", None):
        return reference
    if spec == FedEAS.name:
        rule = FedEAS(target=target)
        return replace(rule, beta=beta_for_total(counts, total, rule))
    return make_policy(spec, total=total, target=target)


def _row(label: str, plan: Plan) -> Row:
    busy = plan.per_client[plan.per_client > 0]
    return Row(
        label,
        plan.total,
        plan.reduction,
        plan.synthetic_share,
        plan.negative_gain,
        float(busy.max() / busy.min()) if busy.size else None,
        int(busy.size),
        int(plan.samples.any(axis=0).sum()),
        int((plan.samples > 0).sum()),
    )


def _with_reach(row: Row, matched: Plan, counts: LabelCounts) -> Row:
    """Say what copies can and cannot reach."""
    copies = int(copyable(matched.samples, counts.n).sum())
    reach = reachable_reduction(counts, matched.target)
    most = f"{reach:.1%}".replace("%", " %")
    remark = (
        f"could make {copies:,} of the {matched.total:,} samples of the matched plan; at any total "
        f"they remove at most {most}. The score takes a copy for a new sample"
    )
    return replace(row, reach=reach, remark=remark)
