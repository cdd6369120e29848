"""A table in words: what its columns hold, a line each, and what is left out."""

from collections.abc import Iterator

import numpy as np

from fedeas.data.dataset import Dataset

_BLOCK = 65_536  # rows that are looked at at a time
_WIDTH = 60  # characters of a list of categories
_MOST = 60  # columns that are listed


def described(data: Dataset) -> Iterator[str]:
    """Yield what a table's columns hold, as they were found; nothing for images.

    Ranges and gaps are those of all rows, training and test.
    """
    if data.schema is None:
        return
    columns = data.schema.columns
    low, high, gaps = _ranges(data)
    wide = max(len(column.name) for column in columns[:_MOST])
    said = f"{len(data.schema.numbers)} of numbers, {len(data.schema.categorical)} of categories"
    yield f"columns: {said}"
    for place, column in enumerate(columns[:_MOST]):
        if column.categories:
            what = f"{len(column.categories)} categories: {_listed(column.categories)}"
        elif np.isfinite(low[place]):
            kind = "whole numbers" if column.whole else "numbers"
            what = f"{kind} from {_number(low[place])} to {_number(high[place])}"
        else:
            what = "no values"
        missing = f"; {gaps[place]:.1%} gaps" if gaps[place] else ""
        yield f"  {column.name:<{wide}}  {what}{missing}"
    if len(columns) > _MOST:
        yield f"  and {len(columns) - _MOST:,} more"
    if data.sites is not None:
        yield f"sites: {len(data.sites.names):,}, from the column {data.sites.column!r}"
    yield from (f"note: {note}" for note in data.notes)


def _ranges(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the least and the largest value and the share of gaps of every column."""
    width = data.samples.shape[1]
    low, high, gaps = np.full(width, np.inf), np.full(width, -np.inf), np.zeros(width)
    for start in range(0, len(data.labels), _BLOCK):
        part = np.asarray(data.samples[start : start + _BLOCK])
        there = ~np.isnan(part)
        low = np.minimum(low, np.where(there, part, np.inf).min(axis=0))
        high = np.maximum(high, np.where(there, part, -np.inf).max(axis=0))
        gaps += (~there).sum(axis=0)
    return low, high, gaps / max(1, len(data.labels))


def _number(value: float) -> str:
    """Return a number of float32 with no more digits than it has.

    >>> _number(2300000.0), _number(np.float32(14.3))
    ('2,300,000', '14.3')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{float(str(np.float32(value))):,}"


def _listed(names: tuple[str, ...]) -> str:
    """List the first few names."""
    shown = names[0]
    for name in names[1:]:
        if len(shown) + len(name) > _WIDTH:
            return f"{shown}, ..."
        shown = f"{shown}, {name}"
    return shown
