"""Whether noisy sums can be those of the sites' samples: a site may send any numbers.

A secure sum hides who sent what, but not what all of it adds up to. A sample counts once, and its
row has a bounded norm. So there have to be as many samples as the sites say they have, and no mean
and no second moment can be larger than the counts allow, up to the noise. A site that stays within
its number of samples passes: what its own samples are, only it knows.
"""

import math
from typing import NamedTuple

import numpy as np

from fedeas.errors import InfeasibleError
from fedeas.privacy.queries.column_counts import ColumnCounts
from fedeas.privacy.queries.embedding import EmbeddingSum
from fedeas.privacy.queries.features import RADIUS
from fedeas.privacy.queries.image_features import FeatureMeans, FeatureProducts
from fedeas.privacy.queries.image_moments import ImageProducts
from fedeas.privacy.queries.moments import UNITS, MomentSum, triangle
from fedeas.privacy.queries.query import SCALE, Floats
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import Release

_SIGMAS = 6.0  # standard errors beyond which a number is not noise
_ROUNDING = 1e-3  # of a sample: words are whole numbers


class _Number(NamedTuple):
    """Numbers with noise, counted in samples."""

    values: Floats
    error: float


class _Sizes(NamedTuple):
    """What a sum says about the number and the size of samples."""

    counts: _Number | None = None  # per class, or of all together
    totals: _Number | None = None  # each of them counts all samples
    norms: _Number | None = None  # per class, of the sum of rows; each sample adds at most 1
    traces: _Number | None = None  # per class, of the sum of squares; each adds from 0 to 1


def check_sums(query: SampleSum, released: Release, samples: int | None) -> None:
    """Refuse sums that no samples can have.

    Parameters
    ----------
    query, released
        What was asked, and the noisy sum.
    samples
        How many samples the sites in the sum say they have; None if that is not known.
    """
    sizes = _sizes(query, query.by_class(released.sums, released.sigma), released.sigma)
    counts = sizes.counts
    if counts is not None:
        _refuse_above("samples of a class, below none", -counts.values, 0.0, counts.error)
    totals = sizes.totals
    if totals is not None and samples is not None:
        what = "samples, where the sites say they have others"
        _refuse_above(what, np.abs(totals.values - samples), 0.0, totals.error)
    for what, size in (("means", sizes.norms), ("second moments", sizes.traces)):
        if size is None:
            continue
        _refuse_above(f"{what}, below zero", -size.values, 0.0, size.error)
        if counts is not None:
            most, error = np.maximum(counts.values, 0.0), math.hypot(size.error, counts.error)
        elif samples is not None:
            most, error = np.array([float(samples)]), size.error
        else:
            continue
        _refuse_above(f"{what}, larger than the counts allow", size.values, most, error)


def describe_check(sizes_known: bool) -> str:
    """Say what was compared, for the generator's card, which is no place for an exact number."""
    if not sizes_known:
        return "means and second moments with the counts; the sites' numbers of samples: not known"
    return "counts, means and second moments with the numbers of samples that the sites state"


def _refuse_above(what: str, values: Floats, most: Floats | float, error: float) -> None:
    """Refuse numbers above their limit by more than noise and rounding explain."""
    limit = np.maximum(most, 0.0) * (1 + _ROUNDING) + _SIGMAS * error + _ROUNDING
    if bool((values > limit).any()):
        raise InfeasibleError(
            f"these sums cannot be those of the sites' samples: {what}",
            got=round(float(np.max(values)), 1),
            allowed=f"up to {float(np.max(limit)):.1f}",
            fix="a site may have sent wrong numbers: ask the sites' owners",
        )


def _sizes(query: SampleSum, words: Floats, sigma: float) -> _Sizes:
    """Read the counts and sizes that a query's words hold."""
    if isinstance(query, MomentSum):
        (count, mean, second), d = query.units, query.dimensions
        counts = _Number(words[:, 0] / count, sigma / count)
        norms = _norms(words[:, 1 : 1 + d], mean, sigma)
        traces = _traces(words[:, 1 + d :], d, second, sigma)
        return _Sizes(counts, _total(counts), norms, traces)
    if isinstance(query, ImageProducts):
        return _Sizes(traces=_traces(words, query.dimensions, UNITS, sigma))
    if isinstance(query, FeatureMeans):
        count, mean = query.units
        counts = _Number(words[:, 0] / count, sigma / count)
        return _Sizes(counts, _total(counts), _norms(words[:, 1:], mean, sigma))
    if isinstance(query, FeatureProducts):
        count, product = query.units
        counts = _Number(words[:, 0] / count, sigma / count)
        return _Sizes(
            counts, _total(counts), traces=_traces(words[:, 1:], query.size, product, sigma)
        )
    if isinstance(query, EmbeddingSum):
        counts = _Number(words[:, 0] / query.count_units, sigma / query.count_units)
        # A sample adds a point of a circle to every pair: sqrt(features) radii in all.
        unit = RADIUS * math.sqrt(query.features) * (1 + 1 / RADIUS)
        return _Sizes(counts, _total(counts), _norms(words[:, 1:], unit, sigma))
    if isinstance(query, ColumnCounts):
        ends = np.cumsum([len(cuts) + 2 for cuts in query.cuts])
        columns = np.split(words[0] / SCALE, ends[:-1])
        longest = max(map(len, columns))
        totals = _Number(np.array([own.sum() for own in columns]), sigma / SCALE * longest**0.5)
        return _Sizes(_Number(words[0] / SCALE, sigma / SCALE), totals)
    return _Sizes()


def _total(counts: _Number) -> _Number:
    return _Number(counts.values.sum(keepdims=True), counts.error * math.sqrt(len(counts.values)))


def _norms(words: Floats, unit: float, sigma: float) -> _Number:
    """Return the norms of rows, less what the noise of their entries adds to them."""
    squares = np.square(words / unit).sum(axis=1) - words.shape[1] * (sigma / unit) ** 2
    # Of a square, noise of d entries is off by sqrt(2 d) variances; of a norm, by one deviation.
    error = (sigma / unit) * (1 + (2 * words.shape[1]) ** 0.25)
    return _Number(np.sqrt(np.maximum(squares, 0.0)), error)


def _traces(words: Floats, size: int, unit: float, sigma: float) -> _Number:
    """Return the sums of the diagonal of upper triangles."""
    rows, columns, _ = triangle(size)
    diagonal = words[:, rows == columns]
    return _Number(diagonal.sum(axis=1) / unit, sigma / unit * math.sqrt(size))
