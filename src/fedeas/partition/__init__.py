"""Who holds which samples: named, versioned recipes that split a data set into clients."""

from fedeas.partition.partition import IndexLists, Partition, Recipe
from fedeas.partition.recipes import (
    IID,
    Dirichlet,
    FLBench,
    NaturalId,
    Shards,
    make_partition,
    site_column,
)

__all__ = [
    "IID",
    "Dirichlet",
    "FLBench",
    "IndexLists",
    "NaturalId",
    "Partition",
    "Recipe",
    "Shards",
    "make_partition",
    "site_column",
]
