"""The paper's two figures of who generates what: demand per client, and where the imbalance is."""

from typing import Any

import numpy as np

from fedeas.counts.label_counts import LabelCounts
from fedeas.planning import skew
from fedeas.planning.plan import Plan
from fedeas.planning.policies import FullBalance
from fedeas.plots.canvas import (
    BLUE,
    GREY,
    PAPER,
    VERMILION,
    WHITE,
    caption,
    picture,
    shortened,
)

_MOST_CLIENTS = 40
_LINE = 64  # characters of names that fit below an axis


def demand_picture(counts: LabelCounts, plan: Plan, kind: str = "svg") -> bytes:
    """Return the picture of what every client generates, next to full balance."""
    full = FullBalance(target=plan.target).plan(counts)

    def draw(figure: Any) -> None:
        draw_demand(figure.subplots(), counts, plan, full)
        caption(
            figure,
            f"Balancing every class takes {full.total:,} samples; FedEAS (beta = "
            f"{plan.settings['beta']:g}) takes "
            f"{plan.total:,}, most of them where the skew is.",
        )

    return picture(draw, kind)


def concentration_picture(counts: LabelCounts, plan: Plan, kind: str = "svg") -> bytes:
    """Return the picture of how few clients hold most of the imbalance."""

    def draw(figure: Any) -> None:
        draw_concentration(figure.subplots(), counts, plan)
        caption(
            figure, "Few clients hold most of the imbalance, and FedEAS gives them most samples."
        )

    return picture(draw, kind)


def draw_demand(axes: Any, counts: LabelCounts, plan: Plan, full: Plan) -> None:
    """Draw what every client generates, next to full balance."""
    order = np.argsort(-full.per_client, kind="stable")[:_MOST_CLIENTS]
    x = np.arange(len(order))
    planned, balanced = plan.per_client[order], full.per_client[order]
    axes.bar(
        x, balanced, 0.8, color=PAPER, edgecolor=GREY, hatch="////", lw=0.6, label="full balance"
    )
    axes.bar(x, planned, 0.8, color=BLUE, label=plan.policy)
    if len(order) <= 25:
        for at, samples in zip(x, planned, strict=True):
            text = axes.annotate(
                _short(int(samples)), (at, samples), (0, 2), textcoords="offset points", ha="center"
            )
            text.set(size=7, color=BLUE, bbox=WHITE, zorder=3)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    names = client_labels(counts, order)
    upright = len(names) * (max(map(len, names)) + 1) <= _LINE
    axes.set_xticks(x, names, rotation=0 if upright else 90, size=8)
    more = counts.K - len(order)
    axes.set(
        xlabel="client" + (f" (the {len(order)} that need most, {more:,} more)" if more else ""),
        ylabel="samples to generate",
    )
    axes.set_title("What each client generates")
    axes.legend(loc="upper right", ncols=2)


def client_labels(counts: LabelCounts, order: Any) -> list[str]:
    """Return the names of some clients beside an axis; those without samples are marked."""
    return [
        shortened(counts.client_names[k]) + ("" if counts.sizes[k] else " (no samples)")
        for k in order
    ]


def _short(samples: int) -> str:
    return f"{samples / 1000:.1f}k" if samples >= 1000 else str(samples)


def draw_concentration(axes: Any, counts: LabelCounts, plan: Plan) -> None:
    """Draw how few clients hold most of the imbalance, and what the plan gives them."""
    curve = skew.concentration(counts, plan.samples, plan.target)
    x = np.arange(counts.K + 1) / counts.K * 100
    every = max(1, counts.K // 20)
    for part, label, colour, marker, width, size in (
        # Where one covers the other, as with water-filling, both can still be seen.
        (curve.imbalance, "imbalance", VERMILION, "o", 3.2, 6.5),
        (curve.budget, f"samples of {plan.policy}", BLUE, "s", 1.5, 3.5),
    ):
        y = np.concatenate([[0.0], 100 * part])
        style = {"ls": "-", "lw": width, "ms": size, "markevery": every}
        axes.plot(x, y, marker, color=colour, label=label, **style)
    axes.plot([0, 100], [0, 100], color=GREY, lw=0.8, ls=":", label="if all were alike")
    quarter = int(np.ceil(counts.K / 4))
    share = 100 * curve.imbalance[quarter - 1]
    # Curves run above the diagonal: the corner below it is free, and the legend is outside.
    verb = "holds" if quarter == 1 else "hold"
    axes.annotate(
        f"{quarter} of {counts.K:,} clients\n{verb} {share:.0f} %",
        (x[quarter], share),
        (98, 6),
        ha="right",
        size=9,
        bbox=WHITE,
        arrowprops={"arrowstyle": "-", "lw": 0.6, "color": GREY},
    )
    axes.set(xlabel="clients, most imbalanced first (%)", ylabel="cumulative share (%)")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    axes.set_title("Where the imbalance sits")
    _legend_below(axes)


def _legend_below(axes: Any) -> None:
    """Put the legend below the label of the axis, however high the axes are."""
    from matplotlib.transforms import ScaledTranslation

    below = axes.transAxes + ScaledTranslation(0, -0.42, axes.figure.dpi_scale_trans)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below, ncols=3, fontsize=8,
        columnspacing=1.0, handlelength=1.4,
    )  # fmt: skip
