"""Data frames of pandas and polars as a matrix and its names; neither library is imported."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedeas.countfiles.sidecar import content_hash
from fedeas.countfiles.table import (
    LARGEST,
    Doubt,
    Table,
    names_clients,
    names_counts,
    names_labels,
)
from fedeas.countfiles.validate import find_doubts, frame_refusal
from fedeas.errors import InputError

_TEXT_TYPES = ("String", "Utf8", "Categorical", "Enum")  # of polars
MARK = "fedeas.sha256"  # among a frame's `attrs`: the hash of the table that fedeas put into it
Parts = tuple[Any, Sequence[str] | None, Sequence[str]]  # values, clients, classes


def frame_mark(values: Any, clients: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
    """Return the `attrs` of a frame that fedeas makes: it is read back as it is."""
    return {MARK: content_hash(Table(values, tuple(clients), tuple(classes)))}


def split_frame(frame: Any) -> Parts:
    """Split a data frame into values and names; one that is doubtful is refused."""
    if not hasattr(frame, "index"):
        return _without_index(frame)
    _check_names(frame.columns, "columns")
    _check_names(frame.index, "rows")
    classes = [str(column) for column in frame.columns]
    clients = [str(k) for k in frame.index]
    _check_rows(frame, classes, clients)
    _check_gaps(frame)
    values = _matrix(frame)
    above = getattr(frame.index, "name", None), getattr(frame.columns, "name", None)
    _check(values, clients, classes, getattr(frame, "attrs", {}), above)
    return values, clients or None, classes


def _check_names(names: Any, what: str) -> None:
    """Refuse rows or columns without a name, and names of several levels."""
    if getattr(names, "nlevels", 1) > 1:
        raise InputError(
            f"the data frame's {what} have names of several levels",
            got=str(list(names[:1])),
            fix="add the other levels up: frame.T.groupby(level=-1).sum().T, or join the levels: "
            "frame.set_axis(frame.columns.map(str), axis=1)"
            if what == "columns"
            else "add the other levels up: frame.groupby(level=0).sum(), or join the levels: "
            "frame.set_axis(frame.index.map(str))",
        )
    if hasattr(names, "isna") and names.isna().any():
        raise InputError(
            f"the data frame has {what} without a name",
            got=str(names[names.isna()][0]),
            fix="leave them out: frame.loc[:, frame.columns.notna()]"
            if what == "columns"
            else "leave them out: frame[frame.index.notna()]",
        )


def _matrix(frame: Any) -> Any:
    """Return the numbers of a frame, also of types that allow for gaps, such as Int64."""
    values = frame.to_numpy()
    kinds = {getattr(dtype, "kind", "O") for dtype in getattr(frame, "dtypes", ())}
    if values.dtype == object and kinds and kinds <= set("iuf"):
        return frame.to_numpy(dtype=np.int64 if kinds == {"i"} else np.float64)
    return values


def _check_rows(frame: Any, classes: Sequence[str], clients: Sequence[str]) -> None:
    """Refuse a frame whose clients are in a column."""
    numbered = list(clients) == [str(k) for k in range(len(clients))]
    index_name = getattr(frame.index, "name", None)
    if not numbered or (index_name is not None and names_clients(str(index_name))):
        return
    ids = [name for name in classes if name and names_clients(name)]
    labels = [name for name in classes if names_labels(name) and name not in ids]
    if ids:  # numbers in a column called 'client' are not counts
        raise InputError(
            f"the data frame's column {ids[0]!r} names clients, not a class",
            fix=_way_to_counts(frame, ids[0], labels, classes),
        )


def _way_to_counts(frame: Any, client: str, labels: Sequence[str], columns: Sequence[str]) -> str:
    """Say how a frame with clients in a column becomes one with a row per client."""
    if not labels:
        return f"move it to the index: frame.set_index({client!r})"
    label = labels[0]
    counts = [name for name in columns if name not in (client, label) and names_counts(name)]
    if counts:
        return (
            f"add the counts up: frame.pivot_table(index={client!r}, columns={label!r}, "
            f"values={counts[0]!r}, aggfunc='sum', fill_value=0)"
        )
    return f"count the samples: pd.crosstab(frame[{client!r}], frame[{label!r}])"


def _check_gaps(frame: Any) -> None:
    """Refuse a frame with missing numbers."""
    if hasattr(frame, "isna"):
        missing = frame.isna().to_numpy().any(axis=0)
        if missing.any():
            raise InputError(
                "the data frame has cells without a count",
                got=str(list(frame.columns)[int(missing.argmax())]),
                fix="pass frame.fillna(0) if they mean none",
            )


def _without_index(frame: Any) -> Parts:
    """Split a frame of polars, which has no index, into values and names."""
    names = [str(column) for column in frame.columns]
    text = [name for name in names if str(frame[name].dtype) in _TEXT_TYPES]
    clients, heading = None, ""
    if names and (names[0] in text or names_clients(names[0])):
        if frame[names[0]].null_count():
            raise InputError(
                "the data frame has rows without a client",
                got=names[0],
                fix=f"leave them out: frame.drop_nulls([{names[0]!r}])",
            )
        heading = names[0]
        clients = [str(name) for name in frame[names[0]].to_list()]
        names = names[1:]
    # With clients in the first column, a class may be called 'client' or 'ID'.
    if wrong := [n for n in names if n in text or (clients is None and names_clients(n))]:
        raise InputError(
            f"the data frame's column {wrong[0]!r} holds no counts",
            fix="put the column of clients first and drop other text; for a row per sample use "
            "LabelCounts.from_labels(labels, clients)",
        )
    if gaps := [name for name in names if frame[name].null_count()]:
        raise InputError(
            "the data frame has cells without a count",
            got=gaps[0],
            fix="pass frame.fill_null(0) if they mean none",
        )
    values = frame.select(names).to_numpy()
    _check(values, clients, names, None, (heading, None))
    return values, clients, names


def _check(
    values: Any,
    clients: Sequence[str] | None,
    classes: Sequence[str],
    attrs: Any,
    above: tuple[object, object],
) -> None:
    """Refuse a frame that seems to hold totals, years, ...; `attrs` is None for one of polars."""
    if values.ndim != 2 or values.dtype.kind not in "iuf" or not values.size:
        return  # what is no matrix of counts is refused by `LabelCounts`
    if not ((values >= 0) & (values <= LARGEST)).all() or (values != np.floor(values)).any():
        return
    doubts: list[Doubt] = []
    rows, columns = ("" if name is None else str(name) for name in above)
    if names_labels(rows) or names_clients(columns):
        doubts.append(Doubt("rows seem to be classes", frame_fix="pass frame.T if they are"))
    table = Table(
        values.astype(np.int64), tuple(clients) if clients else None, tuple(classes), None
    )
    if attrs and attrs.get(MARK) == content_hash(table):
        return
    doubts += find_doubts(table)
    if doubts:
        raise frame_refusal(doubts, attrs is not None, rows)
