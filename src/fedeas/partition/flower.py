"""Partitions from flwr-datasets: any of its partitioners becomes a `Partition`."""

from importlib.metadata import version as package_version
from typing import Any

import numpy as np

from fedeas.errors import InputError, MissingExtraError
from fedeas.partition.partition import IndexLists, Partition, check_labels, hash_labels

_INDEX = "__fedeas_index__"


def from_partitioner(partitioner: Any, dataset: Any, label: str = "label") -> Partition:
    """Cut a Hugging Face data set with a fresh flwr-datasets partitioner.

    The partitioner's own class and version are the recipe's name, so nothing is hidden. Use
    `Partition.counts(dataset[label])` to go on.
    """
    try:
        from datasets import Dataset
        from flwr_datasets.partitioner import Partitioner
    except ImportError:
        raise MissingExtraError("a flwr-datasets partitioner", "flower") from None
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
