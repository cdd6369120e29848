"""Methods by name: 'fedavg', 'fedprox(mu=0.01)', 'scaffold', ..."""

from fedeas.errors import InputError
from fedeas.methods.fedgen import FedGen
from fedeas.methods.fedmix import FedMix
from fedeas.methods.fedprox import FedProx
from fedeas.methods.method import FedAvg, Method
from fedeas.methods.moon import Moon
from fedeas.methods.scaffold import Scaffold
from fedeas.specs import Registry

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
    },
)


def make_method(spec: str) -> Method:
    """Make a method from its name and settings.

    >>> make_method("fedprox(mu=0.1)")
    FedProx(mu=0.1)
    """
    method = METHODS.make(spec, {})
    if not isinstance(method, Method):
        raise InputError(f"{spec!r} is no method", allowed="a subclass of fedeas' Method")
    return method
