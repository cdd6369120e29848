"""The federation's own generator as a message: the server gives it to the sites.

A site that names `private` as its generator keeps what it is given, after looking at it: the server
may be hostile.
"""

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedeas._internal.files import atomic_write
from fedeas._internal.optional import import_extra
from fedeas._internal.specs import quoted
from fedeas.data import Dataset
from fedeas.errors import InputError
from fedeas.generators.card import CARD, GeneratorCard
from fedeas.planning.named_values import planned_quality
from fedeas.private.generator.card import PRIVATE, WEIGHTS
from fedeas.train.flower.exchange import exchange, reason

RECORD, HEARD = "private-generator", "heard"
_WINDOW = 16  # messages in flight at a time
_TRIES = 3
_MOST_BYTES = 2**26  # of a generator that a site takes
_LOG = logging.getLogger("flwr")


def give_generator(grid: Grid, nodes: Iterable[int], folder: Path, timeout: float) -> list[int]:
    """Give every site the generator, and return the nodes that did not take it."""
    content = {name: (folder / name).read_bytes() for name in (CARD, WEIGHTS)}
    left, wrong = list(nodes), ""
    for _ in range(_TRIES):
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord(dict(content))}),
                message_type=f"{MessageType.QUERY}.{RECORD.replace('-', '_')}",
                dst_node_id=node,
            )
            for node in left
        ]
        for node, reply in exchange(grid, messages, _WINDOW, timeout):
            if reply.has_error():
                wrong = reason(reply)
            else:
                left.remove(node)
        if not left:
            return []
    _LOG.warning("nodes %s did not take the generator: %s", left, wrong or "too late")
    return left


def take_generator(message: Message, data: Dataset, folder: Path) -> Message:
    """Keep the generator that a server gives, if it is one for this site's data.

    Parameters
    ----------
    message
        What the server sent.
    data
        The site's own data.
    folder
        Where the site keeps the generator.
    """
    content = _content(message)
    digest = hashlib.sha256(content[CARD] + content[WEIGHTS]).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # What is refused leaves nothing behind: a server could fill the disk otherwise.
    with tempfile.TemporaryDirectory(dir=folder) as place:
        looked_at = Path(place) / digest
        looked_at.mkdir(mode=0o700)
        for name in (WEIGHTS, CARD):
            (looked_at / name).write_bytes(content[name])
        _check(GeneratorCard.load(looked_at, PRIVATE), data)
        make = import_extra(
            "fedeas.private.generator.make", "the federation's own generator", "train"
        )
        make.open_private(str(looked_at))  # refuses weights that do not match
        shutil.rmtree(folder / digest, ignore_errors=True)
        looked_at.rename(folder / digest)
    with atomic_write(folder / HEARD) as temporary:
        temporary.write_text(digest, encoding="utf-8")
    for other in folder.iterdir():  # of earlier runs
        if other.name not in (digest, HEARD):
            shutil.rmtree(other, ignore_errors=True)
    return Message(RecordDict({RECORD: ConfigRecord({HEARD: digest})}), reply_to=message)


def taken_generator(folder: Path) -> str:
    """Return the name of the generator that a site was given last."""
    return f"private(model={quoted(str(_taken(folder)))})"


def taken_quality(folder: Path) -> list[float]:
    """Return what samples of that generator are worth, class by class."""
    return planned_quality(GeneratorCard.load(_taken(folder), PRIVATE).quality)


def _taken(folder: Path) -> Path:
    try:
        return folder / (folder / HEARD).read_text(encoding="utf-8")
    except OSError:
        raise InputError(
            "the federation's generator has not come to this site",
            fix="set generator-epsilon in the run's configuration, or name another generator",
        ) from None


def _content(message: Message) -> dict[str, bytes]:
    record: Any = message.content.config_records.get(RECORD)
    try:
        content = {name: bytes(record[name]) for name in (CARD, WEIGHTS)}
    except (TypeError, KeyError, ValueError):
        raise InputError("not a generator") from None
    size = sum(map(len, content.values()))
    if size > _MOST_BYTES:
        raise InputError("the generator is too large", got=size, allowed=f"up to {_MOST_BYTES}")
    return content


def _check(card: GeneratorCard, data: Dataset) -> None:
    """Refuse a generator of other samples."""
    if card.classes != data.classes or card.shape != tuple(data.samples.shape[1:]):
        raise InputError("the generator is for other data", got=card.shape)
    if len(card.quality) != len(card.classes) or not all(0 <= x <= 1 for x in card.quality):
        raise InputError("the generator's quality is out of range", got=card.quality)
    space = card.settings.get("space")  # which may be anything
    columns = space.get("columns") if isinstance(space, dict) else None
    if data.schema is not None and columns != data.schema.to_list():
        raise InputError("the generator is for other columns", got=card.shape)
