"""`fedeas check`: whether a site is ready for a run."""

from pathlib import Path
from typing import Any

import typer

from fedeas.cli import show
from fedeas.errors import InputError


def check(
    site: Path = typer.Argument(..., metavar="SITE", help="The site's configuration, site.toml."),
    run: Path | None = typer.Option(
        None,
        "--run",
        help="A run's configuration, to compare: run.toml, or the app's pyproject.toml.",
    ),
) -> None:
    """Look for mistakes in a site's configuration before a run: data, keys, generator, budget.

    Opens everything as the site will, and sends nothing. The exit code is 2 if anything is wrong.

    Example: `fedeas check site.toml`
    """
    from fedeas._internal.optional import import_extra

    checks: Any = import_extra("fedeas.private.flower.site_check", "a site", "train")
    from fedeas._internal.settings import read_settings
    from fedeas.private.flower.site_config import RunConfig, SiteConfig

    config = read_settings(SiteConfig, site)
    wanted = None if run is None else read_settings(RunConfig, _run_settings(run), str(run))
    typer.echo(f"site {config.partition_id}: {site}")
    wrong = 0
    for found in checks.check_site(config, wanted):
        wrong += found.wrong
        verdict = "wrong" if found.wrong else "note" if found.doubtful else "ok"
        typer.echo(f"{verdict:<7}{found.what:<11}{_line(found.said)}")
    if wrong:
        show.note(f"{show.count_of(wrong, 'problem')}: this site would refuse a run")
        raise typer.Exit(2)


def _run_settings(path: Path) -> dict[str, Any]:
    """Read a run's settings, from a file of their own or from that of the app."""
    from fedeas._internal.files import read_toml

    content = read_toml(path)
    if "tool" not in content:
        return content
    try:
        found: dict[str, Any] = content["tool"]["flwr"]["app"]["config"]
    except (KeyError, TypeError):
        raise InputError(f"{path} has no [tool.flwr.app.config]") from None
    return found


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
