"""What only a run's folder can show: samples per client, and images from its cache."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedeas.cache.store import Cache
from fedeas.counts import LabelCounts
from fedeas.data import Schema
from fedeas.data.kinds import Array
from fedeas.errors import FedeasError, InputError
from fedeas.experiments.own import own_epsilon
from fedeas.experiments.runs import Run
from fedeas.experiments.synthetic import run_cache
from fedeas.files import read_json
from fedeas.plan import Plan
from fedeas.report.figures import client_pictures
from fedeas.report.page import Grid, Picture, Section
from fedeas.report.samples import Bytes, grid_picture, padded

_EACH = 8  # images of a class
_ROWS, _COLUMNS = 2, 12  # of a table, of a class
_MOST = 3  # partitions, and generators, that are shown
_MOST_EPSILONS, _BESIDE = 4, 3  # generators of one kind side by side, and images of a class of each


def folder_sections(name: str, runs: Sequence[Run]) -> Iterator[Section]:
    """Yield pictures of the clients and of the samples of runs whose folders are available.

    What a folder lacks, or what does not belong to its result, is left out.
    """
    made = [run for run in runs if run.place is not None and run.result["generated"]]
    clients = Section("Samples per client", group=name)
    for n, run in enumerate(first_of_each(made, "counts_hash")):
        if (pictures := _demand(run)) is not None:
            demand, where = pictures
            clients.parts.append(run.result["data"])
            clients.parts.append(Picture(f"{name}-clients-{n}", demand, "Samples per client."))
            clients.parts.append(Picture(f"{name}-skew-{n}", where, "Where the imbalance sits."))
    samples = Section("Synthetic samples", group=name)
    own = [run for run in made if own_epsilon(run.result["generator"]) is not None]
    if (images := _side_by_side(own, name)) is not None:
        samples.parts.extend(images)
        made = [run for run in made if run not in own]
    for n, run in enumerate(first_of_each(made, "generator")):
        if (shown := _samples(run, f"{name}-samples-{n}")) is not None:
            drawn, each = run.result["generator"], _EACH if isinstance(shown, Picture) else _ROWS
            samples.parts.append(
                f"The first {each} of each class, not cherry-picked, drawn by {drawn}:"
            )
            samples.parts.append(shown)
    yield from (section for section in (clients, samples) if section.parts)


def _side_by_side(runs: Sequence[Run], name: str) -> tuple[str, Picture] | None:
    """Return the first images of every class of several generators, a block of columns for each."""
    found: dict[str, Bytes] = {}
    classes: Sequence[str] = ()
    chosen = first_of_each(runs, "generator", _MOST_EPSILONS)
    for run in sorted(chosen, key=lambda run: -(own_epsilon(run.result["generator"]) or 0.0)):
        try:
            opened = _opened(run)
            if opened is not None and opened[2] is None:
                cache, plan, _ = opened
                found[run.result["generator"]] = padded(_first(cache, plan, _BESIDE), _BESIDE)
                classes = plan.class_names
        except (FedeasError, KeyError, TypeError):
            continue
    if len(found) < 2:
        return None
    said = (
        f"The first {_BESIDE} of each class, not cherry-picked, drawn by, from left to right: "
        f"{', '.join(found)}."
    )
    gap = np.full_like(next(iter(found.values()))[:, :1], 255)
    blocks = [block for images in found.values() for block in (images, gap)][:-1]
    content = grid_picture(np.concatenate(blocks, axis=1), classes)
    return said, Picture(f"{name}-own-samples", content, "A row for every class.")


def _opened(run: Run) -> tuple[Cache, Plan, Schema | None] | None:
    """Return a run's cache and plan, and the schema of rows; None without a folder."""
    if run.place is None:
        return None
    augment = read_json(run.place / "config.json")["config"]["augment"]
    plan, columns = _own_plan(run, run.place), run.place / "schema.json"
    schema = Schema.load(columns) if columns.exists() else None
    return run_cache(augment["cache"], run.result), plan, schema


def _samples(run: Run, name: str) -> Picture | Grid | None:
    """Return the first images or rows of every class in a run's cache, if there is one."""
    try:
        if (opened := _opened(run)) is None:
            return None
        cache, plan, schema = opened
        if schema is not None:
            return _rows(cache, plan, schema)
        content = grid_picture(first_images(cache, plan), plan.class_names)
        return Picture(name, content, "A row for every class.")
    except (FedeasError, KeyError, TypeError):
        return None


def _rows(cache: Cache, plan: Plan, schema: Schema) -> Grid:
    """Return the first rows of every class as text, with as many columns as can be read."""
    rows: list[list[str]] = []
    for label, own in enumerate(_first(cache, plan, _ROWS)):
        if own:
            found = np.stack(own)
            schema.check(found)
            rows += [[plan.class_names[label], *line[:_COLUMNS]] for line in schema.words(found)]
    more = [] if len(schema) <= _COLUMNS else [f"{len(schema) - _COLUMNS} more"]
    head = ["class", *schema.names[:_COLUMNS], *more]
    return Grid(head, [[*row, *("..." for _ in more)] for row in rows], facts=True)


def first_of_each(runs: Sequence[Run], key: str, most: int = _MOST) -> list[Run]:
    """Return a run for every value of a key, one of FedEAS where there is one."""
    found: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: not run.result["policy"].startswith("fedeas")):
        found.setdefault(run.result[key], run)
    return list(found.values())[:most]


def _demand(run: Run) -> tuple[bytes, bytes] | None:
    """Return the pictures of what every client generates and of where the imbalance is."""
    if run.place is None:
        return None
    try:
        counts = LabelCounts.load(run.place / "counts.csv", layout="wide")
        if counts.fingerprint != run.result["counts_hash"]:
            return None
        return client_pictures(counts, _own_plan(run, run.place))
    except FedeasError:
        return None


def _own_plan(run: Run, folder: Path) -> Plan:
    plan = Plan.load(folder / "plan.json")
    if (plan.counts_hash, plan.total) != (run.result["counts_hash"], run.result["generated"]):
        raise InputError(f"{folder}/plan.json is of another run")
    return plan


def first_images(cache: Cache, plan: Plan) -> Bytes:
    """Return the first images of every class, over the clients in their order."""
    return padded(_first(cache, plan, _EACH), _EACH)


def _first(cache: Cache, plan: Plan, each: int) -> list[list[Array]]:
    """Return the first samples of every class, over the clients in their order."""
    found: list[list[Array]] = [[] for _ in plan.class_names]
    for client, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
        short = [min(n, each - len(own)) for n, own in zip(wanted, found, strict=True)]
        if any(short):
            for sample, label in zip(*cache.samples(client, short), strict=True):
                found[label].append(sample)
    return found
