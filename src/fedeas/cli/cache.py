"""`fedeas cache`: list, check, compact and prune caches of generated samples."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.cache.storage import Storage

cache = typer.Typer(no_args_is_help=True, help="Manage caches of generated samples.")


def _base() -> str | None:
    argument: str | None = typer.Argument(
        None, metavar="[CACHE]",
        help="Folder or address of the caches; by default .cache/fedeas/samples at home.",
    )  # fmt: skip
    return argument


@cache.command("list")
def list_caches(
    base: str | None = _base(),
    check: bool = typer.Option(
        False, "--check", help="Read every sample; exit 1 if one is damaged."
    ),
    repair: bool = typer.Option(
        False, "--repair", help="Also remove damaged shards; the next fill generates them again."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """List the caches in a folder and what they hold.

    Example: `fedeas cache list --check`
    """
    from fedeas.cache.store import summary, verify

    storages = _caches(base)
    summaries = [summary(storage) for storage in storages]
    look = check or repair
    problems = {str(one): list(verify(one, repair=repair)) if look else [] for one in storages}
    if as_json:
        show.print_json([{**asdict(one), "problems": problems[one.place]} for one in summaries])
    else:
        table = show.new_table(
            show.count_of(len(summaries), "cache"), ("cache", False), ("generator", False),
            ("seed", True), ("clients", True), ("samples", True), ("MB", True),
        )  # fmt: skip
        for one in summaries:
            seed = "?" if one.seed is None else str(one.seed)
            numbers = [seed, f"{one.clients:,}", f"{one.samples:,}", f"{one.size / 1e6:,.1f}"]
            table.add_row(one.place.rpartition("/")[2], one.generator, *numbers)
        show.print_table(table)
        for one in summaries:
            for problem in problems[one.place]:
                typer.echo(problem)
            if one.wrong:
                show.note(one.wrong)
    if any(problems.values()):
        show.note(
            "removed; the next `fedeas fill` generates them again"
            if repair
            else "--repair removes what is damaged, and the next `fedeas fill` generates it again"
        )
        raise typer.Exit(1)
    if look:
        show.note("all samples are intact")


@cache.command("compact")
def compact_caches(base: str | None = _base()) -> None:
    """Merge small shards into large ones, which are faster to read.

    Example: `fedeas cache compact`
    """
    from fedeas.cache.compact import compact
    from fedeas.cache.store import Cache

    for storage in _caches(base):
        before, after = compact(Cache.at(storage))
        typer.echo(f"{storage}: {show.count_of(before, 'shard')}, now {after:,}")


@cache.command("prune")
def prune_caches(
    base: str = typer.Argument(..., metavar="CACHE", help="Folder or address of the caches."),
    keep: list[str] = typer.Option(..., help="A cache to keep; may be repeated."),
    yes: bool = typer.Option(False, "--yes", help="Remove them; otherwise they are only listed."),
) -> None:
    """Remove every cache that is not kept.

    Example: `fedeas cache prune cache --keep 0123456789abcdef --yes`
    """
    from fedeas.cache.store import remove

    storages = _caches(base)
    names = [storage.name for storage in storages]
    keep = [each.rstrip("/").rpartition("/")[2] for each in keep]  # also as `fedeas fill` prints it
    if unknown := set(keep) - set(names):
        raise InputError("no such cache", got=unknown.pop(), allowed=", ".join(names))
    others = [storage for storage in storages if storage.name not in keep]
    for storage in others:
        if yes:
            remove(storage)
        typer.echo(f"{'removed' if yes else 'would remove'} {storage}")
    if others and not yes:
        show.note("pass --yes to remove them")


def _caches(base: str | None) -> "list[Storage]":
    """Return the caches in a folder, or the one that is named itself."""
    from fedeas.cache.storage import open_storage, samples_place
    from fedeas.cache.store import caches, is_cache

    place = open_storage(samples_place(base))
    found = [place] if is_cache(place) else caches(place)
    if not found:
        raise InputError(f"no cache in {place}", fix="pass the folder given to `fedeas fill`")
    return found
