"""A client's synthetic images, from its own labels alone: generated once, then read from disk."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.cache import ClientSamples
from fedeas.errors import InputError
from fedeas.generators import Classes, Generator, OwnSamples, count_classes

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """What a client's synthetic samples follow from, besides its data set."""

    samples: ClientSamples
    classes: Classes | None = None  # goes before what the data set says


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A client's real labels, and the images and labels to add to them."""

    real: Ints
    images: Bytes
    labels: Ints


def synthesize(
    labels: ArrayLike,
    classes: Classes | None,
    order: Order,
    own: OwnSamples | None = None,
    check: Callable[[Bytes], None] | None = None,
    before: Callable[[], None] | None = None,
) -> Synthetic:
    """Return the images that the policy wants for these labels, generated where missing.

    Parameters
    ----------
    labels : array of int
        The client's own.
    classes : sequence of str or int, optional
        What the data set says about its classes.
    order : Order
        What the samples follow from besides.
    own : OwnSamples, optional
        The client's own samples, of which copies are made.
    check : callable, optional
        Is given the first images that are generated, and may refuse them.
    before : callable, optional
        Is called before any is, and may refuse the data set.
    """
    found = order.classes is None and classes is not None
    classes = classes if order.classes is None else order.classes
    if classes is None:
        classes = _classes_of(order.samples.open_generator())
    real = _checked(labels, count_classes(classes))
    n = np.bincount(real, minlength=count_classes(classes))
    if not order.samples.planned(n, classes).any():
        if found:
            warn_of_few_classes(order.samples, n)
    elif before is not None:
        before()
    return Synthetic(real, *order.samples.draw(n, classes, own=own, check=check))


def warn_of_few_classes(samples: ClientSamples, n: Ints) -> None:
    """Warn that nothing is generated where a class that the client lacks may be unknown.

    A folder of images shows the classes that one client has, and a policy fills those that it
    knows. Not if one class more would change nothing.
    """
    with suppress(InputError):  # a policy that names the classes knows how many there are
        if n.all() and samples.policy.local(np.append(n, 0)).any():
            warnings.warn(
                f"client {samples.client}: {n.size} classes found, nothing to generate; pass "
                "classes= if the federation has more",
                UserWarning,
                stacklevel=2,
            )


def _checked(labels: ArrayLike, classes: int) -> Ints:
    """Return labels that are whole numbers from 0 to classes - 1, or refuse them."""
    found = np.asarray(labels)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise InputError(
            "not labels",
            got=f"{found.dtype} of shape {found.shape}",
            allowed="a whole number per sample",
        )
    if found.size and not 0 <= found.min() <= found.max() < classes:
        wrong = found.min() if found.min() < 0 else found.max()
        raise InputError(
            "a label without a class",
            got=int(wrong),
            allowed=f"0 to {classes - 1}",
            fix="say classes= if there are more",
        )
    return found.astype(np.int64)


def _classes_of(generator: Generator) -> Classes:
    """Ask the generator: labels alone do not tell, since a client may lack the last class."""
    known: Sequence[str] | None = getattr(generator, "classes", None)
    if known is None:
        raise InputError(
            "neither the data set nor the generator says how many classes there are",
            fix="say classes=10, or their names",
        )
    return known
