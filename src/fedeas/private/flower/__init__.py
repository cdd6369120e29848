"""Secure sums, queries and the private generator as Flower messages."""

from typing import TYPE_CHECKING

from fedeas._internal.optional import lazy_names

if TYPE_CHECKING:
    from fedeas.private.flower.deployed import client_app
    from fedeas.private.flower.server import run_server

__all__ = ["client_app", "run_server"]
_MODULES = {"client_app": "deployed", "run_server": "server"}
__getattr__ = lazy_names(__name__, _MODULES)
