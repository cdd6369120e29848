"""Options that the commands of `fedeas generator` share: a generator, and real data."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.data import Dataset, TableOptions
    from fedeas.progress import Progress


def spec_argument(more: str = "") -> str:
    """Declare the argument that names a generator."""
    argument: str = typer.Argument(
        ..., metavar="GENERATOR",
        help=f"'diffusion(model=FOLDER)', 'gaussian(model=FOLDER)', 'pool(data=NAME)', ...{more}",
    )  # fmt: skip
    return argument


def label_option() -> str:
    """Declare the option that names the column of the label."""
    option: str = typer.Option("label", help="Of a table: the column of the label.")
    return option


def site_option() -> str:
    """Declare the option that names the column of the site."""
    option: str = typer.Option("", help="Of a table: the column of the site, not learnt from.")
    return option


def schema_option() -> str:
    """Declare the option that names the file of a schema."""
    option: str = typer.Option(
        "", metavar="FILE", help="Of a table: what its columns are, as a run wrote it (.json)."
    )
    return option


def table_options(label: str, site: str, schema: str) -> "TableOptions":
    """Return what the options of a command say about the columns of a table."""
    from fedeas.data import TableOptions

    return TableOptions(label=label, site=site, schema=schema)


def open_data(
    name: str,
    folder: Path | None,
    label: str,
    site: str,
    schema: str,
    progress: "Progress | None" = None,
) -> "Dataset":
    """Open images or a table by name, whichever is there."""
    from fedeas.data import load_data

    return load_data(name, folder, table_options(label, site, schema), progress=progress)


def known_classes(made: object) -> tuple[str, ...]:
    """Return the classes that a generator says it knows."""
    names = getattr(made, "classes", None)
    if not names:
        raise InputError(
            "the generator does not say which classes it knows",
            fix="give it an attribute `classes` with their names",
        )
    return tuple(names)
