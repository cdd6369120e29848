"""What a report says about the quality of synthetic samples, of any kind."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.optional import import_extra
from fedeas.errors import FedeasError
from fedeas.lab.report.samples import first_of_each, run_samples
from fedeas.lab.results import FinishedRun
from fedeas.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    WIDTH,
    caption,
    picture,
    shortened,
)
from fedeas.plots.page import Grid, Part, Picture, Section
from fedeas.train.diffusion.quality import Drawn, Quality, Real, measure

if TYPE_CHECKING:
    from fedeas.train.diffusion.judge import Judge


def quality_section(name: str, runs: Sequence[FinishedRun]) -> Section:
    """Measure what the generators of runs made, and return what a report says about it.

    A judge and two classifiers are trained for that, which takes seconds for rows and minutes for
    images. What cannot be measured, because the data or the samples are gone, is said.
    """
    section = Section("Are the synthetic samples any good?", group=name)
    generating = [run for run in runs if run.path is not None and run.result["generated"]]
    judges: dict[str, Judge] = {}
    for n, run in enumerate(first_of_each(generating, "generator_hash")):
        if run.path is None:
            continue
        try:
            samples = run_samples(run.path)
        except FedeasError as error:
            section.parts.append(f"{run.entry.folder} was not measured: {error}")
            continue
        judge = _judge(judges, samples.real)
        names = samples.real.data.classes
        measured = measure(samples.drawn, names, judge, samples.real, accuracy=True)
        size = f"{measured.samples:,} {measured.noun}s"
        section.parts.append(f"{size} of {run.result['data']}, drawn by {samples.generator}:")
        section.parts.extend(
            quality_parts(f"{name}-quality-{n}", measured, samples.drawn, samples.real)
        )
    return section


def _judge(judges: "dict[str, Judge]", real: Real) -> "Judge":
    """Train a judge on what the clients of a run have, once for every data set."""
    key = f"{real.data.fingerprint}/{hash(real.training.tobytes())}"
    if key not in judges:
        module = import_extra("fedeas.train.diffusion.judge", "a judge", "train")
        judges[key] = module.Judge.train(real.data, training=real.training, unseen=real.unseen)
    return judges[key]


def quality_parts(name: str, quality: Quality, drawn: Drawn, real: Real) -> list[Part]:
    """Return the numbers and the pictures about generated samples."""
    noun = quality.noun
    parts: list[Part] = [Grid(("", "synthetic", f"real {noun}s"), _facts(quality), facts=True)]
    if quality.memorisation is not None and quality.memorisation.suspected:
        parts.append(
            f"These {noun}s are closer to training {noun}s than new real ones: they repeat them."
        )
    parts.append(
        Picture(
            f"{name}-projection",
            projection_picture(drawn, real, noun),
            f"Real and synthetic {noun}s in two principal components, side by side.",
        )
    )
    if quality.agreement is not None:
        parts += ["Share that a judge assigns to the requested class, %:", _by_class(quality)]
    return parts


def _facts(quality: Quality) -> list[list[str]]:
    """Return a line for everything that was measured, synthetic beside real."""
    noun, rows = quality.noun, []
    if quality.agreement_mean is not None:
        real = quality.real_agreement or {}
        same = [real[name] for name in quality.agreement or () if name in real]
        beside = _percent(float(np.mean(same))) if same else ""
        rows.append(["a judge sees the requested class", _percent(quality.agreement_mean), beside])
    if quality.accuracy_on_real is not None and quality.accuracy_of_real is not None:
        accuracies = _percent(quality.accuracy_on_real), _percent(quality.accuracy_of_real)
        rows.append([f"accuracy on unseen real {noun}s, trained on these alone", *accuracies])
    near = quality.memorisation
    if near is not None:
        far = f"at most {near.threshold:.3g} from" if near.threshold else "equal to"
        rows.append(
            [f"memorised? {far} a training {noun}", _percent(near.share), _percent(near.expected)]
        )
        medians = f"{near.median:.3g}", f"{near.real_median:.3g}"
        rows.append([f"median distance to the nearest training {noun}", *medians])
    return rows


def _by_class(quality: Quality) -> Grid:
    names = list(quality.agreement or {})
    lines, shades = [], []
    for name, shares in (
        ("synthetic", quality.agreement),
        ("real, unseen", quality.real_agreement),
    ):
        if shares is not None:
            values = [shares.get(one) for one in names]
            lines.append([name, *("" if one is None else f"{100 * one:.0f}" for one in values)])
            shades.append([None, *values])
    return Grid(["", *names], lines, shades)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# Figures


Floats = NDArray[np.float64]
_FITTED, _DOTS = 1000, 1500  # samples that components are found from; dots in a projection
_MARKS = ((BLUE, "o"), (VERMILION, "^"), (GREEN, "s"), (PURPLE, "D"), (ORANGE, "v"))


def principal_components(vectors: Floats) -> tuple[Floats, Floats, float]:
    """Return the mean, the first two principal components and their share of the variance.

    >>> mean, axes, share = principal_components(np.array([[0.0, 0], [2, 2], [4, 4]]))
    >>> mean.tolist(), np.abs(axes[0]).round(3).tolist(), round(share, 3)
    ([2.0, 2.0], [0.707, 0.707], 1.0)
    """
    mean: Floats = vectors.mean(axis=0, dtype=np.float64)
    _, sizes, axes = np.linalg.svd(vectors - mean, full_matrices=False)
    whole = float((sizes**2).sum())
    axes = axes[:2]
    # The sign of a component is arbitrary: the same picture on every machine.
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, np.newaxis]
    return mean, axes, float((sizes[:2] ** 2).sum()) / whole if whole > 0 else 1.0


def projection_picture(drawn: Drawn, real: Real, noun: str, kind: str = "svg") -> bytes:
    """Draw real and synthetic samples in the same two principal components, side by side."""
    vectors = real.vectors()
    fitted = real.like(drawn.labels, real.training, _FITTED).samples
    mean, axes_of, share = principal_components(np.asarray(vectors(fitted), np.float64))
    parts = real.like(drawn.labels, real.unseen, _DOTS), drawn.some(_DOTS)
    points = [(vectors(part.samples) - mean) @ axes_of.T for part in parts]
    if points[0].shape[1] < 2:  # a table of one column
        points = [np.column_stack([at, np.zeros(len(at))]) for at in points]
    counts = np.bincount(drawn.labels, minlength=len(real.data.classes))
    most = min(len(_MARKS), int((counts > 0).sum()))
    marked = np.sort(np.argsort(-counts, kind="stable")[:most])

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        names = f"Unseen real {noun}s", f"Synthetic {noun}s"
        for axes, part, at, name in zip((left, right), parts, points, names, strict=True):
            others = ~np.isin(part.labels, marked)
            axes.plot(*at[others].T, ".", color=GREY, ms=2, alpha=0.5, rasterized=True)
            for label, (colour, marker) in zip(marked.tolist(), _MARKS, strict=False):
                of_class = at[part.labels == label]
                style = {"color": colour, "ms": 2.6, "alpha": 0.6, "mew": 0}
                named = shortened(real.data.classes[label])
                axes.plot(*of_class.T, marker, ls="", label=named, rasterized=True, **style)
            axes.set_title(name, size=10)
            axes.set_xticks([])
            axes.set_yticks([])
        low, high = np.quantile(np.concatenate(points), [0.002, 0.998], axis=0)
        edge = 0.05 * (high - low) + 1e-9
        left.set_xlim(low[0] - edge[0], high[0] + edge[0])
        left.set_ylim(low[1] - edge[1], high[1] + edge[1])
        handles, labels = left.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper left", ncols=len(marked), fontsize=9,
            markerscale=2.5, handletextpad=0.2, columnspacing=1.0,
        )  # fmt: skip
        rest = int((counts > 0).sum()) - len(marked)
        grey = f"; {rest} other class{'es' if rest > 1 else ''} in grey" if rest else ""
        caption(
            figure,
            f"The first two principal components of real training {noun}s, with {share:.0%} of "
            f"their variance{grey}.",
        )

    return picture(draw, kind, WIDTH, 3.6)
