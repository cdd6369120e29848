"""The name of the program that a run's numbers come from."""

import ast
import hashlib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_SOURCE = Path(__file__).parents[1]
# What shows and arranges runs; no number of a run passes through it.
_BESIDE = ("cli", "report", "comparison.py", "select.py", "stream.py", "__init__.py", "__main__.py")
_RUN = ("config.py", "run.py")  # of this room, what makes numbers
_LIBRARIES = ("numpy", "torch", "flwr", "diffusers")


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Name the code and the libraries: equal for equal programs, whatever their comments say."""
    digest = hashlib.sha256()
    for path in code_files():
        digest.update(f"{path.relative_to(_SOURCE).as_posix()}\n{_program(path)}\n".encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {library_version(library)}\n".encode())
    return digest.hexdigest()


def code_files() -> list[Path]:
    """Return the source files that a run's numbers can depend on."""
    found = []
    for path in sorted(_SOURCE.rglob("*.py")):
        room, *inner = path.relative_to(_SOURCE).parts
        if room not in _BESIDE and (room != "experiments" or inner[0] in _RUN):
            found.append(path)
    return found


def library_version(name: str) -> str:
    """Return the version of an installed package, or a dash."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _program(path: Path) -> str:
    """Return a module's code without comments, layout and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
