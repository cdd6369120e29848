"""Generating batches and writing their samples to shards, in a fill or in one of its workers."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedeas.cache.request import generate
from fedeas.cache.segments import Segments, overlaps
from fedeas.cache.shards import Form, Rows, write_shard
from fedeas.cache.store import Cache
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators import Generator

SHARD_BYTES = 64 << 20
SHARD_SECONDS = 60.0


@dataclass(frozen=True)
class Batch:
    """A batch of a request, and which of its samples are missing; None: all of them."""

    request: str
    threads: int
    segments: Segments
    missing: Segments | None = None


@dataclass(frozen=True)
class Expected:
    """What samples have to look like, where that is known before the first one."""

    shape: tuple[int, ...]
    dtype: str

    def check(self, form: Form) -> None:
        """Refuse samples that look otherwise."""
        if (form.shape, np.dtype(form.dtype)) != (self.shape, np.dtype(self.dtype)):
            raise InputError(
                "the generator's samples do not look like the data's",
                got=str(form),
                allowed=f"{self.shape} of {np.dtype(self.dtype)}",
            )


@dataclass
class BatchWriter:
    """Generates batches, and writes a shard whenever enough samples wait, or for a minute."""

    cache: Cache
    generator: Generator
    expected: Expected | None = None
    encoding: str = "raw"
    _waiting: list[tuple[tuple[str, ...], Rows]] = field(default_factory=list)
    _bytes: int = 0
    _since: float = 0.0
    _seconds: float = 0.0  # that the waiting samples took
    _request: str = ""
    _form: Form | None = None

    def add(self, batch: Batch, check: Callable[[Array], object] | None = None) -> Rows:
        """Generate a batch, and keep those of its samples that are missing.

        `check` may refuse the samples before any are stored.
        """
        if self._waiting and self._request != batch.request:
            self.flush()
        begun = time.monotonic()
        set_threads(batch.threads)
        rows = generate(self.cache, self.generator, batch.segments)
        if check is not None:
            check(rows.samples)
        self._check(rows)
        kept = rows if batch.missing is None else rows.take(_among(rows, batch))
        if not self._waiting:
            self._since = begun
        self._request = batch.request
        self._waiting.append((batch.segments.names, kept))
        self._bytes += kept.samples.nbytes
        self._seconds += time.monotonic() - begun
        if self._bytes >= SHARD_BYTES or time.monotonic() - self._since > SHARD_SECONDS:
            self.flush()
        return rows

    def _check(self, rows: Rows) -> None:
        form = Form.of(rows.samples, self.encoding)
        if self._form is None:
            if self.expected is not None:
                self.expected.check(form)
            about = self.cache.about()
            if about is not None and about.form.encoding != form.encoding:  # as it began
                self.encoding = about.form.encoding
                form = Form.of(rows.samples, self.encoding)
        if form != self._form:
            form.check()
            self.cache.begin(form)
            self._form = form

    def flush(self) -> None:
        """Write what waits."""
        if not self._waiting or self._form is None:
            return
        begun = time.monotonic()
        names = list(dict.fromkeys(name for own, _ in self._waiting for name in own))
        place = {name: k for k, name in enumerate(names)}
        parts = [
            Rows(
                np.array([place[name] for name in own], np.int64)[rows.clients],
                rows.labels, rows.indices, rows.seeds, rows.samples,
            )
            for own, rows in self._waiting
        ]  # fmt: skip
        joined = Rows(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("clients", "labels", "indices", "seeds", "samples")
            )
        )
        self._waiting, self._bytes = [], 0
        if len(joined):
            seconds = self._seconds + time.monotonic() - begun
            write_shard(self.cache.storage, self._form, names, joined, self._request, seconds)
        self._seconds = 0.0


def set_threads(number: int) -> None:
    """Let PyTorch, if it is loaded, compute with so many threads."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != number:
        torch.set_num_threads(number)


def _among(rows: Rows, batch: Batch) -> NDArray[np.bool_]:
    """Tell which rows of a batch are missing."""
    assert batch.missing is not None  # noqa: S101 - the caller's own case
    each = Segments(batch.segments.names, rows.clients, rows.labels, rows.indices, rows.indices + 1)
    kept = np.zeros(len(rows), bool)
    kept[overlaps(each, batch.missing.renamed(each.names)).one] = True
    return kept
