"""A contestant of `rounds.py`: the same rounds in Apple's pfl-research, in its own environment.

    python benchmarks/rounds_pfl.py DATA

Same model in the same memory format, same cohorts, a new shuffle of a client's images each round.
Images are float tensors that are normalised once, which is how pfl's own examples hold them.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional

COHORT, EACH, BATCH, RATE = 5, 512, 64, 0.02


class SmallCNN(nn.Module):
    """The model of fedeas' `cnn`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.hidden, self.fc = nn.Linear(1024, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a logit per class."""
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = functional.max_pool2d(functional.relu(convolution(x)), 2)
        return self.fc(functional.relu(self.hidden(x.flatten(1))))

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return what is minimised."""
        return functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict:
        """Measure nothing: nobody is evaluated here."""
        return {}


class Clock(TrainingProcessCallback):
    """Answers every line of standard input with the seconds of one round."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Say how long the round took, and wait to be asked for the next."""
        seconds = time.perf_counter() - self._begun
        if central_iteration > 0:
            print(json.dumps({"seconds": seconds, "peak_kb": 0}), flush=True)
        ended = not sys.stdin.readline()
        self._begun = time.perf_counter()
        return ended, Metrics()


def main(folder: str) -> None:
    """Train until nobody asks any more."""
    torch.set_num_threads(1)
    pixels = np.load(Path(folder) / "images.npy")[: COHORT * EACH]
    y = torch.from_numpy(np.load(Path(folder) / "labels.npy")[: COHORT * EACH])
    x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    users = itertools.cycle(range(COHORT))
    rng = np.random.default_rng(0)

    def user_dataset(user: int) -> Dataset:
        order = torch.from_numpy(user * EACH + rng.permutation(EACH))
        return Dataset(raw_data=[x[order], y[order]])

    data = FederatedDataset(user_dataset, lambda: next(users))
    network = SmallCNN().to(memory_format=torch.channels_last)
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**6,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        callbacks=[Clock()],
    )


if __name__ == "__main__":
    main(sys.argv[1])
