"""Real images and tables: read once into memory-mapped arrays, shared by every process."""

from fedeas.data.columns import INFER_ALL, TableOptions
from fedeas.data.dataset import Dataset, Sites, describe_columns
from fedeas.data.federation import Federation, federate
from fedeas.data.load import is_local, load_images, load_table, open_dataset
from fedeas.data.schema import Column, Schema

__all__ = [
    "INFER_ALL",
    "Column",
    "Dataset",
    "Federation",
    "Schema",
    "Sites",
    "TableOptions",
    "describe_columns",
    "federate",
    "is_local",
    "load_images",
    "load_table",
    "open_dataset",
]
