"""Rounds that a federation saves by beginning from samples of its private generator.

    PYTHONPATH=. python benchmarks/private_start.py [OUT] [--data letter satimage fashion]
        [--epsilon 1 10] [--ways none copies fedeas] [--seeds 5] [--rounds 40] [--record]

Clients, model, learning rate and equal steps for all ways are those of the study
(reproduction/configs/evidence), with 40 rounds. The ways are none, copies, and FedEAS with private
samples, each from nothing and from the private start: FedEAS draws from the generator that its run
starts from. Noise is drawn from the seed, so that figures can be had again. How first weights are
trained was chosen on penbased and on validation parts. Labels are the classes that samples were
drawn for: with those of the private classifier instead, the start was 0.2 and 0.8 points lower on
penbased (epsilon 10 and 1) and 10.9 on left-over images of Fashion-MNIST, 41 % of whose samples it
took for what they were drawn for.

On letter, at the study's rate (1.0), the first run from the private start diverged: those from it
have 0.3, the next lower one of the study's grid. Runs from nothing keep theirs, at which they are
best.

The target is what `none` from nothing has over its last rounds, with the same seed. A run needs as
many rounds as it takes to get there the first time, 0 if its first weights are there. `classifier`
is the private classifier of rows alone, of the same sums, without any round. Intervals are 95 %, by
Student's t over seeds.

Called again, it resumes. `--record` writes every run into reproduction/recorded/private-start.csv.
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from records import update_record

from fedeas._internal.settings import read_settings
from fedeas.generators.card import CARD
from fedeas.lab import run
from fedeas.lab.config import Config
from fedeas.lab.resolve import Run, partition_data, resolve
from fedeas.lab.results import Mean, rounds_to
from fedeas.lab.sweep import with_total
from fedeas.planning.policies import make_plan, make_policy
from fedeas.private.generator.classifier import PrivateClassifier
from fedeas.private.generator.make import CLASSIFIER_FOLDER, make_private
from fedeas.private.generator.start import FILE, PrivateStart
from fedeas.train.loop import accuracy
from fedeas.train.models import load_weights
from fedeas.train.samples import Samples

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "reproduction/recorded/private-start.csv"
WAYS = ("none", "copies", "fedeas")
ROUNDS = (5, 10, 20)  # whose accuracies are recorded too
START_RATES = {"letter": 0.3}  # where a run from the start diverged at the study's
KEYS = ("data", "epsilon", "way", "start", "seed")


def base(data: str, seed: int, rounds: int, out: Path) -> tuple[dict[str, Any], str]:
    """Return the study's config of a data set, and the policy that others are matched to."""
    path = ROOT / f"reproduction/configs/evidence/{data}.toml"
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    match = next(grid["match"] for grid in content["grid"] if grid["name"] == "none")
    config = content["base"]
    config["seed"] = seed
    config["augment"] |= {"cache": str(out / "cache"), "steps_as": match}
    config["federated"] |= {"rounds": rounds, "eval_every": 1}
    return config, match


def make_start(config: dict[str, Any], epsilon: float, folder: Path) -> PrivateStart:
    """Make a generator from the run's own clients, and of rows a classifier, at no cost."""
    if not (folder / CARD).exists():
        federation = partition_data(read_settings(Config, config, "config"))
        sites = [np.asarray(site) for site in federation.partition.train]
        make_private(
            federation.data, sites, epsilon, seed=config["seed"], out=folder, seeded_noise=True,
            classifier=federation.data.schema is not None,
        )  # fmt: skip
    return PrivateStart.load(folder)


def configs(data: str, epsilons: Sequence[float], seed: int, rounds: int, out: Path) -> Iterator[
    tuple[dict[str, Any], Config]
]:  # fmt: skip
    """Yield what every run of a seed is, and its config; starts are made as they are needed."""
    content, match = base(data, seed, rounds, out)
    rate = content["federated"]["local"]["learning_rate"]
    counts = partition_data(read_settings(Config, content, "config")).counts
    total = make_plan(make_policy(match), counts).total

    def config(way: str, generator: str, weights: str) -> Config:
        policy = match if way == "fedeas" else with_total(way, total, seed)
        content["augment"] |= {"policy": policy, "generator": generator}
        content["federated"]["model"]["weights"] = weights
        content["federated"]["local"]["learning_rate"] = (
            START_RATES.get(data, rate) if weights else rate
        )
        return read_settings(Config, content, "config")

    for way in ("none", "copies"):
        about = {"data": data, "epsilon": "", "way": way, "start": "nothing", "seed": seed}
        yield about, config(way, "copies" if way == "copies" else "", "")
    for epsilon in epsilons:
        folder = out / "private" / f"{data}-{epsilon:g}-{seed}"
        make_start(content, epsilon, folder)
        for start in ("nothing", "private"):
            for way in WAYS if start == "private" else ("fedeas",):
                about = {"data": data, "epsilon": f"{epsilon:g}", "way": way, "start": start}
                own = f"private(model='{folder}')"
                generator = {"none": "", "copies": "copies", "fedeas": own}[way]
                weights = str(folder) if start == "private" else ""
                yield {**about, "seed": seed}, config(way, generator, weights)


def tested(resolved: Run, predicted: Any) -> float:
    """Return the share of the test samples that are recognised."""
    data, test = resolved.federation.data, np.asarray(resolved.federation.test)
    return float((predicted(data.samples[test]) == np.asarray(data.labels)[test]).mean())


def play(about: dict[str, Any], config: Config, out: Path) -> dict[str, Any]:
    """Run a config, from first weights that another way of the seed may have made."""
    name = "-".join(str(about[key]) for key in ("data", "epsilon", "way", "start", "seed"))
    folder, weights = out / "runs" / name, config.federated.model.weights
    shared = Path(f"{weights}.{FILE}")
    if weights and shared.exists() and not (folder / FILE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(shared, folder / FILE)
    result = run(config, folder)
    figures = {"accuracies": result["curves"]["accuracy"], "last": result["accuracy_last"]}
    if weights:
        shutil.copy(folder / FILE, shared)
        resolved = resolve(config)
        load_weights(resolved.model, folder / FILE)
        test = Samples.of(resolved.federation.data, resolved.federation.test)
        figures["first"] = accuracy(resolved.model, test)[0]
        if about["way"] == "none" and resolved.federation.data.schema is not None:
            classifier = PrivateClassifier.load(Path(weights) / CLASSIFIER_FOLDER)
            figures["classifier"] = tested(resolved, classifier.predict)
    return figures


def measure(
    data: str, epsilons: Sequence[float], ways: set[str], seed: int, rounds: int, out: Path
) -> list[dict[str, Any]]:
    """Return a row of every run of a data set and a seed."""
    rows, target = [], None
    for about, config in configs(data, epsilons, seed, rounds, out):
        if about["way"] not in ways:
            continue
        figures = play(about, config, out)
        target = figures["last"] if target is None else target  # the first is none, from nothing
        first, curve = figures.get("first"), figures["accuracies"]
        needed = 0 if first is not None and first >= target else rounds_to(curve, target)
        row = {
            **about, "target": f"{target:.4f}", "rounds": "never" if needed is None else needed,
            "accuracy_0": "" if first is None else f"{first:.4f}",
            **{f"accuracy_{n}": f"{curve[n - 1]:.4f}" for n in ROUNDS if n <= len(curve)},
            "accuracy_last": f"{figures['last']:.4f}",
        }  # fmt: skip
        rows.append(row)
        print(*row.values(), flush=True)
        if "classifier" in figures:
            worth = f"{figures['classifier']:.4f}"
            needed = 0 if figures["classifier"] >= target else "never"
            rows.append({
                **about, "way": "classifier", "start": "alone", "target": row["target"],
                "rounds": needed, "accuracy_0": worth, "accuracy_last": worth,
            })  # fmt: skip
    return rows


def table(rows: Sequence[dict[str, Any]], rounds: int) -> str:
    """Return accuracies, rounds and rounds saved with their intervals, as Markdown."""
    lines = [
        "| data | epsilon | way | start | seeds | first | last | rounds | saved |", "|---" * 9 + "|"
    ]  # fmt: skip
    keys = dict.fromkeys((r["data"], r["epsilon"], r["way"], r["start"]) for r in rows)
    plain = {
        (r["data"], r["seed"]): _rounds(r, rounds)
        for r in rows
        if (r["way"], r["start"]) == ("none", "nothing")
    }
    for key in keys:
        own = [r for r in rows if (r["data"], r["epsilon"], r["way"], r["start"]) == key]
        needed = [_rounds(r, rounds) for r in own]
        saved = [plain[r["data"], r["seed"]] - n for r, n in zip(own, needed, strict=True)]
        never = sum(r["rounds"] == "never" for r in own)
        first = [100 * float(r["accuracy_0"]) for r in own if r["accuracy_0"]]
        last = [100 * float(r["accuracy_last"]) for r in own]
        cells = [_shown(first) if first else "-", _shown(last)]
        cells += [_shown(needed) + (f" ({never} never)" if never else ""), _shown(saved)]
        lines.append(f"| {' | '.join([*key, str(len(own)), *cells])} |")
    return "\n".join(lines)


def _rounds(row: dict[str, Any], rounds: int) -> float:
    return float(rounds if row["rounds"] == "never" else row["rounds"])


def _shown(values: Sequence[float]) -> str:
    found = Mean.of(values)
    half = f" ± {found.half:.1f}" if found.half is not None else ""
    return f"{found.value:.1f}{half}"


def main() -> None:
    """Run what is missing, print the table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, nargs="?", help="kept; otherwise a temporary folder")
    parser.add_argument("--data", nargs="+", default=["letter", "satimage"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="always with none")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    out = (given.out or Path(tempfile.mkdtemp())).resolve()
    ways = {"none", *given.ways}  # which has the target
    for seed in range(1, given.seeds + 1):
        for data in given.data:
            rows += measure(data, given.epsilon, ways, seed, given.rounds, out)
    rows.sort(key=lambda r: given.data.index(r["data"]))
    print(table(rows, given.rounds))
    if given.record:
        command = (
            f"PYTHONPATH=. python benchmarks/private_start.py {' '.join(['OUT', *sys.argv[2:]])}"
        )
        update_record(RECORD, KEYS, rows, command)


if __name__ == "__main__":
    main()
