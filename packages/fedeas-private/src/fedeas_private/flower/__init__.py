"""Secure sums, queries and the private generator as Flower messages."""

from typing import TYPE_CHECKING

from fedeas._util.optional import lazy_names

if TYPE_CHECKING:
    from fedeas_private.flower.deployed import client_app
    from fedeas_private.flower.server import run_server

__all__ = ["client_app", "run_server"]
_MODULES = {"client_app": "deployed", "run_server": "server"}
__getattr__ = lazy_names(__name__, _MODULES)
