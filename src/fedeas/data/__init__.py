"""Real images: decoded once into memory-mapped arrays, shared by every process."""

from fedeas.data.images import ImageData
from fedeas.data.load import load_images
from fedeas.data.protocol import Federation, federate

__all__ = ["Federation", "ImageData", "federate", "load_images"]
