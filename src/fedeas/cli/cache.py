"""`fedeas cache`: list, check and prune caches of generated samples."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer

from fedeas.cli import show
from fedeas.errors import InputError

cache = typer.Typer(no_args_is_help=True, help="Manage caches of generated samples.")


def _folder() -> Path | None:
    argument: Path | None = typer.Argument(
        None, metavar="[CACHE]",
        help="Folder that holds the caches; by default .cache/fedeas/samples at home.",
    )  # fmt: skip
    return argument


@cache.command("list")
def list_caches(
    folder: Path | None = _folder(),
    check: bool = typer.Option(
        False, "--check", help="Read every sample; exit 1 if one is damaged."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """List the caches in a folder and what they hold.

    Example: `fedeas cache list --check`
    """
    from fedeas.cache.store import summary, verify

    summaries = [summary(path) for path in _caches(folder)]
    problems = {one.folder: list(verify(one.folder)) if check else [] for one in summaries}
    if as_json:
        show.print_json(
            [
                {**asdict(one), "folder": str(one.folder), "problems": problems[one.folder]}
                for one in summaries
            ]
        )
    else:
        table = show.new_table(
            show.count_of(len(summaries), "cache"), ("cache", False), ("generator", False),
            ("seed", True), ("clients", True), ("samples", True), ("MB", True),
        )  # fmt: skip
        for one in summaries:
            seed = "?" if one.seed is None else str(one.seed)
            numbers = [seed, f"{one.clients:,}", f"{one.samples:,}", f"{one.size / 1e6:,.1f}"]
            table.add_row(one.folder.name, one.generator, *numbers)
        show.print_table(table)
        for one in summaries:
            for problem in problems[one.folder]:
                typer.echo(problem)
            if one.wrong:
                show.note(one.wrong)
    if any(problems.values()):
        show.note("the next `fedeas fill` repairs them")
        raise typer.Exit(1)
    if check:
        show.note("all samples are intact")


@cache.command("prune")
def prune_caches(
    folder: Path = typer.Argument(..., metavar="CACHE", help="Folder that holds the caches."),
    keep: list[str] = typer.Option(..., help="A cache to keep; may be repeated."),
    yes: bool = typer.Option(False, "--yes", help="Remove them; otherwise they are only listed."),
) -> None:
    """Remove every cache that is not kept.

    Example: `fedeas cache prune cache --keep 0123456789abcdef --yes`
    """
    from fedeas.cache.store import remove

    folders = _caches(folder)
    if unknown := set(keep) - {path.name for path in folders}:
        raise InputError(
            "no such cache", got=unknown.pop(), allowed=", ".join(p.name for p in folders)
        )
    others = [path for path in folders if path.name not in keep]
    for path in others:
        if yes:
            remove(path, partial(_refuse_busy, path))
        typer.echo(f"{'removed' if yes else 'would remove'} {path}")
    if others and not yes:
        show.note("pass --yes to remove them")


def _refuse_busy(path: Path) -> None:
    raise InputError(f"{path} is being filled", fix="wait until it is done")


def _caches(folder: Path | None) -> list[Path]:
    from fedeas._internal.files import samples_folder
    from fedeas.cache.store import caches

    if not (folders := caches(samples_folder(folder))):
        raise InputError(
            f"no cache in {samples_folder(folder)}", fix="pass the folder given to `fedeas fill`"
        )
    return folders
