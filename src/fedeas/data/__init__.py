"""Real images: decoded once into memory-mapped arrays, shared by every process."""

from fedeas.data.dataset import Dataset
from fedeas.data.load import is_local, load_images
from fedeas.data.protocol import Federation, federate
from fedeas.data.schema import Column, Schema

__all__ = [
    "Column",
    "Dataset",
    "Federation",
    "Schema",
    "federate",
    "is_local",
    "load_images",
]
