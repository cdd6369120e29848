"""Federated training on Flower: one algorithm, whatever the grid that carries its messages."""

from typing import TYPE_CHECKING

from fedeas._internal.optional import lazy_names

if TYPE_CHECKING:
    from fedeas.train.flower.deployed import client_app
    from fedeas.train.flower.server import run_server

__all__ = ["client_app", "run_server"]
_MODULES = {"client_app": "deployed", "run_server": "server"}
__getattr__ = lazy_names(__name__, _MODULES)
