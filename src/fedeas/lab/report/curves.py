"""Figures of results: what policies reach, how fast, at what budget, with how much drift."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.lab.results import FinishedRun, summarise, tail
from fedeas.lab.tables import ResultRow, ResultTable
from fedeas.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    HEIGHT,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    VERMILION,
    Label,
    caption,
    draw_labels,
    picture,
)

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]
# A policy looks the same in every figure: colour, marker, line.
_LOOKS = {
    "none": (GREY, "x", ":"),
    "fedeas": (BLUE, "o", "-"),
    "uniform": (ORANGE, "s", "--"),
    "missing-only": (GREEN, "^", "-."),
    "waterfill": (PURPLE, "D", "-"),
    "full-balance": (VERMILION, "v", "--"),
}
_OTHER = ("#56B4E9", "P", "-")
_NAME = 22  # characters of a line of a row's name
_LEGEND = 3  # names in a line of a legend
_LEAST_BARS = 4  # that the height of a figure is divided among


def look(policy: str) -> tuple[str, str, str]:
    """Return the colour, the marker and the line of a policy."""
    return _LOOKS.get(policy.split("(", maxsplit=1)[0], _OTHER)


def policy_name(policy: str) -> str:
    """Return what a policy is called in a figure."""
    return "no synthetic samples" if policy == "none" else policy


def label(row: ResultRow) -> str:
    """Return what a row is called in a figure: its setting, its method and its policy."""
    setting = [f"{name.rpartition('.')[2]} {value}" for name, value in row.column]
    method = [] if row.method == "fedavg" else [row.method]
    return ", ".join([*setting, *method, policy_name(row.policy)])


def height_of(rows: Sequence[ResultRow]) -> float:
    """Return the height that all figures of some rows have, in inches."""
    return max(HEIGHT, 1.5 + 0.42 * len(rows))


def allocation(rows: Sequence[ResultRow], height: float = HEIGHT) -> bytes:
    """Draw the accuracy of every row as a bar, with its interval if there are several seeds."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        positions = np.arange(len(rows))[::-1]
        for position, row in zip(positions, rows, strict=True):
            colour, *_ = look(row.policy)
            value = 100 * row.accuracy.value
            low, high = (100 * bound for bound in row.accuracy.bounds)
            axes.barh(position, value, 0.65, color=colour, alpha=0.85)
            if high > low:
                whiskers = [[value - low], [high - value]]
                axes.errorbar(value, position, xerr=whiskers, color=INK, lw=1, capsize=3)
            spent = f"{row.generated.value:,.0f} samples" if row.generated.value else ""
            axes.text(high + 0.6, position, f"{value:.1f}  {spent}", va="center", size=9)
        _name_bars(axes, rows, positions)
        axes.set_xlim(0, max(100 * row.accuracy.bounds[1] for row in rows) * 1.5)
        axes.set(xlabel="accuracy in the last rounds (%)")
        axes.set_title("Accuracy of each policy")
        best = max(rows, key=lambda row: row.accuracy.value)
        caption(figure, f"Highest: {label(best)}.{_whiskers(rows)}")

    return picture(draw, height=height)


def _name_bars(axes: Any, rows: Sequence[ResultRow], positions: Ints) -> None:
    """Write the names of rows beside their bars, long ones in lines; few bars stay narrow."""
    names = [textwrap.fill(label(row), _NAME, break_long_words=False) for row in rows]
    axes.set_yticks(positions, names, size=9)
    free = max(0, _LEAST_BARS - len(rows)) / 2
    axes.set_ylim(-0.6 - free, len(rows) - 0.4 + free)


def _whiskers(rows: Sequence[ResultRow]) -> str:
    """Say what the whiskers of a figure are, where it has any."""
    seeds = {row.seeds for row in rows}
    if max(seeds) > 2:
        return " Whiskers: 95 % confidence intervals over seeds."
    return " Whiskers: the two seeds." if 2 in seeds else ""


def convergence(
    runs: Sequence[FinishedRun], threshold: float | None, height: float = HEIGHT
) -> bytes:
    """Draw accuracy against rounds, the mean over seeds, with the threshold."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for policy, members in _by_policy(runs).items():
            colour, marker, line = look(policy)
            rounds, mean = mean_curve([run.result["curves"]["accuracy"] for run in members])
            every = max(1, len(rounds) // 8)
            axes.plot(
                rounds,
                100 * mean,
                ls=line,
                color=colour,
                marker=marker,
                markevery=every,
                label=policy_name(policy),
                ms=5,
            )
        if threshold:
            axes.axhline(100 * threshold, color=INK, lw=0.8, ls=(0, (4, 3)))
            axes.text(1, 100 * threshold + 0.5, f"{100 * threshold:g} %", size=9)
        axes.set(xlabel="round", ylabel="accuracy (%)")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title("Accuracy by round")
        _legend_on_top(axes)
        several = len({run.entry.seed for run in runs}) > 1
        over = ", the mean over seeds" if several else ""
        caption(figure, f"FedAvg's accuracy on the test set{over}.")

    return picture(draw, height=height)


def _legend_on_top(axes: Any) -> None:
    """Put the legend into space of its own above what is drawn."""
    lines = -(-len(axes.get_legend_handles_labels()[1]) // _LEGEND)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (0.05 + 0.1 * lines) * (high - low))
    axes.legend(loc="upper left", ncols=_LEGEND, fontsize=8, columnspacing=1.0, borderaxespad=0.2)


def mean_curve(curves: Sequence[Sequence[float | None]]) -> tuple[Ints, Floats]:
    """Return the rounds in which every run was evaluated, and the mean accuracy there.

    >>> mean_curve([[None, 0.2, None, 0.4], [0.1, 0.4, None, 0.6]])
    (array([2, 4]), array([0.3, 0.5]))
    """
    length = min(map(len, curves))
    values = np.array([list(curve)[:length] for curve in curves], float)  # None becomes NaN
    measured = np.flatnonzero(~np.isnan(values).any(axis=0))
    return measured + 1, values[:, measured].mean(axis=0)


def _by_policy(runs: Sequence[FinishedRun]) -> Mapping[str, list[FinishedRun]]:
    """Return FedAvg's runs by policy; other methods would be lines of one look."""
    by_policy: dict[str, list[FinishedRun]] = {}
    for run in runs:
        if run.entry.method == "fedavg":
            by_policy.setdefault(run.entry.policy, []).append(run)
    return by_policy


def budget(rows: Sequence[ResultRow], others: Sequence[ResultRow], height: float = HEIGHT) -> bytes:
    """Draw accuracy against samples spent; `others` are lines to compare with."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        families: dict[str, list[ResultRow]] = {}
        for row in rows:
            families.setdefault(row.policy.split("(", maxsplit=1)[0], []).append(row)
        for family, members in families.items():
            colour, marker, line = look(family)
            members.sort(key=lambda row: row.generated.value)
            x = [row.generated.value for row in members]
            y = [100 * row.accuracy.value for row in members]
            axes.plot(x, y, ls=line, marker=marker, color=colour, label=family, ms=6)
        for row in others:
            colour, _, line = look(row.policy)
            axes.axhline(100 * row.accuracy.value, color=colour, ls=line, lw=1.2, label=label(row))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.margins(x=0.12, y=0.12)
        betas = [
            Label(rf"$\beta$={row.policy.partition('beta=')[2].rstrip(')')}",
                  row.generated.value, 100 * row.accuracy.value)
            for row in families.get("fedeas", ())
        ]  # fmt: skip
        axes.set(xlabel="synthetic samples of all clients", ylabel="accuracy (%)")
        axes.set_title("Accuracy against the number of synthetic samples")
        axes.legend(loc="best", fontsize=9, frameon=True, edgecolor="none", framealpha=0.85)
        caption(figure, "At every mark both policies spend the same number of samples.")
        draw_labels(axes, betas, look("fedeas")[0])

    return picture(draw, height=height)


def epsilons(
    rows: Mapping[float, ResultRow], others: Mapping[str, ResultRow], height: float = HEIGHT
) -> bytes:
    """Draw accuracy against the epsilon of a federation's own generator; `others` are lines."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        by_epsilon = dict(sorted(rows.items()))
        positions = range(len(by_epsilon))
        values = [100 * row.accuracy.value for row in by_epsilon.values()]
        bounds = [[100 * bound for bound in row.accuracy.bounds] for row in by_epsilon.values()]
        whiskers = np.abs(np.array(bounds).T - values)
        colour, marker, line = look("fedeas")
        axes.errorbar(
            positions,
            values,
            whiskers,
            ls=line,
            marker=marker,
            color=colour,
            capsize=3,
            label="private",
        )
        for (name, row), line in zip(others.items(), (":", "--", "-.", "-"), strict=False):
            axes.axhline(100 * row.accuracy.value, color=GREY, ls=line, lw=1.4, label=name)
        axes.set_xticks(
            positions, [f"{epsilon:g}".replace("inf", "no noise") for epsilon in by_epsilon]
        )
        axes.margins(x=0.12, y=0.12)
        axes.set(xlabel="epsilon", ylabel="accuracy (%)")
        axes.set_title("Accuracy against epsilon")
        _legend_on_top(axes)
        text = "The smaller epsilon, the more noise in the sums that the generator is made of."
        caption(figure, text + _whiskers(list(by_epsilon.values())))

    return picture(draw, height=height)


def drift(rows: Sequence[ResultRow], height: float = HEIGHT) -> bytes:
    """Draw drift against accuracy, a mark per row."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for row in rows:
            colour, marker, _ = look(row.policy)
            x, y = row.drift.value, 100 * row.accuracy.value
            axes.plot(x, y, marker, color=colour, ms=9, label=label(row))
        axes.margins(0.15)
        axes.set(xlabel="drift: how far updates point apart (median of rounds)")
        axes.set_ylabel("accuracy (%)")
        axes.set_title("Accuracy against client drift")
        _legend_on_top(axes)
        caption(figure, "0: all clients pull the same way; 1: their updates cancel out.")

    return picture(draw, height=height)


def cost(rows: Sequence[ResultRow], height: float = HEIGHT) -> bytes:
    """Draw the time of generation and of training for every row."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        positions = np.arange(len(rows))[::-1]
        measured = [row.generation_seconds for row in rows]
        training = np.array([row.training_seconds.value for row in rows])
        generation = np.array([mean.value if mean else 0.0 for mean in measured])
        if minutes := (training + generation).max() >= 120:
            training, generation = training / 60, generation / 60
        axes.barh(positions, training, 0.6, color=BLUE, label="training")
        some = generation > 0
        axes.barh(
            positions[some], generation[some], 0.6, left=training[some], color=PAPER,
            edgecolor=VERMILION, hatch="////", label="generation",
        )  # fmt: skip
        total = training + generation
        for position, whole, mean in zip(positions, total, measured, strict=True):
            text = f"{whole:.1f}" if minutes else f"{whole:.0f}"
            text = text if mean else f"{text} + generation"
            axes.text(whole + 0.01 * total.max(), position, text, va="center", size=9)
        _name_bars(axes, rows, positions)
        axes.set_xlim(0, total.max() * (1.15 if all(measured) else 1.6))
        axes.set(xlabel="minutes" if minutes else "seconds")
        axes.set_title("Time of training and generation")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=9)
        ratio = total.max() / max(total.min(), 1e-9)
        text = f"The longest takes {ratio:.1f} times as long as the shortest."
        caption(figure, text if all(measured) else "The time of generation was not measured.")

    return picture(draw, height=height)


def last_rounds(runs: Sequence[FinishedRun]) -> int:
    """Return how many rounds the accuracies of a table are averaged over."""
    rounds = max((summarise(run.result["curves"])["rounds"] for run in runs), default=0)
    return tail(rounds)


def several_policies(table: ResultTable) -> bool:
    """Tell whether a table compares policies in one setting, all else being equal."""
    settings = {(row.column, row.method) for row in table.rows}
    return len({row.policy for row in table.rows}) > 1 and len(settings) == 1
