"""`PrivateClassifier`: discriminants of public features, from noisy sums alone.

Images: three sums, of which the later two are measured from what the earlier one says. The first
has the mean of every class's edge features (`queries/features.py`), whose norm is 1 for all images:
so their mean squared distance from the means follows, by which the later sums are clipped. The
second has what the means lack, the third the products of the distances from them. The covariance
within classes is shrunk towards a multiple of the identity, as far as the noise reaches;
eigenvalues that the noise made negative are zero. The discriminants are linear.

Rows: the sums are those of the generator (`rows.py`), so that who made one has the other at no
further cost, and so is the model. Discriminants are quadratic in numbers, and the covariance of
every class leans on that of all, the more the larger its noise (regularised discriminant analysis,
Friedman 1989). Of categories they add up the logarithms of shares (naive Bayes).

Split of the budget, clipping norms and shrinkage were chosen on CIFAR-10 in grey, on handwritten
symbols (CROHME) and on the tables penbased, forest cover and rodents: see
benchmarks/private_classifier.py.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.data.columns import encode_known
from fedeas.data.dataset import Dataset
from fedeas.data.parquet import open_frame
from fedeas.data.schema import Column, Schema
from fedeas.errors import InputError
from fedeas.generators.card import CARD, GeneratorCard
from fedeas.generators.row_space import RowSpace
from fedeas.private.generator import rows
from fedeas.private.generator.base import PrivateModel, james_stein, noise_edge, unfinished
from fedeas.private.generator.card import CLASSIFIER, PRIVATE, make_card
from fedeas.private.queries import encode_query, read_query
from fedeas.private.queries.features import (
    EDGE_UNIT,
    FeatureMeans,
    FeatureProducts,
    FeatureSum,
    edge_features,
    feature_count,
)
from fedeas.private.queries.moments import check_shape
from fedeas.private.queries.query import Floats, Ints
from fedeas.private.queries.table import RowMoments
from fedeas.private.sums import Ask, Release
from fedeas.train.tensors import Tensors, tensors_digest

# Split of the privacy budget: for first means, for means measured from them, and for products.
_FIRST, _MEANS = 0.06, 0.30
_PRODUCTS = 1 - _FIRST - _MEANS
# Clipping norms, in root mean squares of the distance from a class's mean.
_MEANS_CLIP, _PRODUCTS_CLIP = 1.0, 0.9
_LEAST_SPREAD = 0.01  # of the squared norm: what lies within classes at least
_RIDGE = 0.2  # of the noise's largest eigenvalue, added to every variance
_LEAST_RIDGE = 1e-3  # of the mean variance, the same
_LEAN = 0.5  # of the noise's largest eigenvalue, the weight of the covariance of all classes
_BLOCK = 512  # samples at a time
# A question has a centre of every class; sites read no longer one (flower/secure_sum.py).
_LONGEST_QUESTION, _DIGITS = 2**20 - 2**12, 10  # characters, in all and of one number

METHODS = {"image": "edges", "table": "rows"}
_SCHEMA = "schema"  # in the settings of a card; earlier versions wrote none


class PrivateClassifier(PrivateModel):
    """Tells the class of samples, from what noisy sums say of every class."""

    name: ClassVar[str] = CLASSIFIER
    accuracy = None  # on real samples, which nobody looked at; a judge has one

    def __init__(self, card: GeneratorCard, tensors: Tensors) -> None:
        super().__init__(card, tensors)
        names = ("squares", "weights", "offsets")
        self._squares, self._weights, self._offsets = (tensors[name].numpy() for name in names)
        self._coordinates, _ = _coordinates(card)
        self._columns = _columns(card)
        self.fingerprint = f"{CLASSIFIER}-{tensors_digest(tensors, repr(card.shape))}"

    @classmethod
    def make(cls, data: Dataset, ask: Ask) -> Self:
        """Make the classifier from what sites answer.

        Parameters
        ----------
        data : Dataset
            Names the classes and the shape of a sample, and the columns of a table.
        ask : callable
            Asks all sites a query, for a share of the privacy budget.
        """
        cls.check(data)
        method, shape = METHODS[data.kind], data.samples.shape[1:]
        settings: dict[str, Any] = {}
        if data.schema is None:
            counts, tensors, releases = _from_edges(len(data.classes), shape, ask)
        else:
            asked = rows.ask_moments(data.schema, len(data.classes), ask)
            counts, releases = asked.moments.counts, (asked.released,)
            tensors = _from_rows(asked)
            settings = {"query": encode_query(asked.query), _SCHEMA: data.schema.to_list()}
        card = make_card(method, data.classes, shape, releases, counts, (), settings, CLASSIFIER)
        return cls(card, tensors)

    @staticmethod
    def check(data: Dataset) -> None:
        """Refuse data that there is no classifier for, before anything is asked."""
        if data.kind not in METHODS:
            raise InputError("private classifiers are for images and tables", got=data.kind)
        if data.schema is None:
            shape, classes = data.samples.shape[1:], len(data.classes)
            _check_edges(classes, shape)
            most = _LONGEST_QUESTION // (_DIGITS * feature_count(shape[2]))
            if classes > most:
                raise InputError(
                    "too many classes for a private classifier", got=classes, allowed=f"{most}"
                )

    @property
    def schema(self) -> Schema | None:
        """The columns of its rows; None: images, or a card without their names."""
        return self._columns if _SCHEMA in self.card.settings else None

    def scores(self, samples: Any) -> Floats:
        """Return the logarithm of every class's density at each sample, up to a constant.

        Parameters
        ----------
        samples : array or data frame
            As for `predict`.
        """
        samples = self._read(samples)
        blocks = [samples[start : start + _BLOCK] for start in range(0, len(samples), _BLOCK)]
        parts = [self._scores(self._coordinates(block)) for block in blocks]
        return np.concatenate([np.empty((0, len(self.classes))), *parts])

    def _scores(self, x: Floats) -> Floats:
        scores: Floats = x @ self._weights + self._offsets
        for c, square in enumerate(self._squares):
            scores[:, c] += np.einsum("ni,ni->n", x @ square, x)
        return scores

    def _read(self, samples: Any) -> NDArray[Any]:
        """Return samples as an array; refuse what would be taken for something else."""
        if hasattr(samples, "columns"):
            if self._columns is None:
                raise InputError(
                    "the classifier is of images", got=type(samples).__name__, allowed="an array"
                )
            if self.schema is None:
                raise InputError(
                    "the classifier's card names no columns to find in a frame",
                    got=type(samples).__name__,
                    allowed="an array of samples",
                    fix="a classifier of a table has their names if this version made it",
                )
            return np.stack(encode_known(open_frame(samples), self.schema).values, axis=1)
        array: NDArray[Any] = np.asarray(samples)
        shape = self.card.shape
        if array.shape[1:] != shape:
            raise InputError(
                f"the classifier expects samples of shape (n, {', '.join(map(str, shape))})",
                got=array.shape,
                fix="one sample? pass samples[None]" if array.ndim <= len(shape) else None,
            )
        if self._columns is None and array.dtype != np.uint8:
            raise InputError(
                "images must be of uint8, 0 to 255",
                got=str(array.dtype),
                fix="convert them: if they are from 0 to 1, (images * 255).round().astype('uint8')",
            )
        if self._columns is not None:
            if array.dtype.kind not in "biuf":
                fix = "pass a data frame, whose columns are found by name"
                raise InputError("rows must be numbers", got=str(array.dtype), fix=fix)
            self._columns.check(array)
        return array

    def predict(self, samples: Any) -> Ints:
        """Return the class of every sample, as its index in `classes`.

        Parameters
        ----------
        samples : array or data frame
            Images of uint8, or rows as the generator draws them: numbers, codes of categories, and
            NaN for gaps. A frame of pandas or polars has categories as text, and its columns are
            found by name.
        """
        classes: Ints = self.scores(samples).argmax(axis=1)
        return classes

    __call__ = predict  # as a judge is called

    @classmethod
    def from_tensors(cls, card: GeneratorCard, tensors: Tensors) -> Self:
        """Make the classifier of a card and weights, which anybody may have sent."""
        size, classes = _coordinates(card)[1], len(card.classes)
        quadratic = classes if card.method == METHODS["table"] else 0
        shapes = {
            "squares": (quadratic, size, size), "weights": (size, classes), "offsets": (classes,)
        }  # fmt: skip
        for name, shape in shapes.items():
            if tuple(tensors[name].shape) != shape or tensors[name].dtype != torch.float64:
                raise ValueError("other shapes")
            if not tensors[name].isfinite().all():
                raise ValueError("not finite")
        return cls(card, {name: tensors[name] for name in shapes})

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Open a classifier's folder.

        Parameters
        ----------
        folder : Path or str
            The folder `classifier` in that of a generator.
        """
        path = Path(folder)
        generator = path if (path / CARD).exists() else path.parent
        alone = (generator / CARD).exists() and not any(generator.glob(f"*/{CARD}"))
        if alone and GeneratorCard.load(generator).generator == PRIVATE:
            fix = "make both with --classifier, in a new folder and for a further epsilon"
            if unfinished(generator).exists():
                fix = "repeat what made the generator: it finishes at no further cost"
            raise InputError(f"{generator} has no classifier", fix=fix)
        return super().load(path)


def _coordinates(card: GeneratorCard) -> tuple[Callable[[NDArray[Any]], Floats], int]:
    """Return what a card says that samples are looked at by, and how many numbers that gives."""
    if card.method == METHODS["table"]:
        # Rows are looked at without being shortened; earlier versions had no `number_radius`.
        query = read_query({"number_radius": 1.0, **card.settings["query"]})
        if not isinstance(query, RowMoments) or query.shape != card.shape:
            raise ValueError("not the columns of rows")
        return query.coefficients, query.dimensions
    if card.method != METHODS["image"]:
        raise ValueError("another method")
    _check_edges(len(card.classes), card.shape)
    return _edges, feature_count(card.shape[2])


def _columns(card: GeneratorCard) -> Schema | None:
    """Return the columns of rows, numbered where the card has no names; images have none."""
    if card.method != METHODS["table"]:
        return None
    levels = card.settings["query"]["levels"]
    if _SCHEMA not in card.settings:
        named = enumerate(tuple(map(str, range(count))) for count in levels)
        return Schema(tuple(Column(str(at), categories) for at, categories in named))
    schema = Schema.from_list(card.settings[_SCHEMA])
    if [len(column.categories) for column in schema.columns] != list(levels):
        raise ValueError("other columns")
    return schema


def _check_edges(classes: int, shape: tuple[int, ...]) -> None:
    """Refuse images that have no edge features: the query does."""
    check_shape(shape)  # first: the query's centre is as large as the shape says
    size = feature_count(shape[2])
    FeatureMeans(classes, shape, ((0,) * size,) * classes, (1,) * size)


def _edges(images: NDArray[Any]) -> Floats:
    return edge_features(images) / EDGE_UNIT


def _from_edges(
    classes: int, shape: tuple[int, ...], ask: Ask
) -> tuple[Floats, Tensors, tuple[Release, ...]]:
    """Ask for three sums of edge features; return counts, weights and what was asked."""
    size = feature_count(shape[2])
    releases = []

    def ask_means(centre: Floats, norm: float, share: float) -> tuple[FeatureSum, Floats]:
        """Return the means of features, and how far they are from a centre."""
        query = FeatureMeans(classes, shape, _whole(centre), _scale(norm, size))
        releases.append(ask(query, share))
        means = query.read(releases[-1].sums, releases[-1].sigma, releases[-1].sites)
        unit = query.scale[0] / EDGE_UNIT
        shift = means.means * unit
        return means._replace(errors=means.errors * unit), shift

    first, means = ask_means(np.zeros((classes, size)), 1.0, _FIRST)
    everywhere = first.counts @ means / first.counts.sum()
    for c, error in enumerate(first.errors.tolist()):
        weight = james_stein(means[c] - everywhere, size * error**2)
        means[c] = everywhere + weight * (means[c] - everywhere)
    spread = _spread_within(first.counts, means)
    second, shift = ask_means(means, _MEANS_CLIP * spread, _MEANS)
    means += shift
    norm = _PRODUCTS_CLIP * _spread_within(second.counts, means, second.errors)
    query = FeatureProducts(classes, shape, _whole(means), _scale(norm, size))
    releases.append(ask(query, _PRODUCTS))
    products = query.read(releases[-1].sums, releases[-1].sigma, releases[-1].sites)
    unit = (query.scale[0] / EDGE_UNIT) ** 2
    within = shrunk(products.means * unit, float(products.errors[0]) * unit)
    tensors = discriminants(second.counts, means, within[np.newaxis], second.errors)
    return second.counts, tensors, tuple(releases)


def _spread_within(counts: Floats, means: Floats, errors: Floats | float = 0.0) -> float:
    """Return the root mean square of features of norm 1 around the means of their classes."""
    squares = np.square(means).sum(axis=1) - means.shape[1] * np.square(errors)
    return math.sqrt(max(1 - counts @ squares / counts.sum(), _LEAST_SPREAD))


def _whole(centre: Floats) -> tuple[tuple[int, ...], ...]:
    limited = np.clip(centre, -4.0, 4.0)  # noise can be large
    return tuple(tuple(row) for row in np.rint(limited * EDGE_UNIT).astype(np.int64).tolist())


def _scale(norm: float, size: int) -> tuple[int, ...]:
    return (math.ceil(norm * EDGE_UNIT),) * size


def shrunk(within: Floats, error: float, shrinkage: float | None = None) -> Floats:
    """Return a covariance with noise, shrunk towards a multiple of the identity of its trace.

    Parameters
    ----------
    within
        A symmetric matrix with noise.
    error
        The standard error of an entry.
    shrinkage
        The weight of the identity; what the noise demands by default.

    >>> shrunk(np.diag([3.0, 1.0]), 0.0, shrinkage=0.5)
    array([[2.5, 0. ],
           [0. , 1.5]])
    """
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    values = np.maximum(values, 0.0)
    mean = max(float(values.mean()), 1e-12)
    if shrinkage is None:
        ridge = _RIDGE * noise_edge(error, len(values)) / mean + _LEAST_RIDGE
        shrinkage = ridge / (1 + ridge)
    shrunk_values = (1 - shrinkage) * values + shrinkage * mean
    covariance: Floats = (vectors * shrunk_values) @ vectors.T
    return covariance


def _from_rows(asked: rows.AskedMoments) -> Tensors:
    """Return discriminants from the moments of every class's rows."""
    radius, first = asked.query.number_radius, asked.space.first_number
    clean = rows.clean_moments(asked.space, asked.moments, radius)
    counts, means = clean.counts, clean.sums / clean.counts[:, np.newaxis]
    covariances = clean.squares / counts[:, np.newaxis, np.newaxis]
    covariances -= np.einsum("ci,cj->cij", means, means)
    covariances = covariances[:, first:, first:]
    common = np.einsum("c,cij->ij", counts / counts.sum(), covariances)
    # Noise counts against what a number varies by given all others: discriminants have inverses.
    precision = np.diag(np.linalg.inv(rows.with_least_variance(common))).sum() / max(len(common), 1)
    errors = asked.moments.second_errors * radius**2 / math.sqrt(2)
    edges = np.array([noise_edge(error, len(common)) for error in errors.tolist()])
    weights = (_LEAN * precision * edges)[:, np.newaxis, np.newaxis]
    mixed = (covariances + weights * common) / (1 + weights)
    numbers = np.stack([rows.with_least_variance(one) for one in mixed])
    tensors = discriminants(counts, means[:, first:], numbers)
    return _with_levels(tensors, asked.space, means)


def _with_levels(tensors: Tensors, space: RowSpace, means: Floats) -> Tensors:
    """Add what levels say to the discriminants of numbers: the logarithm of their shares."""
    first, size = space.first_number, space.dimensions
    squares, weights = np.zeros((len(means), size, size)), np.zeros((size, len(means)))
    squares[:, first:, first:], weights[first:] = tensors["squares"], tensors["weights"]
    offsets = tensors["offsets"].numpy()
    for choice in space.choices:
        shares = means[:, choice.coordinates]
        other = np.log(1 - shares.sum(axis=1))  # of the first level, which has no coordinate
        weights[choice.coordinates] = (np.log(shares) - other[:, np.newaxis]).T
        offsets += other
    named = {"squares": squares, "weights": weights, "offsets": offsets}
    return {name: torch.from_numpy(array) for name, array in named.items()}


def discriminants(
    counts: Floats, means: Floats, covariances: Floats, errors: Floats | float = 0.0
) -> Tensors:
    """Return the weights of linear or quadratic discriminants of normal distributions.

    Parameters
    ----------
    counts, means
        Samples of every class, and their means.
    covariances
        One for all classes, or one for each.
    errors
        The standard error of an entry of each mean: a mean seems as much longer as its noise is,
        and the offset takes that back.
    """
    precisions = np.linalg.inv(covariances)
    weights = (precisions @ means[:, :, np.newaxis])[:, :, 0].T
    offsets = np.log(counts / counts.sum()) - np.einsum("ci,ic->c", means, weights) / 2
    offsets += np.square(errors) * np.einsum("cii->c", precisions) / 2
    offsets -= np.linalg.slogdet(covariances)[1] / 2
    linear = len(covariances) == 1
    squares = np.empty((0, *covariances.shape[1:])) if linear else -precisions / 2
    named = {"squares": squares, "weights": np.ascontiguousarray(weights), "offsets": offsets}
    return {name: torch.from_numpy(array) for name, array in named.items()}
