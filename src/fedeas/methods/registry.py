"""Methods by name: 'fedavg', 'fedprox(mu=0.01)', 'scaffold', ..."""

from fedeas.errors import InputError
from fedeas.methods.class_weights import ClassWeights
from fedeas.methods.fedgen import FedGen
from fedeas.methods.fedlc import FedLC
from fedeas.methods.fedmix import FedMix
from fedeas.methods.fedprox import FedProx
from fedeas.methods.fedrs import FedRS
from fedeas.methods.fedvls import FedVLS
from fedeas.methods.method import FedAvg, Method
from fedeas.methods.moon import Moon
from fedeas.methods.scaffold import Scaffold
from fedeas.specs import Registry, parse

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
        "fedrs": FedRS,
        "fedvls": FedVLS,
    },
)


def make_method(spec: str) -> Method:
    """Make a method from its name and settings.

    Only built-in and installed methods: clients make the method that a server names, and a
    dotted path would let it run any code there.

    >>> make_method("fedprox(mu=0.1)")
    FedProx(mu=0.1)
    """
    if ":" in parse(spec, "method")[0]:
        raise InputError("a method by dotted path", got=spec, allowed="an installed method's name")
    method = METHODS.make(spec, {})
    if not isinstance(method, Method):
        raise InputError(f"{spec!r} is not a method", allowed="a subclass of fedeas' Method")
    return method
