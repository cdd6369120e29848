"""`fedeas plan` for samples with several labels: which label sets each client generates."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import BetaChoice, Diagnosis, LabelSetCounts, LabelSetPlan, Target

_SETS = 8  # label sets shown of a client
_OBSTACLES = 10  # lines of what cannot be reached
_HEAD, _WIDTH = 17, 80  # of a line, as in `fedeas plan`


def plan_sets(
    path: Path, counts: "LabelSetCounts", spec: str, beta: float | None, target: "Target | None",
    total: int | None, limits: Path | None, out: Path | None, rows: int,
    unused: Mapping[str, object], as_json: bool,
) -> None:  # fmt: skip
    """Print the diagnosis, the plan of each client in label sets, and what cannot be reached."""
    from fedeas import diagnose, plan_label_sets
    from fedeas.planning.named_values import make_named_values
    from fedeas.planning.planner import choose_policy

    for name, value in unused.items():
        if value is not None:
            raise InputError(
                f"--{name} does not apply to samples with several labels", got=str(value),
                fix="leave it out, or give a table with one label per sample",
            )  # fmt: skip
    chosen = choose_policy(
        counts.positives, spec, total, beta=beta, target=target,
        limits=make_named_values(limits, "limits"),
    )  # fmt: skip
    rule, choice = chosen.policy, chosen.beta
    # A policy that takes no target is measured against it all the same.
    plan = plan_label_sets(counts, rule, None if getattr(rule, "target", None) else target)
    if out is not None:
        plan.save(out)
    show.note(f"{path}: {repr(counts).removeprefix('LabelSetCounts(').removesuffix(')')}")
    if target is None and plan.wanted.target is None:
        show.note(
            "note: the uniform target wants every label, and samples without one, in "
            f"{show.percent(plan.target_prevalence[0])} of all samples; --target federation aims "
            "at the federation's prevalence"
        )
    diagnosis = diagnose(counts.positives, plan.wanted.target)
    if as_json:
        chosen_by = choice.chosen_by if choice else None
        show.print_json(
            {**plan.to_dict(), "beta_chosen_by": chosen_by, "diagnosis": diagnosis.to_dict()}
        )
    else:
        _print_diagnosis(plan, diagnosis)
        if chosen.instead:
            show.note(f"note: planned by equal reduction: {chosen.instead}")
            choice = None
        _print_plan(plan, rows)
        _print_outcome(plan, choice)
    if out is not None:
        show.note(f"wrote {out}")


def _line(head: str, text: str) -> None:
    lines = textwrap.wrap(text, _WIDTH - _HEAD)
    typer.echo(f"{head:<{_HEAD}}" + f"\n{'':<{_HEAD}}".join(lines))


def _print_diagnosis(plan: "LabelSetPlan", diagnosis: "Diagnosis") -> None:
    """Print what kind of skew there is, and where the prevalence of each label is off."""
    from fedeas.planning.label_set_plan import label_scores

    for head, text in diagnosis.lines():
        _line(head, text)
    typer.echo("")
    counts = plan.counts
    table = show.new_table(
        "Prevalence of each label, and its part of the imbalance",
        ("label", False), ("target", True), ("lowest", True), ("", False), ("highest", True),
        ("", False), ("score", True), ("with plan", True),
    )  # fmt: skip
    scores = label_scores(counts, plan.wanted.target)
    after = label_scores(counts, plan.wanted.target, plan.samples)
    held = counts.sizes > 0
    names = [name for name, size in zip(counts.client_names, held, strict=True) if size]
    for c, label in enumerate(counts.positives.class_names):
        column = counts.prevalence[held, c]
        low, high = int(column.argmin()), int(column.argmax())
        table.add_row(
            show.shortened(label, 20),
            show.percent(plan.target_prevalence[c]),
            show.percent(column[low]), show.shortened(names[low], 12),
            show.percent(column[high]), show.shortened(names[high], 12),
            f"{scores[c]:.4f}", f"{after[c]:.4f}",
        )  # fmt: skip
    show.print_table(table)


def _print_plan(plan: "LabelSetPlan", rows: int) -> None:
    """Print the clients that generate most, and their label sets."""
    counts = plan.counts
    beta = plan.wanted.settings.get("beta")
    shown = f" (beta {beta:.9g})" if beta else ""
    table = show.new_table(
        f"{plan.wanted.policy}{shown}: {show.count_of(plan.total, 'sample')}",
        ("client", False), ("generate", True), ("labels", False), ("real, all clients", True),
    )  # fmt: skip
    real = dict(zip(counts.set_names, counts.n.sum(axis=0).tolist(), strict=True))
    order = (-plan.per_client).argsort(kind="stable")
    for k in order[:rows]:
        sets = list(plan.sets_of(k).items())
        table.add_row(
            show.shortened(counts.client_names[k], 24), f"{plan.per_client[k]:,}", "total", ""
        )
        for labels, number in sets[:_SETS]:
            listed = labels.replace("|", " | ")  # long ones are wrapped
            table.add_row("", f"{number:,}", listed, f"{real[labels]:,}")
        if rest := sum(number for _, number in sets[_SETS:]):
            table.add_row("", f"{rest:,}", f"{len(sets) - _SETS} more label sets", "")
    if len(order) > rows:
        more = plan.per_client[order[rows:]].sum()
        table.add_row(f"{len(order) - rows:,} more", f"{more:,}", "", "")
    show.print_table(table)


def _print_outcome(plan: "LabelSetPlan", choice: "BetaChoice | None") -> None:
    """Print what the plan makes and removes, and what cannot be reached."""
    chosen = ""
    if choice is not None and choice.chosen_by != "total":
        chosen = f"; beta {choice.beta:.9g} is chosen as if each took a sample: {choice}"
    _line("positives", f"{plan.wanted.total:,} wanted{chosen}")
    _line("samples", f"{plan.total:,} hold them; the lines below count samples")
    before, after = plan.score_before, plan.score_after
    removed = show.percent(plan.reduction)
    typer.echo(f"imbalance        {before:.4f} -> {after:.4f}, {removed} removed")
    typer.echo(f"synthetic share  {show.percent(plan.synthetic_share)} of all training samples")
    if not plan.obstacles:
        typer.echo("out of reach     nothing: no label is raised that is not wanted")
    for at, obstacle in enumerate(plan.obstacles[:_OBSTACLES]):
        _line("out of reach" if not at else "", str(obstacle))
    if len(plan.obstacles) > _OBSTACLES:
        _line("", f"{len(plan.obstacles) - _OBSTACLES:,} more, see --json")
