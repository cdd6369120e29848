"""Counts, plans and answers in a notebook: data frames, and small tables in HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.optional import import_extra

_ROWS, _COLUMNS = 20, 16  # clients and classes that a table shows


def is_frame(value: object) -> bool:
    """Tell whether a value is a data frame of pandas or polars, without importing either."""
    return hasattr(value, "to_numpy") and hasattr(value, "columns")


def data_frame(n: NDArray[np.int64], clients: Sequence[str], classes: Sequence[str]) -> Any:
    """Return a matrix as a pandas data frame of its own, clients in rows."""
    pd = import_extra("pandas", "a data frame", "counts")
    index, columns = pd.Index(clients, name="client"), pd.Index(classes, name="class")
    return pd.DataFrame(n.copy(), index=index, columns=columns)


def record_frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """Return records as a pandas data frame, a row each."""
    return import_extra("pandas", "a data frame", "counts").DataFrame(list(records))


def html_lines(caption: str, rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Return rows of text as a table; the first cell of each is its heading.

    >>> html_lines("a <b>", [("beta", "12")])
    '<table><caption>a &lt;b&gt;</caption><tbody><tr><th>beta</th><td>12</td></tr></tbody></table>'
    """
    top = f"<thead><tr>{_cells(head, 'th')}</tr></thead>" if head else ""
    body = "".join(f"<tr>{_cells(row[:1], 'th')}{_cells(row[1:])}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>"


def client_heading(classes: Sequence[str]) -> str:
    """Return the heading of a column of clients: 'client', unless a class is called so.

    >>> client_heading(["cat", "dog"]), client_heading(["client", "agent"])
    ('client', 'client0')
    """
    numbered = (f"client{k}" for k in range(len(classes)))
    return next(name for name in ("client", *numbered) if name not in classes)


def html_table(
    caption: str, n: NDArray[np.int64], clients: Sequence[str], classes: Sequence[str]
) -> str:
    """Return a matrix as a table with the sums of its rows, abbreviated where it is large.

    >>> html_table("<2 clients>", np.array([[9, 1], [0, 5]]), ["north", "south"], ["a", "b"])[:69]
    '<table><caption>&lt;2 clients&gt;</caption><thead><tr><th>client</th>'
    """
    K, C = n.shape
    columns = min(C, _COLUMNS)
    more = [f"… {C - columns:,} more"] if columns < C else []
    rows = [
        [name, *(f"{x:,}" for x in row[:columns]), *("…" for _ in more), f"{row.sum():,}"]
        for name, row in zip(clients[:_ROWS], n[:_ROWS], strict=True)
    ]
    if K > _ROWS:
        rows.append([f"… {K - _ROWS:,} more clients"])
    return html_lines(caption, rows, ["client", *classes[:columns], *more, "all"])


def _cells(texts: Sequence[str], tag: str = "td") -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
