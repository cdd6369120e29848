"""Pictures from arrays, and what a training loop sees of a sample."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError, MissingExtraError

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def picture(pixels: NDArray[np.uint8]) -> Any:
    """Turn height x width x channels into a PIL image, grey, RGB or RGBA."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("a picture of a synthetic sample", "data") from None
    channels = pixels.shape[-1]
    if channels not in _MODES:
        raise InputError("samples must be images", got=f"{channels} channels", allowed="1, 3 or 4")
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if channels == 1 else pixels))


def check_pixels(samples: NDArray[Any]) -> None:
    """Refuse what a generator of images may not return."""
    if samples.dtype != np.uint8 or samples.ndim != 4 or samples.shape[3] not in _MODES:
        fix = "return np.uint8, from 0 to 255"
        if samples.dtype == np.uint8:
            fix = "put the channels last: samples.transpose(0, 2, 3, 1)"
        raise InputError(
            "the generator returned something else than images",
            got=f"{' x '.join(map(str, samples.shape[1:]))} of {samples.dtype}",
            allowed="height x width x channels of uint8, with 1, 3 or 4 channels",
            fix=fix,
        )


def form(value: Any) -> str:
    """Describe the type, shape and dtype of a value.

    >>> form(np.zeros((28, 28), np.uint8))
    'ndarray 28 x 28 of uint8'
    """
    if hasattr(value, "mode") and hasattr(value, "getbands"):
        return f"picture {value.height} x {value.width} of {value.mode}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__} {' x '.join(map(str, value.shape))} of {value.dtype}"
    return type(value).__name__


def check_form(what: str, synthetic: Any, real: Any, fix: str) -> None:
    """Refuse a synthetic value of another type, shape or dtype than a real one."""
    if form(synthetic) != form(real):
        raise InputError(
            f"the {what} of a synthetic sample does not match a real one",
            got=form(synthetic),
            allowed=form(real),
            fix=fix,
        )
