"""`fedeas generator federated`: a diffusion model trained in rounds."""

from pathlib import Path
from typing import Any

import typer

from fedeas._internal.progress import progress
from fedeas.cli import show


def train_federated(
    config_file: Path = typer.Argument(
        ..., metavar="CONFIG", help="Config of the federation that trains it (.toml)."
    ),
    out: Path = typer.Option(..., help="Output folder; run again to resume."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, ..."),
) -> None:
    """Train a diffusion model in rounds: no image leaves its client.

    The model is `unet(preset=tiny)` or the like.

    Example: `fedeas generator federated config.toml --out fashion`
    """
    from fedeas._internal.optional import import_extra
    from fedeas.lab.config import read_config

    runs = import_extra("fedeas.lab.federated_generator", "federated training", "train")
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
