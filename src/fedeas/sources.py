"""Counts from whatever people have, and one line that says what was understood.

- a table of counts, a row per client and a column per class (.csv, .tsv, .json, .parquet)
- a long table, a row per sample with its client and its label (.csv, .tsv, .parquet)
- a folder of images, `client/class/image.png`
- a Hugging Face data set with a client column: saved to disk, or `hf:NAME` of the hub
- an object of a module, `package.module:name`: a flwr-datasets partitioner with its data set, a
  Hugging Face data set, or label counts
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedeas import parquet
from fedeas.counts import LabelCounts
from fedeas.errors import InputError, MissingExtraError, first_line
from fedeas.files import IMAGE_FILES, check_regular, folders, unreadable
from fedeas.specs import import_object
from fedeas.tables import names_clients

_LABELS = ("label", "labels", "class", "target", "fine_label", "category", "y")


@dataclass(frozen=True)
class Columns:
    """Which columns of a long table hold the client and the label; found by name unless given."""

    client: str | None = None
    label: str | None = None

    def find(self, known: Iterable[str], where: str) -> tuple[str, str] | None:
        """Return both columns, None where they are not asked for and not there."""
        names = list(known)
        for wanted in (self.client, self.label):
            if wanted is not None and wanted not in names:
                raise InputError(
                    f"{where} has no such column", got=wanted, allowed=", ".join(names[:20])
                )
        client = self.client or next(
            (n for n in names if n and names_clients(n) and n != self.label), None
        )
        label = self.label or next((n for n in names if n.lower() in _LABELS and n != client), None)
        if client == label and client is not None:
            raise InputError(f"{where}: one column cannot be both", got=client)
        if client is not None and label is not None:
            return client, label
        if self.client or self.label:
            lacking = "label" if client else "client"
            raise InputError(
                f"{where}: which column holds the {lacking}?",
                allowed=", ".join(names[:20]),
                fix=f"say --{lacking}-column",
            )
        return None


@dataclass(frozen=True)
class Found:
    """Counts, and what was understood."""

    counts: LabelCounts
    understood: str


def read_counts(source: str, columns: Columns | None = None, delimiter: str | None = None) -> Found:
    """Read label counts from a file, a folder, a data set or an object of a module."""
    columns = columns or Columns()
    path = Path(source)
    if path.is_dir():
        if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
            return _dataset(_from_disk(path), columns, source)
        return _images(path)
    if source.startswith("hf:"):
        return _dataset(_from_hub(source.removeprefix("hf:")), columns, source)
    if ":" in source and not path.exists():
        return _object(source, columns)
    match path.suffix.lower():
        case ".csv" | ".tsv":
            found = _long_csv(path, columns, delimiter)
        case ".parquet":
            found = _long_parquet(path, columns)
        case _:
            found = None
    return found or Found(LabelCounts.load(path, delimiter), "a table of counts")


def is_long(path: Path) -> bool:
    """Tell whether a Parquet file is a long table, by the names of its columns."""
    return Columns().find(parquet.column_names(path), str(path)) is not None


def _long_csv(path: Path, columns: Columns, delimiter: str | None) -> Found | None:
    """Count the rows of a long table; None where the file is none."""
    separator = delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter=separator)
            head = [cell.strip() for cell in next(rows, [])]
            places = columns.find(head, str(path))
            if places is None:
                return None
            client, label = (head.index(name) for name in places)
            pairs = _pairs(rows, client, label, path)
            return _counted(pairs, f"a row per sample, {places[0]!r} and {places[1]!r}")
    except (UnicodeDecodeError, csv.Error, TypeError):
        return None  # `LabelCounts.load` says what is wrong with it
    except OSError as error:
        raise unreadable(path, error) from None


def _pairs(rows: Any, client: int, label: int, path: Path) -> Iterator[tuple[str, str]]:
    for row in rows:
        if not row:
            continue
        if len(row) <= max(client, label) or not (row[client].strip() and row[label].strip()):
            raise InputError(f"{path} line {rows.line_num} lacks a client or a label", got=row[:4])
        yield row[client].strip(), row[label].strip()


def _long_parquet(path: Path, columns: Columns) -> Found | None:
    places = columns.find(parquet.column_names(path), str(path))
    if places is None:
        return None
    pairs = parquet.value_pairs(path, *places)
    return _counted(pairs, f"a row per sample, {places[0]!r} and {places[1]!r}")


def _counted(pairs: Iterable[tuple[object, object]], understood: str) -> Found:
    """Count pairs as they come; only the counts are held."""
    seen = Counter(pairs)
    if not seen:
        raise InputError("there are no samples", allowed="a row per sample")
    clients = _in_order({client for client, _ in seen})
    labels = _in_order({label for _, label in seen})
    if len(labels) < 2:
        raise InputError("there is only one class", got=labels[0], allowed="two and more")
    n = np.zeros((len(clients), len(labels)), np.int64)
    row = {client: k for k, client in enumerate(clients)}
    column = {label: c for c, label in enumerate(labels)}
    for (client, label), count in seen.items():
        n[row[client], column[label]] = count
    counts = LabelCounts(n, [str(c) for c in clients], [str(c) for c in labels])
    return Found(counts, understood)


def _in_order(names: set[object]) -> list[object]:
    """Sort names, numbers as numbers."""
    if all(str(name).isascii() and str(name).isdigit() for name in names):
        return sorted(names, key=lambda name: int(str(name)))
    return sorted(names, key=str)


def _images(path: Path) -> Found:
    """Count the images of `client/class/`."""

    def pairs() -> Iterator[tuple[str, str]]:
        for client in folders(path):
            for label in folders(client):
                for file in label.iterdir():
                    if file.suffix.lower() in IMAGE_FILES:
                        yield client.name, label.name

    try:
        return _counted(pairs(), "a folder per client, in it a folder of images per class")
    except InputError:
        flat = any(f.suffix.lower() in IMAGE_FILES for d in folders(path) for f in d.iterdir())
        raise InputError(
            f"{path} holds no images of several classes by client",
            got="one folder of images per class" if flat else None,
            allowed="client/class/image.png",
            fix="put a folder per client above the classes" if flat else None,
        ) from None


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("a Hugging Face data set", "flower") from None
    return datasets


def _from_disk(path: Path) -> Any:
    return _datasets().load_from_disk(str(path))


def _from_hub(name: str) -> Any:
    library = _datasets()
    try:
        return library.load_dataset(name)
    except Exception as error:  # whatever the network makes of it
        raise InputError(f"cannot fetch the data set {name!r}: {first_line(error)}") from None


def _dataset(dataset: Any, columns: Columns, where: str) -> Found:
    """Count a data set's rows; of several splits the one named train."""
    split = ""
    if hasattr(dataset, "keys"):
        known = list(dataset.keys())
        if "train" not in known:
            raise InputError(f"{where} has no split 'train'", got=known)
        dataset, split = dataset["train"], ", split 'train'"
    places = columns.find(dataset.column_names, where)
    if places is None:
        raise InputError(
            f"{where}: which columns hold client and label?",
            allowed=", ".join(dataset.column_names),
            fix="say --client-column and --label-column",
        )
    client, label = places
    feature = dataset.features[label]
    names = getattr(feature, "names", None)
    marks = (names[x] for x in dataset[label]) if names else iter(dataset[label])
    understood = f"a Hugging Face data set, columns {client!r} and {label!r}{split}"
    return _counted(zip(iter(dataset[client]), marks, strict=True), understood)


def _object(source: str, columns: Columns) -> Found:
    """Read an object of a module, or what a function of one returns."""
    made = import_object(source, "source")
    if callable(made) and not hasattr(made, "load_partition"):
        made = made()
    if isinstance(made, LabelCounts):
        return Found(made, "label counts of a module")
    if hasattr(made, "load_partition") and hasattr(made, "num_partitions"):
        return _partitioner(made, columns, source)
    if hasattr(made, "column_names"):
        return _dataset(made, columns, source)
    raise InputError(
        f"{source!r} is nothing that holds labels of clients",
        got=type(made).__name__,
        allowed="a flwr-datasets partitioner, a Hugging Face data set, or LabelCounts",
    )


def _partitioner(partitioner: Any, columns: Columns, where: str) -> Found:
    """Count every partition of a flwr-datasets partitioner that has its data set."""
    if not partitioner.is_dataset_assigned():
        raise InputError(
            f"{where} has no data set", fix="set `partitioner.dataset` before it is read"
        )
    known = partitioner.dataset.column_names
    label = columns.label or next((n for n in known if n.lower() in _LABELS), None)
    if label is None or label not in known:
        raise InputError(
            f"{where}: which column holds the label?", got=label, allowed=", ".join(known),
            fix="say --label-column",
        )  # fmt: skip
    names = getattr(partitioner.dataset.features[label], "names", None)

    def pairs() -> Iterator[tuple[object, object]]:
        for k in range(partitioner.num_partitions):
            for x in partitioner.load_partition(k)[label]:
                yield k, names[x] if names else x

    return _counted(pairs(), f"a {type(partitioner).__name__} of flwr-datasets, column {label!r}")
