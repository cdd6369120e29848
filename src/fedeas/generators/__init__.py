"""What makes synthetic images: a protocol of two members, and what fulfils it."""

from fedeas.generators.generator import Generator, make_generator, open_generator
from fedeas.generators.pool import Pool

__all__ = ["Generator", "Pool", "make_generator", "open_generator"]
