"""`fedeas generator`: train, sample and benchmark generators."""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedeas.cli import show
from fedeas.errors import InputError
from fedeas.progress import Update, progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedeas.generators.diffusion import Diffusion
    from fedeas.generators.judge import Judge
    from fedeas.generators.train import TrainingProgress

generator = typer.Typer(no_args_is_help=True, help="Train, sample and benchmark generators.")


@generator.command("train")
def train_generator(
    data: str | None = typer.Argument(
        None, help="Name of a data set in FEDEAS_DATA or on the hub."
    ),
    out: Path = typer.Option(..., help="Output folder; run again to resume."),
    federated: Path | None = typer.Option(
        None, help="Config of a federation that trains it, instead of DATA (.toml)."
    ),
    preset: str = typer.Option("tiny", help="'tiny' for CPUs, 'paper' for GPUs."),
    steps: int | None = typer.Option(None, min=1, help="Training steps instead of the preset's."),
    batch: int | None = typer.Option(None, min=1, help="Batch size instead of the preset's."),
    seed: int = typer.Option(0, min=0, help="Seed of weights, order and noise."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, ..."),
    checkpoint: int = typer.Option(500, min=1, help="Steps between checkpoints and sample grids."),
    grids: bool = typer.Option(True, "--grids/--no-grids", help="Draw images at checkpoints."),
    folder: Path | None = typer.Option(None, help="Folder with the data's Parquet files."),
) -> None:
    """Train a class-conditional diffusion model on the official training images.

    DATA is the name of a data set. If interrupted, run again to resume. On several GPUs:
    `accelerate launch -m fedeas generator train ...`. With --federated, clients train it in rounds,
    as the config says, and no image leaves its client.

    Example: `fedeas generator train fashion_mnist --out fashion`
    """
    from fedeas.data import load_images
    from fedeas.generators.generator import heavy

    if federated is not None:
        given = {"DATA": data, "--steps": steps, "--batch": batch, "--folder": folder}
        _train_federated(federated, out, device, [k for k, v in given.items() if v is not None])
        return
    if data is None:
        raise InputError("no data to train on", fix="name a data set, or give --federated CONFIG")
    training = heavy("fedeas.generators.train", "training a generator", "diffusion")
    settings = training.preset(preset)
    changed = {k: v for k, v in (("steps", steps), ("batch", batch)) if v is not None}
    with progress("decoding") as update:
        loaded = load_images(data, folder, progress=update)
    show.note(repr(loaded))
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
        text = f"loss {moment.loss:.4f}, {moment.images_per_second:.0f} images/s"
        self._update(moment.step, moment.steps, text)

    def look(self, step: int, generator: "Diffusion") -> None:
        from fedeas.report.samples import class_grid, save_grid

        pictures = self._out / "grids"
        pictures.mkdir(exist_ok=True)
        grid = class_grid(generator, len(generator.classes), each=10)
        save_grid(grid, generator.classes, pictures / f"{step:07d}.png")


def _spec() -> str:
    argument: str = typer.Argument(
        ..., metavar="GENERATOR", help="'diffusion(model=FOLDER)', 'pool(data=NAME)', ..."
    )
    return argument


@generator.command("judge")
def train_judge(
    data: str = typer.Argument(..., help="Name of a data set in FEDEAS_DATA or on the hub."),
    out: Path = typer.Option(..., help="Output file (.safetensors)."),
    epochs: int = typer.Option(6, min=1, help="Training epochs."),
    seed: int = typer.Option(0, min=0, help="Seed of weights and order."),
    folder: Path | None = typer.Option(None, help="Folder with the data's Parquet files."),
) -> None:
    """Train a small classifier on real images, to judge generated ones.

    DATA is the name of a data set.

    Example: `fedeas generator judge fashion_mnist --out judge.safetensors`
    """
    from fedeas.data import load_images
    from fedeas.files import check_writable
    from fedeas.generators.generator import heavy

    check_writable(out)
    judges = heavy("fedeas.generators.judge", "training a judge", "diffusion")
    loaded = load_images(data, folder)
    with progress("epochs") as update:
        judge = judges.Judge.train(loaded, epochs, seed, update)
    judge.save(out)
    typer.echo(f"accuracy         {show.percent(judge.accuracy)} of the test images")
    typer.echo(f"judge            {out}")


@generator.command("sample")
def sample_generator(
    spec: str = _spec(),
    out: Path | None = typer.Option(None, help="Write a grid of images, one row per class (.png)."),
    each: int = typer.Option(10, min=1, help="Images per class."),
    seed: int = typer.Option(0, min=0, help="Seed of the images."),
    batch: int = typer.Option(64, min=1, help="Batch size of the generator."),
    judge: Path | None = typer.Option(None, help="A judge: do images show the requested class?"),
    data: str | None = typer.Option(
        None, help="Real images to compare with: Fréchet distance (with a judge), memorisation."
    ),
    folder: Path | None = typer.Option(None, help="Folder with the data's Parquet files."),
    as_json: bool = show.json_option(),
) -> None:
    """Draw images of every class and measure their quality.

    GENERATOR is 'diffusion(model=FOLDER)', 'turbo(model=FOLDER, data=NAME)', 'pool(data=NAME)', an
    installed generator, or package.module:Name.

    Example: `fedeas generator sample 'diffusion(model=fashion_mnist)' --out grid.png`
    """
    import numpy as np

    from fedeas.files import check_writable
    from fedeas.generators.generator import heavy, make_generator

    if out is not None:
        check_writable(out)
    made = make_generator(spec)
    names = _classes(made)
    judged = None
    if judge is not None:
        judged = heavy("fedeas.generators.judge", "a judge", "diffusion").Judge.load(judge)
    labels = np.tile(np.arange(len(names)), each)
    seeds = np.arange(labels.size, dtype=np.uint64) + np.uint64(seed * labels.size)
    parts = []
    with progress("generating samples") as update:
        for start in range(0, labels.size, batch):
            own = slice(start, start + batch)
            parts.append(made.sample(labels[own], seeds[own]))
            update(min(start + batch, labels.size), labels.size)
    images = np.concatenate(parts)
    if out is not None:
        from fedeas.report.samples import save_grid

        shown = min(each, 10)
        ordered = images.reshape(each, len(names), *images.shape[1:])[:shown].swapaxes(0, 1)
        save_grid(ordered, names, out)
    found = _quality(images, labels, names, judged, data, folder)
    if as_json:
        show.print_json({"generator": made.fingerprint, "images": len(images), **found})
        return
    typer.echo(f"{len(images):,} images of {len(names)} classes" + (f" in {out}" if out else ""))
    _show_quality(found)


@generator.command("bench")
def bench_generator(
    spec: str = _spec(),
    batch: int = typer.Option(64, min=1, help="Batch size of the generator."),
    repeats: int = typer.Option(3, min=1, help="Batches to time, after one warm-up batch."),
    out: Path | None = typer.Option(
        None, help="Output file, for `fedeas plan --cost FILE` (.json)."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Measure the seconds per sample; `fedeas plan --cost` turns them into hours.

    GENERATOR is 'diffusion(model=FOLDER)', 'turbo(model=FOLDER, data=NAME)', 'pool(data=NAME)', an
    installed generator, or package.module:Name.

    Example: `fedeas generator bench 'diffusion(model=fashion_mnist)' --out cost.json`
    """
    import statistics

    import numpy as np

    from fedeas.files import atomic_write, check_writable
    from fedeas.generators.generator import make_generator

    if out is not None:
        check_writable(out)
    made = make_generator(spec)
    labels = np.arange(batch) % len(_classes(made))
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
    typer.echo(f"{per_sample:.4g} s per sample, {1 / per_sample:,.1f} images/s at batch {batch}")
    typer.echo(f"use it           fedeas plan COUNTS --cost {out or f'{per_sample:.4g}s'}")


def _classes(made: object) -> tuple[str, ...]:
    names = getattr(made, "classes", None)
    if not names:
        raise InputError(
            "the generator does not say which classes it knows",
            fix="give it an attribute `classes` with their names",
        )
    return tuple(names)


def _quality(
    images: "NDArray[Any]",
    labels: "NDArray[Any]",
    names: tuple[str, ...],
    judge: "Judge | None",
    data: str | None,
    folder: Path | None,
) -> dict[str, Any]:
    """Compute every metric that the given judge and data allow."""
    from fedeas.data import load_images
    from fedeas.generators import quality

    found: dict[str, Any] = {}
    if judge is not None:
        shares = quality.agreement(judge(images), labels, len(names))
        found["agreement"] = dict(zip(names, shares.tolist(), strict=True))
        found["agreement_mean"] = float(shares.mean())
        found["judge_accuracy"] = judge.accuracy
    if data is not None:
        loaded = load_images(data, folder)
        training = loaded.samples[: loaded.train_size]
        unseen = loaded.samples[loaded.train_size :]
        if judge is not None:
            from fedeas.generators.judge import Features

            blocks = (unseen[i : i + 500] for i in range(0, len(unseen), 500))
            drawn = (images[i : i + 500] for i in range(0, len(images), 500))
            found["frechet_distance"] = quality.frechet_distance(blocks, drawn, Features(judge))
        near = quality.memorisation(images, training, unseen[:2000])
        found["memorisation"] = {**asdict(near), "closest": near.closest[:10].tolist()}
    return found


def _show_quality(found: dict[str, Any]) -> None:
    if "agreement" in found:
        accuracy = show.percent(found["judge_accuracy"])
        table = show.new_table(
            f"Agreement with the judge (its accuracy on real test images: {accuracy})",
            ("requested class", False), ("agreement", True), ("", False),
        )  # fmt: skip
        for name, share in found["agreement"].items():
            table.add_row(name, show.percent(share), show.bar(share))
        table.add_row("mean", show.percent(found["agreement_mean"]), "")
        show.print_table(table)
    if "frechet_distance" in found:
        typer.echo(f"Fréchet distance {found['frechet_distance']:.2f} in the judge's features")
    if "memorisation" in found:
        near = found["memorisation"]
        typer.echo(
            f"memorisation     {show.percent(near['share'])} are closer to a training image than "
            f"{show.percent(near['quantile'])} of unseen real images are"
        )
        typer.echo(
            f"                 median distance {near['median']:.1f}, of unseen real images "
            f"{near['real_median']:.1f} (0 is a copy, 255 the opposite)"
        )
