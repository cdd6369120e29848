"""The label report: who has what and what would help, on one page for people who do not program.

Small counts are withheld: a count from 1 to threshold - 1 is shown as "<10". All else on the page
is computed from a table in which each withheld count is half of the threshold, so two tables that
differ in withheld counts alone have the same page, and no sum over withheld counts is on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import atomic_write
from fedeas._internal.names import ending
from fedeas._internal.scalars import integer
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.counts.label_sets import LabelSetCounts
from fedeas.errors import InputError
from fedeas.planning import planner
from fedeas.planning.cost import Cost, cost_text
from fedeas.planning.diagnosis import COPIES, GENERATE, NOTHING, Diagnosis, diagnose
from fedeas.planning.policies import FullBalance, copyable
from fedeas.planning.targets import TargetLike, aim_shares
from fedeas.plots.canvas import picture
from fedeas.plots.heatmap import HEATMAP_WIDTH, draw_heatmap, heatmap_height
from fedeas.plots.page import Grid, Numbers, Part, Picture, Section, render_page

THRESHOLD = 10
_MOST_SITES, _MOST_CLASSES = 25, 12  # of which a table has a line or column each
_MOSTLY = 3  # classes that are named of what a site lacks or would generate


@dataclass(frozen=True)
class LabelReport:
    """A page about the labels of a federation, as HTML."""

    html: str

    def save(self, path: Path | str) -> None:
        """Write the page to a file ending in .html.

        Parameters
        ----------
        path : path or str
            The file.
        """
        path = check_page(Path(path))
        with atomic_write(path) as temporary:
            temporary.write_text(self.html, encoding="utf-8")


def check_page(path: Path) -> Path:
    """Return the path of a page, or refuse another kind of file."""
    return ending(path, ".html", ".htm")


def profile(
    counts: CountsLike | LabelSetCounts,
    threshold: int = THRESHOLD,
    target: TargetLike = None,
    cost: Cost | str | None = None,
    title: str | None = None,
) -> LabelReport:
    """Make a page for people who decide: who has what, who is short of what, what would help.

    Parameters
    ----------
    counts : LabelCounts, array_like or LabelSetCounts
        Whole numbers, clients x classes, or counts of samples with several labels. Where the number
        of people is known, people are counted.
    threshold : int
        Counts from 1 to below it are withheld; 1 shows all.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.
    cost : Cost or str, optional
        The cost of a sample, such as '0.8s' or '0.002EUR'.
    title : str, optional
        The title of the page.

    >>> page = profile([[90, 10, 0], [30, 40, 30]], title="Two hospitals")
    >>> "Two hospitals" in page.html
    True
    """
    price = Cost.parse(cost) if isinstance(cost, str) else cost
    shown = _withhold(counts, threshold)
    diagnosis = diagnose(shown.table, target)
    sections = [
        Section("", _summary(shown, diagnosis)),
        Section("Who has what", _who_has_what(shown)),
        Section("Who is short of what", _who_is_short(shown, target)),
    ]
    if shown.table.K > 1:
        sections.append(Section("What would help", _what_would_help(shown, diagnosis)))
        sections.append(Section("What a plan would generate", _plan(shown, target, price)))
    sections.append(Section("What to do next, and whom to ask", [_next_steps(diagnosis)]))
    name = title or f"Labels of {_number_of(shown.table.K, 'site')}"
    return LabelReport(render_page(name, sections, one_column=True))


@dataclass(frozen=True, eq=False)
class _Shown:
    """What the page may show: `table` holds half of the threshold where a count is withheld."""

    table: LabelCounts
    withheld: NDArray[np.bool_]
    threshold: int
    unit: str  # what is counted, in the plural
    several_labels: bool  # a sample may be counted in several columns

    def count(self, sites: Any, classes: Any) -> str:
        """Return a part of the table as text, with a plus for what is withheld of it."""
        part = np.ix_(np.atleast_1d(sites), np.atleast_1d(classes))
        hidden = self.withheld[part]
        if hidden.size == 1 and hidden.any():
            return f"<{self.threshold}"
        visible = int(np.where(hidden, 0, self.table.n[part]).sum())
        if hidden.any() and not visible:
            return f"each <{self.threshold}"
        return f"{visible:,}{'+' if hidden.any() else ''}"


def _withhold(counts: CountsLike | LabelSetCounts, threshold: int) -> _Shown:
    allowed = "1 to show every count, or from 3 to 1,000,000"
    integer(threshold, "not a threshold", allowed, 1, 10**6)
    if threshold == 2:
        raise InputError("what a threshold of 2 withholds can only be 1", got=2, allowed=allowed)
    unit, several = "samples", isinstance(counts, LabelSetCounts)
    if isinstance(counts, LabelSetCounts):
        people = counts.people is not None
        unit = "people" if people else unit
        table = (counts.of_people() if people else counts).positives
    else:
        table = LabelCounts.of(counts)
    withheld = (table.n > 0) & (table.n < threshold)
    n = np.where(withheld, threshold // 2, table.n)
    return _Shown(
        LabelCounts(n, table.client_names, table.class_names), withheld, threshold, unit, several
    )


# Sections


def _summary(shown: _Shown, diagnosis: Diagnosis) -> list[Part]:
    table, withheld = shown.table, int(shown.withheld.sum())
    empty = _percent((table.n == 0).mean())
    numbers = [
        (f"{table.K:,}", "sites"),
        (f"{table.C:,}", "labels" if shown.several_labels else "classes"),
        (empty, f"of all pairs of a site and a class have no {shown.unit}"),
    ]
    if not shown.several_labels:
        everything = shown.count(np.arange(table.K), np.arange(table.C))
        numbers.insert(0, (everything, shown.unit))
    if withheld:
        numbers.append((f"{withheld:,}", "small counts withheld"))
    return [Numbers(numbers), *([_headline(shown, diagnosis)] if table.K > 1 else [])]


def _headline(shown: _Shown, diagnosis: Diagnosis) -> str:
    sentences = {
        GENERATE: "Synthetic samples may be worth generating.",
        COPIES: "Simpler means than synthetic samples may be enough.",
        NOTHING: "The sites are close to balanced: nothing needs to be done.",
    }
    too_few = f"There are too few {shown.unit} to tell what would help."
    return sentences.get(diagnosis.advice, too_few)


def _who_has_what(shown: _Shown) -> list[Part]:
    table = shown.table
    parts: list[Part] = [
        "A row is a site, a column a class: one of the labels that a sample can have."
    ]
    if shown.several_labels:
        parts.append("One sample may have several labels, so a row counts some of them twice.")
    if shown.unit == "people":
        parts.append("Counts are of people; somebody with several label sets counts in each.")
    if shown.withheld.any():
        parts.append(
            f"<{shown.threshold} is a count from 1 to {shown.threshold - 1}, which is withheld so "
            "that nobody can be recognised. A 0 is a true zero. A total with a plus leaves out "
            f"what is withheld; all other figures on this page take {shown.threshold // 2} for it."
        )
    if table.n.any() and table.K > 1:
        draw = partial(_draw, shown=shown)
        content = picture(draw, "svg", HEATMAP_WIDTH, heatmap_height(table, None))
        alt = f"Heat map of the {shown.unit} of each site and class"
        parts.append(Picture("labels", content, alt))
    return [*parts, _table(shown)]


def _draw(figure: Any, shown: _Shown) -> None:
    """Draw the heat map, in the words of this page."""
    draw_heatmap(figure, shown.table, suppressed=shown.withheld)
    words = {
        "client": "site", "a group's median": "the middle site of several", "samples": shown.unit,
    }  # fmt: skip
    for axes in figure.axes:
        for label in (axes.xaxis.label, axes.yaxis.label):
            for word, ours in words.items():
                label.set_text(label.get_text().replace(word, ours))
    for text in (text for legend in figure.legends for text in legend.get_texts()):
        text.set_text(text.get_text().replace("suppressed", "withheld"))


def _table(shown: _Shown) -> Grid:
    """Return the counts, with the sites and classes that there is no space for added up."""
    table = shown.table
    rows = _groups(table.sizes, table.client_names, _MOST_SITES, "sites")
    columns = _groups(table.n.sum(axis=0), table.class_names, _MOST_CLASSES, "classes")
    lines: list[list[str]] = []
    shades: list[list[float | None]] = []
    for name, sites in rows:
        whole = max(1, int(table.n[sites].sum()))
        hidden = [len(sites) == len(c) == 1 and shown.withheld[sites, c].any() for _, c in columns]
        parts = [float(table.n[np.ix_(sites, classes)].sum()) / whole for _, classes in columns]
        lines.append([name, *(shown.count(sites, classes) for _, classes in columns)])
        shades.append([None, *(-1.0 if h else p for h, p in zip(hidden, parts, strict=True))])
    if len(rows) > 1:
        everybody = np.arange(table.K)
        lines.append(["all sites", *(shown.count(everybody, classes) for _, classes in columns)])
        shades.append([None] * len(lines[-1]))
    return Grid(["site", *(name for name, _ in columns)], lines, shades)


def _who_is_short(shown: _Shown, target: TargetLike) -> list[Part]:
    """Return what each class lacks, and for each site what it has too little of."""
    table, t = shown.table, aim_shares(target, shown.table)
    present = table.n > 0
    classes = []
    for c in np.argsort(-table.n.sum(axis=0), kind="stable")[:_MOST_SITES]:
        count = shown.count(np.arange(table.K), c)
        share = table.n[:, c].sum() / table.total
        rare = "rare" if share < t[c] / 2 else ""
        sites = f"{int(present[:, c].sum()):,} of {table.K:,}"
        classes.append([table.class_names[c], count, _percent(share), sites, rare])
    whole = "of all labels" if shown.several_labels else f"of all {shown.unit}"
    parts: list[Part] = [Grid(["class", shown.unit, whole, "sites that have it", ""], classes)]
    if shown.table.K == 1:
        return parts
    short = np.maximum(table.sizes[:, np.newaxis] * t - table.n, 0.0)
    lines = []
    for k in np.argsort(-short.sum(axis=1), kind="stable")[:_MOST_SITES]:
        lacks = [c for c in range(table.C) if t[c] > 0 and not present[k, c]]
        few = [c for c in np.argsort(-short[k], kind="stable") if present[k, c] and short[k, c] > 0]
        few = [c for c in few if table.n[k, c] < table.sizes[k] * t[c] / 2]
        lines.append([table.client_names[k], _named(table, lacks), _named(table, few)])
    aim = "equally many of every class" if target is None else "the shares that are aimed at"
    text = (
        f"A site has little of a class of which it has less than half of what {aim} would give it. "
        "A class that it lacks cannot be repeated: only samples from elsewhere can bring it."
    )
    return [*parts, text, Grid(["site", "lacks", "has little of"], lines)]


def _named(table: LabelCounts, classes: Sequence[int]) -> str:
    names = ", ".join(table.class_names[c] for c in classes[:_MOSTLY])
    more = len(classes) - _MOSTLY
    return f"{names} and {more} more" if more > 0 else names or "nothing"


def _what_would_help(shown: _Shown, diagnosis: Diagnosis) -> list[Part]:
    between, lacking = _percent(diagnosis.between), _percent(diagnosis.lacking)
    reasons = {
        NOTHING: "The shares of the classes at every site are close to the aim already.",
        GENERATE: (
            f"{between} of the imbalance lies between sites, and {lacking} of what they are short "
            "of is in classes of which they have hardly any: too few for repeating them to teach "
            "much. New ones have to come from a generator, a program that draws samples which "
            "resemble real ones."
        ),
        COPIES: (
            f"{between} of the imbalance lies between sites, and only {lacking} of what they are "
            "short of is in classes of which they have hardly any. For the rest they can repeat "
            "their own samples, or give them more weight, without generating anything. What "
            "generating would add to that is below, for whoever wants to compare."
        ),
    }
    chance = "Sites of this size would differ about as much by chance."
    caution = "This looks at label counts alone. Only a trial with training shows what is gained."
    meaning = (
        "Imbalance is how far the sites are from the aim, in how often they have each class. Part "
        "of it lies between sites, where one has what another lacks; the rest they have in common."
    )
    return [_headline(shown, diagnosis), meaning, reasons.get(diagnosis.advice, chance), caution]


def _plan(shown: _Shown, target: TargetLike, cost: Cost | None) -> list[Part]:
    if shown.several_labels:
        return [
            "A sample with several labels brings several at once, so the fewest samples are planned"
            " in label sets: the command fedeas plan does so from the same file."
        ]
    table = shown.table
    plan = planner.plan(table, target=target)
    if not plan.total:
        return ["No sample would have to be generated."]
    full = FullBalance(target=target).plan(table).total
    copies = copyable(plan.samples, table.n).sum() / plan.total
    numbers = [
        (f"{plan.total:,}", "synthetic samples"),
        (_percent(plan.synthetic_share), "of all samples would be synthetic"),
        (_percent(plan.reduction), "of the imbalance would be gone"),
    ]
    if cost:
        amount = cost_text(cost.amount(plan.per_client), cost.unit)
        numbers.append((amount, f"to generate them, at {cost.each} each"))
    lines = []
    for k in np.argsort(-plan.per_client, kind="stable")[:_MOST_SITES]:
        if plan.per_client[k]:
            order = np.argsort(-plan.samples[k], kind="stable")
            mostly = _named(table, [c for c in order if plan.samples[k, c]])
            has = shown.count(k, np.arange(table.C))
            lines.append([table.client_names[k], has, f"{plan.per_client[k]:,}", mostly])
    return [
        "It aims to remove at least half of the imbalance while fewer than a quarter of all samples"
        " are synthetic.",
        Numbers(numbers),
        f"To give every class as many samples as the largest one at its site would take {full:,}. "
        f"Repeating a site's own samples could make {_percent(copies)} of what is proposed.",
        Grid(["site", "has", "would generate", "mostly of"], lines),
    ]


def _next_steps(diagnosis: Diagnosis) -> Grid:
    steps = [
        ["Whoever labels at each site", "Do all sites mean the same by a label, and are the labels "
         "right? How many people do the samples come from?"],
    ]  # fmt: skip
    if diagnosis.advice == GENERATE:
        steps += [
            ["Whoever trains the model", "Let a trial compare training with and without synthetic "
             "samples, with repeated samples and with class weights, before any are generated at "
             "size."],
            ["Whoever knows the subject", "Do generated samples of the rare classes look right? A "
             "generator knows only what it was trained on."],
            ["Data protection", "On whose data was the generator trained, and could its samples "
             "resemble particular people?"],
        ]  # fmt: skip
    elif diagnosis.advice == COPIES:
        steps.append(
            ["Whoever trains the model", "Compare training as it is with repeated samples and with "
             "class weights. Both cost nothing to generate, but may cost accuracy."]
        )  # fmt: skip
    elif diagnosis.advice == NOTHING:
        steps.append(["Whoever trains the model", "Train as it is."])
    else:
        steps.append(["Each site", "Are there more labelled samples? Then make this page again."])
    steps.append(
        ["Whoever receives this page", "Somebody who knows a site's exact total from elsewhere can "
         "work out what is withheld of it. Then withhold more: a higher threshold."]
    )  # fmt: skip
    return Grid(["ask", "about"], steps, facts=True)


# Numbers as text


def _groups(
    sizes: NDArray[Any], names: Sequence[str], most: int, what: str
) -> list[tuple[str, NDArray[np.intp]]]:
    """Return names with their places: as they are if they are few, or the largest and the rest."""
    if len(names) <= most:
        return [(name, np.array([place])) for place, name in enumerate(names)]
    order = np.argsort(-sizes, kind="stable")
    groups = [(names[place], np.array([place])) for place in order[: most - 1]]
    rest = np.sort(order[most - 1 :])
    return [*groups, (f"{len(rest):,} other {what}", rest)]


def _number_of(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}\u00a0%"
