"""`private` for tables: a `gaussian` whose quantiles and moments are private sums over sites.

Nobody has to state the bounds of columns, which a site may not know, or which would tell what it
has. Two sums find them, for a small share of the budget. The first counts values in intervals that
grow with their distance from zero, the same for every table: they show a column's scale. The second
counts them in intervals of that scale, and so finds its quantiles. A third sum has the moments.

Moments are used with the noise taken out, as far as it can be told from the data. Every class leans
on all of them: its mean on the mean of all rows, its covariance on the covariance within classes.
How much follows from the noise, whose size is known, and from how far the class is away (James and
Stein, 1961). The covariance within classes is one of common factors and a variance of every
number's own, as in factor analysis; factors beyond the noise's edge are kept (`base.py`).

Numbers have covariances; categories have shares in every class and, within it, depend on nothing.
What one category says of another, or of a number, within a class is little (a random forest on rows
of exact sums loses one point without it), and noise makes much of it: divided by the variance of a
rare level, it moves every number.

Quality is how much of a class the noise leaves. What a second draw of the same noise would change
is about what the first one changed. So a generator is made once more, from moments with noise of
the same size added, and compared with the first. It costs no privacy, since nothing but the sums is
used.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas._internal.files import check_cells
from fedeas._internal.seeds import child_rng
from fedeas.data.schema import Column, Schema
from fedeas.generators.card import GeneratorCard
from fedeas.generators.gaussian import Gaussian, Moments
from fedeas.generators.random_streams import Seeds
from fedeas.generators.row_space import Floats, Quantiles, RowSpace
from fedeas.private.generator.base import PrivateGenerator, james_stein, spectrum
from fedeas.private.generator.card import make_card
from fedeas.private.queries.moments import NoisyMoments
from fedeas.private.queries.table import ColumnCounts, ColumnValues, RowMoments
from fedeas.private.sums import Ask, Release
from fedeas.train.tensors import Tensors

METHOD = "moments"
# Split of the privacy budget: for the columns' scales, their quantiles, and the classes' moments.
_SCALES, _QUANTILES = 0.04, 0.08
_MOMENTS = 1 - _SCALES - _QUANTILES
_CLIP = 1.1  # clipping norm of rows, in norms of a typical row
_FEW = 4  # columns: the norm of fewer is clipped as theirs, since it varies more
_STEP = 0.35  # between the logarithms of the first intervals' ends
_UNIT, _FINEST = 1.0, 1e-3  # about the smallest numbers that are told from zero
_LARGEST = 1e9  # a column's values beyond it count as it
_INTERVALS = 64  # of a column in the second count
_MOST_INTEGERS = 64  # up to which each integer has an interval of its own
_MOST_MOMENT = 2.0**100  # of numbers that can be decomposed
_CLEAR = 4.0  # standard errors above which a column is believed to have missing values
_BEYOND = 2.0  # standard errors that an interval stands out above the largest of all noise
_BESIDE = 2.0  # the same of one beside an interval that has rows
_LEAST_TOTAL = 1e-3  # share of all intervals together, spread evenly; none has a share of zero
_TAIL = 1e-3  # beyond this share the outermost values are drawn
_LEAST_VARIANCE = 0.01  # of any direction: a class that does not vary at all is the noise's work
_LEAST_LEVEL = 1e-3  # share of a level
_ROUNDS = 20  # of finding the factors' part in every variance
_REPEATS = 3  # draws of the noise for the quality
_NORMAL = NormalDist()

Edges = tuple[float, ...]  # both ends of every interval of a column


class ColumnEncoding(NamedTuple):
    """How the columns of a table are told in numbers."""

    space: RowSpace
    cuts: tuple[Edges, ...]  # per column of numbers, between its intervals
    places: tuple[Edges, ...]  # of every interval in a standard normal distribution
    variances: tuple[Edges, ...]  # within it


class GaussianRows(PrivateGenerator):
    """Draws rows from a Gaussian per class."""

    least_batch = Gaussian.least_batch

    def __init__(self, gaussian: Gaussian, card: GeneratorCard) -> None:
        tensors = {"moments": torch.from_numpy(gaussian.moments.packed())}
        super().__init__(card, tensors, gaussian.fingerprint)
        self._gaussian, self.schema = gaussian, gaussian.schema

    @classmethod
    def make(cls, schema: Schema, classes: tuple[str, ...], ask: Ask) -> "GaussianRows":
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
        space, query, moments, released = ask_moments(schema, len(classes), ask)
        clean = clean_moments(space, moments, query.number_radius)
        card = make_card(
            METHOD, classes, query.shape, (released,), moments.counts,
            row_quality(space, moments, query.number_radius),
            {"space": space.to_dict()},
        )  # fmt: skip
        # As they are saved, with one of two triangles that may differ in the last digit.
        saved = Moments.unpacked(clean.packed(), space.dimensions)
        return cls(Gaussian(space, saved, classes), card)

    def sample(self, labels: NDArray[np.int64], seeds: Seeds) -> NDArray[np.float32]:
        """Draw one row per label and seed."""
        return self._gaussian.sample(labels, seeds)

    @classmethod
    def from_tensors(cls, card: GeneratorCard, tensors: Tensors) -> "GaussianRows":
        """Make the generator of a card and weights, which anybody may have sent."""
        packed = tensors["moments"].double().numpy()
        space = RowSpace.from_dict(card.settings["space"])
        if card.shape != (len(space.schema),) or not (np.abs(packed) < _MOST_MOMENT).all():
            raise ValueError("other columns, or moments of no rows")
        moments = Moments.unpacked(packed, space.dimensions)
        return cls(Gaussian(space, moments, card.classes), card)


class AskedMoments(NamedTuple):
    """The moments of every class's rows, and what they are of."""

    space: RowSpace
    query: RowMoments
    moments: NoisyMoments
    released: Release


def ask_moments(schema: Schema, classes: int, ask: Ask) -> AskedMoments:
    """Ask for the columns' scales, their quantiles, and the moments of every class."""
    most = sum(len(column.categories) + 1 for column in schema.columns)
    avoid = "leave out columns of many categories"
    check_cells(classes * most**2, "the covariance of every class", avoid)
    columns = _find_columns(schema, classes, ask)
    numbers, choices = len(schema.numbers), len(columns.space.choices)
    query = RowMoments(
        classes,
        (len(schema),),
        tuple(len(column.categories) for column in schema.columns),
        columns.space.gaps,
        columns.cuts,
        columns.places,
        columns.variances,
        # A number is about 1 from the middle, and a choice at most 1.
        _CLIP * math.sqrt(max(numbers + choices, _FEW)),
        _CLIP * math.sqrt(max(numbers, _FEW)),
    )
    released = ask(query, _MOMENTS)
    moments = query.read(released.sums, released.sigma, released.sites)
    return AskedMoments(columns.space, query, moments, released)


def _find_columns(schema: Schema, classes: int, ask: Ask) -> ColumnEncoding:
    """Learn the columns' scales, then their quantiles."""
    numbers = schema.numbers.tolist()
    edges = {column: first_edges(schema.columns[column]) for column in numbers}
    scales, scale_error = _count_values(schema, classes, edges, ask, _SCALES)
    tried = sum(len(ends) - 1 for ends in edges.values())
    finer, expected = {}, {}
    for column in numbers:
        finer[column], expected[column] = finer_edges(
            schema.columns[column], edges[column], scales[column].counts, scale_error, tried
        )
    totals, error = _count_values(schema, classes, finer, ask, _QUANTILES)
    shares = [smoothed_shares(totals[column].counts, expected[column], error) for column in numbers]
    gaps = believed_gaps(scales, scale_error)
    return columns_of(schema, gaps, list(finer.values()), shares)


def _count_values(
    schema: Schema, classes: int, edges: dict[int, Edges], ask: Ask, share: float
) -> tuple[list[ColumnValues], float]:
    """Count the values of all columns in these intervals; of categories, only gaps are counted.

    The second value is the standard error of a count.
    """
    cuts = tuple(edges.get(column, ())[1:-1] for column in range(len(schema)))
    query = ColumnCounts(classes, (len(schema),), cuts)
    released = ask(query, share)
    columns = query.read(released.sums, released.sigma, released.sites)
    return columns, query.error(released.sigma)


def first_edges(column: Column) -> Edges:
    """Return intervals that fit any column of numbers.

    >>> [x for x in first_edges(Column("age", whole=True)) if 0 < x < 20]
    [0.5, 1.5, 2.5, 4.5, 5.5, 8.5, 11.5, 16.5]
    """
    unit = _UNIT if column.whole else _FINEST
    steps = math.ceil(math.asinh(_LARGEST / unit) / _STEP)
    edges = unit * np.sinh(_STEP * np.arange(-steps, steps + 1))
    if column.whole:
        edges = np.floor(edges) + 0.5
    return tuple(np.unique(edges).tolist())


def finer_edges(
    column: Column, edges: Edges, counts: Floats, error: float, tried: int
) -> tuple[Edges, Floats]:
    """Return intervals on the scale of a column, and the shares that each should have.

    Parameters
    ----------
    column, edges
        The column, and its first intervals.
    counts
        How many rows are in each of them.
    error
        The standard error of these counts.
    tried
        Intervals of all columns: none of them should stand out by its noise alone.
    """
    first, last = _occupied(counts, error, tried)
    ends = np.array(edges[first : last + 2])
    mass = np.maximum(counts[first : last + 1], max(error / 2, 1e-6))
    below = np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])
    if column.whole and ends[-1] - ends[0] <= _MOST_INTEGERS:
        finer = np.arange(ends[0], ends[-1] + 0.5)
    else:
        finer = np.interp(np.linspace(0, 1, _INTERVALS + 1), below, ends)
        finer = np.unique(np.floor(finer) + 0.5 if column.whole else finer)
    if len(finer) < 2:
        finer = ends
    return tuple(finer.tolist()), np.diff(np.interp(finer, ends, below))


def _occupied(counts: Floats, error: float, tried: int) -> tuple[int, int]:
    """Return the first and the last interval that has rows."""
    noise = error * (math.sqrt(2 * math.log(max(tried, 2))) + _BEYOND)
    clear = np.flatnonzero(counts > max(noise, 0.5)).tolist() or [int(counts.argmax())]
    first, last = clear[0], clear[-1]
    if error:
        while first > 0 and counts[first - 1] > _BESIDE * error:
            first -= 1
        while last < len(counts) - 1 and counts[last + 1] > _BESIDE * error:
            last += 1
        # One more on either side may hold fewer rows than the noise hides.
        first, last = max(first - 1, 0), min(last + 1, len(counts) - 1)
    return first, last


def smoothed_shares(counts: Floats, expected: Floats, error: float) -> Floats:
    """Return the shares of intervals: counted ones lean on expected ones, as the noise demands."""
    size = max(float(counts.sum()), 1.0)
    prior = expected / expected.sum() * size
    deviation = counts - prior
    weight = james_stein(deviation, len(counts) * error**2)
    mixed = np.maximum(prior + weight * deviation, 0.0)
    mixed += _LEAST_TOTAL * size / len(mixed)
    shares: Floats = mixed / mixed.sum()
    return shares


def columns_of(
    schema: Schema,
    gaps: Sequence[bool],
    edges: Sequence[Edges],
    shares: Sequence[Floats],
) -> ColumnEncoding:
    """Return how the columns are told in numbers, given the shares of their intervals."""
    curves, places, variances = [], [], []
    for number, column in enumerate(schema.numbers.tolist()):
        below = np.concatenate([[0.0], np.cumsum(shares[number])]).clip(0, 1)
        whole = schema.columns[column].whole
        curves.append(_curve(np.array(edges[number]), below, whole))
        place, variance = _intervals(below)
        places.append(tuple(place.tolist()))
        variances.append(tuple(variance.tolist()))
    cuts = tuple(ends[1:-1] for ends in edges)
    space = RowSpace(schema, tuple(gaps), tuple(curves))
    return ColumnEncoding(space, cuts, tuple(places), tuple(variances))


def believed_gaps(columns: Sequence[ColumnValues], error: float) -> list[bool]:
    """Return which columns have missing values for certain."""
    return [column.gaps > max(_CLEAR * error, 0.5) for column in columns]


def _curve(edges: Floats, below: Floats, whole: bool) -> Quantiles:
    """Return a column's quantile function."""
    places = np.array([_NORMAL.inv_cdf(p) for p in below.clip(_TAIL, 1 - _TAIL).tolist()])
    if not whole:
        return Quantiles(places, edges)
    # An interval from 2.5 to 4.5 holds 3 and 4.
    values = np.stack([edges[:-1] + 0.5, edges[1:] - 0.5], axis=1).reshape(-1)
    return Quantiles(np.repeat(places, 2)[1:-1], values)


def _intervals(below: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of a standard normal in intervals that begin at these shares."""
    ends = np.array([_NORMAL.inv_cdf(p) for p in below.clip(1e-9, 1 - 1e-9).tolist()])
    density = np.exp(-np.square(ends) / 2) / math.sqrt(2 * math.pi)
    mass = np.maximum(np.diff(below), 1e-12)
    mean = (density[:-1] - density[1:]) / mass
    moment = (ends * density)[:-1] - (ends * density)[1:]
    return mean, np.clip(1 + moment / mass - mean**2, 0.0, 1.0)


def clean_moments(space: RowSpace, noisy: NoisyMoments, radius: float) -> Moments:
    """Return moments as those of rows without noise.

    Within a class, levels depend on nothing else, but that a missing number is none.

    Parameters
    ----------
    space
        What the coordinates are.
    noisy
        Noisy moments of coordinates of rows, divided by `radius`.
    radius
        The norm that numbers were clipped to.
    """
    counts, weights = noisy.counts, noisy.counts / noisy.counts.sum()
    raw, errors = noisy.covariances() * radius**2, noisy.second_errors * radius**2
    means = _clean_means(space, noisy.means * radius, noisy.mean_errors * radius, weights)
    common = within_classes(
        np.einsum("c,cij->ij", weights, raw),
        float(np.sqrt(np.square(weights * errors).sum())),
    )
    squares = np.einsum("ci,cj->cij", means, means)
    for c, mean in enumerate(means):
        numbers = with_least_variance(_leaning(raw[c], common, float(errors[c])))
        squares[c, space.first_number :, space.first_number :] += numbers
        squares[c] = _consistent(space, squares[c], mean)
    return Moments(
        counts, means * counts[:, np.newaxis], squares * counts[:, np.newaxis, np.newaxis]
    )


def within_classes(pooled: Floats, error: float) -> Floats:
    """Return a covariance whose correlations stand out from the noise.

    Parameters
    ----------
    pooled
        A symmetric matrix with noise.
    error
        The standard error of a diagonal entry; others have 1 / sqrt(2) of it.
    """
    if not error:
        return with_least_variance(pooled)
    variances = np.diag(np.maximum(np.diag(pooled), _LEAST_VARIANCE))
    between = pooled - np.diag(np.diag(pooled))
    shared = np.zeros_like(pooled)
    for _ in range(_ROUNDS):
        shared = spectrum(between + np.diag(np.diag(shared)), error / math.sqrt(2)).matrix()
    return with_least_variance(shared - np.diag(np.diag(shared)) + variances)


def with_least_variance(covariance: Floats) -> Floats:
    """Return a covariance with a least variance in every direction."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    clipped: Floats = (vectors * np.maximum(values, _LEAST_VARIANCE)) @ vectors.T
    return clipped


def _clean_means(space: RowSpace, means: Floats, errors: Floats, weights: Floats) -> Floats:
    """Return the mean of every class, leaning on that of all rows; shares of levels are shares."""
    everywhere = weights @ means
    clean = np.empty_like(means)
    for part in (slice(space.first_number), slice(space.first_number, None)):
        for c, error in enumerate(errors.tolist()):
            deviation = means[c, part] - everywhere[part]
            weight = james_stein(deviation, deviation.size * error**2)
            clean[c, part] = everywhere[part] + weight * deviation
    for choice in space.choices:
        shares = np.maximum(clean[:, choice.coordinates], _LEAST_LEVEL)
        most = (1 - _LEAST_LEVEL) / shares.sum(axis=1, keepdims=True)
        clean[:, choice.coordinates] = shares * np.minimum(1.0, most)
    return clean


def _leaning(raw: Floats, common: Floats, error: float) -> Floats:
    """Return a class's covariance, leaning on the common one wherever the noise is large.

    Variances and covariances have a weight each.
    """
    difference, diagonal = raw - common, np.eye(len(raw), dtype=bool)
    covariance = common.copy()
    for part, square in ((diagonal, error**2), (~diagonal, error**2 / 2)):
        deviation = difference[part]
        covariance[part] += james_stein(deviation, deviation.size * square) * deviation
    return covariance


def _consistent(space: RowSpace, squares: Floats, mean: Floats) -> Floats:
    """Return second moments of which some follow from the means: a row has one level per choice."""
    for choice in space.choices:
        at = choice.coordinates
        squares[at, at] = np.diag(mean[at])
    for number, gap in space.gap_coordinates.items():
        squares[number, gap] = squares[gap, number] = 0.0  # a number that is missing is 0
    return squares


def row_quality(space: RowSpace, noisy: NoisyMoments, radius: float) -> tuple[float, ...]:
    """Return D / (D + E) for every class: 1 without noise, 0 if nothing tells it from another.

    D is the Kullback-Leibler divergence from the class that is nearest, E that which further noise
    brings about.

    Parameters
    ----------
    space, noisy, radius
        The space of rows, and the noisy moments in it, as for `clean_moments`.
    """
    rng = child_rng(0, "quality")
    first = _normals(space, noisy, radius)
    between = np.stack([_divergences(first, mean, root) for mean, root in zip(*first, strict=True)])
    np.fill_diagonal(between, np.inf)
    distance = between.min(axis=0)
    change = np.zeros(len(distance))
    for _ in range(_REPEATS):
        again = _normals(space, _noised(noisy, rng), radius)
        for c, (mean, root) in enumerate(zip(*first, strict=True)):
            change[c] += _divergences((again[0][c : c + 1], again[1][c : c + 1]), mean, root)[0]
    quality = distance / np.maximum(distance + change / _REPEATS, 1e-12)
    return tuple(np.clip(quality, 0.0, 1.0).round(3).tolist())


def _normals(space: RowSpace, noisy: NoisyMoments, radius: float) -> tuple[Floats, Floats]:
    """Return the mean and the root of the covariance of every class, without noise."""
    clean = clean_moments(space, noisy, radius)
    means = clean.sums / clean.counts[:, np.newaxis]
    seconds = clean.squares / clean.counts[:, np.newaxis, np.newaxis]
    covariances = seconds - np.einsum("ci,cj->cij", means, means)
    return means, np.linalg.cholesky(np.stack([with_least_variance(one) for one in covariances]))


def _noised(noisy: NoisyMoments, rng: np.random.Generator) -> NoisyMoments:
    """Add the noise once more, where there is any."""
    means = noisy.means + rng.standard_normal(noisy.means.shape) * noisy.mean_errors[:, np.newaxis]
    drawn = rng.standard_normal(noisy.seconds.shape) / np.sqrt(2)
    # Of a symmetric matrix, so that entries off the diagonal have 1 / sqrt(2) of its error.
    noise = (drawn + drawn.swapaxes(1, 2)) / np.sqrt(2)
    seconds = noisy.seconds + noise * noisy.second_errors[:, np.newaxis, np.newaxis]
    return noisy._replace(means=means, seconds=seconds)


def _divergences(normals: tuple[Floats, Floats], mean: Floats, root: Floats) -> Floats:
    """Return the Kullback-Leibler divergence of each of some normal distributions from one."""
    means, roots = normals
    inverse = np.linalg.inv(root)
    white = inverse @ roots
    sizes = np.log(np.diag(root)).sum() - np.log(np.einsum("cii->ci", roots)).sum(axis=1)
    shift = np.square((means - mean) @ inverse.T).sum(axis=1)
    divergence: Floats = (np.square(white).sum(axis=(1, 2)) + shift - len(mean)) / 2 + sizes
    return np.maximum(divergence, 0.0)
