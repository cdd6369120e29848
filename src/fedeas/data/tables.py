"""Tables as data sets: read once, split into training and test rows, written as float32."""

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas import parquet
from fedeas.counts import names as check_names
from fedeas.data.columns import Encoded, TableOptions, check_columns, encode, label_codes
from fedeas.data.dataset import Dataset, Sites
from fedeas.data.schema import Schema
from fedeas.errors import InputError
from fedeas.files import check_regular, file_hash, file_state, store_folder
from fedeas.seeds import child_rng

Ints = NDArray[np.int64]
_BLOCK = 65_536  # rows that are written at a time
_FORMAT = 1  # of what a table becomes: a change reads tables anew


def load_table(
    source: Any,
    *,
    label: str = "label",
    site: str = "",
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    test_share: float = 0.2,
    test_seed: int = 0,
    schema: Path | str = "",
    name: str = "",
    store: Path | str | None = None,
) -> Dataset:
    """Open a table as a data set, reading it on first use.

    What a column holds is found: text, true or false, and categories of pandas or polars are
    categories; everything else that is a number is one. A column that says nothing, such as one
    with a single value, dates or an identifier, is left out, and the data set's `notes` say so.

    Parameters
    ----------
    source : path, frame or data set
        A file ending in .parquet, .csv or .tsv; a frame of pandas or polars; an Arrow table; or a
        Hugging Face data set.
    label : str
        The column of the label.
    site : str
        The column that says which site a row is from, if there is one; it is not learnt from.
    numbers, categories, leave_out : sequence of str
        Columns that are numbers, that are categories, and that are not learnt from, where what is
        found is wrong.
    test_share : float
        The share of every class that is held out for testing.
    test_seed : int
        Decides which rows those are.
    schema : path or str
        A JSON file that says what the columns are; nothing is found then.
    name : str
        The data set's name; by default that of the file.
    store : path or str, optional
        Where it is kept (FEDEAS_STORE, or .cache/fedeas in the home folder).
    """
    options = TableOptions(
        label, site, tuple(numbers), tuple(categories), tuple(leave_out), test_share, test_seed,
        str(schema),
    )  # fmt: skip
    if isinstance(source, str | Path):
        return load_table_files({"all": [Path(source)]}, options, name, store)
    return _written(parquet.open_frame(source), options, name or "table", store_folder(store))


def load_table_files(
    parts: dict[str, list[Path]],
    options: TableOptions,
    name: str = "",
    store: Path | str | None = None,
) -> Dataset:
    """Open the files of a table: 'all' of them, or those of 'train' and 'test'.

    Of 'all', a share is held out for testing.
    """
    paths = [path for own in parts.values() for path in own]
    for path in paths:
        if path.suffix.lower() not in parquet.TABLE_FILES:
            raise InputError(
                "unknown kind of file", got=path.name, allowed=", ".join(parquet.TABLE_FILES)
            )
    states = [
        (part, str(path.resolve()), *file_state(found))
        for part, own in parts.items()
        for path in own
        for found in [check_regular(path)]
    ]
    known = file_hash(Path(options.schema)) if options.schema else ""
    told = json.dumps([_FORMAT, states, asdict(options), known])
    key = hashlib.sha256(told.encode()).hexdigest()[:16]
    named = name or paths[0].stem
    target = store_folder(store) / "data" / f"{Path(named).name}-{key}"
    try:
        return Dataset.open(target)
    except InputError:
        shutil.rmtree(target, ignore_errors=True)  # incomplete, or of an older format
    table = parquet.open_tables(paths)
    if set(parts) == {"all"}:
        return _write(target, table, options, named, None)
    of_test = np.repeat([part == "test" for part, own in parts.items() for _ in own], table.sizes)
    return _write(target, table, options, named, of_test)


def _written(table: parquet.OpenTable, options: TableOptions, name: str, store: Path) -> Dataset:
    """Write a table that is in memory: only its content can name the folder."""
    folder = store / "data"
    temporary = folder / f".frame.{secrets.token_hex(4)}"
    try:
        _write(temporary, table, options, name, None)
        key = file_hash(temporary / "meta.json")[:16]
        target = folder / f"{Path(name).name}-{key}"
        with suppress(OSError):  # it is there already
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Dataset.open(target)


def _write(
    target: Path,
    table: parquet.OpenTable,
    options: TableOptions,
    name: str,
    of_test: NDArray[np.bool_] | None,
) -> Dataset:
    check_columns(table, options)
    classes, labels = label_codes(table, options.label)
    if len(classes) < 2 and of_test is None:
        raise InputError(
            f"{table.where} column {options.label!r} has one class", got=classes[0],
            allowed="at least two", fix="name the column of the label",
        )  # fmt: skip
    check_names(classes, len(classes), "class")
    sites = None
    if options.site:
        sites = Sites(options.site, *label_codes(table, options.site))
        check_names(sites.names, len(sites.names), "site")
    made = encode(table, options)
    origin = "from the test files"
    if of_test is None:
        of_test = held_out_rows(labels, options.test_share, options.test_seed)
        origin = (
            f"{options.test_share:.0%} of each class, set aside by fedeas (test_seed = "
            f"{options.test_seed})"
        )
    order = np.argsort(of_test, kind="stable")
    test = int(of_test.sum())
    if sites is not None:
        sites = replace(sites, codes=sites.codes[order])
    return Dataset.write(
        target, name, classes, (len(labels) - test, test), _batches(made, labels, order), origin,
        "table", Schema(tuple(made.columns)), sites, made.notes,
    )  # fmt: skip


def held_out_rows(labels: Ints, share: float, seed: int) -> NDArray[np.bool_]:
    """Choose a share of every class at random, rounded to whole rows."""
    chosen = np.zeros(len(labels), bool)
    by_class = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels))
    for c, own in enumerate(np.split(by_class, ends[:-1])):
        picked = child_rng(seed, "test-rows", c).permutation(len(own))[: round(share * len(own))]
        chosen[own[picked]] = True
    return chosen


def _batches(made: Encoded, labels: Ints, order: Ints) -> Iterator[tuple[Any, Ints]]:
    for start in range(0, len(order), _BLOCK):
        rows = order[start : start + _BLOCK]
        yield np.stack([values[rows] for values in made.values], axis=1), labels[rows]
