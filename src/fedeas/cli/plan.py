"""`fedeas plan`: who generates how many samples of which class."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import label_counts, show
from fedeas.cli.plan_output import describe, print_outcome, print_plan, summary
from fedeas.errors import InputError
from fedeas.progress import progress

if TYPE_CHECKING:
    from fedeas import Cost, LabelCounts, Target
    from fedeas.policies import Policy

# Above this many clients a Parquet file is planned as a stream and only the sums are shown.
_STREAM_FROM = 200_000


@label_counts.with_counts_options
def plan(
    counts_file: Path = label_counts.counts_argument(),
    policy: str = typer.Option("fedeas", help="NAME or 'NAME(setting=value, ...)'."),
    beta: float | None = typer.Option(None, help="FedEAS's budget parameter (default 12)."),
    target: str | None = label_counts.target_option(),
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
    from fedeas.targets import make_target

    if plot is not None:
        show.check_picture(plot)
    price = show.read_cost(cost)
    total = label_counts.affordable_total(total, price, spend)
    if beta is not None and total is not None:
        raise InputError("give --beta or a total, not both", got=(beta, total))
    aim = make_target(target)
    if options.plain and _is_stream(counts_file, options.layout):
        _plan_stream(counts_file, policy, beta, aim, total, price, out, plot, as_json)
        return
    found = options.load(counts_file)
    counts = found.counts
    chosen = _choose(policy, beta, total, aim, counts)
    made = make_plan(chosen, counts)
    made = made.scored_for(counts, aim) if aim else made
    made = made.with_cost(price) if price else made
    if out is not None:
        made.save(out)
    label_counts.note_counts(counts_file, found)
    label_counts.note_plan(counts, made, chosen)
    if plot is not None:
        from fedeas.report import figures

        figures.demand(counts, made, plot)
    if as_json:
        show.print_json(describe(counts, made))
    else:
        print_plan(counts, made, rows)
    for written in filter(None, (*_files(out), plot)):
        show.note(f"wrote {written}")


def _files(out: Path | None) -> Iterator[Path]:
    """Yield the files of a plan: a text table has its metadata in a second file."""
    from fedeas.tables import facts_file

    if out is not None:
        yield out
        if facts_file(out).exists() and out.suffix.lower() in (".csv", ".tsv"):
            yield facts_file(out)


def _choose(
    spec: str,
    beta: float | None,
    total: int | None,
    target: "Target | None",
    counts: "LabelCounts",
) -> "Policy":
    """Make the policy; for FedEAS a total becomes the largest beta within it."""
    from fedeas import FedEAS, beta_for_total
    from fedeas.specs import parse

    policy = _make(spec, beta, total, target)
    if isinstance(policy, FedEAS) and total is not None:
        if "beta" in parse(spec)[1]:
            raise InputError("give a beta or a total, not both", got=(spec, total))
        return replace(policy, beta=beta_for_total(counts, total, policy))
    _check_taken(policy, beta, total)
    return policy


def _make(spec: str, beta: float | None, total: int | None, target: "Target | None") -> "Policy":
    """Make the policy; if only a total is missing, say so."""
    from fedeas.policies import make_policy
    from fedeas.specs import parse

    try:
        if target is not None and "target" in parse(spec)[1]:
            raise InputError("give --target or a policy with a target, not both", got=spec)
        return make_policy(spec, beta=beta, total=total, target=target)
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
    target: "Target | None",
    total: int | None,
    cost: "Cost | None",
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    from fedeas.policies import LocalPolicy
    from fedeas.stream import plan_stream

    policy = _make(spec, beta, total, target)
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
        show.print_json({**summary(made, cost), **counted, "settings": made.settings})
    else:
        samples = show.count_of(made.total, "sample")
        typer.echo(f"{made.policy}: {samples} for {show.count_of(made.clients, 'client')}")
        label_counts.note_empty([f"row {row}" for row in made.empty_rows], made.empty)
        label_counts.note_share(made.synthetic_share)
        print_outcome(made, cost)
    if out is not None:
        show.note(f"wrote {out}")
