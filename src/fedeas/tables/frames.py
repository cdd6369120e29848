"""Data frames of pandas and polars as a matrix and its names; neither library is imported."""

from collections.abc import Sequence
from typing import Any

from fedeas.errors import InputError
from fedeas.tables.headings import names_clients

_TEXT_TYPES = ("String", "Utf8", "Categorical", "Enum")  # of polars
Parts = tuple[Any, Sequence[str] | None, Sequence[str]]  # values, clients, classes


def is_frame(value: object) -> bool:
    """Tell whether a value is a data frame."""
    return hasattr(value, "to_numpy") and hasattr(value, "columns")


def split_frame(frame: Any) -> Parts:
    """Split a data frame into values and names."""
    if not hasattr(frame, "index"):
        return _without_index(frame)
    classes = [str(column) for column in frame.columns]
    clients = [str(k) for k in frame.index]
    numbered = clients == [str(k) for k in range(len(clients))]
    ids = [name for name in classes if name and names_clients(name)]
    index_name = getattr(frame.index, "name", None)
    if index_name is not None and names_clients(str(index_name)):
        ids = []  # the index names the clients
    if numbered and ids:  # numbers in a column called 'client' are not counts
        raise InputError(
            f"the data frame's column {ids[0]!r} names clients, not a class",
            fix=f"move it to the index: frame.set_index({ids[0]!r})",
        )
    return frame.to_numpy(), clients or None, classes


def _without_index(frame: Any) -> Parts:
    """Split a frame of polars, which has no index, into values and names."""
    names = [str(column) for column in frame.columns]
    text = [name for name in names if str(frame[name].dtype) in _TEXT_TYPES]
    clients = None
    if names and (names[0] in text or names_clients(names[0])):
        clients = [str(name) for name in frame[names[0]].to_list()]
        names = names[1:]
    # With clients in the first column, a class may be called 'client' or 'ID'.
    if wrong := [n for n in names if n in text or (clients is None and names_clients(n))]:
        raise InputError(
            f"the data frame's column {wrong[0]!r} holds no counts",
            fix="put the column of clients first and drop other text; for a row per sample use "
            "LabelCounts.from_labels(labels, clients)",
        )
    return frame.select(names).to_numpy(), clients, names
