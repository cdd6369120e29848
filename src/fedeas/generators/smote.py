"""`smote` and its relatives, through imbalanced-learn: between a client's own rows of a class.

A row lies between two rows of its class, so a class needs two. Of classes that a client lacks, or
has one row of, there is nothing to make.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.data.kinds import Array
from fedeas.data.schema import Schema
from fedeas.errors import InputError, MissingExtraError
from fedeas.generators.own_samples import OwnSamples, places_by_class, refuse_without_own
from fedeas.scalars import integer

Ints = NDArray[np.int64]
Seeds = NDArray[np.uint64]
VARIANTS = ("smote", "borderline", "svm", "adasyn")
_FEWEST = 2  # rows of a class


@dataclass(frozen=True)
class Smote:
    """SMOTE, or SMOTE-NC where there are categories; columns are standardised for distances.

    Gaps are filled with the class's median or most frequent category; a new row then has the gaps
    of one of the client's rows of that class.

    Parameters
    ----------
    variant : str
        smote, borderline, svm or adasyn; the last three are for columns of numbers. What they do
        not make, for lack of rows of other classes, SMOTE does.
    neighbors : int
        How many nearest rows of its class a row is joined with; fewer where there are not as many.
    """

    lacks: ClassVar[str] = "two samples"
    variant: str = "smote"
    neighbors: int = 5

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise InputError("unknown variant", got=self.variant, allowed=", ".join(VARIANTS))
        integer(self.neighbors, "not a number of neighbours", "1 and more", low=1)

    @property
    def fingerprint(self) -> str:
        """What a row depends on, besides the client's own rows."""
        return f"smote-1-{self.variant}-{self.neighbors}"

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known between whose rows."""
        raise refuse_without_own("smote")

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that is of classes with two samples or more."""
        return np.where(n >= _FEWEST, samples, 0)

    def sample_from(self, own: OwnSamples, labels: Ints, seeds: Seeds) -> Array:
        """Return one row per label, between two of the client's rows of that class."""
        held = np.asarray(own.labels)
        rows, _ = own.take(np.arange(len(held)))
        if rows.ndim != 2 or rows.dtype.kind != "f":
            raise InputError(
                "smote is for tables", got=f"samples of {rows.shape[1:]}", allowed="rows of numbers"
            )
        schema = own.schema
        if schema is not None and schema.categorical.size and self.variant != "smote":
            raise InputError(
                f"the variant {self.variant} is for numbers alone",
                got=f"column {schema.names[schema.categorical[0]]!r} of categories",
                allowed="smote",
            )
        made = np.empty((len(labels), rows.shape[1]), rows.dtype)
        for label, places in places_by_class(own, labels).items():
            if places.size < _FEWEST:
                raise InputError(
                    "smote needs two samples of a class", got=f"{places.size} of class {label}"
                )
            wanted = labels == label
            state = hashlib.sha256(np.ascontiguousarray(seeds[wanted]).tobytes()).digest()
            rng = np.random.default_rng(int.from_bytes(state[:16], "little"))
            made[wanted] = self._of_class(rows, held, label, int(wanted.sum()), schema, rng)
        return made

    def _of_class(
        self, rows: Array, held: Ints, label: int, wanted: int, schema: Schema | None,
        rng: np.random.Generator,
    ) -> Array:  # fmt: skip
        own = rows[held == label]
        categorical = np.empty(0, np.intp) if schema is None else schema.categorical
        filled = _without_gaps(rows, own, categorical)
        scale = np.maximum(filled.std(axis=0, dtype=np.float64), 1e-12)
        scale[categorical] = 1.0
        scaled = filled / scale
        others = scaled[held != label]
        made = np.empty((0, rows.shape[1]))
        for variant in dict.fromkeys((self.variant, "smote")):
            if len(made) < wanted and (variant == "smote" or len(others)):
                more = self._resampled(
                    variant, scaled[held == label], others, wanted - len(made), categorical, rng
                )
                made = np.concatenate([made, more[: wanted - len(made)]])
        made *= scale
        if schema is not None:
            made[:, schema.whole] = np.rint(made[:, schema.whole])
        made = made.astype(rows.dtype)
        made[np.isnan(own[rng.integers(len(own), size=wanted)])] = np.nan
        return made

    def _resampled(
        self, variant: str, own: Array, others: Array, wanted: int, categorical: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> Array:  # fmt: skip
        """Return up to `wanted` rows that imbalanced-learn makes."""
        library = _library()
        if not len(others):  # imbalanced-learn takes two classes, and SMOTE looks at one of them
            others = np.concatenate([own, own])
        rows = np.concatenate([own, others])
        marks = np.repeat([1, 0], [len(own), len(others)])
        near = min(self.neighbors, len(own) - 1)
        settings: dict[str, Any] = {
            "sampling_strategy": {1: len(own) + wanted},
            "random_state": int(rng.integers(2**31)),
        }
        settings["n_neighbors" if variant == "adasyn" else "k_neighbors"] = near
        if variant == "smote" and categorical.size == rows.shape[1]:
            maker = library.SMOTEN(**settings)
        elif variant == "smote" and categorical.size:
            maker = library.SMOTENC(categorical_features=categorical.tolist(), **settings)
        else:
            names = {"smote": "SMOTE", "borderline": "BorderlineSMOTE", "svm": "SVMSMOTE"}
            maker = getattr(library, names.get(variant, "ADASYN"))(**settings)
        try:
            resampled, _ = maker.fit_resample(rows, marks)
        except (ValueError, RuntimeError):
            if variant == "smote":
                raise
            return rows[:0]  # of few rows, or far from other classes: SMOTE makes them
        return np.asarray(resampled)[len(rows) :]


def _without_gaps(rows: Array, own: Array, categorical: NDArray[np.intp]) -> NDArray[np.float64]:
    """Fill gaps with the class's median or most frequent category, 0 where it has none."""
    filled = rows.astype(np.float64)
    for column in np.flatnonzero(np.isnan(rows).any(axis=0)).tolist():
        present = own[~np.isnan(own[:, column]), column]
        if not present.size:
            value = 0.0
        elif column in categorical:
            values, counts = np.unique(present, return_counts=True)
            value = float(values[counts.argmax()])
        else:
            value = float(np.median(present))
        filled[np.isnan(filled[:, column]), column] = value
    return filled


def _library() -> Any:
    try:
        import imblearn.over_sampling
    except ModuleNotFoundError:
        raise MissingExtraError("the generator 'smote'", "imbalanced") from None
    return imblearn.over_sampling
