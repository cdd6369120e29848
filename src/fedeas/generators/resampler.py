"""Generators that work on a client's own samples: the protocol, `copies` and `smote`.

They run where those samples are, in memory, whenever they are needed: nothing is written to a
cache. What they can make depends on what a client has, so a plan is cut to that first.

A copy costs nothing and has nothing new in it: a generator is worth its cost only if it does better
than `copies`. A row of `smote` lies between two rows of its class, so a class needs two.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import integer
from fedeas.data.dataset import Dataset
from fedeas.data.kinds import Array
from fedeas.data.schema import Schema
from fedeas.errors import InputError, MissingExtraError
from fedeas.planning.policies import copyable

Ints = NDArray[np.int64]
Seeds = NDArray[np.uint64]
_LARGEST_SHIFT = 64
_FEWEST = 2  # rows of a class that `smote` draws between


class LocalSamples(Protocol):
    """A client's real samples."""

    @property
    def labels(self) -> Ints:
        """The label of every sample."""
        ...

    @property
    def schema(self) -> Schema | None:
        """What the columns of a table hold; None for anything else."""
        ...

    def take(self, places: Ints) -> tuple[Array, Ints]:
        """Copy the samples and labels at these indices."""
        ...


@dataclass(frozen=True, eq=False)
class LocalArrays:
    """A client's real samples in memory."""

    samples: Array
    labels: Ints
    schema: Schema | None = None

    def take(self, places: Ints) -> tuple[Array, Ints]:
        """Copy the samples and labels at these indices."""
        return self.samples[places], self.labels[places]


@runtime_checkable
class Resampler(Protocol):
    """A generator that needs the client's own samples: any class with these members is one."""

    lacks: str  # what a class lacks whose samples cannot be made

    @property
    def fingerprint(self) -> str:
        """Identify the generator: another fingerprint means other samples."""
        ...

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that it can make, for clients with label counts n."""
        ...

    def sample_from(self, local: LocalSamples, labels: Ints, seeds: Seeds) -> Array:
        """Make one sample for every label and seed from the client's own samples."""
        ...

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known whose samples to use."""
        ...


@dataclass(frozen=True, eq=False)
class BoundResampler:
    """A generator that makes samples of one client's own samples."""

    inner: Resampler
    local: LocalSamples
    classes: tuple[str, ...]

    @classmethod
    def of_training(cls, inner: Resampler, data: Dataset) -> "BoundResampler":
        """Give it all training samples of a data set, as if one client had them."""
        labels = np.asarray(data.train_labels)
        return cls(
            inner, LocalArrays(data.samples[: data.train_size], labels, data.schema), data.classes
        )

    @property
    def fingerprint(self) -> str:
        """Identify the generator."""
        return self.inner.fingerprint

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Make one sample for every label and seed."""
        return self.inner.sample_from(self.local, labels, seeds)


def needs_local_samples(name: str) -> InputError:
    """Return the error of a generator that is asked to draw without a client's samples."""
    return InputError(
        f"{name} works on a client's own samples, which are not here",
        allowed=f"{name} in `fedeas run`, at a deployed site, or in `augment` of NumPy arrays and "
        "frames",
    )


def local_rows(local: LocalSamples, name: str) -> Array:
    """Return all rows of a client's table; refuse samples that are not rows."""
    rows, _ = local.take(np.arange(len(local.labels)))
    if rows.ndim != 2 or rows.dtype.kind != "f":
        raise InputError(f"{name} is for tables", got=f"samples of {rows.shape[1:]}")
    return rows


@dataclass(frozen=True)
class Copies:
    """Copies of images, moved by up to `shift` pixels and mirrored half of the time.

    What leaves the image is filled with its edge. Samples that are not images are copied as they
    are.

    Parameters
    ----------
    shift : int
        The most pixels that an image is moved by, in both directions.
    flip : bool
        Whether images are mirrored; false where left and right matter, as in digits or X-rays.

    """

    lacks: ClassVar[str] = "a sample to copy"
    shift: int = 2
    flip: bool = True

    def __post_init__(self) -> None:
        integer(self.shift, "not a shift", f"0 to {_LARGEST_SHIFT}", low=0, high=_LARGEST_SHIFT)
        if not isinstance(self.flip, bool):
            raise InputError("flip is true or false", got=self.flip)

    @property
    def fingerprint(self) -> str:
        """What a copy depends on, besides the client's own samples."""
        return f"copies-1-shift{self.shift}{'-flip' if self.flip else ''}"

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known whose samples to copy."""
        raise needs_local_samples("copies")

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that is of classes which the clients have."""
        return copyable(samples, n)

    def sample_from(self, local: LocalSamples, labels: Ints, seeds: Seeds) -> Array:
        """Return one copy per label, of the client's own samples of that class."""
        known = np.asarray(local.labels)
        indices = {label: np.flatnonzero(known == label) for label in np.unique(labels).tolist()}
        if missing := [label for label, rows in indices.items() if not rows.size]:
            raise InputError("the client has nothing to copy", got=f"class {missing[0]}")
        chosen = np.empty(len(labels), np.int64)
        moves = np.empty((len(labels), 3), np.int64)
        for at, (label, seed) in enumerate(zip(labels.tolist(), seeds.tolist(), strict=True)):
            rng = np.random.default_rng(seed)
            chosen[at] = rng.choice(indices[label])
            moves[at] = *rng.integers(-self.shift, self.shift + 1, 2), rng.integers(1 + self.flip)
        samples, _ = local.take(chosen)
        if samples.dtype == np.uint8 and samples.ndim > 2:
            for sample, (down, right, mirrored) in zip(samples, moves.tolist(), strict=True):
                sample[...] = _moved(sample, down, right, bool(mirrored))
        return samples


def _moved(image: Array, down: int, right: int, mirrored: bool) -> Array:
    height, width = image.shape[:2]
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - right, 0, width - 1)
    moved: Array = image[rows][:, columns[::-1] if mirrored else columns]
    return moved


@dataclass(frozen=True)
class Smote:
    """SMOTE, or SMOTE-NC where there are categories, by imbalanced-learn.

    Columns are standardised for distances. Gaps are filled with the class's median or most frequent
    category; a new row then has the gaps of one of the client's rows of that class.

    Parameters
    ----------
    neighbors : int
        How many nearest rows of its class a row is joined with; fewer where there are not as many.
    """

    lacks: ClassVar[str] = "two samples"
    neighbors: int = 5

    def __post_init__(self) -> None:
        integer(self.neighbors, "not a number of neighbours", "1 and more", low=1)

    @property
    def fingerprint(self) -> str:
        """What a row depends on, besides the client's own rows."""
        return f"smote-1-smote-{self.neighbors}"

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known between whose rows."""
        raise needs_local_samples("smote")

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that is of classes with two samples or more."""
        return np.where(n >= _FEWEST, samples, 0)

    def sample_from(self, local: LocalSamples, labels: Ints, seeds: Seeds) -> Array:
        """Return one row per label, between two of the client's rows of that class."""
        rows, known = local_rows(local, "smote"), np.asarray(local.labels)
        drawn = np.empty((len(labels), rows.shape[1]), rows.dtype)
        for label in np.unique(labels).tolist():
            of_class, wanted = known == label, labels == label
            if of_class.sum() < _FEWEST:
                raise InputError(
                    "smote needs two samples of a class", got=f"{of_class.sum()} of class {label}"
                )
            state = hashlib.sha256(np.ascontiguousarray(seeds[wanted]).tobytes()).digest()
            rng = np.random.default_rng(int.from_bytes(state[:16], "little"))
            drawn[wanted] = self._draw(rows, of_class, int(wanted.sum()), local.schema, rng)
        return drawn

    def _draw(
        self,
        rows: Array,
        of_class: NDArray[np.bool_],
        wanted: int,
        schema: Schema | None,
        rng: np.random.Generator,
    ) -> Array:
        categorical = np.empty(0, np.intp) if schema is None else schema.categorical
        filled = _fill_gaps(rows, of_class, categorical)
        scale = np.maximum(filled.std(axis=0, dtype=np.float64), 1e-12)
        scale[categorical] = 1.0
        points = (filled / scale)[of_class]
        others = (filled / scale)[~of_class]
        if not len(others):  # imbalanced-learn takes two classes, and SMOTE looks at one of them
            others = np.concatenate([points, points])
        smote = _imbalanced_learn(categorical, rows.shape[1])(
            sampling_strategy={1: len(points) + wanted},
            random_state=int(rng.integers(2**31)),
            k_neighbors=min(self.neighbors, len(points) - 1),
        )
        both = np.concatenate([points, others])
        resampled, _ = smote.fit_resample(both, np.repeat([1, 0], [len(points), len(others)]))
        drawn: Array = np.asarray(resampled)[len(both) :] * scale
        if schema is not None:
            drawn[:, schema.whole] = np.rint(drawn[:, schema.whole])
        drawn = drawn.astype(rows.dtype)
        gaps = np.isnan(rows[of_class])
        drawn[gaps[rng.integers(len(gaps), size=wanted)]] = np.nan
        return drawn


def _fill_gaps(
    rows: Array, of_class: NDArray[np.bool_], categorical: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Fill gaps with the class's median or most frequent category, 0 where it has none."""
    filled = rows.astype(np.float64)
    for column in np.flatnonzero(np.isnan(rows).any(axis=0)).tolist():
        values = rows[of_class & ~np.isnan(rows[:, column]), column]
        filler = 0.0
        if values.size and column in categorical:
            filler = float(np.bincount(values.astype(np.int64)).argmax())
        elif values.size:
            filler = float(np.median(values))
        filled[np.isnan(rows[:, column]), column] = filler
    return filled


def _imbalanced_learn(categorical: NDArray[np.intp], columns: int) -> Callable[..., Any]:
    """Return the kind of SMOTE that suits the columns."""
    try:
        from imblearn.over_sampling import SMOTE, SMOTEN, SMOTENC
    except ModuleNotFoundError:
        raise MissingExtraError("the generator 'smote'", "sampler") from None
    maker: Callable[..., Any] = SMOTE
    if categorical.size == columns:
        maker = SMOTEN
    elif categorical.size:
        maker = partial(SMOTENC, categorical_features=categorical.tolist())
    return maker
