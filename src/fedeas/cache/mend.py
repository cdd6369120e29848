"""Damage in a cache: found by hashing, and mended without generating what is whole."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path

from fedeas.cache.block import Block, Blocks, DamagedError, Segment, mapped
from fedeas.cache.index import FILE, SAMPLES, Index
from fedeas.cache.private import private_folder, refuse_links
from fedeas.cache.store import Cache
from fedeas.errors import InputError


def mend(cache: Cache, client: str | None = None) -> list[str]:
    """Mend what can be mended without generating, and say what was wrong.

    Blocks that are not as they were written leave the index, whole ones that are not in it are
    entered, and what a killed process wrote of a block is cut off. Call it while the cache is
    locked, or, to mend the samples of one client, while that client is.
    """
    refuse_links(cache.index)
    wrong = _mend_index(cache) if client is None else []
    files = [cache.samples_file(client)]
    if client is None:
        files += sorted(cache.folder.glob(f"clients/*/{SAMPLES}"))
    with cache.open() as index:
        for file, block, why in list(problems(cache.folder, index.blocks(client))):
            wrong.append(why)
            index.remove(file, block.offset)
        for path in files:
            private_folder(path.parent)
            if path.is_symlink() or (path.exists() and not path.is_file()):
                path.unlink()
            elif path.exists():
                refuse_links(path)
                _enter(index, path, path.relative_to(cache.folder).as_posix(), anew=bool(wrong))
    return list(dict.fromkeys(wrong))


def problems(folder: Path, blocks: Iterable[tuple[str, Block]]) -> Iterator[tuple[str, Block, str]]:
    """Hash blocks, and yield those that are not as they were written, with what is wrong.

    Blocks come file by file, as the index lists them.
    """
    for file, own in groupby(blocks, key=lambda listed: listed[0]):
        with ExitStack() as stack:
            content, unreadable = None, None
            try:
                content = stack.enter_context(mapped(folder / file))
            except InputError as error:
                unreadable = error.what
            for _, block in own:
                if why := unreadable or _wrong(content, block):
                    yield file, block, why


def _wrong(content: Blocks | None, block: Block) -> str | None:
    """Say what is wrong with a block, if anything is."""
    try:
        if content is not None:
            content.read(block, again=True)
    except InputError as error:
        return error.what
    return None


def _mend_index(cache: Cache) -> list[str]:
    """Replace an index that is damaged by an empty one."""
    try:
        cache.prepare()
        with cache.open() as index:
            index.check(to_write=True)
    except DamagedError as error:
        for path in cache.folder.glob(f"{FILE}*"):
            path.unlink()
        cache.prepare()
        return [error.what]
    return []


def _enter(index: Index, path: Path, name: str, anew: bool) -> None:
    """Enter whole blocks that the index lacks, of all of a file or of its end; cut off the rest."""
    end = 0 if anew else index.end_of(name)
    held: dict[str, list[Segment]] = {}
    new = []
    with suppress(InputError), mapped(path) as content:
        for block in content.whole(end):
            end = block.offset + block.size
            if (own := held.get(block.client)) is None:
                own = held[block.client] = index.segments(block.client)
            if not any(_overlap(a, b) for a in block.segments for b in own):
                own += block.segments
                new.append(block)
    index.add(name, new)
    if path.stat().st_size > (end := max(end, index.end_of(name))):
        os.truncate(path, end)


def _overlap(a: Segment, b: Segment) -> bool:
    return a.label == b.label and a.start < b.stop and b.start < a.stop
