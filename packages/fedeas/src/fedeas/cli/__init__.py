"""The command line: `fedeas` and `python -m fedeas`, one module a command."""

import errno
import io
import os
import re
import sys
from importlib.metadata import entry_points
from typing import Any

import typer

from fedeas._util.optional import wait_without_spinning
from fedeas.cli.cache import cache
from fedeas.cli.compare import compare
from fedeas.cli.counts import counts
from fedeas.cli.fill import fill
from fedeas.cli.generator import generator
from fedeas.cli.generator_sample import sample_generator
from fedeas.cli.init import init
from fedeas.cli.partition import partition
from fedeas.cli.plan import plan
from fedeas.cli.profile import profile
from fedeas.errors import FedeasError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(partition)
app.command()(counts)
app.command()(plan)
app.command()(profile)
app.command()(compare)
app.command()(fill)
app.command()(init)
generator.command("sample")(sample_generator)
app.add_typer(generator, name="generator")
app.add_typer(cache, name="cache")


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


def add_installed_commands() -> None:
    """Add the commands of installed packages; `generator.private` goes into a group."""
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    broken: dict[str, Exception] = {}
    for point in entry_points(group="fedeas.commands"):
        group, _, name = point.name.rpartition(".")
        place = groups.get(group) if group else app
        if place is None or name in _command_names(place):
            continue
        try:
            command = point.load()
        except Exception as error:  # it may be broken in any way
            broken.setdefault(point.dist.name if point.dist else point.value, error)
            continue
        if isinstance(command, typer.Typer):
            place.add_typer(command, name=name)
        else:
            place.command(name)(command)
    for package, reason in broken.items():
        _fail(f"{package} is broken, its commands are left out: {reason}; install it again")


def _command_names(group: typer.Typer) -> set[str]:
    return _functions(group) | {str(inner.name) for inner in group.registered_groups}


def _functions(group: typer.Typer) -> set[str]:
    commands = group.registered_commands
    return {str(each.name or getattr(each.callback, "__name__", "")) for each in commands}


_COMMANDS_OF_EXTRAS = {"lab": "run sweep report demo", "private": "check keys ledger"}


def main() -> None:
    """Run `fedeas`; commands of other packages are searched for only if one may be meant."""
    if not _functions(app).intersection(sys.argv[1:2]):
        add_installed_commands()
    run_app(app)


def run_app(app: typer.Typer) -> None:
    """Run a command; an error in its input becomes one line and exit code 2."""
    wait_without_spinning()
    if sys.stdout is None:  # closed: `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot encode is escaped instead of raising.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except FedeasError as error:
        code = _fail(str(error))
    except _BadUsage as error:
        code = _fail(_with_advice(error.format_message()))
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


def _with_advice(message: str) -> str:
    message = re.sub(r"( Did you mean [^?]*\?)\1", r"\1", message)  # typer's, and click's again
    unknown = re.match(r"No such command '?([\w-]+)", message)
    for extra, commands in _COMMANDS_OF_EXTRAS.items():
        if unknown and unknown[1] in commands.split():
            return f'{unknown[1]!r} is a command of fedeas[{extra}]: pip install "fedeas[{extra}]"'
    return message


def _fail(message: str) -> int:
    # Names come from untrusted files: escape what is not printable.
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.split()))
    if line:
        typer.echo(f"fedeas: {line}", err=True)
    return 2
