"""The matched-budget table: several policies on the same counts and the same total, no training."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.notebook import html_lines, record_frame
from fedeas.plan import Plan
from fedeas.policies import (
    FedEAS,
    OwnClasses,
    Policy,
    copyable,
    make_plan,
    make_policy,
    reachable_reduction,
)
from fedeas.policy_settings import policy_name
from fedeas.targets import Target

DEFAULT_POLICIES = (
    "fedeas",
    "uniform",
    "missing-only",
    "waterfill",
    "fill-to-mean",
    "full-balance",
    "copies",
    "class-weights",
)
_HEAD = ("policy", "total", "removed", "share")
_CLASS_WEIGHTS = "class-weights"  # a method of training: it generates nothing


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
        Names with settings, or policies. `class-weights` stands for no samples at all, and a loss
        that counts rare classes for more.
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
        if given == _CLASS_WEIGHTS:
            rows.append(_class_weights(counts, target))
            continue
        policy = _resolve(given, chosen, matched, target) if isinstance(given, str) else given
        label = given if isinstance(given, str) else policy_name(given)
        try:
            row = _row(label, make_plan(policy, counts).scored_for(counts, target))
            free = isinstance(policy, OwnClasses)
            rows.append(_with_reach(row, planned, counts) if free else row)
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


def _with_reach(row: Row, planned: Plan, counts: LabelCounts) -> Row:
    """Say what copies can and cannot reach."""
    made, reach = (
        int(copyable(planned.samples, counts.n).sum()),
        reachable_reduction(counts, planned.target),
    )
    most = f"{reach:.1%}".replace("%", " %")
    remark = (
        f"could make {made:,} of the {planned.total:,} samples of the matched plan; at any total "
        f"they remove at most {most}. The score takes a copy for a new sample"
    )
    return replace(row, reach=reach, remark=remark)


def _class_weights(counts: LabelCounts, target: Target | None) -> Row:
    """Say what a weighted loss can and cannot reach."""
    clients = counts.sizes > 0
    empty, pairs = int((counts.n[clients] == 0).sum()), int(clients.sum()) * counts.C
    remark = (
        f"a loss instead of samples; no effect on the {empty:,} of {pairs:,} pairs of a client "
        "and a class that are empty"
    )
    reach = reachable_reduction(counts, target)
    return Row(_CLASS_WEIGHTS, 0, 0.0, 0.0, 0, None, 0, 0, 0, reach=reach, remark=remark)
