"""`fedeas plan`: who generates how many samples of which class."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import label_counts, show
from fedeas.cli.plan_choice import Wanted, choose
from fedeas.cli.plan_output import (
    Findings,
    describe,
    print_findings,
    print_outcome,
    print_plan,
    summary,
)
from fedeas.errors import InputError
from fedeas.progress import progress

if TYPE_CHECKING:
    from fedeas import Cost, LabelCounts, Plan

# Above this many clients a Parquet file is planned as a stream and only the sums are shown.
_STREAM_FROM = 200_000
_METRICS = "Also show Hellinger, Jensen-Shannon and earth mover's distances."


def _file(text: str) -> Path | None:
    """Declare an option for a file of a number per name."""
    option: Path | None = typer.Option(None, metavar="FILE", help=text)
    return option


@label_counts.with_counts_options
def plan(
    counts_file: Path = label_counts.counts_argument(),
    policy: str = typer.Option("fedeas", help="NAME or 'NAME(setting=value, ...)'."),
    beta: float | None = typer.Option(None, help="FedEAS's budget parameter; chosen by default."),
    target: str | None = label_counts.target_option(),
    total: int | None = typer.Option(None, help="Spend at most this many samples."),
    cost: str | None = typer.Option(
        None, help="Cost of one sample: 0.8s, 0.002EUR, or a file from `generator bench`."
    ),
    spend: str | None = typer.Option(None, help="Spend at most this: 3h, 100EUR; needs a cost."),
    site_costs: Path | None = _file("Cost of a sample at each client: lines of 'client,0.8s'."),
    limits: Path | None = _file("Most samples of a client: lines of 'client,1000'."),
    quality: Path | None = label_counts.quality_option(),
    out: Path | None = typer.Option(None, help="Write the plan: .csv, .tsv, .json or .parquet."),
    plot: Path | None = show.plot_option("what each client needs and where the imbalance is"),
    rows: int = typer.Option(20, min=1, help="Number of clients to show."),
    metrics: bool = typer.Option(False, "--metrics", help=_METRICS),
    *,
    options: label_counts.CountsOptions,
    as_json: bool = show.json_option(),
) -> None:
    """Plan who should generate how many samples of which class.

    COUNTS has a row per client and a column per class (.csv, .tsv, .xlsx, .json, .parquet, or - for
    standard input), or a row per sample. It may also be a folder `client/class/image.png`, a
    Hugging Face data set (on disk, or `hf:NAME`), or `module:name` of a Flower partitioner.

    Without --beta or a budget, beta is chosen: at least half of the imbalance is to be removed
    while fewer than a quarter of all samples are synthetic.

    Example: `fedeas plan counts.csv --cost 0.8s --out plan.csv`
    """
    from fedeas.per_name import make_per_name
    from fedeas.policies import make_plan
    from fedeas.targets import make_target

    if plot is not None:
        show.check_picture(plot)
    price = show.read_cost(cost)
    total = _budget(beta, total, price, spend, site_costs)
    wanted = Wanted(
        policy, beta, total, make_target(target),
        make_per_name(limits, "limits"), make_per_name(quality, "quality"),
    )  # fmt: skip
    if options.plain and _is_stream(counts_file, options.layout):
        if wanted.differs or site_costs is not None:
            raise _not_streamed("--site-costs, --limits or --quality")
        _plan_stream(counts_file, wanted, price, out, plot, metrics, as_json)
        return
    found = options.load(counts_file)
    counts = found.counts
    if site_costs is not None:
        wanted = wanted.at_costs(site_costs, spend, counts)
    chosen = choose(wanted, counts)
    made = wanted.scored(make_plan(chosen.policy, counts), counts, price)
    if out is not None:
        made.save(out)
    label_counts.note_counts(counts_file, found)
    label_counts.note_plan(counts, made, chosen.policy)
    if plot is not None:
        _draw(counts, made, plot)
    findings = Findings.of(counts, made.target, metrics)
    if as_json:
        show.print_json(describe(counts, made, chosen, findings))
    else:
        print_findings(findings)
        print_plan(counts, made, rows, chosen, findings.diagnosis.advice)
    for written in filter(None, (*_files(out), plot)):
        show.note(f"wrote {written}")


def _draw(counts: "LabelCounts", plan: "Plan", plot: Path) -> None:
    from fedeas.report import figures

    figures.demand(counts, plan, plot)


def _budget(
    beta: float | None,
    total: int | None,
    cost: "Cost | None",
    spend: str | None,
    sites: Path | None,
) -> int | None:
    """Return the total to stay within; what to spend at different costs is read with the costs."""
    if sites is not None and cost is not None:
        raise InputError("give --cost or --site-costs, not both", got=cost.each)
    if sites is None or total is not None:
        total = label_counts.affordable_total(total, cost, spend)
    if beta is not None and (total is not None or spend is not None):
        raise InputError("give --beta or a total, not both", got=(beta, total or spend))
    return total


def _files(out: Path | None) -> Iterator[Path]:
    """Yield the files of a plan: a text table has its metadata in a second file."""
    from fedeas.tables import facts_file

    if out is not None:
        yield out
        if facts_file(out).exists() and out.suffix.lower() in (".csv", ".tsv"):
            yield facts_file(out)


def _is_stream(path: Path, layout: str | None) -> bool:
    if path.suffix.lower() != ".parquet":
        return False
    from fedeas.stream import client_count
    from fedeas.tables import WIDE, Options, check_start, parquet_layout

    options = Options(layout=layout)
    with label_counts.options_in_messages():
        if parquet_layout(path, options).layout != WIDE or client_count(path) <= _STREAM_FROM:
            return False
        check_start(path, options)
    return True


def _plan_stream(
    path: Path,
    wanted: Wanted,
    cost: "Cost | None",
    out: Path | None,
    plot: Path | None,
    metrics: bool,
    as_json: bool,
) -> None:
    from fedeas.policies import LocalPolicy
    from fedeas.stream import plan_stream, sample_clients

    sample, every = sample_clients(path)
    settled = wanted.settled(sample)
    if wanted.total is not None or plot is not None:
        raise _not_streamed(wanted.spec)
    chosen = choose(settled, sample)
    if not isinstance(chosen.policy, LocalPolicy):
        raise _not_streamed(wanted.spec)
    policy = wanted.restored(chosen.policy)
    with progress("planning clients") as update:
        made = plan_stream(path, policy, out, cost, update)
    findings = Findings.of(sample, settled.target, metrics)
    if as_json:
        counted = {"client_count": made.clients, "empty_count": made.empty}
        seen = {"settings": made.settings, "sampled_every": every}
        show.print_json(
            {**summary(made, cost), **chosen.to_dict(), **findings.to_dict(), **counted, **seen}
        )
    else:
        show.note(f"the skew, and a beta that is not given, are from every {every}th client")
        print_findings(findings)
        samples = show.count_of(made.total, "sample")
        typer.echo(f"{made.policy}: {samples} for {show.count_of(made.clients, 'client')}")
        label_counts.note_empty([f"row {row}" for row in made.empty_rows], made.empty)
        label_counts.note_share(made.synthetic_share)
        print_outcome(made, cost, chosen)
    if out is not None:
        show.note(f"wrote {out}")


def _not_streamed(spec: str) -> InputError:
    return InputError(
        f"more than {_STREAM_FROM:,} clients are planned as a stream",
        got=spec,
        allowed="a local policy by beta or price, without --total, --spend and --plot",
    )
