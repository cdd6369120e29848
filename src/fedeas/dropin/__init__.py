"""Two lines for somebody's Flower app: a data set with synthetic samples, and honest weights."""

from fedeas.dropin.entry import augment
from fedeas.dropin.examples import real_examples_mod

__all__ = ["augment", "real_examples_mod"]
