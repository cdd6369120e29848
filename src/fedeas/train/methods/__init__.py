"""What an FL method changes in local training and at the server; orthogonal to augmentation.

Methods by name: 'fedavg', 'fedprox(mu=0.01)', 'scaffold', ...
"""

from fedeas._internal.specs import Registry
from fedeas.errors import InputError
from fedeas.train.methods.method import (
    ClientContext,
    ClientUpdate,
    Method,
    RoundSummary,
)

__all__ = ["METHODS", "ClientContext", "ClientUpdate", "Method", "RoundSummary", "make_method"]

METHODS = Registry("method", "fedeas.methods")


def make_method(spec: str) -> Method:
    """Make a method from its name and settings.

    Only installed methods: clients make the method that a server names, and a
    dotted path would let it run any code there.

    >>> make_method("fedprox(mu=0.1)")
    FedProx(mu=0.1)
    """
    method = METHODS.make(spec, {}, by_owner=False)
    if not isinstance(method, Method):
        raise InputError(f"{spec!r} is not a method", allowed="a subclass of fedeas' Method")
    return method
