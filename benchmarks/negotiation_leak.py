"""How much the exact sums of a negotiation say: a search for histograms that fit them.

    python benchmarks/negotiation_leak.py [--trials 4] [--seconds 30] [--sites 1 3]

The searcher knows the sums of the sites' words and each site's size N_k, as a server does. One site
stands for a federation in which all others side with the server: it subtracts theirs. Prints, per
number of sites, the mean part of a site's samples that the best fit puts into the wrong class
(classes sorted, since their order is not in the sums), beside that of a random guess of the same
size. The last line is JSON.
"""

import argparse
import json
import math
import time

import numpy as np
from numpy.typing import NDArray

from fedeas import skew
from fedeas.policies import FedEAS
from fedeas.privacy.choice import Betas, encode_counts

CLASSES, MOVES = 10, 64
Ints = NDArray[np.int64]


def draw(rng: np.random.Generator, sites: int) -> Ints:
    """Draw Dirichlet(0.1) sites of about 2,000 samples."""
    sizes = [max(50, int(rng.lognormal(math.log(2000), 0.5))) for _ in range(sites)]
    return np.array([rng.multinomial(n, rng.dirichlet([0.1] * CLASSES)) for n in sizes])


def words(histograms: Ints) -> NDArray[np.float64]:
    """Return the words of many histograms at once."""
    n, rule = histograms.astype(float), FedEAS()
    N = n.sum(axis=1)
    rate = rule.rate(n, N)
    filled = [rule.fill_to(n, N, np.floor(rate * beta)) for beta in Betas(CLASSES).numbers]
    samples = [g.sum(axis=1) for g in filled]
    scores = [N * skew.deviation(n + g) for g in filled]
    return np.rint(np.stack([N, N * skew.deviation(n), *samples, *scores], axis=1))


def search(
    target: NDArray[np.float64], sizes: Ints, rng: np.random.Generator, seconds: float
) -> Ints:
    """Return the histograms of these sizes that fit the sums best, by simulated annealing."""
    best, best_miss = None, math.inf
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and best_miss > 0:
        now = np.array([rng.multinomial(n, rng.dirichlet([0.1] * CLASSES)) for n in sizes])
        told = words(now)
        miss = np.abs(told.sum(axis=0) - target).sum()
        heat, stale = miss / 20, 0
        while stale < 60 and time.monotonic() < deadline and best_miss > 0:
            k = int(rng.integers(len(sizes)))
            moved = _moves(now[k], rng)
            theirs = words(moved)
            misses = np.abs(told.sum(axis=0) - told[k] + theirs - target).sum(axis=1)
            at = int(misses.argmin())
            better = misses[at] < miss
            if better or rng.random() < math.exp(-(misses[at] - miss) / max(heat, 1e-9)):
                now[k], told[k], miss = moved[at], theirs[at], misses[at]
            stale = 0 if better else stale + 1
            heat *= 0.995
            if miss < best_miss:
                best, best_miss = now.copy(), miss
    return now if best is None else best


def _moves(histogram: Ints, rng: np.random.Generator) -> Ints:
    """Return variants in which some samples went from one class to another."""
    every = np.arange(MOVES)
    moved = np.repeat(histogram[np.newaxis], MOVES, axis=0)
    source, target = rng.integers(CLASSES, size=(2, MOVES))
    held = moved[every, source]
    step = np.minimum(held, np.maximum(1, (rng.random(MOVES) ** 4 * 0.3 * held).astype(int)))
    moved[every, source] -= step
    moved[every, target] += step
    return moved


def wrong(found: Ints, true: Ints) -> list[float]:
    """Return the part of every site's samples that is in the wrong class, classes sorted."""
    apart = np.abs(np.sort(found, axis=1) - np.sort(true, axis=1)).sum(axis=1)
    return (apart / (2 * true.sum(axis=1))).tolist()


def main() -> None:
    """Attack federations of some sizes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--sites", type=int, nargs="+", default=[1, 3])
    given = parser.parse_args()
    found = {}
    for sites in given.sites:
        errors, guesses = [], []
        for trial in range(given.trials):
            rng = np.random.default_rng([sites, trial])
            true = draw(rng, sites)
            target = np.sum(
                [encode_counts(Betas(CLASSES), row) for row in true], axis=0, dtype=float
            )
            sizes = true.sum(axis=1)
            errors += wrong(search(target, sizes, rng, given.seconds), true)
            guess = [rng.multinomial(n, rng.dirichlet([0.1] * CLASSES)) for n in sizes]
            guesses += wrong(np.array(guess), true)
        found[sites] = {"wrong": float(np.mean(errors)), "guessing": float(np.mean(guesses))}
        print(f"{sites} sites: {found[sites]['wrong']:.2%} of a site's samples in the wrong class, "
              f"guessing {found[sites]['guessing']:.2%}")  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
