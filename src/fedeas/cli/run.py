"""`fedeas run`: train a federation from a config."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedeas._internal.progress import Update, progress
from fedeas._internal.specs import quoted
from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.lab.config import Config


def run(
    config_file: Path = typer.Argument(..., metavar="CONFIG", help="Config of the run (.toml)."),
    out: Path | None = typer.Option(None, help="Output folder (default runs/NAME)."),
    backend: str | None = typer.Option(None, help="'inline' or 'ray', instead of the config's."),
    device: str | None = typer.Option(None, help="auto, cpu, cuda, ..., instead of the config's."),
    start: Path | None = typer.Option(
        None,
        metavar="FOLDER",
        help="Learn from samples of the private generator in this folder first, and draw the "
        "run's private samples from it.",
    ),
    tensorboard: bool = typer.Option(
        False, "--tensorboard", help="Also log rounds for TensorBoard, in the output folder."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Train a federation, with or without synthetic samples; run again to resume.

    CONFIG is a TOML file. The run's folder holds its config, partition, plan, log and result.

    Example: `fedeas run examples/cifar10.toml --out runs/cifar10`
    """
    from fedeas._internal.optional import import_extra
    from fedeas.lab.config import read_config

    experiment = import_extra("fedeas.lab.experiment", "federated training", "train")
    config = read_config(config_file)
    changed = {k: v for k, v in (("backend", backend), ("device", device)) if v is not None}
    config = config.replace(**changed)
    if start is not None:
        config = _begin_from(config, start)
    folder = out or Path("runs") / config_file.stem
    with progress(folder.name) as update:
        result = experiment.run(
            config,
            folder,
            log=show.note,
            on_round=partial(_show_round, update, config.federated.rounds),
            progress=lambda done, total: update(done, total, "samples generated"),
            tensorboard=tensorboard,
        )
    if as_json:
        show.print_json(result)
        return
    last = result["accuracy_last_rounds"]
    typer.echo(
        f"accuracy         {show.percent(result['accuracy'])} after {result['rounds']} rounds"
    )
    label = f"last {last} rounds"
    typer.echo(f"{label:<17}{show.percent(result['accuracy_last'])} on average")
    if "start_made_of" in result:
        typer.echo(f"started from     {result['start_made_of']}")
    asked = f", a quality cut from {result['asked']:,}" if "asked" in result else ""
    typer.echo(f"generated        {result['generated']:,} samples{asked}")
    typer.echo(f"folder           {folder}")


def _begin_from(config: "Config", start: Path) -> "Config":
    """Return a config whose first weights, and private samples, are from a generator's folder."""
    from fedeas.lab.resolve import makes_private

    federated, augment = config.federated, config.augment
    if federated.model.weights:
        raise InputError(
            "the config already sets initial weights",
            got=federated.model.weights,
            fix="leave `weights` out of [federated.model], or drop --start",
        )
    if not start.is_dir():
        raise InputError("--start takes the folder of a private generator", got=str(start))
    if makes_private(augment.generator):
        augment = augment.replace(generator=f"private(model={quoted(str(start))})")
    model = federated.model.replace(weights=str(start))
    return config.replace(federated=federated.replace(model=model), augment=augment)


def _show_round(update: Update, rounds: int, line: dict[str, Any]) -> None:
    """Show the round, the accuracy and the seconds per round."""
    accuracy = f"accuracy {show.percent(line['accuracy'])}, " if "accuracy" in line else ""
    update(line["round"], rounds, f"rounds, {accuracy}{line['seconds']:.1f} s per round")
