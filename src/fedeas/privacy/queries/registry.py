"""The queries by name, as they are sent and as another party's are read."""

from dataclasses import asdict

from fedeas.errors import FedeasError
from fedeas.privacy.queries.beta import BetaQuery
from fedeas.privacy.queries.class_totals import ClassTotals
from fedeas.privacy.queries.column_counts import ColumnCounts
from fedeas.privacy.queries.embedding import EmbeddingSum
from fedeas.privacy.queries.image_features import FeatureMeans, FeatureProducts
from fedeas.privacy.queries.image_moments import ImageMoments, ImageProducts
from fedeas.privacy.queries.price import PriceQuery
from fedeas.privacy.queries.query import Query
from fedeas.privacy.queries.row_moments import RowMoments
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.secure_sum.messages import RefusedError

AnyQuery = Query | SampleSum
_KINDS = (
    ClassTotals, BetaQuery, PriceQuery, EmbeddingSum, ImageMoments, ImageProducts, FeatureMeans,
    FeatureProducts, ColumnCounts, RowMoments,
)  # fmt: skip
QUERIES: dict[str, type[AnyQuery]] = {kind.name: kind for kind in _KINDS}


def encode_query(query: AnyQuery) -> dict[str, object]:
    """Return a query as it is sent.

    >>> encode_query(BetaQuery(classes=10))
    {'query': 'beta', 'classes': 10}
    """
    return {"query": query.name, **asdict(query)}


def read_query(asked: object) -> AnyQuery:
    """Read a query from another party, who may be hostile.

    Parameters
    ----------
    asked
        What was sent, as read from JSON.

    >>> read_query({"query": "class-totals", "classes": 10})
    ClassTotals(classes=10)
    """
    try:
        settings = dict(asked)  # type: ignore[call-overload]
        return QUERIES[settings.pop("query")](**settings)
    except (TypeError, ValueError, KeyError, FedeasError):
        raise RefusedError("not a query that this site answers") from None
