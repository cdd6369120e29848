"""The command line: `fedeas` and `python -m fedeas`, one module a command."""

import errno
import io
import os
import sys
from importlib.metadata import entry_points
from typing import Any

import typer

from fedeas.cli.cache import cache
from fedeas.cli.check import check
from fedeas.cli.compare import compare
from fedeas.cli.demo import demo
from fedeas.cli.fill import fill
from fedeas.cli.generator import generator
from fedeas.cli.generator_sample import sample_generator
from fedeas.cli.interrupt import HeardInterrupts
from fedeas.cli.members import members
from fedeas.cli.new import new
from fedeas.cli.own_generator import own_generator
from fedeas.cli.paper import paper
from fedeas.cli.partition import partition
from fedeas.cli.plan import plan
from fedeas.cli.privacy import privacy
from fedeas.cli.report import report
from fedeas.cli.run import run
from fedeas.cli.select import select
from fedeas.cli.sweep import sweep
from fedeas.cores import wait_without_spinning
from fedeas.errors import FedeasError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(partition)
app.command()(plan)
app.command()(compare)
app.command()(select)
app.command()(fill)
app.command()(run)
app.command()(sweep)
app.command()(report)
app.command()(check)
app.command()(privacy)
app.command()(demo)
app.command()(new)
generator.command("sample")(sample_generator)
generator.command("own")(own_generator)
app.add_typer(generator, name="generator")
app.add_typer(cache, name="cache")
app.add_typer(members, name="members")
app.add_typer(paper, name="paper")


def _version(wanted: bool) -> None:
    if wanted:
        from fedeas import __version__

        typer.echo(f"fedeas {__version__}")
        raise typer.Exit


@app.callback()
def fedeas(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """How many synthetic samples each client of a label-skewed federation should generate."""


_STOPPED = 130  # by Ctrl-C
_FIXES = {
    errno.EACCES: "choose a folder you can write to",
    errno.EROFS: "choose a writable folder",
    errno.ENOSPC: "free some space and run it again",
}
# The base of typer's own errors, click's ClickException: releases keep it in different places.
_BadUsage: Any = typer.BadParameter.__mro__[2]


def _add_installed_commands() -> None:
    """Add the commands of installed packages, unless a built-in one is called: a search is slow."""
    ours = {info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands}
    ours |= {group.name or "" for group in app.registered_groups}
    if not ours.intersection(sys.argv[1:2]):
        for point in entry_points(group="fedeas.commands"):
            if point.name not in ours:
                app.command(point.name)(point.load())


def main() -> None:
    """Run a command; an error in its input becomes one line and exit code 2."""
    wait_without_spinning()
    _add_installed_commands()
    if sys.stdout is None:  # closed: `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot encode is escaped instead of raising.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with HeardInterrupts():
            code = app(standalone_mode=False)
        sys.stdout.flush()
    except FedeasError as error:
        code = _fail(str(error))
    except _BadUsage as error:
        code = _fail(error.format_message())
    except BrokenPipeError:  # `fedeas ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except SystemExit as stop:
        # Typer turns a closed pipe into exit code 1 and wraps what is left of standard output.
        code = 0 if type(sys.stdout).__name__.endswith("PacifyFlushWrapper") else stop.code
    except OSError as error:  # a full disk, for example
        fix = _FIXES.get(error.errno or 0)
        said = f"{error.filename or 'output'}: {error.strerror}"
        code = _fail(f"{said}; {fix}" if fix else said)
    except MemoryError as error:
        said = f"out of memory ({error})" if str(error) else "out of memory"
        code = _fail(f"{said}; use less data at a time, or a machine with more memory")
    except (KeyboardInterrupt, typer.Abort):
        code = _STOPPED
    if code == _STOPPED:
        typer.echo("stopped", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    # Names come from untrusted files: escape what is not printable.
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.split()))
    if line:
        typer.echo(f"fedeas: {line}", err=True)
    return 2
