"""`python -m reproduction`: the paper's numbers, claims and tables next to ours, and our study."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import typer
from rich.text import Text

from fedeas.cli import show
from fedeas.cli.main import run_app
from fedeas.errors import InputError

app = typer.Typer(
    name="python -m reproduction",
    help="The paper's numbers, claims and tables next to ours.",
    no_args_is_help=True,
)
_COLOURS = {
    "exact": "green",
    "constant inferred": "green",
    "agrees": "green",
    "agrees at reduced size": "green",
    "disagrees": "red",
}


@app.command()
def counts(
    walk: bool = typer.Option(
        False, "--walk", help="Replay every random try of the partition from the start (slower)."
    ),
    plot: Path | None = typer.Option(
        None, metavar="FOLDER", help="Folder for the four count-level figures (needs fedeas[plot])."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Print every count-level number of the paper next to ours; exit 1 if one differs.

    Example: `python -m reproduction counts`
    """
    from reproduction.counts import count_numbers, disagreements

    numbers, apart = list(count_numbers(walk)), list(disagreements())
    differing = [number for number in numbers if not number.agrees]
    if plot is not None:
        from reproduction.report import paper_figures

        paper_figures(plot)
    if as_json:
        show.print_json(
            {
                "agree": not differing,
                "claims": [{**asdict(number), "agrees": number.agrees} for number in numbers],
                "disagreements": [asdict(number) for number in apart],
            }
        )
    else:
        table = show.new_table(
            "The paper's numbers from label counts alone",
            ("where", False), ("what", False), ("paper", True), ("ours", True), ("", False),
        )  # fmt: skip
        for number in numbers:
            verdict = Text("equal", "green") if number.agrees else Text("DIFFERS", "bold red")
            if number.inferred:
                verdict.append(" *")
            table.add_row(number.where, number.what, number.paper, number.ours, verdict)
        show.print_table(table)
        inferred = dict.fromkeys(number.inferred for number in numbers if number.inferred)
        typer.echo(f"* Not printed in the paper but inferred: {', '.join(inferred)}.\n")
        table = show.new_table(
            "Where the paper disagrees with its own partition (listed, not counted)",
            ("where", False), ("what", False), ("paper", True), ("ours", True), ("reason", False),
        )  # fmt: skip
        for number in apart:
            table.add_row(number.where, number.what, number.paper, number.ours, number.reason)
        show.print_table(table)
        typer.echo(f"{len(numbers) - len(differing)} of {len(numbers)} numbers are equal")
    if plot is not None:
        show.note(f"wrote four figures to {plot}")
    if differing:
        raise typer.Exit(1)


@app.command()
def claims(
    runs: list[Path] | None = typer.Argument(
        None,
        metavar="[RUNS]...",
        help="Folders of sweeps of reproduction/configs, instead of the recorded runs.",
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Print every claim of the paper with its state: exact, agrees, disagrees, needs a GPU.

    Claims about training are judged from the recorded runs at reduced size, or from your own.
    Runs are recognised by their settings, not by the names of their grids.

    Example: `python -m reproduction claims`
    """
    from reproduction.claims import all_claims
    from reproduction.evidence import Evidence

    sweeps = {str(folder): Evidence.read(folder) for folder in runs} if runs else None
    judged = list(all_claims(sweeps))
    if as_json:
        show.print_json([asdict(claim) for claim in judged])
        return
    table = show.new_table(
        "The paper's claims",
        ("where", False), ("what", False), ("paper", False), ("ours", False), ("split", False),
        ("state", False),
    )  # fmt: skip
    for claim in judged:
        state = Text(claim.state, _COLOURS.get(claim.state, ""))
        table.add_row(claim.where, claim.what, claim.paper, claim.ours, claim.split, state)
    show.print_table(table)
    tested = sum(claim.p_value is not None for claim in judged)
    typer.echo(
        "± is half the 95 % confidence interval (Student's t) over seeds. Runs agree or disagree\n"
        f"if p is below .05 after Holm's correction for {tested} claims with several seeds.\n"
    )
    for command, count in Counter(claim.command for claim in judged if claim.command).items():
        typer.echo(f"{command}   # settles {count}")
    states = Counter(claim.state for claim in judged)
    typer.echo(", ".join(f"{count} {state}" for state, count in states.most_common()))


@app.command()
def tables(
    sweep: str = typer.Argument(..., metavar="SWEEP", help="cifar10 or fashion."),
    only: list[str] | None = typer.Option(None, "--grid", help="Only this grid; repeatable."),
    as_json: bool = show.json_option(),
) -> None:
    """Print the tables of the recorded runs: the paper's comparison at a reduced size.

    SWEEP is cifar10 or fashion.

    Example: `python -m reproduction tables cifar10 --grid policies`
    """
    from fedeas.cli.result_tables import print_tables
    from fedeas.lab.tables import make_tables
    from reproduction.claims import recorded

    sweeps = recorded()
    show.check_known("sweep", [sweep], list(sweeps))
    every_table = make_tables(sweeps[sweep].runs)
    show.check_known("grid", only, [table.grid for table in every_table])
    chosen = [table for table in every_table if not only or table.grid in only]
    print_tables(chosen, as_json)
    if not as_json:
        versions = sweeps[sweep].versions
        listed = ", ".join(f"{table.grid} {versions[table.grid]}" for table in chosen)
        typer.echo(f"versions: {listed}")


@app.command()
def report(
    runs: list[Path] | None = typer.Argument(
        None, metavar="[RUNS]...", help="Folders of runs or sweeps, instead of the recorded runs."
    ),
    out: Path = typer.Option(Path("report"), help="Output folder."),
) -> None:
    """Write the page of `fedeas report` with the paper's accuracies, claims and partition.

    Example: `python -m reproduction report --out report`
    """
    from fedeas.lab.report.page import assemble, read_sweeps
    from reproduction.claims import EXPORTS
    from reproduction.report import TABLE_1, paper_sections

    sweeps = read_sweeps(runs or EXPORTS, False, show.note)
    everything = [run for sweep in sweeps for run in sweep.runs]
    title = "The paper's experiments, next to ours"
    typer.echo(f"wrote {assemble(out, title, sweeps, TABLE_1, paper_sections(everything))}")


@app.command()
def study(
    runs: list[Path] | None = typer.Argument(
        None, metavar="[RUNS]...", help="Folders of the study's sweeps, instead of the record."
    ),
    again: list[Path] | None = typer.Option(
        None, metavar="DIR", help="Folder with the grid `again`, for the noise floor; repeatable."
    ),
    out: Path | None = typer.Option(
        None, help="CSV file with a line per run; runs that it has already stay in it."
    ),
    page: Path | None = typer.Option(
        None, help="Fill in the tables between a page's markers `<!-- study:NAME -->`."
    ),
    partial: bool = typer.Option(False, "--partial", help="Also of sweeps that did not finish."),
    curves: Path | None = typer.Option(
        None, metavar="DIR", help="Only write the accuracy by round of DIR, one sweep, to --out."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Print what the study of reproduction/plan.md found: whether it matters where you generate.

    Example: `python -m reproduction study --page docs/findings.md`
    """
    from reproduction.central import read_central
    from reproduction.page import fill_page, study_tables
    from reproduction.study import (
        RECORD,
        first_step,
        means,
        merge_rows,
        primary,
        read_rows,
        replication,
        rows,
        secondary,
        write_curves,
        write_rows,
    )

    if curves is not None:
        if out is None:
            raise InputError("--curves writes a file", fix="name it with --out FILE")
        write_curves(out, curves)
        return
    recorded = not runs and not again
    everything = read_rows(RECORD) if recorded else list(rows(runs or (), again or (), partial))
    if out is not None:
        everything = merge_rows(read_rows(out) if out.exists() else [], everything)
        write_rows(out, everything)
    if page is not None:
        text = page.read_text(encoding="utf-8")
        tables = study_tables(everything, read_central())
        page.write_text(fill_page(text, tables), encoding="utf-8")
        return
    first = [*primary(everything), *replication(everything), *first_step(everything)]
    second = secondary(everything)
    if as_json:
        show.print_json(
            {
                "primary": [{**asdict(d), "p_holm": p, "verdict": v} for d, p, v in first],
                "secondary": [{"what": w, **asdict(d), "p_holm": p} for w, d, p in second],
                "means": {
                    data: {way: asdict(mean) for way, mean in ways.items()}
                    for data, ways in means(everything).items()
                },
            }
        )
        return
    table = show.new_table(
        "Accuracy by way to train, percent, with half of the 95 % interval",
        ("data", False), ("way", False), ("seeds", True), ("accuracy", True),
    )  # fmt: skip
    for data, ways in means(everything).items():
        for way, mean in sorted(ways.items(), key=lambda item: -item[1].value):
            table.add_row(data, way, str(mean.count), mean.points())
    show.print_table(table)
    table = show.new_table(
        "FedEAS minus uniform, points, and what was planned beside it",
        ("comparison", False), ("data", False), ("seeds", True), ("difference", True),
        ("p, corrected", True), ("verdict", False),
    )  # fmt: skip
    for found, p, verdict in first:
        needed = f"; {found.seeds_needed or 'over 10,000'} seeds for a power of 80 %"
        shown = f"{found.mean:+.2f} ± {found.half:.2f}"
        text = verdict + (needed if verdict == "open" else "")
        table.add_row(found.what, found.data, str(found.seeds), shown, f"{p:.3f}", text)
    for what, found, p in second:
        shown = f"{found.mean:+.2f} ± {found.half:.2f}"
        table.add_row(what, found.data, str(found.seeds), shown, f"{p:.3f}", "")
    show.print_table(table)


@app.command()
def rates(
    runs: list[Path] | None = typer.Argument(
        None, metavar="[RUNS]...", help="Folders of the study's sweeps, instead of the record."
    ),
    out: Path | None = typer.Option(
        None, help="CSV file with a line per run; those of other data sets stay in it."
    ),
) -> None:
    """Print the accuracy on validation samples by learning rate, which chose the study's rates.

    Example: `python -m reproduction rates`
    """
    from reproduction.rates import best_rates, mean_accuracy, read_rates, write_rates
    from reproduction.rates import rates as rate_runs

    everything = list(rate_runs(runs)) if runs else read_rates()
    if out is not None:
        new = {(run.data, run.way) for run in everything}
        known = read_rates(out) if out.exists() else []
        everything += [run for run in known if (run.data, run.way) not in new]
        write_rates(out, everything)
    table = show.new_table(
        "Accuracy on validation samples by learning rate, percent; * is the best",
        ("data", False), ("way", False), ("rates", False),
    )  # fmt: skip
    best = best_rates(everything)
    for (data, way), by_rate in mean_accuracy(everything).items():
        shown = [
            f"{rate:g}: {100 * accuracy:.2f}{'*' if rate == best[data, way] else ''}"
            for rate, accuracy in by_rate.items()
        ]
        table.add_row(data, way, "  ".join(shown))
    show.print_table(table)


@app.command()
def central(
    sweeps: list[Path] = typer.Argument(..., metavar="SWEEP...", help="Sweeps of the study."),
    seeds: int = typer.Option(3, min=1, help="Repetitions."),
    out: Path | None = typer.Option(None, help="CSV file to add the runs to."),
) -> None:
    """Train on a generator's data, and on its samples alone, in one place: no federation.

    Example: `python -m reproduction central reproduction/configs/evidence/letter.toml`
    """
    from reproduction.central import central_runs, write_central

    for sweep in sweeps:
        runs = []
        for run in central_runs(sweep, range(1, seeds + 1)):
            typer.echo(f"{run.data}, {run.trained_on}, seed {run.seed}: {100 * run.accuracy:.2f} %")
            runs.append(run)
        if out is not None:
            write_central(out, runs)


@app.command()
def generator(
    out: Path = typer.Option(..., help="Output folder; run again to resume."),
    threads: int = typer.Option(1, min=1, help="Threads of the training."),
) -> None:
    """Train the generator of the CIFAR-10 study, on the 30,000 images that no client holds.

    Example: `python -m reproduction generator --out generators/cifar10`
    """
    from reproduction.generator import train_held_out

    train_held_out(out, threads, show.note)


def main() -> None:
    """Run the command line."""
    run_app(app)


if __name__ == "__main__":
    main()
