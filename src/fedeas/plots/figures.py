"""What samples buy: imbalance removed along totals and along beta, drawn with matplotlib.

Every series differs in marker or hatching as well as in colour. Each figure ends in one sentence.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.counts.label_counts import LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.planning.beta import BetaInterval, path
from fedeas.planning.policies import FedEAS, MissingOnly, Policy, Uniform, WaterFill
from fedeas.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    Label,
    caption,
    draw_labels,
    kind_of,
    picture,
    write_picture,
)


def reduction(
    counts: LabelCounts, file: Path, mark: int | None = None, rule: FedEAS | None = None
) -> None:
    """Draw the imbalance that each policy removes against the samples it spends."""
    write_picture(file, reduction_picture(counts, mark, kind_of(file), rule))


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
            ("missing-only", lambda t: MissingOnly(total=t, target=aim), GREEN, "-."),
            ("uniform", lambda t: Uniform(total=t, target=aim), ORANGE, ":"),
        ]
        if aim is None:
            makers.insert(0, ("water-filling (the optimum)", WaterFill, GREY, "--"))
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
    write_picture(file, beta_picture(counts, choice, interval, kind_of(file), rule))


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
