"""What `fedeas plan` prints: a table, or JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show

if TYPE_CHECKING:
    from fedeas import Cost, LabelCounts, Plan
    from fedeas.stream import StreamedPlan

_NAME = 24  # characters of a client in a line


def print_plan(counts: "LabelCounts", plan: "Plan", rows: int) -> None:
    """Print the clients that generate most, and the outcome."""
    from fedeas import FullBalance
    from fedeas.skew import skewness

    scalars = {key: plan.settings.get(key) for key in ("beta", "total", "price")}
    shown = [f"{key} {value:g}" for key, value in scalars.items() if value]
    shown += [f"target {plan.target_name}"] if plan.target else []
    settings = ", ".join(shown)
    samples = show.count_of(plan.total, "sample")
    table = show.new_table(
        f"{plan.policy}{f' ({settings})' if settings else ''}: {samples}",
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
    print_outcome(plan, plan.cost)
    full = FullBalance(target=plan.target).plan(counts).total
    if plan.total and full > plan.total:
        cost = f" ({plan.cost.of(full)})" if plan.cost else ""
        more = f"{full / plan.total:.1f} times as many"
        samples = show.count_of(full, "sample")
        typer.echo(f"full balance     {samples}{cost}, {more}")


def print_outcome(plan: "Plan | StreamedPlan", cost: "Cost | None") -> None:
    """Print what a plan removes and costs."""
    before, after = plan.score_before, plan.score_after
    removed, share = show.percent(plan.reduction), show.percent(plan.synthetic_share)
    typer.echo(f"imbalance        {before:.4f} -> {after:.4f}, {removed} removed")
    typer.echo(f"synthetic share  {share} of all training samples")
    if cost:
        each = f"{cost.per_sample:g} {cost.unit}"
        typer.echo(f"cost             {cost.of(plan.total)} at {each} per sample")


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


def describe(counts: "LabelCounts", plan: "Plan") -> dict[str, object]:
    """Return a plan as JSON holds it."""
    from fedeas.overfill import overfilled
    from fedeas.skew import skewness

    skews = skewness(counts, target=plan.target)
    beyond = overfilled(counts, plan)
    return {
        **summary(plan, plan.cost),
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
                "samples": plan.samples[k].tolist(),
            }
            for k in range(counts.K)
        ],
    }


def summary(plan: "Plan | StreamedPlan", cost: "Cost | None") -> dict[str, object]:
    """Return the figures that all plans have, also those that are never held together."""
    amount = None if cost is None else {"amount": plan.total * cost.per_sample, "unit": cost.unit}
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
