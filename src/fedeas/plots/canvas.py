"""How every figure looks: colours, size, style, the sentence below it, labels beside its points.

Colours are those of Okabe and Ito, which people with the common kinds of colour blindness can tell
apart. An SVG file follows the reader's colour scheme: what is `INK` on `PAPER` in a light one is
light on dark in the other.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from fedeas._internal.files import atomic_write
from fedeas.errors import MissingExtraError

BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
GREY = "#777777"
INK, PAPER = "#1a1a1a", "#ffffff"
# Small enough that the text can still be read where a phone shrinks the picture to its width.
WIDTH, HEIGHT = 5.6, 3.8  # inches

_LONGEST = 18  # characters of a name
WHITE = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 0.6}  # behind labels
# Where a label can stand, seen from its point: offset in points, and the side that it ends on.
_PLACES = (((-7, 6), "right"), ((8, -12), "left"))

_STYLE = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.hashsalt": "fedeas",  # the same picture is the same file
}
_DARK = {INK: "#e3e5e8", PAPER: "#16181c", GREY: "#9a9da3", BLUE: "#3d9fdc"}


def caption(figure: Any, sentence: str) -> None:
    """Write the one sentence below a figure."""
    width = int(figure.bbox.width / figure.dpi * 14)
    figure.supxlabel(textwrap.fill(sentence, width), size=9, x=0.02, ha="left")


def picture(
    draw: Callable[[Any], None], kind: str = "svg", width: float = WIDTH, height: float = HEIGHT
) -> bytes:
    """Draw a figure and return it as a file's content."""
    return file_content(make_figure(draw, width, height), kind)


def file_content(figure: Any, kind: str = "svg") -> bytes:
    """Return a figure as the content of an .svg, .png or .pdf file."""
    content = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    with _style():
        figure.savefig(content, format=kind, dpi=160, metadata=metadata)
    return _in_both_schemes(content.getvalue()) if kind == "svg" else content.getvalue()


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure's file, of the kind that its name ends in."""
    write_picture(file, file_content(figure, kind_of(file)))


def write_picture(file: Path, content: bytes) -> None:
    """Write a picture's file, all of it or nothing."""
    with atomic_write(file) as temporary:
        temporary.write_bytes(content)


def kind_of(file: Path) -> str:
    """Return what a picture's name ends in."""
    return file.suffix.lower().removeprefix(".")


def _in_both_schemes(svg: bytes) -> bytes:
    """Add the colours of a dark scheme to a picture; viewers that do not know them skip them."""
    rules = "".join(
        f'[style*="{part}: {light}"], [{part}="{light}"] {{ {part}: {dark} !important; }}'
        for light, dark in ((light.lower(), dark) for light, dark in _DARK.items())
        for part in ("fill", "stroke")
    )
    style = f"<style>@media screen and (prefers-color-scheme: dark) {{ {rules} }}</style>"
    return svg.replace(b"<defs>", f"{style}<defs>".encode(), 1)


def make_figure(draw: Callable[[Any], None], width: float = WIDTH, height: float = HEIGHT) -> Any:
    """Draw a matplotlib figure in our style."""
    with _style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
    return figure


def shortened(name: str) -> str:
    """Return a name that fits below or beside an axis."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _style() -> AbstractContextManager[None]:
    """Return the context in which figures are drawn; matplotlib's own state is not changed."""
    try:
        from matplotlib import rc_context
    except ModuleNotFoundError:
        raise MissingExtraError("a picture", "counts") from None
    context: AbstractContextManager[None] = rc_context(_STYLE)
    return context


class Label(NamedTuple):
    """A text beside a point, in the units of the axes."""

    text: str
    x: float
    y: float
    bold: bool = False


def draw_labels(axes: Any, labels: Sequence[Label], colour: str = INK) -> None:
    """Write labels beside their points where there is space, bold ones first and in any case.

    All else that the figure has must be there before: it decides how large the axes are.
    """
    axes.figure.draw_without_rendering()
    points = [axes.transData.transform((label.x, label.y)) for label in labels]
    taken = [text.get_window_extent() for text in axes.texts]
    for label in sorted(labels, key=lambda label: not label.bold):
        for offset, side in _PLACES:
            text = axes.annotate(
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
            box = text.get_window_extent().padded(2)
            inside = all(axes.bbox.contains(*corner) for corner in box.corners())
            # A point that lies under a text of another would be hidden.
            hides = any(box.overlaps(other) for other in taken) or any(
                box.contains(*point) for point in points
            )
            if (inside and not hides) or (label.bold and offset == _PLACES[-1][0]):
                taken.append(box)
                break
            text.remove()
