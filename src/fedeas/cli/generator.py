"""`fedeas generator`: train, sample and benchmark generators."""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedeas.cli import show
from fedeas.cli.generator_data import (
    known_classes,
    label_option,
    open_data,
    schema_option,
    site_option,
    spec_argument,
)
from fedeas.errors import InputError
from fedeas.progress import Update, progress
from fedeas.specs import quoted

if TYPE_CHECKING:
    from fedeas.data import Dataset
    from fedeas.generators.diffusion import Diffusion
    from fedeas.generators.train import TrainingProgress

generator = typer.Typer(no_args_is_help=True, help="Train, sample and benchmark generators.")

_PRESET = "tiny"
_EACH = 10  # images of a class that a checkpoint's grid shows


@generator.command("train")
def train_generator(
    data: str | None = typer.Argument(
        None, help="Name of a data set in FEDEAS_DATA or on the hub."
    ),
    out: Path = typer.Option(..., help="Output folder; run again to resume."),
    federated: Path | None = typer.Option(
        None, help="Config of a federation that trains it, instead of DATA (.toml)."
    ),
    preset: str = typer.Option(_PRESET, help="'tiny' for CPUs, 'paper' for GPUs."),
    steps: int | None = typer.Option(None, min=1, help="Training steps instead of the preset's."),
    batch: int | None = typer.Option(None, min=1, help="Batch size instead of the preset's."),
    seed: int = typer.Option(0, min=0, help="Seed of weights, order and noise."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, ..."),
    checkpoint: int = typer.Option(500, min=1, help="Steps between checkpoints and sample grids."),
    grids: bool = typer.Option(True, "--grids/--no-grids", help="Draw images at checkpoints."),
    folder: Path | None = typer.Option(None, help="Folder with the data's Parquet files."),
    label: str = label_option(),
    site: str = site_option(),
    schema: str = schema_option(),
) -> None:
    """Train a generator: a diffusion model of images, or `gaussian` of the rows of a table.

    DATA is the name of a data set, or the file of a table; only its training samples are used. If
    interrupted, run again to resume. On several GPUs: `accelerate launch -m fedeas generator train
    ...`. With --federated, clients train a diffusion model in rounds, as the config says, and no
    image leaves its client.

    Example: `fedeas generator train fashion_mnist --out fashion`
    """
    from fedeas.generators.generator import heavy

    if federated is not None:
        given = {"DATA": data, "--steps": steps, "--batch": batch, "--folder": folder}
        _train_federated(federated, out, device, [k for k, v in given.items() if v is not None])
        return
    if data is None:
        raise InputError("no data to train on", fix="name a data set, or give --federated CONFIG")
    changed = {k: v for k, v in (("steps", steps), ("batch", batch)) if v is not None}
    if preset != _PRESET:  # a wrong name is told before data are read
        heavy("fedeas.generators.train", "training a generator", "diffusion").preset(preset)
    with progress("decoding") as update:
        loaded = open_data(data, folder, label, site, schema, update)
    show.note(repr(loaded))
    if loaded.kind == "table":
        _fit_gaussian(loaded, out, [f"--{name}" for name in changed])
        return
    training = heavy("fedeas.generators.train", "training a generator", "diffusion")
    settings = training.preset(preset)
    with progress("training") as update:
        log = _Log(out, update)
        model = training.train(
            loaded,
            out,
            replace(settings, **changed),
            seed,
            device,
            checkpoint,
            log.report,
            log.look if grids else None,
        )
    typer.echo(f"model            {model}")


def _fit_gaussian(data: "Dataset", out: Path, given: list[str]) -> None:
    """Fit `gaussian` to the training rows of a table, and write its folder."""
    from fedeas.generators.gaussian import gaussian_of_dataset

    if given:
        raise InputError(f"{given[0]} is for images", fix="leave it out: rows are only counted")
    made = gaussian_of_dataset(data)
    made.save(out)
    typer.echo(f"rows             {data.train_size:,} of {len(made.known_classes())} classes")
    typer.echo(f"generator        gaussian(model={quoted(str(out))})")


def _train_federated(config_file: Path, out: Path, device: str, given: list[str]) -> None:
    """Train a generator by a federation."""
    from fedeas.generators.generator import heavy
    from fedeas.settings.config import read_config

    if given:
        raise InputError(
            f"{given[0]} and --federated exclude each other", fix=f"set it in {config_file}"
        )
    runs = heavy("fedeas.experiments.generator", "federated training", "train")
    config = read_config(config_file)
    if device != "auto":
        config = config.replace(device=device)
    with progress(out.name) as update:

        def report(line: dict[str, Any]) -> None:
            loss = f"loss {line['loss']:.4f}, " if "loss" in line else ""
            text = f"rounds, {loss}{line['seconds']:.1f} s per round"
            update(line["round"], config.federated.rounds, text)

        model = runs.train_generator(config, out, show.note, report)
    typer.echo(f"model            {model}")


class _Log:
    """Writes a line of JSON per report, shows progress, and draws a grid at every checkpoint."""

    def __init__(self, out: Path, update: Update) -> None:
        self._out, self._update = out, update

    def report(self, moment: "TrainingProgress") -> None:
        with (self._out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(moment)) + "\n")
        text = f"steps, loss {moment.loss:.4f}, {moment.images_per_second:.0f} images/s"
        self._update(moment.step, moment.steps, text)

    def look(self, step: int, generator: "Diffusion") -> None:
        from fedeas.report.samples import class_grid, save_grid

        pictures = self._out / "grids"
        pictures.mkdir(exist_ok=True)
        grid = class_grid(generator, len(generator.classes), each=_EACH)
        save_grid(grid, generator.classes, pictures / f"{step:07d}.png")


@generator.command("judge")
def train_judge(
    data: str = typer.Argument(..., help="Name of a data set in FEDEAS_DATA or on the hub."),
    out: Path = typer.Option(..., help="Output file (.safetensors)."),
    epochs: int | None = typer.Option(
        None, min=1, help="Training epochs (default: 6 of images; as many as 3,000 steps of rows)."
    ),
    seed: int = typer.Option(0, min=0, help="Seed of weights and order."),
    folder: Path | None = typer.Option(None, help="Folder with the data's Parquet files."),
    label: str = label_option(),
    site: str = site_option(),
    schema: str = schema_option(),
) -> None:
    """Train a small classifier on real images or rows, to judge generated ones.

    DATA is the name of a data set, or the file of a table.

    Example: `fedeas generator judge fashion_mnist --out judge.safetensors`
    """
    from fedeas.data.kinds import find_kind
    from fedeas.files import check_writable
    from fedeas.generators.generator import heavy

    check_writable(out)
    judges = heavy("fedeas.generators.judge", "training a judge", "diffusion")
    loaded = open_data(data, folder, label, site, schema)
    with progress("epochs") as update:
        judge = judges.Judge.train(loaded, epochs, seed, update)
    judge.save(out)
    noun = find_kind(loaded.kind).noun
    typer.echo(f"accuracy         {show.percent(judge.accuracy)} of the test {noun}s")
    typer.echo(f"judge            {out}")


@generator.command("bench")
def bench_generator(
    spec: str = spec_argument(),
    batch: int = typer.Option(64, min=1, help="Batch size of the generator."),
    repeats: int = typer.Option(3, min=1, help="Batches to time, after one warm-up batch."),
    out: Path | None = typer.Option(
        None, help="Output file, for `fedeas plan --cost FILE` (.json)."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Measure the seconds per sample; `fedeas plan --cost` turns them into hours.

    GENERATOR is 'diffusion(model=FOLDER)', 'gaussian(model=FOLDER)', 'turbo(model=FOLDER,
    data=NAME)', 'pool(data=NAME)', an installed generator, or package.module:Name.

    Example: `fedeas generator bench 'diffusion(model=fashion_mnist)' --out cost.json`
    """
    import statistics

    import numpy as np

    from fedeas.files import atomic_write, check_writable
    from fedeas.generators.generator import make_generator

    if out is not None:
        check_writable(out)
    made = make_generator(spec)
    labels = np.arange(batch) % len(known_classes(made))
    times = []
    with progress("batches") as update:
        for repeat in range(repeats + 1):
            seeds = np.arange(batch, dtype=np.uint64) + np.uint64(repeat * batch)
            begun = time.perf_counter()
            made.sample(labels, seeds)
            times.append(time.perf_counter() - begun)
            update(repeat + 1, repeats + 1)
    per_sample = statistics.median(times[1:]) / batch
    found = {
        "seconds_per_sample": per_sample,
        "batch": batch,
        "repeats": repeats,
        "generator": made.fingerprint,
    }
    if out is not None:
        with atomic_write(out) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if as_json:
        show.print_json(found)
        return
    typer.echo(f"{per_sample:.4g} s per sample, {1 / per_sample:,.1f} samples/s at batch {batch}")
    typer.echo(f"use it           fedeas plan COUNTS --cost {out or f'{per_sample:.4g}s'}")
