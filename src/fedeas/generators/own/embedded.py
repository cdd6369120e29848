"""`own(way=embedding)`: a small network that was trained on mean embeddings from noisy sums."""

import dataclasses
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.generators.own.card import WEIGHTS, Card
from fedeas.generators.own.matching import Matching, Report, match, mean_features
from fedeas.generators.own.network import Network, NetworkConfig, draw_noise
from fedeas.privacy.queries.embedding import EmbeddingSum, MeanEmbedding
from fedeas.privacy.release import Release
from fedeas.tensors import fresh_weights, load_tensors, save_tensors, tensors_digest

WAY = "embedding"
_JUDGED = 500  # samples of every class that its quality is measured with
_BATCH = 1000
_CHECKPOINT = "checkpoint.safetensors"


class Embedded:
    """Draws images from a network; each image's noise comes from its own seed."""

    def __init__(self, network: Network, card: Card) -> None:
        self._network, self.card, self.classes = network.eval(), card, card.classes
        self.training_data = card.training_data
        self.fingerprint = f"own-{tensors_digest(network.state_dict(), repr(card.shape))}"

    @classmethod
    def make(
        cls,
        query: EmbeddingSum,
        released: Release,
        classes: tuple[str, ...],
        training: Matching | None = None,
        seed: int = 0,
        folder: Path | None = None,
        report: Report | None = None,
    ) -> "Embedded":
        """Train a network on what the sums say.

        Parameters
        ----------
        query, released
            What was asked, and the noisy sum.
        classes
            The names of the classes.
        training, seed
            How the network is trained.
        folder
            Keeps a checkpoint while it is trained, so that a killed training can be resumed.
        report
            Told about progress.
        """
        training = training or Matching()
        target = query.read(released.sums, released.sigma, released.sites)
        checkpoint = None if folder is None else folder / _CHECKPOINT
        network = match(query, target, training, seed, checkpoint, report)
        settings = {
            "features": query.features, "edges": query.edges,
            **dataclasses.asdict(training), "network": dataclasses.asdict(network.config),
        }  # fmt: skip
        card = Card(
            WAY, classes, query.shape, released.epsilon, released.delta, released.sites,
            tuple(target.counts.round(1).tolist()), _quality(query, network, target, seed),
            settings,
        )  # fmt: skip
        return cls(network, card)

    @torch.inference_mode()
    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label and seed."""
        images = np.empty((len(labels), *self.card.shape), np.uint8)
        for start in range(0, len(labels), _BATCH):
            part = slice(start, start + _BATCH)
            noise = draw_noise(seeds[part].tolist(), self._network.config.latent)
            drawn = self._network(noise, torch.as_tensor(np.asarray(labels[part])))
            images[part] = (255 * drawn).round().to(torch.uint8).numpy()
        return images

    def save(self, folder: Path) -> None:
        """Write the generator's folder: weights, then the card."""
        folder.mkdir(parents=True, exist_ok=True)
        save_tensors(folder / WEIGHTS, self._network.state_dict(), {"way": WAY})
        self.card.write(folder)
        (folder / _CHECKPOINT).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> "Embedded":
        """Open a generator's folder."""
        card = Card.read(folder)
        weights, _ = load_tensors(folder / WEIGHTS)
        try:
            config = dict(card.settings["network"])
            height, width, channels = card.shape
            config |= {"classes": len(card.classes), "shape": (height, width, channels)}
            with fresh_weights(0):
                network = Network(NetworkConfig(**config))
            network.load_state_dict(weights)
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise InputError(f"the weights in {folder} do not match its card") from None
        return cls(network, card)


def _quality(
    query: EmbeddingSum, network: Network, target: MeanEmbedding, seed: int
) -> tuple[float, ...]:
    """Return how near every class comes to its target, 1 at best.

    It is 0 where a class is as far from what the sums say as that is from the other classes' mean:
    the samples, or the noise in the sums, do not tell it from the others then.
    """
    found = mean_features(query, network, _JUDGED, seed).numpy().astype(np.float64)
    classes = query.classes
    others = (target.means.sum(axis=0) - target.means) / (classes - 1)
    apart = np.square(target.means - others).sum(axis=1)
    missed = np.square(found - target.means).sum(axis=1)
    return tuple(np.clip(1 - missed / np.maximum(apart, 1e-12), 0.0, 1.0).round(3).tolist())
