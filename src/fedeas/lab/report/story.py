"""The whole story in one picture: label counts before and after a plan, and accuracy by round."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedeas.counts.label_counts import LabelCounts
from fedeas.lab.results import Mean, tail
from fedeas.planning.plan import Plan
from fedeas.plots.canvas import BLUE, GREEN, GREY, make_figure
from fedeas.plots.heatmap import HEATMAP_WIDTH, draw_heatmap, heatmap_height

# Ways to train, by what their curves are called in a record: name, colour, marker, line.
WAYS = {
    "none": ("real samples, as many steps", GREY, "x", ":"),
    "copies": ("copies of local samples", GREEN, "s", "--"),
    "fedeas": ("FedEAS, private generator (epsilon 1)", BLUE, "o", "-"),
}
_HEIGHT = 3.3  # inches, of the curves
# Accuracies by way, seed and round; rounds count from 1.
Curves = Mapping[str, Mapping[int, Mapping[int, float]]]


def story_figure(
    counts: LabelCounts,
    plan: Plan,
    curves: Curves | None = None,
    title: str | None = None,
    last: int | None = None,
) -> Any:
    """Draw the heat maps of a plan and, below them, the accuracy of every way to train.

    `last` is how many rounds the accuracy at the end is averaged over, by default as in tables.
    """
    above = heatmap_height(counts, plan) + (0.2 if title else 0)
    below = _HEIGHT if curves else 0.0

    def draw(figure: Any) -> None:
        top = figure
        if curves:
            top, bottom = figure.subfigures(2, 1, height_ratios=[above, below])
            _draw_curves(bottom, curves, last)
        draw_heatmap(top, counts, plan, title=title, sentence=True)

    return make_figure(draw, HEATMAP_WIDTH, above + below)


def _draw_curves(figure: Any, curves: Curves, last: int | None) -> None:
    """Draw means over seeds, with 95 % confidence intervals where there are several seeds."""
    axes = figure.subplots()
    for way, (name, colour, marker, line) in WAYS.items():
        if way not in curves:
            continue
        by_seed = curves[way]
        rounds = sorted(set.intersection(*(set(seed) for seed in by_seed.values())))
        means = [Mean.of([seed[at] for seed in by_seed.values()]) for at in rounds]
        last = last or tail(len(rounds))
        end = Mean.of([_end(seed, rounds[-last:]) for seed in by_seed.values()])
        axes.plot(
            rounds, [100 * mean.value for mean in means], ls=line, color=colour, marker=marker,
            markevery=max(1, len(rounds) // 8), ms=5, label=f"{name}: {end.points()} %",
        )  # fmt: skip
        if len(by_seed) > 1:
            low, high = 100 * np.array([mean.bounds for mean in means]).T
            axes.fill_between(rounds, low, high, color=colour, alpha=0.2, lw=0)
    seeds = max(len(by_seed) for by_seed in curves.values())
    several = f"; mean and 95 % interval of {seeds} seeds" if seeds > 2 else ""
    axes.set(xlabel=f"round{several}", ylabel="test accuracy (%)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color="#d0d0d0", lw=0.5)
    title = f"Test accuracy by round (numbers: mean of the last {last})"
    legend = figure.legend(
        loc="outside upper left", fontsize=9, borderpad=0, labelspacing=0.3, title=title,
        alignment="left",
    )  # fmt: skip
    legend.get_title().set(size=10, weight="bold")


def _end(accuracies: Mapping[int, float], rounds: Sequence[int]) -> float:
    """Return the mean accuracy of the last rounds."""
    return sum(accuracies[at] for at in rounds) / len(rounds)
