"""The tables of docs/findings.md, from the study's record."""

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from fedeas.errors import InputError
from reproduction.study import DATA, Difference, StudyRun, difference, means, primary, secondary

MARKER = re.compile(r"<!-- study:([\w-]+) -->\n.*?<!-- /study -->", re.DOTALL)
NOT_FLAT = 1.0  # points between the last tenth of rounds and the tenth before
NOT_RUN = "*Not run.*"


def fill_page(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with the study's tables between its markers `<!-- study:NAME -->`."""

    def block(marker: re.Match[str]) -> str:
        if marker[1] not in tables:
            raise InputError("unknown table of the study", got=marker[1], allowed=", ".join(tables))
        return f"<!-- study:{marker[1]} -->\n\n{tables[marker[1]]}\n\n<!-- /study -->"

    return MARKER.sub(block, page)


def study_tables(rows: Sequence[StudyRun]) -> dict[str, str]:
    """Return every table of the study as Markdown, by the name in a page's marker."""
    return {
        "primary": _primary(rows),
        "secondary": _secondary(rows),
        **{data: _ways(rows, data) for data in DATA.values()},
        "noise": _noise(rows),
        "flat": _flat(rows),
    }


def _primary(rows: Sequence[StudyRun]) -> str:
    lines = []
    for lead, p, verdict in primary(rows):
        needed = f"{lead.seeds_needed:,}" if lead.seeds_needed else "over 10,000"
        seeds = needed if verdict == "open" else ""
        lines.append([lead.data, f"{lead.seeds}", _points(lead), f"{p:.3f}", verdict, seeds])
    heads = ("data", "seeds", "FedEAS - uniform", "p, corrected", "verdict", "seeds needed")
    return _table(heads, lines)


def _secondary(rows: Sequence[StudyRun]) -> str:
    lines = [
        [what, lead.data, f"{lead.seeds}", _points(lead), f"{p:.3f}"]
        for what, lead, p in secondary(rows)
    ]
    return _table(("comparison", "data", "seeds", "difference", "p, corrected"), lines)


def _ways(rows: Sequence[StudyRun], data: str) -> str:
    """Return the accuracy of every way to train, the highest first, and FedEAS minus it."""
    lines = []
    for way, mean in sorted(means(rows).get(data, {}).items(), key=lambda item: -item[1].value):
        lead = difference(rows, data, "fedeas", way) if way != "fedeas" else None
        lines.append([way, f"{mean.count}", mean.points(), _points(lead) if lead else ""])
    return _table((data, "seeds", "accuracy, %", "FedEAS minus it"), lines)


def _noise(rows: Sequence[StudyRun]) -> str:
    """Return how far a run that is repeated, with the same seed, is from the first one."""
    first = {(r.data, r.way, r.seed): r.accuracy for r in rows if r.grid == "where"}
    lines = [
        [r.data, r.way, f"{r.seed}", f"{100 * (r.accuracy - first[key]):+.2f}"]
        for r in rows
        if r.grid == "again" and (key := (r.data, r.way, r.seed)) in first
    ]
    return _table(("data", "way", "seed", "second run - first"), lines)


def _flat(rows: Sequence[StudyRun]) -> str:
    """Return what still climbs or falls at the end of training, on average over seeds."""
    slopes: Mapping[tuple[str, str], list[float]] = defaultdict(list)
    for r in rows:
        if r.grid != "again":
            slopes[r.data, r.way].append(100 * (r.accuracy - r.before_last))
    lines = [
        [data, way, f"{statistics.mean(slope):+.1f}"]
        for (data, way), slope in slopes.items()
        if abs(statistics.mean(slope)) > NOT_FLAT
    ]
    if slopes and not lines:
        return "Every setting is flat."
    return _table(("not flat", "way", "last tenth - tenth before"), lines)


def _points(lead: Difference) -> str:
    return f"{lead.mean:+.2f} ± {lead.half:.2f}"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return NOT_RUN
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in rows)
