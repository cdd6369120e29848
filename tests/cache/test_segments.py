"""Which samples are wanted, held, missing or there twice, against sets of single samples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedeas.cache.request import Request
from fedeas.cache.segments import Segments, overlaps, runs, stand_twice, subtract

NAMES = ("a", "b", "c")
held_rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 12), st.integers(1, 5)),
    max_size=8,
)
wanted_rows = st.lists(st.lists(st.integers(0, 12), min_size=2, max_size=2), min_size=3, max_size=3)


def of(held) -> Segments:
    columns = [[h[0] for h in held], [h[1] for h in held], [h[2] for h in held]]
    return Segments.of((*NAMES, "other"), *columns, [h[2] + h[3] for h in held])


def samples(segments: Segments) -> list[tuple[str, int, int]]:
    columns = segments.clients, segments.labels, segments.starts, segments.stops
    return [
        (segments.names[k], label, i)
        for k, label, start, stop in zip(*(c.tolist() for c in columns), strict=True)
        for i in range(start, stop)
    ]


def wanted_of(counts) -> Segments:
    return Segments.wanted(dict(zip(NAMES, counts, strict=True)))


@given(held_rows, wanted_rows)
def test_what_is_missing_is_exactly_what_is_not_there(held, counts):
    missing = samples(subtract(wanted_of(counts), of(held)))
    assert sorted(missing) == sorted(set(samples(wanted_of(counts))) - set(samples(of(held))))


@given(held_rows, held_rows, wanted_rows)
def test_twice_is_as_well_as_together(one, other, counts):
    """What was missing before is again a thing to subtract from."""
    first = subtract(wanted_of(counts), of(one))
    second = samples(subtract(first, of(other)))
    assert sorted(second) == sorted(set(samples(first)) - set(samples(of(other))))


@given(held_rows)
def test_a_sample_twice_is_seen(held):
    rows = samples(of(held))
    assert stand_twice(of(held)) == (len(rows) > len(set(rows)))


@given(held_rows, wanted_rows)
def test_where_segments_meet(held, counts):
    wanted = wanted_of(counts)
    known = of([h for h in held if h[0] < 3])
    met = overlaps(known, wanted)
    columns = known.clients[met.one], known.labels[met.one], met.starts, met.stops
    rows = samples(Segments(known.names, *columns))
    assert sorted(rows) == sorted(r for r in samples(known) if r in set(samples(wanted)))


@given(wanted_rows, st.integers(1, 9))
def test_batches_are_all_samples_one_after_the_other(counts, size):
    wanted = wanted_of(counts)
    if not len(wanted):
        return
    request = Request(wanted, size, 1)
    batches = [request.batch(number) for number in range(request.batches)]
    assert [row for batch in batches for row in samples(batch)] == samples(wanted)
    assert {batch.total for batch in batches[:-1]} <= {size}


@given(wanted_rows, held_rows, st.integers(1, 9))
def test_the_batches_of_missing_samples_are_found(counts, held, size):
    wanted = wanted_of(counts)
    if not len(wanted):
        return
    request = Request(wanted, size, 1)
    missing = subtract(wanted, of(held))
    numbers, found = request.batches_with(missing)
    lacking = set(samples(missing))
    assert numbers.tolist() == [
        n for n in range(request.batches) if lacking & set(samples(request.batch(n)))
    ]
    assert sorted(samples(found)) == sorted(lacking)


def test_runs_of_rows():
    found = runs(np.array([0, 0, 1, 1]), np.array([3, 4, 0, 2]))
    assert samples(found) == [("", 0, 3), ("", 0, 4), ("", 1, 0), ("", 1, 2)]
    assert len(found) == 3
