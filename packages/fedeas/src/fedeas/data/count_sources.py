"""Counts from any supported source, and one line that says how it was read.

- a clean table of counts (.csv, .tsv, .xlsx, .json, .parquet), or any other with options
- NVFlare's federated statistics (.json): the histogram of the label at every site
- standard input, `-`: any of these tables
- a folder of images, `client/class/image.png`
- a Hugging Face data set with a client column: saved to disk, or `hf:NAME` on the hub
- an object in a module, `package.module:name`: a flwr-datasets partitioner with its data set, a
  Hugging Face data set, or label counts
"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from fedeas import countfiles
from fedeas._util.files import IMAGE_FILES, MAX_TEXT, folders
from fedeas._util.specs import import_object
from fedeas.countfiles.people import Entry, add_entries
from fedeas.countfiles.table import LABEL_HEADINGS, Options, Table, TableError, names_clients
from fedeas.errors import InputError, MissingExtraError, first_line
from fedeas.planning.counts import LabelCounts

__all__ = ["CountsFile", "read_counts"]


@dataclass(frozen=True)
class CountsFile:
    """Counts, and how they were read."""

    counts: LabelCounts
    description: str
    notes: tuple[str, ...] = ()  # for the user


def read_counts(
    source: Path | str,
    *,
    client: str | None = None,
    label: str | None = None,
    count: str | None = None,
    sizes: str | None = None,
    add_up: bool = False,
    transpose: bool = False,
    drop_columns: Sequence[str] = (),
    drop_rows: Sequence[str] = (),
    thousands: str | None = None,
    blank: int | None = None,
    suppressed: int | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    keep: bool = False,
) -> CountsFile:
    """Read label counts from a file, a folder, a data set or an object in a module.

    Without options a table has to be clean: a column of clients, then a column per class; or the
    columns client, class and count. Options read any other; an error names the one that is needed.

    Parameters
    ----------
    source : path or str
        A path, '-' for standard input, `hf:NAME`, or `package.module:name`.
    client : str
        The column of the clients.
    label : str
        The column of the labels, in a table with a row per sample, or with a count per row. Of
        NVFlare's statistics, the feature that is the label.
    count : str
        The column of the counts, in a table with a count per row.
    sizes : str
        The column with each client's number of samples, if the other cells are percentages.
    add_up : bool
        Add up the rows of a client: where every class has a column that holds 0 or 1, or counts by
        month.
    transpose : bool
        Rows are classes and columns are clients.
    drop_columns, drop_rows : sequence of str
        What to leave out: columns and classes by name, rows by their first cell.
    thousands : str
        What separates thousands: ',', '.', 'space', 'apostrophe', or 'none' where 1.000 is 1.
    blank : int
        The count in empty cells, and in '-', 'NaN' and the like.
    suppressed : int
        The count in cells such as '<5', '1-4' and '*'.
    delimiter, encoding : str
        Of a text file, if it is not separated by commas (.tsv: by tabs), or not in UTF-8.
    sheet : str
        Sheet of a workbook, if several are not empty; data set of NVFlare's statistics.
    keep : bool
        Keep what seems to be no class or no client, with a note.

    """
    options = Options(
        client, label, count, sizes, add_up, transpose, tuple(drop_columns), tuple(drop_rows),
        thousands, blank, suppressed, delimiter, encoding, sheet, keep,
    )  # fmt: skip
    source = str(source)
    if source in ("-", "/dev/stdin"):
        return _standard_input(options)
    if source.startswith(("/dev/fd/", "/proc/self/fd/")):
        raise InputError(f"{source} is a pipe", fix="pipe the table into `fedeas plan -`")
    path = Path(source)
    if path.is_dir() or source.startswith("hf:") or _is_object(source, path):
        if options != Options(client=client, label=label):
            raise InputError("only `client` and `label` apply to what is no table", got=source)
        return _not_a_file(source, path, options)
    return _file(path, options)


def _file(path: Path, options: Options) -> CountsFile:
    table = countfiles.read(path, options)
    if table.meta is not None:
        raise InputError(f"{path} is a plan", allowed="the label counts that clients hold")
    notes = (*table.notes, *(f"{doubt.what}; kept as it is" for doubt in table.doubts))
    return CountsFile(_counts(table), table.description, notes)


def _standard_input(options: Options) -> CountsFile:
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
            if isinstance(error, TableError):
                raise TableError(
                    what, *error.ways, got=error.got, allowed=error.allowed, fix=error.plain_fix
                ) from None
            raise InputError(what, got=error.got, allowed=error.allowed, fix=error.fix) from None


def _is_object(source: str, path: Path) -> bool:
    """Tell whether a source is `module:name`; on Windows, `C:/counts.csv` has a drive instead."""
    return ":" in source and not path.drive and not path.exists()


def _not_a_file(source: str, path: Path, options: Options) -> CountsFile:
    if path.is_dir():
        if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
            return _dataset(_from_disk(path), options, source)
        return _images(path)
    if source.startswith("hf:"):
        return _dataset(_from_hub(source.removeprefix("hf:")), options, source)
    return _object(source, options)


def _counts(table: Table) -> LabelCounts:
    return LabelCounts(table.values, table.clients, table.classes)


def _counted(
    pairs: Iterable[tuple[object, object]], description: str, names: Sequence[str] | None = None
) -> CountsFile:
    """Count pairs of client and label as they come; only the counts are held.

    Labels are the places of their `names`, where there are names.
    """

    def entries() -> Iterator[Entry]:
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

    table = add_entries(entries(), description)
    if "-1" in (table.classes or ()) and set(table.classes or ()) != {"-1", "1"}:
        raise _unlabelled("label", -1)
    return CountsFile(_counts(table), description)


def _unlabelled(what: str, value: object) -> InputError:
    return InputError(
        f"a sample without a {what}",
        got="None" if value is None else value,
        fix="leave such samples out, for example by dataset.filter(lambda sample: "
        "sample['label'] is not None and sample['label'] >= 0)"
        if what == "label"
        else "leave such samples out",
    )


def _images(path: Path) -> CountsFile:
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


def _dataset(dataset: Any, options: Options, where: str) -> CountsFile:
    """Count a data set's rows; of several splits the one named train."""
    split = ""
    if hasattr(dataset, "keys"):
        splits = list(dataset.keys())
        if "train" not in splits:
            raise InputError(f"{where} has no split 'train'", got=splits)
        dataset, split = dataset["train"], ", split 'train'"
    names = dataset.column_names
    client = _column(options.client, "client", names, names_clients, where)
    label = _column(options.label, "label", names, _is_label, where)
    feature = dataset.features[label]
    description = f"a Hugging Face data set, columns {client!r} and {label!r}{split}"
    pairs = zip(iter(dataset[client]), iter(dataset[label]), strict=True)
    return _counted(pairs, description, getattr(feature, "names", None))


def _column(
    chosen: str | None,
    kind: str,
    names: Sequence[str],
    is_kind: Callable[[str], bool],
    where: str,
) -> str:
    """Return the column of clients or labels: as chosen, or the first that is headed so."""
    name = chosen or next(filter(is_kind, names), None)
    if name is None or name not in names:
        raise TableError(
            f"{where}: which column holds the {kind}?",
            ({kind: names[0]}, "for example"),
            got=chosen,
            allowed=", ".join(names),
        )
    return name


def _is_label(heading: str) -> bool:
    return heading.lower() in LABEL_HEADINGS


def _object(source: str, options: Options) -> CountsFile:
    """Read an object in a module, or what a function returns."""
    source_object = import_object(source, "source")
    if callable(source_object) and not hasattr(source_object, "load_partition"):
        source_object = source_object()
    if isinstance(source_object, LabelCounts):
        return CountsFile(source_object, "label counts of a module")
    if hasattr(source_object, "load_partition") and hasattr(source_object, "num_partitions"):
        return _partitioner(source_object, options, source)
    if hasattr(source_object, "column_names"):
        return _dataset(source_object, options, source)
    raise InputError(
        f"{source!r} does not hold the labels of clients",
        got=type(source_object).__name__,
        allowed="a flwr-datasets partitioner, a Hugging Face data set, or LabelCounts",
    )


def _partitioner(partitioner: Any, options: Options, where: str) -> CountsFile:
    """Count every partition of a flwr-datasets partitioner that has its data set."""
    if not partitioner.is_dataset_assigned():
        raise InputError(
            f"{where} has no data set", fix="set `partitioner.dataset` before it is read"
        )
    label = _column(options.label, "label", partitioner.dataset.column_names, _is_label, where)
    names = getattr(partitioner.dataset.features[label], "names", None)

    def pairs() -> Iterator[tuple[object, object]]:
        for k in range(partitioner.num_partitions):
            for x in partitioner.load_partition(k)[label]:
                yield k, x

    description = f"a {type(partitioner).__name__} of flwr-datasets, column {label!r}"
    return _counted(pairs(), description, names)
