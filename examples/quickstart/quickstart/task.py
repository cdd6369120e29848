"""The model, the data, and local training."""

import os
from functools import cache

import numpy as np
import torch
from datasets import load_dataset
from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import DirichletPartitioner
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5)
        self.conv2 = nn.Conv2d(8, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        """Return the scores of the ten classes."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def apply_transforms(batch):
    """Turn pictures into tensors of mean 0 and deviation 1, about."""
    pixels = [np.asarray(image, np.float32) / 255 for image in batch["image"]]
    batch["image"] = [torch.from_numpy((x - 0.286) / 0.353).unsqueeze(0) for x in pixels]
    return batch


def source():
    """Return where the data is: Parquet below FEDEAS_DATA, or the Hugging Face hub."""
    if folder := os.environ.get("FEDEAS_DATA"):
        parts = {part: f"{folder}/fashion_mnist/{part}-*.parquet" for part in ("train", "test")}
        return {"path": "parquet", "data_files": parts}
    return {"path": "zalando-datasets/fashion_mnist"}


@cache
def federated_dataset(num_partitions, num_samples, alpha):
    """Share out the first samples of the training set; once a process."""

    def shorten(parts):
        train = parts["train"]
        return {**parts, "train": train.select(range(min(num_samples, len(train))))}

    partitioner = DirichletPartitioner(num_partitions, partition_by="label", alpha=alpha)
    where = source()
    return FederatedDataset(
        dataset=where.pop("path"),
        partitioners={"train": partitioner},
        preprocessor=shorten,
        **where,
    )


def load_data(partition_id, num_partitions, num_samples, alpha, batch_size):
    """Return a client's part for training and for testing."""
    dataset = federated_dataset(num_partitions, num_samples, alpha)
    partition = dataset.load_partition(partition_id)
    parts = partition.train_test_split(test_size=0.2, seed=42)
    train, test = parts["train"], parts["test"]
    train = train.with_transform(apply_transforms)
    test = test.with_transform(apply_transforms)
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, 256)


def load_test_data():
    """Return the official test set."""
    test = load_dataset(**source(), split="test")
    return DataLoader(test.with_transform(apply_transforms), 256)


def train(net, loader, epochs, learning_rate):
    """Train, and return the mean loss of a batch."""
    optimizer = torch.optim.SGD(net.parameters(), learning_rate, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


@torch.no_grad()
def test(net, loader):
    """Return loss and accuracy."""
    net.eval()
    loss, right = 0.0, 0
    for batch in loader:
        scores = net(batch["image"])
        loss += functional.cross_entropy(scores, batch["label"], reduction="sum").item()
        right += (scores.argmax(1) == batch["label"]).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)
