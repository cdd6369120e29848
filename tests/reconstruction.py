"""An attack: every client's histogram from the exact sums of a negotiation and the sizes N_k.

The server adds up, for a grid of betas, the samples S that all clients would generate and their
scores T = sum_k N_k ||q_k - u||^2, and learns the N_k when training starts. While beta is small,
most steps of S are one client's: its budget b grew by one. Such a step and its change of T give
that client's sum of squares as a whole number, if scores are fine enough. From there the grid is
peeled beta by beta: which budgets grew, which classes of which clients were passed. The few classes
that no budget reaches follow from the size, the sum of squares and the rate of b, which holds the
entropy.

Only what a server that follows the protocol sees is used. Classes come out sorted: their order is
not in the sums.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedeas.planning.skew import skewness

Histogram = tuple[int, ...]
_FIRST_BETAS = 4.0  # up to which steps of single clients are looked for
_BEAM = 256
_GUARD = 1e-12


@dataclass(frozen=True)
class Seen:
    """What the server sees: the grid, the sums, and the sizes of the clients."""

    betas: Sequence[float]
    samples: Sequence[int]
    scores: Sequence[int]  # in units of 2**-bits
    score_before: int
    sizes: Sequence[int]
    classes: int
    bits: int  # binary places of a client's score


@dataclass(frozen=True)
class State:
    """What is held true of one client while the grid is peeled."""

    size: int
    squares: int  # sum of its squared counts
    budget: int
    low: float  # of the rate by which its budget grows with beta
    high: float
    passed: Histogram  # counts that its budget has grown past


def reconstruct(seen: Seen) -> list[Histogram | None]:
    """Return each client's sorted histogram where exactly one fits all that is seen."""
    unknown: list[Histogram | None] = [None] * len(seen.sizes)
    found = [_beginnings(seen, k) for k in range(len(seen.sizes))]
    if not all(found):
        return unknown
    for chosen in itertools.islice(_fitting(seen, found), 64):
        clients = [
            State(size, squares, 0, low * (1 - _GUARD), high * (1 + _GUARD), counts)
            for size, (squares, counts, low, high) in zip(seen.sizes, chosen, strict=True)
        ]
        if (peeled := _peel(seen, clients)) is not None:
            fits = [list(itertools.islice(_finish(seen, c), 2)) for c in peeled]
            return [one[0] if len(one) == 1 else None for one in fits]
    return unknown


def score(seen: Seen, size: int, total: int, squares: int) -> int:
    """Return a client's score as it is sent."""
    far = size * max(0.0, squares / total**2 - 1.0 / seen.classes)
    if not seen.bits:
        return round(far)
    whole = math.floor(far)
    return (whole << seen.bits) + math.floor((far - whole) * 2.0**seen.bits)


@lru_cache(maxsize=64)
def _first_steps(classes: int, scarce: int) -> tuple[np.ndarray, list[Histogram]]:
    """Ways in which a budget of m - 1 grows to m past `scarce` classes of a few small counts."""
    starts = [(n,) * scarce for n in range(30)]
    for first in range(1, scarce):
        starts += [(0,) * first + (n,) * (scarce - first) for n in range(1, 16)]
        starts += [(1,) * first + (n,) * (scarce - first) for n in range(2, 8)]
    rows, names = [], []
    for counts in starts:
        for m in range(max(counts) + 1, max(counts) + 14):
            before = [(m - 1 - n, (m - 1) ** 2 - n * n) for n in counts]
            after = [(m - n, m * m - n * n) for n in counts]
            sums = [sum(column) for step in (before, after) for column in zip(*step, strict=True)]
            rows.append((m, *sums, max(counts)))
            names.append(counts)
    return np.array(rows, float), names


def _beginnings(seen: Seen, client: int) -> list[tuple[int, Histogram, float, float]]:
    """Return sums of squares and smallest counts that explain single steps, the best first."""
    size, classes = seen.sizes[client], seen.classes
    steps: dict[tuple[int, Histogram], list[tuple[int, float, float]]] = {}
    for i in range(1, len(seen.betas)):
        scarce = seen.samples[i] - seen.samples[i - 1]
        if seen.betas[i] > _FIRST_BETAS or not 0 < scarce < classes:
            continue
        change = seen.scores[i] - seen.scores[i - 1]
        table, names = _first_steps(classes, scarce)
        m, more0, squares0, more1, squares1, top = table.T
        total0, total1 = size + more0, size + more1
        wanted = change / 2.0**seen.bits / size - squares1 / total1**2 + squares0 / total0**2
        exact = wanted / (1 / total1**2 - 1 / total0**2)
        rounded = np.rint(exact)
        possible = (
            (abs(exact - rounded) < 0.05)
            & (rounded >= size * size / classes) & (rounded <= size * size)
            & ((rounded - size) % 2 == 0)
            & (m <= math.sqrt(size / classes) * seen.betas[i] * (1 + 1e-9)) & (top < size / classes)
        )  # fmt: skip
        for row in np.flatnonzero(possible):
            squares = int(rounded[row])
            after = score(seen, size, int(total1[row]), squares + int(squares1[row]))
            before = score(seen, size, int(total0[row]), squares + int(squares0[row]))
            if after - before == change:
                step = (int(m[row]), seen.betas[i - 1], seen.betas[i])
                steps.setdefault((squares, names[row]), []).append(step)
    ranked = []
    for (squares, counts), votes in steps.items():
        agreeing = _agreeing(votes)
        low = max(m / after for m, _, after in agreeing)
        high = min(m / before for m, before, _ in agreeing)
        ranked.append((len({m for m, *_ in agreeing}), squares, counts, low, high))
    ranked.sort(key=lambda one: (-one[0], len(set(one[2]))))
    return [one[1:] for one in ranked]


def _agreeing(votes: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Return the largest set of steps that one rate explains."""
    best: list[tuple[int, float, float]] = []
    for first in votes:
        chosen, low, high = [first], first[0] / first[2], first[0] / first[1]
        for m, before, after in votes:
            if (m, before, after) != first and max(low, m / after) < min(high, m / before):
                chosen.append((m, before, after))
                low, high = max(low, m / after), min(high, m / before)
        if len({m for m, *_ in chosen}) > len({m for m, *_ in best}):
            best = chosen
    return best


def _fitting(seen: Seen, found: list[list[tuple]]) -> Iterator[tuple]:
    """Yield a beginning for every client such that all scores before generation add up."""
    for squares in itertools.islice(
        itertools.product(*[list(dict.fromkeys(one[0] for one in own))[:6] for own in found]),
        50_000,
    ):
        before = (score(seen, n, n, s) for n, s in zip(seen.sizes, squares, strict=True))
        if sum(before) == seen.score_before:
            yield from itertools.product(
                *[[o for o in own if o[0] == s][:3] for own, s in zip(found, squares, strict=True)]
            )


def _peel(seen: Seen, clients: list[State]) -> list[State] | None:
    """Follow all clients along the grid; None where nothing, or too much, fits."""
    beam = [tuple(clients)]
    for beta, samples, scores in zip(seen.betas, seen.samples, seen.scores, strict=True):
        following = []
        for states in beam:
            following += _next_states(seen, states, beta, samples, scores)
        if not 0 < len(following) <= _BEAM:
            return None
        beam = following
    return list(beam[0])


def _next_states(
    seen: Seen, states: tuple[State, ...], beta: float, samples: int, scores: int
) -> list[tuple[State, ...]]:
    budgets = []
    for c in states:
        lowest = max(c.budget, math.floor(c.low * beta * (1 - 1e-13)))
        budgets.append(range(lowest, max(lowest, math.floor(c.high * beta * (1 + 1e-13))) + 1))
    if math.prod(map(len, budgets)) > 2048:
        return []
    for newly in range(4):  # distinct counts that are passed in this step, the fewest first
        found = []
        for chosen in itertools.product(*budgets):
            now = [_sent(seen, c, b, ()) for c, b in zip(states, chosen, strict=True)]
            left = samples - sum(s for s, _ in now), scores - sum(t for _, t in now)
            for passed in _passed(seen, states, chosen, left[0], newly):
                added = [_sent(seen, c, b, p)[1] - t for c, b, p, (_, t) in
                         zip(states, chosen, passed, now, strict=True)]  # fmt: skip
                if sum(added) == left[1]:
                    found.append(tuple(_moved(c, b, p, beta) for c, b, p in
                                       zip(states, chosen, passed, strict=True)))  # fmt: skip
        if found:
            return found
    return []


def _sent(seen: Seen, client: State, budget: int, more: Histogram) -> tuple[int, int]:
    """Return the samples and the score of a client at a budget."""
    filled = [n for n in (*client.passed, *more) if n < budget]
    samples = sum(budget - n for n in filled)
    squares = client.squares + sum(budget**2 - n * n for n in filled)
    return samples, score(seen, client.size, client.size + samples, squares)


def _passed(
    seen: Seen, states: Sequence[State], budgets: Sequence[int], samples: int, distinct: int
) -> Iterator[list[Histogram]]:
    """Yield the counts that clients' budgets may have grown past, worth so many samples."""
    items = [
        (k, n, b - n)
        for k, (c, b) in enumerate(zip(states, budgets, strict=True))
        for n in range(c.budget, b)
        if n < c.size / seen.classes and len(c.passed) < seen.classes - 1
    ]
    if samples < 0 or (distinct >= 2 and len(items) > 300):
        return
    for combination in itertools.combinations(items, distinct):
        for often in _multiples([worth for *_, worth in combination], samples):
            found: list[Histogram] = [()] * len(states)
            for (k, n, _), times in zip(combination, often, strict=True):
                found[k] += (n,) * times
            if all(
                len(c.passed) + len(p) < seen.classes for c, p in zip(states, found, strict=True)
            ):
                yield found


def _multiples(worth: list[int], total: int) -> Iterator[tuple[int, ...]]:
    """Yield how often each of some numbers, at least once, adds up to a total."""
    if not worth:
        if total == 0:
            yield ()
        return
    for times in range(1, min(9, total // worth[0]) + 1):
        for rest in _multiples(worth[1:], total - times * worth[0]):
            yield (times, *rest)


def _moved(client: State, budget: int, passed: Histogram, beta: float) -> State:
    low = max(client.low, budget / beta * (1 - 1e-13))
    high = min(client.high, (budget + 1) / beta * (1 + 1e-13))
    return State(client.size, client.squares, budget, low, high, client.passed + passed)


def _finish(seen: Seen, client: State) -> Iterator[Histogram]:
    """Yield the histograms whose large classes have the right sum, squares and entropy."""
    small = [n for n in client.passed if n < client.size / seen.classes]
    least = min(client.budget, math.ceil(client.size / seen.classes))
    rest = client.size - sum(small), client.squares - sum(n * n for n in small)
    for large in itertools.islice(_large(seen.classes - len(small), *rest, least), 200_000):
        whole = (*sorted(small), *large)
        rate = math.sqrt(client.size / seen.classes) * float(skewness([whole])[0])
        if client.low * (1 - 1e-11) <= rate <= client.high * (1 + 1e-11):
            yield whole


def _large(count: int, total: int, squares: int, least: int) -> Iterator[Histogram]:
    """Yield sorted whole numbers from `least` on with a given sum and sum of squares."""
    if count == 1:
        if total >= least and total * total == squares:
            yield (total,)
        return
    if count == 2:
        gap = 2 * squares - total * total
        root = math.isqrt(max(0, gap))
        if root * root == gap and (total - root) % 2 == 0 and (total - root) // 2 >= least:
            yield (total - root) // 2, (total + root) // 2
        return
    for first in range(least, total // max(1, count) + 1):
        others, left = total - first, squares - first * first
        if left * (count - 1) >= others * others:
            for more in _large(count - 1, others, left, first):
                yield (first, *more)
