"""Counts from what a command is given: a table, of label sets too, or a folder of images."""

from collections.abc import Iterator
from pathlib import Path

from fedeas._internal.files import IMAGE_FILES, folders
from fedeas.counts.files import parse, read_raw, table_of_pairs
from fedeas.counts.label_counts import LabelCounts
from fedeas.counts.label_set_files import kept_label_sets, parse_label_sets
from fedeas.counts.label_sets import LabelSetCounts
from fedeas.errors import InputError


def read_counts(path: Path) -> LabelCounts | LabelSetCounts:
    """Read a table of counts or of label sets, or count the images of `client/class/image.png`.

    A table is opened once.
    """
    if path.is_dir():
        return _count_images(path)
    if path.suffix.lower() == ".parquet":
        return LabelCounts.load(path)
    raw, holds_label_sets = kept_label_sets(read_raw(path))
    if holds_label_sets:
        return LabelSetCounts(**parse_label_sets(path, raw))
    return LabelCounts.from_table(parse(path, raw), path)


def _count_images(path: Path) -> LabelCounts:
    pairs = list(_images(path))
    if len({label for _, label in pairs}) < 2:
        raise InputError(
            f"{path} holds no images of several classes by client",
            allowed="client/class/image.png",
            fix="put a folder per client above the classes",
        )
    table = table_of_pairs(pairs, [1] * len(pairs))
    return LabelCounts(table.values, table.clients, table.classes)


def _images(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the client and the class of every image."""
    for client in folders(path):
        for label in folders(client):
            for file in label.iterdir():
                if file.suffix.lower() in IMAGE_FILES:
                    yield client.name, label.name
