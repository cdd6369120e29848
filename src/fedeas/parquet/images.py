"""Parquet of images as the Hugging Face hub has it: encoded images, labels, names of classes."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.limits import LARGEST_LABEL, check_cells
from fedeas.parquet.arrow import open_file, pyarrow, readable

LABEL_COLUMNS = ("label", "labels", "fine_label")
_MOST_BYTES, _MOST_IMAGES = 1 << 28, 512  # of encoded images that are read at a time


def read_column(path: Path, name: str | None) -> NDArray[np.int64]:
    """Read one column of whole numbers, the labels of a data set, without its images."""
    with readable(path):
        file = open_file(path)
        names = file.schema_arrow.names
        chosen = name or next((n for n in LABEL_COLUMNS if n in names), None)
        if chosen is None or chosen not in names:
            raise InputError(f"{path} has no column of labels", got=name, allowed=", ".join(names))
        check_cells(file.metadata.num_rows, str(path))
        _check_whole(path, file.schema_arrow, chosen)
        column = file.read([chosen]).column(0)
        if column.null_count:
            raise InputError(f"{path} column {chosen!r} has empty cells", allowed="whole numbers")
        return np.asarray(column.to_numpy(), dtype=np.int64)


class ImageHead(NamedTuple):
    """What is known about a set of images before any is read."""

    rows: int
    classes: tuple[str, ...]


def image_head(paths: Sequence[Path]) -> ImageHead:
    """Return the size of a set of images and the names of its classes, from the files' headers."""
    rows, classes = 0, tuple[str, ...]()
    for path in paths:
        with readable(path):
            file = open_file(path)
            rows += file.metadata.num_rows
            classes = max(classes, _class_names(path, file), key=len)
    check_cells(rows, f"{paths[0].parent} with {rows:,} images")
    return ImageHead(rows, classes)


def has_images(path: Path) -> bool:
    """Tell whether a file holds images, and not only rows of a table."""
    with readable(path):
        return bool(_images_in(open_file(path).schema_arrow))


def image_batches(path: Path) -> Iterator[tuple[list[bytes], NDArray[np.int64]]]:
    """Yield encoded images and their labels, a few hundred at a time."""
    with readable(path):
        file = open_file(path)
        image, label = _image_columns(path, file)
        rows = _images_at_once(file, image)
        for batch in file.iter_batches(rows, columns=[image, label]):
            encoded = batch.column(image).field("bytes").to_pylist()
            if batch.column(label).null_count or None in encoded:
                raise InputError(f"{path} has rows without an image or a label")
            yield encoded, np.asarray(batch.column(label).to_numpy(), dtype=np.int64)


def _images_at_once(file: Any, image: str) -> int:
    """Return how many images are read at a time, so that they fit in memory however large one is.

    A file may hold one value and repeat it: none is larger than its column in one row group.
    """
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    chunks = (group.column(c) for group in groups for c in range(group.num_columns))
    sizes: list[int] = [
        c.total_uncompressed_size for c in chunks if c.path_in_schema.startswith(f"{image}.")
    ]
    return max(1, min(_MOST_IMAGES, _MOST_BYTES // max([1, *sizes])))


def write_images(
    path: Path, encoded: Sequence[bytes], labels: Sequence[int], classes: Sequence[str]
) -> None:
    """Write encoded images and their labels as data sets of the Hugging Face hub have them."""
    features = {"label": {"names": list(classes), "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    images = [{"bytes": content, "path": None} for content in encoded]
    table = pyarrow("").table({"image": images, "label": list(labels)})
    pyarrow("parquet").write_table(table.replace_schema_metadata(metadata), path)


def _images_in(schema: Any) -> list[str]:
    """Return the columns that hold encoded images."""
    types = pyarrow("types")
    return [
        f.name
        for f in schema
        if types.is_struct(f.type)
        and f.type.get_field_index("bytes") >= 0
        and types.is_binary(f.type.field("bytes").type)
    ]


def _image_columns(path: Path, file: Any) -> tuple[str, str]:
    schema = file.schema_arrow
    images = _images_in(schema)
    labels = [name for name in LABEL_COLUMNS if name in schema.names]
    if not images or not labels:
        raise InputError(
            f"{path} holds no labelled images",
            got=schema.names,
            allowed="a column of images {bytes, path} and one of labels",
        )
    _check_whole(path, schema, labels[0])
    return images[0], labels[0]


def _check_whole(path: Path, schema: Any, name: str) -> None:
    if not pyarrow("types").is_integer(schema.field(name).type):
        raise InputError(
            f"{path} column {name!r} is of type {schema.field(name).type}", allowed="whole numbers"
        )


def _class_names(path: Path, file: Any) -> tuple[str, ...]:
    """Read the names of classes that Hugging Face data sets keep in the file's header."""
    _, label = _image_columns(path, file)
    try:
        head = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
        return tuple(map(str, head["info"]["features"][label]["names"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return tuple(map(str, range(_largest_label(path, file, label) + 1)))


def _largest_label(path: Path, file: Any, name: str) -> int:
    largest = 0
    for batch in file.iter_batches(65_536, columns=[name]):
        if batch.column(0).null_count:
            raise InputError(f"{path} has rows without an image or a label")
        values = batch.column(0).to_numpy()
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if low < 0 or high > LARGEST_LABEL:
            raise InputError(
                f"{path} has a label out of range",
                got=low if low < 0 else high,
                allowed=f"0 to {LARGEST_LABEL:,}",
            )
        largest = max(largest, high)
    return largest
