"""Rows from noisy marginals (Private-PGM) against those of `private`: a classifier's accuracy.

    pip install mbi    # with jax: 90 MB to download, 390 MB installed
    python benchmarks/row_marginals.py [--data NAME ...] [--epsilon E ...] [--seeds N ...]
        [--record]

Learns `private`'s intervals of every column (12 % of the budget, as `private` does), then spends
the rest on counts of (class, column), and of (class, column, column) for pairs of columns, at most
a tree of them, and has mbi fit and draw rows. A row adds one to one cell of each of M tables of
counts, so their L2 sensitivity is sqrt(M). Pairs are those that say more than their noise hides,
**chosen by looking at the rows**: a real mechanism would have to pay for that, so the figures of
`marginals` are above what it could have.

A random forest and the network `mlp` are trained on as many rows as there are (at most 4,000), and
tested on real test rows: accuracy and the mean over classes. `real` is trained on the real rows.
Sites are natural ones for forest, rodents and loans, Dirichlet 0.1 on 20 clients for the others;
delta is 1e-5, and noise is drawn from the seed. `seconds` are of one core. The record is
reproduction/recorded/row-marginals.csv, of one seed. mbi may do better than there: with 500 steps
and 12,000 rows, forest cover at epsilon 10 had 67.2 % (forest) and 64.9 (mlp) from marginals, 65.4
and 65.0 from `private`.
"""

import argparse
import math
import sys
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from private_generator import DELTA, forest, share
from records import update_record

from fedeas._internal.seeds import child_rng
from fedeas.data import Dataset, open_dataset
from fedeas.data.kinds import find_kind
from fedeas.lab.config import Config, Data, PartitionConfig
from fedeas.lab.resolve import partition_data
from fedeas.private.accounting import rho_for
from fedeas.private.generator import rows as gaussian
from fedeas.private.generator.make import make_private
from fedeas.private.sums import SimulatedSums
from fedeas.train.loop import fit, predict
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings

SITES = {
    "forest": ("natural/covertype_areas", "site", ("soil_type", "label_name", "area", "split")),
    "rodents": ("natural/portal_rodents", "site", ("label_name", "split")),
    "loans": ("tables/loans", "state", ()),
}
RECORD = Path(__file__).parents[1] / "reproduction/recorded/row-marginals.csv"
KEYS = ("data", "what", "epsilon", "seed")
FIGURES = ("forest", "forest_classes", "mlp", "mlp_classes", "seconds")
BINS, MOST_ROWS, STEPS, GRID = 10, 4_000, 300, 4096
Ints = NDArray[np.int64]
Rows = NDArray[np.float32]
Table = tuple[NDArray[Any], NDArray[Any]]


def open_sites(name: str, seed: int) -> tuple[Dataset, list[Ints]]:
    """Open a table, and share it out."""
    if name not in SITES:
        data = open_dataset(f"tables/{name}")
        return data, share(data, data.train_size, seed)[0]
    path, site, drop = SITES[name]
    recipe = PartitionConfig(f"column({site})")
    federation = partition_data(Config(data=Data(path, drop_columns=drop), partition=recipe))
    return federation.data, [np.asarray(part) for part in federation.partition.train]


class Bins:
    """Values of a column in a few bins, and values drawn from a bin."""

    def __init__(self, values: NDArray[Any], gap: bool) -> None:
        self._grid, self._gap = values, gap  # values at even shares of the column
        cuts = np.unique(values[(np.arange(1, BINS) * len(values)) // BINS])
        self._cuts = cuts[cuts > values[0]]
        self.size = len(self._cuts) + 1 + gap
        self._of_grid = np.searchsorted(self._cuts, values, side="right")

    def encode(self, values: NDArray[Any]) -> Ints:
        """Return the bin of every value; a gap has the last, or that of the median."""
        missing = np.isnan(values)
        absent = self.size - 1 if self._gap else int(np.median(self._of_grid))
        bins = np.searchsorted(self._cuts, values, side="right")
        return np.where(missing, absent, bins).astype(np.int64)

    def decode(self, bins: Ints, rng: np.random.Generator) -> Rows:
        """Draw a value from every bin."""
        values = np.full(len(bins), np.nan, np.float32)
        for k in range(self.size - self._gap):
            at = bins == k
            values[at] = rng.choice(self._grid[self._of_grid == k], at.sum())
        return values


class Levels:
    """A column of categories, each a bin of its own."""

    def __init__(self, categories: int, gap: bool) -> None:
        self._categories, self.size, self._gap = categories, categories + gap, gap

    def encode(self, values: NDArray[Any]) -> Ints:
        """Return the code of every category."""
        absent = self._categories if self._gap else 0
        return np.nan_to_num(values, nan=absent).astype(np.int64)

    def decode(self, bins: Ints, rng: np.random.Generator) -> Rows:
        """Return the category of every bin."""
        return np.where(bins < self._categories, bins, np.nan).astype(np.float32)


def find_bins(data: Dataset, sites: list[Ints], epsilon: float, seed: int) -> list["Bins | Levels"]:
    """Ask for the intervals of `private`, and make a few bins of each column."""
    sums = SimulatedSums(data, sites, DELTA, seed=seed)
    encoding = gaussian._find_columns(
        data.schema, len(data.classes), lambda query, part: sums.ask(query, epsilon, part)
    )
    shares = (np.arange(GRID) + 0.5) / GRID
    places = np.array([NormalDist().inv_cdf(p) for p in shares.tolist()])
    curves = dict(zip(data.schema.numbers.tolist(), encoding.space.quantiles, strict=True))
    bins: list[Bins | Levels] = []
    for at, (column, gap) in enumerate(zip(data.schema.columns, encoding.space.gaps, strict=True)):
        if at in curves:
            values = curves[at].decode(places)
            bins.append(Bins(np.rint(values) if column.whole else values, gap))
        else:
            bins.append(Levels(len(column.categories), gap))
    return bins


def choose_pairs(codes: Ints, sizes: list[int], sigma: float) -> list[tuple[int, int]]:
    """Return a forest of pairs that say more, given the class, than their noise hides."""
    import networkx as nx

    graph, classes = nx.Graph(), codes[:, 0]
    for i in range(1, len(sizes)):
        for j in range(i + 1, len(sizes)):
            shape = sizes[0], sizes[i], sizes[j]
            flat = np.ravel_multi_index((classes, codes[:, i], codes[:, j]), shape)
            together = np.bincount(flat, minlength=math.prod(shape)).reshape(shape)
            of_class = np.maximum(together.sum(axis=(1, 2), keepdims=True), 1)
            apart = together.sum(2, keepdims=True) * together.sum(1, keepdims=True) / of_class
            gain = np.abs(together - apart).sum() - math.sqrt(2 / math.pi) * sigma * apart.size
            if gain > 0:
                graph.add_edge(i, j, weight=gain)
    return list(nx.maximum_spanning_edges(graph, data=False))


def marginal_rows(data: Dataset, sites: list[Ints], epsilon: float, seed: int) -> Table:
    """Return rows and labels that mbi draws from noisy marginals."""
    import mbi

    bins = find_bins(data, sites, epsilon, seed)
    at = np.concatenate(sites)
    rows, labels = np.asarray(data.samples[at]), np.asarray(data.labels[at])
    codes = np.stack([labels, *(one.encode(rows[:, k]) for k, one in enumerate(bins))], axis=1)
    sizes = [len(data.classes), *(one.size for one in bins)]
    rho = gaussian._MOMENTS * rho_for(epsilon, DELTA)
    cliques = [(0, k) for k in range(1, len(sizes))]
    most = math.sqrt((2 * len(bins) - 1) / (2 * rho))
    cliques += [(0, *sorted(pair)) for pair in choose_pairs(codes, sizes, most)]
    sigma = math.sqrt(len(cliques) / (2 * rho))
    domain = mbi.Domain([str(k) for k in range(len(sizes))], sizes)
    rng, measured = child_rng(seed, "marginals"), []
    for clique in cliques:
        shape = [sizes[k] for k in clique]
        flat = np.ravel_multi_index(tuple(codes[:, k] for k in clique), shape)
        counts = np.bincount(flat, minlength=math.prod(shape))
        noisy = counts + rng.normal(0, sigma, counts.size)
        measured.append(mbi.LinearMeasurement(noisy, tuple(map(str, clique)), sigma))
    model = mbi.estimation.MirrorDescent().estimate(domain, measured, iters=STEPS)
    np.random.seed(seed)  # noqa: NPY002  what mbi draws from
    drawn = model.synthetic_data(min(len(labels), MOST_ROWS)).to_dict()
    print(f"  {len(cliques)} marginals, {len(cliques) - len(bins)} of pairs", flush=True)
    columns = [
        one.decode(np.asarray(drawn[str(k + 1)], np.int64), rng) for k, one in enumerate(bins)
    ]
    return np.stack(columns, axis=1), np.asarray(drawn["0"], np.int64)


def private_rows(data: Dataset, sites: list[Ints], epsilon: float, seed: int) -> Table:
    """Return rows and labels of today's generator."""
    made = make_private(data, sites, epsilon, DELTA, seed=seed, seeded_noise=True)
    counts = np.maximum(np.array(made.card.counts), 0)
    size = min(sum(map(len, sites)), MOST_ROWS)
    each = np.rint(size * counts / counts.sum()).astype(np.int64)
    labels = np.repeat(np.arange(len(counts)), each)
    return made.sample(labels, np.arange(len(labels), dtype=np.uint64)), labels


def real_rows(data: Dataset, sites: list[Ints], epsilon: float, seed: int) -> Table:
    """Return real rows."""
    at = child_rng(seed, "real").permutation(np.concatenate(sites))[:MOST_ROWS]
    return np.asarray(data.samples[at]), np.asarray(data.labels[at])


MAKERS = {"private": private_rows, "marginals": marginal_rows, "real": real_rows}


def network(data: Dataset, rows: Rows, labels: Ints, tested: Rows, seed: int) -> Ints:
    """Train the network for tables on rows; return what it takes the tested ones for."""
    mean, std = find_kind(data.kind).statistics(rows)
    task = Task(len(data.classes), rows.shape[1:], mean, std, data.kind, data.schema)
    model, rng = (
        make_model(ModelSettings("mlp"), task, seed),
        child_rng(seed, "classifier"),
    )
    samples = Samples.of(data, np.empty(0, np.int64), rows, labels)
    for passes, rate in ((8, 1e-3), (1, 1e-4)):
        fit(model, samples, Local(passes, 128, learning_rate=rate, optimizer="adam"), rng)
    return np.asarray(predict(model, tested))


def figures(guess: Ints, truth: Ints) -> tuple[float, float]:
    """Return the accuracy and the mean over classes, in percent."""
    classes = [float((guess[truth == c] == c).mean()) for c in np.unique(truth)]
    return 100 * float((guess == truth).mean()), 100 * float(np.mean(classes))


def measure(name: str, what: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Return a row of the record."""
    data, sites = open_sites(name, seed)
    tested = np.asarray(data.samples[data.train_size :])
    truth = np.asarray(data.labels[data.train_size :])
    since = time.process_time()
    rows, labels = MAKERS[what](data, sites, epsilon, seed)
    seconds = time.process_time() - since
    of_forest = figures(forest(rows, labels, tested, seed), truth)
    of_mlp = figures(network(data, rows, labels, tested, seed), truth)
    values = (*of_forest, *of_mlp, seconds)
    about = {"data": name, "what": what, "epsilon": f"{epsilon:g}", "seed": str(seed)}
    return about | {field: f"{value:.1f}" for field, value in zip(FIGURES, values, strict=True)}


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", nargs="+", default=["loans", "forest", "rodents", "letter", "satimage"]
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    for seed in chosen.seeds:
        for name in chosen.data:
            cells = [(what, e) for e in chosen.epsilon for what in ("private", "marginals")]
            for what, epsilon in [*cells, ("real", math.inf)]:
                row = measure(name, what, epsilon, seed)
                print(*row.values(), flush=True)
                if chosen.record:
                    command = " ".join(["python benchmarks/row_marginals.py", *sys.argv[1:]])
                    update_record(RECORD, KEYS, [row], command)


if __name__ == "__main__":
    main()
