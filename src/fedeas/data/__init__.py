"""Real images: decoded once into memory-mapped arrays, shared by every process."""

from fedeas.data.dataset import Dataset
from fedeas.data.load import is_local, load_images
from fedeas.data.protocol import Federation, federate

__all__ = ["Dataset", "Federation", "federate", "is_local", "load_images"]
