"""Generated samples in Parquet: a row per sample, written block by block."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.parquet.arrow import pyarrow

_SHAPE = "fedeas.shape"  # of a sample, in the metadata of the file
_GROUP_BYTES = 1 << 25  # of a row group


class SampleWriter:
    """Writes samples with their client, class and index; see `sample_writer`.

    A sample is encoded (bytes) or an array, which becomes a list of numbers.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._waiting: list[Any] = []  # tables that are too small to be a row group
        self._bytes = 0

    def add(
        self,
        client: str,
        classes: Sequence[str],
        indices: Sequence[int],
        samples: Sequence[bytes] | NDArray[Any],
    ) -> None:
        """Append some samples of one client."""
        pa = pyarrow("")
        metadata = {}
        if isinstance(samples, np.ndarray):
            flat = np.ascontiguousarray(samples).reshape(len(samples), -1)
            ends = np.arange(0, flat.size + 1, flat.shape[1], dtype=np.int64)
            column = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(flat.ravel()))
            metadata = {_SHAPE: json.dumps(samples.shape[1:])}
        else:
            column = pa.array(samples, pa.large_binary())
        columns = {
            "client": pa.array([client] * len(indices), pa.string()),
            "class": pa.array(classes, pa.string()),
            "index": pa.array(indices, pa.int64()),
            "sample": column,
        }
        table = pa.table(columns, metadata=metadata)
        schema = self._waiting[0].schema if self._waiting else getattr(self._writer, "schema", None)
        if schema is not None and not schema.equals(table.schema, check_metadata=True):
            raise InputError("the samples have several shapes or dtypes", got=client)
        self._waiting.append(table)
        self._bytes += table.nbytes
        if self._bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if not self._waiting:
            return
        table = pyarrow("").concat_tables(self._waiting)
        self._waiting, self._bytes = [], 0
        if self._writer is None:
            self._writer = pyarrow("parquet").ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def sample_writer(path: Path) -> Iterator[SampleWriter]:
    """Open a file for samples; it is complete when the block ends without an error."""
    writer = SampleWriter(path)
    try:
        yield writer
        writer.flush()
    finally:
        writer.close()
