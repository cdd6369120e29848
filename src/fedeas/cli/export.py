"""`fedeas export`: generated samples as folders of images or WebDataset."""

from pathlib import Path
from typing import Literal

import typer

from fedeas.cli import show
from fedeas.errors import InputError


def export(
    cache: str = typer.Argument(
        ..., metavar="CACHE", help="A cache: its folder or address, or a folder with one."
    ),
    out: Path = typer.Option(..., metavar="FOLDER", help="A new folder."),
    form: Literal["folder", "webdataset"] = typer.Option(
        "folder", "--format", help="Folders of images by class, or tar files of WebDataset."
    ),
    client: str | None = typer.Option(None, help="The client whose samples are written."),
    real: str | None = typer.Option(
        None, metavar="DATA", help="Also write the training images of a data set."
    ),
    folder: Path | None = typer.Option(None, help="Folder of that data set."),
) -> None:
    """Write generated images for other programs, with a card that says what they are.

    Rows of tables, and all else, are in the Parquet files of the cache.

    Example: `fedeas export cache/0123456789abcdef --out images`
    """
    from fedeas.cache.export import export as write
    from fedeas.cache.storage import open_storage
    from fedeas.cache.stored import cache_in
    from fedeas.data import open_dataset

    data = None if real is None else open_dataset(real, folder)
    found = cache_in(open_storage(cache))
    if found is None:
        raise InputError(f"no cache in {cache}", fix="pass what `fedeas cache list` shows")
    done = write(found, out, form, client, data)
    images = show.count_of(done.synthetic, "synthetic image")
    more = f" and {done.real:,} real ones" if done.real else ""
    typer.echo(f"wrote {images}{more} to {out}")
