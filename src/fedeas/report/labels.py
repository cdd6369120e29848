"""Labels beside the points of a curve that do not run into each other."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedeas.report.canvas import INK, PAPER

_CHARACTER, _LINE = 0.095, 0.18  # inches of text of size 9
WHITE = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 0.6}  # behind labels
# Where a label can stand, seen from its point: offset in points, and the side that it ends on.
_PLACES = (((-7, 6), "right"), ((8, -12), "left"))


class Label(NamedTuple):
    """A text beside a point, in the units of the axes."""

    text: str
    x: float
    y: float
    bold: bool = False


class Box(NamedTuple):
    """A rectangle on the axes, in inches from the lower left."""

    left: float
    low: float
    right: float
    high: float

    def overlaps(self, other: "Box") -> bool:
        """Tell whether two rectangles share a part."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.low < other.high
            and other.low < self.high
        )


def draw_labels(
    axes: Any, labels: Sequence[Label], colour: str = INK, taken: Sequence[Box] = ()
) -> list[str]:
    """Write labels beside their points where there is space, bold ones first.

    The limits of the axes have to be set before. Returns the texts that were written.
    """
    axes.figure.draw_without_rendering()  # the layout decides how large the axes are
    points = [_around(axes, label) for label in labels]
    texts = list(taken)
    written = []
    for label in sorted(labels, key=lambda label: not label.bold):
        places = [(_box(axes, label, *place), *place) for place in _PLACES]
        inside = [place for place in places if _is_inside(axes, place[0])]
        free = [p for p in inside if not any(p[0].overlaps(other) for other in texts)]
        clear = [p for p in free if not any(p[0].overlaps(point) for point in points)]
        # A bold label is written in any case.
        chosen = next(iter([*clear, *((free + inside + places) if label.bold else [])]), None)
        if chosen is None:
            continue
        box, offset, side = chosen
        axes.annotate(
            label.text,
            (label.x, label.y),
            offset,
            textcoords="offset points",
            ha=side,
            size=9,
            color=colour,
            weight="bold" if label.bold else "normal",
            bbox=WHITE,
        )
        texts.append(box)
        written.append(label.text)
    return written


def text_box(axes: Any, text: str, x: float, y: float, *, ends: bool = False) -> Box:
    """Return the space that a text of size 9 takes above a point, from it or up to it."""
    axes.figure.draw_without_rendering()
    left, low = _inches(axes, x, y)
    wide = _CHARACTER * len(text)
    return Box(left - ends * wide, low, left + (not ends) * wide, low + _LINE)


def _is_inside(axes: Any, box: Box) -> bool:
    wide, high = _size(axes)
    return box.left >= 0 and box.low >= 0 and box.right <= wide and box.high <= high


def _size(axes: Any) -> tuple[float, float]:
    """Return the size of the axes in inches, once their figure has its layout."""
    box = axes.get_window_extent()
    return box.width / axes.figure.dpi, box.height / axes.figure.dpi


def _inches(axes: Any, x: float, y: float) -> tuple[float, float]:
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across, up = _size(axes)
    return across * (x - left) / (right - left), up * (y - low) / (high - low)


def _around(axes: Any, label: Label) -> Box:
    """Return the space of a point itself."""
    x, y = _inches(axes, label.x, label.y)
    return Box(x - 0.03, y - 0.03, x + 0.03, y + 0.03)


def _box(axes: Any, label: Label, offset: tuple[int, int], side: str) -> Box:
    x, y = _inches(axes, label.x, label.y)
    x, y = x + offset[0] / 72, y + offset[1] / 72
    wide = _CHARACTER * len(label.text.replace(r"$\beta$", "b"))
    left = x - wide if side == "right" else x
    return Box(left, y, left + wide, y + _LINE)
