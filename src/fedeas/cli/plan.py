"""`fedeas plan`: who generates how many samples of which class."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import label_counts, show
from fedeas.errors import InputError
from fedeas.progress import progress

if TYPE_CHECKING:
    from fedeas import Cost, LabelCounts, Plan
    from fedeas.policies import Policy
    from fedeas.stream import StreamedPlan

# Above this many clients a Parquet file is planned as a stream and only the sums are shown.
_STREAM_FROM = 200_000
_NAME = 24  # characters of a client in a line


@label_counts.with_counts_options
def plan(
    counts_file: Path = label_counts.counts_argument(),
    policy: str = typer.Option("fedeas", help="NAME or 'NAME(setting=value, ...)'."),
    beta: float | None = typer.Option(None, help="FedEAS's budget parameter (default 12)."),
    total: int | None = typer.Option(None, help="Spend at most this many samples."),
    cost: str | None = typer.Option(
        None, help="Cost of one sample: 0.8s, 0.002EUR, or a file from `generator bench`."
    ),
    spend: str | None = typer.Option(None, help="Spend at most this: 3h, 100EUR; needs --cost."),
    out: Path | None = typer.Option(None, help="Write the plan: .csv, .tsv, .json or .parquet."),
    plot: Path | None = show.plot_option("what each client needs and where the imbalance is"),
    rows: int = typer.Option(20, min=1, help="Number of clients to show."),
    *,
    options: label_counts.CountsOptions,
    as_json: bool = show.json_option(),
) -> None:
    """Plan who should generate how many samples of which class.

    COUNTS has a row per client and a column per class (.csv, .tsv, .xlsx, .json, .parquet, or - for
    standard input), or a row per sample. It may also be a folder `client/class/image.png`, a
    Hugging Face data set (on disk, or `hf:NAME`), or `module:name` of a Flower partitioner.

    Example: `fedeas plan counts.csv --beta 12 --cost 0.8s --out plan.csv`
    """
    from fedeas.policies import make_plan

    if plot is not None:
        show.check_picture(plot)
    price = show.read_cost(cost)
    total = label_counts.affordable_total(total, price, spend)
    if beta is not None and total is not None:
        raise InputError("give --beta or a total, not both", got=(beta, total))
    if options.plain and _is_stream(counts_file, options.layout):
        _plan_stream(counts_file, policy, beta, total, price, out, plot, as_json)
        return
    found = options.load(counts_file)
    counts = found.counts
    chosen = _choose(policy, beta, total, counts)
    made = make_plan(chosen, counts)
    made = made.with_cost(price) if price else made
    if out is not None:
        made.save(out)
    label_counts.note_counts(counts_file, found)
    label_counts.note_plan(counts, made, chosen)
    if plot is not None:
        from fedeas.report import figures

        figures.demand(counts, made, plot)
    if as_json:
        show.print_json(_as_json(counts, made))
    else:
        _print(counts, made, rows)
    for written in filter(None, (*_files(out), plot)):
        show.note(f"wrote {written}")


def _files(out: Path | None) -> Iterator[Path]:
    """Yield the files of a plan: a text table has its metadata in a second file."""
    from fedeas.tables import facts_file

    if out is not None:
        yield out
        if facts_file(out).exists() and out.suffix.lower() in (".csv", ".tsv"):
            yield facts_file(out)


def _choose(spec: str, beta: float | None, total: int | None, counts: "LabelCounts") -> "Policy":
    """Make the policy; for FedEAS a total becomes the largest beta within it."""
    from fedeas import FedEAS, beta_for_total
    from fedeas.specs import parse

    policy = _make(spec, beta, total)
    if isinstance(policy, FedEAS) and total is not None:
        if "beta" in parse(spec)[1]:
            raise InputError("give a beta or a total, not both", got=(spec, total))
        return replace(policy, beta=beta_for_total(counts, total, policy))
    _check_taken(policy, beta, total)
    return policy


def _make(spec: str, beta: float | None, total: int | None) -> "Policy":
    """Make the policy; if only a total is missing, say so."""
    from fedeas.policies import make_policy
    from fedeas.specs import parse

    try:
        return make_policy(spec, beta=beta, total=total)
    except InputError as error:
        try:
            make_policy(spec, beta=beta, total=1 if total is None else total)
        except InputError:
            raise error from None
        name = parse(spec)[0]
        raise InputError(f"{name} needs a budget", fix="add --total 1000") from None


def _check_taken(policy: "Policy", beta: float | None, total: int | None) -> None:
    """Refuse a beta or total that the policy does not take, instead of ignoring it."""
    for option, value in (("beta", beta), ("total", total)):
        if value is not None and getattr(policy, option, None) != value:
            name = getattr(policy, "name", type(policy).__name__)
            raise InputError(
                f"policy {name!r} takes no {option}", got=value, fix=f"leave out --{option}"
            )


def _print(counts: "LabelCounts", plan: "Plan", rows: int) -> None:
    from fedeas import FullBalance
    from fedeas.policies import copyable
    from fedeas.skew import skewness

    scalars = {key: plan.settings.get(key) for key in ("beta", "total", "price")}
    settings = ", ".join(f"{key} {value:g}" for key, value in scalars.items() if value)
    samples = show.count_of(plan.total, "sample")
    table = show.new_table(
        f"{plan.policy}{f' ({settings})' if settings else ''}: {samples}",
        ("client", False), ("real", True), ("skew", True),
        ("generate", True), ("", False), ("mostly", False),
    )  # fmt: skip
    order = (-plan.per_client).argsort(kind="stable")
    largest = max(1, int(plan.per_client.max()))
    skews = skewness(counts)
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
    _print_outcome(plan, plan.cost)
    if plan.total:
        typer.echo(f"copies           {_copies(int(copyable(plan.samples, counts.n).sum()), plan)}")
    full = FullBalance().plan(counts).total
    if plan.total and full > plan.total:
        cost = f" ({plan.cost.of(full)})" if plan.cost else ""
        more = f"{full / plan.total:.1f} times as many"
        samples = show.count_of(full, "sample")
        typer.echo(f"full balance     {samples}{cost}, {more}")


def _print_outcome(plan: "Plan | StreamedPlan", cost: "Cost | None") -> None:
    before, after = plan.score_before, plan.score_after
    removed, share = show.percent(plan.reduction), show.percent(plan.synthetic_share)
    typer.echo(f"imbalance        {before:.4f} -> {after:.4f}, {removed} removed")
    typer.echo(f"synthetic share  {share} of all training samples")
    if cost:
        each = f"{cost.per_sample:g} {cost.unit}"
        typer.echo(f"cost             {cost.of(plan.total)} at {each} per sample")


def _copies(made: int, plan: "Plan") -> str:
    """Say how much of a plan copies of the clients' own samples could make."""
    if made in (0, plan.total):
        return f"could make {'all' if made else 'none'} of these samples"
    part = f"{made:,} ({show.percent(made / plan.total)})"
    return f"could make {part}; the rest is of missing classes"


def _largest_classes(plan: "Plan", client: int, width: int) -> str:
    """List the classes that a client generates most of, as many as fit."""
    row = plan.samples[client]
    order = [c for c in (-row).argsort(kind="stable") if row[c]]
    shown = ""
    for place, c in enumerate(order):
        name = show.shortened(plan.class_names[c], max(6, width - 5))
        longer = f"{shown}{', ' if shown else ''}{name} {row[c]:,}"
        if place and len(longer) > width:
            return f"{shown} +{len(order) - place}"
        shown = longer
    return shown


def _as_json(counts: "LabelCounts", plan: "Plan") -> dict[str, object]:
    from fedeas.overfill import overfilled
    from fedeas.policies import copyable
    from fedeas.skew import skewness

    skews = skewness(counts)
    beyond = overfilled(counts, plan)
    return {
        **_summary(plan, plan.cost),
        "copyable": int(copyable(plan.samples, counts.n).sum()),
        "client_count": counts.K,
        "empty_count": len(counts.empty),
        "settings": dict(plan.settings),
        "counts_hash": plan.counts_hash,
        "classes": list(counts.class_names),
        "empty_clients": list(counts.empty),
        "overfilled": asdict(beyond) if beyond else None,
        "clients": [
            {
                "client": counts.client_names[k],
                "real": int(counts.sizes[k]),
                "skew": float(skews[k]) if counts.sizes[k] else None,
                "generate": int(plan.per_client[k]),
                "samples": plan.samples[k].tolist(),
            }
            for k in range(counts.K)
        ],
    }


def _summary(plan: "Plan | StreamedPlan", cost: "Cost | None") -> dict[str, object]:
    amount = None if cost is None else {"amount": plan.total * cost.per_sample, "unit": cost.unit}
    return {
        "policy": plan.policy,
        "total": plan.total,
        "reduction": plan.reduction,
        "synthetic_share": plan.synthetic_share,
        "score_before": plan.score_before,
        "score_after": plan.score_after,
        "negative_gain": plan.harmful,
        "cost": amount,
    }


def _is_stream(path: Path, layout: str | None) -> bool:
    if path.suffix.lower() != ".parquet":
        return False
    from fedeas.stream import client_count
    from fedeas.tables import WIDE, Options, check_start, parquet_layout

    options = Options(layout=layout)
    if parquet_layout(path, options).layout != WIDE or client_count(path) <= _STREAM_FROM:
        return False
    check_start(path, options)
    return True


def _plan_stream(
    path: Path,
    spec: str,
    beta: float | None,
    total: int | None,
    cost: "Cost | None",
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    from fedeas.plan import settings_of
    from fedeas.policies import LocalPolicy
    from fedeas.stream import plan_stream

    policy = _make(spec, beta, total)
    _check_taken(policy, beta, None)
    if not isinstance(policy, LocalPolicy) or total is not None or plot is not None:
        raise InputError(
            f"more than {_STREAM_FROM:,} clients are planned as a stream",
            got=spec,
            allowed="a local policy by beta or price, without --total, --spend and --plot",
        )
    with progress("planning clients") as update:
        made = plan_stream(path, policy, out, cost, update)
    if as_json:
        counted = {"client_count": made.clients, "empty_count": made.empty}
        show.print_json({**_summary(made, cost), **counted, "settings": settings_of(policy)})
    else:
        samples = show.count_of(made.total, "sample")
        typer.echo(f"{made.policy}: {samples} for {show.count_of(made.clients, 'client')}")
        label_counts.note_empty([f"row {row}" for row in made.empty_rows], made.empty)
        label_counts.note_share(made.synthetic_share)
        _print_outcome(made, cost)
    if out is not None:
        show.note(f"wrote {out}")
