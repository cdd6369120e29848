"""Estimate the GPU hours of reproduction/configs/paper, and write them into docs/howto/gpu.md.

python tools/gpu_hours.py          rewrite the table
python tools/gpu_hours.py --check  fail when the table is not what this gives

Nothing here was measured by us. The paper times two runs on an RTX 4090, generation included:
FedEAS in 3 h 7 min and Full-Balance in 11 h 36 min. Generation is charged per image, by the
network's arithmetic at an assumed speed; what is left of the two runs is a fixed time a run and a
time per image that passes through training. An image is generated once for a client of a partition,
whatever policy asks for it, and however many clients train in a round.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.specs import parse
from fedeas.counts.label_counts import LabelCounts
from fedeas.lab.config import Config
from fedeas.lab.sweep import RunSpec, read_sweep, run_specs, with_total
from fedeas.partition import FLBench
from fedeas.planning.policies import make_policy

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "howto" / "gpu.md"
BEGIN, END = "<!-- hours -->\n", "<!-- end of hours -->"
CLASS_SIZES = {"cifar10": (10, 6000), "cifar100": (100, 600)}  # training and test together

SPEED = 50e12  # a guess: operations a second, 30 % of an RTX 4090's bfloat16 peak of 165e12
EVALUATION = 5.96e9  # operations of the paper preset's network for one image, counted by PyTorch
STEPS, GUIDED = 250, 2  # of sampling; guidance takes the network twice
DIFFUSION = STEPS * GUIDED * EVALUATION / SPEED  # seconds an image
TURBO = 0.1  # a guess: seconds an image of SD-turbo, 512 x 512 in one step
TRAINING_STEPS, TRAINING_BATCH, PASSES = 300_000, 128, 3  # of the DDPM; a backward pass is two
# Training time beside FedAvg's: MOON's two more forward passes, by their number; FedGen and FedMix
# as recorded on a CPU (the grid `methods` of reproduction/configs/cpu).
FACTORS = {"moon": 5 / 3, "fedgen": 1.4, "fedmix": 3.8}

# The paper's two runs: images of clients and plans, seconds end to end.
_TIMED = ((45_007, 13_437, 187 * 60), (45_007, 226_783, 696 * 60))
_PAPER_PASSES = 200 * 10 * 0.5  # rounds, epochs, part of the clients


def fit() -> tuple[float, float]:
    """Return the seconds that every run takes, and those of an image that passes through training.

    >>> fixed, image = fit()
    >>> round(fixed / 3600, 1), round(1e3 * image, 3)
    (1.5, 0.083)
    """
    (real, few, fast), (_, many, slow) = _TIMED
    less, more = (_PAPER_PASSES * (real + generated) for generated in (few, many))
    trained = fast - few * DIFFUSION, slow - many * DIFFUSION
    image = (trained[1] - trained[0]) / (more - less)
    return trained[0] - image * less, image


@dataclass(frozen=True)
class Hours:
    """What a grid takes, for one seed and both splits."""

    runs: int
    images: int
    training: float
    generation: float


@cache
def counts(data: str, split: str, clients: int, alpha: float) -> LabelCounts:
    """Return the counts of the paper's seed; other seeds have about as many."""
    classes, size = CLASS_SIZES[data]
    whole = split == "merged"
    recipe = FLBench(clients, alpha, test_ratio=0.25 if whole else 0.0)
    return recipe.counts([size if whole else size * 5 // 6] * classes)


Key = tuple[str, str, int, float, str]


def counts_of(config: Config) -> LabelCounts:
    """Return the counts of a config's partition."""
    return counts(*place_of(config))


def place_of(config: Config) -> tuple[str, str, int, float]:
    """Return what a partition depends on beside the seed."""
    cut = config.partition
    return config.data.name, config.data.split, cut.clients, float(cut.alpha or 0)


def written_out(run: RunSpec) -> Config:
    """Return a run's config with its matched total."""
    found = counts_of(run.config)
    total = make_policy(run.match).plan(found).total if run.match else None
    policy = with_total(run.config.augment.policy, total)
    return run.config.replace(augment=run.config.augment.replace(policy=policy))


def distinct(configs: Sequence[Config]) -> Mapping[Key, NDArray[np.int64]]:
    """Return the images that runs need together: policies share those of a client and class."""
    needed: dict[Key, NDArray[np.int64]] = {}
    for config in configs:
        key = *place_of(config), parse(config.augment.generator)[0]
        samples = make_policy(config.augment.policy).plan(counts_of(config)).samples
        needed[key] = np.maximum(needed[key], samples) if key in needed else samples
    return needed


def cost(runs: Sequence[RunSpec]) -> Hours:
    """Return what runs of one seed take, each once."""
    fixed, image = fit()
    training = 0.0
    configs = list(dict.fromkeys(map(written_out, runs)))
    for config in configs:
        federated, found = config.federated, counts_of(config)
        generated = make_policy(config.augment.policy).plan(found).total
        passes = federated.rounds * federated.local.epochs * federated.fraction
        factor = FACTORS.get(federated.method.split("(")[0], 1.0)
        training += fixed + image * factor * passes * (found.total + generated)
    images = {key: int(samples.sum()) for key, samples in distinct(configs).items()}
    seconds = sum(n * (TURBO if key[-1] == "turbo" else DIFFUSION) for key, n in images.items())
    return Hours(len(configs), sum(images.values()), training / 3600, seconds / 3600)


def rows() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| sweep | grid | runs | images | training, h | generation, h |"
    yield "|---|---|---|---|---|---|"
    total = Hours(0, 0, 0.0, 0.0)
    for name in CLASS_SIZES:
        planned = list(
            run_specs(read_sweep(ROOT / "reproduction" / "configs" / "paper" / f"{name}.toml"))
        )
        first = [run for run in planned if run.config.seed == 42]
        grids: dict[str, list[RunSpec]] = defaultdict(list)
        for run in first:
            grids[run.grid.name].append(run)
        for grid, own in grids.items():
            found = cost(own)
            yield (
                f"| {name}.toml | {grid} | {found.runs} | {found.images:,} | "
                f"{found.training:,.0f} | {found.generation:,.1f} |"
            )
        whole = cost(first)
        total = Hours(
            total.runs + whole.runs,
            total.images + whole.images,
            total.training + whole.training,
            total.generation + whole.generation,
        )
    yield (
        f"| both | all, each run and image once | {total.runs} | {total.images:,} | "
        f"{total.training:,.0f} | {total.generation:,.1f} |"
    )


def main(check: bool) -> int:
    """Rewrite the table of the page, or tell whether it is out of date."""
    text = PAGE.read_text(encoding="utf-8")
    table = "\n".join(rows())
    new = re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", f"{BEGIN}{table}\n{END}", text, flags=re.DOTALL
    )
    if new != text and not check:
        PAGE.write_text(new, encoding="utf-8")
    return int(check and new != text)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
