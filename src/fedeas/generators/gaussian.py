"""`gaussian`: rows of a table from the mean and covariance of their class.

It is fitted by counting: how many rows a class has, their sum and their second moments, in a space
in which numbers are normal and categories one-hot (`RowSpace`). These `Moments` are sums over rows,
so clients can add theirs up. It can make any class of which any client has a row.

`local-gaussian` is fitted to a client's own rows, so nothing is shared. It makes what the client
has, if only one row of it; of classes that the client lacks it knows nothing.

The covariance of a class of few samples leans on all classes together. The weight of the common
covariance follows oracle approximating shrinkage (Chen, Wiesel, Eldar and Hero, 2010), which needs
only a covariance and its number of samples. It is applied where the common covariance is the
identity.

`ClassDistribution` draws rows of one class. Choices come first, one after the other: the chances of
a level are linear in what was chosen before, cut off at zero, and scaled so that every level is as
frequent as in the class. Numbers then are normal, with a mean that is linear in the choices. This
is the general location model (Olkin and Tate, 1961) without interactions, and needs no more than
first and second moments.
"""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import (
    atomic_write,
    check_regular,
    content_hash,
    make_folder,
    unreadable,
)
from fedeas.data import INFER_ALL, Dataset, TableOptions, open_dataset
from fedeas.data.columns import numbers_name_rows
from fedeas.data.federation import pool_indices, validation_indices
from fedeas.data.kinds import Array
from fedeas.data.schema import Column, Schema, all_whole
from fedeas.errors import InputError
from fedeas.generators.card import GeneratorCard, TrainingData, TrainingRecord
from fedeas.generators.random_streams import Seeds, normals, uniforms
from fedeas.generators.resampler import LocalSamples, local_rows, needs_local_samples
from fedeas.generators.row_space import Choice, Floats, Ints, RowSpace, blocks
from fedeas.planning.policies import copyable

Singles = NDArray[np.float32]
_Real = TypeVar("_Real", np.float64, np.float32)
_MOMENTS = "moments.npy"
_LARGEST = 1 << 31  # bytes of a file of moments
_MOST_NUMBERS = 1 << 27  # numbers in all second moments: one gigabyte
_LEAST_VARIANCE = 1e-6  # that every coordinate has, as those that never change would have none
_LEAST_EIGENVALUE = 1e-4  # as a part of the largest
FULL = 64  # numbers up to which a covariance is kept whole; of more, RANK factors and a diagonal
RANK = 32
_TRIED = 2048  # rows drawn to find the scales of levels
_ROUNDS = 30  # of finding them
_FLOOR = 1e-3  # of its share is left to a level that is cut off


@dataclass(frozen=True, eq=False)
class Moments:
    """How many samples every class has, their sum and the sum of their outer products.

    >>> one = Moments(np.array([1.0]), np.array([[2.0]]), np.array([[[4.0]]]))
    >>> (one + one).counts, (one + one).sums
    (array([2.]), array([[4.]]))
    """

    counts: Floats  # classes
    sums: Floats  # classes x coordinates
    squares: Floats  # classes x coordinates x coordinates

    @classmethod
    def zeros(cls, classes: int, dimensions: int) -> "Moments":
        """Return the moments of no samples."""
        if classes * dimensions**2 > _MOST_NUMBERS:
            most = int((_MOST_NUMBERS / classes) ** 0.5)
            raise InputError(
                f"second moments of {classes:,} classes in {dimensions:,} dimensions do not fit "
                "in memory",
                allowed=f"at most {most:,} dimensions: columns of numbers and categories",
                fix="leave out columns of many categories",
            )
        shape = (classes, dimensions)
        return cls(np.zeros(classes), np.zeros(shape), np.zeros((*shape, dimensions)))

    @classmethod
    def of(
        cls, space: RowSpace, rows: Array, labels: Ints, classes: int, indices: Ints | None = None
    ) -> "Moments":
        """Add up the moments of rows in a space, or of those at some `indices`, block by block."""
        at = np.arange(len(labels)) if indices is None else indices
        moments = cls.zeros(classes, space.dimensions)
        numbers = np.arange(space.first_number, space.dimensions)
        for block in blocks(at):
            points, within = space.encode(np.asarray(rows[block]))
            labels_here = np.asarray(labels[block])
            for label in np.unique(labels_here).tolist():
                of_class = labels_here == label
                part = points[of_class]
                moments.counts[label] += len(part)
                moments.sums[label] += part.sum(axis=0)
                moments.squares[label] += part.T @ part
                moments.squares[label][numbers, numbers] += within[of_class].sum(axis=0)
        return moments

    def __add__(self, other: "Moments") -> "Moments":
        if self.squares.shape != other.squares.shape:
            raise InputError(
                "moments of other classes or columns",
                got=other.sums.shape,
                allowed=str(self.sums.shape),
            )
        return Moments(
            self.counts + other.counts, self.sums + other.sums, self.squares + other.squares
        )

    def complete(self, space: RowSpace) -> tuple[Floats, Floats]:
        """Return means and scatter, the sum of outer products about the mean, as without gaps.

        Means are those of the numbers that are there. The scatter of two numbers is that of the
        rows that have both, scaled to all rows of the class.
        """
        gaps = space.gap_coordinates
        numbers, missing = np.array(list(gaps), np.intp), np.array(list(gaps.values()), np.intp)
        means = self.sums / np.maximum(self.counts, 1.0)[:, np.newaxis]
        scatters = np.empty_like(self.squares)
        for label, count in enumerate(self.counts.tolist()):
            there = np.full(len(means[label]), max(count, 1.0))
            there[numbers] -= self.sums[label, missing]
            # Where a number is missing, the mean of the others is taken.
            means[label, numbers] = self.sums[label, numbers] / np.maximum(there[numbers], 0.5)
            filled = np.eye(len(there))
            filled[numbers, missing] = means[label, numbers]
            squares = filled @ self.squares[label] @ filled.T
            scatter = squares - count * np.outer(means[label], means[label])
            both = np.minimum(there[:, np.newaxis], there)
            neither = self.squares[label][np.ix_(missing, missing)]
            both[np.ix_(numbers, numbers)] = (
                there[numbers][:, np.newaxis] + there[numbers] - max(count, 1.0) + neither
            )
            scatters[label] = np.where(both >= 0.5, scatter * count / np.maximum(both, 0.5), 0.0)
        return means, scatters

    def packed(self) -> Floats:
        """Return all of it as one row per class: count, sum, and half of the second moments."""
        rows, columns = np.tril_indices(self.sums.shape[1])
        return np.column_stack([self.counts, self.sums, self.squares[:, rows, columns]])

    @classmethod
    def unpacked(cls, packed: NDArray[np.float64], dimensions: int) -> "Moments":
        """Return the moments from what `packed` returned."""
        size = 1 + dimensions + dimensions * (dimensions + 1) // 2
        if packed.ndim != 2 or packed.shape[1] != size:  # first: anybody may say how many there are
            raise InputError("not the moments of these columns", got=packed.shape)
        rows, columns = np.tril_indices(dimensions)
        moments = cls.zeros(len(packed), dimensions)
        moments.counts[:] = packed[:, 0]
        moments.sums[:] = packed[:, 1 : dimensions + 1]
        moments.squares[:, rows, columns] = packed[:, dimensions + 1 :]
        moments.squares[:, columns, rows] = packed[:, dimensions + 1 :]
        return moments


def class_covariances(counts: Floats, scatters: Floats) -> Floats:
    """Return the covariance of every class: classes x coordinates x coordinates.

    Parameters
    ----------
    counts : array
        How many samples every class has.
    scatters : array
        For every class, the sum of outer products about its mean.
    """
    if not scatters.shape[1]:  # a column that is always the same has no coordinate
        return scatters
    common = common_covariance(counts, scatters)
    root = np.linalg.cholesky(common)
    inverse = np.linalg.inv(root)
    covariances = np.empty_like(scatters)
    for label, count in enumerate(counts.tolist()):
        if count < 2:
            covariances[label] = common
            continue
        white = inverse @ (scatters[label] / (count - 1)) @ inverse.T
        weight = shrinkage(white, count)
        mixed = (1 - weight) * white + weight * np.eye(len(white))
        covariances[label] = root @ positive(mixed) @ root.T
    return covariances


def common_covariance(counts: Floats, scatters: Floats) -> Floats:
    """Return the covariance within classes, all together; few samples lean on no correlation."""
    scatter = scatters[counts > 0].sum(axis=0)
    freedom = max(float((counts - 1).clip(0).sum()), 1.0)
    variances = np.maximum(np.diag(scatter) / freedom, _LEAST_VARIANCE)
    spread = np.sqrt(variances)
    correlation = scatter / freedom / np.outer(spread, spread)
    np.fill_diagonal(correlation, 1.0)
    weight = shrinkage(correlation, freedom)
    mixed = (1 - weight) * correlation + weight * np.eye(len(spread))
    common: Floats = positive(mixed) * np.outer(spread, spread)
    return common


def shrinkage(covariance: Floats, samples: float) -> float:
    """Return the weight of the identity in a covariance that was found from some samples.

    >>> shrinkage(np.eye(3), 100)
    1.0
    """
    size = len(covariance)
    trace = float(np.trace(covariance))
    square = float((covariance**2).sum())
    above = (1 - 2 / size) * square + trace**2
    below = (samples + 1 - 2 / size) * (square - trace**2 / size)
    return 1.0 if below <= 0 else float(np.clip(above / below, 0.0, 1.0))


def positive(matrix: Floats) -> Floats:
    """Return a matrix with no eigenvalue below the least: sums may be rounded, or noisy."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    least = _LEAST_EIGENVALUE * values.max(initial=1.0)
    clipped: Floats = (vectors * np.maximum(values, least)) @ vectors.T
    return clipped


class _Levels:
    """How the level of one choice is drawn, given the choices before it.

    `white` has the whitened coordinates of those, for rows that are drawn for trial: they show with
    which scales every level is as frequent as in the class.
    """

    def __init__(self, choice: Choice, mean: Floats, root: Floats, white: Floats) -> None:
        at = choice.coordinates
        shares = np.concatenate([[1 - mean[at].sum()], mean[at]]).clip(0)
        self._choice, self._mean, self._shares = choice, mean[at], shares / shares.sum()
        self._before = np.ascontiguousarray(root[at, : choice.start])
        self._inverse = np.asarray(np.linalg.inv(root[at, at]), np.float64)
        self._scales = np.ones(choice.levels)
        _, chances = self._chances(white)
        present = self._shares > 0
        for _ in range(_ROUNDS):
            scaled = chances * self._scales[:, np.newaxis]
            frequencies = (scaled / scaled.sum(axis=0)).mean(axis=1)
            self._scales[present] *= self._shares[present] / frequencies[present]

    def _chances(self, white: Floats) -> tuple[Floats, Floats]:
        """Return the expected coordinates, and the chance of every level up to a factor.

        No chance is negative, and a level that the class lacks has none.
        """
        expected = self._mean[:, np.newaxis] + product(self._before, white[: self._choice.start])
        chances = np.concatenate([1 - expected.sum(axis=0, keepdims=True), expected])
        shares = self._shares[:, np.newaxis]
        chances = np.where(shares > 0, np.maximum(chances, _FLOOR * shares), 0.0)
        return expected, chances * self._scales[:, np.newaxis]

    def draw(self, white: Floats, chance: Floats) -> Ints:
        """Draw levels, and write their whitened coordinates after those of earlier choices."""
        expected, chances = self._chances(white)
        below = np.cumsum(chances, axis=0)
        level: Ints = (chance * below[-1] >= below[:-1]).sum(axis=0)
        apart = (np.arange(1, self._choice.levels)[:, np.newaxis] == level) - expected
        white[self._choice.coordinates] = product(self._inverse, apart)
        return level


class ClassDistribution:
    """Rows of one class: from uniform and standard normal numbers to levels and numbers."""

    def __init__(self, space: RowSpace, mean: Floats, covariance: Floats) -> None:
        self._first = space.first_number
        root = np.asarray(np.linalg.cholesky(covariance[: self._first, : self._first]), np.float64)
        self._choices: list[_Levels] = []
        white = np.zeros((self._first, _TRIED))
        seeds = np.arange(_TRIED, dtype=np.uint64)
        for index, choice in enumerate(space.choices):
            levels = _Levels(choice, mean, root, white)
            levels.draw(white, uniforms(seeds, index, 1)[0])
            self._choices.append(levels)
        across = covariance[self._first :, : self._first]
        weights = np.asarray(np.linalg.solve(root, across.T).T, np.float64)
        loadings, noise = factors(covariance[self._first :, self._first :] - weights @ weights.T)
        # Single precision is more than a sample needs.
        self._mean = mean[self._first :, np.newaxis].astype(np.float32)
        self._weights, self._factors = weights.astype(np.float32), loadings.astype(np.float32)
        self._noise = None if noise is None else noise[:, np.newaxis].astype(np.float32)

    def draw(self, chance: Floats, normal: Singles) -> tuple[Ints, Singles]:
        """Return the levels of all choices and the coordinates of all numbers, by column.

        Parameters
        ----------
        chance : array
            Uniform numbers, a row per choice and a column per sample.
        normal : array
            Standard normal numbers, `needed(numbers)` rows and a column per sample.
        """
        white = np.empty((self._first, chance.shape[1]))
        levels = np.empty(chance.shape, np.int64)
        for index, choice in enumerate(self._choices):
            levels[index] = choice.draw(white, chance[index])
        rank = self._factors.shape[1]
        numbers = self._mean + product(self._factors, normal[:rank])
        if self._first:
            numbers += product(self._weights, white.astype(np.float32))
        if self._noise is not None:
            numbers += self._noise * normal[rank:]
        return levels, numbers


def needed(numbers: int) -> int:
    """Return how many standard normal numbers a row takes."""
    return numbers if numbers <= FULL else RANK + numbers


def factors(covariance: Floats) -> tuple[Floats, Floats | None]:
    """Split a covariance into F F' and, if it is large, a diagonal: return F and its root."""
    size = len(covariance)
    spread = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    values, vectors = np.linalg.eigh(covariance / np.outer(spread, spread))
    kept = np.argsort(values)[::-1][: size if size <= FULL else RANK]
    loadings: Floats = spread[:, np.newaxis] * vectors[:, kept] * np.sqrt(values[kept].clip(0))
    if size <= FULL:
        return loadings, None
    left = np.diag(covariance) - (loadings**2).sum(axis=1)
    return loadings, np.sqrt(left.clip(0))


def product(matrix: NDArray[_Real], columns: NDArray[_Real]) -> NDArray[_Real]:
    """Multiply a matrix with every column; a column's result does not depend on the others.

    BLAS rounds differently for other numbers of columns.
    """
    products: NDArray[_Real] = np.einsum("rk,kn->rn", matrix, columns)
    return products


class Gaussian:
    """Draws rows of every class from moments in a space.

    Parameters
    ----------
    space : RowSpace
        Turns rows into vectors, and back.
    moments : Moments
        Of every class, in that space.
    classes : sequence of str
        The names of the classes.
    """

    least_batch = 8192  # rows are small: fewer at a time would be spent on overhead

    def __init__(self, space: RowSpace, moments: Moments, classes: Sequence[str]) -> None:
        if moments.sums.shape != (len(classes), space.dimensions):
            raise InputError(
                "moments of other classes or columns",
                got=moments.sums.shape,
                allowed=f"{len(classes)} classes in {space.dimensions} dimensions",
            )
        self.space, self.moments, self.classes = space, moments, tuple(classes)
        self.training_data = TrainingData("rows", int(moments.counts.sum()))

    @classmethod
    def fit(
        cls,
        rows: Array,
        labels: Ints,
        classes: Sequence[str],
        schema: Schema | None = None,
        indices: Ints | None = None,
    ) -> "Gaussian":
        """Fit it to rows and their labels, or to those at some `indices`.

        Parameters
        ----------
        rows : array of float32
            One row per sample: numbers, codes of categories, NaN for gaps.
        labels : array of int
            Their labels, from 0 on.
        classes : sequence of str
            The names of all classes.
        schema : Schema, optional
            What the columns hold; numbers, if it is not given.
        indices : array of int, optional
            Which rows to fit it to; all by default.
        """
        columns = numeric_schema(rows) if schema is None else schema
        space = RowSpace.fit(columns, rows, indices)
        return cls(space, Moments.of(space, rows, labels, len(classes), indices), classes)

    @property
    def schema(self) -> Schema:
        """What the columns hold."""
        return self.space.schema

    @cached_property
    def fingerprint(self) -> str:
        """Identify the moments, the space and the classes."""
        content = {
            "format": "gaussian/1",
            "classes": list(self.classes),
            "rows": self.moments.counts.tolist(),
            "space": self.space.to_dict(),
            "moments": self._moments_hash,
        }
        return f"gaussian-1-{content_hash(content)[:32]}"

    @cached_property
    def _moments_hash(self) -> str:
        return hashlib.sha256(_bytes(self.moments)).hexdigest()

    def sample(self, labels: Ints, seeds: Seeds) -> NDArray[np.float32]:
        """Return a row for every label and seed."""
        choices, numbers = self.space.choices, len(self.schema.numbers)
        chance = uniforms(seeds, 0, len(choices))
        normal = normals(seeds, len(choices), needed(numbers))
        levels = np.empty((len(choices), len(labels)), np.int64)
        values = np.empty((numbers, len(labels)), np.float32)
        for label in np.unique(labels).tolist():
            of_class = np.flatnonzero(labels == label)
            levels[:, of_class], values[:, of_class] = self._distribution(label).draw(
                np.ascontiguousarray(chance[:, of_class]), np.ascontiguousarray(normal[:, of_class])
            )
        return self.space.decode(levels, values)

    def _distribution(self, label: int) -> ClassDistribution:
        if not 0 <= label < len(self.classes) or self.moments.counts[label] <= 0:
            name = self.classes[label] if 0 <= label < len(self.classes) else label
            raise InputError(
                "gaussian was fitted to no row of this class",
                got=name,
                allowed=", ".join(self.known_classes()[:20]),
            )
        if label not in self._distributions:
            means, covariances = self._classes
            distribution = ClassDistribution(self.space, means[label], covariances[label])
            self._distributions[label] = distribution
        return self._distributions[label]

    def known_classes(self) -> list[str]:
        """Return the classes that it can make: those that it was fitted to a row of."""
        return [self.classes[c] for c in np.flatnonzero(self.moments.counts > 0).tolist()]

    @cached_property
    def _distributions(self) -> dict[int, ClassDistribution]:
        return {}

    @cached_property
    def _classes(self) -> tuple[Floats, Floats]:
        """The mean and covariance of every class."""
        means, scatters = self.moments.complete(self.space)
        return means, class_covariances(self.moments.counts, scatters)

    @property
    def card(self) -> GeneratorCard:
        """What it is: all but the moments."""
        return GeneratorCard(
            "gaussian",
            self.classes,
            (len(self.schema),),
            {"space": self.space.to_dict(), "moments": self._moments_hash},
            counts=tuple(self.moments.counts.tolist()),
            training=TrainingRecord(samples=int(self.moments.counts.sum())),
        )

    def save(self, folder: Path | str) -> None:
        """Write a folder that `load` opens; the card is written last."""
        make_folder(Path(folder))
        with atomic_write(Path(folder) / _MOMENTS) as temporary:
            temporary.write_bytes(_bytes(self.moments))
        self.card.save(Path(folder))

    @classmethod
    def load(cls, folder: Path | str) -> "Gaussian":
        """Open a folder that `save` wrote."""
        card, path = GeneratorCard.load(folder, "gaussian"), Path(folder) / _MOMENTS
        check_regular(path, _LARGEST)
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != card.settings["moments"]:
                raise ValueError("other moments")
            packed = _read_array(content)
            if not np.isfinite(packed).all():
                raise ValueError("not numbers")
            space = RowSpace.from_dict(card.settings["space"])
        except OSError as error:
            raise unreadable(path, error) from None
        except (ValueError, KeyError, TypeError, EOFError, MemoryError) as error:
            raise InputError(f"{folder} is not a generator of rows: {error}") from None
        return cls(space, Moments.unpacked(packed, space.dimensions), card.classes)


def _read_array(content: bytes) -> Floats:
    """Read an array that `np.save` wrote, and no more of one than its bytes hold."""
    head = io.BytesIO(content)
    if np.lib.format.read_magic(head) != (1, 0):
        raise ValueError("another format")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(head)
    if dtype != np.float64 or fortran_order:
        raise ValueError("not numbers")
    return np.frombuffer(content, np.float64, offset=head.tell()).reshape(shape)


@dataclass(frozen=True)
class LocalGaussian:
    """Rows from the mean and covariance that their class has at the client."""

    lacks: ClassVar[str] = "a sample to learn from"
    fingerprint: ClassVar[str] = "local-gaussian-1"

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known whose rows to learn from."""
        raise needs_local_samples("local-gaussian")

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that is of classes which the clients have."""
        return copyable(samples, n)

    def sample_from(self, local: LocalSamples, labels: Ints, seeds: Seeds) -> Array:
        """Return one row per label, as the client's own rows of that class are distributed."""
        rows, local_labels = local_rows(local, "local-gaussian"), np.asarray(local.labels)
        classes = [str(label) for label in range(int(max(local_labels.max(), labels.max())) + 1)]
        return Gaussian.fit(rows, local_labels, classes, local.schema).sample(labels, seeds)


def gaussian_of_data(
    model: str = "",
    data: str = "",
    folder: str | None = None,
    pool_per_class: int = 0,
    split: str = "official",
    seed: int = 42,
    table: TableOptions = INFER_ALL,
    label: str = "",
    site: str = "",
    validation: bool = False,
) -> Gaussian:
    """Open a folder of a fitted generator, or fit one to the training rows of a data set.

    What a run holds out for `pool`, and what it is tested on, is left out. `label` and `site` name
    columns where no run does.
    """
    if model:
        return Gaussian.load(model)
    if not data:
        raise InputError("gaussian of which data?", fix="write gaussian(model=FOLDER)")
    if split != "official":
        raise InputError(
            "gaussian cannot know which rows this split tests on",
            got=split,
            allowed="the official split, or gaussian(model=FOLDER)",
        )
    table = replace(table, label=label or table.label, site=site or table.site)
    return gaussian_of_dataset(open_dataset(data, folder, table), pool_per_class, seed, validation)


def gaussian_of_dataset(
    data: Dataset, pool_per_class: int = 0, seed: int = 42, validation: bool = False
) -> Gaussian:
    """Fit a generator to the training rows of a data set, without those that are held out."""
    if data.kind != "table":
        raise InputError("gaussian is for tables", got=data.kind)
    pool = pool_indices(data, pool_per_class, seed)
    indices = np.setdiff1d(np.arange(data.train_size), pool, assume_unique=True)
    if validation:
        indices = np.setdiff1d(indices, validation_indices(data, pool), assume_unique=True)
    labels = np.asarray(data.labels)
    gaussian = Gaussian.fit(data.samples, labels, data.classes, data.schema, indices)
    gaussian.training_data = TrainingData("training rows", len(indices), data.fingerprint, indices)
    return gaussian


def numeric_schema(rows: Array) -> Schema:
    """Describe columns of numbers without names; they are whole if all their values are."""
    if rows.ndim != 2 or not rows.shape[1]:
        raise InputError("not rows of a table", got=rows.shape, allowed="rows x columns")
    columns = []
    for number, column in enumerate(np.asarray(rows).T):
        if numbers_name_rows("", column):
            raise InputError(
                "a column numbers the rows: samples must not carry the numbers of real ones",
                got=f"column {number}",
                fix="leave it out, or say with schema= what it is",
            )
        columns.append(Column(str(number), whole=all_whole(column[~np.isnan(column)])))
    return Schema(tuple(columns))


def _bytes(moments: Moments) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, moments.packed(), allow_pickle=False)
    return buffer.getvalue()
