"""Encoded images to arrays, a bounded number of pixels at a time, and arrays to PNG."""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import MAX_PIXELS
from fedeas.errors import InputError, MissingExtraError, first_line

Bytes = NDArray[np.uint8]
# Not every format that Pillow opens: for some it starts another program.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "JPEG2000", "PPM")
_ANIMATED = {"PNG", "GIF", "WEBP", "TIFF"}  # a JPEG may hold a preview besides the picture
_MOST_BYTES, _MOST_IMAGES = 1 << 26, 512  # of decoded images in memory at a time


def decoded(
    encoded: Iterable[tuple[Path, bytes]],
    labels: NDArray[np.int64],
    progress: Callable[[int, int], None] | None,
) -> Iterator[tuple[Bytes, NDArray[np.int64]]]:
    """Yield decoded images and their labels in batches of a bounded number of pixels.

    An image comes with the file that it is from.
    """
    images: list[Bytes] = []
    start, total = 0, len(labels)
    for done, (path, content) in enumerate(encoded, start=1):
        image = _decode(content, path)
        if images and image.shape != images[0].shape:
            raise InputError(
                f"{path} holds images of different sizes", got=[images[0].shape, image.shape]
            )
        images.append(image)
        if len(images) == _MOST_IMAGES or len(images) * image.size >= _MOST_BYTES or done == total:
            yield np.stack(images), labels[start:done]
            images, start = [], done
            if progress is not None:
                progress(done, total)


def decode_images(paths: Sequence[Path]) -> Bytes:
    """Return images of one size as an array."""
    contents = ((path, path.read_bytes()) for path in paths)
    batches = decoded(contents, np.zeros(len(paths), np.int64), None)
    return np.concatenate([images for images, _ in batches])


def encode_png(image: Bytes) -> bytes:
    """Return an image, height x width x channels of 8 bits, as PNG."""
    buffer = io.BytesIO()
    _pillow().fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(buffer, "PNG")
    return buffer.getvalue()


def decode_png(content: bytes, shape: tuple[int, ...]) -> Bytes:
    """Return an image that `encode_png` wrote; refuse one of another shape."""
    image = _decode(content, Path("an image"))
    if image.shape != shape:
        raise InputError("an image of another shape", got=image.shape, allowed=str(shape))
    return image


def _decode(content: bytes, path: Path) -> Bytes:
    """Decode one picture to height x width x channels of 8 bits: one if it is grey, else three.

    What 8 bits do not hold, or can be read in two ways, is refused: more bits, whose range only
    whoever took the picture knows; parts that can be seen through; several pictures in a file.
    """
    library = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.DecompressionBombWarning)  # ours is stricter
            image = library.open(io.BytesIO(content), formats=_FORMATS)
        with image:
            if image.width * image.height > MAX_PIXELS:
                raise library.DecompressionBombError
            pixels = np.asarray(_plain(image, path))
    except (MemoryError, InputError):
        raise
    except library.DecompressionBombError:
        raise InputError(
            f"{path} holds an image that is too large",
            allowed=f"at most {MAX_PIXELS:,} pixels, as 8192 x 8192",
            fix="scale it down",
        ) from None
    except Exception as error:  # the library can raise anything on a hostile file
        raise InputError(
            f"{path} holds an image that cannot be decoded: {first_line(error)}"
        ) from None
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]


def _plain(image: Any, path: Path) -> Any:
    """Return a picture in grey or RGB, or refuse it."""
    # Of 16 bits of a colour, the library would keep 8; of 16 bits of grey, nothing above 255.
    if image.mode[:1] in ("I", "F") or any(";16" in str(tile[3]) for tile in image.tile):
        raise InputError(
            f"{path} holds an image of more than 8 bits",
            got=image.mode,
            allowed="8 bits a channel",
            fix="scale its range of values to 0 to 255 first: only you know which range that is",
        )
    if image.format in _ANIMATED and getattr(image, "n_frames", 1) > 1:
        raise InputError(
            f"{path} holds several images",
            got=image.n_frames,
            allowed="one image a file",
            fix="save each of them to a file of its own",
        )
    grey = image.mode in ("1", "L", "LA", "La")
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema()[0] < 255:
            raise InputError(
                f"{path} holds an image with transparent parts",
                allowed="opaque images",
                fix="put it on a background first: its colours are in the data",
            )
    return image.convert("L" if grey else "RGB")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("decoding images", "train") from None
    return Image
