"""The one place that touches Parquet: tables of counts, columns, images, and streams of rows."""

from fedeas.parquet.arrow import column_kinds, column_names, value_rows
from fedeas.parquet.columns import TABLE_FILES, OpenTable, Values, open_frame, open_tables
from fedeas.parquet.counts import (
    BATCH_CELLS,
    LARGEST,
    Batch,
    Source,
    Writer,
    client_column,
    opened,
    read,
    saved_hash,
    write,
)
from fedeas.parquet.images import (
    LABEL_COLUMNS,
    ImageHead,
    has_images,
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
    "TABLE_FILES",
    "Batch",
    "ImageHead",
    "OpenTable",
    "SampleWriter",
    "Source",
    "Values",
    "Writer",
    "client_column",
    "column_kinds",
    "column_names",
    "has_images",
    "image_batches",
    "image_head",
    "open_frame",
    "open_tables",
    "opened",
    "read",
    "read_column",
    "sample_writer",
    "saved_hash",
    "value_rows",
    "write",
    "write_images",
]
