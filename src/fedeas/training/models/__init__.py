"""Models: one file each. Classifiers turn samples into a logit per class; `unet` draws images."""

from fedeas.training.models.classifier import Classifier, Wrapped
from fedeas.training.models.registry import MODELS, load_weights, make_model
from fedeas.training.models.unet import Denoiser

__all__ = ["MODELS", "Classifier", "Denoiser", "Wrapped", "load_weights", "make_model"]
