"""A client's synthetic images, from its own labels alone: generated once, then read from disk."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.cache import Cache, ClientCache, client_samples
from fedeas.errors import InputError
from fedeas.generators import Generator, open_generator
from fedeas.policies import LocalPolicy

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Classes = Sequence[str] | int  # their names, or how many there are
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """What synthetic images follow from, beside the client's labels."""

    generator: str | Generator
    policy: LocalPolicy
    client: str
    cache: Path
    seed: int
    batch_size: int
    classes: Classes | None = None  # goes before what the data set says


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A client's real labels, and the images and labels to add to them."""

    real: Ints
    images: Bytes
    labels: Ints


def synthesize(labels: ArrayLike, classes: Classes | None, order: Order) -> Synthetic:
    """Return the images that the policy wants for these labels, generated where missing.

    They are known by the generator's fingerprint, the classes, the client's name and the seed: who
    asks again, in whatever process, gets the same images from disk, and with other counts those of
    them that are still wanted.
    """
    classes = classes if order.classes is None else order.classes
    if classes is None:
        classes = _classes_of(_opened(order.generator))
    real = _checked(labels, _count(classes))
    n = np.bincount(real, minlength=_count(classes))
    wanted = order.policy.local(n).tolist()
    if not any(wanted):
        return Synthetic(real, np.empty((0, 0, 0, 0), np.uint8), np.empty(0, np.int64))
    generator = _opened(order.generator)
    _check_classes(classes, generator)
    # The generator's own names where it has them: the same, however the data set spells them.
    known = getattr(generator, "classes", None)
    known = classes if known is None else known
    cache = Cache.of_client(order.cache, generator.fingerprint, known, order.seed)
    with _logged(cache.client(order.client), wanted):
        images = client_samples(order.client, wanted, generator, cache, order.batch_size)
    return Synthetic(real, *images)


@contextmanager
def _logged(own: ClientCache, wanted: Sequence[int]) -> Iterator[None]:
    """Log what is generated for a client, and how long that took."""
    total = f"{sum(wanted):,} images"
    try:
        missing = sum(segment.size for segment in own.missing(wanted))
        to_do = f"generating {missing:,} of {total}"
    except InputError:  # how many can be kept is known when they are mended
        to_do = f"mending {total}"
    else:
        if not missing:
            yield
            return
    _LOG.info("client %s: %s, kept in %s", own.name, to_do, own.folder)
    begun = time.monotonic()
    yield
    _LOG.info("client %s: %s ready after %.1f s", own.name, total, time.monotonic() - begun)


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


def _count(classes: Classes) -> int:
    if isinstance(classes, bool) or (isinstance(classes, int) and classes < 2):
        raise InputError("not a number of classes", got=classes, allowed="2 and more, or names")
    return classes if isinstance(classes, int) else len(classes)


def _classes_of(generator: Generator) -> Classes:
    """Ask the generator: labels alone do not tell, since a client may lack the last class."""
    known: Sequence[str] | None = getattr(generator, "classes", None)
    if known is None:
        raise InputError(
            "neither the data set nor the generator says how many classes there are",
            fix="say classes=10, or their names",
        )
    return known


def _check_classes(classes: Classes, generator: Generator) -> None:
    """Refuse a generator of other classes; spelling may differ, as 'T-shirt/top' does."""
    known: Sequence[str] | None = getattr(generator, "classes", None)
    if known is None:
        return
    same = len(known) == _count(classes)
    if same and not isinstance(classes, int):
        same = [_letters(name) for name in known] == [_letters(name) for name in classes]
    if not same:
        raise InputError(
            "the data set and the generator have different classes",
            got=classes if isinstance(classes, int) else list(classes),
            allowed=", ".join(known),
            fix="choose another generator, or say classes= if only the names differ",
        )


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _opened(generator: str | Generator) -> Generator:
    if isinstance(generator, str):
        return open_generator(generator)
    if not isinstance(generator, Generator):
        raise InputError(
            "not a generator",
            got=type(generator).__name__,
            allowed="a spec such as 'diffusion(model=fashion_mnist)', or an object with "
            "`fingerprint` and `sample`",
        )
    return generator
