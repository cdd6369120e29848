"""Counts from any supported source, and one line that says how it was read.

- a table of counts, a row per client and a column per class (.csv, .tsv, .xlsx, .json, .parquet)
- a long table, a row per sample, or per client and class with a count
- standard input, `-`: any of these tables
- a folder of images, `client/class/image.png`
- a Hugging Face data set with a client column: saved to disk, or `hf:NAME` on the hub
- an object in a module, `package.module:name`: a flwr-datasets partitioner with its data set, a
  Hugging Face data set, or label counts
"""

import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from fedeas import tables
from fedeas.counts import LabelCounts
from fedeas.errors import InputError, MissingExtraError, first_line
from fedeas.files import IMAGE_FILES, folders
from fedeas.limits import MAX_TEXT
from fedeas.specs import import_object
from fedeas.tables import Columns
from fedeas.tables.arguments import columns_argument, example_columns
from fedeas.tables.headings import LABEL_HEADINGS

__all__ = ["Columns", "Found", "read_counts"]


@dataclass(frozen=True)
class Found:
    """Counts, and how they were read."""

    counts: LabelCounts
    understood: str
    notes: tuple[str, ...] = ()  # notes for the user


def read_counts(
    source: Path | str,
    columns: Columns | None = None,
    delimiter: str | None = None,
    layout: str | None = None,
    *,
    drop_columns: Sequence[str] = (),
    drop_rows: Sequence[str] = (),
    transpose: bool | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
    thousands: str | None = None,
    blank: int | None = None,
    suppressed: int | None = None,
    size_column: str | None = None,
    by: str | None = None,
) -> Found:
    """Read label counts from a file, a folder, a data set or an object in a module.

    Parameters
    ----------
    source
        A path, '-' for standard input, `hf:NAME`, or `package.module:name`.
    columns
        The columns of client, label and count, in a table without a row per client.
    delimiter
        Delimiter of a CSV file: one character, or 'tab'.
    layout
        'wide': a row per client and a column per class; 'long': a row per sample; 'counts': a row
        per client and class with a count. By default it is inferred; an ambiguous table is refused.
    drop_columns, drop_rows
        What to leave out, by its name in the file, for example a total.
    transpose
        Whether the table has a row per class; a table that seems to is refused unless this is said.
    sheet
        Sheet of an Excel workbook, if several are not empty.
    encoding
        Encoding of a text file, such as 'cp1252', if it is not UTF-8.
    thousands
        What separates thousands: ',', '.', 'space', 'apostrophe', or 'none'. By default a cell such
        as 1.200 is read only where the rest of the table makes it certain.
    blank
        The count in empty cells, and in '-', 'NaN' and the like; by default they are refused.
    suppressed
        The count in cells such as '<5', '1-4' and '*'; by default they are refused.
    size_column
        The column with each client's number of samples, if the other cells are percentages.
    by
        The column of clients in a table with a row per sample. With layout 'wide', the rows of one
        client are added up: for a column per class that holds 0 or 1, or counts by month.

    """
    source = str(source)
    options = tables.Options(
        delimiter, layout, columns or Columns(), tuple(drop_columns), tuple(drop_rows), transpose,
        sheet, encoding, thousands, blank, suppressed, size_column, by,
    )  # fmt: skip
    if source in ("-", "/dev/stdin"):
        return _standard_input(options)
    if source.startswith(("/dev/fd/", "/proc/self/fd/")):
        raise InputError(f"{source} is a pipe", fix="pipe the table into `fedeas plan -`")
    path = Path(source)
    if path.is_dir() or source.startswith("hf:") or _is_object(source, path):
        if options != tables.Options(columns=options.columns, by=by):
            raise InputError(
                "only `columns` and `by` can be given for what is no table", got=source
            )
        return _not_a_file(source, path, options.columns)
    return _file(path, options)


def _file(path: Path, options: tables.Options) -> Found:
    table = tables.read(path, options)
    if table.meta is not None:
        raise InputError(f"{path} is a plan", allowed="the label counts that clients hold")
    notes = (*table.notes, *(f"{doubt.what}; kept as it is" for doubt in table.doubts))
    return Found(_counts(table), ", ".join((table.understood, *table.assumed)), notes)


def _standard_input(options: tables.Options) -> Found:
    """Read a table from standard input; its first bytes tell the format."""
    content = sys.stdin.buffer.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise InputError("standard input is too long", allowed=f"at most {MAX_TEXT:,} bytes")
    endings = {b"PK\x03\x04": ".xlsx", b"PAR1": ".parquet", b"[": ".json", b"{": ".json"}
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")
    ending = next((e for magic, e in endings.items() if start.startswith(magic)), ".csv")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"counts{ending}"
        path.write_bytes(content)
        try:
            return _file(path, options)
        except InputError as error:
            what = error.what.replace(str(path), "standard input")
            raise InputError(what, got=error.got, allowed=error.allowed, fix=error.fix) from None


def _is_object(source: str, path: Path) -> bool:
    """Tell whether a source is `module:name`; on Windows, `C:/counts.csv` has a drive instead."""
    return ":" in source and not path.drive and not path.exists()


def _not_a_file(source: str, path: Path, columns: Columns) -> Found:
    if path.is_dir():
        if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
            return _dataset(_from_disk(path), columns, source)
        return _images(path)
    if source.startswith("hf:"):
        return _dataset(_from_hub(source.removeprefix("hf:")), columns, source)
    return _object(source, columns)


def _counts(table: tables.Table) -> LabelCounts:
    return LabelCounts(table.values, table.clients, table.classes)


def _counted(
    pairs: Iterable[tuple[object, object]], understood: str, names: Sequence[str] | None = None
) -> Found:
    """Count pairs of client and label as they come; only the counts are held.

    Labels are the places of their `names`, where there are names.
    """

    def entries() -> Iterator[tables.Entry]:
        for client, label in pairs:
            for value, what in ((client, "client"), (label, "label")):
                if value is None or (isinstance(value, float) and math.isnan(value)):
                    raise _unlabelled(what, value)
            if names is None:
                yield client, label, 1
            elif isinstance(label, Integral) and 0 <= int(label) < len(names):
                yield client, names[int(label)], 1
            else:
                raise _unlabelled("label", label)

    table = tables.added_up(entries(), understood)
    if "-1" in (table.classes or ()) and set(table.classes or ()) != {"-1", "1"}:
        raise _unlabelled("label", -1)
    return Found(_counts(table), understood)


def _unlabelled(what: str, value: object) -> InputError:
    return InputError(
        f"a sample without a {what}",
        got="None" if value is None else value,
        fix="leave such samples out, for example by dataset.filter(lambda sample: "
        "sample['label'] is not None and sample['label'] >= 0)"
        if what == "label"
        else "leave such samples out",
    )


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
    except ModuleNotFoundError:
        raise MissingExtraError("a Hugging Face data set", "flower") from None
    return datasets


def _from_disk(path: Path) -> Any:
    return _datasets().load_from_disk(str(path))


def _from_hub(name: str) -> Any:
    library = _datasets()
    try:
        return library.load_dataset(name)
    except Exception as error:  # the network can raise anything
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
            fix=f"pass {example_columns(dataset.column_names)}, for example",
        )
    client, label = places
    feature = dataset.features[label]
    understood = f"a Hugging Face data set, columns {client!r} and {label!r}{split}"
    pairs = zip(iter(dataset[client]), iter(dataset[label]), strict=True)
    return _counted(pairs, understood, getattr(feature, "names", None))


def _object(source: str, columns: Columns) -> Found:
    """Read an object in a module, or what a function returns."""
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
        f"{source!r} does not hold the labels of clients",
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
    label = columns.label or next((n for n in known if n.lower() in LABEL_HEADINGS), None)
    if label is None or label not in known:
        raise InputError(
            f"{where}: which column holds the label?", got=label, allowed=", ".join(known),
            fix=f"pass {columns_argument(label=known[0])}, for example",
        )  # fmt: skip
    names = getattr(partitioner.dataset.features[label], "names", None)

    def pairs() -> Iterator[tuple[object, object]]:
        for k in range(partitioner.num_partitions):
            for x in partitioner.load_partition(k)[label]:
                yield k, x

    understood = f"a {type(partitioner).__name__} of flwr-datasets, column {label!r}"
    return _counted(pairs(), understood, names)
