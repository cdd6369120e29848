"""Small data sets of real pictures for tests that train."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from fedeas.data import Dataset

CLASSES = ("dot", "bar", "frame")


def draw_shapes(count: int, side: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Draw grey pictures of three shapes at random places; labels count 0, 1, 2, 0, ..."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 40, (count, side, side, 1)).astype(np.uint8)
    labels = np.arange(count) % 3
    for image, label in zip(images, labels, strict=True):
        x, y = rng.integers(1, side - 3, 2)
        if label == 0:
            image[x : x + 2, y : y + 2] = 220
        elif label == 1:
            image[:, y : y + 2] = 220
        else:
            image[[0, -1]] = 220
            image[:, [0, -1]] = 220
    return images, labels


def shapes(folder: Path, train: int = 48, test: int = 12, side: int = 8) -> Dataset:
    """Write a decoded data set of shapes."""
    images, labels = draw_shapes(train + test, side)
    sizes = (train, test)
    return Dataset.write(folder, "shapes", CLASSES, sizes, iter([(images, labels)]))


def encoded(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(buffer, "PNG")
    return buffer.getvalue()


def write_set(
    folder: Path,
    train: list[np.ndarray],
    test: list[np.ndarray],
    names: tuple[str, ...] = ("cat", "dog"),
) -> None:
    """Write two Parquet files as Hugging Face data sets have them; labels count 0, 1, 0, 1, ..."""
    features = {"label": {"names": list(names), "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    folder.mkdir(parents=True, exist_ok=True)
    for part, images in (("train", train), ("test", test)):
        rows = [image if isinstance(image, bytes) else encoded(image) for image in images]
        table = pa.table(
            {
                "image": [{"bytes": row, "path": None} for row in rows],
                "label": [i % len(names) for i in range(len(rows))],
            }
        ).replace_schema_metadata(metadata)
        pq.write_table(table, folder / f"{part}-00000-of-00001.parquet")
