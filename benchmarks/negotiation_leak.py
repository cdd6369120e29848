"""How much the sums of a negotiation say about one site: a search for histograms that fit them.

    python benchmarks/negotiation_leak.py [--trials 4] [--steps 2000] [--sites 1 3 5 20 100]

The attacker knows the sums that `BetaQuery` gives, how strong their noise is, each site's size N_k,
and how the sites were drawn. It runs many Markov chains over the histograms of all sites, from
drawn ones to ones that fit the sums, and takes either the mean of their last halves or the best fit
of all, whichever is nearer the truth (which it could not know: this flatters the attack). The guess
beside it knows all of that but the sums. Prints, per number of sites and epsilon (inf: exact
sums), the mean part of a site's samples that are put into the wrong class; classes are sorted,
since their order is not in the sums. One site stands for a federation in which all others collude
with the server. The last line is JSON.
"""

import argparse
import json
import math

import numpy as np
from numpy.typing import NDArray
from private_beta import sigma_of

from fedeas_private.queries.effects import BetaQuery

CLASSES, CHAINS, ALPHA = 10, 48, 0.1
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def draw_sites(rng: np.random.Generator, sizes: Ints) -> Ints:
    """Draw a Dirichlet(0.1) site of every size."""
    shares = rng.dirichlet([ALPHA] * CLASSES, sizes.shape)
    return rng.multinomial(sizes, shares)


class Chains:
    """Markov chains over the histograms of all sites, given their sums."""

    def __init__(self, query: BetaQuery, sums: Ints, sigma: float, sizes: Ints) -> None:
        self.query, self.sums, self.sizes = query, sums.astype(float), sizes
        # Exact sums are off by the rounding of every site.
        self.sigma = max(sigma, math.sqrt(len(sizes) / 12))
        self.log_gamma = np.array([math.lgamma(n + ALPHA) for n in range(int(sizes.max()) + 2)])

    def search(self, rng: np.random.Generator, steps: int) -> tuple[Floats, Ints]:
        """Return the mean sorted histograms of the second half, and those that fit best."""
        now = draw_sites(rng, np.broadcast_to(self.sizes, (CHAINS, len(self.sizes))))
        told = np.array([self.query.words(one.astype(float)) for one in now])
        total = told.sum(axis=1)
        miss = self._miss(total)
        best, best_miss = now[0], math.inf
        mean, kept = np.zeros(now.shape[1:]), 0
        chains = np.arange(CHAINS)
        first_heat = max(1.0, float(np.median(miss)) / self.query.length)
        for step in range(steps):
            heat = first_heat ** max(0.0, 1 - 2 * step / steps)
            k = rng.integers(len(self.sizes), size=CHAINS)
            moved, prior = self._propose(now[chains, k], self.sizes[k], rng)
            words = self.query.words(moved.astype(float))
            sums = total - told[chains, k] + words
            misses = self._miss(sums)
            gain = (miss - misses) / (2 * heat) + prior
            taken = np.log(rng.random(CHAINS)) < gain
            at = chains[taken], k[taken]
            now[at], told[at] = moved[taken], words[taken]
            total[taken], miss[taken] = sums[taken], misses[taken]
            if miss.min() < best_miss:
                best, best_miss = now[miss.argmin()].copy(), float(miss.min())
            if step > steps // 2:
                mean += np.sort(now, axis=2).mean(axis=0)
                kept += 1
        return mean / max(1, kept), best

    def _miss(self, sums: Floats) -> Floats:
        miss: Floats = (((sums - self.sums) / self.sigma) ** 2).sum(axis=-1)
        return miss

    def _propose(self, held: Ints, sizes: Ints, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Move samples between two classes, or draw anew; with the prior's part in accepting it."""
        every = np.arange(len(held))
        source, target = rng.integers(CLASSES, size=(2, len(held)))
        step = np.rint((sizes / 2.0) ** rng.random(len(held))).astype(np.int64)
        step = np.where((step <= held[every, source]) & (source != target), step, 0)
        moved = held.copy()
        moved[every, source] -= step
        moved[every, target] += step
        prior = (self.log_gamma[moved] - self.log_gamma[held]).sum(axis=1)
        anew = rng.random(len(held)) < 0.2  # proposed as the prior says: its part cancels
        return (
            np.where(anew[:, np.newaxis], draw_sites(rng, sizes), moved),
            np.where(anew, 0.0, prior),
        )


def wrong(found: Floats | Ints, true: Ints) -> float:
    """Return the part of a site's samples that is in the wrong class, classes sorted."""
    apart = np.abs(np.sort(found, axis=1) - np.sort(true, axis=1)).sum(axis=1)
    return float((apart / (2 * true.sum(axis=1))).mean())


def attack(sites: int, epsilons: list[float], seed: int, steps: int) -> dict[str, float]:
    """Attack one drawn federation; return the errors per epsilon, and that of the guess."""
    rng, query = np.random.default_rng([sites, seed]), BetaQuery(CLASSES)
    sizes = np.maximum(50, rng.lognormal(math.log(2000), 0.5, sites).astype(np.int64))
    true = draw_sites(rng, sizes)
    guess = np.mean([np.sort(draw_sites(rng, sizes), axis=1) for _ in range(200)], axis=0)
    errors = {"guessing": wrong(guess, true)}
    for epsilon in epsilons:
        sigma = sigma_of(query, epsilon)
        noise = np.rint(rng.normal(size=query.length) * sigma).astype(np.int64)
        sums = query.answers(true).sum(axis=0) + noise
        found = Chains(query, sums, sigma, sizes).search(rng, steps)
        errors[f"{epsilon:g}"] = min(wrong(f, true) for f in found)
    return errors


def main() -> None:
    """Attack federations of some sizes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--sites", type=int, nargs="+", default=[1, 3, 5, 20, 100])
    given = parser.parse_args()
    found = {}
    for sites in given.sites:
        each = [attack(sites, [math.inf, 4.0, 1.0], t, given.steps) for t in range(given.trials)]
        found[sites] = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
        line = ", ".join(f"{key} {error:.1%}" for key, error in found[sites].items())
        print(f"{sites} sites, samples in the wrong class: {line}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
