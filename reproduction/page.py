"""The tables of docs/findings.md, from the study's record."""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fedeas.errors import InputError
from fedeas.lab.results import Mean
from reproduction.central import REAL, CentralRun
from reproduction.study import (
    PRIMARY,
    REAL_SITES,
    REPLICATION,
    SECONDARY,
    Difference,
    StudyRun,
    difference,
    means,
    primary,
    replication,
    secondary,
)

MARKER = re.compile(r"<!-- study:([\w-]+) -->\n.*?<!-- /study -->", re.DOTALL)
NOT_FLAT = 1.0  # points between the last tenth of rounds and the tenth before
NOT_RUN = "*Not run.*"
# Ways to train in the order of a table; any other comes last.
WAYS = (
    "none", "none, own steps", "copies", "class weights", "uniform", "random", "missing-only",
    "fedeas", "waterfill", "full-balance", "fedeas private 1", "fedeas private 3",
    "fedeas private 10", "fedeas central", "uniform central",
)  # fmt: skip


OTHERS = ("none", "copies", "uniform")  # that FedEAS is compared with in other figures
TINY_SITES = ("loans",)  # the smallest have two test rows: the worst of them says nothing
BALANCED = ("CIFAR-10", "Fashion-MNIST")  # test sets whose mean over classes is the accuracy


def fill_page(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with the study's tables between its markers `<!-- study:NAME -->`."""

    def block(marker: re.Match[str]) -> str:
        if marker[1] not in tables:
            raise InputError("unknown table of the study", got=marker[1], allowed=", ".join(tables))
        return f"<!-- study:{marker[1]} -->\n\n{tables[marker[1]]}\n\n<!-- /study -->"

    return MARKER.sub(block, page)


def study_tables(rows: Sequence[StudyRun], central: Sequence[CentralRun] = ()) -> dict[str, str]:
    """Return every table of the study as Markdown, by the name in a page's marker."""
    return {
        "central": _central(rows, central),
        "primary": _family(rows, primary),
        "replication": _family(rows, replication),
        "secondary": _secondary(rows),
        "classes": _classes(rows),
        "drawn-sites": _ways(rows, PRIMARY),
        "real-sites": _ways(rows, REAL_SITES),
        "flat": _flat(rows),
    }


def _family(
    rows: Sequence[StudyRun],
    family: Callable[[Sequence[StudyRun]], list[tuple[Difference, float, str]]],
) -> str:
    """Return the leads of a family, and what they were in the tenth of the rounds before."""
    earlier = {
        lead.data: _points(lead)
        for lead, _, _ in family([replace(row, accuracy=row.before_last) for row in rows])
    }
    lines = []
    for lead, p, verdict in family(rows):
        needed = f"{lead.seeds_needed:,}" if lead.seeds_needed else "over 10,000"
        seeds = needed if verdict == "open" else ""
        cells = [lead.data, f"{lead.seeds}", _points(lead), _p_value(p), verdict, seeds]
        lines.append([*cells, earlier[lead.data]])
    heads = ("data", "seeds", "FedEAS - uniform", "p, corrected", "verdict", "seeds needed")
    return _table((*heads, "a tenth earlier"), lines)


def _secondary(rows: Sequence[StudyRun]) -> str:
    cells: Mapping[str, dict[str, str]] = defaultdict(dict)
    for what, lead, p in secondary(rows):
        cells[lead.data][what] = f"{_points(lead)} (p {_p_value(p)})"
    lines = [[data, *(of.get(what, "") for what in SECONDARY)] for data, of in cells.items()]
    return _table(("data", *SECONDARY), lines)


def _ways(rows: Sequence[StudyRun], data_sets: Sequence[str]) -> str:
    """Return the accuracy of every way to train and, in brackets, FedEAS minus it."""
    of_all = means(rows)
    known = {data: of_all[data] for data in data_sets if data in of_all}
    most = {data: max(mean.count for mean in ways.values()) for data, ways in known.items()}
    every = dict.fromkeys(way for ways in known.values() for way in ways)
    lines = []
    for way in [*(w for w in WAYS if w in every), *sorted(every.keys() - set(WAYS))]:
        cells = []
        for data, ways in known.items():
            mean, lead = ways.get(way), difference(rows, data, "fedeas", way)
            text = mean.points() if mean else ""
            if lead and way != "fedeas":
                text += f"<br>({_points(lead)})"
            if mean and mean.count < most[data]:
                text += f"<br>{mean.count} seeds"
            cells.append(text)
        lines.append([way, *cells])
    return _table(("accuracy, %", *(f"{data}, {most[data]} seeds" for data in known)), lines)


def _classes(rows: Sequence[StudyRun]) -> str:
    """Return FedEAS minus others in the mean over classes, and at the worst of real sites.

    Classes only where the test set has some classes more often than others.
    """
    lines = []
    for figure, name, unreported in (
        ("class_mean", "{}", ()),
        ("worst_site", "{}, worst site", TINY_SITES),
    ):
        known = [
            row
            for row in rows
            if row.data not in (*REPLICATION, *BALANCED, *unreported)
            and getattr(row, figure) is not None
        ]
        for data in dict.fromkeys(row.data for row in known):
            leads = [difference(known, data, "fedeas", way, figure) for way in OTHERS]
            lines.append([name.format(data), *("" if d is None else _points(d) for d in leads)])
    return _table(("FedEAS minus", *OTHERS), lines)


def _central(rows: Sequence[StudyRun], central: Sequence[CentralRun]) -> str:
    """Return what classifiers of a generator's data, and of its samples, reach in one place.

    The best way is one of those that have as many seeds as FedEAS.
    """
    of_all = means(rows)
    cells: Mapping[tuple[str, str], list[float]] = defaultdict(list)
    agreement: Mapping[str, list[float]] = defaultdict(list)
    for run in central:
        cells[run.data, run.trained_on].append(run.accuracy)
        if run.trained_on == REAL:
            agreement[run.data].append(run.agreement)
    trained_on = tuple(dict.fromkeys(what for _, what in cells))
    lines = []
    for data in dict.fromkeys(data for data, _ in cells):
        ways = of_all.get(data, {})
        shown = [Mean.of(cells[data, what]).points() for what in trained_on]
        shown.append(Mean.of(agreement[data]).points())
        ours = ways.get("fedeas")
        shown.append(ours.points() if ours else "")
        rivals = [item for item in ways.items() if ours is None or item[1].count == ours.count]
        best = max(rivals, key=lambda way: way[1].value, default=None)
        shown.append(f"{best[1].points()} ({best[0]})" if best else "")
        lines.append([f"{data}, {len(agreement[data])} seeds", *shown])
    central_heads = (f"central, on {what}" for what in trained_on)
    heads = ("accuracy, %", *central_heads, "agreement", "FedEAS", "best way")
    return _table(heads, lines)


def _flat(rows: Sequence[StudyRun]) -> str:
    """Return what still climbs or falls at the end of training, on average over seeds."""
    slopes: Mapping[tuple[str, str], list[float]] = defaultdict(list)
    for r in rows:
        if r.grid != "again":
            slopes[r.data, r.way].append(100 * (r.accuracy - r.before_last))
    means_of: Mapping[str, dict[str, float]] = defaultdict(dict)
    for (data, way), slope in slopes.items():
        means_of[data][way] = statistics.mean(slope)
    moving = {}
    for data, ways in means_of.items():
        steep = {way: slope for way, slope in ways.items() if abs(slope) > NOT_FLAT}
        if len(steep) == len(ways) > 1:
            moving[data] = f"every way, {min(steep.values()):+.1f} to {max(steep.values()):+.1f}"
        elif steep:
            moving[data] = "; ".join(f"{way} {slope:+.1f}" for way, slope in steep.items())
    if slopes and not moving:
        return "Every setting is flat."
    return _table(("not flat", "points"), [[data, of] for data, of in moving.items()])


def _points(lead: Difference) -> str:
    return f"{lead.mean:+.2f} ± {lead.half:.2f}"


def _p_value(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".replace("0.", ".", 1)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return NOT_RUN
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
