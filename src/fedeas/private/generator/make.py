"""Making and opening private generators, and classifiers from the same budget.

A generator's folder is of one request for good, which is written before anything is paid for; sums
that sites paid for are kept there until the generator is made of them.
"""

import dataclasses
import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedeas._internal.files import locked, make_folder, read_json, write_json
from fedeas._internal.progress import Update
from fedeas.data.dataset import Dataset
from fedeas.errors import InfeasibleError, InputError
from fedeas.generators.card import CARD, GeneratorCard
from fedeas.private.accounting import DELTA, SAMPLE, epsilon_of, rho_for
from fedeas.private.generator import images, rows
from fedeas.private.generator.base import PrivateGenerator, unfinished
from fedeas.private.generator.card import PRIVATE
from fedeas.private.generator.classifier import PrivateClassifier
from fedeas.private.groups import Groups
from fedeas.private.queries import encode_query
from fedeas.private.queries.features import FeatureMeans, FeatureProducts
from fedeas.private.queries.moments import ImageMoments, ImageProducts
from fedeas.private.queries.query import Ints, SampleSum
from fedeas.private.queries.table import ColumnCounts, RowMoments
from fedeas.private.sums import Ask, Release, SimulatedSums, check_sums, describe_check
from fedeas.train.tensors import load_tensors, save_tensors

# The sums that a generator is made from, as owners of sites allow them.
_QUERIES = {
    "image": (ImageMoments.name, ImageProducts.name),
    "table": (ColumnCounts.name, RowMoments.name),
}
# An image classifier has sums of its own, and this part of the budget; that of rows has none.
_CLASSIFIER_SHARE = 0.5
CLASSIFIER_FOLDER = "classifier"  # in a generator's
_ONE_BUDGET = "one epsilon for the generator and the classifier together"
REQUEST = "request.json"
SUMS = "sums"  # folder of what was asked and is not used up
_OURS = {"lock", SUMS}  # what is in the folder of an unfinished generator
VERSION = 4  # of how generators are made: a simulation uses none of another
_TRIES = "tries.json"


def make_private(
    data: Dataset,
    sites: Sequence[Ints],
    epsilon: float = 1.0,
    delta: float = DELTA,
    seed: int = 0,
    out: Path | str | None = None,
    progress: Update | None = None,
    seeded_noise: bool = False,
    groups: Groups | None = None,
    classifier: bool = False,
) -> PrivateGenerator:
    """Make a generator from the noisy sums over the sites of a simulation.

    Parameters
    ----------
    data : Dataset
        The samples of all sites.
    sites : sequence of arrays
        Where each site's samples are in `data`.
    epsilon, delta : float
        What the sums may cost one unit of a site, added or removed; an infinite epsilon makes a
        generator without any guarantee, to compare with.
    seed : int
        Of the noise, if that is seeded.
    out : Path or str, optional
        The generator's folder. What a killed process asked for is kept beside it, in
        OUT.unfinished, and used; sums of another request are refused.
    progress : callable, optional
        Called with what is done, of how much, and a description.
    seeded_noise : bool
        Draw the noise from `seed`, so that an experiment can be repeated bit by bit. Anybody can
        draw it again and subtract it: the card then states no epsilon. By default noise comes from
        the operating system.
    groups : Groups, optional
        The group of every sample of `data`, such as a person, if groups are the unit of privacy.
    classifier : bool
        Make a classifier of the same budget as well, in the folder `classifier` of `out`: half of
        it for images, at no further cost for rows.
    """
    check_kind(data.kind)
    noise_seed = seed if seeded_noise else None
    ask = _simulated(data, sites, epsilon, delta, noise_seed, progress, groups)
    if out is None:
        if classifier:
            raise InputError(
                "a generator and a classifier need a folder",
                fix="give `out`, or make_classifier a budget of its own",
            )
        return make_from_sums(data, ask)
    if groups is not None:
        raise InputError(
            "a generator by group keeps no sums in a folder", fix="leave `out` away, and save it"
        )
    request = simulated_request(data, sites, epsilon, delta, seed, seeded_noise, classifier)

    out = Path(out)

    def busy() -> None:
        raise InputError(
            f"another process is making a generator in {out}", fix="wait for it, or name a folder"
        )

    beside = unfinished(out)
    if beside.exists() and (strange := {path.name for path in beside.iterdir()} - _OURS):
        raise InputError(
            f"{beside} is where unfinished sums are kept, and holds other files",
            got=sorted(strange)[0],
            fix="name another folder for the generator",
        )
    with locked(beside, busy):  # two would each ask for sums, and pay for both
        try:
            return make_once(data, ask, request, out, simulated=True)
        finally:
            if not any((beside / SUMS).glob("*.safetensors")):  # nothing to go on with
                others = {path.name for path in beside.iterdir()} - _OURS
                shutil.rmtree(beside / SUMS if others else beside, ignore_errors=True)


def make_classifier(
    data: Dataset,
    sites: Sequence[Ints],
    epsilon: float = 1.0,
    delta: float = DELTA,
    noise_seed: int | None = None,
    progress: Update | None = None,
    groups: Groups | None = None,
) -> PrivateClassifier:
    """Make a classifier from the noisy sums over the sites of a simulation.

    Parameters
    ----------
    data, sites, epsilon, delta, progress, groups
        As for `make_private`.
    noise_seed : int, optional
        Draws the same noise again: the card then states no epsilon.
    """
    ask = _simulated(data, sites, epsilon, delta, noise_seed, progress, groups)
    return classifier_from_sums(data, ask)


def _simulated(
    data: Dataset,
    sites: Sequence[Ints],
    epsilon: float,
    delta: float,
    noise_seed: int | None,
    progress: Update | None,
    groups: Groups | None,
) -> Ask:
    """Return a function that asks the sites of a simulation."""
    if not epsilon > 0 or math.isnan(epsilon):
        raise InputError("epsilon is out of range", got=epsilon, allowed="above 0")
    if not sites:
        raise InputError("a sum needs at least one site", got=0)
    sums = SimulatedSums(data, sites, delta, noise_seed, progress, groups)

    def ask(query: SampleSum, share: float) -> Release:
        return sums.ask(query, epsilon, share)

    return ask


def make_once(
    data: Dataset,
    ask: Ask,
    request: Mapping[str, Any],
    out: Path,
    simulated: bool = False,
) -> PrivateGenerator:
    """Make a generator in a folder that is of one request for good.

    Real sites are not asked again for what they paid for: a finished generator of the same request
    is opened, whichever version of the code made it.

    Parameters
    ----------
    data, ask
        As for `make_from_sums`.
    request : mapping
        All that the generator depends on, among it its `epsilon` and `delta`; with `classifier`, a
        classifier is made of the same budget.
    out : Path
        The folder.
    simulated : bool
        As for `keep_sums`.
    """
    both, begun = bool(request.get("classifier")), (out / CARD).exists()
    # A simulation's request has the very hash of its data: it is never in what is given away.
    sums = unfinished(out) / SUMS if simulated else out / SUMS
    if simulated:
        _check_simulated(out, sums, both)
    claim_folder(sums if simulated else out, request)
    if request.get("seeded_noise"):  # noise has the bits of the whole run: nothing is resumed
        begun = False
        for kept in sums.glob("*.safetensors"):
            kept.unlink()
    if begun and (not both or (out / CLASSIFIER_FOLDER / CARD).exists()):
        return open_private(str(out))
    if both:
        PrivateClassifier.check(data)  # before anything is paid for
    ask = keep_sums(ask, sums, request["epsilon"], request["delta"], simulated)
    part = _CLASSIFIER_SHARE if both and data.schema is None else 0.0
    generator = open_private(str(out)) if begun else make_from_sums(data, _part_of(ask, 1 - part))
    generator.save(out)  # first: what is paid for is there, whatever becomes of the classifier
    if both:  # of rows, the same sums once more, which are kept
        try:
            classifier = classifier_from_sums(data, _part_of(ask, part or 1.0))
        except InfeasibleError as error:
            what = f"there is a generator in {out}, and no classifier: {error.what}"
            fix = "use the generator, and ask for no classifier"
            raise InfeasibleError(what, fix=fix) from None
        # The budget is one: what the classifier's sums cost in the end counts for both.
        for model, folder in ((generator, out), (classifier, out / CLASSIFIER_FOLDER)):
            model.card = dataclasses.replace(
                model.card,
                privacy=classifier.card.privacy,
                notes={**model.card.notes, "budget": _ONE_BUDGET},
            )
            model.save(folder)
    _remove(sums)
    return generator


def _check_simulated(out: Path, sums: Path, both: bool) -> None:
    """Refuse a folder with a generator, or with what real sites paid for; tidy up the sums."""
    if (out / CARD).exists():
        owed = (sums / REQUEST).exists() and bool(read_json(sums / REQUEST).get("classifier"))
        if not owed or (out / CLASSIFIER_FOLDER / CARD).exists():
            _remove(sums)  # of a process that was killed before it did
            owed = False
        if not (both and owed):
            fix = f"use it as private(model={out}), or pay for another, in another folder"
            if owed:
                fix = f"ask for its classifier too, which was paid for; or {fix}"
            raise InputError(f"{out} holds a generator already", fix=fix)
    elif any((out / name).exists() for name in (REQUEST, SUMS)):
        raise InputError(
            f"{out} is where sums that sites paid for are kept", fix="name another folder"
        )
    if not any(sums.glob("*.safetensors")):  # nothing was asked yet
        _remove(sums)


def _remove(sums: Path) -> None:
    """Remove sums that are used up; those of a simulation come with their data's hash."""
    shutil.rmtree(sums, ignore_errors=True)


def make_from_sums(data: Dataset, ask: Ask) -> PrivateGenerator:
    """Make a generator from what sites answer.

    Parameters
    ----------
    data : Dataset
        Names the classes and the shape of a sample, and the columns of a table.
    ask : callable
        Asks all sites a query, for a share of the privacy budget.
    """
    check_kind(data.kind)
    ask_and_check, releases = _checked(ask)
    generator: PrivateGenerator
    if data.schema is not None:
        generator = rows.GaussianRows.make(data.schema, data.classes, ask_and_check)
    else:
        shape = data.samples.shape[1:]
        generator = images.GaussianImages.make(data.classes, shape, ask_and_check)
    generator.card = _with_check(generator.card, releases)
    return generator


def classifier_from_sums(data: Dataset, ask: Ask) -> PrivateClassifier:
    """Make a classifier from what sites answer.

    Parameters
    ----------
    data, ask
        As for `make_from_sums`.
    """
    ask_and_check, releases = _checked(ask)
    classifier = PrivateClassifier.make(data, ask_and_check)
    classifier.card = _with_check(classifier.card, releases)
    return classifier


def _checked(ask: Ask) -> tuple[Ask, list[Release]]:
    """Return a function that refuses sums that no samples have, and a list of its answers."""
    releases: list[Release] = []

    def ask_and_check(query: SampleSum, share: float) -> Release:
        released = ask(query, share)
        check_sums(query, released)
        releases.append(released)
        return released

    return ask_and_check, releases


def _with_check(card: GeneratorCard, releases: Sequence[Release]) -> GeneratorCard:
    sizes_known = all(released.samples is not None for released in releases)
    checked = describe_check(sizes_known, releases[0].unit)
    return dataclasses.replace(card, notes={**card.notes, "checked": checked})


def _part_of(ask: Ask, part: float) -> Ask:
    """Return a function that asks for a part of the budget."""
    return lambda query, share: ask(query, part * share)


def open_private(model: str) -> PrivateGenerator:
    """Open the folder of a generator.

    Parameters
    ----------
    model
        The folder.
    """
    folder = Path(model)
    card = GeneratorCard.load(folder, PRIVATE)
    if type(card.training.sites) is not int:  # a server may have sent anything
        raise InputError(f"{folder} does not say how many sites made it", got=card.training.sites)
    if card.method == rows.METHOD and len(card.shape) == 1:
        return rows.GaussianRows.load(folder)
    if card.method == images.METHOD:
        return images.GaussianImages.load(folder)
    raise InputError(f"{folder} was made by a method that is not known", got=card.method)


def queries_for(kind: str, classifier: bool = False) -> tuple[str, ...]:
    """Return the names of the queries that a generator for this kind of data is made from.

    >>> queries_for("image")
    ('image-moments', 'image-products')
    """
    check_kind(kind)
    more = (FeatureMeans.name, FeatureProducts.name) if classifier and kind == "image" else ()
    return (*_QUERIES[kind], *more)


def check_kind(kind: str) -> None:
    """Refuse data that there is no private generator for."""
    if kind not in _QUERIES:
        raise InputError("private generators are for images and tables", got=kind)


def claim_folder(folder: Path, request: Mapping[str, Any]) -> None:
    """Write a request into a folder, before anything is paid for, or see that it is the same.

    Parameters
    ----------
    folder : Path
        The generator's folder.
    request : mapping
        All that the sums and the generator depend on, as values of JSON.
    """
    path = folder / REQUEST
    if not path.exists() and not (folder / CARD).exists():
        make_folder(folder)
        write_json(path, request)
        return
    content = read_json(path) if path.exists() else {}
    # Earlier versions knew no other unit, and no classifier, which is named only where it is made.
    earlier = {"unit": SAMPLE, **content} if isinstance(content, dict) else {}
    request = {**request, "classifier": request.get("classifier")}
    if (folder / CARD).exists() and not request["classifier"]:
        del request["classifier"]  # the generator is there, also where noise hid the classifier
    if differ := [key for key in request if earlier.get(key) != request[key]]:
        what = "a generator that was made" if (folder / CARD).exists() else "sums that were asked"
        raise InputError(
            f"{folder} holds {what} for another request",
            got=", ".join(f"{key} {_short(request[key])}" for key in differ),
            allowed=", ".join(f"{key} {_short(earlier.get(key))}" for key in differ),
            fix="choose another folder: another request is paid for once more",
        )


def simulated_request(
    data: Dataset,
    sites: Sequence[Ints],
    epsilon: float,
    delta: float,
    seed: int,
    seeded_noise: bool,
    classifier: bool = False,
) -> dict[str, Any]:
    """Return all that a generator of a simulation depends on.

    Parameters
    ----------
    data, sites
        The samples, and where each site's are.
    epsilon, delta, seed, seeded_noise, classifier
        How it is made.
    """
    places = hashlib.sha256()
    for site in sites:
        places.update(len(site).to_bytes(8, "little"))
        places.update(np.ascontiguousarray(site, dtype="<i8").data)
    return {
        "version": VERSION,
        "epsilon": float(epsilon), "delta": float(delta), "seed": seed,
        "seeded_noise": seeded_noise, "data": data.fingerprint,
        "sites": len(sites), "samples": places.hexdigest(),
        **({"classifier": True} if classifier else {}),  # earlier versions knew none
    }  # fmt: skip


def keep_sums(ask: Ask, folder: Path, epsilon: float, delta: float, simulated: bool = False) -> Ask:
    """Return a function that pays for a sum once, even if the process dies after it.

    What dies between a sum and saving it is paid for twice. So every attempt is written down
    before it is made. All of them count in the epsilon of an answer, also those without an answer
    and those that an earlier version of the code asked for and this one does not use.

    Parameters
    ----------
    ask
        Asks the sites.
    folder
        Where answers are kept.
    epsilon, delta
        What the sums may cost together; answers to another one are of no use.
    simulated
        Whether an answer that was not saved was seen by nobody, and so costs nothing.
    """
    tries: dict[str, list[float]] = {}
    if (folder / _TRIES).exists():
        tries = read_json(folder / _TRIES)

    def path_of(name: str) -> Path:
        return folder / f"{name}.safetensors"

    def epsilon_paid() -> float:
        paid = sum(share * times for share, times in tries.values())  # in shares of the budget
        if paid <= 1 + 1e-9:
            return epsilon
        return epsilon_of([paid * rho_for(epsilon, delta)], delta)

    def ask_once(query: SampleSum, share: float) -> Release:
        request = json.dumps([encode_query(query), share, epsilon, delta], sort_keys=True)
        name = hashlib.sha256(request.encode()).hexdigest()[:16]
        if path_of(name).exists():
            tensors, about = load_tensors(path_of(name))
            guarantee = epsilon_paid() if about["guarantee"] else math.inf
            return Release(
                tensors["sums"].numpy(), about["sigma"], about["sites"], guarantee,
                about["delta"], about["samples"], about.get("unit", SAMPLE),
            )  # fmt: skip
        make_folder(folder)
        if not simulated:
            tries[name] = [share, tries.get(name, [share, 0])[1] + 1]
            write_json(folder / _TRIES, tries)
        released = ask(query, share)
        guaranteed = math.isfinite(released.epsilon)
        about = {
            "sigma": released.sigma, "sites": released.sites, "delta": released.delta,
            "guarantee": guaranteed, "samples": released.samples, "unit": released.unit,
        }  # fmt: skip
        sums = torch.from_numpy(np.asarray(released.sums, np.int64))
        save_tensors(path_of(name), {"sums": sums}, about)
        return released._replace(epsilon=epsilon_paid()) if guaranteed else released

    return ask_once


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
