"""How often beta from noisy sums is the one that the plain counts lead to.

    python benchmarks/private_beta.py [--draws 400] [--sites 3 5 10 20 100]

Draws federations of 10 classes: Dirichlet 0.1 and 0.3 in turn, sites of about 300 to 5,000 samples
on average that differ by a log-normal factor of 0.8. For every one it compares the beta chosen from
sums with the noise of an epsilon (delta = 1e-6; one sample of one site, added or removed) with

- `query`: the one that the same query chooses without noise;
- `rule`: the one that the exact FedEAS rule leads to, on the same grid and by the same conditions.

`same` and `near` (at most one step of the grid away) are parts of all draws; a draw in which the
noise hides everything, so that no beta is chosen, counts as neither. The tables of real sites in
$FEDEAS_DATA/sites are further rows, with 100 draws of the noise each. The last line is JSON.
"""

import argparse
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas import LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.planning import skew
from fedeas.planning.policies import FedEAS
from fedeas_private.queries.effects import BetaQuery, Effects, NoisyEstimate, choose_by_conditions

CLASSES, DELTA, EPSILONS = 10, 1e-6, (1.0, 4.0)
Ints = NDArray[np.int64]


def sigma_of(query: BetaQuery, epsilon: float = math.inf) -> float:
    """Return the noise of a sum for an epsilon, by zero-concentrated differential privacy."""
    if epsilon == math.inf:
        return 0.0
    log = math.log(1 / DELTA)
    rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
    return query.sensitivity / math.sqrt(2 * rho)


def draw(sites: int, number: int) -> Ints:
    """Draw a federation."""
    rng = np.random.default_rng([sites, number])
    typical = rng.uniform(math.log(300), math.log(5000))
    sizes = np.maximum(20, rng.lognormal(typical, 0.8, sites).astype(np.int64))
    return rng.multinomial(sizes, rng.dirichlet([(0.1, 0.3)[number % 2]] * CLASSES, sites))


def exact_effects(query: BetaQuery, n: Ints) -> Effects:
    """Return what the FedEAS rule itself does at every beta of the grid."""
    x, rule = n.astype(float), FedEAS()
    N = x.sum(axis=1)
    rate = rule.rate(x, N)
    filled = [rule.fill_to(x, N, np.floor(rate * beta)) for beta in query.numbers]
    samples = np.array([g.sum() for g in filled])
    scores = np.array([N @ skew.deviation(x + g) for g in filled])
    zeros = np.zeros(len(samples))
    before = NoisyEstimate(float(N @ skew.deviation(x)), 0.0)
    real = NoisyEstimate(float(N.sum()), 0.0)
    return Effects(query.numbers, samples, zeros, scores, zeros, before, real, len(n))


def place(query: BetaQuery, effects: Effects) -> float:
    """Return the place in the grid of the beta that is chosen, NaN if there is none."""
    try:
        chosen = choose_by_conditions(query, effects)
    except InfeasibleError:
        return math.nan
    assert isinstance(chosen.policy, FedEAS)
    return query.numbers.tolist().index(chosen.policy.beta)


def compare(tables: Iterator[tuple[Ints, int]]) -> dict[str, dict[str, float]]:
    """Return how often the noisy choice agrees, over tables that each come with a seed."""
    counted: dict[float, list[list[bool]]] = {epsilon: [] for epsilon in EPSILONS}
    for n, seed in tables:
        query = BetaQuery(n.shape[1])
        sums = query.answers(n).sum(axis=0)
        plain = place(query, query.read(sums, 0.0, len(n)))
        exact = place(query, exact_effects(query, n))
        rng = np.random.default_rng([seed, 1])
        for epsilon in EPSILONS:
            sigma = sigma_of(query, epsilon)
            noise = np.rint(rng.normal(size=query.length) * sigma).astype(np.int64)
            found = place(query, query.read(sums + noise, sigma, len(n)))
            steps = (abs(found - plain), abs(found - exact))
            counted[epsilon].append([step <= far for step in steps for far in (0, 1)])
    keys = ("same as query", "near query", "same as rule", "near rule")
    return {
        f"{epsilon:g}": dict(zip(keys, np.mean(rows, axis=0).round(4).tolist(), strict=True))
        for epsilon, rows in counted.items()
    }


def show(name: str, found: dict[str, dict[str, float]]) -> None:
    """Print a line for every epsilon."""
    for epsilon, figures in found.items():
        line = ", ".join(f"{key} {value:.1%}" for key, value in figures.items())
        print(f"{name}, epsilon {epsilon}: {line}", flush=True)


def main() -> None:
    """Compare drawn federations of some sizes, and the tables that are there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 5, 10, 20, 100])
    given = parser.parse_args()
    found = {}
    for sites in given.sites:
        found[f"{sites} sites"] = compare((draw(sites, d), d) for d in range(given.draws))
        show(f"{sites} sites", found[f"{sites} sites"])
    folder = Path(os.environ.get("FEDEAS_DATA", "data")) / "sites"
    for path in sorted(folder.glob("*.csv")):
        n = LabelCounts.load(path).n
        name = f"{path.stem} ({len(n)} sites)"
        found[name] = compare((n, d) for d in range(100))
        show(name, found[name])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
