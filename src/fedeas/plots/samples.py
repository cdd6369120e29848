"""Pictures of samples: a row for every class, enlarged without smoothing."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import atomic_write
from fedeas.errors import MissingExtraError

Bytes = NDArray[np.uint8]
_HIGH = 48  # pixels that an image is enlarged to, as far as whole factors allow


def first_of_classes(
    images: Bytes, labels: NDArray[np.int64], names: Sequence[str], each: int = 10
) -> Bytes:
    """Return the first images of every class as a grid, no more columns than are needed."""
    by_class = [list(images[labels == label][:each]) for label in range(len(names))]
    return padded(by_class, max(map(len, by_class)))


def padded(by_class: Sequence[Sequence[Bytes]], each: int) -> Bytes:
    """Return `each` images of every class; blank ones where there are fewer."""
    blank = np.full_like(next(row[0] for row in by_class if row), 255)
    return np.stack([np.stack([*row, *[blank] * (each - len(row))]) for row in by_class])


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
        raise MissingExtraError("drawing samples", "train") from None
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
