"""Fewer and larger shards, and none that hold a sample twice."""

import time
from collections.abc import Iterable, Sequence

import numpy as np

from fedeas.cache.markers import COMPACT, marked, others
from fedeas.cache.segments import Segments, overlaps, stand_twice, subtract, union
from fedeas.cache.shards import DamagedError, Entry, Form, Rows, read_shard, write_shard
from fedeas.cache.store import Cache
from fedeas.errors import InputError

_ENOUGH = 32 << 20  # bytes of a shard that is left as it is


def compact_doubled(cache: Cache) -> bool:
    """Rewrite shards that hold samples of others; tell whether there were any.

    A sample that stands twice is kept in the shard with the smallest name, by everybody alike. Two
    that do this at once may undo each other's work, so whoever calls it looks again afterwards.
    """
    entries = cache.entries({})
    about = cache.about()
    if about is None or not stand_twice(_all(entries)):
        return False
    seen: list[Segments] = []
    names = tuple(dict.fromkeys(name for entry in entries for name in entry.segments.names))
    for entry in entries:
        held = union(seen, names)
        rest = subtract(entry.segments.renamed(names), held)
        if rest.total < entry.segments.total:
            if rest.total:
                _write(cache, about.form, [(entry, rest)])
            entry.drop()
        seen.append(entry.segments)
    return True


def compact(cache: Cache) -> tuple[int, int]:
    """Merge small shards into large ones; return how many there were, and how many there are.

    Fills that end meanwhile wait for it, and it does not begin beside one: the old shards and the
    new ones would look like samples that two fills have made.
    """
    if cache.about() is None:
        return 0, 0
    with marked(cache.storage, COMPACT) as own:
        if others(cache.storage, own):
            raise InputError(
                f"{cache.place} is being filled or compacted", fix="compact it when that has ended"
            )
        before = cache.entries()
        _merge_small(cache, before)
        while compact_doubled(cache):
            pass
        return len(before), len(cache.entries())


def _merge_small(cache: Cache, before: Sequence[Entry]) -> None:
    about = cache.about()
    if about is None:
        return
    group: list[Entry] = []
    for entry in before:
        if entry.segments.total * about.form.bytes < _ENOUGH:
            group.append(entry)
        if sum(one.segments.total for one in group) * about.form.bytes >= 2 * _ENOUGH:
            _merge(cache, about.form, group)
            group = []
    _merge(cache, about.form, group)


def _merge(cache: Cache, form: Form, entries: Sequence[Entry]) -> None:
    if len(entries) > 1:
        written = _write(cache, form, [(entry, entry.segments) for entry in entries])
        for entry in entries:
            if entry.shard != written.shard:
                entry.drop()


def _write(cache: Cache, form: Form, parts: Iterable[tuple[Entry, Segments]]) -> Entry:
    """Write some samples of some shards to a new one."""
    begun, seconds = time.monotonic(), 0.0
    names: list[str] = []
    rows: list[Rows] = []
    requests: list[str] = []
    for entry, segments in parts:
        share = segments.total / entry.segments.total
        seconds += entry.seconds * share
        requests.append(entry.request)
        kept = 0
        for name, found in read_shard(entry, form):
            each = Segments((name,), found.clients, found.labels, found.indices, found.indices + 1)
            wanted = np.unique(overlaps(each, segments.renamed((name,))).one)
            part = found.take(wanted)
            kept += len(part)
            part.clients[:] = len(names)
            names.append(name)
            rows.append(part)
        if kept != segments.total:
            raise DamagedError(entry.storage, entry.file, "it is not what its entry says")
    merged = Rows(
        *(
            np.concatenate([getattr(part, column) for part in rows])
            for column in ("clients", "labels", "indices", "seeds", "samples")
        )
    )
    unique = list(dict.fromkeys(names))
    place = np.array([unique.index(name) for name in names], np.int64)
    merged.clients[:] = place[merged.clients]
    request = requests[0] if len(set(requests)) == 1 else ""
    return write_shard(
        cache.storage, form, unique, merged, request, seconds + time.monotonic() - begun
    )


def _all(entries: Sequence[Entry]) -> Segments:
    names = tuple(dict.fromkeys(name for entry in entries for name in entry.segments.names))
    return union((entry.segments for entry in entries), names)
