"""Two lines for a Flower app: a data set with synthetic samples, and correct client weights."""

from fedeas.augmentation.examples import report_real_num_examples
from fedeas.augmentation.training_set import augment

__all__ = ["augment", "report_real_num_examples"]
