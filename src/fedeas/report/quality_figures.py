"""Pictures of generated samples beside real ones: their columns, and two projections."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data.schema import Column, Schema
from fedeas.generators.column_distances import ColumnDistance
from fedeas.generators.measure import Drawn, Real
from fedeas.report.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    WIDTH,
    caption,
    picture,
)
from fedeas.report.figures import shortened

Floats = NDArray[np.float64]
_SHOWN = 6  # columns
_BINS = 16
_LONGEST = 24  # characters of a column's name
_MOST_CATEGORIES = 6
_FITTED, _DOTS = 1000, 1500  # samples that components are found from; dots in a projection
_MARKS = ((BLUE, "o"), (VERMILION, "^"), (GREEN, "s"), (PURPLE, "D"), (ORANGE, "v"))


def columns_picture(
    schema: Schema, drawn: Drawn, real: Real, found: Sequence[ColumnDistance], kind: str = "svg"
) -> bytes:
    """Draw the columns that differ most, real and synthetic values in one small chart each."""
    shown = found[:_SHOWN]
    places = real.like(drawn.labels, real.unseen, len(real.unseen))
    rows = drawn.samples, real.at(places)
    lines = -(-len(shown) // 2)

    def draw(figure: Any) -> None:
        for place, one in enumerate(shown):
            at = schema.names.index(one.name)
            axes = figure.add_subplot(lines, 2, place + 1)
            _draw_column(axes, schema.columns[at], *(part[:, at] for part in rows))
            axes.set_title(_heading(one), size=9)
            axes.tick_params(labelsize=8)
            if not schema.columns[at].categories:
                axes.locator_params(axis="x", nbins=4)
                axes.xaxis.set_major_formatter(_tick)
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=2, fontsize=9)
        more = len(found) - len(shown)
        caption(figure, "Shares of values" + (f"; {more} columns differ less." if more else "."))

    return picture(draw, kind, WIDTH, 0.9 + 1.35 * lines)


def _heading(one: ColumnDistance) -> str:
    name = one.name if len(one.name) <= _LONGEST else f"{one.name[: _LONGEST - 1]}…"
    gaps = f"\ngaps {one.gaps:.0%}, real {one.real_gaps:.0%}" if one.gaps or one.real_gaps else ""
    return f"{name}: {one.measure} {one.distance:.2f}{gaps}"


def _tick(value: float, _: int) -> str:
    """Return a number as it fits below a small chart."""
    large = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
    unit, letter = next(((u, name) for u, name in large if abs(value) >= u), (1.0, ""))
    return f"{value / (1e3 if letter == 'k' else unit):g}{letter}"


def _draw_column(axes: Any, column: Column, own: Floats, real: Floats) -> None:
    own, real = own[~np.isnan(own)], real[~np.isnan(real)]
    if column.categories:
        _draw_categories(axes, column, own, real)
        return
    both = np.concatenate([own, real])
    if not both.size:
        axes.set_xticks([])
        return
    low, high = np.quantile(real if real.size else both, [0.005, 0.995]).tolist()
    if column.whole and high - low < 2 * _BINS:
        edges = np.arange(np.floor(low), np.ceil(high) + 2) - 0.5
    else:
        edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    for values, style in ((real, _REAL), (own, _OWN)):
        # What lies beyond the edges is in the outermost bins, so that shares add up.
        inside = np.clip(values, edges[0], edges[-1])
        heights = np.histogram(inside, edges)[0] / max(1, values.size)
        axes.stairs(heights, edges, **style)
    axes.set_ylim(bottom=0)


_REAL = {"color": GREY, "fill": True, "alpha": 0.45, "label": "real, unseen"}
_OWN = {"color": BLUE, "lw": 1.8, "label": "synthetic"}


def _draw_categories(axes: Any, column: Column, own: Floats, real: Floats) -> None:
    size = len(column.categories)
    shares = [
        np.bincount(part.astype(np.int64), minlength=size) / max(1, part.size)
        for part in (real, own)
    ]
    order = np.argsort(-np.maximum(*shares), kind="stable")[:_MOST_CATEGORIES]
    x = np.arange(len(order))
    style = {"color": GREY, "alpha": 0.45, "label": _REAL["label"]}
    axes.bar(x - 0.2, shares[0][order], 0.4, **style)
    axes.bar(x + 0.2, shares[1][order], 0.4, color=BLUE, label=_OWN["label"])
    names = [column.categories[c] for c in order.tolist()]
    short = [name if len(name) <= 7 else f"{name[:6]}…" for name in names]
    axes.set_xticks(x, short, rotation=0 if len(order) <= 3 else 30)


def principal_components(vectors: Floats) -> tuple[Floats, Floats, float]:
    """Return the mean, the first two principal components and their share of the variance.

    >>> mean, axes, share = principal_components(np.array([[0.0, 0], [2, 2], [4, 4]]))
    >>> mean.tolist(), np.abs(axes[0]).round(3).tolist(), round(share, 3)
    ([2.0, 2.0], [0.707, 0.707], 1.0)
    """
    mean: Floats = vectors.mean(axis=0, dtype=np.float64)
    _, sizes, axes = np.linalg.svd(vectors - mean, full_matrices=False)
    whole = float((sizes**2).sum())
    axes = axes[:2]
    # The sign of a component is arbitrary: the same picture on every machine.
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, np.newaxis]
    return mean, axes, float((sizes[:2] ** 2).sum()) / whole if whole > 0 else 1.0


def projection_picture(drawn: Drawn, real: Real, noun: str, kind: str = "svg") -> bytes:
    """Draw real and synthetic samples in the same two principal components, side by side."""
    vectors = real.vectors()
    fitted = real.at(real.like(drawn.labels, real.training, _FITTED))
    mean, axes_of, share = principal_components(np.asarray(vectors(fitted), np.float64))
    places = real.like(drawn.labels, real.unseen, _DOTS)
    known = Drawn(real.at(places), np.asarray(real.data.labels)[places])
    parts = known, drawn.some(_DOTS)
    points = [(vectors(part.samples) - mean) @ axes_of.T for part in parts]
    if points[0].shape[1] < 2:  # a table of one column
        points = [np.column_stack([at, np.zeros(len(at))]) for at in points]
    counts = np.bincount(drawn.labels, minlength=len(real.data.classes))
    most = min(len(_MARKS), int((counts > 0).sum()))
    marked = np.sort(np.argsort(-counts, kind="stable")[:most])

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        names = f"Unseen real {noun}s", f"Synthetic {noun}s"
        for axes, part, at, name in zip((left, right), parts, points, names, strict=True):
            others = ~np.isin(part.labels, marked)
            axes.plot(*at[others].T, ".", color=GREY, ms=2, alpha=0.5, rasterized=True)
            for label, (colour, marker) in zip(marked.tolist(), _MARKS, strict=False):
                own = at[part.labels == label]
                style = {"color": colour, "ms": 2.6, "alpha": 0.6, "mew": 0}
                named = shortened(real.data.classes[label])
                axes.plot(*own.T, marker, ls="", label=named, rasterized=True, **style)
            axes.set_title(name, size=10)
            axes.set_xticks([])
            axes.set_yticks([])
        low, high = np.quantile(np.concatenate(points), [0.002, 0.998], axis=0)
        edge = 0.05 * (high - low) + 1e-9
        left.set_xlim(low[0] - edge[0], high[0] + edge[0])
        left.set_ylim(low[1] - edge[1], high[1] + edge[1])
        handles, labels = left.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper left", ncols=len(marked), fontsize=9,
            markerscale=2.5, handletextpad=0.2, columnspacing=1.0,
        )  # fmt: skip
        rest = int((counts > 0).sum()) - len(marked)
        grey = f"; {rest} other class{'es' if rest > 1 else ''} in grey" if rest else ""
        caption(
            figure,
            f"The first two principal components of real training {noun}s, with {share:.0%} of "
            f"their variance{grey}.",
        )

    return picture(draw, kind, WIDTH, 3.6)
