"""`Dataset`: samples and labels as memory-mapped arrays, written once and checksummed."""

import json
import math
import os
import secrets
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import check_regular, content_hash, file_hash, unwritable
from fedeas.counts.label_set_files import LabelSets, label_sets_of
from fedeas.data.kinds import Array, find_kind
from fedeas.data.schema import Schema
from fedeas.errors import FileAccessError, InputError

_FORMAT = "samples/2"
_FILES = ("samples.npy", "labels.npy")
_SITES = "sites.npy"
_WIDTH = 60  # characters of a list of categories
_MOST_COLUMNS = 60  # columns that are listed


@dataclass(frozen=True, eq=False)
class Sites:
    """Where samples are from: a name per site, and a site per sample."""

    column: str
    names: tuple[str, ...]
    codes: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Samples of one kind, shape and dtype, and their labels; those for training first.

    The arrays are memory-mapped: all processes and clients share one copy.
    """

    samples: Array
    labels: NDArray[np.int64]
    name: str
    classes: tuple[str, ...]
    train_size: int
    fingerprint: str
    test_origin: str = ""  # in words: where the test samples come from
    kind: str = "image"
    schema: Schema | None = None  # the columns of a table
    sites: "Sites | None" = None  # where every sample is from, if a column says so
    notes: tuple[str, ...] = ()  # what a user should know about how it was read

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """Open a folder that `write` made; cheap, since only the headers of files are read."""
        try:
            body = _read_head(folder)
            samples, labels = (_map(folder / name) for name in _FILES)
            find_kind(body["kind"]).check(samples.shape[1:], samples.dtype)
            if list(samples.shape) != body["shape"] or labels.shape != samples.shape[:1]:
                raise ValueError("arrays of other sizes")
            if labels.dtype != np.int64:
                raise ValueError("labels that are not whole numbers")
            schema = Schema.from_list(body["schema"]) if "schema" in body else None
            if schema is not None and samples.shape[1:] != (len(schema),):
                raise ValueError("rows that its schema does not describe")
            sites = None
            if "sites" in body:
                about, codes = body["sites"], _map(folder / _SITES)
                if codes.shape != labels.shape or codes.dtype != np.int64 or not about["names"]:
                    raise ValueError("sites that do not match the samples")
                sites = Sites(str(about["column"]), tuple(map(str, about["names"])), codes)
        except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
            raise InputError(f"{folder} is not a complete data set: {error}") from None
        return cls(
            samples,
            labels,
            body["name"],
            tuple(body["classes"]),
            body["train_size"],
            _fingerprint(body),
            str(body["test_origin"]),
            body["kind"],
            schema,
            sites,
            tuple(map(str, body.get("notes", ()))),
        )

    @classmethod
    def write(
        cls,
        folder: Path,
        name: str,
        classes: tuple[str, ...],
        sizes: tuple[int, int],
        batches: Iterator[tuple[Array, NDArray[np.int64]]],
        test_origin: str = "",
        kind: str = "image",
        schema: Schema | None = None,
        sites: Sites | None = None,
        notes: Sequence[str] = (),
    ) -> "Dataset":
        """Write a data set and open it.

        The folder appears whole or not at all; when two processes write the same one, one wins.

        Parameters
        ----------
        folder : Path
            Folder to create; must not exist.
        name, classes : str, tuple of str
            Its name and its classes.
        sizes : tuple of int
            How many training and how many test samples there are in all.
        batches : iterator of (samples, labels)
            The samples, those for training first.
        test_origin : str
            Where the test samples come from, in words.
        kind : str
            What a sample is: image, table.
        schema : Schema, optional
            The columns of a table.
        sites : Sites, optional
            The site of every sample, in the order of the samples.
        notes : sequence of str
            What a user should know about how the data set was read.
        """
        temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        try:
            temporary.mkdir(parents=True)
            body = _fill(temporary, sum(sizes), len(classes), batches, kind)
            body |= {"name": name, "classes": list(classes), "train_size": sizes[0]}
            body |= {"test_origin": test_origin, "kind": kind}
            if schema is not None:
                body["schema"] = schema.to_list()
            if sites is not None:
                np.save(temporary / _SITES, sites.codes)
                body["sites"] = {"column": sites.column, "names": list(sites.names)}
                body["sha256"][_SITES] = file_hash(temporary / _SITES)
            if notes:
                body["notes"] = list(notes)
            head = {"sha256": content_hash(body), "body": body}
            (temporary / "meta.json").write_text(json.dumps(head, indent=1), encoding="utf-8")
            with suppress(OSError):  # another process was first: its folder serves as well
                temporary.rename(folder)
        except FileAccessError:  # of an image that cannot be read
            raise
        except OSError as error:
            raise unwritable(folder, error) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return cls.open(folder)

    @property
    def train_labels(self) -> NDArray[np.int64]:
        """The labels of the training samples."""
        return self.labels[: self.train_size]

    @cached_property
    def label_sets(self) -> LabelSets | None:
        """The labels of every class, where classes are label sets such as 'flu|cough'."""
        return label_sets_of(self.classes)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.samples.shape[1:]))
        test = len(self.labels) - self.train_size
        what = f"{self.kind}s of {size}" if self.kind != "table" else f"rows of {size} columns"
        return (
            f"Dataset({self.name}: {self.train_size:,} training and {test:,} test {what}, "
            f"{len(self.classes)} classes)"
        )


def _fill(
    folder: Path,
    total: int,
    classes: int,
    batches: Iterator[tuple[Array, NDArray[np.int64]]],
    kind: str,
) -> dict[str, Any]:
    """Write the arrays batch by batch and return what describes them.

    The samples are written, not mapped: on a full disk, writing to a map kills the process.
    """
    labels = np.empty(total, np.int64)
    form: tuple[tuple[int, ...], np.dtype[Any]] | None = None
    done = 0
    with (folder / _FILES[0]).open("wb") as file:
        for samples, batch_labels in batches:
            if form is None:
                form = samples.shape[1:], samples.dtype
                find_kind(kind).check(*form)
                needed = total * math.prod(form[0]) * form[1].itemsize
                if needed > (free := shutil.disk_usage(folder).free):  # not after an hour
                    raise InputError(
                        f"the data set takes {needed:,} bytes, and {folder.parent} has {free:,}",
                        fix="free some space, or set FEDEAS_STORE to a folder on another disk",
                    )
                header = {"descr": form[1].str, "fortran_order": False, "shape": (total, *form[0])}
                np.lib.format.write_array_header_1_0(file, header)
            done += len(samples)
            if (samples.shape[1:], samples.dtype) != form or done > total:
                raise InputError(
                    "samples of different shapes", got=samples.shape[1:], allowed=str(form[0])
                )
            low, high = int(batch_labels.min()), int(batch_labels.max())
            if low < 0 or high >= classes:
                raise InputError(
                    "label out of range",
                    got=low if low < 0 else high,
                    allowed=f"0 to {classes - 1}",
                )
            file.write(np.ascontiguousarray(samples).data)
            labels[done - len(samples) : done] = batch_labels
        file.flush()
        os.fsync(file.fileno())
    if form is None or done != total:
        raise InputError("samples are missing", got=done, allowed=f"{total} of them")
    np.save(folder / _FILES[1], labels)
    return {
        "format": _FORMAT,
        "shape": [total, *form[0]],
        "sha256": {f: file_hash(folder / f) for f in _FILES},
    }


def _read_head(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    check_regular(path)
    head = json.loads(path.read_text(encoding="utf-8"))
    body: dict[str, Any] = head["body"]
    if head["sha256"] != content_hash(body) or body["format"] != _FORMAT:
        raise ValueError("unexpected metadata")
    if not 0 <= body["train_size"] <= body["shape"][0]:
        raise ValueError("more training samples than samples")
    return body


def _map(path: Path) -> NDArray[Any]:
    check_regular(path)
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("an archive instead of an array")
    return array


def _fingerprint(body: dict[str, Any]) -> str:
    """Return the fingerprint of a data set's content, with the file names of the first format."""
    samples, labels = (body["sha256"][name] for name in _FILES)
    content = {"images.npy": samples, "labels.npy": labels}
    if "schema" in body:  # the same codes may stand for other categories
        content["schema"] = body["schema"]
    if "sites" in body:
        content |= {"sites": body["sites"], _SITES: body["sha256"][_SITES]}
    return content_hash(content)


def describe_columns(data: Dataset) -> Iterator[str]:
    """Yield what a table's columns hold, a line each, and what is left out; nothing for images.

    Ranges and missing values are those of all rows, training and test.
    """
    if data.schema is None:
        return
    columns = data.schema.columns
    # Not min and max: these leave missing values out.
    low, high = np.fmin.reduce(data.samples), np.fmax.reduce(data.samples)
    missing = np.isnan(data.samples).mean(axis=0)
    width = max(len(column.name) for column in columns[:_MOST_COLUMNS])
    numbers, categorical = len(data.schema.numbers), len(data.schema.categorical)
    yield f"columns: {numbers} of numbers, {categorical} of categories"
    for index, column in enumerate(columns[:_MOST_COLUMNS]):
        if column.categories:
            listed = textwrap.shorten(", ".join(column.categories), _WIDTH, placeholder=" ...")
            what = f"{len(column.categories)} categories: {listed}"
        elif missing[index] < 1:
            kind = "whole numbers" if column.whole else "numbers"
            what = f"{kind} from {_number(low[index])} to {_number(high[index])}"
        else:
            what = "no values"
        gaps = f"; {missing[index]:.1%} gaps" if missing[index] else ""
        yield f"  {column.name:<{width}}  {what}{gaps}"
    if len(columns) > _MOST_COLUMNS:
        yield f"  and {len(columns) - _MOST_COLUMNS:,} more"
    if data.sites is not None:
        yield f"sites: {len(data.sites.names):,}, from the column {data.sites.column!r}"
    yield from (f"note: {note}" for note in data.notes)


def _number(value: np.float32) -> str:
    """Return a number with no more digits than a float32 has.

    >>> _number(np.float32(2300000)), _number(np.float32(14.3))
    ('2,300,000', '14.3')
    """
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.7g}"
