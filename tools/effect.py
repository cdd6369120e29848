"""Draw the picture at the top of the README: what generating buys, and who generates.

    python tools/effect.py [--out docs/img/effect.png]

The curves are those of the recorded runs on Fashion-MNIST, in which a diffusion model draws every
synthetic image; the bars are the plan of the first of them. Needs Fashion-MNIST in FEDEAS_DATA.
"""

import argparse
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from fedeas import FedEAS
from fedeas_lab.config import Config
from fedeas_lab.resolve import partition_data
from fedeas_lab.results import FinishedRun
from reproduction.claims import recorded

POLICY = "fedeas(beta=6)"
REAL, SYNTHETIC, GREY = "#4c72b0", "#dd8452", "#666666"


def curves(runs: list[FinishedRun], policy: str) -> np.ndarray:
    """Return the accuracy after every round, a row per seed, in percent."""
    own = [r.result["curves"]["accuracy"] for r in runs if r.result["policy"] == policy]
    return 100 * np.array(own, float)


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("docs/img/effect.png"))
    out = parser.parse_args().out
    runs = [run for run in recorded()["fashion"].runs if run.entry.grid == "policies"]
    first = next(r.result for r in runs if r.result["policy"] == POLICY)
    settings = {**first["settings"], "federated": {}}
    config = Config.from_identity(settings)
    counts = partition_data(config).counts
    plan = FedEAS(beta=float(re.search(r"[\d.]+", POLICY)[0])).plan(counts)
    generated = np.mean([r.result["generated"] for r in runs if r.result["policy"] == POLICY])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=[1, 1.1])
    for policy, colour, name in (
        ("none", GREY, "real data only"),
        (POLICY, SYNTHETIC, f"with FedEAS: {generated:,.0f} synthetic samples"),
    ):
        own = curves(runs, policy)
        rounds = np.arange(1, own.shape[1] + 1)
        for seed in own:
            left.plot(rounds, seed, color=colour, linewidth=0.7, alpha=0.4)
        left.plot(rounds, own.mean(0), color=colour, linewidth=2.2, label=name)
    left.set(
        xlabel="round",
        ylabel="test accuracy, %",
        title="Fashion-MNIST, 20 skewed clients, diffusion model",
    )
    left.set_xticks(range(0, len(rounds) + 1, 5))
    left.legend(frameon=False, loc="lower right", fontsize=9)
    order = np.argsort(-plan.per_client)
    places = np.arange(len(order))
    right.bar(places, counts.sizes[order], color=REAL, label="real samples")
    right.bar(
        places, plan.per_client[order], bottom=counts.sizes[order], color=SYNTHETIC,
        label="synthetic samples",
    )  # fmt: skip
    right.set(xlabel="clients, by what they generate", title="Who generates how much")
    right.set_xticks([])
    right.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(11)
    figure.tight_layout()
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main()
