"""Draw what ways to train gain over no synthetic samples, a panel per setting, from records.

    python tools/study_picture.py [--out docs/img]

`own-epsilon.svg` is of benchmarks/private_federated.py, `study.svg` and `where.svg` (FedEAS minus
uniform) of the study.
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

from fedeas.lab.report.curves import look
from fedeas.lab.results import Mean
from fedeas.plots.canvas import GREY, INK, caption, picture
from reproduction.evidence import minus
from reproduction.study import PRIMARY, REAL_SITES, RECORD, REPLICATION, difference, read_rows

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "reproduction" / "recorded"
LEAST = -8.0  # points; what lies below is written out, so that the rest can be told apart
COLUMNS = 2  # of panels: a phone shows them as wide as its screen
GAINS = (
    "Points over training without synthetic samples, whose accuracy is in the title, with 95 % "
    "confidence intervals over seeds."
)
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
# Record -> picture, ways, what is the same in it.
RECORDS = {
    "own-federated": (
        "own-epsilon",
        PRIVATE,
        "FedEAS plans; epsilon is that of the federation's private generator.",
    ),
}


def study_scores() -> Scores:
    """Return the accuracies of the study by data set, way and seed, real sites first."""
    scores: Scores = defaultdict(lambda: defaultdict(dict))
    for row in read_rows(RECORD):
        if row.grid != "again":
            scores[row.data][row.way][row.seed] = row.accuracy
    return {data: scores[data] for data in (*REAL_SITES, *PRIMARY) if "none" in scores[data]}


def draw(figure: Any, scores: Scores, names: dict[str, str], sentence: str) -> None:
    """Draw a panel per setting; a line of panels has the ways that one of them has."""
    lines = panel_lines(scores)
    shown = [ways_of(line, names) for line in lines]
    axes = figure.subplots(
        len(lines), COLUMNS, squeeze=False, sharey="row",
        height_ratios=[len(ways) + 1.5 for ways in shown],
    )  # fmt: skip
    for places, line, ways in zip(axes, lines, shown, strict=True):
        for place, (where, of) in zip(places, line, strict=False):
            draw_panel(place, where, of, ways)
        for empty in places[len(line) :]:
            empty.set_visible(False)
    caption(figure, f"{GAINS} {sentence}")


Line = list[tuple[str, dict[str, dict[int, float]]]]


def panel_lines(scores: Scores) -> list[Line]:
    """Return the settings, as many to a line as there are columns."""
    settings = list(scores.items())
    return [settings[at : at + COLUMNS] for at in range(0, len(settings), COLUMNS)]


def ways_of(line: Line, names: dict[str, str]) -> dict[str, str]:
    """Return the ways to train that one of the settings has, none aside."""
    return {way: name for way, name in names.items() if any(way in ways for _, ways in line)}


def draw_where(figure: Any) -> None:
    """Draw FedEAS minus uniform on every data set of the study."""
    rows = read_rows(RECORD)
    names = [name for pair in zip(PRIMARY, (*REPLICATION, "", ""), strict=True) for name in pair]
    leads = [difference(rows, name, "fedeas", "uniform") for name in (*names, *REAL_SITES)]
    known = [lead for lead in reversed(leads) if lead is not None]
    axes = figure.subplots()
    for place, lead in enumerate(known):
        colour, marker, _ = look("uniform" if lead.data in REAL_SITES else "fedeas")
        axes.errorbar(
            lead.mean, place, xerr=lead.half, marker=marker, color=colour, capsize=2, lw=1.5
        )
    axes.axvline(0, color=GREY, lw=0.8)
    labels = [
        f"{lead.data}{' (real sites)' if lead.data in REAL_SITES else ''}, {lead.seeds} seeds"
        for lead in known
    ]
    axes.set_yticks(range(len(known)), labels, size=9)
    axes.set_xlabel("points of accuracy", size=9)
    caption(
        figure,
        "FedEAS minus uniform, with as many synthetic samples and as many local steps, and 95 % "
        "confidence intervals over seeds. Circles: drawn sites. Squares: real sites.",
    )


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
        scores = read_record(RECORDED / f"{record}.csv", "accuracy")
        titles = {where: title(where).replace("fashion_mnist", "Fashion-MNIST") for where in scores}
        pictures[name] = {titles[where]: scores[where] for where in scores}, names, sentence
    pictures["study"] = (
        study_scores(),
        STUDY,
        "Uniform, random, missing only and water-filling have the budget of FedEAS. Forest, "
        "rodents and loans are real sites, with private samples at epsilon 1 unless "
        "another is named.",
    )
    for name, (scores, names, sentence) in pictures.items():
        ways = sum(len(ways_of(line, names)) + 1.5 for line in panel_lines(scores))
        drawn = partial(draw, scores=scores, names=names, sentence=sentence)
        (out / f"{name}.svg").write_bytes(picture(drawn, width=6.5, height=0.8 + 0.29 * ways))
    (out / "where.svg").write_bytes(picture(draw_where, width=6.5, height=3.4))


if __name__ == "__main__":
    main()
