"""Generators of synthetic samples: a protocol of two members, and its implementations."""

from fedeas.generators.copies import Copies, OwnSamples
from fedeas.generators.generator import (
    Classes,
    Generator,
    check_classes,
    count_classes,
    make_generator,
    open_generator,
)
from fedeas.generators.noise import Noise
from fedeas.generators.pool import Pool

__all__ = [
    "Classes",
    "Copies",
    "Generator",
    "Noise",
    "OwnSamples",
    "Pool",
    "check_classes",
    "count_classes",
    "make_generator",
    "open_generator",
]
