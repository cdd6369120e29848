"""Draw the picture at the top of the README: who lacks what, what a plan adds, what that buys.

    python tools/picture.py [--curves FILE] [--out docs/img/picture.png]

The label counts are those of forest cover by area and zone (examples/forest.csv). Curves
are read from a CSV file with the columns way (none, copies, fedeas), round, seed and accuracy (0
to 1); while there is no such file, the heat maps are drawn alone.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

from fedeas import InputError, LabelCounts
from fedeas.lab.forest import POLICY
from fedeas.lab.report.story import WAYS, Curves, story_figure
from fedeas.planning.policies import make_plan, make_policy
from fedeas.plots.canvas import save_figure

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "examples" / "forest.csv"
CURVES = ROOT / "reproduction" / "recorded" / "curves-forest.csv"


def read_curves(path: Path) -> Curves:
    """Read accuracies by way, seed and round."""
    curves: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["way"] not in WAYS:
                raise InputError("unknown way to train", got=row["way"], allowed=", ".join(WAYS))
            curves[row["way"]][int(row["seed"])][int(row["round"])] = float(row["accuracy"])
    return curves


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img" / "picture.png")
    given = parser.parse_args()
    counts = LabelCounts.load(COUNTS)
    plan = make_plan(make_policy(POLICY), counts)
    curves = read_curves(given.curves) if given.curves.exists() else None
    title = f"Forest cover: {counts.K} sites, {counts.C} classes"
    rounds = max((at for seeds in (curves or {}).values() for at in seeds[min(seeds)]), default=0)
    last = max(1, rounds // 10)  # the study compares the last tenth
    save_figure(story_figure(counts, plan, curves, title, last), given.out)


if __name__ == "__main__":
    main()
