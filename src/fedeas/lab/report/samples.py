"""What only a run's folder can show: samples per client, and the samples that were generated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedeas._internal.files import read_json, samples_folder
from fedeas._internal.settings import read_settings
from fedeas.cache import ClientSamples
from fedeas.cache.segments import Ints
from fedeas.cache.storage import is_url
from fedeas.cache.store import NAME, Cache
from fedeas.counts.label_counts import LabelCounts
from fedeas.data import Federation, Schema
from fedeas.data.kinds import Array
from fedeas.errors import FedeasError, InputError
from fedeas.generators import find_resampler
from fedeas.lab.config import Config
from fedeas.lab.resolve import partition_data
from fedeas.lab.results import FinishedRun, private_epsilon, read_result
from fedeas.planning.plan import ClientPlan, Plan
from fedeas.plots.canvas import file_content
from fedeas.plots.heatmap import label_heatmap
from fedeas.plots.page import Grid, Picture, Section
from fedeas.plots.samples import Bytes, grid_picture, padded
from fedeas.train.diffusion.quality import Drawn, Real
from fedeas.train.samples import Samples

_EACH = 8  # images of a class
_ROWS, _COLUMNS = 2, 12  # of a table, of a class
_MOST = 3  # partitions, and generators, that are shown
_MOST_EPSILONS, _BESIDE = 4, 3  # generators of one kind side by side, and images of a class of each


def folder_sections(name: str, runs: Sequence[FinishedRun]) -> Iterator[Section]:
    """Yield pictures of the clients and of the samples of runs whose folders are available.

    What a folder lacks, or what does not belong to its result, is left out.
    """
    generating = [run for run in runs if run.path is not None and run.result["generated"]]
    clients = Section("Samples per client", group=name)
    for n, run in enumerate(first_of_each(generating, "counts_hash")):
        if (content := _heatmap(run)) is not None:
            alt = "Samples per client and class, before and after the plan."
            clients.parts.append(run.result["data"])
            clients.parts.append(Picture(f"{name}-clients-{n}", content, alt))
    samples = Section("Synthetic samples", group=name)
    private = [run for run in generating if private_epsilon(run.result["generator"]) is not None]
    if (images := _side_by_side(private, name)) is not None:
        samples.parts.extend(images)
        generating = [run for run in generating if run not in private]
    for n, run in enumerate(first_of_each(generating, "generator")):
        if (shown := _samples(run, f"{name}-samples-{n}")) is not None:
            each = _EACH if isinstance(shown, Picture) else _ROWS
            generator = run.result["generator"]
            samples.parts.append(
                f"The first {each} of each class, not cherry-picked, drawn by {generator}:"
            )
            samples.parts.append(shown)
    yield from (section for section in (clients, samples) if section.parts)


def _side_by_side(runs: Sequence[FinishedRun], name: str) -> tuple[str, Picture] | None:
    """Return the first images of every class of several generators, a block of columns for each."""
    images_of: dict[str, Bytes] = {}
    classes: Sequence[str] = ()
    chosen = first_of_each(runs, "generator", _MOST_EPSILONS)
    for run in sorted(chosen, key=lambda run: -(private_epsilon(run.result["generator"]) or 0.0)):
        try:
            opened = _opened(run)
            if opened is not None and opened[2] is None:
                cache, plan, _ = opened
                images_of[run.result["generator"]] = padded(_first(cache, plan, _BESIDE), _BESIDE)
                classes = plan.class_names
        except (FedeasError, KeyError, TypeError):
            continue
    if len(images_of) < 2:
        return None
    text = (
        f"The first {_BESIDE} of each class, not cherry-picked, drawn by, from left to right: "
        f"{', '.join(images_of)}."
    )
    gap = np.full_like(next(iter(images_of.values()))[:, :1], 255)
    blocks = [block for images in images_of.values() for block in (images, gap)][:-1]
    content = grid_picture(np.concatenate(blocks, axis=1), classes)
    return text, Picture(f"{name}-own-samples", content, "A row for every class.")


def _opened(run: FinishedRun) -> tuple[Cache, Plan, Schema | None] | None:
    """Return a run's cache and plan, and the schema of rows; None without a folder."""
    if run.path is None:
        return None
    augment = read_json(run.path / "config.json")["config"]["augment"]
    plan, columns = _own_plan(run, run.path), run.path / "schema.json"
    schema = Schema.load(columns) if columns.exists() else None
    return run_cache(augment["cache"], run.result), plan, schema


def _samples(run: FinishedRun, name: str) -> Picture | Grid | None:
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
    for label, samples in enumerate(_first(cache, plan, _ROWS)):
        if samples:
            block = np.stack(samples)
            schema.check(block)
            rows += [[plan.class_names[label], *line[:_COLUMNS]] for line in schema.words(block)]
    more = [] if len(schema) <= _COLUMNS else [f"{len(schema) - _COLUMNS} more"]
    head = ["class", *schema.names[:_COLUMNS], *more]
    return Grid(head, [[*row, *("..." for _ in more)] for row in rows], facts=True)


def first_of_each(runs: Sequence[FinishedRun], key: str, most: int = _MOST) -> list[FinishedRun]:
    """Return a run for every value of a key, one of FedEAS where there is one."""
    by_value: dict[str, FinishedRun] = {}
    for run in sorted(runs, key=lambda run: not run.result["policy"].startswith("fedeas")):
        by_value.setdefault(run.result[key], run)
    return list(by_value.values())[:most]


def _heatmap(run: FinishedRun) -> bytes | None:
    """Return the picture of a run's label counts before and after its plan."""
    if run.path is None:
        return None
    try:
        counts = LabelCounts.load(run.path / "counts.json")
        if counts.fingerprint != run.result["counts_hash"]:
            return None
        return file_content(label_heatmap(counts, _own_plan(run, run.path)))
    except FedeasError:
        return None


def _own_plan(run: FinishedRun, folder: Path) -> Plan:
    plan = Plan.load(folder / "plan.json")
    if (plan.counts_hash, plan.total) != (run.result["counts_hash"], run.result["generated"]):
        raise InputError(f"{folder}/plan.json is of another run")
    return plan


def first_images(cache: Cache, plan: Plan) -> Bytes:
    """Return the first images of every class, over the clients in their order."""
    return padded(_first(cache, plan, _EACH), _EACH)


def _first(cache: Cache, plan: Plan, each: int) -> list[list[Array]]:
    """Return the first samples of every class, over the clients in their order."""
    by_class: list[list[Array]] = [[] for _ in plan.class_names]
    for client, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
        missing = [min(n, each - len(samples)) for n, samples in zip(wanted, by_class, strict=True)]
        if any(missing):
            for sample, label in zip(*cache.samples(client, missing), strict=True):
                by_class[label].append(sample)
    return by_class


# All that a run generated, and the real samples that it is compared with


@dataclass(frozen=True, eq=False)
class RunSamples:
    """What a run generated, and its real samples."""

    drawn: Drawn
    real: Real
    generator: str


def run_samples(folder: Path) -> RunSamples:
    """Read what a finished run generated; copies and the like are made again, as the run did."""
    config = _config(folder)
    result, plan = read_result(folder / "result.json"), Plan.load(folder / "plan.json")
    federation = partition_data(config)
    if plan.counts_hash != federation.counts.fingerprint:
        raise InputError(f"the data of {folder} have changed", fix="run it again in another folder")
    if not plan.total:
        raise InputError(f"{folder} generated no samples")
    if "cache" in result["generation"]:
        parts = _cached(run_cache(config.augment.cache, result), plan)
    else:
        parts = _made_again(config, plan, federation)
    samples, labels = zip(*parts, strict=True)
    training = np.sort(federation.partition.train.indices)
    return RunSamples(
        Drawn(np.concatenate(samples), np.concatenate(labels)),
        Real(federation.data, training, federation.test),
        str(result["generator"]),
    )


def run_cache(base: str, result: Mapping[str, Any]) -> Cache:
    """Open the cache below a folder that a run's result names."""
    name = str(result["generation"].get("cache"))
    if not NAME.fullmatch(name):
        raise InputError("the run has no cache", got=name)
    if is_url(base):  # a record may come from anybody, and must not make this machine call others
        raise InputError(
            "the samples of the run are not on this machine",
            got=base,
            fix="copy the cache to a folder, and name that in its config.json",
        )
    return Cache.at(samples_folder(base) / name)


def _config(folder: Path) -> Config:
    try:
        return read_settings(Config, read_json(folder / "config.json")["config"])
    except (KeyError, TypeError):
        raise InputError(f"{folder}/config.json is damaged") from None


def _cached(cache: Cache, plan: Plan) -> Iterator[tuple[Array, Ints]]:
    for client, wanted in zip(plan.client_names, plan.samples, strict=True):
        if wanted.any():
            yield cache.samples(client, wanted.tolist())


def _made_again(config: Config, plan: Plan, federation: Federation) -> Iterator[tuple[Array, Ints]]:
    # A run's folder is a record, which may come from anybody: it names installed generators only.
    generator = find_resampler(config.augment.generator, by_owner=False)
    if generator is None:
        raise InputError("the run has no cache", got=config.augment.generator)
    data, cache, seed = federation.data, samples_folder(config.augment.cache), config.seed
    parts = zip(plan.client_names, plan.samples, federation.partition.train, strict=True)
    for client, wanted, indices in parts:
        if wanted.any():
            real = Samples.of(data, np.asarray(indices))
            synthetic = ClientSamples(
                client, ClientPlan(wanted), generator, cache, seed + config.augment.seed
            )
            yield synthetic.draw(real.counts(), data.classes, data.samples, real)
