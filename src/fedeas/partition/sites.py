"""Clients as they are: the sites that a column of the data names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedeas.errors import InputError
from fedeas.partition.partition import Partition, check_labels


@dataclass(frozen=True)
class SiteColumn:
    """Give every site of a column what it has, however little that is.

    Parameters
    ----------
    column : str
        The column's name.

    >>> recipe = SiteColumn("state")
    >>> recipe.partition([0, 1, 1], ["WY", "CA", "CA"]).clients
    ('CA', 'WY')
    """

    name: ClassVar[str] = "column"
    version: ClassVar[int] = 1
    column: str

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column.strip():
            raise InputError("not a column", got=self.column, allowed="column(NAME)")

    def partition(self, labels: ArrayLike, sites: Sequence[str] | None = None) -> Partition:
        """Split a data set, given the label and the site of every sample."""
        y = check_labels(labels)
        if sites is None:
            raise InputError(
                f"column({self.column}) needs the site of every sample",
                fix=f"name it in a config, or plan with `fedeas plan FILE --by {self.column}`",
            )
        if len(sites) != len(y):
            raise InputError("labels and sites differ in number", got=(len(y), len(sites)))
        found, codes = np.unique(np.asarray(sites, dtype=str), return_inverse=True)
        by_site = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        names = found.tolist()
        if all(name.isascii() and name.isdecimal() for name in names):  # 2 comes before 10
            order = sorted(range(len(names)), key=lambda k: int(names[k]))
        else:
            order = list(range(len(names)))
        clients = tuple(names[k] for k in order)
        return Partition.of([by_site[k] for k in order], y, self, clients=clients)
