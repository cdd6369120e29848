"""A pair of NumPy arrays, images and labels, with synthetic samples after the real ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.dropin.pictures import check_form, check_pixels
from fedeas.dropin.synthetic import Order, synthesize
from fedeas.errors import InputError
from fedeas.generators import OwnArrays


class Arrays(tuple[NDArray[np.uint8], NDArray[Any]]):
    """The pair (images, labels), of which the first `num_real` samples are real."""

    num_real: int

    def __new__(cls, images: NDArray[np.uint8], labels: NDArray[Any], num_real: int) -> "Arrays":
        """Make a pair that knows how many of its samples are real."""
        made = super().__new__(cls, (images, labels))
        made.num_real = num_real
        return made

    def __getnewargs__(self) -> tuple[NDArray[np.uint8], NDArray[Any], int]:
        return self[0], self[1], self.num_real


def augment_arrays(images: NDArray[np.uint8], labels: NDArray[Any], order: Order) -> Arrays:
    """Append synthetic images to uint8 images, N x height x width or with channels last."""
    if len(images) != len(labels):
        raise InputError(
            "images and labels differ in length",
            got=(len(images), len(labels)),
            allowed="a label per image",
        )

    def like_real(new: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return generated images in the form of the real ones, or refuse them."""
        check_pixels(new)
        if images.ndim == 3 and new.shape[-1] == 1:
            new = new[..., 0]
        if len(images):
            fix = "give uint8 images with channels last, before they are scaled"
            check_form("image", new[0], images[0], fix)
        return new

    def check(new: NDArray[np.uint8]) -> None:
        like_real(new)

    made = synthesize(labels, None, order, OwnArrays(images, labels), check)
    if not len(made.labels):
        return Arrays(images, labels, len(labels))
    copied = (made.images.shape[1:], made.images.dtype) == (images.shape[1:], images.dtype)
    new = made.images if copied else like_real(made.images)
    return Arrays(
        np.concatenate([images, new]),
        np.concatenate([labels, made.labels.astype(labels.dtype)]),
        len(labels),
    )
