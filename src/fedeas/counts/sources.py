"""Label counts from what a command is given: a table in the strict form, or a folder of images."""

from collections.abc import Iterator
from pathlib import Path

from fedeas._internal.files import IMAGE_FILES, folders
from fedeas.counts.files import table_of_pairs
from fedeas.counts.label_counts import LabelCounts
from fedeas.errors import InputError


def read_counts(path: Path) -> LabelCounts:
    """Read a table of counts, or count the images of `client/class/image.png`."""
    if not path.is_dir():
        return LabelCounts.load(path)
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
