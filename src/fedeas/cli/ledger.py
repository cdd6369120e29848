"""`fedeas ledger`: what a site's answers have cost, and what is left."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedeas.private import Ledger
    from fedeas.private.ledger import LedgerEntry

_ALTERNATIVES = "pass the site's site.toml, or `ledger` in its state folder"


def ledger(
    path: Path = typer.Argument(
        ..., metavar="LEDGER", help="A site's configuration (site.toml), or the ledger's folder."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Show what a site has spent of its privacy budget: on what, when, in which run.

    The budget is that of site.toml; for a folder, that of the last answer.

    Example: `fedeas ledger site.toml`
    """
    from fedeas._internal.optional import import_extra

    accounting = import_extra("fedeas.private.accounting", "the privacy ledger", "private")
    account = _open(path)
    entries = account.entries
    added, replaced = account.epsilon_spent, account.epsilon_spent_replaced
    unit, unit_replaced = accounting.ADDED[account.unit], accounting.REPLACED[account.unit]
    if as_json:
        amounts = {
            "unit": unit, "group": account.group, "epsilon": account.epsilon,
            "delta": account.delta, "epsilon_spent": added, "unit_replaced": unit_replaced,
            "epsilon_spent_replaced": replaced, "rho": account.budget,
            "rho_spent": account.spent, "rho_left": account.left,
        }  # fmt: skip
        show.print_json({**amounts, "answers": [entry._asdict() for entry in entries]})
        return
    if entries:
        _print_entries(entries, account.budget)
    else:
        typer.echo("no answers yet")
    spent, budget = account.spent, account.budget
    typer.echo(
        f"spent: epsilon {added:.3g} of {account.epsilon:g} at delta {account.delta:g} "
        f"(rho {spent:.4g} of {budget:.4g}, {show.percent(spent / budget)})"
    )
    if spent > budget:
        typer.echo("left:  nothing; more was spent before the budget was lowered")
    else:
        typer.echo(f"left:  rho {account.left:.4g} ({show.percent(account.left / budget)})")
    typer.echo(f"Epsilon {added:.3g} is the privacy of {unit}.")
    if account.group:
        typer.echo(f"A group is all samples with the same {account.group}.")
    typer.echo(
        f"Servers know how many {account.unit}s there are; then it is that of {unit_replaced}: "
        f"epsilon {replaced:.3g}."
    )
    typer.echo("Percentages are of rho: costs add up in rho, while epsilon grows more slowly.")


def _print_entries(entries: "Sequence[LedgerEntry]", budget: float) -> None:
    """Print a line for every answer; servers only where they are known."""
    servers = any(entry.server not in ("", entry.run) for entry in entries)
    table = show.new_table(
        show.count_of(len(entries), "answer"), ("when (UTC)", False), ("query", False),
        *([("server", False)] if servers else []), ("run", False), ("rho", True),
        ("of the budget's rho", True),
    )  # fmt: skip
    for entry in entries:
        when = entry.time.partition("+")[0].replace("T", " ")
        cost = [f"{entry.rho:.4g}", show.percent(entry.rho / budget)]
        table.add_row(when, entry.query, *([entry.server] if servers else []), entry.run, *cost)
    show.print_table(table)


def _open(path: Path) -> "Ledger":
    """Open the ledger that a site's configuration names, or the one in a folder."""
    from fedeas.private import Ledger
    from fedeas.private.flower.site_config import LEDGER_FOLDER, SiteConfig

    if path.is_file():
        from fedeas._internal.settings import read_settings

        site = read_settings(SiteConfig, path)
        return site.open_ledger()
    if not path.exists():
        raise InputError(f"there is no {path}", fix=_ALTERNATIVES)
    account = Ledger.reopen(path)
    if not account.exists():
        # Of a folder that holds something else, "nothing spent" would be a wrong answer.
        inside = path / LEDGER_FOLDER
        fix = f"pass {inside}" if Ledger.open(inside).exists() else _ALTERNATIVES
        raise InputError(f"no ledger in {path}", fix=fix)
    return account
