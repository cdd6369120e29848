"""The federation's own generator in a deployment: made before the first round, from noisy sums.

The server asks for the sums, makes the generator from them, and gives it to the sites. A site that
names `own` as its generator keeps what it is given, after looking at it: the server may be hostile.
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

from fedeas.data import Dataset
from fedeas.errors import InputError
from fedeas.files import atomic_write
from fedeas.flower.exchange import exchange, reason
from fedeas.flower.queries import ask
from fedeas.generators.generator import heavy
from fedeas.generators.own.card import CARD, WEIGHTS, Card
from fedeas.per_name import planned_quality
from fedeas.privacy.accounting import DELTA
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import Release
from fedeas.privacy.secure_sum.identity import Members

OWN = "own"  # as a site's generator: the one that the federation makes
RECORD, HEARD = "own-generator", "heard"
SUMS = "sums"  # folder of what was asked and is not used up
_WINDOW = 16  # messages in flight at a time
_TRIES = 3
_MOST_BYTES = 2**26  # of a generator that a site takes
_LOG = logging.getLogger("flwr")


def make_generator_of_sites(
    grid: Grid,
    nodes: Iterable[int],
    data: Dataset,
    members: Members,
    folder: Path,
    *,
    epsilon: float,
    way: str,
    steps: int,
    seed: int,
    timeout: float,
) -> str:
    """Make the federation's generator, unless its folder has one, and return its fingerprint.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    data
        The server's own test data, for the classes and the shape of a sample.
    members
        The members of the federation.
    folder
        Where the generator is kept.
    epsilon
        What the sums may cost one sample of a site, added or removed.
    way
        'moments', 'features' or 'embedding'; '' for the default.
    steps
        Of a network's training, or of changing images; 0 for the default.
    seed
        Of what is drawn.
    timeout
        Seconds that each of the five stages may take.
    """
    make = heavy("fedeas.generators.own.make", "the federation's own generator", "train")
    if not (folder / CARD).exists():

        def ask_sites(query: SampleSum, part: float) -> Release:
            found = ask(grid, nodes, query, members, epsilon=epsilon, timeout=timeout, part=part)
            for node, why in found.left_out.items():
                _LOG.warning("the generator's sum is without node %s: %s", node, why)
            return Release(found.sums, found.sigma, len(found.nodes), epsilon, DELTA)

        nodes, training = list(nodes), make.training_of(steps or None)
        sums = heavy("fedeas.generators.own.kept_sums", "the federation's own generator", "train")
        paid = sums.kept(ask_sites, folder / SUMS, epsilon)
        made = make.make_from_sums(data, paid, way, seed, training, folder, _say)
        shutil.rmtree(folder / SUMS, ignore_errors=True)
        _LOG.info(
            "made a generator from the sum of %s sites, epsilon %s for one sample of a site",
            made.card.sites, epsilon,
        )  # fmt: skip
    return str(make.open_own(str(folder)).fingerprint)


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
        _check(Card.read(looked_at), data)
        make = heavy("fedeas.generators.own.make", "the federation's own generator", "train")
        make.open_own(str(looked_at))  # refuses weights that do not match
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
    return f"own(model={_taken(folder)})"


def taken_quality(folder: Path) -> list[float]:
    """Return what samples of that generator are worth, class by class."""
    return planned_quality(Card.read(_taken(folder)).quality)


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


def _check(card: Card, data: Dataset) -> None:
    """Refuse a generator of other samples, or one that would take more than its bytes to open."""
    if card.classes != data.classes or card.shape != tuple(data.samples.shape[1:]):
        raise InputError("the generator is for other data", got=card.shape)
    if len(card.quality) != len(card.classes) or not all(0 <= x <= 1 for x in card.quality):
        raise InputError("the generator's quality is out of range", got=card.quality)
    if data.schema is not None:
        if _columns(card) != data.schema.to_list():
            raise InputError("the generator is for other columns", got=card.shape)
        return
    network = heavy("fedeas.generators.own.network", "the federation's own generator", "train")
    usual = network.NetworkConfig(len(card.classes), card.shape)
    asked = dict(card.settings.get("network", {}))
    for name in ("latent", "hidden", "frequencies"):
        value = asked.get(name, getattr(usual, name))
        if type(value) is not int or not 0 < value <= getattr(usual, name):
            raise InputError(f"the generator's {name} is out of range", got=value)


def _columns(card: Card) -> object:
    """Return the columns that a card names, which may be anything."""
    space = card.settings.get("space")
    return space.get("columns") if isinstance(space, dict) else None


def _say(done: int, total: int, how: str) -> None:
    """Log every tenth of the network's training."""
    if done % max(1, total // 10) == 0:
        _LOG.info("making the generator: step %s of %s, %s", done, total, how)
