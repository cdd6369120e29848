"""A sweep: a base config, and grids of what varies."""

from typing import Annotated, Any

from msgspec import Meta, field

from fedeas.settings.base import Name, Settings


class Grid(Settings, frozen=True):
    """One block of a sweep: what is fixed, and what varies."""

    name: Name
    title: str = ""
    match: tuple[str, ...] = ()  # policies whose total the others get; empty: nothing is matched
    # Accuracy that counts as arrived.
    threshold: Annotated[float, Meta(gt=0, lt=1)] | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # dotted names; a list varies


class Sweep(Settings, frozen=True, kw_only=True):
    """A base config and its grids."""

    name: Name  # a folder of runs is called by it
    title: str = ""
    base: dict[str, Any]
    grids: tuple[Grid, ...] = field(name="grid")
