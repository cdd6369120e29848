"""Imports that wait: of what only an extra installs, and of public names on first use."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from fedeas.errors import MissingExtraError


def import_extra(module: str, purpose: str, extra: str) -> Any:
    """Import a module that needs an extra, or raise an error that names the extra."""
    wait_without_spinning()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:  # not one that is there and broken
        missing = error.name or ""
        if missing.partition(".")[0] == "fedeas":
            raise
        raise MissingExtraError(purpose, extra) from error


def wait_without_spinning() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user says otherwise.

    PyTorch's threads otherwise spin at every barrier. Next to other work they spin while the thread
    they wait for has no core: a fill on a busy machine took five times as long. The setting has an
    effect only before PyTorch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def lazy_names(package: str, where: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package whose names are in the modules of `where`."""

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{where[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
