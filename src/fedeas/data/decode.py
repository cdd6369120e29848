"""Encoded images to arrays, a bounded number of pixels at a time, and arrays to PNG."""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError, MissingExtraError, first_line
from fedeas.limits import MAX_PIXELS

Bytes = NDArray[np.uint8]
Encoded = tuple[Path, bytes, int]  # where an image comes from, its bytes, its label
# Not every format that Pillow opens: for some it starts another program.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "JPEG2000", "PPM")
_MOST_BYTES, _MOST_IMAGES = 1 << 26, 512  # of decoded images in memory at a time


def decoded(
    encoded: Iterable[Encoded], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[Bytes, NDArray[np.int64]]]:
    """Yield decoded images in batches of a bounded number of pixels."""
    images: list[Bytes] = []
    labels: list[int] = []
    for done, (path, content, label) in enumerate(encoded, start=1):
        image = _decode(content, path)
        if images and image.shape != images[0].shape:
            raise InputError(
                f"{path} holds images of different sizes", got=[images[0].shape, image.shape]
            )
        images.append(image)
        labels.append(label)
        if len(images) == _MOST_IMAGES or len(images) * image.size >= _MOST_BYTES or done == total:
            yield np.stack(images), np.array(labels, np.int64)
            images, labels = [], []
            if progress is not None:
                progress(done, total)
    if images:
        yield np.stack(images), np.array(labels, np.int64)


def _decode(content: bytes, path: Path) -> Bytes:
    """Decode one PNG, WebP or JPEG to height x width x channels; grey stays one channel."""
    library = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.DecompressionBombWarning)  # ours is stricter
            image = library.open(io.BytesIO(content), formats=_FORMATS)
    except library.DecompressionBombError:
        raise _too_large(path) from None
    except Exception as error:  # the library can raise anything on a hostile file
        raise _undecodable(path, error) from None
    with image:
        if image.width * image.height > MAX_PIXELS:
            raise _too_large(path)
        try:
            pixels = np.asarray(image if image.mode == "L" else image.convert("RGB"))
        except MemoryError:
            raise
        except Exception as error:  # the library can raise anything on a hostile file
            raise _undecodable(path, error) from None
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]


def encode_png(image: Bytes) -> bytes:
    """Return an image, height x width x channels, as PNG; nothing is lost."""
    channels = image.shape[2]
    if channels not in (1, 2, 3, 4):  # grey or RGB, each also with transparency
        raise InputError("PNG has one to four channels", got=channels, fix="export to Parquet")
    buffer = io.BytesIO()
    pixels = image[:, :, 0] if channels == 1 else image
    _pillow("writing PNG").fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _undecodable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} holds an image that cannot be decoded: {first_line(error)}")


def _too_large(path: Path) -> InputError:
    return InputError(
        f"{path} holds an image that is too large",
        allowed=f"at most {MAX_PIXELS:,} pixels, as 8192 x 8192",
        fix="scale it down",
    )


def _pillow(purpose: str = "decoding images") -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(purpose, "data") from None
    return Image
