"""What a report says first: the accuracy without and with synthetic samples, and their cost."""

from collections.abc import Iterator, Sequence

from fedeas.cost import duration
from fedeas.experiments.results import Mean
from fedeas.experiments.tables import Row, Table
from fedeas.report.curves import label, several_policies
from fedeas.report.page import Numbers


def headline(tables: Sequence[Table]) -> Numbers | None:
    """Return the numbers that matter: those of the first table with and without samples.

    The row with samples is FedEAS's where there is one, otherwise the most accurate. Without a
    comparison, the numbers are those of the most accurate row of all.
    """
    for table in tables:
        if compared := _compared(table):
            plain, rows = compared
            own = [row for row in rows if row.policy.startswith("fedeas")] or rows
            return Numbers([*_gained(plain, own[0]), *_spent(own[0])])
    rows = [row for table in tables for row in table.rows]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.accuracy.value)
    return Numbers([(f"{best.accuracy.points()} %", f"accuracy, {label(best)}"), *_spent(best)])


def summary(tables: Sequence[Table]) -> Iterator[str]:
    """Yield a sentence per table that compares several policies in one setting."""
    for table in tables:
        compared = _compared(table)
        if not compared or len(compared[1]) == 1:
            continue  # the headline says as much
        plain, rows = compared
        listed = ", ".join(
            f"{label(row)} {100 * row.accuracy.value:.1f} % ({row.generated.value:,.0f} samples)"
            for row in rows
        )
        title = table.title or table.grid
        yield f"{title}: no synthetic samples {100 * plain.accuracy.value:.1f} %; {listed}."


def took(mean: Mean | None) -> str:
    """Return a time in a readable form.

    >>> took(Mean.of([26.2])), took(Mean.of([178.0])), took(Mean.of([9000.0])), took(None)
    ('26 s', '3.0 min', '2h 30min', 'not measured')
    """
    if mean is None:
        return "not measured"
    seconds = mean.value
    if seconds >= 7200:
        return duration(seconds)
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


def _compared(table: Table) -> tuple[Row, list[Row]] | None:
    """Return the row without samples and those with some, the most accurate first."""
    plain = next((row for row in table.rows if row.policy == "none"), None)
    rows = [row for row in table.rows if row.generated.value]
    if plain is None or not rows or not several_policies(table):
        return None
    return plain, sorted(rows, key=lambda row: -row.accuracy.value)


def _gained(plain: Row, row: Row) -> Iterator[tuple[str, str]]:
    before, after = 100 * plain.accuracy.value, 100 * row.accuracy.value
    yield f"{before:.1f} → {after:.1f} %", "accuracy without and with synthetic samples"
    gain = f"{after - before:+.1f}" if row.gain is None else row.gain.points("+")
    yield f"{gain} points", "gain" if row.seeds == 1 else f"mean gain of {row.seeds} seeds"


def _spent(row: Row) -> Iterator[tuple[str, str]]:
    if row.generated.value:
        yield f"{row.generated.value:,.0f} samples", f"generated in all, {row.policy}"
        yield took(row.generation_seconds), "of generation"
