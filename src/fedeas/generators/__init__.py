"""Generators of synthetic samples: a protocol of two members, and its implementations."""

from fedeas.generators.copies import Copies
from fedeas.generators.gaussian import Gaussian
from fedeas.generators.generator import (
    Classes,
    Generator,
    check_classes,
    check_stated_classes,
    count_classes,
    make_generator,
    open_generator,
    own_sample_generator,
    stated_quality,
)
from fedeas.generators.moments import Moments
from fedeas.generators.noise import Noise
from fedeas.generators.own_samples import OwnArrays, OwnSampleGenerator, OwnSamples
from fedeas.generators.pool import Pool
from fedeas.generators.row_space import RowSpace
from fedeas.generators.smote import Smote

__all__ = [
    "Classes",
    "Copies",
    "Gaussian",
    "Generator",
    "Moments",
    "Noise",
    "OwnArrays",
    "OwnSampleGenerator",
    "OwnSamples",
    "Pool",
    "RowSpace",
    "Smote",
    "check_classes",
    "check_stated_classes",
    "count_classes",
    "make_generator",
    "open_generator",
    "own_sample_generator",
    "stated_quality",
]
