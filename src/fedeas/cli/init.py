"""`fedeas init`: a Flower app to start from."""

import shutil
from pathlib import Path

import typer

from fedeas.cli import show
from fedeas.errors import InputError

# In a wheel the examples are part of the package; a checkout has them in its root.
_EXAMPLES = (Path(__file__).parents[1] / "examples", Path(__file__).parents[3] / "examples")


def init(
    folder: Path = typer.Argument(..., metavar="FOLDER", help="A folder that does not exist yet."),
) -> None:
    """Write Flower's PyTorch quick start, and the two-line patch that adds fedeas to it.

    Example: `fedeas init quickstart`
    """
    source = next((path for path in _EXAMPLES if (path / "quickstart").is_dir()), None)
    if source is None:
        raise InputError("this installation has no examples", fix="install fedeas from a wheel")
    if folder.exists():
        raise InputError(f"{folder} exists already", fix="name a new folder")
    try:
        shutil.copytree(source / "quickstart", folder, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None
    typer.echo(f"wrote {folder}: Flower's PyTorch quick start, and fedeas.patch")
    show.note(
        f"next: cd {folder}; patch -p1 < fedeas.patch; "
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run . --stream "
        "--federation-config num-supernodes=10"
    )
