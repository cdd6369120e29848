"""fedeas: who should generate how many synthetic samples of which class.

>>> from fedeas import FedEAS, LabelCounts
>>> counts = LabelCounts([[90, 10, 0], [30, 40, 30]])
>>> FedEAS(beta=12).plan(counts).samples
array([[ 0, 38, 48],
       [ 0,  0,  0]])
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedeas.comparison import Comparison, compare
    from fedeas.cost import Cost
    from fedeas.counts import LabelCounts
    from fedeas.dropin import augment, real_examples_mod
    from fedeas.errors import FedeasError, InfeasibleError, InputError, MissingExtraError
    from fedeas.partition import IID, Dirichlet, FLBench, Partition, Shards
    from fedeas.plan import Plan
    from fedeas.policies import (
        FedEAS,
        FillToMean,
        FullBalance,
        Greedy,
        MissingOnly,
        NoGeneration,
        Uniform,
        WaterFill,
    )
    from fedeas.select import BetaInterval, admissible_betas, beta_for_total

__version__ = "0.1.0"

__all__ = [
    "IID",
    "BetaInterval",
    "Comparison",
    "Cost",
    "Dirichlet",
    "FLBench",
    "FedEAS",
    "FedeasError",
    "FillToMean",
    "FullBalance",
    "Greedy",
    "InfeasibleError",
    "InputError",
    "LabelCounts",
    "MissingExtraError",
    "MissingOnly",
    "NoGeneration",
    "Partition",
    "Plan",
    "Shards",
    "Uniform",
    "WaterFill",
    "admissible_betas",
    "augment",
    "beta_for_total",
    "compare",
    "real_examples_mod",
]

_ROOMS = (
    "errors",
    "cost",
    "counts",
    "plan",
    "policies",
    "select",
    "comparison",
    "partition",
    "dropin",
)


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that `fedeas --help` does not wait for NumPy."""
    if name in __all__:
        for room in _ROOMS:
            module = import_module(f"fedeas.{room}")
            if name in vars(module):
                value: object = vars(module)[name]
                globals()[name] = value
                return value
    raise AttributeError(f"module 'fedeas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
