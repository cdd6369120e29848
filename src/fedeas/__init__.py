"""fedeas: who should generate how many synthetic samples of which class.

Every public name is here and is imported when it is first used: `import fedeas` loads nothing else.
`from fedeas import *` brings those that need no extra.

>>> from fedeas import FedEAS, LabelCounts
>>> counts = LabelCounts([[90, 10, 0], [30, 40, 30]])
>>> FedEAS(beta=12).plan(counts).samples
array([[ 0, 38, 48],
       [ 0,  0,  0]])
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedeas.augmentation import augment, report_real_num_examples
    from fedeas.augmentation.sampler import FedEASSampler as FedEASSampler
    from fedeas.cache import Cache
    from fedeas.cache.fill import fill
    from fedeas.counts.label_counts import LabelCounts
    from fedeas.counts.label_sets import LabelSetCounts
    from fedeas.data import Schema, load_images, load_table
    from fedeas.errors import FedeasError, InfeasibleError, InputError, MissingExtraError
    from fedeas.generators import Generator, make_generator
    from fedeas.partition import (
        IID,
        Dirichlet,
        FLBench,
        NaturalId,
        Partition,
        Shards,
        make_partition,
    )
    from fedeas.planning.beta import BetaChoice, choose_beta
    from fedeas.planning.comparison import Comparison, compare
    from fedeas.planning.cost import Cost
    from fedeas.planning.diagnosis import Diagnosis, diagnose
    from fedeas.planning.label_set_plan import LabelSetPlan, plan_label_sets
    from fedeas.planning.plan import Plan
    from fedeas.planning.planner import plan
    from fedeas.planning.policies import (
        EqualReduction,
        FedEAS,
        FullBalance,
        LocalPolicy,
        MissingOnly,
        NoGeneration,
        Policy,
        Uniform,
        WaterFill,
        make_policy,
    )
    from fedeas.planning.targets import Target
    from fedeas.plots.label_report import profile
    from fedeas.train.methods.method import Method as Method

__version__ = "0.4.0"

__all__ = [
    "IID",
    "BetaChoice",
    "Cache",
    "Comparison",
    "Cost",
    "Diagnosis",
    "Dirichlet",
    "EqualReduction",
    "FLBench",
    "FedEAS",
    "FedeasError",
    "FullBalance",
    "Generator",
    "InfeasibleError",
    "InputError",
    "LabelCounts",
    "LabelSetCounts",
    "LabelSetPlan",
    "LocalPolicy",
    "MissingExtraError",
    "MissingOnly",
    "NaturalId",
    "NoGeneration",
    "Partition",
    "Plan",
    "Policy",
    "Schema",
    "Shards",
    "Target",
    "Uniform",
    "WaterFill",
    "augment",
    "choose_beta",
    "compare",
    "diagnose",
    "fill",
    "load_images",
    "load_table",
    "make_generator",
    "make_partition",
    "make_policy",
    "plan",
    "plan_label_sets",
    "profile",
    "report_real_num_examples",
]

# Where the names are that need no extra.
_MODULES = {
    "errors": "FedeasError InfeasibleError InputError MissingExtraError",
    "planning.cost": "Cost",
    "counts.label_counts": "LabelCounts",
    "planning.targets": "Target",
    "planning.plan": "Plan",
    "planning.policies": "EqualReduction FedEAS FullBalance LocalPolicy MissingOnly NoGeneration "
    "Policy Uniform WaterFill make_policy",
    "planning.beta": "BetaChoice choose_beta",
    "planning.planner": "plan",
    "planning.diagnosis": "Diagnosis diagnose",
    "counts.label_sets": "LabelSetCounts",
    "planning.label_set_plan": "LabelSetPlan plan_label_sets",
    "planning.comparison": "Comparison compare",
    "plots.label_report": "profile",
    "partition": "IID Dirichlet FLBench Partition Shards NaturalId make_partition",
    "data": "Schema load_images load_table",
    "generators": "Generator make_generator",
    "cache": "Cache",
    "cache.fill": "fill",
    "augmentation": "augment report_real_num_examples",
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}
# Names that need an extra: where they are, and which extra.
_WITH_EXTRA = {
    "FedEASSampler": ("augmentation.sampler", "sampler"),
    "Method": ("train.methods.method", "train"),
}
_PACKAGES = {"train": ("torch", "safetensors"), "sampler": ("imblearn",)}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `fedeas --help` does not wait for NumPy."""
    if name in _WHERE:
        module = import_module(f"fedeas.{_WHERE[name]}")
    elif name in _WITH_EXTRA:
        part, extra = _WITH_EXTRA[name]
        import_extra = import_module("fedeas._internal.optional").import_extra
        module = import_extra(f"fedeas.{part}", f"fedeas.{name}", extra)
    else:
        raise AttributeError(f"module 'fedeas' has no attribute {name!r}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List what can be imported here: `help(fedeas)` looks at every name."""
    there = {extra for extra, packages in _PACKAGES.items() if all(map(find_spec, packages))}
    more = [name for name, (_, extra) in _WITH_EXTRA.items() if extra in there]
    return sorted({*globals(), *__all__, *more})
