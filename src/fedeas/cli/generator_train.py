"""`fedeas generator train`: a diffusion model of images, or `gaussian` of the rows of a table."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas._internal.progress import progress
from fedeas._internal.specs import quoted
from fedeas.cli import show
from fedeas.cli.generator_sample import FOLDER, LABEL, SCHEMA, SITE
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.data import Dataset
    from fedeas.train.diffusion.train import TrainingProgress

_PRESET = "tiny"


def train_generator(
    data: str = typer.Argument(..., metavar="DATA", hidden=True),
    out: Path = typer.Option(..., help="Output folder; run again to resume."),
    preset: str = typer.Option(_PRESET, help="'tiny' for CPUs, 'paper' for GPUs."),
    steps: int | None = typer.Option(None, min=1, help="Training steps instead of the preset's."),
    batch: int | None = typer.Option(None, min=1, help="Batch size instead of the preset's."),
    seed: int = typer.Option(42, min=0, help="Seed of weights, order and noise."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, ..."),
    checkpoint: int = typer.Option(500, min=1, help="Steps between checkpoints."),
    folder: Path | None = FOLDER,
    label: str = LABEL,
    site: str = SITE,
    schema: str = SCHEMA,
) -> None:
    """Train a generator: a diffusion model of images, or `gaussian` of the rows of a table.

    DATA is a data set in FEDEAS_DATA or on the hub, or the file of a table; only its training
    samples are used. If interrupted, run again to resume. On several GPUs: `accelerate launch -m
    fedeas generator train ...`. `fedeas generator federated` trains one in rounds: no image leaves
    its client.

    Example: `fedeas generator train fashion_mnist --out fashion`
    """
    from fedeas._internal.optional import import_extra
    from fedeas.data import TableOptions, open_dataset

    changed = {k: v for k, v in (("steps", steps), ("batch", batch)) if v is not None}
    if preset != _PRESET:  # a wrong name is told before data are read
        import_extra("fedeas.train.diffusion.train", "training a generator", "generate").preset(
            preset
        )
    with progress("decoding") as update:
        options = TableOptions(label=label, site=site, schema=schema)
        loaded = open_dataset(data, folder, options, progress=update)
    show.note(repr(loaded))
    if loaded.kind == "table":
        _fit_gaussian(loaded, out, [f"--{name}" for name in changed])
        return
    training = import_extra("fedeas.train.diffusion.train", "training a generator", "generate")
    settings = replace(training.preset(preset), **changed)
    with progress("training") as update:

        def report(moment: "TrainingProgress") -> None:
            with (out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(moment)) + "\n")
            text = f"steps, loss {moment.loss:.4f}, {moment.images_per_second:.0f} images/s"
            update(moment.step, moment.steps, text)

        model = training.train(loaded, out, settings, seed, device, checkpoint, report)
    typer.echo(f"model            {model}")


def _fit_gaussian(data: "Dataset", out: Path, options: list[str]) -> None:
    """Fit `gaussian` to the training rows of a table, and write its folder."""
    from fedeas.generators.gaussian import gaussian_of_dataset

    if options:
        raise InputError(f"{options[0]} is for images", fix="leave it out: rows are only counted")
    gaussian = gaussian_of_dataset(data)
    gaussian.save(out)
    typer.echo(f"rows             {data.train_size:,} of {len(gaussian.known_classes())} classes")
    typer.echo(f"generator        gaussian(model={quoted(str(out))})")
