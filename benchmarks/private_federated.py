"""What the federation's own generator does for training: tables and images, at several epsilons.

    python benchmarks/private_federated.py [OUT] [--data letter ...] [--seeds 5] [--jobs 2]

Rows are those of FEDEAS_DATA/tables, on 20 clients (Dirichlet 0.1), with the learning rates that
`tables_study.py` chooses on a validation part. Of Fashion-MNIST `--images` are used, with the rate
of the reference configuration. `own` is made anew for every run, from the run's own clients, with
noise from the run's seed, so that figures can be had again (delta 1e-5). It plans with the quality
on its card, except for `own-1-all`, which makes all that the policy asks for; `central` is a
generator that saw all training samples, without any privacy: `gaussian` for tables, the shipped
diffusion model for Fashion-MNIST. Every way is compared with none and with copies, seed by seed, by
Student's t, corrected by Holm's method.

The tables are printed as Markdown; OUT/study.csv has every run, the last line is JSON. Called
again, it resumes. OUT/rounds.csv has the accuracy of images after every round, and
`--record rounds.csv` prints its means.
"""

import argparse
import csv
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tables_study import ALPHAS, base, beta_for, choose_rates, study, sweep_of, way_of

from fedeas.lab.sweep import Cell

TABLES = ("letter", "penbased", "satimage")
IMAGES = "fashion_mnist"
EPSILONS = ("1", "3", "10", "inf")
ALPHA = ALPHAS[1]
IMAGE_RATE = 1e-3  # of Adam
CENTRAL = {IMAGES: "diffusion(model=fashion_mnist)"}


def spec(epsilon: str) -> str:
    """Return a federation's own generator by name."""
    return f"private(epsilon={epsilon}, delta=1e-05, seeded_noise=true)"


def ways(central: str, beta: float) -> dict[str, tuple[str, str, str]]:
    """Return the policy, the generator and the method of every way."""
    return {
        "none": ("none", "noise", "fedavg"),
        "copies": ("copies", "copies", "fedavg"),
        "noise": ("match", "noise", "fedavg"),
        "class-weights": ("none", "noise", "class-weights"),
        **{f"own-{e}": ("match", spec(e), "fedavg") for e in EPSILONS},
        "own-1-all": (f"fedeas(beta={beta}, quality=1)", spec("1"), "fedavg"),
        "central": ("match", central, "fedavg"),
    }


def images(images: int, cache: Path, rounds: int) -> dict:
    """Return the config that all runs of images have in common."""
    content = base("letter", ALPHA, cache, rounds, IMAGE_RATE)
    content["data"] = {"name": IMAGES, "pool_per_class": (60_000 - images) // 10}
    content["augment"]["batch"] = 250
    content["federated"]["model"] = {"name": "cnn"}
    content["federated"]["local"] = {
        "epochs": 1, "batch": 64, "learning_rate": IMAGE_RATE, "optimizer": "adam",
    }  # fmt: skip
    return content


def write_rounds(cells: Sequence[Cell], out: Path) -> None:
    """Write the accuracy of every run of images after every round."""
    with (out / "rounds.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["way", "seed", "round", "accuracy"])
        for cell in cells:
            way, log = way_of(cell, IMAGES), out / IMAGES / cell.name / "log.jsonl"
            for line in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
                accuracy = f"{line['accuracy']:.4f}"
                writer.writerow([way, cell.config.seed, line["round"], accuracy])


def rounds_table(record: Path) -> str:
    """Return mean accuracies after every round, a line per way with all seeds, as Markdown."""
    found: dict[str, dict[int, list[float]]] = {}
    with record.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            own = found.setdefault(row["way"], {})
            own.setdefault(int(row["round"]), []).append(100 * float(row["accuracy"]))
    rounds = sorted(next(iter(found.values())))
    seeds = max(len(own[rounds[0]]) for own in found.values())
    lines = [
        f"| accuracy after round | seeds | {' | '.join(map(str, rounds))} |",
        "|---" * (len(rounds) + 2) + "|",
    ]
    for way, own in found.items():
        if len(own[rounds[0]]) == seeds:  # means of other seeds are not to be compared
            means = " | ".join(f"{statistics.mean(own[k]):.1f}" for k in rounds)
            lines.append(f"| {way} | {seeds} | {means} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path, nargs="?", help="kept; otherwise a temporary folder")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30, help="of tables; images have half of it")
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--data", nargs="+", choices=(*TABLES, IMAGES), default=[*TABLES, IMAGES])
    parser.add_argument("--ways", nargs="+", help="these alone; default: all")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--record", type=Path, help="print the means of this rounds.csv instead")
    given = parser.parse_args()
    if given.record:
        print(rounds_table(given.record))
        return
    given.out = given.out or Path(tempfile.mkdtemp())
    given.out.mkdir(parents=True, exist_ok=True)
    sweeps = []
    for name in given.data:
        if name == IMAGES:
            content = images(given.images, given.out / "cache", given.rounds // 2)
            rates = dict.fromkeys(("fedavg", "class-weights"), IMAGE_RATE)
        else:
            rates = choose_rates(name, given.out, given.rounds, given.jobs)
            content = base(name, ALPHA, given.out / "cache", given.rounds, rates["fedavg"])
        beta = beta_for(content)
        made = ways(CENTRAL.get(name, "gaussian"), beta)
        made = {way: made[way] for way in given.ways or made}
        sweeps.append(sweep_of(name, content, made, given.seeds, beta, rates))
    ended = study(sweeps, given.out, given.jobs)
    if IMAGES in ended:
        write_rounds(ended[IMAGES], given.out)


if __name__ == "__main__":
    main()
