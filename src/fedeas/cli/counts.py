"""`fedeas counts`: the tables that people have, as a table that every other command reads."""

from pathlib import Path

import typer

from fedeas.cli import label_counts, show
from fedeas.errors import InputError


def counts(
    files: list[Path] = typer.Argument(..., metavar="FILE...", hidden=True),
    out: Path = typer.Option(..., help="Write the counts: .csv, .tsv, .json or .parquet."),
    client: str | None = typer.Option(None, metavar="COLUMN", help="Column of the clients."),
    client_name: str | None = typer.Option(
        None, metavar="NAME", help="Name of the one client whose records FILE holds; with --label."
    ),
    label: str | None = typer.Option(
        None,
        metavar="COLUMN",
        help="Column of the labels: a row is a sample, or has a count. Of NVFlare's statistics, "
        "the feature that is the label.",
    ),
    count: str | None = typer.Option(
        None, metavar="COLUMN", help="Column of the counts, beside one of the labels."
    ),
    add_up: bool = typer.Option(False, "--add-up", help="Add up the rows of a client."),
    transpose: bool = typer.Option(False, "--transpose", help="Rows are classes."),
    drop_column: list[str] = typer.Option(
        [], help="Leave out this column or class, e.g. a total; repeatable."
    ),
    drop_row: list[str] = typer.Option(
        [], help="Leave out the row with this first cell, e.g. a total; repeatable."
    ),
    thousands: str | None = typer.Option(
        None, metavar="SIGN", help="What separates thousands: ',' '.' space apostrophe none."
    ),
    blank: int | None = typer.Option(None, help="The count in cells that are empty, '-' or NaN."),
    suppressed: int | None = typer.Option(None, help="The count in cells such as '<5' and '*'."),
    delimiter: str | None = typer.Option(None, help="Delimiter of a text file: ';', tab, ..."),
    encoding: str | None = typer.Option(
        None, help="Encoding of a text file that is not UTF-8, e.g. cp1252."
    ),
    sheet: str | None = typer.Option(None, help="Sheet of an Excel workbook."),
    keep: bool = typer.Option(
        False, "--keep", help="Keep what seems to be no class or no client; --out is then .json."
    ),
) -> None:
    """Turn the tables that people have into one with a row per client and a column per class.

    FILE is .csv, .tsv, .xlsx, .json or .parquet, one or several of them. Nothing is guessed: an
    error names all that is unclear, with the command that reads the table as it seems to be meant.

    Example: `fedeas counts patients.xlsx --client hospital --label diagnosis --out counts.csv`
    """
    from fedeas import LabelCounts
    from fedeas.counts.messy_tables import read_people
    from fedeas.counts.options import Options

    for file in files:
        if out.exists() and file.exists() and out.samefile(file):
            raise InputError("--out is the table itself", got=str(out), fix="choose another name")
    options = Options(
        client, client_name, label, count, add_up, transpose, tuple(drop_column), tuple(drop_row),
        thousands, blank, suppressed, delimiter, encoding, sheet, keep,
    )  # fmt: skip
    reading = read_people(files, options, str(out))
    table = reading.table
    label_counts_read = LabelCounts(table.values, table.clients, table.classes)
    label_counts_read.save(out)
    label_counts.note_counts(", ".join(map(str, files)), label_counts_read)
    for note in reading.notes:
        show.note(f"note: {note}")
    show.note(f"wrote {out}")
