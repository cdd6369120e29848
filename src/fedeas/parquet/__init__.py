"""The one place that touches Parquet: tables of counts, columns, images, and streams of rows."""

from fedeas.parquet.arrow import column_kinds, column_names, value_rows
from fedeas.parquet.counts import BATCH_CELLS, LARGEST, Batch, Source, Writer, opened, read, write
from fedeas.parquet.images import (
    LABEL_COLUMNS,
    ImageHead,
    image_batches,
    image_head,
    read_column,
    write_images,
)
from fedeas.parquet.samples import SampleWriter, sample_writer

__all__ = [
    "BATCH_CELLS",
    "LABEL_COLUMNS",
    "LARGEST",
    "Batch",
    "ImageHead",
    "SampleWriter",
    "Source",
    "Writer",
    "column_kinds",
    "column_names",
    "image_batches",
    "image_head",
    "opened",
    "read",
    "read_column",
    "sample_writer",
    "value_rows",
    "write",
    "write_images",
]
