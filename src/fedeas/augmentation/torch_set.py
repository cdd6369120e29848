"""A map-style torch data set with synthetic samples after the real ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Subset

from fedeas.augmentation.synthetic import (
    Synthetic,
    check_form,
    check_pixels,
    form,
    picture,
    synthesize,
)
from fedeas.cache import ClientSamples
from fedeas.errors import InputError, first_line
from fedeas.generators import Classes

Transform = Callable[[Any], Any]
_FIX = "pass transform=, a function from a PIL image to what the data set returns for one"


class Augmented(Dataset[Any]):
    """Real samples as they were, then synthetic ones: a picture through `transform`, a label."""

    def __init__(self, real: Any, synthetic: Synthetic, transform: Transform | None) -> None:
        self.real, self.num_real = real, len(real)
        self.classes = _inherited(real, "classes")
        self.targets = np.concatenate([synthetic.real, synthetic.labels]).tolist()
        self._images = synthetic.images
        self._transform = transform or _inherited(real, "transform")
        self._target_transform = _inherited(real, "target_transform")
        self._like: Any = 0  # a real label
        if len(self._images) and self.num_real:
            self._check()

    def __len__(self) -> int:
        return self.num_real + len(self._images)

    def __getitem__(self, index: int) -> Any:
        place = int(index) + len(self) * (index < 0)
        if not 0 <= place < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self.real[place] if place < self.num_real else self._synthetic(place)

    def _synthetic(self, place: int) -> tuple[Any, Any]:
        image = picture(self._images[place - self.num_real])
        label = self.targets[place]
        return (
            self._transform(image) if self._transform else image,
            self._target_transform(label) if self._target_transform else self._in_form(label),
        )

    def _in_form(self, label: int) -> Any:
        """Return a label in the data set's own type: a number, a NumPy one, or a tensor."""
        if isinstance(self._like, torch.Tensor):
            return torch.tensor(label, dtype=self._like.dtype)
        return self._like.dtype.type(label) if isinstance(self._like, np.generic) else label

    def _check(self) -> None:
        """Refuse what a data loader could not put into one batch."""
        first = _first_pair(self.real)
        self._like = first[1]
        try:
            image, label = self[self.num_real]
        except Exception as error:  # a user's transform can raise anything
            raise InputError(
                f"the transform does not take a PIL image: {first_line(error)}", fix=_FIX
            ) from None
        check_form("image", image, first[0], _FIX)
        check_form("label", label, first[1], "return labels as whole numbers")


def augment_torch(
    dataset: Any,
    labels: Any,
    samples: ClientSamples,
    classes: Classes | None,
    transform: Transform | None,
) -> Augmented:
    """Append synthetic samples to anything with a length and items (image, label)."""
    real = _labels(dataset) if labels is None else np.asarray(labels)
    if len(real) != len(dataset):
        raise InputError(
            "need one label per sample", got=len(real), allowed=f"{len(dataset)} labels, in order"
        )

    def check(images: NDArray[np.uint8]) -> None:
        check_pixels(images)
        Augmented(dataset, Synthetic(real, images[:1], np.zeros(1, np.int64)), transform)

    def before() -> None:
        if len(dataset) and transform is None and _inherited(dataset, "transform") is None:
            image = _first_pair(dataset)[0]
            if not hasattr(image, "getbands"):
                raise InputError(
                    "synthetic samples are PIL images, and the data set returns something else",
                    got=form(image),
                    fix=_FIX,
                )

    names = _inherited(dataset, "classes")
    synthetic = synthesize(real, names, samples, classes, check=check, before=before)
    return Augmented(dataset, synthetic, transform)


def _first_pair(dataset: Any) -> Any:
    """Return the first sample of a data set; refuse one that is not an image and a label."""
    first = dataset[0]
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise InputError(
            "samples are not pairs of an image and a label",
            got=type(first).__name__,
            allowed="(image, label)",
            fix="let the data set return an image and a label",
        )
    return first


def _labels(dataset: Any) -> NDArray[Any]:
    """Return the labels that a data set knows without opening an image."""
    if isinstance(dataset, Subset):
        return _labels(dataset.dataset)[np.asarray(dataset.indices, np.int64)]
    for name in ("targets", "labels"):
        if (labels := getattr(dataset, name, None)) is not None:
            return np.asarray(labels)
    raise InputError(
        "cannot find the labels of the data set",
        got=type(dataset).__name__,
        allowed="one with `targets` or `labels`",
        fix="pass labels=, one per sample",
    )


def _inherited(dataset: Any, name: str) -> Any:
    """Return an attribute of a data set, or of the one that it is a subset of; None if absent."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return getattr(dataset, name, None)
