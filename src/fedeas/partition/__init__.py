"""Who holds which samples: named, versioned recipes that split a data set into clients."""

from fedeas.partition.dirichlet import Dirichlet
from fedeas.partition.even import IID, Shards
from fedeas.partition.flbench import FLBench
from fedeas.partition.flower import from_partitioner, to_partitioner
from fedeas.partition.labels import balanced_labels, read_labels
from fedeas.partition.partition import IndexLists, Partition, Recipe
from fedeas.partition.recipes import make_recipe, site_column
from fedeas.partition.sites import SiteColumn

__all__ = [
    "IID",
    "Dirichlet",
    "FLBench",
    "IndexLists",
    "Partition",
    "Recipe",
    "Shards",
    "SiteColumn",
    "balanced_labels",
    "from_partitioner",
    "make_recipe",
    "read_labels",
    "site_column",
    "to_partitioner",
]
