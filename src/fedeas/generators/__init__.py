"""Generators of synthetic samples: a protocol of two members, and its implementations."""

from fedeas.generators.controls import Noise, Pool
from fedeas.generators.gaussian import Gaussian, Moments
from fedeas.generators.protocol import (
    Classes,
    Generator,
    check_classes,
    check_fits,
    check_shape,
    check_stated_classes,
    count_classes,
    find_resampler,
    make_generator,
    open_generator,
    stated_quality,
)
from fedeas.generators.resampler import Copies, LocalArrays, LocalSamples, Resampler, Smote
from fedeas.generators.row_space import RowSpace

__all__ = [
    "Classes",
    "Copies",
    "Gaussian",
    "Generator",
    "LocalArrays",
    "LocalSamples",
    "Moments",
    "Noise",
    "Pool",
    "Resampler",
    "RowSpace",
    "Smote",
    "check_classes",
    "check_fits",
    "check_shape",
    "check_stated_classes",
    "count_classes",
    "find_resampler",
    "make_generator",
    "open_generator",
    "stated_quality",
]
