"""`fedeas generator sample`: draw samples of every class, and say how good they are."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas._internal.progress import progress
from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.data import Dataset, Schema, TableOptions
    from fedeas.generators import Generator
    from fedeas.train.diffusion.judge import Judge
    from fedeas.train.diffusion.quality import Drawn, Quality

_EACH = 10  # images of a class
_MOST_ROWS = 20_000

# Options that the commands about generators share
SPEC: str = typer.Argument(..., metavar="GENERATOR", hidden=True)
FOLDER: Path | None = typer.Option(None, help="Folder with the data's Parquet files.")
LABEL: str = typer.Option("label", help="Label column (tables only).")
SITE: str = typer.Option("", help="Site column, not learnt from (tables only).")
SCHEMA: str = typer.Option(
    "", metavar="FILE", help="Schema of the columns, as a run wrote it (.json; tables only)."
)


def sample_generator(
    spec: str = SPEC,
    out: Path | None = typer.Option(
        None, help="Write a grid of images, one row per class (.png), or rows of a table (.csv)."
    ),
    each: int | None = typer.Option(
        None, min=1, help="Samples per class (default: 10 images; rows as the training rows are)."
    ),
    seed: int = typer.Option(42, min=0, help="Seed of the samples."),
    batch: int = typer.Option(64, min=1, help="Batch size of the generator."),
    judge: str | None = typer.Option(
        None,
        metavar="DATA",
        help="Do samples show the requested class? By a classifier trained on this data set, "
        "once, or by a private one in this folder.",
    ),
    data: str | None = typer.Option(
        None, help="Real images or rows to compare with: do samples repeat training samples?"
    ),
    folder: Path | None = FOLDER,
    label: str = LABEL,
    site: str = SITE,
    schema: str = SCHEMA,
    accuracy: bool = typer.Option(
        False, "--accuracy", help="Train on the samples alone, and test on real ones."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Draw samples of every class and measure their quality.

    GENERATOR is 'private(model=FOLDER)', 'diffusion(model=FOLDER)', 'gaussian(model=FOLDER)',
    'turbo(model=FOLDER, data=NAME)', 'pool(data=NAME)', an installed generator, or
    package.module:Name; with --data also 'gaussian', 'copies', 'smote'.

    Example: `fedeas generator sample 'diffusion(model=fashion_mnist)' --out grid.png`
    """
    from fedeas._internal.files import check_writable
    from fedeas.data import TableOptions, open_dataset
    from fedeas.generators.card import CARD
    from fedeas.train.diffusion.quality import Real, measure

    if data is None and accuracy:
        raise InputError("nothing to compare with", fix="give --data")
    if out is not None:
        check_writable(out)
    options = TableOptions(label=label, site=site, schema=schema)
    real_data = None if data is None else open_dataset(data, folder, options)
    source = SampleSource.open(spec, real_data, (data, folder, options))
    if out is not None:
        source.check_suffix(out)
    classifier = None
    if judge is not None:
        path = Path(judge)
        in_generator = path.name == "classifier" and (path.parent / CARD).exists()
        if in_generator or (path / CARD).exists():
            classifier = _open_private_judge(judge, source)
        else:
            judged = real_data if judge == data else None
            if judged is None:
                judged = open_dataset(judge, folder, options)
            source.check_judge(judged, judged.samples.shape[1:], judged.schema)
            classifier = open_judge(judged)
    drawn = source.draw(each, seed, batch)
    if out is not None:
        source.write(drawn, out)
    real = None if real_data is None else Real.of(real_data)
    quality = measure(drawn, source.classes, classifier, real, accuracy=accuracy, noun=source.noun)
    if as_json:
        show.print_json({"generator": source.generator.fingerprint, **quality.to_dict()})
        return
    size = show.count_of(quality.samples, quality.noun)
    typer.echo(f"{size} of {len(source.classes)} classes" + (f" in {out}" if out else ""))
    _show_quality(quality)


def open_judge(data: "Dataset") -> "Judge":
    """Open the classifier that judges samples like these, training it on first use."""
    from fedeas._internal.optional import import_extra

    module = import_extra("fedeas.train.diffusion.judge", "a judge", "generate")
    with progress("training a judge: epochs") as update:
        judge: Judge = module.Judge.of(data, progress=update)
    return judge


def _open_private_judge(folder: str, source: "SampleSource") -> "Judge":
    """Open a classifier that was made from noisy sums, if it knows such samples."""
    from fedeas._internal.optional import import_extra

    module = import_extra("fedeas.private.generator.classifier", "a private judge", "private")
    classifier = module.PrivateClassifier.load(folder)
    source.check_judge(classifier, classifier.card.shape, classifier.schema)
    judge: Judge = classifier
    return judge


@dataclass(frozen=True, eq=False)
class SampleSource:
    """A generator, the classes to draw, and the table whose rows they are like, if any."""

    generator: "Generator"
    classes: tuple[str, ...]
    schema: "Schema | None"  # None: images
    data: "Dataset | None"

    @classmethod
    def open(
        cls,
        spec: str,
        data: "Dataset | None",
        offered: "tuple[str | None, Path | None, TableOptions]",
    ) -> "SampleSource":
        """Open a generator; one that works on a client's own samples gets all training samples."""
        from fedeas._internal.specs import parse
        from fedeas.generators import check_fits, find_resampler, make_generator
        from fedeas.generators.resampler import BoundResampler

        generator: Generator
        if (resampler := find_resampler(spec, by_owner=True)) is not None:
            if data is None:
                raise InputError(f"{spec} works on real samples", fix="give --data")
            generator = BoundResampler.of_training(resampler, data)
        elif "data" in parse(spec, "generator")[1]:  # a folder of other data would not fit
            generator = make_generator(spec)
        else:
            settings = dict(zip(("data", "folder", "table"), offered, strict=True))
            generator = make_generator(spec, **settings)
        if data is None:
            names = tuple(getattr(generator, "classes", None) or ())
            if not names:
                raise InputError(
                    "the generator does not say which classes it knows",
                    fix="give it an attribute `classes` with their names",
                )
            return cls(generator, names, getattr(generator, "schema", None), None)
        check_fits(data, generator)
        return cls(generator, data.classes, data.schema, data)

    def check_judge(self, judge: object, shape: tuple[int, ...], schema: "Schema | None") -> None:
        """Refuse a judge of other samples, before it is trained or samples are drawn."""
        from fedeas.data.schema import check_columns
        from fedeas.generators import check_classes

        check_classes(self.classes, judge, ("samples", "judge"))
        card = getattr(self.generator, "card", None)
        own = getattr(card, "shape", shape) if self.data is None else self.data.samples.shape[1:]
        if tuple(own) != tuple(shape):
            raise InputError(
                "the judge is for samples of another shape", got=tuple(own), allowed=str(shape)
            )
        if schema is not None and self.schema is not None:
            check_columns(self.schema, schema, ("samples", "judge"))

    @property
    def noun(self) -> str:
        """What one sample is called."""
        return "image" if self.schema is None else "row"

    def draw(self, each: int | None, seed: int, batch: int = 64) -> "Drawn":
        """Draw `each` samples of a class; by default ten images, or rows as the table has."""
        import numpy as np

        from fedeas.train.diffusion.quality import Drawn

        if each is None and self.data is not None and self.schema is not None:
            labels = np.asarray(self.data.train_labels)[:: -(-self.data.train_size // _MOST_ROWS)]
        else:
            labels = np.tile(np.arange(len(self.classes)), each or _EACH)
        seeds = np.arange(labels.size, dtype=np.uint64) + np.uint64(seed * labels.size)
        batch = max(batch, getattr(self.generator, "least_batch", 0))
        parts = []
        with progress("generating samples") as update:
            for start in range(0, labels.size, batch):
                part = slice(start, start + batch)
                parts.append(self.generator.sample(labels[part], seeds[part]))
                update(min(start + batch, labels.size), labels.size)
        return Drawn(np.concatenate(parts), labels)

    def check_suffix(self, out: Path) -> None:
        """Refuse a file whose name says that it is of another kind than these samples."""
        suffix = ".png" if self.schema is None else ".csv"
        if out.suffix.lower() != suffix:
            raise InputError(
                f"{self.noun}s are written as {suffix[1:].upper()}",
                got=out.name,
                allowed=f"a file ending in {suffix}",
            )

    def write(self, drawn: "Drawn", out: Path) -> None:
        """Write rows as text, or the first images of every class as a picture."""
        from fedeas._internal.files import atomic_write

        if self.schema is None:
            from fedeas.plots.samples import first_of_classes, save_grid

            grid = first_of_classes(drawn.samples, drawn.labels, self.classes)
            save_grid(grid, self.classes, out)
            return
        with atomic_write(out) as path, path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["class", *self.schema.names])
            words = self.schema.words(drawn.samples)
            for label, line in zip(drawn.labels.tolist(), words, strict=True):
                writer.writerow([self.classes[label], *line])


def _show_quality(quality: "Quality") -> None:
    """Print what was measured."""
    noun, near = quality.noun, quality.memorisation
    if quality.agreement is not None:
        title, real = "Agreement with the judge", quality.real_agreement
        if quality.judge_accuracy is not None:
            accuracy = show.percent(quality.judge_accuracy)
            title += f" (its accuracy on real test {noun}s: {accuracy})"
        of_real = [] if real is None else [("real", True)]
        columns = [("requested class", False), ("agreement", True), *of_real, ("", False)]
        table = show.new_table(title, *columns)
        for name, share in quality.agreement.items():
            shares = [share] if real is None else [share, real.get(name)]
            table.add_row(name, *map(show.percent, shares), show.bar(share))
        table.add_row("mean", show.percent(quality.agreement_mean))
        show.print_table(table)
    if quality.accuracy_on_real is not None:
        synthetic, real_ones = quality.accuracy_on_real, quality.accuracy_of_real
        typer.echo(
            f"accuracy on real {show.percent(synthetic)} of the test {noun}s, trained on these "
            f"{noun}s alone; {show.percent(real_ones)} on as many real ones"
        )
    if near is not None:
        typer.echo(
            f"memorisation     {show.percent(near.share)} are closer to a training {noun} than all "
            f"but {show.percent(near.expected)} of unseen real {noun}s"
            + (": they repeat training data" if near.suspected else "")
        )
        typer.echo(
            f"                 median distance {near.median:.3g}, of unseen real {noun}s "
            f"{near.real_median:.3g} (0 is a copy)"
        )
