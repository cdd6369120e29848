"""Partitions to and from flwr-datasets: a partitioner becomes a `Partition`, and the reverse."""

from functools import lru_cache
from importlib.metadata import version as package_version
from typing import Any

import numpy as np

from fedeas.errors import InputError, MissingExtraError
from fedeas.partition.partition import IndexLists, Partition, check_labels, hash_labels

_INDEX = "__fedeas_index__"


def from_partitioner(partitioner: Any, dataset: Any, label: str = "label") -> Partition:
    """Split a Hugging Face data set with a fresh flwr-datasets partitioner.

    The partitioner's class and version become the recipe's name. For label counts, call
    `Partition.counts(dataset[label])` on the result.

    Parameters
    ----------
    partitioner : flwr_datasets.partitioner.Partitioner
        One that has no data set yet.
    dataset : datasets.Dataset
        The data set to split.
    label : str
        The column of the label.
    """
    Dataset, Partitioner = _classes()
    if not isinstance(partitioner, Partitioner) or not isinstance(dataset, Dataset):
        raise InputError(
            "not a partitioner and a data set",
            got=(type(partitioner).__name__, type(dataset).__name__),
            allowed="a flwr_datasets Partitioner and a datasets.Dataset",
        )
    if partitioner.is_dataset_assigned():
        raise InputError("the partitioner has a data set already", fix="give a fresh partitioner")
    if label not in dataset.column_names:
        raise InputError("no such column", got=label, allowed=", ".join(dataset.column_names))
    labels = check_labels(np.asarray(dataset[label]))
    partitioner.dataset = dataset.add_column(_INDEX, np.arange(len(dataset)))
    lists = [
        np.asarray(partitioner.load_partition(k)[_INDEX]) for k in range(partitioner.num_partitions)
    ]
    return Partition(
        IndexLists.of(lists),
        hash_labels(labels),
        len(labels),
        int(labels.max()) + 1,
        f"flwr-datasets/{type(partitioner).__name__}@{package_version('flwr-datasets')}",
        {},
    )


def to_partitioner(partition: Partition, label: str = "label", *, test: bool = False) -> Any:
    """Return a flwr-datasets partitioner that splits a data set as this partition does.

    Give it to a `FederatedDataset` with `shuffle=False`, or set its `dataset`: a data set with
    other labels, or in another order, is refused when a client's part is loaded.

    Parameters
    ----------
    partition : Partition
        Who holds which samples.
    label : str
        The column of the labels, by which the data set is recognised.
    test : bool
        Whether clients get their test parts instead of their training parts.

    """
    lists = partition.test if test else partition.train
    if lists is None:
        raise InputError(f"recipe {partition.recipe} has no test part")
    return _fixed_partitioner()(lists, partition.labels_hash, label)


@lru_cache(maxsize=1)
def _fixed_partitioner() -> Any:
    """Define the class of `to_partitioner`: its base is imported with the optional package."""
    _, Partitioner = _classes()

    class FixedPartitioner(Partitioner):  # type: ignore[misc, valid-type]
        """Gives clients the samples that a `Partition` lists."""

        def __init__(self, lists: IndexLists, labels_hash: str, label: str) -> None:
            super().__init__()
            self._lists, self._labels_hash, self._label = lists, labels_hash, label
            self._checked = False

        @property
        def num_partitions(self) -> int:
            """The number of clients."""
            return len(self._lists)

        def load_partition(self, partition_id: int) -> Any:
            """Return the samples of a client."""
            if not self._checked:
                self._check()
                self._checked = True
            return self.dataset.select(self._lists[partition_id])

        def _check(self) -> None:
            if self._label not in (columns := self.dataset.column_names):
                raise InputError("no such column", got=self._label, allowed=", ".join(columns))
            labels = check_labels(np.asarray(self.dataset[self._label]))
            if hash_labels(labels) != self._labels_hash:
                raise InputError(
                    "not the data set that was partitioned, or in another order",
                    fix="use FederatedDataset(..., shuffle=False)",
                )

    return FixedPartitioner


def _classes() -> tuple[Any, Any]:
    try:
        from datasets import Dataset
        from flwr_datasets.partitioner import Partitioner
    except ModuleNotFoundError:
        raise MissingExtraError("a flwr-datasets partitioner", "flower") from None
    return Dataset, Partitioner
