"""`fedeas paper`: the paper's claims and numbers next to ours."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import typer
from rich.text import Text

from fedeas.cli import results, show

paper = typer.Typer(help="The paper's claims and numbers next to ours.")
_COLOURS = {
    "exact": "green",
    "constant inferred": "green",
    "agrees": "green",
    "agrees at reduced size": "green",
    "disagrees": "red",
}


@paper.callback(invoke_without_command=True)
def everything(
    context: typer.Context,
    runs: list[Path] | None = typer.Option(
        None,
        help="Folder of a sweep of configs/paper or configs/cpu, at any size, instead of the "
        "recorded runs; repeatable.",
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Print every claim of the paper with its state: exact, agrees, disagrees, needs a GPU.

    Claims about training are judged from the reduced-size runs that come with fedeas, or from
    your own. Runs are recognised by their settings, not by the names of their grids.

    Example: `fedeas paper`
    """
    if context.invoked_subcommand is not None:
        return
    from fedeas.paper.claims import all_claims
    from fedeas.paper.evidence import Evidence

    own = {str(folder): Evidence.read(folder) for folder in runs} if runs else None
    found = list(all_claims(own))
    if as_json:
        show.print_json([asdict(claim) for claim in found])
        return
    table = show.new_table(
        "The paper's claims",
        ("where", False), ("what", False), ("paper", False), ("ours", False), ("protocol", False),
        ("state", False),
    )  # fmt: skip
    for claim in found:
        state = Text(claim.state, _COLOURS.get(claim.state, ""))
        table.add_row(claim.where, claim.what, claim.paper, claim.ours, claim.protocol, state)
    show.print_table(table)
    judged = sum(claim.p_value is not None for claim in found)
    typer.echo(
        "± is half the 95 % confidence interval (Student's t) over seeds. Runs agree or disagree\n"
        f"if p is below .05 after Holm's correction for {judged} claims with several seeds.\n"
    )
    for command, count in Counter(claim.command for claim in found if claim.command).items():
        typer.echo(f"{command}   # settles {count}")
    states = Counter(claim.state for claim in found)
    typer.echo(", ".join(f"{count} {state}" for state, count in states.most_common()))


@paper.command()
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

    Example: `fedeas paper counts`
    """
    from fedeas.paper.counts import claims, disagreements

    found, apart = list(claims(walk)), list(disagreements())
    differing = [claim for claim in found if not claim.agrees]
    if plot is not None:
        from fedeas.paper.figures import paper_figures

        paper_figures(plot)
    if as_json:
        show.print_json(
            {
                "agree": not differing,
                "claims": [{**asdict(claim), "agrees": claim.agrees} for claim in found],
                "disagreements": [asdict(claim) for claim in apart],
            }
        )
    else:
        table = show.new_table(
            "The paper's numbers from label counts alone",
            ("where", False), ("what", False), ("paper", True), ("ours", True), ("", False),
        )  # fmt: skip
        for claim in found:
            verdict = Text("equal", "green") if claim.agrees else Text("DIFFERS", "bold red")
            if claim.inferred:
                verdict.append(" *")
            table.add_row(claim.where, claim.what, claim.paper, claim.ours, verdict)
        show.print_table(table)
        inferred = dict.fromkeys(claim.inferred for claim in found if claim.inferred)
        typer.echo(f"* Not printed in the paper but inferred: {', '.join(inferred)}.\n")
        table = show.new_table(
            "Where the paper disagrees with its own partition (listed, not counted)",
            ("where", False), ("what", False), ("paper", True), ("ours", True), ("reason", False),
        )  # fmt: skip
        for claim in apart:
            table.add_row(claim.where, claim.what, claim.paper, claim.ours, claim.reason)
        show.print_table(table)
        typer.echo(f"{len(found) - len(differing)} of {len(found)} numbers are equal")
    if plot is not None:
        show.note(f"wrote four figures to {plot}")
    if differing:
        raise typer.Exit(1)


@paper.command()
def runs(
    sweep: str = typer.Argument(..., metavar="SWEEP", help="cifar10 or fashion."),
    only: list[str] | None = typer.Option(None, "--grid", help="Only this grid; repeatable."),
    per_class: bool = typer.Option(False, "--per-class", help="Also show the accuracy per class."),
    csv: Path | None = typer.Option(None, help="Write the tables to one file (.csv)."),
    as_json: bool = show.json_option(),
) -> None:
    """Print the tables of the recorded runs: the paper's comparison at a reduced size.

    SWEEP is cifar10 or fashion.

    Example: `fedeas paper runs cifar10 --grid policies`
    """
    from fedeas.experiments import tables
    from fedeas.paper.claims import recorded

    known = recorded()
    show.check_known("sweep", [sweep], list(known))
    found = tables.make_tables(known[sweep].runs)
    show.check_known("grid", only, [table.grid for table in found])
    chosen = [table for table in found if not only or table.grid in only]
    results.give(chosen, csv, as_json, per_class)
    if not as_json:
        codes = known[sweep].codes
        listed = ", ".join(f"{table.grid} {codes[table.grid]}" for table in chosen)
        typer.echo(f"code version: {listed}")
