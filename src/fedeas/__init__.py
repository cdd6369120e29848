"""fedeas: who should generate how many synthetic samples of which class.

Every public name is here and is imported when it is first used: `import fedeas` loads nothing else.
`from fedeas import *` brings those that need no extra.

>>> from fedeas import FedEAS, LabelCounts
>>> counts = LabelCounts([[90, 10, 0], [30, 40, 30]])
>>> FedEAS(beta=12).plan(counts).samples
array([[ 0, 38, 48],
       [ 0,  0,  0]])
"""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedeas.plotting import set_drawing

if TYPE_CHECKING:
    from fedeas.beta_choice import BetaChoice, choose_beta
    from fedeas.cache import Cache
    from fedeas.cache.fill import fill
    from fedeas.comparison import Comparison, compare
    from fedeas.cost import Cost
    from fedeas.counts import LabelCounts
    from fedeas.data import Schema, load_images, load_table
    from fedeas.diagnosis import Diagnosis, diagnose
    from fedeas.dropin import augment, real_examples_mod
    from fedeas.dropin.sampler import FedEASSampler as FedEASSampler
    from fedeas.errors import (
        FedeasError,
        FileAccessError,
        InfeasibleError,
        InputError,
        MissingExtraError,
    )
    from fedeas.experiments.run import run as run
    from fedeas.flower.deployed import make_deployed_app as make_deployed_app
    from fedeas.flower.negotiate import (
        class_prior as class_prior,
    )
    from fedeas.flower.negotiate import (
        negotiate_beta as negotiate_beta,
    )
    from fedeas.flower.negotiate import (
        negotiate_price as negotiate_price,
    )
    from fedeas.flower.queries import Holding as Holding
    from fedeas.flower.queries import answer_queries as answer_queries
    from fedeas.flower.server import serve as serve
    from fedeas.generators import Generator, make_generator
    from fedeas.methods.method import Method as Method
    from fedeas.partition import (
        IID,
        Dirichlet,
        FLBench,
        Partition,
        Shards,
        SiteColumn,
        from_partitioner,
        make_recipe,
        to_partitioner,
    )
    from fedeas.plan import Plan
    from fedeas.policies import (
        FedEAS,
        FillToMean,
        FullBalance,
        Greedy,
        LocalPolicy,
        MissingOnly,
        NoGeneration,
        Policy,
        Uniform,
        WaterFill,
        make_plan,
        make_policy,
    )
    from fedeas.privacy.ledger import Ledger
    from fedeas.privacy.secure_sum.identity import Identity as Identity
    from fedeas.privacy.secure_sum.identity import Members as Members
    from fedeas.select import BetaInterval, admissible_betas, beta_for_total
    from fedeas.settings.config import Config, read_config
    from fedeas.sources import Columns, read_counts
    from fedeas.stream import plan_stream
    from fedeas.targets import Target
    from fedeas.training.task import Task

__version__ = "0.2.0"

__all__ = [
    "IID",
    "BetaChoice",
    "BetaInterval",
    "Cache",
    "Columns",
    "Comparison",
    "Config",
    "Cost",
    "Diagnosis",
    "Dirichlet",
    "FLBench",
    "FedEAS",
    "FedeasError",
    "FileAccessError",
    "FillToMean",
    "FullBalance",
    "Generator",
    "Greedy",
    "InfeasibleError",
    "InputError",
    "LabelCounts",
    "Ledger",
    "LocalPolicy",
    "MissingExtraError",
    "MissingOnly",
    "NoGeneration",
    "Partition",
    "Plan",
    "Policy",
    "Schema",
    "Shards",
    "SiteColumn",
    "Target",
    "Task",
    "Uniform",
    "WaterFill",
    "admissible_betas",
    "augment",
    "beta_for_total",
    "choose_beta",
    "compare",
    "diagnose",
    "fill",
    "from_partitioner",
    "load_images",
    "load_table",
    "make_generator",
    "make_plan",
    "make_policy",
    "make_recipe",
    "plan_stream",
    "read_config",
    "read_counts",
    "real_examples_mod",
    "to_partitioner",
]

# Where the names are that need no extra.
_MODULES = {
    "errors": "FedeasError FileAccessError InfeasibleError InputError MissingExtraError",
    "cost": "Cost",
    "counts": "LabelCounts",
    "targets": "Target",
    "plan": "Plan",
    "policies": "FedEAS FillToMean FullBalance Greedy LocalPolicy MissingOnly NoGeneration Policy "
    "Uniform WaterFill make_plan make_policy",
    "select": "BetaInterval admissible_betas beta_for_total",
    "beta_choice": "BetaChoice choose_beta",
    "diagnosis": "Diagnosis diagnose",
    "comparison": "Comparison compare",
    "stream": "plan_stream",
    "privacy.ledger": "Ledger",
    "partition": "IID Dirichlet FLBench Partition Shards SiteColumn from_partitioner make_recipe "
    "to_partitioner",
    "sources": "Columns read_counts",
    "data": "Schema load_images load_table",
    "training.task": "Task",
    "generators": "Generator make_generator",
    "cache": "Cache fill",
    "dropin": "augment real_examples_mod",
    "settings.config": "Config read_config",
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}
# Names that need an extra: where they are, and which extra.
_WITH_EXTRA = {
    "FedEASSampler": ("dropin.sampler", "imbalanced"),
    "Holding": ("flower.queries", "train"),
    "Identity": ("privacy.secure_sum.identity", "privacy"),
    "Members": ("privacy.secure_sum.identity", "privacy"),
    "Method": ("methods.method", "torch"),
    "answer_queries": ("flower.queries", "train"),
    "class_prior": ("flower.negotiate", "train"),
    "make_deployed_app": ("flower.deployed", "train"),
    "negotiate_beta": ("flower.negotiate", "train"),
    "negotiate_price": ("flower.negotiate", "train"),
    "run": ("experiments.run", "train"),
    "serve": ("flower.server", "train"),
}
_PACKAGES = {
    "torch": ("torch", "safetensors"),
    "train": ("torch", "flwr", "cryptography"),
    "privacy": ("cryptography", "dp_accounting"),
    "imbalanced": ("imblearn",),
}


# This is a library: the application decides which logs are shown.
logging.getLogger("fedeas").addHandler(logging.NullHandler())
set_drawing(lambda: import_module("fedeas.report.objects").figure_of)


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `fedeas --help` does not wait for NumPy."""
    if name in _WHERE:
        module = import_module(f"fedeas.{_WHERE[name]}")
    elif name in _WITH_EXTRA:
        part, extra = _WITH_EXTRA[name]
        heavy = import_module("fedeas.generators.generator").heavy
        module = heavy(f"fedeas.{part}", f"fedeas.{name}", extra)
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
