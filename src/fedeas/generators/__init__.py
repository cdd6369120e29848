"""Generators of synthetic samples: a protocol of two members, and its implementations."""

from fedeas.generators.generator import (
    Classes,
    Generator,
    check_classes,
    count_classes,
    make_generator,
    open_generator,
)
from fedeas.generators.pool import Pool

__all__ = [
    "Classes",
    "Generator",
    "Pool",
    "check_classes",
    "count_classes",
    "make_generator",
    "open_generator",
]
