"""The figures of single objects: what `plot()` of counts and of a plan returns."""

import io
from functools import partial
from typing import Any

import numpy as np

from fedeas import skew
from fedeas.counts import LabelCounts
from fedeas.plan import Plan
from fedeas.report.canvas import caption, make_figure
from fedeas.report.figures import (
    DEMAND_HEIGHT,
    DEMAND_WIDTH,
    client_labels,
    draw_demand_figure,
    shortened,
)

_MOST_CLIENTS = 40
_MOST_NUMBERS = 300  # cells that are written out
_MOST_CLASSES = 40  # classes that are named


def figure_of(drawn: LabelCounts | Plan, counts: LabelCounts | None = None) -> Any:
    """Return the figure of counts, or of a plan for these counts."""
    if isinstance(drawn, Plan) and counts is not None:
        draw = partial(draw_demand_figure, counts=counts, plan=drawn)
        made = make_figure(draw, DEMAND_WIDTH, DEMAND_HEIGHT)
    elif isinstance(drawn, LabelCounts):
        height = 1.6 + 0.22 * min(drawn.K, _MOST_CLIENTS)
        made = make_figure(partial(_draw_shares, counts=drawn), height=max(3.4, height))
    else:
        raise TypeError(f"cannot draw a {type(drawn).__name__}")
    # Notebooks show only figures of pyplot by themselves, and pyplot keeps every figure for ever.
    made._repr_png_ = partial(_png, made)
    return made


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
