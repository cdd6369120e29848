"""What `plot()` of counts and plans calls.

Drawing a plan takes policies and the report's figures, which are built on plans. So counts and
plans know this hook only, and `fedeas/__init__.py`, which knows all modules, says who draws.
"""

from collections.abc import Callable
from typing import Any

Draw = Callable[..., Any]
_find: list[Callable[[], Draw]] = []


def set_drawing(find: Callable[[], Draw]) -> None:
    """Say how to find the function that draws; it is looked for when something is drawn."""
    _find[:] = [find]


def figure(*drawn: object) -> Any:
    """Return a matplotlib figure of these objects."""
    return _find[0]()(*drawn)
