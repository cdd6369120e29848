"""Balanced classes with Opacus: train on private samples at will, then on real ones by DP-SGD.

    python examples/opacus_balanced.py [--alone] [--seed 0]

3,229 images of Fashion-MNIST (FEDEAS_DATA), from 1,000 of the first class down to 40 of the last.
`--alone` spends the same epsilon on DP-SGD alone, to compare with.
"""

import argparse

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from fedeas.data import load_images
from fedeas.private import make_private

DELTA = 1e-6  # of each of the two


# --8<-- [start:train]
def train(data, rows, model, generator_epsilon=1.0, training_epsilon=2.0):
    """Train a model on the samples in `rows`; return it and what that cost one of them."""
    if generator_epsilon:
        private = make_private(data, [rows], generator_epsilon, DELTA)
        labels = np.resize(np.arange(len(data.classes)), 5000)  # as many of each class
        samples = private.sample(labels, np.arange(5000, dtype=np.uint64))
        fit(model, SGD(model.parameters(), 0.05), loader_of(samples, labels), epochs=5)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=SGD(model.parameters(), 0.2),
        data_loader=loader_of(data.samples[rows], data.labels[rows]),  # no weighted sampler
        epochs=10, target_epsilon=training_epsilon, target_delta=DELTA, max_grad_norm=1.0,
    )  # fmt: skip
    fit(model, optimizer, loader, epochs=10)
    return model, generator_epsilon + engine.get_epsilon(DELTA)


# --8<-- [end:train]


def loader_of(images: np.ndarray, labels: np.ndarray) -> DataLoader:
    """Return a loader of images as floats, channels first."""
    pixels = torch.from_numpy(np.asarray(images)).permute(0, 3, 1, 2).float() / 255
    return DataLoader(TensorDataset(pixels, torch.from_numpy(labels).long()), 128, shuffle=True)


def fit(model: nn.Module, optimizer, loader: DataLoader, epochs: int) -> None:
    """Train for some epochs."""
    model.train()
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of layers that Opacus takes."""
    height, width, channels = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (height // 4) * (width // 4), classes),
    )  # fmt: skip


def main() -> None:
    """Train, and print the accuracy on the test images, which are balanced."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = load_images("fashion_mnist")
    rng = np.random.default_rng(options.seed)
    labels = np.asarray(data.labels[: data.train_size])
    sizes = np.geomspace(1000, 40, 10).astype(int)
    chosen = [rng.choice(np.flatnonzero(labels == c), n, False) for c, n in enumerate(sizes)]
    torch.manual_seed(options.seed)
    model = small_cnn(data.samples.shape[1:], len(data.classes))
    epsilons = (0.0, 3.0) if options.alone else (1.0, 2.0)
    model, epsilon = train(data, np.sort(np.concatenate(chosen)), model, *epsilons)
    model.eval()
    right = []
    test = slice(data.train_size, None)
    for images, truth in loader_of(data.samples[test], np.asarray(data.labels[test])):
        right.append((model(images).argmax(1) == truth).float())
    print(f"epsilon {epsilon:.2f}, accuracy {torch.cat(right).mean():.1%}")


if __name__ == "__main__":
    main()
