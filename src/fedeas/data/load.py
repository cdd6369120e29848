"""Opening data sets: images and tables by name, from files, the Hugging Face hub, or frames.

Samples are read once, written as memory-mapped arrays, and found again by the state of the files
that they came from.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.arrow import LABEL_COLUMNS
from fedeas._internal.files import (
    IMAGE_FILES,
    MAX_PIXELS,
    check_regular,
    fetch_from_hub,
    file_hash,
    file_state,
    folders,
    store_folder,
    unreadable,
)
from fedeas._internal.progress import Progress
from fedeas._internal.seeds import child_rng
from fedeas.counts.label_counts import names
from fedeas.data import parquet
from fedeas.data.columns import (
    INFER_ALL,
    TableOptions,
    encode,
    label_codes,
    read_labels_of,
    site_codes,
)
from fedeas.data.dataset import Dataset, Sites
from fedeas.data.decode import decoded
from fedeas.data.schema import Schema
from fedeas.errors import InputError

Ints = NDArray[np.int64]
_PARTS = ("train", "test")
_SHARD = re.compile(r"-(\d+)-of-(\d+)$")
_EVERY = 5  # of a class's images, one is for testing
_MOST_BYTES = 4 * MAX_PIXELS  # of an encoded image
_BLOCK = 65_536  # rows that are written at a time
_FORMAT = 3  # of what files become: a change reads them again


@dataclass(frozen=True)
class _DatasetFiles:
    """The files of a data set by part; 'all' is a table that is split here."""

    parts: dict[str, list[Path]]
    test_origin: str
    is_table: bool

    @property
    def paths(self) -> list[Path]:
        """All files, those for training first."""
        return _joined(self.parts.values())

    @property
    def of_images(self) -> bool:
        """Whether these are image files, not Parquet."""
        return any(path.suffix.lower() in IMAGE_FILES for path in self.paths)

    def key(self, options: TableOptions) -> str:
        """Hash the state of the files and how they are read, so that changed ones are read again.

        A file is identified by its path, which gives an image's class, its size and its times.
        Folders of images have a time too: it shows that two of them, or two files, were swapped.
        """
        states: list[tuple[object, ...]] = [
            (part, str(path.absolute()), *file_state(check_regular(path)))
            for part, paths in self.parts.items()
            for path in paths
        ]
        if self.of_images:
            within = {path.parent for path in self.paths}
            above = {folder.parent for folder in within}
            states += [(str(f), f.stat().st_mtime_ns) for f in sorted(within | above)]
        schema = file_hash(Path(options.schema)) if options.schema else ""
        body = json.dumps([_FORMAT, states, asdict(options), schema])
        return hashlib.sha256(body.encode()).hexdigest()[:16]


def open_dataset(
    source: Any,
    folder: Path | str | None = None,
    options: TableOptions = INFER_ALL,
    *,
    kind: str = "",
    parts: Sequence[str] = _PARTS,
    name: str = "",
    store: Path | str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Open images or a table, whichever is there, reading them on first use.

    A table is a file ending in .parquet, .csv or .tsv: `source` itself, or below `folder` or
    FEDEAS_DATA, where the ending may be left out; a frame; or Parquet files without images,
    `train-*.parquet` and `test-*.parquet`. For images see `load_images`.

    Parameters
    ----------
    source : str, path, frame or data set
        The data set's name, the file of a table, or a frame.
    folder : path or str, optional
        Where its files are.
    options : TableOptions
        What a table's columns are; of images only `site` applies.
    kind : str
        'image' or 'table' if nothing else will do.
    parts : sequence of str
        Which of 'train' and 'test' to read. A table that is one of them is not split.
    name : str
        The data set's name, if `source` is not.
    store : path or str, optional
        Where arrays are kept (FEDEAS_STORE, or .cache/fedeas in the home folder).
    progress : callable, optional
        Called with the samples decoded and to be decoded.
    """
    if not isinstance(source, str | Path):
        return _write_frame(parquet.open_frame(source), options, name or "table", store)
    name = name or str(source)
    files = _find_files(str(source), folder, parts, kind)
    if not files.is_table and replace(options, site="") != INFER_ALL:
        raise InputError(
            f"{name} holds images: label, numbers, categories and the like are for tables"
        )
    target = store_folder(store) / "data" / f"{Path(name).name}-{files.key(options)}"
    try:
        return Dataset.open(target)
    except InputError:
        shutil.rmtree(target, ignore_errors=True)  # incomplete, or of an older format
    if not files.is_table:
        return _write_images(target, name, files, options.site, progress)
    table = parquet.open_tables(files.paths)
    in_test = None
    if "all" not in files.parts:
        of_paths = [part == "test" for part, paths in files.parts.items() for _ in paths]
        in_test = np.repeat(of_paths, table.sizes)
    return _write_table(target, table, options, name, in_test)


def load_images(
    name: str,
    folder: Path | str | None = None,
    store: Path | str | None = None,
    progress: Progress | None = None,
    parts: Sequence[str] = _PARTS,
    site: str = "",
) -> Dataset:
    """Open a data set of images as memory-mapped arrays, decoding it on first use.

    Parquet files in the schema of the Hugging Face data set `name` are read from `folder`, from
    the folder `name` in FEDEAS_DATA, or else from the hub. A folder may also hold images by class:
    `train/CLASS/` and `test/CLASS/`, or `CLASS/` alone, of which every fifth is then for testing.
    The decoded arrays are kept in `store` (FEDEAS_STORE, or .cache/fedeas in the home folder). If
    there are only training or only test images, name that part in `parts`; all images of `CLASS/`
    then belong to it.

    Parameters
    ----------
    name : str
        The data set's name.
    folder, store : Path or str, optional
        Where its files are, and where the decoded arrays are kept.
    progress : callable, optional
        Called with the samples decoded and to be decoded.
    parts : sequence of str
        Which of 'train' and 'test' to read.
    site : str
        The column of Parquet files that says which site an image is from, if there is one.
    """
    options = TableOptions(site=site)
    return open_dataset(
        name, folder, options, kind="image", parts=parts, store=store, progress=progress
    )


def load_table(
    source: Any,
    *,
    label: str = "label",
    site: str = "",
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    drop_columns: Sequence[str] = (),
    test_share: float = 0.2,
    test_seed: int = 0,
    schema: Path | str = "",
    name: str = "",
    store: Path | str | None = None,
) -> Dataset:
    """Open a table as a data set, reading it on first use.

    What a column holds is inferred: text, true or false, and categories of pandas or polars are
    categories; everything else that is a number is one. A column that says nothing, such as one
    with a single value, dates or an identifier, is left out, and the data set's `notes` say so.

    Parameters
    ----------
    source : path, frame or data set
        A file ending in .parquet, .csv or .tsv; a frame of pandas or polars; an Arrow table; or a
        Hugging Face data set.
    label : str
        The label column.
    site : str
        The column that says which site a row is from, if there is one; it is not learnt from.
    numbers, categories, drop_columns : sequence of str
        Columns that are numbers, that are categories, and that are not learnt from, where the
        inference is wrong.
    test_share : float
        The share of every class that is held out for testing.
    test_seed : int
        Decides which rows those are.
    schema : path or str
        A JSON file that says what the columns are; nothing is inferred then.
    name : str
        The data set's name; by default that of the file.
    store : path or str, optional
        Where it is kept (FEDEAS_STORE, or .cache/fedeas in the home folder).
    """
    options = TableOptions(
        label, site, tuple(numbers), tuple(categories), tuple(drop_columns), test_share, test_seed,
        str(schema),
    )  # fmt: skip
    if isinstance(source, str | Path):
        source = Path(source)
        name = name or source.stem
    return open_dataset(source, options=options, kind="table", name=name, store=store)


def _write_images(
    target: Path, name: str, files: _DatasetFiles, site: str, progress: Progress | None
) -> Dataset:
    sites = None
    encoded: Iterable[tuple[Path, bytes]]
    if files.of_images:
        if site:
            raise InputError(f"images in folders have no column {site!r}", allowed="Parquet files")
        of_paths = [path.parent.name for path in files.paths]
        folder_names, labels = np.unique(of_paths, return_inverse=True)
        classes = tuple(folder_names.tolist())
        train = len(files.parts["train"])
        encoded = map(_read_image, files.paths)
    else:
        table = parquet.open_tables(files.paths)
        label = next((n for n in LABEL_COLUMNS if n in table.names), LABEL_COLUMNS[0])
        table.check_column(label)
        labels, class_names = read_labels_of(table, label)
        classes = class_names or tuple(map(str, range(int(labels.max()) + 1)))
        if site:
            table.check_column(site)
            sites = Sites(site, *site_codes(table, site))
        train = sum(table.sizes[: len(files.parts["train"])])
        encoded = ((path, image) for path in files.paths for image in parquet.encoded_images(path))
    names(classes, len(classes), "class")  # printable: they end up on terminals and in reports
    sizes = (train, len(labels) - train)
    batches = decoded(encoded, labels, progress)
    return Dataset.write(target, name, classes, sizes, batches, files.test_origin, sites=sites)


def _write_frame(
    table: parquet.OpenTable, options: TableOptions, name: str, store: Path | str | None
) -> Dataset:
    """Write a table that is in memory: only its content can name the folder."""
    folder = store_folder(store) / "data"
    temporary = folder / f".frame.{secrets.token_hex(4)}"
    try:
        _write_table(temporary, table, options, name, None)
        key = file_hash(temporary / "meta.json")[:16]
        target = folder / f"{Path(name).name}-{key}"
        with suppress(OSError):  # it is there already
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Dataset.open(target)


def _write_table(
    target: Path,
    table: parquet.OpenTable,
    options: TableOptions,
    name: str,
    in_test: NDArray[np.bool_] | None,
) -> Dataset:
    table.check_column(options.label, "set label")
    for column in filter(
        None, (options.site, *options.numbers, *options.categories, *options.drop_columns)
    ):
        table.check_column(column)
    classes, labels = label_codes(table, options.label)
    if len(classes) < 2 and in_test is None:
        raise InputError(
            f"{table.where} column {options.label!r} has one class", got=classes[0],
            allowed="at least two", fix="name the label column",
        )  # fmt: skip
    sites = Sites(options.site, *site_codes(table, options.site)) if options.site else None
    encoded = encode(table, options)
    origin = "from the test files"
    if in_test is None:
        in_test = _choose_test_rows(labels, options.test_share, options.test_seed)
        origin = (
            f"{options.test_share:.0%} of each class, set aside by fedeas (test_seed = "
            f"{options.test_seed})"
        )
    order = np.argsort(in_test, kind="stable")
    test = int(in_test.sum())
    if sites is not None:
        sites = replace(sites, codes=sites.codes[order])

    def batches() -> Iterator[tuple[Any, Ints]]:
        for start in range(0, len(order), _BLOCK):
            rows = order[start : start + _BLOCK]
            yield np.stack([values[rows] for values in encoded.values], axis=1), labels[rows]

    return Dataset.write(
        target, name, classes, (len(labels) - test, test), batches(), origin, "table",
        Schema(tuple(encoded.columns)), sites, encoded.notes,
    )  # fmt: skip


def _choose_test_rows(labels: Ints, share: float, seed: int) -> NDArray[np.bool_]:
    """Choose a share of every class at random, rounded to whole rows."""
    chosen = np.zeros(len(labels), bool)
    by_class = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels))
    for c, rows in enumerate(np.split(by_class, ends[:-1])):
        order = child_rng(seed, "test-rows", c).permutation(len(rows))
        chosen[rows[order[: round(share * len(rows))]]] = True
    return chosen


def is_local(name: str) -> bool:
    """Return whether FEDEAS_DATA has a folder of this name, without asking the hub."""
    root = _data_folder(name)
    return root is not None and root.is_dir()


def _find_files(
    name: str, folder: Path | str | None, parts: Sequence[str], kind: str
) -> _DatasetFiles:
    """Find the files of a data set: a table, in a folder, below FEDEAS_DATA, or on the hub."""
    if kind != "image" and (path := _table_file(name, folder)) is not None:
        part = "all" if tuple(parts) == _PARTS else parts[0]
        return _DatasetFiles({part: [path]}, "", is_table=True)
    root = _data_folder(name) if folder is None else Path(folder)
    if root is None or (folder is None and not root.is_dir()):
        if kind == "table":
            allowed = ", ".join(parquet.TABLE_FILES)
            raise InputError("unknown kind of file", got=Path(name).name, allowed=allowed)
        hint = f"FEDEAS_DATA is not set: set it to a folder that holds {name}/"
        if root is not None:
            hint = f"there is no folder {root}, where FEDEAS_DATA says to look"
        patterns = [f"*{part}-*.parquet" for part in _PARTS]
        root = fetch_from_hub(name, "dataset", patterns, hint)
    return _in_folder(root, parts, kind)


def _in_folder(root: Path, parts: Sequence[str], kind: str) -> _DatasetFiles:
    """Find the Parquet files of the parts, or images by class."""
    files = {
        part: sorted([*root.rglob(f"{part}.parquet"), *root.rglob(f"{part}-*.parquet")])
        for part in parts
    }
    test_origin, is_table = "from test-*.parquet", False
    if paths := _joined(files.values()):
        is_table = kind == "table" or (kind != "image" and not parquet.has_images(paths[0]))
        for of_part in files.values():
            _check_complete(of_part)
        if is_table and not files.get("test", paths):  # most tables of the hub have no test set
            return _DatasetFiles({"all": paths}, "", is_table)
    else:
        files, test_origin = _image_files(root, parts)
    if missing := [part for part in parts if not files[part]]:
        raise InputError(
            f"{root} has no {missing[0]} set",
            allowed="train-*.parquet and test-*.parquet, or images in train/CLASS/ and "
            "test/CLASS/, or in CLASS/",
        )
    return _DatasetFiles({part: files.get(part, []) for part in _PARTS}, test_origin, is_table)


def _table_file(name: str, folder: Path | str | None) -> Path | None:
    """Find the file of a table.

    The ending may be left out only where data sets are kept: the working folder can hold a file of
    the same name, such as counts.
    """
    if folder is not None and Path(folder).is_file():
        return Path(folder)
    in_data = _data_folder(name) if folder is None else Path(folder) / name
    candidates = [Path(name)] if folder is None else []
    if in_data is not None:
        candidates.append(in_data)
        if not in_data.is_dir():
            candidates += [in_data.with_name(in_data.name + end) for end in parquet.TABLE_FILES]
    for path in candidates:
        if path.suffix.lower() in parquet.TABLE_FILES and path.is_file():
            return path
    if Path(name).suffix.lower() in parquet.TABLE_FILES:
        raise InputError(
            f"there is no table {name}", got=[str(path.absolute()) for path in candidates],
            fix="give its path, or set FEDEAS_DATA to the folder that it is in",
        )  # fmt: skip
    return None


def _data_folder(name: str) -> Path | None:
    """Return where FEDEAS_DATA says that a data set is, if it is set."""
    root = os.environ.get("FEDEAS_DATA")
    return None if root is None else Path(root) / name


def _check_complete(paths: list[Path]) -> None:
    """Refuse Parquet files that are not one whole set.

    A data set of the hub has a folder for every configuration. An interrupted download lacks files:
    `train-00000-of-00003.parquet` is one of three.
    """
    within = sorted({str(path.parent) for path in paths})
    if len(within) > 1:
        raise InputError(
            "there are several configurations of this data set, and their samples may be the same",
            got=[Path(folder).name for folder in within],
            allowed="one folder of Parquet files",
            fix=f"name one of them as the folder: {within[0]}",
        )
    shards = [match for path in paths if (match := _SHARD.search(path.stem))]
    for match in shards:
        if len({shard[1] for shard in shards if shard[2] == match[2]}) < int(match[2]):
            raise InputError(
                f"files are missing in {paths[0].parent}",
                got=", ".join(path.name for path in paths),
                allowed=f"{int(match[2])} of them",
                fix="download the rest",
            )


def _image_files(folder: Path, parts: Sequence[str]) -> tuple[dict[str, list[Path]], str]:
    """Find images by class; without a test set, every fifth of a class is for testing."""
    by_part = {part: _images(folder / part) for part in parts}
    if any(by_part.values()):
        return {part: _joined(lists) for part, lists in by_part.items()}, "from the folder test/"
    by_class = _images(folder)
    if len(parts) == 1:
        return {parts[0]: _joined(by_class)}, "all images of the folder"
    files = {
        "train": [p for paths in by_class for n, p in enumerate(paths) if (n + 1) % _EVERY],
        "test": [p for paths in by_class for n, p in enumerate(paths) if not (n + 1) % _EVERY],
    }
    return files, "every fifth image of each class, set aside by fedeas"


def _joined(lists: Iterable[list[Path]]) -> list[Path]:
    return [path for paths in lists for path in paths]


def _images(folder: Path) -> list[list[Path]]:
    """Return the images of every subfolder."""
    if not folder.is_dir():
        return []
    by_class = [
        sorted(p for p in subfolder.iterdir() if p.suffix.lower() in IMAGE_FILES)
        for subfolder in folders(folder)
    ]
    return [paths for paths in by_class if paths]


def _read_image(path: Path) -> tuple[Path, bytes]:
    check_regular(path, _MOST_BYTES, "scale the image down")
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
