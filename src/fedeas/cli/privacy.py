"""`fedeas privacy`: what a site's answers have cost, and what is left."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import Ledger


def privacy(
    ledger: Path = typer.Argument(
        ..., metavar="LEDGER", help="A site's configuration (site.toml), or the ledger's folder."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Show what a site has spent of its privacy budget: on what, when, for which server and run.

    The budget is that of site.toml; for a folder, that of the last answer.

    Example: `fedeas privacy site.toml`
    """
    from fedeas.generators.generator import heavy

    unit: str = heavy("fedeas.privacy.accounting", "the privacy ledger", "privacy").UNIT
    found = _open(ledger)
    entries = found.entries
    if as_json:
        amounts = {
            "unit": unit, "epsilon": found.epsilon, "delta": found.delta,
            "epsilon_spent": found.epsilon_spent, "rho": found.budget,
            "rho_spent": found.spent, "rho_left": found.left,
        }  # fmt: skip
        show.print_json({**amounts, "answers": [entry._asdict() for entry in entries]})
        return
    if entries:
        table = show.new_table(
            show.count_of(len(entries), "answer"), ("when (UTC)", False), ("query", False),
            ("server", False), ("run", False), ("rho", True), ("of budget", True),
        )  # fmt: skip
        for entry in entries:
            when = entry.time.partition("+")[0].replace("T", " ")
            cost = [f"{entry.rho:.4g}", show.percent(entry.rho / found.budget)]
            table.add_row(when, entry.query, entry.server, entry.run, *cost)
        show.print_table(table)
    else:
        typer.echo("no answers yet")
    part = found.spent / found.budget
    typer.echo(
        f"spent: {show.percent(part)} of the budget, epsilon {found.epsilon_spent:.3g} of "
        f"{found.epsilon:g} at delta {found.delta:g}"
    )
    typer.echo(f"left:  {show.percent(max(0.0, 1 - part))} (rho {found.left:.4g})")
    typer.echo(f"Epsilon is the privacy of {unit}.")


def _open(path: Path) -> "Ledger":
    """Open the ledger that a site's configuration names, or the one in a folder."""
    from fedeas import Ledger

    if path.is_file():
        from fedeas.settings.deployment import SiteConfig
        from fedeas.settings.reading import read_settings

        site = read_settings(SiteConfig, path)
        return Ledger.open(site.ledger_folder, site.epsilon, site.delta)
    if not path.is_dir():
        raise InputError(
            f"no ledger in {path}", fix="pass the site's site.toml, or `ledger` in its state folder"
        )
    found = Ledger.open(path)
    for last in found.entries[-1:]:
        return Ledger.open(path, last.epsilon, last.delta)
    return found
