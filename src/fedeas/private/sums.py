"""Noisy sums over the sites of a federation: one entry, for a simulation and for real sites.

A site may send any numbers. A secure sum hides who sent what, but not what all of it adds up to. A
sample counts once (a group does, where it is the unit), and its row has a bounded norm. So there
have to be as many of them as the sites say they have, and no mean and no second moment can be
larger than the counts allow, up to the noise (`check_sums`). A site that stays within its number of
samples passes: what its own samples are, only it knows.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.progress import Update
from fedeas._internal.seeds import child_rng
from fedeas.data.dataset import Dataset
from fedeas.errors import InfeasibleError, InputError
from fedeas.private.accounting import DELTA, GROUP, SAMPLE, epsilon_of, rho_for, sigma_for
from fedeas.private.groups import Groups
from fedeas.private.noise import SumNoise
from fedeas.private.queries.features import FeatureMeans, FeatureProducts
from fedeas.private.queries.moments import UNITS, ImageProducts, MomentSum, triangle
from fedeas.private.queries.query import SCALE, AnyQuery, Floats, Ints, Query, SampleSum
from fedeas.private.queries.table import ColumnCounts

_SIGMAS = 6.0  # standard errors beyond which a number is not noise
_ROUNDING = 1e-3  # of a sample: words are whole numbers


class Release(NamedTuple):
    """A sum with the noise of all sites, and what it costs one unit of a site."""

    sums: Ints
    sigma: float  # standard deviation of the noise of a word; 0 without noise
    sites: int
    epsilon: float  # infinite without a guarantee: no noise, or noise that can be drawn again
    delta: float
    samples: int | None = None  # or groups, that the sites say they have, where that is known
    unit: str = SAMPLE  # whose privacy it is


# Asks all sites a query, for a share of a privacy budget that is fixed beforehand.
Ask = Callable[[SampleSum, float], Release]


class PrivateSums(ABC):
    """Asks the sites of a federation for noisy sums, and knows what they have cost together.

    `SimulatedSums` asks sites that are all here, `fedeas.private.flower.queries.FlowerSums` those
    of a Flower grid, whose ledgers keep the account.
    """

    def __init__(self, delta: float) -> None:
        self._delta = delta
        self._costs: list[float] = []  # in rho; infinite without a guarantee

    @abstractmethod
    def ask(self, query: AnyQuery, epsilon: float = 1.0, share: float = 1.0) -> Release:
        """Ask all sites a query, and return the noisy sum of their answers.

        Parameters
        ----------
        query
            What is asked.
        epsilon
            What the answer may cost one unit of a site, added or removed; an infinite one asks for
            a sum without noise.
        share
            The share of that budget, in rho, that this sum may cost where several split it.
        """

    def get_epsilon(self) -> float:
        """Return what all sums so far cost one unit together, as epsilon."""
        if math.inf in self._costs:
            return math.inf
        return epsilon_of(self._costs, self._delta)


def check_sites(sites: Sequence[Ints], samples: int) -> None:
    """Refuse places that let a sample count more than once, in a site or in two.

    Parameters
    ----------
    sites : sequence of arrays
        Where each site's samples are.
    samples : int
        How many there are in all.

    >>> check_sites([np.array([0, 1]), np.array([1, 2])], 3)
    Traceback (most recent call last):
    fedeas.errors.InputError: a sample is at two sites, or twice at one; got 'sample 1'; ...
    """
    taken = np.zeros(samples, bool)
    for number, given in enumerate(sites):
        places = np.asarray(given)
        if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
            raise InputError(
                f"site {number}: not the places of its samples",
                got=f"{places.dtype} of shape {places.shape}",
                allowed="a list of whole numbers",
                fix="of a mask, take np.flatnonzero(mask)" if places.dtype == bool else None,
            )
        if places.size and not 0 <= places.min() <= places.max() < samples:
            raise InputError(
                f"site {number}: places that no sample has",
                got=f"{places.min()} to {places.max()}",
                allowed=f"0 to {samples - 1}",
            )
        own, counts = np.unique(places.astype(np.int64), return_counts=True)
        twice = own[(counts > 1) | taken[own]]
        if twice.size:
            raise InputError(
                "a sample is at two sites, or twice at one",
                got=f"sample {twice[0]}",
                allowed="every sample at one site, once: else it counts more than epsilon says",
            )
        taken[own] = True


class SimulatedSums(PrivateSums):
    """Noisy sums over sites whose samples are all here.

    Parameters
    ----------
    data : Dataset
        The samples of all sites.
    sites : sequence of arrays
        Where each site's samples are in `data`.
    delta : float
        The delta of the guarantee.
    seed : int, optional
        Draws the noise of every sum again, for experiments: such sums have no guarantee.
    progress : callable, optional
        Called after every site, with a description.
    groups : Groups, optional
        The group of every sample of `data`, if groups are the unit of privacy; one that has samples
        at several sites is a group of each.

    >>> import tempfile, pathlib
    >>> from fedeas.private.queries.query import ClassTotals
    >>> images, labels = np.zeros((600, 8, 8, 1), np.uint8), np.arange(600) % 3
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     batches = iter([(images, labels)])
    ...     path = pathlib.Path(folder) / "blank"
    ...     data = Dataset.write(path, "blank", ("a", "b", "c"), (600, 0), batches)
    ...     sums = SimulatedSums(data, np.array_split(np.arange(600), 4))
    ...     answer = sums.ask(ClassTotals(3), epsilon=2.0)
    >>> answer.sites, round(sums.get_epsilon(), 2)
    (4, 2.0)
    """

    def __init__(
        self,
        data: Dataset,
        sites: Sequence[Ints],
        delta: float = DELTA,
        seed: int | None = None,
        progress: Update | None = None,
        groups: Groups | None = None,
    ) -> None:
        super().__init__(delta)
        check_sites(sites, len(data.labels))
        self._data, self._sites, self._seed, self._progress = data, sites, seed, progress
        self._groups = None if groups is None else [groups.at(site) for site in sites]

    def ask(self, query: AnyQuery, epsilon: float = 1.0, share: float = 1.0) -> Release:
        """Ask all sites a query, and return the noisy sum of their answers.

        Parameters
        ----------
        query, epsilon, share
            As for `PrivateSums`.
        """
        noise_seed, answers = self._seed, self._answers(query)
        if noise_seed is not None and self._costs:  # every sum has noise of its own
            noise_seed = int(child_rng(noise_seed, "sum", len(self._costs)).integers(2**63))
        released = release(
            query, answers, len(self._sites), epsilon, self._delta, share, noise_seed
        )
        guaranteed = math.isfinite(released.epsilon)
        self._costs.append(share * rho_for(epsilon, self._delta) if guaranteed else math.inf)
        if self._groups is None:
            return released._replace(samples=sum(map(len, self._sites)))
        return released._replace(samples=sum(map(len, self._groups)), unit=GROUP)

    def _answers(self, query: AnyQuery) -> Iterator[Ints]:
        for done, site in enumerate(self._sites, start=1):
            groups = None if self._groups is None else self._groups[done - 1]
            if isinstance(query, SampleSum):
                yield answer_samples(query, self._data.samples, self._data.labels, groups, site)
            elif isinstance(query, Query):
                yield answer_labels(query, np.asarray(self._data.labels[site]), groups)
            if self._progress is not None:
                self._progress(done, len(self._sites), f"sites in the sum {query.name}")


def answer_samples(
    query: SampleSum,
    samples: NDArray[Any],
    labels: Ints,
    groups: Groups | None = None,
    places: Ints | None = None,
) -> Ints:
    """Return a site's words for a sum over samples, in which every sample or group counts once.

    Parameters
    ----------
    query
        What the site was asked.
    samples, labels
        The samples and their classes.
    groups
        The group of every sample of the site, if groups are the unit of privacy.
    places
        Where the site's samples are in these arrays; all of them by default.
    """
    if groups is None:
        return query.answer(samples, labels, places)
    _check_grouped(groups, len(labels) if places is None else len(places))
    taken = np.flatnonzero(groups.weights)
    weights = groups.weights[taken]
    return query.answer(samples, labels, taken if places is None else places[taken], weights)


def answer_labels(query: Query, labels: Ints, groups: Groups | None = None) -> Ints:
    """Return a site's words for a question about its histogram, in which a group counts once."""
    if groups is None:
        return query.answer(np.bincount(labels, minlength=query.classes))
    _check_grouped(groups, len(labels))
    return query.answer(groups.label_counts(labels, query.classes))


def _check_grouped(groups: Groups, samples: int) -> None:
    if len(groups.codes) != samples:
        raise InputError(
            "not a group for every sample", got=len(groups.codes), allowed=f"{samples} of them"
        )


def release(
    query: AnyQuery,
    answers: Iterable[Ints],
    sites: int,
    epsilon: float,
    delta: float = DELTA,
    share: float = 1.0,
    noise_seed: int | None = None,
) -> Release:
    """Add up the sites' answers, each with its part of the noise.

    Parameters
    ----------
    query
        What the sites were asked.
    answers
        An answer per site, read one after the other.
    sites
        How many there are. All of them are counted on for the noise: none drops out or colludes in
        a simulation.
    epsilon, delta
        What the sum may cost one unit of a site, added or removed; an infinite epsilon releases the
        plain sum.
    share
        The share of that budget, in rho, that this sum may cost where several split it.
    noise_seed
        Draws the same noise again, for experiments. Whoever has the seed can subtract the noise, so
        that such a release has no guarantee: its epsilon is infinite. By default noise comes from
        the operating system, as at real sites.
    """
    noise = None
    if not math.isinf(epsilon):
        rho = share * rho_for(epsilon, delta)
        sigma = sigma_for(rho, query.sensitivity, honest=sites, words=query.length)
        noise = SumNoise(sigma, sites)
    sums = np.zeros(query.length, np.int64)
    for site, answer in enumerate(answers):
        sums += answer
        if noise is not None:
            source = (
                os.urandom if noise_seed is None else child_rng(noise_seed, "noise", site).bytes
            )
            sums += noise.part(query.length, source)
    guarantee = epsilon if noise_seed is None else math.inf
    return Release(sums, 0.0 if noise is None else noise.sigma, sites, guarantee, delta)


_Noisy = tuple[Floats, float]  # numbers, counted in samples, and their standard error


class _Sizes(NamedTuple):
    """What a sum says about the number and the size of samples."""

    counts: _Noisy | None = None  # per class, or of all together
    totals: _Noisy | None = None  # each of them counts all samples
    norms: _Noisy | None = None  # per class, of the sum of rows; each sample adds at most 1
    traces: _Noisy | None = None  # per class, of the sum of squares; each adds from 0 to 1


def check_sums(query: SampleSum, released: Release) -> None:
    """Refuse sums that no samples can have.

    Parameters
    ----------
    query, released
        What was asked, and the noisy sum, with the number of samples that the sites state.
    """
    sizes = _sizes(query, query.by_class(released.sums, released.sigma), released.sigma)
    samples, most, most_error = released.samples, None, 0.0
    if samples is not None:
        most = np.array([float(samples)])
    if sizes.counts is not None:
        most, most_error = sizes.counts
        _refuse_above(f"{released.unit}s of a class, below none", -most, 0.0, most_error)
    if sizes.totals is not None and samples is not None:
        totals, error = sizes.totals
        if released.unit == GROUP:  # the rows of a group are rounded one by one
            error += _ROUNDING * samples / _SIGMAS
        what = f"{released.unit}s, where the sites say they have others"
        _refuse_above(what, np.abs(totals - samples), 0.0, error)
    for what, size in (("means", sizes.norms), ("second moments", sizes.traces)):
        if size is None:
            continue
        values, error = size
        _refuse_above(f"{what}, below zero", -values, 0.0, error)
        if most is not None:
            error = math.hypot(error, most_error)
            _refuse_above(f"{what}, larger than the counts allow", values, most, error)


def describe_check(sizes_known: bool, unit: str = SAMPLE) -> str:
    """Say what was compared, for the generator's card, which is no place for an exact number."""
    if not sizes_known:
        return f"means and second moments with the counts; the sites' numbers of {unit}s: not known"
    return f"counts, means and second moments with the numbers of {unit}s that the sites state"


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
        norms = _norms(words[:, 1 : 1 + d], mean, sigma)
        traces = _traces(words[:, 1 + d :], query.multiplied, max(second, 1), sigma)
        return _Sizes(*_counts(words, count, sigma), norms, traces)
    if isinstance(query, ImageProducts):
        return _Sizes(traces=_traces(words, query.dimensions, UNITS, sigma))
    if isinstance(query, FeatureMeans):
        count, mean = query.units
        return _Sizes(*_counts(words, count, sigma), _norms(words[:, 1:], mean, sigma))
    if isinstance(query, FeatureProducts):
        count, product = query.units
        traces = _traces(words[:, 1:], query.size, product, sigma)
        return _Sizes(*_counts(words, count, sigma), traces=traces)
    if isinstance(query, ColumnCounts):
        ends = np.cumsum([len(cuts) + 2 for cuts in query.cuts])
        columns = np.split(words[0] / SCALE, ends[:-1])
        longest = max(map(len, columns))
        rows = np.array([column.sum() for column in columns])
        return _Sizes((words[0] / SCALE, sigma / SCALE), (rows, sigma / SCALE * longest**0.5))
    return _Sizes()


def _counts(words: Floats, unit: float, sigma: float) -> tuple[_Noisy, _Noisy]:
    """Return the samples of every class, which the first words count, and of all together."""
    counts, error = words[:, 0] / unit, sigma / unit
    return (counts, error), (counts.sum(keepdims=True), error * math.sqrt(len(counts)))


def _norms(words: Floats, unit: float, sigma: float) -> _Noisy:
    """Return the norms of rows, less what the noise of their entries adds to them."""
    squares = np.square(words / unit).sum(axis=1) - words.shape[1] * (sigma / unit) ** 2
    # Of a square, noise of d entries is off by sqrt(2 d) variances; of a norm, by one deviation.
    error = (sigma / unit) * (1 + (2 * words.shape[1]) ** 0.25)
    return np.sqrt(np.maximum(squares, 0.0)), error


def _traces(words: Floats, size: int, unit: float, sigma: float) -> _Noisy:
    """Return the sums of the diagonal of upper triangles."""
    rows, columns, _ = triangle(size)
    diagonal = words[:, rows == columns]
    return diagonal.sum(axis=1) / unit, sigma / unit * math.sqrt(size)
