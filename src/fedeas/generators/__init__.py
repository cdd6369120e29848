"""Generators of synthetic samples: a protocol of two members, and its implementations."""

from fedeas.generators.generator import Generator, make_generator, open_generator
from fedeas.generators.pool import Pool

__all__ = ["Generator", "Pool", "make_generator", "open_generator"]
