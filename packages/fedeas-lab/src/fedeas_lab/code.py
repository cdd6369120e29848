"""The hash of the code that a run's numbers come from."""

import ast
import hashlib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("fedeas", "fedeas_lab", "fedeas_private")
_ENTRY = "fedeas_lab.experiment"
# Reading, writing and messages: these modules do not affect any number.
_BESIDE = {
    "fedeas", "fedeas_lab", "fedeas_private", "fedeas.errors", "fedeas._util.files",
    "fedeas.planning.cost",
    "fedeas_lab.code", "fedeas_lab.results",
}  # fmt: skip
_LIBRARIES = ("numpy", "torch", "flwr", "diffusers")


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Hash the code and the versions of libraries; comments and docstrings do not count."""
    digest = hashlib.sha256()
    for module, program in sorted(_programs().items()):
        digest.update(f"{module}\n{program}\n".encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {library_version(library)}\n".encode())
    return digest.hexdigest()


def code_modules() -> list[str]:
    """Return the modules of this package that a run uses, directly or indirectly."""
    return sorted(_programs())


def _programs() -> dict[str, str]:
    """Return the code of these modules by their names; each is read once."""
    programs: dict[str, str] = {}
    waiting = [_ENTRY]
    while waiting:
        module = waiting.pop()
        if module not in programs and module not in _BESIDE:
            programs[module], used = _read(module)
            waiting += used
    return programs


def library_version(name: str) -> str:
    """Return the version of an installed package, or a dash."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _file(module: str) -> Path | None:
    root, *parts = module.split(".")
    folder = _folder(root) if root in _PACKAGES else None
    if folder is None:
        return None
    path = folder.joinpath(*parts)
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


@lru_cache(maxsize=len(_PACKAGES))
def _folder(package: str) -> Path | None:
    """Return the folder of a package, if it is installed."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _read(module: str) -> tuple[str, set[str]]:
    """Return a module's code without comments, layout and docstrings, and the modules it uses.

    Those are what it imports, at its top or later, or names to import later.
    """
    path = _file(module)
    tree = ast.parse(path.read_text(encoding="utf-8") if path else "")
    names: set[str] = set()
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # it grows; `ast.walk` is slower
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node, clean=False):
                node.body = node.body[1:] or [ast.Pass()]
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
        for value in vars(node).values():
            if isinstance(value, list):
                nodes += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                nodes.append(value)
    # A module comes with the packages above it.
    above = {name.rpartition(".")[0] for name in names if name.split(".")[0] in _PACKAGES}
    return ast.unparse(tree), {name for name in names | above if _file(name) is not None}
