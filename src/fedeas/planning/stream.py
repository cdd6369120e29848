"""Planning for more clients than fit in memory: Parquet in, totals and Parquet out."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.blocks import in_order, row_slices
from fedeas._internal.files import atomic_write
from fedeas._internal.scalars import LARGEST
from fedeas.counts import parquet
from fedeas.counts.label_counts import Fingerprint, LabelCounts, names
from fedeas.errors import InputError
from fedeas.planning.cost import Cost
from fedeas.planning.named_values import CLIENTS
from fedeas.planning.plan import Tally, add_tallies, plan_facts, reduction
from fedeas.planning.policies import EqualReduction, LocalPolicy
from fedeas.planning.resolve import resolve_names, settings_of
from fedeas.planning.targets import FEDERATION, Target, make_target, retarget, target_name

_SAMPLED = 20_000  # clients that stand for all of them


@dataclass(frozen=True)
class StreamedPlan:
    """The sums of a plan whose rows were never held together."""

    policy: str
    clients: int
    empty: int
    real: int
    total: int
    score_before: float
    score_after: float
    negative_gain: int
    target_name: str
    settings: dict[str, Any]  # of the policy

    @property
    def reduction(self) -> float:
        """1 - I(B) / I(0), the share of the imbalance that the plan removes."""
        return reduction(self.score_before, self.score_after)

    @property
    def synthetic_share(self) -> float:
        """The synthetic share of all samples, real and generated."""
        return self.total / (self.total + self.real)


class _Part(NamedTuple):
    tally: Tally
    counts: NDArray[np.int64] | None
    samples: NDArray[np.int64] | None
    clients: list[str] | None


def sample_clients(path: Path | str, about: int = _SAMPLED) -> tuple[LabelCounts, int]:
    """Return every r-th client of a Parquet file of counts, about so many, and r.

    Enough to choose a beta and to see what kind of skew there is, in one pass.
    """
    with parquet.opened(Path(path)) as source:
        every = max(1, source.rows // about)
        parts, begin = [], 0
        for batch in source.batches():
            rows = slice(-begin % every, None, every)
            parts.append(np.stack([column[rows] for column in batch.columns], axis=1))
            begin += len(batch.columns[0])
        return LabelCounts(np.concatenate(parts), None, source.columns), every


def plan_stream(
    path: Path | str,
    policy: LocalPolicy,
    out: Path | str | None = None,
    cost: Cost | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StreamedPlan:
    """Plan for a Parquet file of any length with a local policy, in constant memory.

    Parameters
    ----------
    path : path or str
        A Parquet file of counts, a row per client.
    policy : LocalPolicy
        A policy that plans each client from its own counts.
    out : path or str, optional
        Where the plan is written as it is made, in the format that `Plan.load` reads. Client names
        are then checked for duplicates only within a batch.
    cost : Cost, optional
        The cost of a sample, saved with the plan.
    progress : callable, optional
        Called with the number of clients done and of all clients.

    """
    path, out = Path(path), None if out is None else Path(out)
    if out is not None and out.suffix.lower() != ".parquet":
        raise InputError("a streamed plan is written as Parquet", got=out.name, allowed=".parquet")
    with ExitStack() as stack:
        source = stack.enter_context(parquet.opened(path))
        if source.rows < 1 or len(source.columns) < 2:
            raise InputError(
                f"{path} has {source.rows} clients and {len(source.columns)} classes",
                allowed="at least one client and two classes",
            )
        names(source.columns, len(source.columns), "class")
        policy = _resolve(policy, path, source)
        writer = None
        if out is not None:
            temporary = stack.enter_context(atomic_write(out))
            writer = stack.enter_context(
                parquet.Writer(temporary, source.columns, named=source.id_column is not None)
            )

        def work(rows: slice, batch: parquet.Batch) -> _Part:
            return _plan_batch(batch, policy.for_rows(rows, batch.clients), keep=writer is not None)

        fingerprint = Fingerprint()
        tally = Tally(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        named = writer is not None or isinstance(policy, EqualReduction)
        batches = _placed(source.batches(named=named))
        for part in in_order(lambda placed: work(*placed), batches):
            tally = add_tallies([tally, part.tally])
            if writer is not None and part.counts is not None and part.samples is not None:
                fingerprint.add(part.counts, part.clients)
                writer.add(part.samples, part.clients)
            if progress is not None:
                progress(tally.clients, source.rows)
        result = _result(policy, tally)
        if writer is not None:
            numbered = source.columns == [str(c) for c in range(len(source.columns))]
            writer.add_meta(
                plan_facts(
                    policy=result.policy,
                    settings=result.settings,
                    counts_hash=fingerprint.digest(None if numbered else source.columns),
                    real=result.real,
                    score_before=result.score_before,
                    score_after=result.score_after,
                    negative_gain=result.negative_gain,
                    cost=cost,
                )
            )
        return result


def _resolve(policy: LocalPolicy, path: Path, source: parquet.Source) -> LocalPolicy:
    """Return the policy with everything in the order of the file's columns and rows.

    The federation's own distribution takes a pass over the file, and so do limits and costs by
    name, whose clients are then held in memory.
    """
    target = make_target(getattr(policy, "target", None))
    if target is not None and target.shares is None:
        sums = np.zeros(len(source.columns))
        with parquet.opened(path) as again:
            for batch in again.batches():
                sums += [float(column.sum(dtype=np.float64)) for column in batch.columns]
        policy = retarget(policy, Target(sums.tolist(), None, FEDERATION))
    by_name = any(getattr(getattr(policy, kind, None), "names", None) for kind in CLIENTS)
    clients = _clients(path) if by_name else source.rows
    return resolve_names(policy, source.columns, clients)


def _clients(path: Path) -> tuple[str, ...]:
    """Return the names of all clients of a file."""
    with parquet.opened(path) as source:
        if source.id_column is None:
            return tuple(map(str, range(source.rows)))
        clients = [name for batch in source.batches(named=True) for name in batch.clients or ()]
    names(clients, len(clients), "client")
    return tuple(clients)


def _placed(batches: Iterable[parquet.Batch]) -> Iterator[tuple[slice, parquet.Batch]]:
    """Yield batches, each with the rows of the file that it holds."""
    start = 0
    for batch in batches:
        stop = start + len(batch.columns[0])
        yield slice(start, stop), batch
        start = stop


def _result(policy: LocalPolicy, tally: Tally) -> StreamedPlan:
    if not 0 < tally.held <= LARGEST or tally.total > LARGEST:
        raise InputError(
            "counts too large, or none", got=tally.held, allowed="a sum from 1 to 2**53"
        )
    if not tally.real:
        raise InputError("no client has samples of the target's classes")
    return StreamedPlan(
        policy.name,
        tally.clients,
        tally.empty,
        int(tally.held),
        int(tally.total),
        tally.before / tally.real,
        tally.after / tally.real,
        int(tally.negative_gain),
        target_name(getattr(policy, "target", None)),
        settings_of(policy),
    )


def _plan_batch(batch: parquet.Batch, policy: LocalPolicy, *, keep: bool) -> _Part:
    """Plan and score the rows of one batch, a cache-sized block at a time."""
    rows, C = len(batch.columns[0]), len(batch.columns)
    counts = np.empty((rows, C), np.int64) if keep else None
    samples = np.empty((rows, C), np.int64) if keep else None
    tallies: list[Tally] = []
    if batch.clients is not None:
        names(batch.clients, rows, "client")  # printable, and different within the batch
    for part in row_slices(rows, C):
        n = np.empty((part.stop - part.start, C), order="F")
        for c, column in enumerate(batch.columns):
            n[:, c] = column[part]
        clients = batch.clients and batch.clients[part]
        g, tally = policy.for_rows(part, clients).fill_and_tally(n)
        tallies.append(tally)
        if counts is not None and samples is not None:
            counts[part], samples[part] = n, g
    return _Part(add_tallies(tallies), counts, samples, batch.clients)
