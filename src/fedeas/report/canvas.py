"""How every figure looks: colours, style, the sentence below it.

Colours are those of Okabe and Ito, which people with the common kinds of colour blindness can tell
apart.
"""

import io
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fedeas.errors import MissingExtraError

BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
GREY = "#777777"

_STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.hashsalt": "fedeas",  # the same picture is the same file
}


def caption(figure: Any, sentence: str) -> None:
    """Write the one sentence below a figure."""
    width = int(figure.get_figwidth() * 14)
    figure.supxlabel(textwrap.fill(sentence, width), size=9, color="#333333", x=0.02, ha="left")


def picture(
    draw: Callable[[Any], None], kind: str = "svg", width: float = 6.6, height: float = 4.2
) -> bytes:
    """Draw a figure and return it as a file's content."""
    figure, content = make_figure(draw, width, height), io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    with _style():
        figure.savefig(content, format=kind, dpi=160, metadata=metadata)
    return content.getvalue()


def make_figure(draw: Callable[[Any], None], width: float = 6.6, height: float = 4.2) -> Any:
    """Draw a matplotlib figure in our style."""
    with _style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
    return figure


def _style() -> AbstractContextManager[None]:
    """Return the context in which figures are drawn; matplotlib's own state is not changed."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise MissingExtraError("a picture", "plot") from None
    context: AbstractContextManager[None] = rc_context(_STYLE)
    return context
