"""`fedeas generator sample`: draw samples of every class, and say how good they are."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.cli.generator_data import (
    known_classes,
    label_option,
    open_data,
    schema_option,
    site_option,
    spec_argument,
    table_options,
)
from fedeas.errors import InputError
from fedeas.progress import progress

if TYPE_CHECKING:
    from fedeas.data import Dataset, Schema, TableOptions
    from fedeas.generators import Generator
    from fedeas.generators.measure import Drawn, Quality, Real

_EACH = 10  # images of a class
_MOST_ROWS = 20_000
_MOST_COLUMNS = 10  # that are shown


def sample_generator(
    spec: str = spec_argument(" Or the folder of a run or a cache: its samples are measured."),
    out: Path | None = typer.Option(
        None, help="Write a grid of images, one row per class (.png), or rows of a table (.csv)."
    ),
    each: int | None = typer.Option(
        None, min=1, help="Samples per class (default: 10 images; rows as the training rows are)."
    ),
    seed: int = typer.Option(0, min=0, help="Seed of the samples."),
    batch: int = typer.Option(64, min=1, help="Batch size of the generator."),
    judge: Path | None = typer.Option(None, help="A judge: do samples show the requested class?"),
    data: str | None = typer.Option(
        None, help="Real images or rows to compare with: memorisation, columns, Fréchet distance."
    ),
    folder: Path | None = typer.Option(None, help="Folder with the data's Parquet files."),
    label: str = label_option(),
    site: str = site_option(),
    schema: str = schema_option(),
    accuracy: bool = typer.Option(
        False, "--accuracy", help="Train on the samples alone, and test on real ones."
    ),
    report: Path | None = typer.Option(
        None, metavar="FOLDER", help="Write a page with pictures about it (needs fedeas[plot])."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Draw samples of every class and measure their quality.

    GENERATOR is 'diffusion(model=FOLDER)', 'gaussian(model=FOLDER)', 'turbo(model=FOLDER,
    data=NAME)', 'pool(data=NAME)', an installed generator, or package.module:Name; with --data also
    'gaussian', 'copies', 'smote'. The folder of a run or of a cache has samples already.

    Example: `fedeas generator sample 'diffusion(model=fashion_mnist)' --out grid.png`
    """
    from fedeas.files import check_writable
    from fedeas.generators.generator import heavy
    from fedeas.generators.measure import measure

    if out is not None:
        check_writable(out)
    options = table_options(label, site, schema)
    real_data = None if data is None else open_data(data, folder, label, site, schema)
    source = _from_folder(spec, real_data)
    if source is None:
        offered = (data, folder, options)
        source = _drawn_by(spec, real_data, offered, each, seed, batch)
    if source.real is None and (accuracy or report is not None):
        raise InputError("nothing to compare with", fix="give --data")
    judged = None
    if judge is not None:
        judged = heavy("fedeas.generators.judge", "a judge", "diffusion").Judge.load(judge)
    if out is not None:
        _write(out, source)
    noun = "image" if source.schema is None else "row"
    found = measure(source.drawn, source.classes, judged, source.real, accuracy=accuracy, noun=noun)
    if report is not None and source.real is not None:
        _write_report(report, source, source.real, found)
    if as_json:
        show.print_json({"generator": source.name, **found.to_dict()})
        return
    size = show.count_of(found.samples, found.noun)
    typer.echo(f"{size} of {len(source.classes)} classes" + (f" in {out}" if out else ""))
    show_quality(found)


@dataclass(frozen=True, eq=False)
class _Source:
    """Samples to measure, and what they are compared with."""

    drawn: "Drawn"
    classes: tuple[str, ...]
    real: "Real | None"
    name: str  # the generator's fingerprint
    spec: str
    schema: "Schema | None" = None


def _from_folder(spec: str, data: "Dataset | None") -> _Source | None:
    """Read the samples of a run or of a cache, if the spec is the folder of one."""
    from fedeas.cache.index import FILE

    path = Path(spec)
    if (path / "result.json").is_file():
        from fedeas.experiments.synthetic import run_samples

        if data is not None:
            raise InputError("a run names its data itself", fix="leave --data out")
        found = run_samples(path)
        own = found.real.data
        return _Source(found.drawn, own.classes, found.real, found.generator, spec, own.schema)
    if not (path / FILE).is_file():
        return None
    from fedeas.cache import Cache
    from fedeas.cache.export import all_samples
    from fedeas.generators.measure import Drawn, Real

    if data is None:
        raise InputError("a cache does not name its classes", fix="give --data")
    cache = Cache.at(path.resolve())
    samples, labels = all_samples(cache)
    if labels.max() >= len(data.classes):
        raise InputError(
            f"{path} has samples of other classes", got=f"class {labels.max()}",
            allowed=f"the {len(data.classes)} classes of {data.name}",
        )  # fmt: skip
    drawn, name = Drawn(samples, labels), str(cache.about["generator"])
    return _Source(drawn, data.classes, Real.of(data), name, spec, data.schema)


def _drawn_by(
    spec: str,
    data: "Dataset | None",
    offered: "tuple[str | None, Path | None, TableOptions]",
    each: int | None,
    seed: int,
    batch: int,
) -> _Source:
    """Draw samples: as many rows as a table has for training, or images of every class."""
    import numpy as np

    from fedeas.generators.generator import check_classes
    from fedeas.generators.measure import Drawn, Real

    made = _open(spec, data, offered)
    classes = data.classes if data is not None else known_classes(made)
    check_classes(classes, made)
    if each is None and data is not None and data.kind == "table":
        labels = np.asarray(data.train_labels)[:: -(-data.train_size // _MOST_ROWS)]
    else:
        labels = np.tile(np.arange(len(classes)), each or _EACH)
    seeds = np.arange(labels.size, dtype=np.uint64) + np.uint64(seed * labels.size)
    batch = max(batch, getattr(made, "least_batch", 0))
    parts = []
    with progress("generating samples") as update:
        for start in range(0, labels.size, batch):
            own = slice(start, start + batch)
            parts.append(made.sample(labels[own], seeds[own]))
            update(min(start + batch, labels.size), labels.size)
    drawn = Drawn(np.concatenate(parts), labels)
    schema = getattr(made, "schema", None) if data is None else data.schema
    real = None if data is None else Real.of(data)
    return _Source(drawn, classes, real, made.fingerprint, spec, schema)


def _open(
    spec: str, data: "Dataset | None", offered: "tuple[str | None, Path | None, TableOptions]"
) -> "Generator":
    """Open a generator; one that works on a client's own samples gets all training samples."""
    from fedeas.generators import make_generator, own_sample_generator
    from fedeas.generators.own_samples import OfOwnSamples
    from fedeas.specs import parse

    own = own_sample_generator(spec)
    if own is not None:
        if data is None:
            raise InputError(f"{spec} works on real samples", fix="give --data")
        return OfOwnSamples.of_training(own, data)
    if "data" in parse(spec, "generator")[1]:  # a folder of other data would not fit
        return make_generator(spec)
    return make_generator(spec, **dict(zip(("data", "folder", "table"), offered, strict=True)))


def _write(out: Path, source: _Source) -> None:
    """Write rows as text, or the first images of every class as a picture."""
    from fedeas.files import atomic_write

    drawn = source.drawn
    if source.schema is None:
        from fedeas.report.samples import first_of_classes, save_grid

        save_grid(
            first_of_classes(drawn.samples, drawn.labels, source.classes), source.classes, out
        )
        return
    if out.suffix.lower() != ".csv":
        raise InputError("rows are written as text", got=out.name, allowed="a file ending in .csv")
    names = [[source.classes[label]] for label in drawn.labels.tolist()]
    lines = (a + b for a, b in zip(names, source.schema.words(drawn.samples), strict=True))
    with atomic_write(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["class", *source.schema.names])
        writer.writerows(lines)


def _write_report(folder: Path, source: _Source, real: "Real", found: "Quality") -> None:
    from fedeas.report.page import Section, write_report
    from fedeas.report.quality import quality_parts

    parts = quality_parts("quality", found, source.drawn, real)
    section = Section(show.shortened(source.spec, 60), parts)
    page = write_report(folder, f"Are the synthetic {found.noun}s any good?", [section], ())
    show.note(f"wrote {page}")


def show_quality(found: "Quality") -> None:
    """Print what was measured."""
    if found.agreement is not None:
        _show_agreement(found)
    if found.frechet_distance is not None:
        typer.echo(f"Fréchet distance {found.frechet_distance:.2f} in the judge's features")
    if found.accuracy_on_real is not None and found.accuracy_of_real is not None:
        typer.echo(
            f"accuracy on real {show.percent(found.accuracy_on_real)} of the test {found.noun}s, "
            f"trained on these {found.noun}s alone; {show.percent(found.accuracy_of_real)} on as "
            "many real ones"
        )
    near = found.memorisation
    if near is not None:
        typer.echo(
            f"memorisation     {show.percent(near.share)} are closer to a training {found.noun} "
            f"than all but {show.percent(near.expected)} of unseen real {found.noun}s"
            + (": they repeat training data" if near.suspected else "")
        )
        unit = "(0 is a copy, 255 the opposite)" if found.columns is None else "(0 is a copy)"
        digits = 1 if found.columns is None else 3
        typer.echo(
            f"                 median distance {near.median:.{digits}f}, of unseen real "
            f"{found.noun}s {near.real_median:.{digits}f} {unit}"
        )
    if found.columns is not None:
        _show_columns(found)


def _show_agreement(found: "Quality") -> None:
    accuracy = show.percent(found.judge_accuracy or 0.0)
    real = [("real", True)] if found.real_agreement else []
    table = show.new_table(
        f"Agreement with the judge (its accuracy on real test {found.noun}s: {accuracy})",
        ("requested class", False), ("agreement", True), *real, ("", False),
    )  # fmt: skip
    for name, share in (found.agreement or {}).items():
        known = (found.real_agreement or {}).get(name)
        beside = ["" if known is None else show.percent(known)] if real else []
        table.add_row(name, show.percent(share), *beside, show.bar(share))
    table.add_row("mean", show.percent(found.agreement_mean or 0.0), *("" for _ in real), "")
    show.print_table(table)


def _show_columns(found: "Quality") -> None:
    columns = (found.columns or ())[:_MOST_COLUMNS]
    gaps = any(one.gaps or one.real_gaps for one in columns)
    table = show.new_table(
        "Columns, the most different first (0: alike, 1: nothing in common)",
        ("column", False), ("distance", True), ("of real rows", True),
        *((("gaps", True), ("real gaps", True)) if gaps else ()), ("", False),
    )  # fmt: skip
    for one in columns:
        beside = (show.percent(one.gaps), show.percent(one.real_gaps)) if gaps else ()
        table.add_row(
            one.name, f"{one.measure} {one.distance:.3f}", f"{one.real_distance:.3f}", *beside,
            show.bar(one.distance),
        )  # fmt: skip
    show.print_table(table)
    if more := len(found.columns or ()) - len(columns):
        typer.echo(f"{more} more {'columns differ' if more > 1 else 'column differs'} less")
