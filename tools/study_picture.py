"""Draw where generating rows pays: gains over no synthetic samples, a panel per setting.

    python tools/study_picture.py [--data docs/data/tables-study.csv] [--out docs/img]

Writes `tables-study.svg` from the record of `benchmarks/tables_study.py`.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from tables_study import Scores, read_record, title

from fedeas.plots.canvas import GREY, INK, caption, picture
from fedeas_lab.report.curves import look
from fedeas_lab.results import Mean
from reproduction.evidence import minus

ROOT = Path(__file__).parents[1]
COLUMNS = 3
NAMES = {
    "copies": "copies", "smote": "SMOTE", "class-weights": "class weights", "uniform": "uniform",
    "fedeas": "FedEAS", "waterfill": "water-filling", "full-balance": "full balance",
}  # fmt: skip


def draw(figure: Any, scores: Scores) -> None:
    """Draw a panel per setting."""
    lines = -(-len(scores) // COLUMNS)
    axes = figure.subplots(lines, COLUMNS, sharey=True, squeeze=False).ravel()
    for place, (where, ways) in zip(axes, scores.items(), strict=False):
        draw_panel(place, where, ways)
    for empty in axes[len(scores) :]:
        empty.set_visible(False)
    caption(
        figure,
        "Points over training without synthetic samples, with 95 % confidence intervals over "
        "seeds. Uniform, FedEAS, water-filling and copies spend the same number of rows; full "
        "balance many times as many.",
    )


def draw_panel(axes: Any, where: str, ways: dict[str, dict[int, float]]) -> None:
    """Draw the gain of every way to train over none."""
    for place, (way, name) in enumerate(reversed(NAMES.items())):
        if way not in ways:
            continue
        gain = Mean.of(list(minus(ways[way], ways["none"]).values()))
        low, high = (100 * bound for bound in gain.bounds)
        value = 100 * gain.value
        colour, marker, _ = look(way)
        axes.errorbar(
            value, place, xerr=[[value - low], [high - value]], marker=marker, color=colour,
            capsize=2, label=name,
        )  # fmt: skip
    axes.axvline(0, color=GREY, lw=0.8)
    axes.set_yticks(range(len(NAMES)), list(reversed(NAMES.values())), size=9)
    none = sum(ways["none"].values()) / len(ways["none"])
    axes.set_title(f"{title(where)}: {100 * none:.1f} %", size=9, color=INK)


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=ROOT / "docs" / "data" / "tables-study.csv")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img")
    given = parser.parse_args()
    scores = read_record(given.data, "accuracy")
    high = 0.8 + 2.1 * -(-len(scores) // COLUMNS)
    drawn = picture(partial(draw, scores=scores), width=9.0, height=high)
    (given.out / "tables-study.svg").write_bytes(drawn)


if __name__ == "__main__":
    main()
