"""What sites may be asked: queries whose answers are summed under noise, by name.

Queries are sent by name, and those of another party are read here.
"""

from dataclasses import asdict

from fedeas.errors import FedeasError
from fedeas.private.queries.features import FeatureMeans, FeatureProducts
from fedeas.private.queries.moments import ImageMoments, ImageProducts
from fedeas.private.queries.query import AnyQuery, ClassTotals
from fedeas.private.queries.table import ColumnCounts, RowMoments
from fedeas.private.secure_sum.messages import RefusedError

_KINDS = (
    ClassTotals, ImageMoments, ImageProducts, FeatureMeans, FeatureProducts, ColumnCounts,
    RowMoments,
)  # fmt: skip
QUERIES: dict[str, type[AnyQuery]] = {kind.name: kind for kind in _KINDS}


def encode_query(query: AnyQuery) -> dict[str, object]:
    """Return a query as it is sent.

    >>> encode_query(ClassTotals(classes=10))
    {'query': 'class-totals', 'classes': 10}
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
        return QUERIES[settings.pop("query")](**settings)
    except (TypeError, ValueError, KeyError, OverflowError, FedeasError):
        raise RefusedError("not a query that this site answers") from None
