"""The commands together: `fedeas` and `python -m fedeas`."""

import errno
import io
import os
import re
import sys
from typing import Any

import typer

from fedeas._internal.optional import wait_without_spinning
from fedeas.cli.cache import cache
from fedeas.cli.check import check
from fedeas.cli.compare import compare
from fedeas.cli.counts import counts
from fedeas.cli.demo import demo
from fedeas.cli.export import export
from fedeas.cli.fill import fill
from fedeas.cli.generator_federated import train_federated
from fedeas.cli.generator_private import private_generator
from fedeas.cli.generator_report import report_quality
from fedeas.cli.generator_sample import sample_generator
from fedeas.cli.generator_train import train_generator
from fedeas.cli.init import init
from fedeas.cli.keys import keys
from fedeas.cli.ledger import ledger
from fedeas.cli.partition import partition
from fedeas.cli.plan import plan
from fedeas.cli.profile import profile
from fedeas.cli.report import report
from fedeas.cli.run import run
from fedeas.cli.sweep import sweep
from fedeas.errors import FedeasError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    counts, plan, profile, compare, partition, fill, export, init, run, sweep, report, demo, check,
    ledger,
):  # fmt: skip
    app.command()(command)
generator = typer.Typer(no_args_is_help=True, help="Train, sample and judge generators.")
generator.command("train")(train_generator)
generator.command("federated")(train_federated)
generator.command("private")(private_generator)
generator.command("sample")(sample_generator)
generator.command("report")(report_quality)
app.add_typer(generator, name="generator")
app.add_typer(cache, name="cache")
app.add_typer(keys, name="keys")


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


def main() -> None:
    """Run `fedeas`."""
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
    # Typer suggests a command, and click does so again.
    return re.sub(r"( Did you mean [^?]*\?)\1", r"\1", message)


def _fail(message: str) -> int:
    # Names come from untrusted files: escape what is not printable.
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.split()))
    if line:
        typer.echo(f"fedeas: {line}", err=True)
    return 2
