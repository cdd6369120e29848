"""`fedeas counts`: a clean table of counts from the tables that people have."""

from pathlib import Path

import typer

from fedeas.cli import label_counts, show
from fedeas.errors import InputError


def counts(
    source: Path = typer.Argument(..., metavar="FILE", hidden=True),
    out: Path = typer.Option(..., help="Write the counts: .csv, .tsv, .json or .parquet."),
    client: str | None = typer.Option(None, metavar="COLUMN", help="Column of the clients."),
    label: str | None = typer.Option(
        None, metavar="COLUMN", help="Column of the labels: a row is a sample, or has a count."
    ),
    count: str | None = typer.Option(
        None, metavar="COLUMN", help="Column of the counts, beside one of the labels."
    ),
    sizes: str | None = typer.Option(
        None, metavar="COLUMN", help="Column of each client's size, if cells are percentages."
    ),
    add_up: bool = typer.Option(False, "--add-up", help="Add up the rows of a client."),
    transpose: bool = typer.Option(False, "--transpose", help="Rows are classes."),
    drop_column: list[str] | None = typer.Option(
        None, help="Leave out this column or class, e.g. a total; repeatable."
    ),
    drop_row: list[str] | None = typer.Option(
        None, help="Leave out the row with this first cell, e.g. a total; repeatable."
    ),
    thousands: str | None = typer.Option(
        None, metavar="SIGN", help="What separates thousands: ',' '.' space apostrophe none."
    ),
    blank: int | None = typer.Option(None, help="The count in cells that are empty, '-' or NaN."),
    suppressed: int | None = typer.Option(None, help="The count in cells such as '<5' and '*'."),
    delimiter: str | None = typer.Option(None, help="Delimiter of a CSV file: ';', tab, ..."),
    encoding: str | None = typer.Option(
        None, help="Encoding of a text file that is not UTF-8, e.g. cp1252 or utf-16."
    ),
    sheet: str | None = typer.Option(
        None, help="Sheet of an Excel workbook, or data set of NVFlare's statistics."
    ),
    keep: bool = typer.Option(
        False, "--keep", help="Keep what seems to be no class or no client, with a note."
    ),
) -> None:
    """Turn a table that people have into a clean one: a row per client, a column per class.

    FILE is .csv, .tsv, .xlsx, .json or .parquet, or - for standard input. Nothing is guessed: what
    is not certain is refused, with the option that settles it.

    Example: `fedeas counts patients.xlsx --client hospital --label diagnosis --out counts.csv`
    """
    from fedeas.countfiles.sidecar import written_files

    if out.exists() and Path(source).exists() and out.samefile(source):
        raise InputError("--out is the table itself", got=str(out), fix="choose another name")
    options = {
        "client": client, "label": label, "count": count, "sizes": sizes, "add_up": add_up,
        "transpose": transpose, "drop_columns": drop_column or (), "drop_rows": drop_row or (),
        "thousands": thousands, "blank": blank, "suppressed": suppressed, "delimiter": delimiter,
        "encoding": encoding, "sheet": sheet, "keep": keep,
    }  # fmt: skip
    file = label_counts.load_counts(source, **options)
    file.counts.save(out)
    label_counts.note_counts(source, file)
    for path in written_files(out):
        show.note(f"wrote {path}")
