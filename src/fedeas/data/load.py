"""A data set by name: local Parquet where there is some, otherwise the Hugging Face hub."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedeas import hub, parquet
from fedeas.counts import names
from fedeas.data.columns import ALL_FOUND, TableOptions, label_codes
from fedeas.data.dataset import Dataset, Sites
from fedeas.data.decode import Encoded, decoded
from fedeas.data.tables import load_table, load_table_files
from fedeas.errors import InputError
from fedeas.files import IMAGE_FILES, check_regular, file_state, folders, store_folder, unreadable
from fedeas.limits import MAX_PIXELS
from fedeas.progress import Progress
from fedeas.specs import import_object

_PARTS = ("train", "test")
_PARQUET = ".parquet"
_SHARD = re.compile(r"-(\d+)-of-(\d+)$")
_EVERY = 5  # of a class's images, one is for testing
_MOST_BYTES = 4 * MAX_PIXELS  # of an encoded image


@dataclass(frozen=True)
class _Files:
    """The files of a data set, and where its test images come from."""

    root: Path
    parts: dict[str, list[Path]]
    test_origin: str

    @property
    def of_images(self) -> bool:
        """Whether these are image files, not Parquet."""
        return any(path.suffix != _PARQUET for own in self.parts.values() for path in own)

    @property
    def key(self) -> str:
        """Hash the state of the files, so that changed ones are decoded again.

        A file is identified by its path, which gives an image's class, its size and its times.
        Folders of images have a time too: it shows that two of them, or two files, were swapped.
        """
        states: list[tuple[object, ...]] = [
            (part, path.relative_to(self.root).as_posix(), *file_state(found))
            for part in _PARTS
            for path in self.parts[part]
            for found in [check_regular(path)]
        ]
        if self.of_images:
            within = {path.parent for own in self.parts.values() for path in own}
            above = {folder.parent for folder in within}
            states += [
                (folder.relative_to(self.root).as_posix(), folder.stat().st_mtime_ns)
                for folder in sorted(within | above)
            ]
        return hashlib.sha256(json.dumps(states).encode()).hexdigest()[:16]


def load_images(
    name: str,
    folder: Path | str | None = None,
    store: Path | str | None = None,
    progress: Progress | None = None,
    parts: Sequence[str] = _PARTS,
    site: str = "",
) -> Dataset:
    """Open a data set as memory-mapped arrays, decoding it on first use.

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
    files = _local_files(name, folder, parts) or _hub_files(name)
    return _open_images(name, files, store, progress, site)


def _open_images(
    name: str, files: _Files, store: Path | str | None, progress: Progress | None, site: str
) -> Dataset:
    named = f"{Path(name).name}-{files.key}"
    if site:
        named += f"-{hashlib.sha256(site.encode()).hexdigest()[:8]}"
    target = store_folder(store) / "data" / named
    try:
        return Dataset.open(target)
    except InputError:
        shutil.rmtree(target, ignore_errors=True)  # incomplete, or of an older format
    paths = [path for part in _PARTS for path in files.parts[part]]
    if files.of_images:
        classes = tuple(sorted({path.parent.name for path in paths}))
        sizes = (len(files.parts["train"]), len(files.parts["test"]))
        encoded = _encoded_files(paths, classes)
    else:
        heads = {part: parquet.image_head(own) for part, own in files.parts.items() if own}
        classes = next(iter(heads.values())).classes
        if any(head.classes != classes for head in heads.values()):
            raise InputError(f"{name}: training and test set have different classes")
        train, test = (heads[part].rows if part in heads else 0 for part in _PARTS)
        sizes = (train, test)
        encoded = _encoded_rows(paths)
    names(classes, len(classes), "class")  # printable: they end up on terminals and in reports
    batches = decoded(encoded, sum(sizes), progress)
    sites = _sites(files, site) if site else None
    return Dataset.write(target, name, classes, sizes, batches, files.test_origin, sites=sites)


def load_data(
    name: str,
    folder: Path | str | None = None,
    options: TableOptions = ALL_FOUND,
    store: Path | str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Open images or a table by name, whichever is there.

    A table is a file ending in .parquet, .csv or .tsv: `name` itself, or below `folder` or
    FEDEAS_DATA, where the ending may be left out; `package.module:name`, a frame or a data set; or
    Parquet files without images, `train-*.parquet` and `test-*.parquet`.
    """
    if (table := _table_file(name, folder)) is not None:
        return load_table_files({"all": [table]}, options, name, store)
    if ":" in name and folder is None:
        found = import_object(name, "table")
        made = found() if callable(found) else found
        return load_table(made, **vars(options), name=name.partition(":")[2], store=store)
    if rows := _only_training_rows(name, folder):
        return load_table_files({"all": rows}, options, name, store)
    files = _local_files(name, folder) or _hub_files(name)
    if not files.of_images and not parquet.has_images(files.parts["train"][0]):
        return load_table_files(files.parts, options, name, store)
    if replace(options, site="") != ALL_FOUND:
        raise InputError(
            f"{name} holds images: label, numbers, categories and the like are for tables"
        )
    return _open_images(name, files, store, progress, options.site)


def _table_file(name: str, folder: Path | str | None) -> Path | None:
    """Find the file of a table.

    Only where data sets are kept may its ending be left out: the working folder can hold a file of
    the same name, such as counts.
    """
    if folder is not None and Path(folder).is_file():
        return Path(folder)
    kept = _data_folder(name) if folder is None else Path(folder) / name
    places = [Path(name)] if folder is None else []
    if kept is not None:
        places.append(kept)
        if not kept.is_dir():
            places += [kept.with_name(kept.name + ending) for ending in parquet.TABLE_FILES]
    for path in places:
        if path.suffix.lower() in parquet.TABLE_FILES and path.is_file():
            return path
    if Path(name).suffix.lower() in parquet.TABLE_FILES:
        raise InputError(
            f"there is no table {name}", got=[str(path.absolute()) for path in places],
            fix="give its path, or set FEDEAS_DATA to the folder that it is in",
        )  # fmt: skip
    return None


def _only_training_rows(name: str, folder: Path | str | None) -> list[Path]:
    """Return the Parquet files of a table that has no test set, as many on the hub."""
    root = _data_folder(name) if folder is None else Path(folder)
    if root is None or not root.is_dir() or next(root.rglob("test-*.parquet"), None):
        return []
    found = sorted(root.rglob("train-*.parquet"))
    if not found or parquet.has_images(found[0]):
        return []
    _check_one_folder(found)
    _check_complete(found)
    return found


def _sites(files: _Files, column: str) -> Sites:
    """Read which site every image is from."""
    if files.of_images:
        raise InputError(
            f"images in folders have no column {column!r}", allowed="Parquet files with that column"
        )
    table = parquet.open_tables([path for part in _PARTS for path in files.parts[part]])
    if column not in table.names:
        raise InputError(f"{table.where} has no column {column!r}", allowed=", ".join(table.names))
    found, codes = label_codes(table, column)
    names(found, len(found), "site")
    return Sites(column, found, codes)


def is_local(name: str) -> bool:
    """Return whether a data set is in FEDEAS_DATA, without asking the hub."""
    return _local_files(name, None) is not None


def _local_files(
    name: str, folder: Path | str | None, parts: Sequence[str] = _PARTS
) -> _Files | None:
    """Find the files of the parts in the given folder, or below FEDEAS_DATA."""
    root = _data_folder(name) if folder is None else Path(folder)
    if root is None or (folder is None and not root.is_dir()):
        return None
    files = {part: sorted(root.rglob(f"{part}-*.parquet")) for part in parts}
    test_origin = "from test-*.parquet"
    if not any(files.values()):
        files, test_origin = _image_files(root, parts)
    if missing := [part for part in parts if not files[part]]:
        raise InputError(
            f"{root} has no {missing[0]} set",
            allowed="train-*.parquet and test-*.parquet, or images in train/CLASS/ and "
            "test/CLASS/, or in CLASS/",
        )
    for own in files.values():
        if test_origin == "from test-*.parquet":
            _check_one_folder(own)
        _check_complete(own)
    return _Files(root, {part: files.get(part, []) for part in _PARTS}, test_origin)


def _data_folder(name: str) -> Path | None:
    """Return where FEDEAS_DATA says that a data set is, if it is set."""
    root = os.environ.get("FEDEAS_DATA")
    return None if root is None else Path(root) / name


def _check_one_folder(paths: list[Path]) -> None:
    """Refuse files of several folders: a data set of the hub has one for every configuration."""
    within = sorted({str(path.parent) for path in paths})
    if len(within) > 1:
        raise InputError(
            "there are several configurations of this data set, and their samples may be the same",
            got=[Path(folder).name for folder in within],
            allowed="one folder of Parquet files",
            fix=f"name one of them as the folder: {within[0]}",
        )


def _check_complete(paths: list[Path]) -> None:
    """Refuse an incomplete set, as an interrupted download leaves it: file names give the number.

    `train-00000-of-00003.parquet` is one of three.
    """
    said = [match for path in paths if (match := _SHARD.search(path.stem))]
    for match in said:
        if len({own[1] for own in said if own[2] == match[2]}) < int(match[2]):
            raise InputError(
                f"files are missing in {paths[0].parent}",
                got=", ".join(path.name for path in paths),
                allowed=f"{int(match[2])} of them",
                fix="download the rest",
            )


def _image_files(folder: Path, parts: Sequence[str]) -> tuple[dict[str, list[Path]], str]:
    """Find images by class; without a test set, every fifth of a class is for testing."""
    found_in = {part: _images(folder / part) for part in parts}
    if any(found_in.values()):
        files = {
            part: [p for own in found.values() for p in own] for part, found in found_in.items()
        }
        return files, "from the folder test/"
    found = _images(folder).values()
    if len(parts) == 1:
        return {parts[0]: [p for own in found for p in own]}, "all images of the folder"
    files = {
        "train": [p for own in found for n, p in enumerate(own) if (n + 1) % _EVERY],
        "test": [p for own in found for n, p in enumerate(own) if not (n + 1) % _EVERY],
    }
    return files, "every fifth image of each class, set aside by fedeas"


def _images(folder: Path) -> dict[str, list[Path]]:
    """Return the images of every subfolder, by its name."""
    if not folder.is_dir():
        return {}
    found = {
        own.name: sorted(p for p in own.iterdir() if p.suffix.lower() in IMAGE_FILES)
        for own in folders(folder)
    }
    return {name: paths for name, paths in found.items() if paths}


def _encoded_files(paths: Iterable[Path], classes: tuple[str, ...]) -> Iterator[Encoded]:
    """Yield image files; their folders are their classes."""
    label = {name: c for c, name in enumerate(classes)}
    for path in paths:
        check_regular(path, _MOST_BYTES, "scale the image down")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        yield path, content, label[path.parent.name]


def _encoded_rows(paths: Iterable[Path]) -> Iterator[Encoded]:
    """Yield the images of Parquet files."""
    for path in paths:
        for contents, labels in parquet.image_batches(path):
            yield from zip([path] * len(contents), contents, labels.tolist(), strict=True)


def _hub_files(name: str) -> _Files:
    """Fetch the Parquet files of a data set from the Hugging Face hub."""
    looked = f"FEDEAS_DATA is not set: set it to a folder that holds {name}/"
    if (folder := _data_folder(name)) is not None:
        looked = f"there is no folder {folder}, where FEDEAS_DATA says to look"
    patterns = [f"*{part}-*.parquet" for part in _PARTS]
    files = _local_files(name, hub.fetch(name, "dataset", patterns, looked))
    if files is None:
        raise InputError(f"the data set {name!r} has no Parquet files")
    return files
