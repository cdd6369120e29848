"""The figures of counts and plans, drawn with matplotlib.

Every series differs in marker or hatching as well as in colour. Each figure ends in one sentence.
"""

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedeas._util.files import atomic_write
from fedeas.errors import InfeasibleError
from fedeas.planning import skew
from fedeas.planning.beta import BetaInterval, path
from fedeas.planning.counts import LabelCounts
from fedeas.planning.plan import Plan
from fedeas.planning.policies import FedEAS, FullBalance, MissingOnly, Policy, Uniform, WaterFill
from fedeas.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAPER,
    VERMILION,
    WHITE,
    Label,
    caption,
    draw_labels,
    make_figure,
    picture,
)

DEMAND_WIDTH, DEMAND_HEIGHT = 10.5, 4.2  # inches: two pictures side by side
_MOST_CLIENTS = 40
_MOST_NUMBERS = 300  # cells that are written out
_MOST_CLASSES = 40  # classes that are named
_LONGEST = 20  # characters of a client's name
_LINE = 64  # characters of names that fit below an axis


def plan_figure(plan: Plan, counts: LabelCounts) -> Any:
    """Return the figure of a plan for these counts, as `Plan.plot` does."""
    draw = partial(draw_demand_figure, counts=counts, plan=plan)
    return _shown(make_figure(draw, DEMAND_WIDTH, DEMAND_HEIGHT))


def counts_figure(counts: LabelCounts) -> Any:
    """Return the figure of counts, as `LabelCounts.plot` does."""
    height = 1.6 + 0.22 * min(counts.K, _MOST_CLIENTS)
    return _shown(make_figure(partial(_draw_shares, counts=counts), height=max(3.4, height)))


def _shown(figure: Any) -> Any:
    # Notebooks show only figures of pyplot by themselves, and pyplot keeps every figure for ever.
    figure._repr_png_ = partial(_png, figure)
    return figure


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()


def _draw_shares(figure: Any, counts: LabelCounts) -> None:
    """Draw the share of each class in each client's samples, the most skewed clients first."""
    skewness = np.where(counts.sizes > 0, skew.skewness(counts), -1.0)  # empty clients come last
    order = np.argsort(-skewness, kind="stable")[:_MOST_CLIENTS]
    n, sizes = counts.n[order], counts.sizes[order]
    shares = 100 * n / np.maximum(sizes, 1)[:, np.newaxis]
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    figure.colorbar(image, ax=axes, label="share (%)")
    if n.size <= _MOST_NUMBERS:
        for (k, c), share in np.ndenumerate(shares):
            colour = "white" if share > 55 else "#333333"
            axes.text(c, k, f"{n[k, c]:,}", ha="center", va="center", size=7, color=colour)
    axes.set_yticks(np.arange(len(order)), client_labels(counts, order), size=8)
    if counts.C <= _MOST_CLASSES:
        classes = [shortened(name) for name in counts.class_names]
        upright = counts.C <= 12 and max(map(len, classes)) <= 4
        axes.set_xticks(np.arange(counts.C), classes, rotation=0 if upright else 90, size=8)
    more = counts.K - len(order)
    which = f"the {len(order)} most skewed of {counts.K:,} clients" if more else "each client"
    axes.set(xlabel="class", ylabel="client, most skewed first" if len(order) > 8 else "client")
    axes.set_title(f"Label counts of {which}")
    caption(
        figure,
        f"{counts.total:,} samples; imbalance score {skew.imbalance(counts):.3f}, where 0 means "
        "that every client holds equally many samples of every class.",
    )


def demand(counts: LabelCounts, plan: Plan, file: Path) -> None:
    """Draw what every client generates next to full balance, and where the imbalance is."""
    write_picture(file, demand_picture(counts, plan, _kind(file)))


def demand_picture(counts: LabelCounts, plan: Plan, kind: str = "svg") -> bytes:
    """Return the picture of `demand`."""
    draw = partial(draw_demand_figure, counts=counts, plan=plan)
    return picture(draw, kind, DEMAND_WIDTH, DEMAND_HEIGHT)


def client_pictures(counts: LabelCounts, plan: Plan) -> tuple[bytes, bytes]:
    """Return the two parts of `demand`, each a picture of its own."""

    def samples(figure: Any) -> None:
        full = FullBalance(target=plan.target).plan(counts)
        draw_demand(figure.subplots(), counts, plan, full)
        caption(figure, _against_full_balance(plan, full))

    def concentration(figure: Any) -> None:
        draw_concentration(figure.subplots(), counts, plan)
        caption(figure, "The further above the diagonal, the fewer clients hold most of it.")

    return picture(samples), picture(concentration)


def draw_demand_figure(figure: Any, counts: LabelCounts, plan: Plan) -> None:
    """Draw the two parts of `demand`."""
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    full = FullBalance(target=plan.target).plan(counts)
    draw_demand(left, counts, plan, full)
    draw_concentration(right, counts, plan)
    caption(figure, _against_full_balance(plan, full))


def _against_full_balance(plan: Plan, full: Plan) -> str:
    return (
        f"{plan.policy} generates {plan.total:,} samples where balancing every class takes "
        f"{full.total:,}, and removes {100 * plan.reduction:.0f} % of the imbalance."
    )


def reduction(
    counts: LabelCounts, file: Path, mark: int | None = None, rule: FedEAS | None = None
) -> None:
    """Draw the imbalance that each policy removes against the samples it spends."""
    write_picture(file, reduction_picture(counts, mark, _kind(file), rule))


def reduction_picture(
    counts: LabelCounts, mark: int | None = None, kind: str = "svg", rule: FedEAS | None = None
) -> bytes:
    """Return the picture of `reduction`; `rule` is FedEAS with the beta and target to show."""
    rule = rule or FedEAS()
    last = 24 * max(1.0, rule.beta / 12)  # beta = 12 is in the middle
    aim = rule.target

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        top = max(replace(rule, beta=last).plan(counts).total, 2 * (mark or 0), 10)
        totals = np.unique(np.linspace(0, top, 49).astype(int)).tolist()
        makers: list[tuple[str, Callable[[int], Policy], str, str]] = [
            ("water-filling (the optimum)", lambda t: WaterFill(total=t, target=aim), GREY, "--"),
            ("missing-only", lambda t: MissingOnly(total=t, target=aim), GREEN, "-."),
            ("uniform", lambda t: Uniform(total=t, target=aim), ORANGE, ":"),
        ]
        for label, make, colour, line in makers:
            try:
                removed = [make(total).plan(counts).reduction for total in totals]
            except InfeasibleError:
                continue  # no client lacks a class: missing-only does not apply
            axes.plot(totals, np.multiply(removed, 100), line, color=colour, label=label, lw=1.8)
        fedeas = path(counts, np.linspace(last / 96, last, 96), rule)
        axes.plot(fedeas.totals, 100 * fedeas.reductions, color=BLUE, label="FedEAS", lw=2.2)
        swept = path(counts, np.arange(1, 6) * last / 6, rule)
        axes.plot(swept.totals, 100 * swept.reductions, "o", color=BLUE, ms=5)
        gap = ""
        if mark:
            axes.axvline(mark, color=GREY, lw=0.8, ls=(0, (1, 3)))
            uniform = Uniform(total=mark, target=aim).plan(counts).reduction
            best = float(np.interp(mark, fedeas.totals, fedeas.reductions))
            gap = (
                f" At {mark:,} samples FedEAS leads uniform by {100 * (best - uniform):.1f} points."
            )
        axes.set(xlabel="synthetic samples of all clients", ylabel="imbalance removed (%)")
        axes.set_xlim(0, top)
        axes.set_ylim(0, None)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_title("Imbalance removed against samples spent")
        axes.legend(loc="lower right", frameon=True, edgecolor="none", framealpha=0.85)
        caption(
            figure, "The same samples remove more imbalance where they fill scarce classes." + gap
        )
        draw_labels(axes, _betas(swept.betas, swept.totals, swept.reductions), BLUE)

    return picture(draw, kind)


def beta_selection(
    counts: LabelCounts,
    file: Path,
    choice: float,
    interval: BetaInterval | None = None,
    rule: FedEAS | None = None,
) -> None:
    """Draw imbalance removed against synthetic share along beta, with the two conditions."""
    write_picture(file, beta_picture(counts, choice, interval, _kind(file), rule))


def beta_picture(
    counts: LabelCounts,
    choice: float,
    interval: BetaInterval | None = None,
    kind: str = "svg",
    rule: FedEAS | None = None,
) -> bytes:
    """Return the picture of `beta_selection`."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        top = max(24.0, 1.5 * choice)
        line = path(counts, np.linspace(top / 200, top, 200), rule)
        axes.plot(100 * line.shares, 100 * line.reductions, color=BLUE, lw=2)
        right, upper = 1.05 * 100 * line.shares.max(), 105 * line.reductions.max()
        sentence = f"The path of beta from 0 to {top:g}; beta = {choice:g} is chosen."
        if interval is not None:
            x, y = 100 * interval.max_share, 100 * interval.min_reduction
            right, upper = max(right, 1.1 * x), max(upper, 1.1 * y)
            axes.axvline(x, color=VERMILION, ls="--", lw=1)
            axes.axhline(y, color=GREEN, ls="--", lw=1)
            axes.fill_between([0, x], y, upper, color=GREEN, alpha=0.10, lw=0)
            share, removed = f" share below {x:g} % ", f"at least {y:g} % removed"
            side = "right" if x > 0.7 * right else "left"
            axes.text(x, 0.02 * upper, share, color=VERMILION, va="bottom", ha=side, size=9)
            axes.text(right, y, removed, color=GREEN, va="bottom", ha="right", size=9)
            low, high = interval.rounded()
            sentence = (
                f"Both conditions hold for beta from {low:g} to {high:g}; "
                f"the roundest value in that range is {choice:g}."
            )
        axes.set_xlim(0, right)
        axes.set_ylim(0, upper)
        at = path(counts, np.array(sorted({*_marks(top), choice})), rule)
        chosen = at.betas == choice
        for these, marker, colour, size in ((~chosen, "o", BLUE, 5), (chosen, "D", VERMILION, 8)):
            points = 100 * at.shares[these], 100 * at.reductions[these]
            axes.plot(*points, marker, color=colour, ms=size)
        axes.set(xlabel="synthetic share of all samples (%)", ylabel="imbalance removed (%)")
        axes.set_title("Choosing beta from label counts alone")
        caption(figure, sentence)
        draw_labels(axes, _betas(at.betas, 100 * at.shares, at.reductions, choice))

    return picture(draw, kind)


def _marks(top: float) -> list[float]:
    """Return round betas up to `top`, a dozen at most.

    >>> _marks(24), _marks(108)
    ([4.0, 8.0, 12.0, 16.0, 20.0], [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0])
    """
    steps = (factor * 10.0**power for power in range(12) for factor in (1, 2, 5))
    step = 4.0 if top <= 36 else next(step for step in steps if top / step <= 12)
    marks: list[float] = np.arange(step, top, step).tolist()
    return marks


def _betas(betas: Any, x: Any, reductions: Any, choice: float | None = None) -> list[Label]:
    """Return the labels of the points of a path of betas."""
    return [
        Label(rf"$\beta$={beta:g}", at, 100 * part, bold=beta == choice)
        for beta, at, part in zip(betas, x, reductions, strict=True)
    ]


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


def shortened(name: str) -> str:
    """Return a name that fits below or beside an axis."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


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


def write_picture(file: Path, content: bytes) -> None:
    """Write a picture's file, all of it or nothing."""
    with atomic_write(file) as temporary:
        temporary.write_bytes(content)


def _kind(file: Path) -> str:
    return file.suffix.lower().removeprefix(".")
