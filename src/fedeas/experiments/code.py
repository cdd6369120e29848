"""The hash of the code that a run's numbers come from."""

import ast
import hashlib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_ENTRY = "fedeas.experiments.run"
# Reading, writing and messages: these modules do not affect any number.
_BESIDE = {
    "fedeas", "fedeas.errors", "fedeas.limits", "fedeas.files", "fedeas.locks", "fedeas.hub",
    "fedeas.cost", "fedeas.cache.verify", "fedeas.experiments.code", "fedeas.experiments.results",
    "fedeas.experiments.shapes", "fedeas.experiments.tracking",
}  # fmt: skip
_LIBRARIES = ("numpy", "torch", "flwr", "diffusers")


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Hash the code and the versions of libraries; comments and docstrings do not count."""
    digest = hashlib.sha256()
    for module, program in sorted(_programs().items()):
        digest.update(f"{module}\n{ast.unparse(program)}\n".encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {library_version(library)}\n".encode())
    return digest.hexdigest()


def code_modules() -> list[str]:
    """Return the modules of this package that a run uses, directly or indirectly."""
    return sorted(_programs())


def _programs() -> dict[str, ast.Module]:
    """Return the code of these modules by their names; each is read once."""
    found: dict[str, ast.Module] = {}
    waiting = [_ENTRY]
    while waiting:
        module = waiting.pop()
        if module not in found and module not in _BESIDE:
            found[module] = _program(module)
            waiting += _used(found[module])
    return found


def library_version(name: str) -> str:
    """Return the version of an installed package, or a dash."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _used(program: ast.Module) -> set[str]:
    """Return the modules that a module imports, at its top or later, or names to import later."""
    names: set[str] = set()
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    # A module comes with the packages above it.
    above = {name.rpartition(".")[0] for name in names if name.startswith("fedeas.")}
    return {name for name in names | above if _file(name) is not None}


def _file(module: str) -> Path | None:
    root, *parts = module.split(".")
    if root != "fedeas":
        return None
    path = _PACKAGE.joinpath(*parts)
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


def _program(module: str) -> ast.Module:
    """Return a module's code without comments, layout and docstrings."""
    path = _file(module)
    tree = ast.parse(path.read_text(encoding="utf-8") if path else "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree
