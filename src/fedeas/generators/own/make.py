"""Making and opening generators of `own`, in either way."""

import dataclasses
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.generators.own import embedded, gaussians, refined, rows
from fedeas.generators.own.card import CARD, Card
from fedeas.generators.own.kept_sums import kept
from fedeas.generators.own.matching import Matching, Report
from fedeas.generators.own.request import claim_folder, simulated_request
from fedeas.generators.own.sum_check import check_sums, describe_check
from fedeas.privacy.accounting import DELTA
from fedeas.privacy.queries.column_counts import ColumnCounts
from fedeas.privacy.queries.embedding import EmbeddingSum
from fedeas.privacy.queries.image_features import FeatureMeans, FeatureProducts
from fedeas.privacy.queries.image_moments import ImageMoments, ImageProducts
from fedeas.privacy.queries.query import Ints
from fedeas.privacy.queries.row_moments import RowMoments
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import Ask, Release, release
from fedeas.seeds import child_rng

Own = embedded.Embedded | gaussians.Gaussians | refined.Refined | rows.Rows
# The default comes first.
WAYS = {"image": (gaussians.WAY, refined.WAY, embedded.WAY), "table": (rows.WAY,)}
# The sums that each is made from, as owners of sites allow them.
_MOMENTS = (ImageMoments.name, ImageProducts.name)
_QUERIES = {
    ("image", gaussians.WAY): _MOMENTS,
    ("image", refined.WAY): (*_MOMENTS, FeatureMeans.name, FeatureProducts.name),
    ("image", embedded.WAY): (EmbeddingSum.name,),
    ("table", rows.WAY): (ColumnCounts.name, RowMoments.name),
}
SUMS = "sums"  # folder of what was asked and is not used up


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
    seeded_noise: bool = False,
) -> Own:
    """Make a generator from the noisy sums over the sites of a simulation.

    Parameters
    ----------
    data : Dataset
        The samples of all sites.
    sites : sequence of arrays
        Where each site's samples are in `data`.
    epsilon, delta : float
        What the sums may cost one sample of a site, added or removed; an infinite epsilon makes a
        generator without any guarantee, to compare with.
    way : str
        'moments', 'features' or 'embedding'; moments by default.
    seed : int
        Of training, and of what is drawn on the way.
    training : Matching, optional
        How the network of an embedding is trained, and how long images of features are changed.
    out : Path, optional
        The generator's folder. A killed training is resumed from its sums and its checkpoint
        there; what was begun for another request is refused.
    report : callable, optional
        Told about progress.
    seeded_noise : bool
        Draw the noise from `seed`, so that an experiment can be repeated bit by bit. Anybody can
        draw it again and subtract it: the card then states no epsilon. By default noise comes from
        the operating system.
    """
    if not epsilon > 0 or math.isnan(epsilon):
        raise InputError("epsilon is out of range", got=epsilon, allowed="above 0")
    if not sites:
        raise InputError("a sum needs at least one site", got=0)
    way = check_way(way, data.kind)
    asked, samples = count(), sum(map(len, sites))

    def ask(query: SampleSum, part: float) -> Release:
        number, noise = next(asked), None
        if seeded_noise:  # every sum has noise of its own
            noise = int(child_rng(seed, "sum", number).integers(2**63)) if number else seed

        def answers() -> Iterator[Ints]:
            for done, own in enumerate(sites, start=1):
                yield query.answer(data.samples, data.labels, own)
                if report is not None:
                    report(done, len(sites), f"sites in the sum {query.name}")

        found = release(query, answers(), len(sites), epsilon, delta, part, noise)
        return found._replace(samples=samples)

    steps = None if training is None else training.steps
    request = simulated_request(data, sites, epsilon, delta, way, seed, steps, seeded_noise)
    return make_once(data, ask, request, way, seed, training, out, report, simulated=True)


def make_once(
    data: Dataset,
    ask: Ask,
    request: Mapping[str, Any],
    way: str = "",
    seed: int = 0,
    training: Matching | None = None,
    out: Path | None = None,
    report: Report | None = None,
    simulated: bool = False,
) -> Own:
    """Make a generator in a folder that is of one request for good.

    Real sites are not asked again for what they paid for: a finished generator of the same request
    is opened.

    Parameters
    ----------
    data, ask, way, seed, training, out, report
        As for `make_from_sums`.
    request : mapping
        All that the generator depends on, among it `epsilon` and `delta`.
    simulated : bool
        As for `kept`.
    """
    if out is None:
        return make_from_sums(data, ask, way, seed, training, None, report)
    if simulated and (out / CARD).exists():
        raise InputError(
            f"{out} holds a generator already",
            fix=f"use it as own(model={out}), or choose another folder",
        )
    # A simulation's request names the very data, so it does not stay where the generator is.
    claim_folder(out / SUMS if simulated else out, request)
    if (out / CARD).exists():
        return open_own(str(out))
    paid = kept(ask, out / SUMS, request["epsilon"], request["delta"], simulated)
    made = make_from_sums(data, paid, way, seed, training, out, report)
    shutil.rmtree(out / SUMS, ignore_errors=True)
    return made


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
    sizes: list[int | None] = []

    def ask_and_check(query: SampleSum, part: float) -> Release:
        released = ask(query, part)
        check_sums(query, released, released.samples)
        sizes.append(released.samples)
        return released

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    made: Own
    if data.schema is not None:
        made = rows.Rows.make(data.schema, data.classes, ask_and_check)
    elif way == embedded.WAY:
        query = EmbeddingSum(len(data.classes), shape)
        made = embedded.Embedded.make(
            query, ask_and_check(query, 1.0), data.classes, training, seed, out, report
        )
    elif way == refined.WAY:
        steps = None if training is None else training.steps
        made = refined.Refined.make(data.classes, shape, ask_and_check, seed, steps, report)
    else:
        made = gaussians.Gaussians.make(data.classes, shape, ask_and_check)
    checked = describe_check(sizes_known=all(size is not None for size in sizes))
    made.card = dataclasses.replace(made.card, checked=checked)
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


def queries_for(way: str, kind: str) -> tuple[str, ...]:
    """Return the names of the queries that a generator for this kind of data is made from.

    >>> queries_for("", "image")
    ('image-moments', 'image-products')
    """
    return _QUERIES[kind, check_way(way, kind)]


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
