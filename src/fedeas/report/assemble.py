"""A whole report: the headline, then what every sweep's runs, tables and folders show."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedeas.experiments.runs import Run
from fedeas.experiments.tables import Table
from fedeas.report.folders import folder_sections
from fedeas.report.headline import headline, summary
from fedeas.report.page import Section, write_report
from fedeas.report.quality import quality_section
from fedeas.report.sections import ReferenceColumn, table_sections, what_ran


@dataclass(frozen=True)
class Sweep:
    """Finished runs with a name and their tables."""

    name: str
    runs: Sequence[Run]
    tables: Sequence[Table]


def assemble(
    folder: Path,
    title: str,
    sweeps: Sequence[Sweep],
    reference: ReferenceColumn | None = None,
    extra: Iterable[Section] = (),
    *,
    quality: bool = False,
) -> Path:
    """Write the report on some sweeps and return the page's path.

    `extra` sections come last. `quality` measures the synthetic samples of runs.
    """
    first = [_in_short(sweep) for sweep in sweeps]
    parts = [
        section
        for sweep in sweeps
        for section in (
            *table_sections(sweep.name, sweep.runs, sweep.tables, reference),
            *folder_sections(sweep.name, sweep.runs),
            *([quality_section(sweep.name, sweep.runs)] if quality else []),
            what_ran(sweep.name, sweep.runs),
        )
        if section.parts
    ]
    sections = [section for section in first if section.parts] + parts
    if len(sweeps) == 1:  # nothing to tell apart
        sections = [replace(section, group="") for section in sections]
    tables = [table for sweep in sweeps for table in sweep.tables]
    return write_report(folder, title, [*sections, *extra], tables)


def _in_short(sweep: Sweep) -> Section:
    """Return the numbers of a sweep that come first."""
    numbers = headline(sweep.tables)
    said = list(summary(sweep.tables))
    return Section("", [*([numbers] if numbers else []), *said], group=sweep.name)
