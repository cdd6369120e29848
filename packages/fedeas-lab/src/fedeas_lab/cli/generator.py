"""`fedeas generator federated` and `fedeas generator report`: what needs configs and reports."""

from pathlib import Path
from typing import Any

import typer

from fedeas._util.progress import progress
from fedeas.cli import show
from fedeas.cli.generator_sample import FOLDER, LABEL, SCHEMA, SITE, SPEC, SampleSource, open_judge


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
    from fedeas._util.optional import import_extra
    from fedeas_lab.config import read_config

    runs = import_extra("fedeas_lab.generator", "federated training", "train")
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


def report_quality(
    spec: str = SPEC,
    data: str = typer.Option(..., help="Real images or rows to compare with."),
    out: Path = typer.Option(..., metavar="FOLDER", help="Write the page and its pictures here."),
    seed: int = typer.Option(42, min=0, help="Seed of the samples."),
    folder: Path | None = FOLDER,
    label: str = LABEL,
    site: str = SITE,
    schema: str = SCHEMA,
) -> None:
    """Write a page about the quality of a generator's samples, with pictures.

    A judge and two classifiers are trained for it. For the samples of runs: `fedeas report
    --quality`.

    Example: `fedeas generator report 'diffusion(model=fashion_mnist)' --data fashion_mnist --out q`
    """
    from fedeas._util.files import make_folder
    from fedeas.data import TableOptions, open_dataset
    from fedeas.generators.quality import Real, measure
    from fedeas.plots.page import Section, write_report
    from fedeas_lab.report.quality import quality_parts

    make_folder(out)
    options = TableOptions(label=label, site=site, schema=schema)
    real_data = open_dataset(data, folder, options)
    source, real = SampleSource.open(spec, real_data, (data, folder, options)), Real.of(real_data)
    drawn = source.draw(None, seed)
    quality = measure(drawn, source.classes, open_judge(real_data), real, accuracy=True)
    parts = quality_parts("quality", quality, drawn, real)
    title = f"Quality of synthetic {quality.noun}s"
    page = write_report(out, title, [Section(show.shortened(spec, 60), parts)])
    show.note(f"wrote {page}")
