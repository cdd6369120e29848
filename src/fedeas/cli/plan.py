"""`fedeas plan`: who generates how many samples of which class."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedeas._internal.progress import progress
from fedeas.cli import label_counts, label_sets, show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import Cost, Diagnosis, LabelCounts, Plan, Policy, Target
    from fedeas.planning.planner import Chosen
    from fedeas.planning.stream import StreamedPlan

# Above this many clients a Parquet file is planned as a stream and only the sums are shown.
_STREAM_FROM = 200_000
_NAME = 24  # characters of a client in a line
_WIDTH = 80  # of a line
_HEAD = 17  # of it, for what the line is about
_TOTAL = "total"  # how beta was chosen, where it was by a total
_POLICY, _BUDGET = "Policy", "Budget"  # groups of options


def plan(
    counts_file: label_counts.CountsPath,
    policy: str = typer.Option(
        "fedeas", metavar="NAME", show_default=False, rich_help_panel=_POLICY,
        help="fedeas (default), or another NAME or 'NAME(setting=value)'.",
    ),
    beta: float | None = typer.Option(
        None, help="FedEAS's budget parameter; chosen by default.", rich_help_panel=_POLICY
    ),
    target: label_counts.TargetOption = None,
    quality: Path | None = typer.Option(
        None, metavar="FILE", rich_help_panel=_POLICY,
        help="Worth of a synthetic sample, 0 to 1: lines of 'class,0.8', or a generator's folder.",
    ),
    total: int | None = typer.Option(
        None, metavar="N", help="At most this many samples.", rich_help_panel=_BUDGET
    ),
    cost: str | None = typer.Option(
        None, metavar="COST", rich_help_panel=_BUDGET,
        help="Of one sample: 0.8s, 0.002EUR, a file of 'client,0.8s', or one of "
        "`fill --dry-run --json`.",
    ),
    spend: str | None = typer.Option(
        None, metavar="COST", help="At most this much: 3h, 100EUR; needs --cost.",
        rich_help_panel=_BUDGET,
    ),
    limits: Path | None = typer.Option(
        None, metavar="FILE", help="Most samples of a client: lines of 'client,1000'.",
        rich_help_panel=_BUDGET,
    ),
    out: Path | None = typer.Option(
        None, metavar="FILE", help="Write the plan: .json, .parquet; .csv holds the numbers only."
    ),
    plot: Path | None = show.plot_option("counts before and after"),
    rows: int = typer.Option(
        20, min=1, metavar="N", show_default=False, help="Number of clients to show (default 20)."
    ),
    as_json: bool = show.json_option(),
) -> None:  # fmt: skip
    """Plan who should generate how many samples of which class.

    COUNTS has a row per client and a column per class (.csv, .tsv, .xlsx, .json, .parquet, or - for
    CSV on standard input), or a row per client and label set. It may also be a folder
    `client/class/image.png`. `fedeas counts` reads other tables.

    Without --beta or a budget, beta is chosen: at least half of the imbalance is to be removed
    while fewer than a quarter of all samples are synthetic.

    Example: `fedeas plan counts.csv --cost 0.8s --out plan.json`
    """
    from fedeas import LabelCounts, diagnose
    from fedeas.planning.named_values import make_named_values
    from fedeas.planning.planner import choose_policy
    from fedeas.planning.targets import make_target

    if plot is not None:
        show.check_picture(plot)
    aim = make_target(target)
    if _is_stream(counts_file):
        unused = {
            "total": total,
            "spend": spend,
            "limits": limits,
            "quality": quality,
            "plot": plot,
        }
        if asked := [f"--{name}" for name, value in unused.items() if value is not None]:
            raise _not_streamed(asked[0])
        _plan_stream(counts_file, policy, beta, aim, _read_cost(cost, None), out, as_json)
        return
    counts = label_counts.load_any_counts(counts_file)
    if not isinstance(counts, LabelCounts):
        unused = {"cost": cost, "spend": spend, "quality": quality, "plot": plot}
        label_sets.plan_sets(
            counts_file, counts, policy, beta, aim, total, limits, out, rows, unused, as_json
        )
        return
    price = _read_cost(cost, counts.client_names)
    budget, costs = _budget(total, price, spend)
    worth = make_named_values(quality, "quality")
    chosen = choose_policy(
        counts, policy, budget, costs, beta=beta, target=aim, quality=worth,
        limits=make_named_values(limits, "limits"),
    )  # fmt: skip
    answer = chosen.plan
    if aim or worth:
        answer = answer.scored_for(counts, answer.target or aim, worth)
    answer = answer.with_cost(price) if price else answer
    if out is not None:
        answer.save(out)
    label_counts.note_counts(counts_file, counts)
    label_counts.note_plan(counts, answer)
    if plot is not None:
        from fedeas.plots import canvas, heatmap

        canvas.save_figure(heatmap.label_heatmap(counts, answer), plot)
    diagnosis = diagnose(counts, answer.target)
    if as_json:
        show.print_json(_describe(counts, answer, chosen, diagnosis))
    else:
        _print_diagnosis(diagnosis)
        _print_plan(counts, answer, rows, chosen, diagnosis.advice)
        _print_line("in an app", _in_an_app(chosen.policy, answer, out))
    for file in filter(None, (out, plot)):
        show.note(f"wrote {file}")


# What is asked for


def _budget(
    total: int | None, cost: "Cost | None", spend: str | None
) -> "tuple[float | None, tuple[float, ...] | None]":
    """Return the most samples; where clients differ in cost, the most to spend and those costs."""
    if spend is None:
        return total, None
    if cost is None:
        raise InputError(f"--spend {spend} also needs --cost", fix="e.g. --cost 0.8s")
    if total is not None:
        raise InputError("give --spend or --total, not both", got=(spend, total))
    if isinstance(cost.per_sample, tuple):
        return cost.amount_for(spend), cost.per_sample
    return cost.samples_for(spend), None


def _read_cost(text: str | None, clients: Sequence[str] | None) -> "Cost | None":
    """Read '0.8s', a file from `fedeas fill --dry-run --json`, or a cost per client."""
    from fedeas import Cost
    from fedeas._internal.files import read_text

    if text is None:
        return None
    if Path(text).suffix.lower() not in (".json", ".csv", ".tsv", ".txt"):
        return Cost.parse(text)
    if text.lower().endswith(".json"):
        content = read_text(Path(text))
        try:
            facts = json.loads(content)
            if "seconds_per_sample" in facts:
                return Cost.parse(f"{float(facts['seconds_per_sample'])!r}s")
        except (ValueError, TypeError, RecursionError):
            raise InputError(
                f"{text} is not a file of costs",
                fix="a file of what `fedeas fill --dry-run --json` printed",
            ) from None
    if clients is None:
        raise _not_streamed("--cost FILE")
    return Cost.load(text, clients)


# Files of any length


def _is_stream(path: Path) -> bool:
    if path.suffix.lower() != ".parquet":
        return False
    from fedeas.counts import parquet

    if parquet.client_count(path) <= _STREAM_FROM or not parquet.is_wide(path):
        return False
    parquet.check_start(path)
    return True


def _plan_stream(
    path: Path, spec: str, beta: float | None, target: "Target | None", cost: "Cost | None",
    out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    from fedeas import diagnose
    from fedeas.planning.planner import choose_policy
    from fedeas.planning.policies import LocalPolicy
    from fedeas.planning.stream import plan_stream, sample_clients
    from fedeas.planning.targets import retarget

    sample, every = sample_clients(path)
    sample_target = target.for_counts(sample) if target else None
    chosen = choose_policy(sample, spec, beta=beta, target=sample_target)
    if not isinstance(chosen.policy, LocalPolicy):
        raise _not_streamed(spec)
    # The federation's shares are those of all clients, not of the sample.
    rule = retarget(chosen.policy, target) if target else chosen.policy
    with progress("planning clients") as update:
        plan = plan_stream(path, rule, out, cost, update)
    diagnosis = diagnose(sample, sample_target)
    if as_json:
        show.print_json(
            {
                **_summary(plan, cost, replace(chosen, policy=rule), diagnosis),
                "client_count": plan.clients, "empty_count": plan.empty,
                "settings": plan.settings, "sampled_every": every,
            }
        )  # fmt: skip
    else:
        show.note(f"the skew, and a beta that is not given, are from every {every}th client")
        _print_diagnosis(diagnosis)
        samples = show.count_of(plan.total, "sample")
        typer.echo(f"{plan.policy}: {samples} for {show.count_of(plan.clients, 'client')}")
        label_counts.note_empty((), plan.empty)
        label_counts.note_share(plan.synthetic_share)
        _print_outcome(plan, cost, chosen)
    if out is not None:
        show.note(f"wrote {out}")


def _not_streamed(option: str) -> InputError:
    return InputError(
        f"more than {_STREAM_FROM:,} clients are planned as a stream",
        got=option,
        allowed="a local policy, with --target and one --cost for all",
    )


# What is printed


def _print_line(head: str, text: str) -> None:
    """Print a line with its heading, wrapped."""
    lines = textwrap.wrap(text, _WIDTH - _HEAD)
    typer.echo(f"{head:<{_HEAD}}" + f"\n{'':<{_HEAD}}".join(lines))


def _print_diagnosis(diagnosis: "Diagnosis") -> None:
    """Print what kind of skew there is and what to do about it, before the plan."""
    for head, text in diagnosis.lines():
        _print_line(head, text)
    typer.echo("")


def _print_plan(
    counts: "LabelCounts", plan: "Plan", rows: int, chosen: "Chosen", advice: str
) -> None:
    """Print the clients that generate most, and the outcome; `advice` is that of the diagnosis."""
    from fedeas.planning.policies import copyable
    from fedeas.planning.skew import skewness

    table = show.new_table(
        _title(plan, advice),
        ("client", False), ("real", True), ("skew", True),
        ("generate", True), ("", False), ("mostly", False),
    )  # fmt: skip
    order = (-plan.per_client).argsort(kind="stable")
    largest = max(1, int(plan.per_client.max()))
    skews = skewness(counts, target=plan.target)
    names = [show.shortened(counts.client_names[k], _NAME) for k in order[:rows]]
    # What a line of 80 characters leaves beside the numbers and the bar.
    width = min(25, 37 - max(map(len, names)))
    for k, name in zip(order, names, strict=False):
        table.add_row(
            name,
            f"{counts.sizes[k]:,}",
            f"{skews[k]:.2f}" if counts.sizes[k] else "-",
            f"{plan.per_client[k]:,}",
            show.bar(plan.per_client[k] / largest),
            _largest_classes(plan, int(k), width),
        )
    if len(order) > rows:
        rest = plan.per_client[order[rows:]].sum()
        table.add_row(f"{len(order) - rows:,} more", "", "", f"{rest:,}", "", "")
    show.print_table(table)
    _print_outcome(plan, plan.cost, chosen)
    if plan.total:
        copies = int(copyable(plan.samples, counts.n).sum())
        typer.echo(f"copies           {_copies(copies, plan)}")
        _print_full_balance(counts, plan)


def _title(plan: "Plan", advice: str) -> str:
    """Return the policy, its settings and its total."""
    from fedeas.planning.diagnosis import COPIES, NOTHING

    scalars = {key: plan.settings.get(key) for key in ("beta", "total")}
    if plan.settings.get("costs") and plan.cost and plan.cost.by_client:
        scalars["spend"] = scalars.pop("total")
    settings = [f"{key} {value:g}" for key, value in scalars.items() if value]
    settings += [f"target {plan.target_name}"] if plan.target else []
    optional = "optional: " if advice in (COPIES, NOTHING) and plan.total else ""
    shown = f" ({', '.join(settings)})" if settings else ""
    return f"{optional}{plan.policy}{shown}: {show.count_of(plan.total, 'sample')}"


def _print_full_balance(counts: "LabelCounts", plan: "Plan") -> None:
    """Print what full balance would take, where that is more."""
    from fedeas import FullBalance

    balanced = FullBalance(target=plan.target).plan(counts)
    if balanced.total > plan.total:
        cost = f" ({plan.cost.of(balanced.per_client)})" if plan.cost else ""
        more = f"{balanced.total / plan.total:.1f} times as many"
        typer.echo(f"full balance     {show.count_of(balanced.total, 'sample')}{cost}, {more}")


def _print_outcome(plan: "Plan | StreamedPlan", cost: "Cost | None", chosen: "Chosen") -> None:
    """Print what a plan removes and costs."""
    if chosen.instead:
        _print_line("equal reduction", chosen.instead)
    elif chosen.beta is not None and chosen.beta.chosen_by != _TOTAL:
        _print_line("beta", f"{chosen.beta.beta:.9g}: {chosen.beta}")
    before, after = plan.score_before, plan.score_after
    removed, share = show.percent(plan.reduction), show.percent(plan.synthetic_share)
    typer.echo(f"imbalance        {before:.4f} -> {after:.4f}, {removed} removed")
    typer.echo(f"synthetic share  {share} of all training samples")
    if cost:
        typer.echo(f"cost             {cost.of(_paid(plan))} at {cost.each} per sample")
    if worth := plan.settings.get("quality"):
        shown = f"{min(worth):g} to {max(worth):g}" if len(set(worth)) > 1 else f"{worth[0]:g}"
        typer.echo(f"quality          a synthetic sample counts as {shown} of a real one")


def _in_an_app(policy: "Policy", plan: "Plan", out: Path | None) -> str:
    """Return the call with which the clients of an app generate exactly this plan."""
    from fedeas import EqualReduction, FedEAS

    how = f'plan="{out or "plan.csv"}"'
    if plan.target is None and "quality" not in plan.settings:
        if policy == EqualReduction(getattr(policy, "reduction", 0.5)):
            how = f"reduction={plan.settings['reduction']:.15g}"
        elif policy == FedEAS(beta=getattr(policy, "beta", 1.0)):
            how = f"beta={plan.settings['beta']:.15g}"
    saved = "" if out or not how.startswith("plan") else "; write it with --out plan.csv"
    return f"fedeas.augment(train, generator=..., {how}, client=NAME){saved}"


def _copies(copies: int, plan: "Plan") -> str:
    """Say how much of a plan copies of the clients' own samples could make."""
    if copies in (0, plan.total):
        return f"could make {'all' if copies else 'none'} of these samples"
    part = f"{copies:,} ({show.percent(copies / plan.total)})"
    return f"could make {part}; the rest is of missing classes"


def _largest_classes(plan: "Plan", client: int, width: int) -> str:
    """List the classes that a client generates most of, as many as fit."""
    row = plan.samples[client]
    order = [c for c in (-row).argsort(kind="stable") if row[c]]
    text = ""
    for index, c in enumerate(order):
        name = show.shortened(plan.class_names[c], max(6, width - 5))
        longer = f"{text}{', ' if text else ''}{name} {row[c]:,}"
        if index and len(longer) > width:
            return f"{text} +{len(order) - index}"
        text = longer
    return text


def _describe(
    counts: "LabelCounts", plan: "Plan", chosen: "Chosen", diagnosis: "Diagnosis"
) -> dict[str, object]:
    """Return a plan as JSON holds it."""
    from fedeas.planning.policies import copyable
    from fedeas.planning.skew import skewness

    skews = skewness(counts, target=plan.target)
    costs = plan.cost.per_sample if plan.cost else None
    return {
        **_summary(plan, plan.cost, chosen, diagnosis),
        "copyable": int(copyable(plan.samples, counts.n).sum()),
        "client_count": counts.K,
        "empty_count": len(counts.empty),
        "settings": dict(plan.settings),
        "counts_hash": plan.counts_hash,
        "classes": list(counts.class_names),
        "empty_clients": list(counts.empty),
        "overfilled": asdict(plan.overfilled) if plan.overfilled else None,
        "clients": [
            {
                "client": counts.client_names[k],
                "real": int(counts.sizes[k]),
                "skew": float(skews[k]) if counts.sizes[k] else None,
                "generate": int(plan.per_client[k]),
                "cost": float(plan.per_client[k] * costs[k]) if isinstance(costs, tuple) else None,
                "samples": plan.samples[k].tolist(),
            }
            for k in range(counts.K)
        ],
    }


def _paid(plan: "Plan | StreamedPlan") -> Any:
    """Return the samples that are paid for: of each client where they are known."""
    return getattr(plan, "per_client", plan.total)


def _summary(
    plan: "Plan | StreamedPlan", cost: "Cost | None", chosen: "Chosen", diagnosis: "Diagnosis"
) -> dict[str, object]:
    """Return the figures that all plans have, also those that are never held together."""
    conditions, choice = None, chosen.beta
    if choice is not None and choice.chosen_by != _TOTAL:
        conditions = {"min_reduction": choice.min_reduction, "max_share": choice.max_share}
        conditions |= {"met": choice.interval is not None}
    given = "given" if hasattr(chosen.policy, "beta") else None
    return {
        "policy": plan.policy,
        "target": plan.target_name,
        "total": plan.total,
        "reduction": plan.reduction,
        "synthetic_share": plan.synthetic_share,
        "score_before": plan.score_before,
        "score_after": plan.score_after,
        "negative_gain": plan.negative_gain,
        "cost": cost and {"amount": cost.amount(_paid(plan)), "unit": cost.unit},
        "beta_chosen_by": choice.chosen_by if choice else given,
        "conditions": conditions,
        "between": diagnosis.between,
        "advice": diagnosis.advice,
        "advice_text": diagnosis.advice_text,
        "diagnosis": diagnosis.to_dict(),
    }
