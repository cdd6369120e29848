"""A shard: some samples in one Parquet file, named by the hash of its bytes, and its entry.

The columns are client, class, index, seed and sample, the rows sorted by client, so that a reader
skips by statistics. Any program reads such a file as it is. Its entry says which samples are in it,
so that nobody has to open a shard to find out. What somebody else may have written is checked.
"""

import bisect
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedeas._internal.files import sealed, unsealed
from fedeas._internal.optional import import_extra
from fedeas.cache.segments import Ints, Segments, check_segments, runs, stand_twice, subtract, union
from fedeas.cache.storage import Storage
from fedeas.data.decode import decode_png, encode_png
from fedeas.data.kinds import Array
from fedeas.errors import InputError, first_line

COLUMNS = ("client", "class", "index", "seed", "sample")
SHARD = ".parquet"
SHARD_NAME = re.compile(r"[0-9a-f]{64}\.parquet")
ENTRIES = ".fedeas/entries"  # a folder that other readers pass over
REPAIR = "run `fedeas fill` or `augment` again: damaged or missing samples are generated again"
_GROUP = 1 << 20  # bytes of a row group, which is read at once
_MOST_ROWS = 10**9
_OVERHEAD = 2  # a shard's columns take at most so many times the bytes of its file

_Whole = Annotated[int, Meta(ge=0, lt=2**53)]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a sample of a cache is: its shape and number format, and how it is stored."""

    shape: Annotated[
        tuple[Annotated[int, Meta(ge=1, lt=2**31)], ...], Meta(min_length=1, max_length=8)
    ]
    # Integers or floating-point numbers, little-endian.
    dtype: Annotated[str, Meta(pattern=r"^(\|[ui]1|<[ui][248]|<f[248])\Z")]
    encoding: Annotated[str, Meta(pattern=r"^(raw|png)\Z")] = "raw"

    @classmethod
    def of(cls, samples: Array, encoding: str = "raw") -> "Form":
        """Return the form of some samples."""
        dtype = samples.dtype.newbyteorder("<") if samples.dtype.itemsize > 1 else samples.dtype
        return cls(samples.shape[1:], dtype.str, encoding)

    def check(self) -> None:
        """Refuse samples that cannot be kept, or not in this way."""
        try:
            msgspec.convert(msgspec.to_builtins(self), Form)
        except msgspec.ValidationError:
            raise InputError(
                "samples that cannot be kept",
                got=str(self),
                allowed="whole numbers up to 64 bits, or floating-point ones of 16, 32 or 64",
            ) from None
        channels = self.shape[-1] if len(self.shape) == 3 else 0
        if self.encoding == "png" and (self.dtype != "|u1" or channels not in (1, 3)):
            raise InputError(
                "PNG is for images",
                got=str(self),
                allowed="height x width x 1 or 3 of uint8",
                fix="leave out --png",
            )

    @property
    def bytes(self) -> int:
        """The bytes of a sample in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.shape} of {np.dtype(self.dtype)}"


@dataclass(frozen=True)
class Rows:
    """Samples and what they are: of which client, class and index, and from which seed."""

    clients: Ints  # numbers of names
    labels: Ints
    indices: Ints
    seeds: NDArray[np.uint64]
    samples: Array

    def take(self, rows: Any) -> "Rows":
        """Return some of the rows."""
        columns = (self.clients, self.labels, self.indices, self.seeds, self.samples)
        return Rows(*(column[rows] for column in columns))

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Entry:
    """What a shard holds, without its samples."""

    storage: Storage
    shard: str  # its name without the ending
    segments: Segments
    request: str  # the request that its batches are of
    seconds: float  # that generating and writing it took
    blocks: tuple[tuple[int, int], ...]  # where each ends, and its CRC-32; the last is the footer

    @property
    def file(self) -> str:
        """The name of the shard."""
        return f"{self.shard}{SHARD}"

    @property
    def name(self) -> str:
        """The name of the entry."""
        return f"{ENTRIES}/{self.shard}.json"

    def held_by(self, client: str | None) -> int:
        """Return how many samples of a client, or of all, it holds."""
        segments = self.segments if client is None else self.segments.renamed((client,))
        return segments.total

    def drop(self) -> None:
        """Remove the shard: its entry first, so that no entry is without its shard for long."""
        self.storage.remove(self.name)
        self.storage.remove(self.file)


def entry_of(shard: str) -> str:
    """Return the name of the entry of a shard."""
    return f"{ENTRIES}/{shard.removesuffix(SHARD)}.json"


class _EntryForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shard: _Hash
    blocks: list[tuple[_Whole, _Whole]]  # where each ends, and its CRC-32
    request: str
    seconds: Annotated[float, Meta(ge=0)]
    names: tuple[str, ...]
    clients: list[_Whole]
    labels: list[_Whole]
    starts: list[_Whole]
    stops: list[_Whole]

    def __post_init__(self) -> None:
        lengths = {len(self.clients), len(self.labels), len(self.starts), len(self.stops)}
        if len(lengths) > 1 or len(set(self.names)) < len(self.names):
            raise ValueError("columns of different lengths, or a client twice")
        ends = [0, *(end for end, _ in self.blocks)]
        if ends != sorted(set(ends)) or len(ends) < 2:
            raise ValueError("blocks that overlap")


class DamagedError(InputError):
    """A file of a cache is not as it was written."""

    def __init__(self, storage: Storage, name: str, why: str = "", fix: str = REPAIR) -> None:
        self.name, self.gone = name, not storage.size(name)
        super().__init__(f"{storage}/{name} is damaged{': ' if why else ''}{why}", fix=fix)


# Writing


def write_shard(
    storage: Storage, form: Form, names: Sequence[str], rows: Rows, request: str, seconds: float
) -> Entry:
    """Write a shard and then its entry; the same rows give the same names and bytes."""
    place = np.argsort(np.argsort(np.array(names, dtype=object)))[rows.clients]
    order = np.lexsort((rows.indices, rows.labels, place))
    rows = rows.take(order)
    content = _encoded(form, names, rows)
    shard = hashlib.sha256(content).hexdigest()
    entry = Entry(storage, shard, _segments_of(names, rows), request, seconds, _blocks(content))
    storage.write(entry.file, content)
    storage.write(entry.name, dump_entry(entry))
    return entry


def dump_entry(entry: Entry) -> bytes:
    """Return an entry as it is written."""
    segments = entry.segments
    body = {
        "shard": entry.shard,
        "blocks": entry.blocks,
        "request": entry.request,
        "seconds": round(entry.seconds, 3),
        "names": segments.names,
        "clients": segments.clients.tolist(),
        "labels": segments.labels.tolist(),
        "starts": segments.starts.tolist(),
        "stops": segments.stops.tolist(),
    }
    return sealed(body).encode()


def _blocks(content: memoryview) -> tuple[tuple[int, int], ...]:
    """Return where the row groups of a shard end, and its footer, each with its CRC-32.

    A reader checks them before any other program sees the bytes: pyarrow ends its process at some
    flipped bits of a page's head or of the footer, which no page checksum covers.
    """
    parquet = import_extra("pyarrow.parquet", "a cache of generated samples", "generate")
    arrow = import_extra("pyarrow", "a cache of generated samples", "generate")
    about = parquet.read_metadata(arrow.BufferReader(arrow.py_buffer(content)))
    starts = [_start(about.row_group(at)) for at in range(1, about.num_row_groups)]
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    ends = [*starts, footer, len(content)]
    return tuple(
        (end, zlib.crc32(content[first:end])) for first, end in zip([0, *ends], ends, strict=False)
    )


def _start(group: Any) -> int:
    """Return where a row group begins."""
    columns = [group.column(at) for at in range(group.num_columns)]
    offsets = ((each.dictionary_page_offset, each.data_page_offset) for each in columns)
    return min(int(offset) for pair in offsets for offset in pair if offset is not None)


class _CheckedFile(io.RawIOBase):
    """A file that hands out only what has been checked, a block at a time."""

    def __init__(self, source: Any, entry: Entry) -> None:
        super().__init__()
        self._source, self._entry, self._at = source, entry, 0
        self._ends = [end for end, _ in entry.blocks]
        self._held: dict[int, bytes] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """Return the number of bytes, as pyarrow asks for it."""
        return self._ends[-1]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._ends[-1])[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._ends[-1] if size < 0 else min(self._at + size, self._ends[-1])
        parts = []
        while self._at < stop:
            block = bisect.bisect_right(self._ends, self._at)
            first = self._ends[block - 1] if block else 0
            last = min(stop, self._ends[block])
            parts.append(self._block(block, first)[self._at - first : last - first])
            self._at = last
        return b"".join(parts)

    def _block(self, block: int, first: int) -> bytes:
        """Return a block; one row group is held at a time, beside the footer."""
        if block not in self._held:
            end, crc = self._entry.blocks[block]
            self._source.seek(first)
            content = self._source.read(end - first)
            if zlib.crc32(content) != crc:
                raise DamagedError(self._entry.storage, self._entry.file, "its bytes have changed")
            self._held = {at: held for at, held in self._held.items() if at == len(self._ends) - 1}
            self._held[block] = content
        return self._held[block]


def _segments_of(names: Sequence[str], rows: Rows) -> Segments:
    """Return which samples sorted rows are; only the clients among them are named."""
    change = np.flatnonzero(np.diff(rows.clients)) + 1
    parts = []
    for first, last in zip([0, *change], [*change, len(rows)], strict=True):
        part = runs(rows.labels[first:last], rows.indices[first:last])
        name = names[int(rows.clients[first])]
        parts.append(Segments((name,), part.clients, part.labels, part.starts, part.stops))
    return union(parts, [part.names[0] for part in parts])


def _encoded(form: Form, names: Sequence[str], rows: Rows) -> memoryview:
    """Return the bytes of a shard."""
    arrow = import_extra("pyarrow", "a cache of generated samples", "generate")
    parquet = import_extra("pyarrow.parquet", "a cache of generated samples", "generate")
    used, number = np.unique(rows.clients, return_inverse=True)
    clients = arrow.DictionaryArray.from_arrays(
        arrow.array(number.astype(np.int32)), arrow.array([names[k] for k in used.tolist()])
    )
    table = arrow.table(
        {
            "client": clients,
            "class": arrow.array(rows.labels.astype(np.int32)),
            "index": arrow.array(rows.indices),
            "seed": arrow.array(rows.seeds),
            "sample": _binary(arrow, form, rows.samples),
        }
    )
    sink = io.BytesIO()
    parquet.write_table(
        table,
        sink,
        row_group_size=_rows_of_group(form),
        compression="none",  # pictures and numbers hardly shrink, and reading is faster
        use_dictionary=["client"],
        write_statistics=["client", "class", "index"],
        write_page_checksum=True,
        store_schema=False,
    )
    return sink.getbuffer()


def _binary(arrow: Any, form: Form, samples: Array) -> Any:
    """Return samples as a column of bytes, without a copy where they are stored as they are."""
    if form.encoding == "png":
        return arrow.array([encode_png(sample) for sample in samples], arrow.binary())
    values = np.ascontiguousarray(samples, form.dtype)
    ends = np.arange(len(values) + 1, dtype=np.int64) * form.bytes
    if ends[-1] >= 2**31:
        raise InputError("a batch of samples is too large", fix="use a smaller batch size")
    buffers = [None, arrow.py_buffer(ends.astype(np.int32)), arrow.py_buffer(values.reshape(-1))]
    return arrow.Array.from_buffers(arrow.binary(), len(values), buffers)


# Reading


def parse_entry(storage: Storage, name: str, content: bytes) -> Entry:
    """Read the content of an entry; a forged or damaged one is refused by its name."""
    path = f"{ENTRIES}/{name}"
    try:
        form = msgspec.convert(unsealed(content.decode(), path), _EntryForm)
    except (InputError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise DamagedError(storage, path, first_line(error)) from None
    if name != f"{form.shard}.json":
        raise DamagedError(storage, path, "it is about another shard")
    segments = Segments.of(form.names, form.clients, form.labels, form.starts, form.stops)
    try:
        check_segments(segments)
    except ValueError as error:
        raise DamagedError(storage, path, str(error)) from None
    return Entry(storage, form.shard, segments, form.request, form.seconds, tuple(form.blocks))


def read_shard(entry: Entry, form: Form, client: str | None = None) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of one client, or of all, a row group at a time, by client.

    A shard that is not what its entry says is refused by its name.
    """
    arrow = import_extra("pyarrow", "a cache of generated samples", "generate")
    parquet = import_extra("pyarrow.parquet", "a cache of generated samples", "generate")
    storage = entry.storage
    if storage.size(entry.file) != entry.blocks[-1][0]:
        raise DamagedError(storage, entry.file, "it is gone, or of another size than it was")
    try:
        with storage.opened(entry.file) as source:
            checked = _CheckedFile(source, entry)
            file = parquet.ParquetFile(checked, page_checksum_verification=True, pre_buffer=False)
            _check_shape(entry, file, entry.blocks[-1][0], form)
            left = entry.held_by(client)
            for group in range(file.num_row_groups):
                if client is not None and not _may_hold(file.metadata.row_group(group), client):
                    continue
                for name, rows in _read_group(entry, file.read_row_group(group), form, client):
                    _check_rows(entry, name, rows)
                    left -= len(rows)
                    yield name, rows
            if left:
                raise DamagedError(storage, entry.file, "it holds other samples than it should")
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise DamagedError(storage, entry.file, "it is gone") from None
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedError(storage, entry.file, first_line(error)) from None


def verify_shard(entry: Entry, form: Form) -> None:
    """Read everything in a shard; refuse one that is not as it was written."""
    storage = entry.storage
    if storage.size(entry.file) != entry.blocks[-1][0]:
        raise DamagedError(storage, entry.file, "it is gone, or of another size than it was")
    digest = hashlib.sha256()
    with storage.opened(entry.file) as source:
        while part := source.read(1 << 24):
            digest.update(part)
    if digest.hexdigest() != entry.shard:
        raise DamagedError(storage, entry.file, "its bytes are not those of its name")
    for _ in read_shard(entry, form):
        pass


def _rows_of_group(form: Form) -> int:
    """Return how many rows of a form are read at once."""
    return max(16, _GROUP // max(1, form.bytes))


def _check_shape(entry: Entry, file: Any, size: int, form: Form) -> None:
    """Refuse other columns, and a file that claims more than it can hold, before it is read."""
    storage = entry.storage
    about = file.metadata
    if tuple(file.schema_arrow.names) != COLUMNS:
        raise DamagedError(storage, entry.file, "it has other columns")
    if about.num_rows != entry.segments.total or about.num_rows > _MOST_ROWS:
        raise DamagedError(storage, entry.file, f"it says that it has {about.num_rows:,} rows")
    groups = [about.row_group(at) for at in range(about.num_row_groups)]
    for group in groups:
        columns = [group.column(at) for at in range(len(COLUMNS))]
        if any(column.compression != "UNCOMPRESSED" for column in columns):
            raise DamagedError(storage, entry.file, "it is compressed")
        if group.num_rows > 4 * _rows_of_group(form):
            raise DamagedError(storage, entry.file, "its parts have too many rows")
        # A value that is written once and repeated would take a thousand times its bytes.
        if any(column.has_dictionary_page for column in columns[1:]):
            raise DamagedError(storage, entry.file, "its samples refer to each other")
    if sum(group.total_byte_size for group in groups) > _OVERHEAD * size:
        raise DamagedError(storage, entry.file, "it claims more than it can hold")


def _check_rows(entry: Entry, name: str, rows: Rows) -> None:
    """Refuse rows that the entry does not name, or that stand twice."""
    found = runs(rows.labels, rows.indices)
    found = Segments((name,), found.clients, found.labels, found.starts, found.stops)
    if (found.labels < 0).any() or (found.starts < 0).any() or stand_twice(found):
        raise DamagedError(entry.storage, entry.file, "it holds a sample twice, or one below 0")
    if len(subtract(found, entry.segments)):
        raise DamagedError(entry.storage, entry.file, "it holds other samples than it should")


def _may_hold(group: Any, client: str) -> bool:
    statistics = group.column(0).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= client <= statistics.max)


def _read_group(
    entry: Entry, table: Any, form: Form, client: str | None
) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of a group by client."""
    arrow = import_extra("pyarrow", "a cache of generated samples", "generate")
    compute = import_extra("pyarrow.compute", "a cache of generated samples", "generate")
    storage = entry.storage
    kinds = [arrow.string(), arrow.int32(), arrow.int64(), arrow.uint64(), arrow.binary()]
    if [field.type for field in table.schema] != kinds:
        raise DamagedError(storage, entry.file, "its columns hold other things")
    if any(column.null_count for column in table.columns):
        raise DamagedError(storage, entry.file, "it has gaps")
    if client is not None:
        table = table.filter(compute.equal(table["client"], client))
        if not len(table):
            return
    names = table["client"].to_pylist()
    change = [at for at in range(1, len(names)) if names[at] != names[at - 1]]
    labels, indices, seeds = (
        table[name].to_numpy().astype(kind)
        for name, kind in (("class", np.int64), ("index", np.int64), ("seed", np.uint64))
    )
    samples = _decoded(entry, table["sample"], form)
    for first, last in zip([0, *change], [*change, len(names)], strict=True):
        part = slice(first, last)
        clients = np.zeros(last - first, np.int64)
        yield names[first], Rows(clients, labels[part], indices[part], seeds[part], samples[part])


def _decoded(entry: Entry, column: Any, form: Form) -> Array:
    """Return a column of bytes as samples of the cache's form; refuse any other length."""
    if form.encoding == "png":
        try:
            samples = np.stack([decode_png(value.as_py(), form.shape) for value in column])
        except (InputError, ValueError) as error:
            raise DamagedError(entry.storage, entry.file, first_line(error)) from None
        return samples
    compute = import_extra("pyarrow.compute", "a cache of generated samples", "generate")
    lengths = compute.min_max(compute.binary_length(column)).as_py()
    if lengths != {"min": form.bytes, "max": form.bytes}:
        raise DamagedError(
            entry.storage, entry.file, f"its samples are not of {form.bytes:,} bytes"
        )
    content = b"".join(_bytes_of(chunk) for chunk in column.chunks if len(chunk))
    return np.frombuffer(content, form.dtype).reshape(-1, *form.shape)


def _bytes_of(chunk: Any) -> memoryview:
    """Return the values of a part of a column of bytes, one after the other."""
    ends = np.frombuffer(chunk.buffers()[1], np.int32)
    first, last = ends[chunk.offset], ends[chunk.offset + len(chunk)]
    return memoryview(chunk.buffers()[2])[int(first) : int(last)]
