"""The label report: who has what and what would help, on one page for people who do not program.

The page is made from what is published of the counts (`fedeas.planning.published`) and knows
nothing else: every figure on it, and every picture, can be computed from the counts that it shows.
Where small counts are withheld, or noise hides them, figures are those of several tables that agree
with what is shown, from the lowest to the highest.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._util.files import atomic_write
from fedeas.errors import InputError
from fedeas.planning import beta
from fedeas.planning.cost import Cost, cost_text
from fedeas.planning.counts import CountsLike, LabelCounts
from fedeas.planning.diagnosis import (
    COPIES,
    FEW,
    GENERATE,
    LITTLE,
    NOTHING,
    WRONG_ADVICE,
    Diagnosis,
    diagnose,
)
from fedeas.planning.label_set_plan import LabelSetPlan, plan_label_sets
from fedeas.planning.label_sets import LabelSetCounts
from fedeas.planning.plan import Plan
from fedeas.planning.policies import FullBalance, copyable
from fedeas.planning.published import THRESHOLD, NoisyCounts, PublishedCounts, Range, publish
from fedeas.planning.targets import TargetLike
from fedeas.plots.canvas import picture
from fedeas.plots.heatmap import (
    HEATMAP_WIDTH,
    draw_heatmap,
    draw_prevalence,
    heatmap_height,
    prevalence_height,
)
from fedeas.plots.page import Grid, Numbers, Part, Picture, Section, render_page

_TABLES = 5  # that agree with what is shown
_MOST_SITES, _MOST_CLASSES, _MOST_PLANS = 25, 12, 10  # of which a table has a line or column each
_MOSTLY = 3  # classes that are named of what a site would generate
_MANY = {"sample": "samples", "group": "groups", "person": "person/label-set pairs"}

Published = PublishedCounts | NoisyCounts


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
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError("unknown kind of file", got=path.name, allowed=".html")
    return path


def profile(
    counts: CountsLike | LabelSetCounts | NoisyCounts,
    threshold: int = THRESHOLD,
    target: TargetLike = None,
    cost: Cost | str | None = None,
    title: str | None = None,
) -> LabelReport:
    """Make a page for people who decide: who has what, how sites differ, what would help.

    Parameters
    ----------
    counts : LabelCounts, array_like, LabelSetCounts or NoisyCounts
        Whole numbers, clients x classes, counts of samples with several labels, or counts from a
        private sum. Where the number of people is known, people are counted.
    threshold : int
        Counts from 1 to below it are withheld, and so is what would give them away; 1 shows all.
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
    if isinstance(counts, LabelSetCounts):
        sections = _label_set_sections(counts, threshold, target, price)
        name = title or f"Labels of {_number_of(counts.K, 'site')}"
        return LabelReport(render_page(name, sections, one_column=True))
    shown = counts if isinstance(counts, NoisyCounts) else publish(counts, threshold)
    several = len(shown.clients) > 1
    cases = [_case(table, target, several) for table in shown.tables(_TABLES)]
    sections = [
        Section("", _summary(shown, cases)),
        Section("Who has what", _who_has_what(shown)),
        Section("How the sites differ", _differences(shown, cases)),
    ]
    if several:
        sections += [
            Section("What would help", _help(shown, cases)),
            Section("What generating buys, and what it costs", _plan(shown, cases, price)),
        ]
    sections += [
        Section("What is not known", [_unknown(shown)]),
        Section("What this page reveals", [_what_it_reveals(shown)]),
    ]
    name = title or f"Labels of {_number_of(_site_count(shown), 'site')}"
    return LabelReport(render_page(name, sections, one_column=True))


class _Case(NamedTuple):
    """A table that agrees with what is shown, and what follows if it is the right one."""

    counts: LabelCounts
    diagnosis: Diagnosis
    plan: Plan | None


def _case(counts: LabelCounts, target: TargetLike, planned: bool) -> _Case:
    plan = beta.plan(counts, target=target) if planned else None
    return _Case(counts, diagnose(counts, target), plan)


# Sections


def _summary(shown: Published, cases: Sequence[_Case]) -> list[Part]:
    withheld, empty = int(shown.withheld.sum()), int(((shown.n == 0) & ~shown.withheld).sum())
    numbers = [
        (_range_text(shown.total_range), _MANY[shown.unit]),
        (f"{_site_count(shown):,}", "sites"),
        (f"{len(shown.classes):,}", "classes"),
    ]
    if isinstance(shown, PublishedCounts):
        share = _percent_text([empty / shown.n.size])
        numbers.append((share, f"of all pairs of a site and a class have no {shown.unit}"))
    if withheld:
        numbers.append((f"{withheld:,}", "small counts withheld"))
    return [Numbers(numbers), *([_headline(shown, cases)] if len(shown.clients) > 1 else [])]


def _who_has_what(shown: Published) -> list[Part]:
    parts: list[Part] = [
        "A row is a site, a column a class: one of the labels that a sample can have."
    ]
    if shown.unit != "sample":
        parts.append(f"Counts are of {_MANY[shown.unit]}: each counts once, by one of its samples.")
    if isinstance(shown, NoisyCounts):
        below = int((shown.raw < 0).sum())
        clipped = (
            f" {_number_of(below, 'count')} below zero by chance: shown as 0." if below else ""
        )
        parts.append(
            f"Every count has random noise: in 95 of 100 cases the true one is within "
            f"± {shown.margin:,}. Ranges of totals have the same meaning.{clipped}"
        )
    elif shown.withheld.any():
        parts.append(
            f"A hatched cell is a count from 1 to {shown.threshold - 1}, which is withheld so that "
            "nobody can be recognised. A 0 is a true zero. A total that would give a withheld "
            "count away is shown as a range."
        )
    if shown.n.any() and len(shown.clients) > 1:
        counts = LabelCounts(shown.n, shown.clients, shown.classes)
        draw = partial(_draw, counts=counts, withheld=shown.withheld, units=_MANY[shown.unit])
        content = picture(draw, "svg", HEATMAP_WIDTH, heatmap_height(counts, None))
        parts.append(
            Picture(
                "labels", content, f"Heat map of the {_MANY[shown.unit]} of each site and class"
            )
        )
    return [*parts, _table(shown)]


def _draw(figure: Any, counts: LabelCounts, withheld: NDArray[np.bool_], units: str) -> None:
    """Draw the heat map, in the words of this page."""
    draw_heatmap(figure, counts, suppressed=withheld)
    words = {
        "client": "site", "a group's median": "the middle site of several", "samples": units,
    }  # fmt: skip
    for axes in figure.axes:
        for label in (axes.xaxis.label, axes.yaxis.label):
            for word, ours in words.items():
                label.set_text(label.get_text().replace(word, ours))
    for text in (text for legend in figure.legends for text in legend.get_texts()):
        text.set_text(text.get_text().replace("suppressed", "withheld"))


def _table(shown: Published) -> Grid:
    """Return the counts, largest first, with what there is no space for added up."""
    middle = np.where(shown.withheld, shown.threshold / 2, shown.n)
    rows = _groups(middle.sum(axis=1), shown.clients, _MOST_SITES, "sites")
    columns = _groups(middle.sum(axis=0), shown.classes, _MOST_CLASSES, "classes")
    lines: list[list[str]] = []
    shades: list[list[float | None]] = []
    for name, sites in rows:
        total = shown.range_of(sites)
        line, shade = [name], [None]  # type: list[str], list[float | None]
        for _, classes in columns:
            part = shown.range_of(sites[:, np.newaxis], classes)
            single = len(sites) == len(classes) == 1
            line.append(_noisy(shown, sites, classes) if single else _range_text(part))
            hidden = single and bool(shown.withheld[sites, classes].any())
            shade.append(-1.0 if hidden else sum(part) / max(1, sum(total)))
        lines.append([*line, _range_text(total)])
        shades.append([*shade, None])
    darkest = max(shade for row in shades for shade in row if shade is not None)
    if darkest > 0:
        shades = [[x and (x / darkest if x > 0 else x) for x in row] for row in shades]
    if len(rows) > 1:
        totals = [
            _range_text(_sum_of_ranges([shown.class_range(int(c)) for c in classes]))
            for _, classes in columns
        ]
        lines.append(["all sites", *totals, _range_text(shown.total_range)])
        shades.append([None] * len(lines[-1]))
    return Grid(["site", *(name for name, _ in columns), "all classes"], lines, shades)


def _noisy(shown: Published, sites: Any, classes: Any) -> str:
    """Return a single count as text, with its error if it has one."""
    if isinstance(shown, NoisyCounts):
        return f"{int(shown.n[sites[0], classes[0]]):,} ± {shown.margin:,}"
    return _range_text(shown.range_of(sites[:, np.newaxis], classes))


def _differences(shown: Published, cases: Sequence[_Case]) -> list[Part]:
    if len(shown.clients) == 1:
        text = "Only the sum of all sites is known, so this page cannot say how the sites differ."
        return [text, _class_table(shown, cases)]
    between = [case.diagnosis.between for case in cases]
    everywhere = [1 - part for part in between]
    target = cases[0].diagnosis.target
    units = _MANY[shown.unit]
    aim = f"equally many {units} of every class"
    if target != "uniform":
        federation = "the class shares of all sites together"
        aim = federation if target == "federation" else f"the class shares called {target}"
    present = (shown.n > 0) | shown.withheld
    held = present.sum(axis=1)
    (sites, C), empty = present.shape, int((held == 0).sum())
    lacking = int(((held > 0) & (held < C)).sum())
    one = int((held == 1).sum())
    text = f"Every site has {units} of every class."
    if lacking:
        text = (
            f"Sites without a {shown.unit} of at least one class: {lacking:,} of {sites:,}. Sites "
            f"with {units} of a single class: {one:,}."
        )
    if empty:
        text += f" Sites without any {shown.unit}: {empty:,}."
    return [
        f"Imbalance is how far the sites are from having {aim}. One part of it lies between sites: "
        "some have much of what others lack. The other part they have in common: a class that is "
        "rare everywhere. Samples for particular sites help against the first part.",
        Numbers(
            [
                (_percent_text(between), "of the imbalance lies between sites"),
                (_percent_text(everywhere), "is common to all sites together"),
            ]
        ),
        text,
        _class_table(shown, cases),
        f"Rare: below {50 / C:.1f}\u00a0% of all {units}, half of an equal share. At few sites: at "
        "fewer than half of them.",
    ]


def _class_table(shown: Published, cases: Sequence[_Case]) -> Grid:
    """Return for each class how much there is, how many sites have it, and who has most."""
    C, present = len(shown.classes), (shown.n > 0) | shown.withheld
    sites = int(present.any(axis=1).sum())
    order = np.argsort([-sum(shown.class_range(c)) for c in range(C)], kind="stable")
    lines = []
    for c in order[:_MOST_SITES]:
        shares = [case.counts.n[:, c].sum() / case.counts.total for case in cases]
        line = [shown.classes[c], _range_text(shown.class_range(int(c))), _percent_text(shares)]
        if len(shown.clients) > 1:
            k, number = int(shown.n[:, c].argmax()), int(present[:, c].sum())
            parts = [case.counts.n[k, c] / max(1, case.counts.n[:, c].sum()) for case in cases]
            most = f"{shown.clients[k]} ({_percent_text(parts)})" if shown.n[k, c] else "-"
            words = ["rare"] if max(shares) < 0.5 / C else []
            words += ["at few sites"] if number < sites / 2 else []
            line += [f"{number:,} of {sites:,}", most, ", ".join(words)]
        lines.append(line)
    units = _MANY[shown.unit]
    head = ["class", units, f"of all {units}", "sites that have it", "most of it is at", "note"]
    return Grid(head[: len(lines[0])], lines)


def _headline(shown: Published, cases: Sequence[_Case]) -> str:
    """Return the advice in a sentence."""
    advice = Counter(case.diagnosis.advice for case in cases)
    if len(advice) > 1:
        return "Whether generating samples pays depends on counts that this page does not show."
    sentences = {
        GENERATE: "Synthetic samples may be worth generating.",
        COPIES: "Synthetic samples would add little; simpler means may be enough.",
        NOTHING: "The sites are close to balanced: nothing needs to be done.",
    }
    too_few = f"There are too few {_MANY[shown.unit]} to tell what would help."
    return sentences.get(next(iter(advice)), too_few)


def _help(shown: Published, cases: Sequence[_Case]) -> list[Part]:
    """Say what the diagnosis advises and why, of all tables that agree with what is shown."""
    reasons = Counter(_reason(case.diagnosis) for case in cases)
    parts: list[Part] = [_headline(shown, cases)]
    between = _percent_text([case.diagnosis.between for case in cases])
    lacking = _percent_text([case.diagnosis.lacking for case in cases])
    scarce = _range_text(_least_and_most([case.diagnosis.scarce_classes for case in cases]))
    for reason, number in reasons.most_common():
        few = f"{FEW} {_MANY[shown.unit]}"
        text = reason.format(between=between, lacking=lacking, scarce=scarce, few=few)
        some = "" if len(reasons) == 1 else f"In {number} of {len(cases)} tables tried: "
        parts.append(some + text)
    parts.append(
        f"The advice looks at label counts alone. Where fewer than {FEW} of a class are at "
        "a site, there is too little to copy, so new ones have to come from a generator: a program "
        "that draws samples which resemble real ones."
    )
    wrong, settings = WRONG_ADVICE
    parts.append(
        f"It is a rule of thumb: of {settings} settings whose results are recorded with fedeas, it "
        f"was wrong in {wrong}."
    )
    return parts


def _reason(diagnosis: Diagnosis) -> str:
    if diagnosis.advice == NOTHING:
        return "The shares of the classes at every site are close to the aim already."
    if diagnosis.between < LITTLE and diagnosis.advice == GENERATE:
        return (
            "{scarce} classes have fewer than {few} at all sites together, too few to copy "
            "or to learn from: only a generator made elsewhere would help."
        )
    if diagnosis.between < LITTLE and diagnosis.advice == COPIES:
        return (
            "Only {between} of the imbalance lies between sites. The rest is common to all of "
            "them: training can give rare classes more weight, or repeat their samples. That "
            "generates nothing, but may cost accuracy."
        )
    if diagnosis.advice == COPIES:
        return (
            "{lacking} of what sites are short of is in classes of which they have fewer than "
            "{few}; of the rest they can repeat their own. In the studies recorded with "
            "fedeas, generating was ahead of repeating from 70\u00a0% on."
        )
    if diagnosis.advice == GENERATE:
        return (
            "{between} of the imbalance lies between sites, and {lacking} of what sites are short "
            "of is in classes of which they have fewer than {few}: too few for repeating "
            "them to teach much."
        )
    return "Sites of this size would differ about as much by chance."


def _plan(shown: Published, cases: Sequence[_Case], cost: Cost | None) -> list[Part]:
    plans = [case.plan for case in cases if case.plan is not None]
    if not any(plan.total for plan in plans):
        return ["No sample would have to be generated."]
    full = [FullBalance(target=p.target).plan(c.counts) for p, c in zip(plans, cases, strict=True)]
    copies = [copyable(p.samples, c.counts.n).sum() / max(1, p.total)
              for p, c in zip(plans, cases, strict=True)]  # fmt: skip
    spent = (
        f"The cost counts {cost.each} a sample and nothing else." if cost else
        "What a sample costs, in time or money, was not given, so no cost is stated here."
    )  # fmt: skip
    needed = all(case.diagnosis.advice == GENERATE for case in cases)
    optional = "This plan fits the advice." if needed else "This plan is optional."
    missed = "" if max(plan.reduction for plan in plans) >= 0.5 else (
        " No plan that small removes half; this one removes as much as it can."
    )  # fmt: skip
    samples = np.median([plan.samples for plan in plans], axis=0)
    order = np.argsort(-samples.sum(axis=1), kind="stable")[:_MOST_PLANS]
    lines = []
    for k in order:
        generated = _range_text(_least_and_most([int(plan.per_client[k]) for plan in plans]))
        largest = [c for c in np.argsort(-samples[k], kind="stable")[:_MOSTLY] if samples[k, c]]
        mostly = ", ".join(shown.classes[c] for c in largest)
        lines.append(
            [shown.clients[k], _range_text(shown.range_of(np.array([k]))), generated, mostly]
        )
    which = "the sites" if len(order) == len(shown.clients) else f"the {len(order)} sites"
    return [
        f"{optional} It aims to remove at least half of the imbalance with a synthetic share "
        f"below a quarter.{missed}",
        _what_it_buys(shown, plans, cost),
        f"{spent} To give every class as many samples as the largest one at its site would take "
        f"{_range_text(_least_and_most([plan.total for plan in full]))} synthetic samples. "
        f"Repeating a site's own samples could make {_percent_text(copies)} of those proposed.",
        f"Of {which} that would generate most:" if which != "the sites" else "By site:",
        Grid(["site", "has", "would generate", "mostly of"], lines),
    ]


def _what_it_buys(
    shown: Published, plans: Sequence[Plan | LabelSetPlan], cost: Cost | None
) -> Numbers:
    """Return what plans would generate, what that changes and what it costs."""
    share = "of all samples would be synthetic"
    if shown.unit != "sample":
        share = f"synthetic share, where a {shown.unit} counts as one sample"
    numbers = [
        (_range_text(_least_and_most([plan.total for plan in plans])), "synthetic samples"),
        (_percent_text([plan.synthetic_share for plan in plans]), share),
        (_percent_text([plan.reduction for plan in plans]), "of the imbalance would be gone"),
    ]
    if cost:
        amounts = [cost.amount(plan.per_client) for plan in plans]
        numbers.append((_span_text(amounts, lambda x: cost_text(x, cost.unit)), "to generate them"))
    return Numbers(numbers)


# Samples with several labels


def _label_set_sections(
    counts: LabelSetCounts, threshold: int, target: TargetLike, cost: Cost | None
) -> list[Section]:
    """Return the sections about samples with several labels.

    Small counts of label sets are withheld. Nothing else is known of the counts: what a label or a
    pair of labels adds up to follows from what is shown of the sets that have them.
    """
    table = counts if counts.people is None else counts.of_people()
    unit = "sample" if counts.people is None else "person"
    shown = replace(publish(LabelCounts(table.n, table.clients), threshold), unit=unit)
    tables = [
        LabelSetCounts(table.sets, drawn.n, table.clients, table.labels)
        for drawn in shown.tables(_TABLES)
    ]
    cases = [_Case(each.positives, diagnose(each.positives, target), None) for each in tables]
    several = [each.n[:, each.sets.sum(axis=1) > 1].sum() / each.total for each in tables]
    numbers = [
        (_range_text(shown.total_range), _MANY[unit]),
        (f"{table.K:,}", "sites"),
        (f"{table.L:,}", "labels"),
        (_percent_text(several), f"of the {_MANY[unit]} have two or more labels"),
    ]
    sections = [
        Section("", [Numbers(numbers), *([_headline(shown, cases)] if table.K > 1 else [])]),
        Section("Who has what", _who_has_which(shown, tables)),
        Section("Which labels occur together", _pairs(shown, tables)),
    ]
    if table.K > 1:
        plans = [plan_label_sets(each, target=target) for each in tables]
        sections += [
            Section("What would help", _help(shown, cases)),
            Section("What generating buys, and what it costs", _set_plan(shown, plans, cost)),
        ]
    return [
        *sections,
        Section("What is not known", [_unknown(shown)]),
        Section("What this page reveals", [_what_it_reveals(shown)]),
    ]


def _who_has_which(shown: PublishedCounts, tables: Sequence[LabelSetCounts]) -> list[Part]:
    """Return how many of each site have each label, the most frequent labels first."""
    holds, names = tables[0].holds, tables[0].positives.class_names
    rows = _groups(tables[0].sizes, shown.clients, _MOST_SITES, "sites")
    columns = np.argsort(-tables[0].positives.n.sum(axis=0), kind="stable")[:_MOST_CLASSES]
    lines: list[list[str]] = []
    shades: list[list[float | None]] = []
    for name, sites in rows:
        line, shade = [name], [None]  # type: list[str], list[float | None]
        for c in columns:
            part = np.ix_(sites, np.flatnonzero(holds[c]))
            count = shown.range_of(*part)
            shares = [
                each.positives.n[sites, c].sum() / max(1, each.sizes[sites].sum())
                for each in tables
            ]
            line.append(f"{_range_text(count)} ({_percent_text(shares)})" if count[1] else "0")
            hidden = count[1] > 0 and not shown.n[part].any()
            shade.append(-1.0 if hidden else float(np.mean(shares)))
        lines.append([*line, _range_text(shown.range_of(sites))])
        shades.append([*shade, None])
    totals = [
        _range_text(_sum_of_ranges([shown.class_range(int(s)) for s in np.flatnonzero(holds[c])]))
        for c in columns
    ]
    lines.append(["all sites", *totals, _range_text(shown.total_range)])
    shades.append([None] * len(lines[-1]))
    parts: list[Part] = [
        "A row is a site, a column a label. One sample may have several labels or none, so the "
        "shares of a site do not add up to 100\u00a0%."
    ]
    if shown.unit == "person":
        parts.append(
            "Counts are of people in label sets: somebody who has several label sets counts in "
            "each, so there are fewer people than the counts add up to."
        )
    if shown.withheld.any():
        parts.append(
            f"Where 1 to {shown.threshold - 1} have a label set at a site, their number is "
            "withheld so that nobody can be recognised: what it is part of is a range. A hatched "
            "cell has only such numbers. A 0 is a true zero."
        )
    if len(columns) < len(names):
        parts.append(f"Shown are the {len(columns)} most frequent of {len(names)} labels.")
    values = np.array([[0.0 if x is None else x for x in row[1:-1]] for row in shades[:-1]])
    drawn = partial(
        draw_prevalence, shares=values, sites=[name for name, _ in rows],
        labels=[names[c] for c in columns],
    )  # fmt: skip
    content = picture(drawn, "svg", HEATMAP_WIDTH, prevalence_height(len(rows)))
    alt = f"Heat map of the share of each site's {_MANY[shown.unit]} that has each label"
    head = ["site", *(names[c] for c in columns), f"all {_MANY[shown.unit]}"]
    return [*parts, Picture("prevalence", content, alt), Grid(head, lines, shades)]


def _pairs(shown: PublishedCounts, tables: Sequence[LabelSetCounts]) -> list[Part]:
    """Return the pairs of labels that occur together most often."""
    sets, names = tables[0].sets, tables[0].label_names
    together = np.stack([each.co_occurrence() for each in tables])
    middle = np.triu(np.median(together, axis=0), 1)
    lines = []
    for place in np.argsort(-middle, axis=None, kind="stable")[:_MOST_PLANS]:
        a, b = divmod(int(place), len(names))
        if not middle[a, b]:
            break
        both = np.flatnonzero(sets[:, a] & sets[:, b])
        count = _sum_of_ranges([shown.class_range(int(s)) for s in both])
        rarer, other = sorted((a, b), key=lambda c: int(together[:, c, c].sum()))
        shares = [each[a, b] / max(1, each[rarer, rarer]) for each in together]
        lines.append(
            [f"{names[rarer]} and {names[other]}", _range_text(count), _percent_text(shares)]
        )
    if not lines:
        return ["No two labels occur together."]
    head = ["labels", _MANY[shown.unit], "of those with the first label"]
    return ["The most frequent pairs, at all sites together:", Grid(head, lines)]


def _set_plan(
    shown: PublishedCounts, plans: Sequence[LabelSetPlan], cost: Cost | None
) -> list[Part]:
    """Return what the plan in label sets takes and does."""
    if not any(plan.total for plan in plans):
        return ["No sample would have to be generated."]
    samples = np.median([plan.samples for plan in plans], axis=0)
    sets = plans[0].counts.set_names
    lines = []
    for k in np.argsort(-samples.sum(axis=1), kind="stable")[:_MOST_PLANS]:
        largest = [s for s in np.argsort(-samples[k], kind="stable")[:_MOSTLY] if samples[k, s]]
        lines.append([
            shown.clients[k],
            _range_text(shown.range_of(np.array([k]))),
            _range_text(_least_and_most([int(plan.per_client[k]) for plan in plans])),
            ", ".join(sets[s].replace("|", " + ") for s in largest),
        ])  # fmt: skip
    return [
        "The fewest samples that hold the labels which sites are short of: one sample may bring "
        "several.",
        _what_it_buys(shown, plans, cost),
        Grid(["site", "has", "would generate", "mostly of"], lines),
    ]


def _unknown(shown: Published) -> Grid:
    lines = [
        ["Accuracy", "A more balanced table is not yet a better model. Only a trial with training "
         "shows what is gained."],
        ["Quality", "How real generated samples look, and whether they resemble particular people, "
         "depends on the generator."],
        ["Labels", "Whether all sites mean the same by a label, and whether labels are right."],
        ["People", "Counts are of samples. How many people they come from is not in the table: "
         "one person may have several samples."],
    ]  # fmt: skip
    if shown.unit != "sample":
        lines[-1] = ["Samples", f"Counts are of {_MANY[shown.unit]}; how many samples is not told."]
    if isinstance(shown, NoisyCounts):
        lines.append(["True counts", "Only known within the noise."])
    elif shown.withheld.any():
        lines.append([
            "Withheld counts",
            f"{int(shown.withheld.sum()):,} counts are only known to be from 1 to "
            f"{shown.threshold - 1}. Figures with a range were computed for {_TABLES} tables that "
            "agree with this page; the truth may lie outside of it.",
        ])  # fmt: skip
    return Grid(["", ""], lines, facts=True)


def _what_it_reveals(shown: Published) -> Grid:
    """Say what was revealed to whom, at which epsilon, about how many samples."""
    sites = _number_of(_site_count(shown), "site")
    about = f"{_range_text(shown.total_range)} {_MANY[shown.unit]} at {sites}"
    if isinstance(shown, NoisyCounts):
        guarantee = (
            f"Differential privacy with epsilon {shown.epsilon:g} and delta {shown.delta:g} for "
            f"one {shown.unit} of a site, added or removed; a smaller epsilon protects more. "
        )
        guarantee += (
            "Somebody with several samples is protected less."
            if shown.unit == "sample"
            else "A group is all samples of one person or the like, and every group is counted "
            "once: the counts on this page are of groups, not of samples."
        )
        if not math.isfinite(shown.epsilon):
            guarantee = "None: this noise can be drawn again and subtracted."
        lines = [
            ["Who saw exact counts", "Each site its own. Others, and this page, have noisy sums."],
            ["About whom", f"About {about}."],
            ["Guarantee", guarantee],
        ]
    else:
        readers = "every count of every site"
        if shown.threshold > 1:
            readers = (
                f"counts of {shown.threshold} and more, and which counts are 0. Of a smaller count "
                f"they learn that it is from 1 to {shown.threshold - 1}"
            )
        lines = [
            ["Who saw exact counts", "Whoever made this page: all counts of all sites."],
            ["What its readers learn", f"Of {about}: {readers}."],
            ["Guarantee", "No noise was added, so there is no epsilon to state. "
             + ("No small count was withheld." if shown.threshold == 1 else
                "No withheld count can be worked out from this page: all else on it, pictures "
                "too, was computed from what it shows.")],
        ]  # fmt: skip
        if shown.withheld.any():
            lines.append([
                "What remains",
                "Somebody who knows a site's exact total from elsewhere can subtract what is shown "
                "here; so can whoever has a page of the same counts with another threshold. Then "
                "use a higher threshold, or counts with noise.",
            ])  # fmt: skip
    return Grid(["", ""], lines, facts=True)


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


def _site_count(shown: Published) -> int:
    return shown.sites if isinstance(shown, NoisyCounts) else len(shown.clients)


def _number_of(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _sum_of_ranges(ranges: Sequence[Range]) -> Range:
    return sum(low for low, _ in ranges), sum(high for _, high in ranges)


def _least_and_most(values: Iterable[int]) -> Range:
    ordered = sorted(values)
    return ordered[0], ordered[-1]


def _range_text(ends: Range) -> str:
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,}\u2013{high:,}"


def _span_text(values: Sequence[float], text: Callable[[float], str]) -> str:
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"


def _percent_text(shares: Sequence[float]) -> str:
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return f"{low}\u00a0%" if low == high else f"{low}\u2013{high}\u00a0%"
