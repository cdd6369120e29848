"""`own` for tables: a `gaussian` whose quantiles and moments are private sums over sites."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.data.schema import Schema
from fedeas.errors import InputError
from fedeas.generators.gaussian import Gaussian
from fedeas.generators.moments import Moments
from fedeas.generators.own.card import WEIGHTS, Card
from fedeas.generators.own.columns import (
    Columns,
    Edges,
    believed_gaps,
    columns_of,
    finer_edges,
    first_edges,
    smoothed_shares,
)
from fedeas.generators.own.denoise import clean_moments
from fedeas.generators.own.quality import row_quality
from fedeas.generators.row_space import RowSpace
from fedeas.generators.streams import Seeds
from fedeas.privacy.queries.column_counts import ColumnCounts, ColumnValues
from fedeas.privacy.queries.row_moments import RowMoments
from fedeas.privacy.release import Ask
from fedeas.tensors import load_tensors, save_tensors

WAY = "moments"
# Parts of the cost: of finding the columns' scales, their quantiles, and the classes' moments.
_SCALES, _QUANTILES = 0.04, 0.08
_MOMENTS = 1 - _SCALES - _QUANTILES
_WIDE = 1.1  # the norm of a typical row, times this, is what rows are clipped to


class Rows:
    """Draws rows from a Gaussian per class."""

    least_batch = Gaussian.least_batch

    def __init__(self, gaussian: Gaussian, card: Card) -> None:
        self._gaussian, self.card, self.classes = gaussian, card, card.classes
        self.training_data = card.training_data
        self.fingerprint = f"own-{gaussian.fingerprint}"

    @classmethod
    def make(cls, schema: Schema, classes: tuple[str, ...], ask: Ask) -> "Rows":
        """Make the generator from three sums.

        Parameters
        ----------
        schema
            What the columns hold, as all sites agreed.
        classes
            The names of the classes.
        ask
            Asks all sites.
        """
        columns = _find_columns(schema, len(classes), ask)
        query = _moments_query(columns, len(classes))
        released = ask(query, _MOMENTS)
        found = query.read(released.sums, released.sigma, released.sites)
        clean = clean_moments(columns.space, found, query.radius)
        card = Card(
            WAY, classes, query.shape, released.epsilon, released.delta, released.sites,
            tuple(found.counts.round(1).tolist()),
            row_quality(columns.space, found, query.radius),
            {"space": columns.space.to_dict(), "radius": query.radius},
        )  # fmt: skip
        return cls(Gaussian(columns.space, clean, classes), card)

    def sample(self, labels: NDArray[np.int64], seeds: Seeds) -> NDArray[np.float32]:
        """Draw one row per label and seed."""
        return self._gaussian.sample(labels, seeds)

    def save(self, folder: Path) -> None:
        """Write the generator's folder: numbers, then the card."""
        folder.mkdir(parents=True, exist_ok=True)
        held = {"moments": torch.from_numpy(self._gaussian.moments.packed())}
        save_tensors(folder / WEIGHTS, held, {"way": WAY})
        self.card.write(folder)

    @classmethod
    def load(cls, folder: Path) -> "Rows":
        """Open a generator's folder."""
        card = Card.read(folder)
        held, _ = load_tensors(folder / WEIGHTS)
        try:
            packed = held["moments"].double().numpy()
            space = RowSpace.from_dict(card.settings["space"])
            if card.shape != (len(space.schema),) or not np.isfinite(packed).all():
                raise ValueError("other columns")
            moments = Moments.unpacked(packed, space.dimensions)
            return cls(Gaussian(space, moments, card.classes), card)
        except (KeyError, TypeError, ValueError, InputError):
            raise InputError(f"the weights in {folder} do not match its card") from None


def _find_columns(schema: Schema, classes: int, ask: Ask) -> Columns:
    """Learn the columns' scales, then their quantiles."""
    numbers = schema.numbers.tolist()
    edges = {column: first_edges(schema.columns[column]) for column in numbers}
    scales = _counted(schema, classes, edges, ask, _SCALES)
    tried = sum(len(own) - 1 for own in edges.values())
    finer, expected = {}, {}
    for column in numbers:
        counts = scales.columns[column].counts
        finer[column], expected[column] = finer_edges(
            schema.columns[column], edges[column], counts, scales.error, tried
        )
    counted = _counted(schema, classes, finer, ask, _QUANTILES)
    shares = [
        smoothed_shares(counted.columns[column].counts, expected[column], counted.error)
        for column in numbers
    ]
    gaps = believed_gaps(scales.columns, scales.error)
    return columns_of(schema, gaps, list(finer.values()), shares)


class _Counted(NamedTuple):
    """Counts of every column's values, and their standard error."""

    columns: list[ColumnValues]
    error: float


def _counted(
    schema: Schema, classes: int, edges: dict[int, Edges], ask: Ask, part: float
) -> _Counted:
    """Count the values of all columns in these intervals; of categories, only gaps are counted."""
    cuts = tuple(edges.get(column, ())[1:-1] for column in range(len(schema)))
    query = ColumnCounts(classes, (len(schema),), cuts)
    released = ask(query, part)
    found = query.read(released.sums, released.sigma, released.sites)
    return _Counted(found, query.error(released.sigma))


def _moments_query(columns: Columns, classes: int) -> RowMoments:
    """Return the query for moments in the space of these columns."""
    space, schema = columns.space, columns.space.schema
    return RowMoments(
        classes,
        (len(schema),),
        tuple(len(column.categories) for column in schema.columns),
        space.gaps,
        columns.cuts,
        columns.places,
        columns.variances,
        # A number is about 1 from the middle, and a choice at most 1.
        _WIDE * math.sqrt(len(schema.numbers) + len(space.choices)),
    )
