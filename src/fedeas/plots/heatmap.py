"""The picture of label counts and plans: clients x classes, before and after.

What a cell is shows in its shade and in a mark, so that it holds in grey as well. It is drawn
narrow, so that its text can be read where a phone shrinks it to 390 pixels.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.counts.label_counts import LabelCounts
from fedeas.errors import InputError
from fedeas.planning import skew
from fedeas.planning.plan import Plan
from fedeas.planning.policies import copyable
from fedeas.plots.canvas import GREY, INK, caption, file_content, make_figure, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEATMAP_WIDTH = 5.0  # inches
_NAMED = 30  # clients; more are not named
_MOST_ROWS = 60  # more clients than this are drawn in groups
_SIDE_BY_SIDE = 12  # classes; with more, the second panel is below the first
_SIZE = 9  # points, of all names
_HATCH = "/////"
# In cells, which keep their shades in a dark scheme: not the colours that change with it.
_DARK, _EMPTY, _HATCHED = "#111111", "#fefefe", "#767676"


class Cells(NamedTuple):
    """What is drawn: a row for every client, or for the median of every group of clients."""

    real: NDArray[np.int64]
    after: NDArray[np.int64]  # with what the plan adds
    copied: NDArray[np.bool_]  # the plan adds to samples that the client has
    generated: NDArray[np.bool_]  # the plan adds a class that the client has none of
    suppressed: NDArray[np.bool_]
    rows: list[str]  # names, unless there are too many
    group: int  # clients per row


def label_heatmap(
    counts: LabelCounts,
    plan: Plan | None = None,
    *,
    suppressed: NDArray[np.bool_] | None = None,
    title: str | None = None,
) -> "Figure":
    """Draw label counts as a heat map and, with a plan, what it adds to them.

    Parameters
    ----------
    counts : LabelCounts
        Real samples of each client and class.
    plan : Plan, optional
        A plan for these counts: drawn beside them, with what copies of a client's own samples
        could fill and what must be generated, since the client has none of the class.
    suppressed : array of bool, optional
        Clients x classes: counts that were withheld. They are hatched.
    title : str, optional
        The figure's title.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; a notebook shows it.

    """
    draw = partial(
        draw_heatmap, counts=counts, plan=plan, suppressed=suppressed, title=title, sentence=True
    )
    figure: Figure = make_figure(draw, HEATMAP_WIDTH, heatmap_height(counts, plan))
    # Notebooks show only figures of pyplot by themselves, and pyplot keeps every figure for ever.
    vars(figure)["_repr_png_"] = partial(file_content, figure, "png")
    return figure


def heatmap_height(counts: LabelCounts, plan: Plan | None) -> float:
    """Return the height of a heat map in inches."""
    names = 0.07 * max(len(shortened(name)) for name in counts.class_names)
    panels = 1 + _stacked(counts, plan)
    return panels * (0.4 + _panel_height(counts, plan)) + names + 1.9


def _panel_height(counts: LabelCounts, plan: Plan | None) -> float:
    """Return the height of a panel in inches: names have space, and many rows share it."""
    if counts.K <= _NAMED:
        return max(0.8, 0.18 * counts.K)
    return 3.0 if _stacked(counts, plan) else 4.5


def draw_heatmap(
    figure: Any,
    counts: LabelCounts,
    plan: Plan | None = None,
    *,
    suppressed: NDArray[np.bool_] | None = None,
    title: str | None = None,
    sentence: bool = False,
) -> None:
    """Draw `label_heatmap` into a figure or a part of one."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    cells = _cells(counts, plan, suppressed)
    shape = (1, 1) if plan is None else (2, 1) if _stacked(counts, plan) else (1, 2)
    panels = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False).ravel()
    norm = LogNorm(1, max(2.0, float(cells.after.max())), clip=True)
    _draw_cells(panels[0], cells, norm, cells.real, np.zeros(cells.real.shape, bool))
    if plan is None:
        _write_numbers(panels[0], cells, norm)
    else:
        _draw_cells(panels[1], cells, norm, cells.after, cells.generated)
        row = 72 * _panel_height(counts, plan) / len(cells.after)
        _draw_marks(panels[1], cells, norm, row)
        panels[0].set_title("Real samples", size=10)
        panels[1].set_title("With the plan", size=10)
    _name_axes(panels, counts, cells)
    bar = figure.colorbar(
        ScalarMappable(norm, _shades("Blues")), ax=panels, location="bottom", aspect=45, pad=0.02
    )
    unit = "samples per client and class"
    bar.ax.set_xlabel(unit if cells.group == 1 else f"{unit}, a group's median", size=_SIZE)
    bar.ax.xaxis.set_major_formatter("{x:,.0f}")
    bar.ax.tick_params(labelsize=_SIZE)
    bar.ax.minorticks_off()
    entries = _legend(cells)
    if entries or title:
        legend = figure.legend(
            handles=entries, loc="outside upper left", ncols=max(1, len(entries)), fontsize=_SIZE,
            handletextpad=0.4, columnspacing=1.2, borderpad=0, title=title, alignment="left",
        )  # fmt: skip
        legend.get_title().set(size=11, weight="bold")
    if sentence:
        caption(figure, _sentence(counts, plan, cells))


# What is drawn


def _cells(counts: LabelCounts, plan: Plan | None, suppressed: NDArray[np.bool_] | None) -> Cells:
    """Sort clients by their largest class, and put many into groups of neighbours."""
    hidden = np.zeros(counts.n.shape, bool) if suppressed is None else np.asarray(suppressed, bool)
    samples = np.zeros_like(counts.n) if plan is None else plan.samples
    for name, array in (("suppressed", hidden), ("plan", samples)):
        if array.shape != counts.n.shape:
            raise InputError(
                f"{name} and counts differ in shape", got=array.shape, allowed=str(counts.n.shape)
            )
    visible = np.where(hidden, 0, counts.n)
    largest = np.where(visible.any(1), visible.argmax(1), counts.C)  # empty clients come last
    order = np.lexsort((-visible.max(1) / np.maximum(visible.sum(1), 1), largest))
    size = _group_size(counts, plan)

    def median(values: NDArray[Any]) -> NDArray[Any]:
        # The middle one of a group from above: what at least half of its clients have none of is 0.
        groups = (np.sort(values[order[k : k + size]], 0) for k in range(0, counts.K, size))
        return np.stack([group[(len(group) - 1) // 2] for group in groups])

    filled, absent = (samples > 0) & ~hidden, counts.n == 0
    after = median(np.where(hidden, 0, counts.n + samples))
    generated = ~median(~(filled & absent)) & (after > 0)
    return Cells(
        median(visible),
        after,
        median(filled) & ~generated,
        generated,
        ~median(~hidden),
        [shortened(counts.client_names[k]) for k in order] if counts.K <= _NAMED else [],
        size,
    )


def _stacked(counts: LabelCounts, plan: Plan | None) -> bool:
    return plan is not None and counts.C > _SIDE_BY_SIDE


def _group_size(counts: LabelCounts, plan: Plan | None) -> int:
    most = 20 if _stacked(counts, plan) else 30  # groups
    return 1 if counts.K <= _MOST_ROWS else math.ceil(counts.K / most)


def _sentence(counts: LabelCounts, plan: Plan | None, cells: Cells) -> str:
    """Return what the picture comes to."""
    if plan is None:
        return (
            f"{counts.total:,} samples; imbalance score {skew.imbalance(counts):.3f}, where 0 "
            "means that every client holds equally many samples of every class."
        )
    copies = int(copyable(plan.samples, counts.n).sum())
    beta = plan.settings.get("beta")
    name = f"{plan.policy} (beta {beta:.3g})" if isinstance(beta, int | float) else plan.policy
    mixed = " A row is the median of its group." if cells.group > 1 else ""
    return (
        f"{name} adds {plan.total:,} samples to {counts.total:,}: copies could make {copies:,}, "
        f"{plan.total - copies:,} must be generated. It removes {100 * plan.reduction:.0f} % of "
        f"the imbalance.{mixed}"
    )


# How it is drawn


def _shades(name: str) -> Any:
    """Return a colour map whose lightest shade can be told from an empty cell."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[name](np.linspace(0.2, 0.95, 128)))


def _draw_cells(
    axes: Any, cells: Cells, norm: Any, values: NDArray[np.int64], generated: NDArray[np.bool_]
) -> None:
    """Draw a panel's shades and hatches; generated cells have another hue."""
    from matplotlib.patches import Rectangle

    shades = norm(np.maximum(values, 1)).filled()
    colours = np.where(generated[..., None], _shades("Oranges")(shades), _shades("Blues")(shades))
    colours[values == 0] = 1
    colours[cells.suppressed] = 0.9
    axes.imshow(colours, aspect="auto", interpolation="nearest")
    for k, c in np.argwhere(cells.suppressed):
        corner = (c - 0.5, k - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, hatch=_HATCH, edgecolor=_HATCHED, lw=0))
    rows, columns = values.shape
    if columns <= 40:  # lines between narrower cells would cover them
        axes.set_xticks(np.arange(1, columns) - 0.5, minor=True)
        axes.set_yticks(np.arange(1, rows) - 0.5, minor=True)
        axes.grid(which="minor", color="#d0d0d0", lw=0.5)
    axes.tick_params(which="both", length=0)
    for side in axes.spines.values():
        side.set(visible=True, color=GREY, lw=0.6)


def _draw_marks(axes: Any, cells: Cells, norm: Any, row: float) -> None:
    """Mark the cells that the plan fills: dots where copies could, crosses where not.

    `row` is the height of a row in points.
    """
    dark = norm(np.maximum(cells.after, 1)).filled() > 0.6
    size = min(5.0, 0.5 * row, 0.5 * _cell_width(cells.after.shape[1], 2))
    for marker, where in (("o", cells.copied), ("x", cells.generated)):
        for colour, shade in ((_EMPTY, dark), (_DARK, ~dark)):
            y, x = np.nonzero(where & shade)
            axes.plot(x, y, marker, ms=size, mew=size / 5, color=colour)


def _write_numbers(axes: Any, cells: Cells, norm: Any) -> None:
    """Write counts into cells that are wide enough."""
    texts = [f"{count:,}" for count in cells.real.flat]
    if not cells.rows or max(map(len, texts)) * 5 > _cell_width(cells.real.shape[1], 1):
        return
    dark = norm(np.maximum(cells.real, 1)).filled() > 0.6
    for (k, c), text in zip(np.ndindex(cells.real.shape), texts, strict=True):
        if cells.real[k, c] and not cells.suppressed[k, c]:
            colour = _EMPTY if dark[k, c] else _DARK
            axes.text(c, k, text, ha="center", va="center", size=8, color=colour)


def _cell_width(classes: int, panels: int) -> float:
    """Return about how many points a cell is wide, beside names of usual length."""
    side_by_side = panels == 2 and classes <= _SIDE_BY_SIDE
    return 72 * (1.6 if side_by_side else 3.5) / classes


def _name_axes(panels: Any, counts: LabelCounts, cells: Cells) -> None:
    """Name classes and clients, as many as there is space for."""
    width = _cell_width(counts.C, len(panels))
    at = np.arange(0, counts.C, math.ceil(1.25 * _SIZE / width))
    names = [shortened(counts.class_names[c]) for c in at]
    upright = max(map(len, names)) * 0.62 * _SIZE < counts.C * width / len(names)
    for axes in panels:
        axes.set_xticks(at, names, rotation=0 if upright else 90, size=_SIZE)
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel("class", size=_SIZE)
        if axes.get_subplotspec().is_first_col():
            groups = f" in groups of {cells.group:,}" if cells.group > 1 else ""
            many = f"{counts.K:,} clients{groups}"
            axes.set_ylabel("client" if cells.rows else many, size=_SIZE)
    panels[0].set_yticks(np.arange(len(cells.rows)), cells.rows, size=_SIZE)


def _legend(cells: Cells) -> list[Any]:
    """Return the legend's entries: only what is there to be seen."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    mark = partial(Line2D, [], [], ls="", color=INK, ms=5)
    entries: dict[str, tuple[NDArray[np.bool_], Callable[..., Any]]] = {
        "copies could fill": (cells.copied, partial(mark, marker="o")),
        "must be generated": (cells.generated, partial(mark, marker="x")),
        "suppressed": (
            cells.suppressed,
            partial(Patch, facecolor="#e6e6e6", edgecolor=_HATCHED, hatch=_HATCH, lw=0),
        ),
        "none": (
            (cells.real == 0) & ~cells.suppressed,
            partial(Patch, facecolor=_EMPTY, edgecolor=GREY, lw=0.6),
        ),
    }
    return [make(label=name) for name, (where, make) in entries.items() if where.any()]
