"""Federated training on Flower: one algorithm, whatever the grid that carries its messages."""

from typing import TYPE_CHECKING

from fedeas._util.optional import lazy_names

if TYPE_CHECKING:
    from fedeas.flower.deployed import client_app
    from fedeas.flower.server import run_server

__all__ = ["client_app", "run_server"]
_MODULES = {"client_app": "deployed", "run_server": "server"}
__getattr__ = lazy_names(__name__, _MODULES)
