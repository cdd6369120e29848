"""`fedeas generator report`: a page about the quality of a generator's samples."""

from pathlib import Path

import typer

from fedeas.cli import show
from fedeas.cli.generator_sample import FOLDER, LABEL, SCHEMA, SITE, SPEC, SampleSource, open_judge


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
    from fedeas._internal.files import make_folder
    from fedeas.data import TableOptions, open_dataset
    from fedeas.lab.report.quality import quality_parts
    from fedeas.plots.page import Section, write_report
    from fedeas.train.diffusion.quality import Real, measure

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
