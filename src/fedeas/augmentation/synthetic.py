"""Synthetic samples after the real ones: a client's request, NumPy arrays, Hugging Face data sets.

Samples are generated once, from the client's own labels alone, and then read from disk.
"""

import copy
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.cache import ClientSamples
from fedeas.errors import InputError, MissingExtraError
from fedeas.generators import Classes, LocalArrays, LocalSamples, count_classes
from fedeas.planning.plan import ClientPlan

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A client's real labels, and the images and labels to add to them."""

    real: Ints
    images: Bytes
    labels: Ints


def synthesize(
    labels: ArrayLike,
    data_classes: Classes | None,
    samples: ClientSamples,
    classes: Classes | None,
    own: LocalSamples | None = None,
    check: Callable[[Bytes], object] | None = None,
    before: Callable[[], None] | None = None,
) -> Synthetic:
    """Return the images that the policy wants for these labels, generated where missing.

    Parameters
    ----------
    labels : array of int
        The client's own.
    data_classes : sequence of str or int, optional
        What the data set says about its classes.
    samples : ClientSamples
        The client's policy, generator and cache.
    classes : sequence of str or int, optional
        The classes of the federation; they go before what the data set says.
    own : LocalSamples, optional
        The client's own samples, of which copies are made.
    check : callable, optional
        Is given the first images that are generated, and may refuse them.
    before : callable, optional
        Is called before any is, and may refuse the data set.
    """
    all_classes = data_classes if classes is None else classes
    if all_classes is None:
        # Labels alone do not tell, since a client may lack the last class.
        all_classes = samples.known_classes()
    if all_classes is None:
        raise InputError(
            "neither the data set nor the generator says how many classes there are",
            fix="pass classes=10, or their names",
        )
    real = _check_labels(labels, count_classes(all_classes))
    n = np.bincount(real, minlength=count_classes(all_classes))
    if not samples.planned(n, all_classes).any():
        if classes is None and data_classes is not None:
            _warn_of_few_classes(samples, n)
    elif before is not None:
        before()
    return Synthetic(real, *samples.draw(n, all_classes, own=own, check=check))


def _warn_of_few_classes(samples: ClientSamples, n: Ints) -> None:
    """Warn that nothing is generated where a class that the client lacks may be unknown.

    A folder of images shows the classes that one client has, and a policy fills those that it
    knows. Not if one class more would change nothing.
    """
    if isinstance(samples.policy, ClientPlan):
        return
    with suppress(InputError):  # a policy that names the classes knows how many there are
        if n.all() and samples.policy.local(np.append(n, 0)).any():
            warnings.warn(
                f"client {samples.client}: {n.size} classes found, nothing to generate; pass "
                "classes= if the federation has more",
                UserWarning,
                stacklevel=2,
            )


def _check_labels(labels: ArrayLike, classes: int) -> Ints:
    """Return labels that are integers from 0 to classes - 1, or refuse them."""
    values = np.asarray(labels)
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise InputError(
            "labels must be integers",
            got=f"{values.dtype} of shape {values.shape}",
            allowed="one integer per sample",
        )
    if values.size and not 0 <= values.min() <= values.max() < classes:
        wrong = values.min() if values.min() < 0 else values.max()
        raise InputError(
            "a label without a class",
            got=int(wrong),
            allowed=f"0 to {classes - 1}",
            fix="pass classes= if there are more",
        )
    return values.astype(np.int64)


def picture(pixels: NDArray[np.uint8]) -> Any:
    """Turn height x width x channels into a PIL image, grey, RGB or RGBA."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("a picture of a synthetic sample", "train") from None
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


class Arrays(tuple[NDArray[np.uint8], NDArray[Any]]):
    """The pair (images, labels), of which the first `num_real` samples are real."""

    num_real: int

    def __new__(cls, images: NDArray[np.uint8], labels: NDArray[Any], num_real: int) -> "Arrays":
        """Make a pair that knows how many of its samples are real."""
        pair = super().__new__(cls, (images, labels))
        pair.num_real = num_real
        return pair

    def __getnewargs__(self) -> tuple[NDArray[np.uint8], NDArray[Any], int]:
        return self[0], self[1], self.num_real


def augment_arrays(
    images: NDArray[np.uint8], labels: NDArray[Any], samples: ClientSamples, classes: Classes | None
) -> Arrays:
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

    own = LocalArrays(images, labels)
    synthetic = synthesize(labels, None, samples, classes, own, like_real)
    if not len(synthetic.labels):
        return Arrays(images, labels, len(labels))
    new = synthetic.images
    if (new.shape[1:], new.dtype) != (images.shape[1:], images.dtype):
        new = like_real(new)
    return Arrays(
        np.concatenate([images, new]),
        np.concatenate([labels, synthetic.labels.astype(labels.dtype)]),
        len(labels),
    )


def augment_hugging_face(dataset: Any, samples: ClientSamples, classes: Classes | None) -> Any:
    """Append synthetic rows; the data set's own transform or format applies to them too."""
    image, label = _columns(dataset)
    # Labels only: images stay undecoded, and the user's transform is not called.
    labels = dataset.with_format("numpy", columns=[label])[:][label] if len(dataset) else []

    def with_rows(images: Any, new_labels: Any) -> Any:
        check_pixels(images)
        result = _with_rows(dataset, image, label, images, new_labels)
        _check_rows(dataset, result)
        return result

    def check(images: Any) -> None:
        with_rows(images[:1], np.zeros(1, np.int64))

    names = dataset.features[label].names
    synthetic = synthesize(labels, names, samples, classes, check=check)
    if len(synthetic.labels):
        result = with_rows(synthetic.images, synthetic.labels)
    else:
        result = copy.copy(dataset)
    result.num_real = len(dataset)
    return result


def _check_rows(dataset: Any, result: Any) -> None:
    """Refuse synthetic rows that do not look like the real ones."""
    if len(dataset):
        first, new = dataset[0], result[len(dataset)]
        for column in first:
            fix = "choose a generator of the same size and colours, or resize and convert before"
            check_form(column, new.get(column), first[column], fix)


def _with_rows(dataset: Any, image: str, label: str, images: Any, labels: Any) -> Any:
    from datasets import Dataset, concatenate_datasets

    rows = Dataset.from_dict(
        {image: [picture(pixels) for pixels in images], label: labels.tolist()},
        features=dataset.features,
    )
    # Concatenation drops formats that differ, so they are taken off before and put on after.
    result = concatenate_datasets([dataset.with_format(None), rows])
    form = dataset.format
    result.set_format(
        form["type"], form["columns"], form["output_all_columns"], **form["format_kwargs"]
    )
    return result


def _columns(dataset: Any) -> tuple[str, str]:
    """Return the image column and the label column; there must be no others."""
    from datasets import ClassLabel, Image

    features = dataset.features
    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    labels = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    if len(images) != 1 or len(labels) != 1 or len(features) != 2:
        raise InputError(
            "a synthetic row has an image and a label",
            got=list(features),
            allowed="one column of the feature Image and one of the feature ClassLabel",
            fix="use select_columns([...]), cast_column(...) or class_encode_column(...) before",
        )
    return images[0], labels[0]
