"""Models: one file each. Each turns samples into a logit per class."""

from fedeas.training.models.classifier import Classifier, Wrapped
from fedeas.training.models.registry import MODELS, load_weights, make_model

__all__ = ["MODELS", "Classifier", "Wrapped", "load_weights", "make_model"]
