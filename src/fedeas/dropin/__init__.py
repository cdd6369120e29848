"""Two lines for a Flower app: a data set with synthetic samples, and correct client weights."""

from fedeas.dropin.entry import augment
from fedeas.dropin.examples import real_examples_mod

__all__ = ["augment", "real_examples_mod"]
