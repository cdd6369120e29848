"""What sites may be asked: queries whose answers are summed under noise, by name.

Queries are sent by name, and those of another party are read here.
"""

from dataclasses import asdict
from importlib.metadata import entry_points

from fedeas.errors import FedeasError
from fedeas_private.queries.effects import BetaQuery, PriceQuery
from fedeas_private.queries.features import FeatureMeans, FeatureProducts
from fedeas_private.queries.moments import ImageMoments, ImageProducts
from fedeas_private.queries.query import AnyQuery, ClassTotals
from fedeas_private.queries.table import ColumnCounts, RowMoments
from fedeas_private.secure_sum.messages import RefusedError

_KINDS = (
    ClassTotals, BetaQuery, PriceQuery, ImageMoments, ImageProducts, FeatureMeans,
    FeatureProducts, ColumnCounts, RowMoments,
)  # fmt: skip
QUERIES: dict[str, type[AnyQuery]] = {kind.name: kind for kind in _KINDS}
_GROUP = "fedeas.queries"  # of installed packages; a site's owner lists them in `allow`


def query_names() -> list[str]:
    """Return the names of all queries: built-in, then from installed packages."""
    return [*QUERIES, *(point.name for point in entry_points(group=_GROUP))]


def _find_query(name: object) -> type[AnyQuery]:
    if name not in QUERIES:
        for point in entry_points(group=_GROUP, name=str(name)):
            kind: type[AnyQuery] = point.load()
            if kind.name != name:  # what the owner allows is what is entered in the ledger
                raise RefusedError("not a query that this site answers")
            return kind
    return QUERIES[str(name)]


def encode_query(query: AnyQuery) -> dict[str, object]:
    """Return a query as it is sent.

    >>> encode_query(BetaQuery(classes=10))
    {'query': 'beta', 'classes': 10}
    """
    return {"query": query.name, **asdict(query)}


def read_query(request: object) -> AnyQuery:
    """Read a query from another party, who may be hostile.

    Parameters
    ----------
    request
        What was sent, as read from JSON.

    >>> read_query({"query": "class-totals", "classes": 10})
    ClassTotals(classes=10)
    """
    try:
        settings = dict(request)  # type: ignore[call-overload]
        return _find_query(settings.pop("query"))(**settings)
    except (TypeError, ValueError, KeyError, OverflowError, FedeasError):
        raise RefusedError("not a query that this site answers") from None
