"""What `fedeas plan` prints: a table, or JSON."""

import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from fedeas.cli import show

if TYPE_CHECKING:
    from fedeas import Cost, Diagnosis, LabelCounts, Plan, Target
    from fedeas.cli.plan_choice import Chosen
    from fedeas.cost import SiteCosts
    from fedeas.stream import StreamedPlan
    from fedeas.targets import TargetLike

_NAME = 24  # characters of a client in a line
_WIDTH = 80  # of a line
_HEAD = 17  # of it, for what the line is about


@dataclass(frozen=True)
class Findings:
    """What kind of skew the counts have, and distances of the clients if they were asked for."""

    diagnosis: "Diagnosis"
    metrics: dict[str, dict[str, float]] | None

    @classmethod
    def of(cls, counts: "LabelCounts", target: "Target | None", metrics: bool) -> "Findings":
        """Look at the counts."""
        from fedeas import diagnose

        return cls(diagnose(counts, target), _distances(counts, target) if metrics else None)

    def to_dict(self) -> dict[str, object]:
        """Return what JSON says about the skew."""
        found = self.diagnosis
        return {
            "between": found.between,
            "advice": found.advice,
            "advice_text": found.advice_text,
            "diagnosis": found.to_dict(),
            **({} if self.metrics is None else {"metrics": self.metrics}),
        }


def _distances(counts: "LabelCounts", target: "Target | None") -> dict[str, dict[str, float]]:
    """Return mean distances, weighted by samples, from the target and from all clients together."""
    from fedeas import skew

    measures: dict[str, Callable[[LabelCounts, TargetLike], Any]] = {
        "skewness": lambda n, t: skew.skewness(n, target=t),
        "hellinger": skew.hellinger,
        "jensen_shannon": skew.jensen_shannon,
        "earth_movers": skew.earth_movers,
    }
    weights = skew.weights(counts)
    return {
        name: {
            "to_target": float(weights @ measure(counts, target)),
            "to_federation": float(weights @ measure(counts, "federation")),
        }
        for name, measure in measures.items()
    }


def print_findings(findings: Findings) -> None:
    """Print what kind of skew there is and what to do about it, before the plan."""
    for head, text in findings.diagnosis.lines():
        lines = textwrap.wrap(text, _WIDTH - _HEAD)
        typer.echo(f"{head:<{_HEAD}}" + f"\n{'':<{_HEAD}}".join(lines))
    if findings.metrics is not None:
        table = show.new_table(
            "Mean distance of a client, weighted by samples",
            ("", False), ("to the target", True), ("to all clients", True),
        )  # fmt: skip
        for name, mean in findings.metrics.items():
            shown = (f"{mean['to_target']:.3f}", f"{mean['to_federation']:.3f}")
            table.add_row(_TITLES[name], *shown)
        show.print_table(table)
    typer.echo("")


_TITLES = {
    "skewness": "skewness",
    "hellinger": "Hellinger",
    "jensen_shannon": "Jensen-Shannon",
    "earth_movers": "earth mover's",
}


def print_plan(
    counts: "LabelCounts", plan: "Plan", rows: int, chosen: "Chosen", advice: str
) -> None:
    """Print the clients that generate most, and the outcome; `advice` is that of the diagnosis."""
    from fedeas import FullBalance
    from fedeas.cost import SiteCosts
    from fedeas.diagnosis import COPIES, NOTHING
    from fedeas.policies import copyable
    from fedeas.skew import skewness

    scalars = {key: plan.settings.get(key) for key in ("beta", "total", "price")}
    if plan.settings.get("costs") and isinstance(plan.cost, SiteCosts):
        scalars["spend"] = scalars.pop("total")
    shown = [f"{key} {value:g}" for key, value in scalars.items() if value]
    shown += [f"target {plan.target_name}"] if plan.target else []
    settings = ", ".join(shown)
    samples = show.count_of(plan.total, "sample")
    optional = "optional: " if advice in (COPIES, NOTHING) and plan.total else ""
    table = show.new_table(
        f"{optional}{plan.policy}{f' ({settings})' if settings else ''}: {samples}",
        ("client", False), ("real", True), ("skew", True),
        ("generate", True), ("", False), ("mostly", False),
    )  # fmt: skip
    order = (-plan.per_client).argsort(kind="stable")
    largest = max(1, int(plan.per_client.max()))
    skews = skewness(counts, target=plan.target)
    names = [show.shortened(counts.client_names[k], _NAME) for k in order[:rows]]
    # What a line of 80 characters leaves beside the numbers and the bar.
    width = min(25, 37 - max(map(len, names)))
    for k, name in zip(order, names, strict=False):
        table.add_row(
            name,
            f"{counts.sizes[k]:,}",
            f"{skews[k]:.2f}" if counts.sizes[k] else "-",
            f"{plan.per_client[k]:,}",
            show.bar(plan.per_client[k] / largest),
            _largest_classes(plan, int(k), width),
        )
    if len(order) > rows:
        rest = plan.per_client[order[rows:]].sum()
        table.add_row(f"{len(order) - rows:,} more", "", "", f"{rest:,}", "", "")
    show.print_table(table)
    print_outcome(plan, plan.cost, chosen)
    if plan.total:
        typer.echo(f"copies           {_copies(int(copyable(plan.samples, counts.n).sum()), plan)}")
    balanced = FullBalance(target=plan.target).plan(counts)
    full = balanced.total
    if plan.total and full > plan.total:
        cost = ""
        if plan.cost:
            from fedeas.cost import cost_text

            cost = f" ({cost_text(_amount(balanced, plan.cost), plan.cost.unit)})"
        more = f"{full / plan.total:.1f} times as many"
        samples = show.count_of(full, "sample")
        typer.echo(f"full balance     {samples}{cost}, {more}")


def print_outcome(
    plan: "Plan | StreamedPlan", cost: "Cost | SiteCosts | None", chosen: "Chosen"
) -> None:
    """Print what a plan removes and costs."""
    if chosen.choice is not None:
        lines = textwrap.wrap(f"{chosen.choice.beta:.9g}: {chosen.choice}", _WIDTH - _HEAD)
        typer.echo(f"{'beta':<{_HEAD}}" + f"\n{'':<{_HEAD}}".join(lines))
    before, after = plan.score_before, plan.score_after
    removed, share = show.percent(plan.reduction), show.percent(plan.synthetic_share)
    typer.echo(f"imbalance        {before:.4f} -> {after:.4f}, {removed} removed")
    typer.echo(f"synthetic share  {share} of all training samples")
    if cost:
        from fedeas.cost import cost_text

        amount = cost_text(_amount(plan, cost), cost.unit)
        typer.echo(f"cost             {amount} at {cost.each} per sample")
    if worth := plan.settings.get("quality"):
        shown = f"{min(worth):g} to {max(worth):g}" if len(set(worth)) > 1 else f"{worth[0]:g}"
        typer.echo(f"quality          a synthetic sample counts as {shown} of a real one")


def _copies(made: int, plan: "Plan") -> str:
    """Say how much of a plan copies of the clients' own samples could make."""
    if made in (0, plan.total):
        return f"could make {'all' if made else 'none'} of these samples"
    part = f"{made:,} ({show.percent(made / plan.total)})"
    return f"could make {part}; the rest is of missing classes"


def _largest_classes(plan: "Plan", client: int, width: int) -> str:
    """List the classes that a client generates most of, as many as fit."""
    row = plan.samples[client]
    order = [c for c in (-row).argsort(kind="stable") if row[c]]
    shown = ""
    for place, c in enumerate(order):
        name = show.shortened(plan.class_names[c], max(6, width - 5))
        longer = f"{shown}{', ' if shown else ''}{name} {row[c]:,}"
        if place and len(longer) > width:
            return f"{shown} +{len(order) - place}"
        shown = longer
    return shown


def describe(
    counts: "LabelCounts", plan: "Plan", chosen: "Chosen", findings: Findings
) -> dict[str, object]:
    """Return a plan as JSON holds it."""
    from fedeas.overfill import overfilled
    from fedeas.policies import copyable
    from fedeas.skew import skewness

    skews = skewness(counts, target=plan.target)
    beyond = overfilled(counts, plan)
    each = getattr(plan.cost, "array", None)  # of different clients
    return {
        **summary(plan, plan.cost),
        **chosen.to_dict(),
        **findings.to_dict(),
        "copyable": int(copyable(plan.samples, counts.n).sum()),
        "client_count": counts.K,
        "empty_count": len(counts.empty),
        "settings": dict(plan.settings),
        "counts_hash": plan.counts_hash,
        "classes": list(counts.class_names),
        "empty_clients": list(counts.empty),
        "overfilled": asdict(beyond) if beyond else None,
        "clients": [
            {
                "client": counts.client_names[k],
                "real": int(counts.sizes[k]),
                "skew": float(skews[k]) if counts.sizes[k] else None,
                "generate": int(plan.per_client[k]),
                "cost": None if each is None else float(plan.per_client[k] * each[k]),
                "samples": plan.samples[k].tolist(),
            }
            for k in range(counts.K)
        ],
    }


def _amount(plan: "Plan | StreamedPlan", cost: "Cost | SiteCosts") -> float:
    """Return what a plan costs."""
    return cost.amount(getattr(plan, "per_client", plan.total))


def summary(plan: "Plan | StreamedPlan", cost: "Cost | SiteCosts | None") -> dict[str, object]:
    """Return the figures that all plans have, also those that are never held together."""
    amount = None if cost is None else {"amount": _amount(plan, cost), "unit": cost.unit}
    return {
        "policy": plan.policy,
        "target": plan.target_name,
        "total": plan.total,
        "reduction": plan.reduction,
        "synthetic_share": plan.synthetic_share,
        "score_before": plan.score_before,
        "score_after": plan.score_after,
        "negative_gain": plan.harmful,
        "cost": amount,
    }
