"""`gaussian`: rows of a table from the mean and covariance of their class.

It is fitted by counting: how many rows a class has, their sum and their second moments, in a space
in which numbers are normal and categories one-hot. These are sums over rows, so clients can add
theirs up. It can make any class of which any client has a row.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import names
from fedeas.data import ALL_FOUND, Dataset, TableOptions, load_data
from fedeas.data.identifiers import numbers_name_rows
from fedeas.data.kinds import Array
from fedeas.data.protocol import held_out
from fedeas.data.schema import Column, Schema, all_whole
from fedeas.errors import InputError
from fedeas.files import (
    atomic_write,
    check_regular,
    content_hash,
    make_folder,
    read_json,
    unreadable,
    write_json,
)
from fedeas.generators.class_distribution import ClassDistribution, needed
from fedeas.generators.covariance import class_covariances
from fedeas.generators.moments import Moments
from fedeas.generators.quantiles import Floats
from fedeas.generators.row_space import RowSpace
from fedeas.generators.streams import Seeds, normals, uniforms
from fedeas.generators.training_data import TrainingData

Ints = NDArray[np.int64]
_FORMAT = "gaussian/1"
_CARD, _MOMENTS = "generator.json", "moments.npy"
_LARGEST = 1 << 31  # bytes of a file of moments


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
        places: Ints | None = None,
    ) -> "Gaussian":
        """Fit it to rows and their labels, or to those at some `places`.

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
        places : array of int, optional
            Which rows to fit it to; all by default.
        """
        known = numeric_schema(rows) if schema is None else schema
        space = RowSpace.fit(known, rows, places)
        return cls(space, Moments.of(space, rows, labels, len(classes), places), classes)

    @property
    def schema(self) -> Schema:
        """What the columns hold."""
        return self.space.schema

    @cached_property
    def fingerprint(self) -> str:
        """Identify the moments, the space and the classes."""
        return f"gaussian-1-{content_hash(self._card())[:32]}"

    def sample(self, labels: Ints, seeds: Seeds) -> NDArray[np.float32]:
        """Return a row for every label and seed."""
        choices, numbers = self.space.choices, len(self.schema.numbers)
        chance = uniforms(seeds, 0, len(choices))
        normal = normals(seeds, len(choices), needed(numbers))
        levels = np.empty((len(choices), len(labels)), np.int64)
        values = np.empty((numbers, len(labels)), np.float32)
        for label in np.unique(labels).tolist():
            own = np.flatnonzero(labels == label)
            levels[:, own], values[:, own] = self._distribution(label).draw(
                np.ascontiguousarray(chance[:, own]), np.ascontiguousarray(normal[:, own])
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
            made = ClassDistribution(self.space, means[label], covariances[label])
            self._distributions[label] = made
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

    def save(self, folder: Path | str) -> None:
        """Write a folder that `load` opens; the card is written last."""
        make_folder(Path(folder))
        with atomic_write(Path(folder) / _MOMENTS) as temporary:
            temporary.write_bytes(_bytes(self.moments))
        write_json(Path(folder) / _CARD, self._card())

    @classmethod
    def load(cls, folder: Path | str) -> "Gaussian":
        """Open a folder that `save` wrote."""
        card, path = read_json(Path(folder) / _CARD), Path(folder) / _MOMENTS
        if not isinstance(card, dict) or card.get("format") != _FORMAT:
            raise InputError(f"{folder} is not a generator of rows", allowed=_FORMAT)
        check_regular(path, _LARGEST)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        if hashlib.sha256(content).hexdigest() != card.get("moments"):
            raise InputError(f"{path} is damaged")
        try:
            packed = np.load(io.BytesIO(content), allow_pickle=False)
            if not isinstance(packed, np.ndarray) or not np.isfinite(packed).all():
                raise ValueError("not numbers")
            classes = tuple(str(name) for name in card["classes"])
            names(classes, len(classes), "class")
            space = RowSpace.from_dict(card["space"])
        except (ValueError, KeyError, TypeError, EOFError) as error:
            raise InputError(f"{folder} is not a generator of rows: {error}") from None
        return cls(space, Moments.unpacked(packed, space.dimensions), classes)

    def _card(self) -> dict[str, Any]:
        """Return all that it is, as plain values of JSON."""
        held: Mapping[str, Any] = {
            "format": _FORMAT,
            "classes": list(self.classes),
            "rows": self.moments.counts.tolist(),
            "space": self.space.to_dict(),
            "moments": hashlib.sha256(_bytes(self.moments)).hexdigest(),
        }
        return dict(held)


def gaussian_of_data(
    model: str = "",
    data: str = "",
    folder: str | None = None,
    hold_out: int = 0,
    protocol: str = "clean",
    seed: int = 42,
    table: TableOptions = ALL_FOUND,
    label: str = "",
    site: str = "",
) -> Gaussian:
    """Open a folder of a fitted generator, or fit one to the training rows of a data set.

    What a run holds out for `pool`, and what it is tested on, is left out. `label` and `site` name
    columns where no run does.
    """
    if model:
        return Gaussian.load(model)
    if not data:
        raise InputError("gaussian of which data?", fix="write gaussian(model=FOLDER)")
    if protocol != "clean":
        raise InputError(
            "gaussian cannot know which rows this protocol tests on",
            got=protocol,
            allowed="the protocol clean, or gaussian(model=FOLDER)",
        )
    table = replace(table, label=label or table.label, site=site or table.site)
    return gaussian_of_dataset(load_data(data, folder, table), hold_out, seed)


def gaussian_of_dataset(data: Dataset, hold_out: int = 0, seed: int = 42) -> Gaussian:
    """Fit a generator to the training rows of a data set, without those that are held out."""
    if data.kind != "table":
        raise InputError("gaussian is for tables", got=data.kind)
    held = held_out(data, hold_out, seed, "clean")
    places = np.setdiff1d(np.arange(data.train_size), held, assume_unique=True)
    labels = np.asarray(data.labels)
    made = Gaussian.fit(data.samples, labels, data.classes, data.schema, places)
    made.training_data = TrainingData("training rows", len(places), data.fingerprint, places)
    return made


def numeric_schema(rows: Array) -> Schema:
    """Describe columns of numbers without names; they are whole if all their values are."""
    if rows.ndim != 2 or not rows.shape[1]:
        raise InputError("not rows of a table", got=rows.shape, allowed="rows x columns")
    found = []
    for number, column in enumerate(np.asarray(rows).T):
        if numbers_name_rows("", column):
            raise InputError(
                "a column numbers the rows: samples must not carry the numbers of real ones",
                got=f"column {number}",
                fix="leave it out, or say with schema= what it is",
            )
        found.append(Column(str(number), whole=all_whole(column[~np.isnan(column)])))
    return Schema(tuple(found))


def _bytes(moments: Moments) -> bytes:
    made = io.BytesIO()
    np.save(made, moments.packed(), allow_pickle=False)
    return made.getvalue()
