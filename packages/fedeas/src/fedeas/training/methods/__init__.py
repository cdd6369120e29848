"""What an FL method changes in local training and at the server; orthogonal to augmentation.

Methods by name: 'fedavg', 'fedprox(mu=0.01)', 'scaffold', ...
"""

from fedeas._util.specs import Registry
from fedeas.errors import InputError
from fedeas.training.methods.client_drift import FedProx, Moon, Scaffold
from fedeas.training.methods.fedgen import FedGen
from fedeas.training.methods.fedmix import FedMix
from fedeas.training.methods.logit_adjustment import ClassWeights, FedLC
from fedeas.training.methods.method import (
    ClientContext,
    ClientUpdate,
    FedAvg,
    Method,
    RoundSummary,
)

__all__ = ["METHODS", "ClientContext", "ClientUpdate", "Method", "RoundSummary", "make_method"]

METHODS = Registry(
    "method",
    "fedeas.methods",
    {
        "fedavg": FedAvg,
        "fedprox": FedProx,
        "scaffold": Scaffold,
        "moon": Moon,
        "fedgen": FedGen,
        "fedmix": FedMix,
        "class-weights": ClassWeights,
        "fedlc": FedLC,
    },
)


def make_method(spec: str) -> Method:
    """Make a method from its name and settings.

    Only built-in and installed methods: clients make the method that a server names, and a
    dotted path would let it run any code there.

    >>> make_method("fedprox(mu=0.1)")
    FedProx(mu=0.1)
    """
    method = METHODS.make(spec, {}, by_owner=False)
    if not isinstance(method, Method):
        raise InputError(f"{spec!r} is not a method", allowed="a subclass of fedeas' Method")
    return method
