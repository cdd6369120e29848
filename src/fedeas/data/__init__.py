"""Real images and tables: read once into memory-mapped arrays, shared by every process."""

from fedeas.data.columns import ALL_FOUND, TableOptions
from fedeas.data.dataset import Dataset, Sites
from fedeas.data.describe import described
from fedeas.data.load import is_local, load_data, load_images
from fedeas.data.protocol import Federation, federate
from fedeas.data.schema import Column, Schema
from fedeas.data.tables import load_table

__all__ = [
    "ALL_FOUND",
    "Column",
    "Dataset",
    "Federation",
    "Schema",
    "Sites",
    "TableOptions",
    "described",
    "federate",
    "is_local",
    "load_data",
    "load_images",
    "load_table",
]
