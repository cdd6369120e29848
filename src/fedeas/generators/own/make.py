"""Making and opening generators of `own`, in either way."""

import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.generators.own import embedded, gaussians, refined, rows
from fedeas.generators.own.card import Card
from fedeas.generators.own.matching import Matching, Report
from fedeas.privacy.queries.embedding import EmbeddingSum
from fedeas.privacy.queries.query import Ints
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import DELTA, Ask, Release, release
from fedeas.seeds import child_rng

Own = embedded.Embedded | gaussians.Gaussians | refined.Refined | rows.Rows
# The default comes first.
WAYS = {"image": (gaussians.WAY, refined.WAY, embedded.WAY), "table": (rows.WAY,)}


def make_own(
    data: Dataset,
    sites: Sequence[Ints],
    epsilon: float = 1.0,
    delta: float = DELTA,
    way: str = "",
    seed: int = 0,
    training: Matching | None = None,
    out: Path | None = None,
    report: Report | None = None,
) -> Own:
    """Make a generator from the noisy sum over the sites of a simulation.

    Parameters
    ----------
    data : Dataset
        The samples of all sites.
    sites : sequence of arrays
        Where each site's samples are in `data`.
    epsilon, delta : float
        What the sum may cost one sample of a site, added or removed; an infinite epsilon makes a
        generator without any guarantee, to compare with.
    way : str
        'moments', 'features' or 'embedding'; moments by default.
    seed : int
        Of the simulated noise, and of training.
    training : Matching, optional
        How the network of an embedding is trained, and how long images of features are changed.
    out : Path, optional
        The generator's folder. A killed training is resumed from its checkpoint there.
    report : callable, optional
        Told about progress.
    """
    if not epsilon > 0 or math.isnan(epsilon):
        raise InputError("epsilon is out of range", got=epsilon, allowed="above 0")
    if not sites:
        raise InputError("a sum needs at least one site", got=0)
    asked = count()

    def ask(query: SampleSum, part: float) -> Release:
        # Every sum has noise of its own.
        number = next(asked)
        noise = int(child_rng(seed, "sum", number).integers(2**63)) if number else seed
        answers = (query.answer(data.samples, data.labels, own) for own in sites)
        return release(query, answers, len(sites), epsilon, delta, noise, part)

    return make_from_sums(data, ask, way, seed, training, out, report)


def make_from_sums(
    data: Dataset,
    ask: Ask,
    way: str = "",
    seed: int = 0,
    training: Matching | None = None,
    out: Path | None = None,
    report: Report | None = None,
) -> Own:
    """Make a generator from what sites answer.

    Parameters
    ----------
    data : Dataset
        Names the classes and the shape of a sample, and the columns of a table.
    ask : callable
        Asks all sites a query, for a part of the whole cost.
    way, seed, training, out, report
        As for `make_own`.
    """
    way = check_way(way, data.kind)
    shape = data.samples.shape[1:]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    made: Own
    if data.schema is not None:
        made = rows.Rows.make(data.schema, data.classes, ask)
    elif way == embedded.WAY:
        query = EmbeddingSum(len(data.classes), shape)
        made = embedded.Embedded.make(
            query, ask(query, 1.0), data.classes, training, seed, out, report
        )
    elif way == refined.WAY:
        steps = None if training is None else training.steps
        made = refined.Refined.make(data.classes, shape, ask, seed, steps, report)
    else:
        made = gaussians.Gaussians.make(data.classes, shape, ask)
    if out is not None:
        made.save(out)
    return made


def training_of(steps: int | None) -> Matching | None:
    """Return how long is trained where that is given."""
    return None if steps is None else Matching(steps=steps)


def open_own(model: str) -> Own:
    """Open the folder of a generator.

    Parameters
    ----------
    model
        The folder.
    """
    folder = Path(model)
    card = Card.read(folder)
    if card.way == embedded.WAY:
        return embedded.Embedded.load(folder)
    if card.way == rows.WAY and len(card.shape) == 1:
        return rows.Rows.load(folder)
    if card.way == refined.WAY:
        return refined.Refined.load(folder)
    if card.way == gaussians.WAY:
        return gaussians.Gaussians.load(folder)
    raise InputError(f"{folder} was made in an unknown way", got=card.way)


def check_way(way: str, kind: str) -> str:
    """Return how a generator for this kind of data is made."""
    known = WAYS.get(kind, ())
    if not known:
        raise InputError(
            "own generators are for images and tables", got=kind, allowed=", ".join(WAYS)
        )
    if way and way not in known:
        raise InputError("unknown way", got=way, allowed=" or ".join(known))
    return way or known[0]
