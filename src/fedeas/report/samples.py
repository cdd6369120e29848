"""Pictures of samples: a row for every class, enlarged without smoothing."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import MissingExtraError
from fedeas.files import atomic_write
from fedeas.generators import Generator

Bytes = NDArray[np.uint8]
_HIGH = 48  # pixels that an image is enlarged to, as far as whole factors allow


def class_grid(generator: Generator, classes: int, each: int, seed: int = 0) -> Bytes:
    """Draw `each` images of every class, uncurated: classes x each x height x width x channels."""
    labels = np.repeat(np.arange(classes), each)
    seeds = np.arange(labels.size, dtype=np.uint64) + np.uint64(seed * labels.size)
    images = generator.sample(labels, seeds)
    return images.reshape(classes, each, *images.shape[1:])


def first_of_classes(
    images: Bytes, labels: NDArray[np.int64], names: Sequence[str], each: int = 10
) -> Bytes:
    """Return the first images of every class as a grid, no more columns than are needed."""
    found = [list(images[labels == label][:each]) for label in range(len(names))]
    return padded(found, max(map(len, found)))


def padded(found: Sequence[Sequence[Bytes]], each: int) -> Bytes:
    """Return `each` images of every class; blank ones where there are fewer."""
    blank = np.full_like(next(own[0] for own in found if own), 255)
    return np.stack([np.stack([*own, *[blank] * (each - len(own))]) for own in found])


def save_grid(grid: Bytes, names: Sequence[str], file: Path) -> None:
    """Write a grid as PNG, with the name of the class before every row."""
    content = grid_picture(grid, names)
    with atomic_write(file) as temporary:
        temporary.write_bytes(content)


def grid_picture(grid: Bytes, names: Sequence[str]) -> bytes:
    """Return a grid as PNG, with the name of the class before every row."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ModuleNotFoundError:
        raise MissingExtraError("drawing samples", "data") from None
    rows, each, height, width, channels = grid.shape
    scale = max(2, _HIGH // height)
    gap, margin = 2, 9 * max(len(name) for name in names) + 16
    high, wide = height * scale + gap, width * scale + gap
    page = Image.new("RGB", (margin + each * wide, rows * high), "white")
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(size=15)
    for row, name in enumerate(names):
        middle = row * high + high // 2
        draw.text((margin - 8, middle), name, fill="black", font=font, anchor="rm")
        for column, pixels in enumerate(grid[row]):
            image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
            enlarged = image.resize((width * scale, height * scale), Image.Resampling.NEAREST)
            page.paste(enlarged.convert("RGB"), (margin + column * wide, row * high))
    buffer = io.BytesIO()
    page.save(buffer, "PNG")
    return buffer.getvalue()
