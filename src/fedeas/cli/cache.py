"""`fedeas cache`: list, verify, export and prune caches of generated samples."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer

from fedeas.cli import show
from fedeas.errors import InputError
from fedeas.progress import progress

cache = typer.Typer(no_args_is_help=True, help="Manage caches of generated samples.")


def _folder() -> Path:
    argument: Path = typer.Argument(
        Path("cache"), metavar="CACHE", help="Folder that holds the caches."
    )
    return argument


@cache.command("list")
def list_caches(folder: Path = _folder(), as_json: bool = show.json_option()) -> None:
    """List the caches in a folder and what they hold.

    Example: `fedeas cache list cache`
    """
    from fedeas.cache.verify import summary

    found = [summary(path) for path in _caches(folder)]
    if as_json:
        show.print_json([{**asdict(one), "folder": str(one.folder)} for one in found])
        return
    table = show.new_table(
        show.count_of(len(found), "cache"), ("cache", False), ("generator", False), ("seed", True),
        ("clients", True), ("samples", True), ("MB", True),
    )  # fmt: skip
    for one in found:
        seed = "?" if one.seed is None else str(one.seed)
        numbers = [seed, f"{one.clients:,}", f"{one.samples:,}", f"{one.size / 1e6:,.1f}"]
        table.add_row(one.folder.name, one.generator, *numbers)
    show.print_table(table)
    for one in found:
        if one.wrong:
            show.note(one.wrong)


@cache.command("verify")
def verify_caches(folder: Path = _folder(), as_json: bool = show.json_option()) -> None:
    """Check every file of the caches in a folder; exit 1 if one is damaged.

    Example: `fedeas cache verify cache`
    """
    from fedeas.cache.verify import verify

    problems = [problem for path in _caches(folder) for problem in verify(path)]
    if as_json:
        show.print_json([{"path": str(p.path), "what": p.what} for p in problems])
    else:
        for problem in problems:
            typer.echo(f"{problem.path}: {problem.what}")
        typer.echo(show.count_of(len(problems), "problem") if problems else "all files are intact")
    if problems:
        show.note("the next `fedeas fill` repairs them")
        raise typer.Exit(1)


@cache.command("export")
def export_cache(
    folder: Path = _folder(),
    out: Path = typer.Option(..., help="An empty or new folder."),
    form: str = typer.Option(
        "png", "--format", metavar="png|parquet",
        help="png: images CLIENT/CLASS/INDEX.png; parquet: one file with a row per sample.",
    ),
    client: list[str] | None = typer.Option(None, help="Only this client; may be repeated."),
    plan_file: Path | None = typer.Option(
        None, "--plan", help="The plan that was filled, for the names of the classes."
    ),
) -> None:  # fmt: skip
    """Write generated samples as files that other programs read.

    CACHE holds one cache, or is the folder of one. Without --plan classes are numbered.

    Example: `fedeas cache export cache --out images --format png --plan plan.csv`
    """
    from fedeas.cache import Cache
    from fedeas.cache.export import PARQUET_FILE, export

    source = Cache.at(_one_cache(folder))
    classes = _class_names(plan_file)
    with progress("samples") as update:
        done = export(
            source, out, form, client or (), classes,
            lambda at, total: update(at, total, f"written to {out}"),
        )  # fmt: skip
    written = out / PARQUET_FILE if form == "parquet" else out
    show.note(f"wrote {show.count_of(done, 'sample')} to {written}")


def _class_names(plan_file: Path | None) -> tuple[str, ...] | None:
    from fedeas.plan import Plan

    return None if plan_file is None else Plan.load(plan_file).class_names


def _one_cache(folder: Path) -> Path:
    """Return the only cache in a folder, or the folder itself if it is a cache."""
    from fedeas.cache.verify import caches

    own = folder.resolve()
    if own in caches(own.parent):
        return own
    found = _caches(folder)
    if len(found) > 1:
        raise InputError(
            f"{folder} holds {len(found)} caches",
            allowed=", ".join(str(path) for path in found[:5]),
            fix="pass one of them; `fedeas cache list` says what they hold",
        )
    return found[0]


@cache.command("prune")
def prune_caches(
    folder: Path = _folder(),
    keep: list[str] | None = typer.Option(None, help="A cache to keep; may be repeated."),
    yes: bool = typer.Option(False, "--yes", help="Remove them; otherwise they are only listed."),
) -> None:
    """Remove caches of earlier versions and, with --keep, every cache that is not kept.

    Example: `fedeas cache prune cache --keep 0123456789abcdef --yes`
    """
    from fedeas.cache.store import is_old
    from fedeas.cache.verify import remove

    found = _caches(folder)
    if unknown := set(keep or ()) - {path.name for path in found}:
        raise InputError(
            "no such cache", got=unknown.pop(), allowed=", ".join(p.name for p in found)
        )
    doomed = [p for p in found if p.name not in keep] if keep else [p for p in found if is_old(p)]
    for path in doomed:
        if yes:
            remove(path, partial(_refuse_busy, path))
        typer.echo(f"{'removed' if yes else 'would remove'} {path}")
    if doomed and not yes:
        show.note("pass --yes to remove them")


def _refuse_busy(path: Path) -> None:
    raise InputError(f"{path} is being filled", fix="wait until it is done")


def _caches(folder: Path) -> list[Path]:
    from fedeas.cache.verify import caches

    if not (found := caches(folder)):
        raise InputError(f"no cache in {folder}", fix="pass the folder given to `fedeas fill`")
    return found
