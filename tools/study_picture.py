"""Draw what ways to train gain over no synthetic samples, a panel per setting, from records.

    python tools/study_picture.py [--out docs/img]

`tables-study.svg` is of benchmarks/tables_study.py, `own-epsilon.svg` of
benchmarks/private_federated.py, `study.svg` of the study, once its record is there.
"""

import argparse
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from tables_study import Scores, read_record, title

from fedeas.plots.canvas import GREY, INK, caption, picture
from fedeas_lab.report.curves import look
from fedeas_lab.results import Mean
from reproduction.evidence import minus
from reproduction.study import RECORD, read_rows

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "data"
LEAST = -8.0  # points; what lies below is written out, so that the rest can be told apart
COLUMNS = 2  # of panels: a phone shows them as wide as its screen
GAINS = (
    "Points over training without synthetic samples, whose accuracy is in the title, with 95 % "
    "confidence intervals over seeds."
)
TABLES = {
    "copies": "copies", "smote": "SMOTE", "class-weights": "class weights", "uniform": "uniform",
    "fedeas": "FedEAS", "waterfill": "water-filling", "full-balance": "full balance",
}  # fmt: skip
PRIVATE = {
    "copies": "copies", "noise": "noise",
    "own-1": "epsilon 1", "own-3": "epsilon 3", "own-10": "epsilon 10", "own-inf": "no noise",
    "central": "central generator",
}  # fmt: skip
STUDY = {
    "none, own steps": "none, own steps", "copies": "copies", "class weights": "class weights",
    "random": "random", "uniform": "uniform", "missing-only": "missing only", "fedeas": "FedEAS",
    "waterfill": "water-filling",
    "full-balance": "full balance", "fedeas private 1": "FedEAS, epsilon 1",
    "fedeas private 3": "FedEAS, epsilon 3", "fedeas private 10": "FedEAS, epsilon 10",
    "fedeas central": "FedEAS, central",
}  # fmt: skip
# Record of docs/data -> picture, ways, what is the same in it.
RECORDS = {
    "tables-study": (
        "tables-study",
        TABLES,
        "Uniform, FedEAS, water-filling and copies spend the same number of rows; full balance "
        "many times as many.",
    ),
    "own-federated": (
        "own-epsilon",
        PRIVATE,
        "FedEAS plans; epsilon is that of the federation's private generator.",
    ),
}


def study_scores() -> Scores:
    """Return the accuracies of the study by data set, way and seed, repeated runs left out."""
    scores: Scores = defaultdict(lambda: defaultdict(dict))
    for row in read_rows(RECORD):
        if row.grid != "again":
            scores[row.data][row.way][row.seed] = row.accuracy
    return {data: ways for data, ways in scores.items() if "none" in ways}


def draw(figure: Any, scores: Scores, names: dict[str, str], sentence: str) -> None:
    """Draw a panel per setting."""
    lines = -(-len(scores) // COLUMNS)
    axes = figure.subplots(lines, COLUMNS, sharey=True, squeeze=False).ravel()
    for place, (where, ways) in zip(axes, scores.items(), strict=False):
        draw_panel(place, where, ways, names)
    for empty in axes[len(scores) :]:
        empty.set_visible(False)
    caption(figure, f"{GAINS} {sentence}")


def draw_panel(
    axes: Any, where: str, ways: dict[str, dict[int, float]], names: dict[str, str]
) -> None:
    """Draw the gain of every way to train over none."""
    for place, way in enumerate(reversed(names)):
        if way not in ways:
            continue
        gain = Mean.of(list(minus(ways[way], ways["none"]).values()))
        low, high = (100 * bound for bound in gain.bounds)
        value = 100 * gain.value
        colour, marker, _ = look("fedeas" if way.startswith(("own-", "fedeas ")) else way)
        if value < LEAST:
            at = axes.get_yaxis_transform()
            axes.text(0.02, place, f"← {value:.1f}", va="center", size=8, color=INK, transform=at)
            continue
        axes.errorbar(
            value, place, xerr=[[value - low], [high - value]], marker=marker, color=colour,
            capsize=2,
        )  # fmt: skip
    axes.axvline(0, color=GREY, lw=0.8)
    axes.set_yticks(range(len(names)), list(reversed(names.values())), size=9)
    none = sum(ways["none"].values()) / len(ways["none"])
    axes.set_title(f"{where}: {100 * none:.1f} %", size=9, color=INK)


def main() -> None:
    """Draw them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img")
    out = parser.parse_args().out
    pictures = {}
    for record, (name, names, sentence) in RECORDS.items():
        scores = read_record(DATA / f"{record}.csv", "accuracy")
        titles = {where: title(where).replace("fashion_mnist", "Fashion-MNIST") for where in scores}
        pictures[name] = {titles[where]: scores[where] for where in scores}, names, sentence
    if RECORD.exists():
        pictures["study"] = (study_scores(), STUDY, "A policy with a total has that of FedEAS.")
    for name, (scores, every, sentence) in pictures.items():
        names = {way: every[way] for way in every if any(way in ways for ways in scores.values())}
        high = 0.8 + 0.29 * (len(names) + 1.5) * -(-len(scores) // COLUMNS)
        drawn = partial(draw, scores=scores, names=names, sentence=sentence)
        (out / f"{name}.svg").write_bytes(picture(drawn, width=6.5, height=high))


if __name__ == "__main__":
    main()
