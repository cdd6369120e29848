"""`fedeas run`: train a federation from a config."""

from pathlib import Path
from typing import Any

import typer

from fedeas.cli import show
from fedeas.progress import Update, progress


def run(
    config_file: Path = typer.Argument(..., metavar="CONFIG", help="Config of the run (.toml)."),
    out: Path | None = typer.Option(None, help="Output folder (default runs/NAME)."),
    grid: str | None = typer.Option(None, help="'inline' or 'ray', instead of the config's."),
    device: str | None = typer.Option(None, help="auto, cpu, cuda, ..., instead of the config's."),
    track: list[str] | None = typer.Option(
        None, help="Also log to 'tensorboard' or 'mlflow'; may be repeated."
    ),
    allow_other_code: bool = typer.Option(
        False, "--allow-other-code", help="Resume a run started by another version."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Train a federation, with or without synthetic samples; run again to resume.

    CONFIG is a TOML file. The run's folder holds its config, partition, plan, log and result.

    Example: `fedeas run examples/cifar10.toml --out runs/cifar10`
    """
    from fedeas.generators.generator import heavy
    from fedeas.settings.config import read_config

    runs = heavy("fedeas.experiments.run", "federated training", "train")
    config = read_config(config_file)
    changed = {k: v for k, v in (("grid", grid), ("device", device)) if v is not None}
    config = config.replace(**changed)
    folder = out or Path("runs") / config_file.stem
    with progress(folder.name) as update:
        reporter = _Reporter(update, config.federated.rounds)
        result = runs.run(
            config, folder, show.note, reporter, track or (), reporter.made, allow_other_code
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
    typer.echo(f"generated        {result['generated']:,} samples")
    typer.echo(f"folder           {folder}")
    if len(result.get("codes", ())) > 1:
        show.note(f"{len(result['codes'])} versions of the code took part in this run")


class _Reporter:
    """Shows the round, the accuracy and the seconds per round."""

    def __init__(self, update: Update, rounds: int) -> None:
        self._update, self._rounds = update, rounds

    def __call__(self, line: dict[str, Any]) -> None:
        accuracy = f"accuracy {show.percent(line['accuracy'])}, " if "accuracy" in line else ""
        text = f"rounds, {accuracy}{line['seconds']:.1f} s per round"
        self._update(line["round"], self._rounds, text)

    def made(self, done: int, total: int) -> None:
        """Show the samples generated before the first round."""
        self._update(done, total, "samples generated")
