"""What a report says about the quality of synthetic samples, of any kind."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedeas.errors import FedeasError
from fedeas.experiments.runs import Run
from fedeas.experiments.synthetic import run_samples
from fedeas.generators.generator import heavy
from fedeas.generators.measure import Drawn, Quality, Real, measure
from fedeas.report.folders import first_of_each
from fedeas.report.page import Grid, Part, Picture, Section
from fedeas.report.quality_figures import columns_picture, projection_picture

if TYPE_CHECKING:
    from fedeas.generators.judge import Judge

_MOST_COLUMNS = 12  # that a table lists


def quality_section(name: str, runs: Sequence[Run]) -> Section:
    """Measure what the generators of runs made, and return what a report says about it.

    A judge and two classifiers are trained for that, which takes seconds for rows and minutes for
    images. What cannot be measured, because the data or the samples are gone, is said.
    """
    section = Section("Are the synthetic samples any good?", group=name)
    made = [run for run in runs if run.place is not None and run.result["generated"]]
    judges: dict[str, Judge] = {}
    for n, run in enumerate(first_of_each(made, "generator_hash")):
        if run.place is None:
            continue
        try:
            found = run_samples(run.place)
        except FedeasError as error:
            section.parts.append(f"{run.entry.folder} was not measured: {error}")
            continue
        judge = _judge(judges, found.real)
        names = found.real.data.classes
        measured = measure(found.drawn, names, judge, found.real, accuracy=True, frechet=False)
        size = f"{measured.samples:,} {measured.noun}s"
        section.parts.append(f"{size} of {run.result['data']}, drawn by {found.generator}:")
        section.parts.extend(
            quality_parts(f"{name}-quality-{n}", measured, found.drawn, found.real)
        )
    return section


def _judge(judges: "dict[str, Judge]", real: Real) -> "Judge":
    """Train a judge on what the clients of a run have, once for every data set."""
    known = f"{real.data.fingerprint}/{hash(real.training.tobytes())}"
    if known not in judges:
        module = heavy("fedeas.generators.judge", "a judge", "train")
        judges[known] = module.Judge.train(real.data, training=real.training, unseen=real.unseen)
    return judges[known]


def quality_parts(name: str, found: Quality, drawn: Drawn, real: Real) -> list[Part]:
    """Return the numbers and the pictures about generated samples."""
    noun = found.noun
    parts: list[Part] = [Grid(("", "synthetic", f"real {noun}s"), _facts(found), facts=True)]
    if found.memorisation is not None and found.memorisation.suspected:
        parts.append(
            f"These {noun}s are closer to training {noun}s than new real ones: they repeat them."
        )
    if found.columns is not None and real.data.schema is not None:
        drawing = columns_picture(real.data.schema, drawn, real, found.columns)
        said = ", ".join(f"{one.name} {one.distance:.2f}" for one in found.columns[:6])
        alt = f"The columns that differ most, real and synthetic, with their distances: {said}."
        parts.append(Picture(f"{name}-columns", drawing, alt))
    parts.append(
        Picture(
            f"{name}-projection",
            projection_picture(drawn, real, noun),
            f"Real and synthetic {noun}s in two principal components, side by side.",
        )
    )
    if found.agreement is not None:
        parts += ["Share that a judge assigns to the requested class, %:", _by_class(found)]
    if found.columns is not None:
        parts += [_about_columns(found), _columns(found)]
    return parts


def _facts(found: Quality) -> list[list[str]]:
    """Return a line for everything that was measured, synthetic beside real."""
    noun, rows = found.noun, []
    if found.agreement_mean is not None:
        real = found.real_agreement or {}
        same = [real[name] for name in found.agreement or () if name in real]
        beside = _percent(float(np.mean(same))) if same else ""
        rows.append(["a judge sees the requested class", _percent(found.agreement_mean), beside])
    if found.accuracy_on_real is not None and found.accuracy_of_real is not None:
        accuracies = _percent(found.accuracy_on_real), _percent(found.accuracy_of_real)
        rows.append([f"accuracy on unseen real {noun}s, trained on these alone", *accuracies])
    if found.frechet_distance is not None:
        rows.append(["Fréchet distance", f"{found.frechet_distance:.2f}", ""])
    near = found.memorisation
    if near is not None:
        far = f"at most {near.threshold:.3g} from" if near.threshold else "equal to"
        rows.append(
            [f"memorised? {far} a training {noun}", _percent(near.share), _percent(near.expected)]
        )
        medians = f"{near.median:.3g}", f"{near.real_median:.3g}"
        rows.append([f"median distance to the nearest training {noun}", *medians])
    return rows


def _by_class(found: Quality) -> Grid:
    names = list(found.agreement or {})
    lines, shades = [], []
    for name, shares in (("synthetic", found.agreement), ("real, unseen", found.real_agreement)):
        if shares is not None:
            own = [shares.get(one) for one in names]
            lines.append([name, *("" if one is None else f"{100 * one:.0f}" for one in own)])
            shades.append([None, *own])
    return Grid(["", *names], lines, shades)


def _about_columns(found: Quality) -> str:
    more = len(found.columns or ()) - _MOST_COLUMNS
    left = f" {more} more columns differ less." if more > 0 else ""
    return (
        "Distance of columns from unseen real rows, 0 to 1: Kolmogorov-Smirnov (KS) for numbers, "
        "total variation (TV) for categories. Beside it, that of real training rows: what chance "
        f"alone makes.{left}"
    )


def _columns(found: Quality) -> Grid:
    shown = (found.columns or ())[:_MOST_COLUMNS]
    lines = [[c.name, c.measure, f"{c.distance:.3f}", f"{c.real_distance:.3f}"] for c in shown]
    head = ["column", "measure", "synthetic", "real"]
    if any(c.gaps or c.real_gaps for c in shown):
        head += ["gaps", "real gaps"]
        for line, c in zip(lines, shown, strict=True):
            line += [_percent(c.gaps), _percent(c.real_gaps)]
    return Grid(head, lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
