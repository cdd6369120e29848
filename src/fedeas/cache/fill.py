"""Filling a cache: from a plan to samples, each generated once.

A fill writes down its batches, generates those that lack a sample, and ends when nothing is missing
and nothing stands twice. Whoever dies in between loses what was not written yet, a minute's work at
most; the next fill goes on with the same batches, and so with the same bytes.
"""

import errno
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from fedeas._internal.files import narrow
from fedeas._internal.progress import Progress
from fedeas.cache.compact import compact_doubled
from fedeas.cache.markers import FILL, marked, others, wait_for_compaction
from fedeas.cache.request import FOLDER as REQUESTS
from fedeas.cache.request import Request, load_requests
from fedeas.cache.segments import Ints, Segments, overlaps, subtract, union
from fedeas.cache.shards import (
    ENTRIES,
    SHARD,
    SHARD_NAME,
    DamagedError,
    Rows,
    entry_of,
    verify_shard,
)
from fedeas.cache.storage import LocalStorage
from fedeas.cache.store import Cache, check_clients, read_about
from fedeas.cache.stored import decoded_once
from fedeas.cache.workers import Workers, WorkerSettings
from fedeas.cache.writer import Batch, BatchWriter, Expected, set_threads
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators import Generator, check_classes, open_generator
from fedeas.planning.plan import Plan, PlanRows

Wanted = Mapping[str, Sequence[int]]  # samples of every class, by client
_Work = Sequence[tuple[Request, Ints]]
_Report = Callable[["FillStatus"], object]
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
_LOG = logging.getLogger(__name__)
_ROUNDS = 10  # of finding what is missing; each ends with fewer


@dataclass(frozen=True)
class FailedBatch:
    """A batch that could not be generated: what it holds, and why."""

    segments: Segments
    reason: str

    def __str__(self) -> str:
        names = [self.segments.names[k] for k in np.unique(self.segments.clients).tolist()]
        labels = np.unique(self.segments.labels).tolist()
        return (
            f"{self.segments.total:,} samples of clients {_few(names)}, classes {_few(labels)} "
            f"were not generated: {self.reason}"
        )


@dataclass
class FillStatus:
    """How far a fill is, and how fast it and each of its workers are."""

    total: int
    done: int = 0
    by_worker: dict[int, int] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def add(self, worker: int, samples: int) -> None:
        """Count the samples of a batch."""
        self.done += samples
        self.by_worker[worker] = self.by_worker.get(worker, 0) + samples

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self.begun, 1e-9)
        rates = [f"{self.by_worker[k] / seconds:,.3g}" for k in sorted(self.by_worker)]
        each = f" ({' + '.join(rates)} by {len(rates)} workers)" if len(rates) > 1 else ""
        return f"samples, {self.done / seconds:,.3g} a second{each}"


@dataclass(frozen=True)
class Filled:
    """What a fill did: samples generated now, samples that were there, and what it mended."""

    generated: int
    reused: int
    mended: tuple[str, ...]
    seconds: float  # of generating and writing
    failed: tuple[FailedBatch, ...] = ()


def fill(
    plan: Plan | PlanRows,
    generator: str | Generator,
    cache: Cache,
    batch_size: int = 64,
    progress: Progress | None = None,
    like: Array | None = None,
    *,
    workers: int = 0,
    gpus_per_worker: float = 0,
    address: str | None = None,
    threads: int | None = None,
    encoding: str = "raw",
    status: Callable[[FillStatus], object] | None = None,
) -> Filled:
    """Generate what the plan wants and the cache does not hold yet.

    Batches mix clients and classes, so that small requests do not cost a batch each. A generator
    whose samples do not look `like` the real ones is refused at its first batch.

    Parameters
    ----------
    plan : Plan or PlanRows
        What every client needs.
    generator : Generator or str
        Draws the samples. Workers make one each: from a spec, or from a copy of the object.
    cache : Cache
        Where they are kept.
    batch_size : int
        Samples that are drawn at once; a generator's `least_batch` goes before a smaller one.
    progress : callable, optional
        `progress(done, total)` is called after each batch.
    like : array, optional
        Real samples, whose shape and dtype are compared.
    workers : int
        How many processes of Ray generate; 0 generates in this one, without Ray.
    gpus_per_worker : float
        GPUs of each worker.
    address : str, optional
        A Ray cluster that exists: 'auto', or HOST:PORT. By default Ray is started here.
    threads : int, optional
        Threads that PyTorch computes with; by default as many as it has, or a worker's part of this
        machine's cores. Other numbers give the same samples up to rounding, so what an earlier fill
        has begun goes on with its number.
    encoding : str
        How samples are stored: 'raw' or, for images, 'png'.
    status : callable, optional
        `status(FillStatus)` is called after each batch, as `progress` is.
    """
    check_classes(plan.classes or plan.samples.shape[1], generator)
    wanted = dict(zip(plan.client_names, plan.samples.tolist(), strict=True))
    job = FillJob(cache, generator, batch_size, wanted, like, threads=threads, encoding=encoding)

    def report(moment: FillStatus) -> None:
        if progress is not None:
            progress(moment.done, moment.total)
        if status is not None:
            status(moment)

    return job.run(report, Workers(workers, gpus_per_worker, address) if workers else None)


def fill_by_client(
    plan: Plan | PlanRows,
    generator: str | Generator,
    cache: Cache,
    batch_size: int = 64,
    status: Callable[[FillStatus], object] | None = None,
    *,
    workers: int = 0,
    gpus_per_worker: float = 0,
    address: str | None = None,
    threads: int | None = None,
    encoding: str = "raw",
) -> Filled:
    """Fill as `fill` does, each client under a place of its own, where no entry shows others."""
    crew = Workers(workers, gpus_per_worker, address) if workers else None
    results = []
    for name, row in zip(plan.client_names, plan.samples.tolist(), strict=True):
        if any(row):
            part = cache.of_client(name)
            job = FillJob(
                part, generator, batch_size, {name: row}, threads=threads, encoding=encoding
            )
            results.append(job.run(status, crew))
    return Filled(
        sum(one.generated for one in results),
        sum(one.reused for one in results),
        tuple(line for one in results for line in one.mended),
        sum(one.seconds for one in results),
        tuple(failed for one in results for failed in one.failed),
    )


def client_samples(
    client: str,
    wanted: Sequence[int],
    generator: Generator,
    cache: Cache,
    batch_size: int = 64,
    like: Array | None = None,
    generating: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
    check: Callable[[Array], object] | None = None,
) -> tuple[Array, Ints]:
    """Return the samples that one client wants and their labels, generated on first use.

    `generating` is entered only if they are not all there, and gives what is told the progress.
    `check` is given the first batch before anything is stored, and may refuse it.
    """
    if isinstance(cache.storage, LocalStorage):
        narrow(cache.folder)
    part = cache.of_client(client)
    job = FillJob(part, generator, batch_size, {client: list(wanted)}, like, check, beside=cache)
    try:
        for _ in range(_ROUNDS):
            if not len(cache.missing(client, wanted)):
                try:
                    return decoded_once(cache, client, wanted)
                except DamagedError:
                    _drop_damaged(cache, client)
            with generating() as progress:
                job.run(
                    None if progress is None else lambda moment: progress(moment.done, moment.total)
                )
    except OSError as error:
        if error.errno not in _READ_ONLY or not str(error.filename).startswith(cache.place):
            raise
        raise InputError(
            f"samples of client {client!r} are missing, and {cache.place} cannot be written to: "
            f"{error.strerror}",
            fix="make it writable, or choose another folder of caches",
        ) from None
    return decoded_once(cache, client, wanted)


def _drop_damaged(cache: Cache, client: str) -> None:
    """Remove the shards of a client that are not as they were written, and name them."""
    for entry in cache.all_entries(client):
        try:
            verify_shard(entry, read_about(entry.storage).form)
        except DamagedError as error:
            _LOG.warning("client %s: %s", client, error.what)
            entry.drop()


@dataclass
class FillJob:
    """A fill: what is wanted, and by what it is generated."""

    cache: Cache
    generator: str | Generator
    batch_size: int
    wanted: Wanted
    like: Array | None = None
    check: Callable[[Array], object] | None = None
    beside: Cache | None = None  # whose samples count too
    threads: int | None = None
    encoding: str = "raw"
    _mended: list[str] = field(default_factory=list)
    _new: Request | None = None

    def run(self, report: _Report | None = None, workers: Workers | None = None) -> Filled:
        """Generate what is missing, until nothing is and nothing stands twice."""
        check_clients(self.wanted)
        size = self._checked_batch_size()
        wanted = Segments.wanted(self.wanted)
        generated, seconds, reused = 0, 0.0, -1
        failed: list[FailedBatch] = []
        self.cache.refuse_links()
        with marked(self.cache.storage, FILL) as own:
            for _ in range(_ROUNDS):
                missing = subtract(wanted, self._held(wanted.names))
                for batch in failed:
                    missing = subtract(missing, batch.segments)
                reused = wanted.total - missing.total if reused < 0 else reused
                if not len(missing):
                    wait_for_compaction(self.cache.storage, own)
                    if not compact_doubled(self.cache):
                        _remove_unlisted(self.cache, own)
                        break
                    continue
                work = self._work(missing, size, 0 if workers is None else workers.number)
                number, took, more = self._generate(work, missing, report, workers)
                generated, seconds = generated + number, seconds + took
                failed += more
        return Filled(generated, reused, tuple(self._mended), seconds, tuple(failed))

    def _held(self, names: Sequence[str]) -> Segments:
        """Return what is there; entries that are damaged or without their shard are removed."""
        entries = [] if self.beside is None else self.beside.entries({})
        damaged: dict[str, str] = {}
        entries += self.cache.entries(damaged)
        for name, what in damaged.items():
            self.cache.storage.remove(name)
            self._mended.append(what)
        return union((entry.segments for entry in entries), names)

    def _work(self, missing: Segments, size: int, workers: int) -> _Work:
        """Return the batches with what is missing: of earlier requests, and of a new one."""
        work = []
        for request in load_requests(self.cache.storage):
            numbers, found = request.batches_with(missing.renamed(request.segments.names))
            if len(numbers):
                work.append((request, numbers))
                missing = subtract(missing, found)
        if len(missing):
            request = Request(missing, size, self.threads or _threads() // max(1, workers) or 1)
            request.save(self.cache.storage)
            self._new = request
            work.append((request, np.arange(request.batches)))
        return work

    def _generate(
        self, work: _Work, missing: Segments, report: _Report | None, workers: Workers | None
    ) -> tuple[int, float, list[FailedBatch]]:
        """Generate batches in this process, or by workers."""
        moment = FillStatus(sum(_samples(request, numbers) for request, numbers in work))

        def count(samples: int, worker: int = 0) -> None:
            moment.add(worker, samples)
            if report is not None:
                report(moment)

        failed: list[tuple[Batch, str]] = []
        try:
            failed = self._all(work, missing, count, workers)
        finally:
            if not moment.done and self._new is not None:
                # Not even one of its batches fitted into memory, say: another size may.
                self._new.remove(self.cache.storage)
        gave_up = [FailedBatch(batch.segments, reason) for batch, reason in failed]
        return moment.done, time.monotonic() - moment.begun, gave_up

    def _all(
        self, work: _Work, missing: Segments, count: Callable[..., None], workers: Workers | None
    ) -> list[tuple[Batch, str]]:
        """Generate batches, and return those that no worker survived."""
        if workers is None:
            writer, before = self._writer(), _threads()
            try:
                for number, batch in enumerate(_batches(work, missing)):
                    rows = writer.add(batch) if number else self._first(writer, batch)
                    count(len(rows))
            finally:
                writer.flush()
                set_threads(before)
            return []
        settings = WorkerSettings(
            self.cache.to_tell(), self.generator, work[0][0].threads, self._expected(),
            self.encoding,
        )  # fmt: skip
        batches = _batches(work, missing)
        return workers.run(settings, batches, lambda worker, n, _: count(n, worker))

    def _first(self, writer: BatchWriter, batch: Batch) -> Rows:
        """Generate the first batch, which a check may refuse before anything is stored."""
        rows = writer.add(batch, self.check)
        self.check = None
        return rows

    def _writer(self) -> BatchWriter:
        generator = self.generator
        opened = open_generator(generator) if isinstance(generator, str) else generator
        return BatchWriter(self.cache, opened, self._expected(), self.encoding)

    def _expected(self) -> Expected | None:
        return None if self.like is None else Expected(self.like.shape[1:], self.like.dtype.str)

    def _checked_batch_size(self) -> int:
        """Return how many samples to draw at once; refuse what no fill can do, before it begins."""
        if self.batch_size < 1:
            raise InputError(
                "not a batch size", got=self.batch_size, allowed="a whole number from 1"
            )
        if isinstance(self.generator, str):
            return self.batch_size
        if self.generator.fingerprint != self.cache.origin["generator"]:
            raise InputError(
                "the cache belongs to another generator",
                got=self.generator.fingerprint,
                allowed=str(self.cache.origin["generator"]),
            )
        return max(self.batch_size, getattr(self.generator, "least_batch", 1))


def _samples(request: Request, numbers: Ints) -> int:
    """Return how many samples some batches have."""
    last = int(request.batches - 1 in numbers)
    rest = request.total - (request.batches - 1) * request.batch_size
    return (len(numbers) - last) * request.batch_size + last * rest


def _batches(work: _Work, missing: Segments) -> Iterator[Batch]:
    """Yield the batches of requests, each with what is missing of it."""
    for request, numbers in work:
        whole = len(numbers) == request.batches and request.total == missing.total
        for number in numbers.tolist():
            segments = request.batch(number).compacted()
            lacks = None if whole else _lacks(segments, missing)
            yield Batch(request.name, request.threads, segments, lacks)


def _lacks(batch: Segments, missing: Segments) -> Segments | None:
    """Return what is missing of a batch; None if that is all of it."""
    met = overlaps(batch, missing.renamed(batch.names))
    columns = batch.clients[met.one], batch.labels[met.one], met.starts, met.stops
    lacking = Segments(batch.names, *columns)
    return None if lacking.total == batch.total else lacking


def _threads() -> int:
    """Return how many threads PyTorch computes with, or would."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None else os.cpu_count() or 1


def _remove_unlisted(cache: Cache, own: str) -> None:
    """Remove shards without an entry, whose writers died, unless anybody else is at work.

    A marker stands before a writer's first shard and until after its last entry. So a shard that is
    there now, with no entry when no other marker is left, was left behind.
    """
    storage = cache.storage
    left = [name for name in storage.names() if name.endswith(SHARD)]
    for folder in (".fedeas", ENTRIES, REQUESTS):
        left += [f"{folder}/{name}" for name in storage.names(folder) if name.startswith(".")]
    for name in left:
        if others(storage, own):
            return
        if not (SHARD_NAME.fullmatch(name) and storage.size(entry_of(name))):
            storage.remove(name)


def _few(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:3]))
    return f"{shown}, ... ({len(values):,})" if len(values) > 3 else shown
