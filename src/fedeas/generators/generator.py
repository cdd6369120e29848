"""The protocol of a generator, and generators by name."""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.generators.pool import pool_of_data
from fedeas.specs import Registry

Ints = NDArray[np.int64]
Seeds = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

_REGISTRY = Registry("generator", "fedeas.generators", {"pool": pool_of_data})


@runtime_checkable
class Generator(Protocol):
    """Anything that draws images: two members are enough.

    `fingerprint` names everything that an image depends on besides its label and seed. `sample`
    returns one image (height x width x channels, uint8) per label and seed; the same label and
    seed give the same image in every batch, up to the rounding of floating point.
    """

    @property
    def fingerprint(self) -> str:
        """Name the generator: another fingerprint, other images."""
        ...

    def sample(self, labels: Ints, seeds: Seeds) -> Bytes:
        """Draw one image for every label, with its own seed; a batch may mix classes."""
        ...


def make_generator(spec: str, **offered: object) -> Generator:
    """Make a generator from 'pool(data=cifar10)', an entry point's name, or a dotted path."""
    generator = _REGISTRY.make(spec, offered)
    if not isinstance(generator, Generator):
        raise InputError(
            f"{spec!r} is no generator", allowed="an object with `fingerprint` and `sample`"
        )
    return generator
