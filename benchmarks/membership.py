"""Can anybody tell whose images a generator was made of? Two attacks, with positive controls.

    python benchmarks/membership.py [--members 2000] [--repeats 3] [--epsilon 1 inf]
        [--shadows 4] [--diffusion]

`private` is made of so many Fashion-MNIST images on 20 clients (one weighs more among few). The
attacker has a candidate image and its class, images of the same kind that are nobody's, and
generators of the same kind made of these (shadow models). It sees

- `samples`: 2,000 images of the generator. The nearest one to a candidate, compared with the
  nearest of a shadow model's
- `generator`: the generator itself, means and covariances of every class. The likelihood of the
  candidate, compared with shadow models'

The advantage is the rate of members that are recognised minus that of others taken for members, at
a threshold chosen on other candidates; 0 is a guess, 1 certainty. A generator that the noise leaves
nothing of is said to be so, and not attacked. What differential privacy allows
at most is printed beside it. With `--diffusion` the shipped diffusion model is attacked too, by its
samples, and by its loss on candidates. The last line is JSON.
"""

import argparse
import json
import math
from functools import cached_property
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas import InfeasibleError
from fedeas._internal.seeds import child_rng
from fedeas.data import Dataset, load_images
from fedeas.generators import make_generator
from fedeas.private.generator.make import make_from_sums
from fedeas.private.queries.moments import frequencies_of
from fedeas.private.queries.query import SampleSum
from fedeas.private.sums import Release, release
from fedeas.train.models.unet import Draw, denoising_loss

SITES, CLASSES, DRAWN = 20, 10, 2000
DELTA = 1e-5  # of the published figures
Floats = NDArray[np.float64]


class Victim:
    """A generator, and samples of it."""

    def __init__(
        self,
        data: Dataset,
        places: NDArray[np.int64],
        epsilon: float,
        seed: int,
    ) -> None:
        asked = count()
        sites = np.array_split(places, SITES)

        def ask(query: SampleSum, part: float) -> Release:
            answers = (query.answer(data.samples, data.labels, own) for own in sites)
            noise = seed * 10 + next(asked)
            return release(query, answers, SITES, epsilon, DELTA, part, noise)

        self.generator = make_from_sums(data, ask)
        self.labels = np.arange(DRAWN) % CLASSES
        seeds = child_rng(seed, "samples").integers(2**63, size=DRAWN).astype(np.uint64)
        self.drawn = self.generator.sample(self.labels, seeds)

    def nearest(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Floats:
        """Return the distance of every image to the nearest sample of its class."""
        found = np.empty(len(images))
        for c in range(CLASSES):
            own = images[labels == c].reshape(-1, images[0].size).astype(np.float32)
            others = self.drawn[self.labels == c].reshape(-1, images[0].size).astype(np.float32)
            found[labels == c] = torch.cdist(torch.tensor(own), torch.tensor(others)).min(1)[0]
        return found

    @cached_property
    def normals(self) -> tuple[Floats, list[Floats]]:
        """The mean and the covariance of every class, as the generator shows them."""
        means, roots = (self.generator._tensors[name].numpy() for name in ("means", "roots"))
        return means, [root @ root.T for root in roots]

    def likelihood(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Floats:
        """Return the log likelihood of every image in its class, up to a constant."""
        (means, covariances), found = self.normals, np.empty(len(images))
        x = frequencies_of(images, math.isqrt(means.shape[1]))
        for c, plain in enumerate(covariances):
            covariance = plain + 1e-3 * np.trace(plain) / len(plain) * np.eye(len(plain))
            apart = x[labels == c] - means[c]
            far = np.einsum("ni,ni->n", apart, np.linalg.solve(covariance, apart.T).T)
            found[labels == c] = -(far + np.linalg.slogdet(covariance)[1]) / 2
        return found


def advantage(members: Floats, others: Floats) -> float:
    """Return how much better than a guess a threshold is that was chosen on other candidates."""
    gains = []
    for first, second in ((0, 1), (1, 0)):
        known, unknown = members[first::2], others[first::2]
        levels = np.unique(np.concatenate([known, unknown]))
        rates = [(known >= t).mean() - (unknown >= t).mean() for t in levels]
        t = levels[int(np.argmax(rates))]
        gains.append((members[second::2] >= t).mean() - (others[second::2] >= t).mean())
    return float(np.mean(gains))


def attack(
    data: Dataset, members: int, epsilon: float, seed: int, shadows: int
) -> dict[str, float]:
    """Attack one generator in all ways."""
    order = child_rng(seed, "membership").permutation(data.train_size)
    inside, outside, spare = np.split(order[: (2 + shadows) * members], [members, 2 * members])
    victim = Victim(data, inside, epsilon, seed)
    models = [
        Victim(data, own, epsilon, seed + 1000 * (k + 1))
        for k, own in enumerate(np.array_split(spare, shadows))
    ]
    found: dict[str, list[Floats]] = {"samples": [], "generator": []}
    for places in (inside, outside):
        images, labels = np.asarray(data.samples[places]), np.asarray(data.labels[places])
        near = np.mean([one.nearest(images, labels) for one in models], axis=0)
        likely = np.mean([one.likelihood(images, labels) for one in models], axis=0)
        found["samples"].append(near - victim.nearest(images, labels))
        found["generator"].append(victim.likelihood(images, labels) - likely)
    return {name: advantage(*scores) for name, scores in found.items()}


def diffusion(data: Dataset, members: int) -> dict[str, float]:
    """Attack the shipped diffusion model, which saw all training images and no test image."""
    generator = make_generator("diffusion(model=fashion_mnist)", device="cpu")
    rng = child_rng(0, "diffusion")
    inside = rng.choice(data.train_size, members, replace=False)
    outside = data.train_size + rng.choice(
        len(data.samples) - data.train_size, members, replace=False
    )
    labels = np.arange(DRAWN // 4) % CLASSES
    drawn = generator.sample(labels, np.arange(len(labels)).astype(np.uint64))
    samples, losses = [], []
    design, network = generator._design, generator._network
    for places in (inside, outside):
        images, own = np.asarray(data.samples[places]), np.asarray(data.labels[places])
        flat = torch.tensor(images.reshape(len(images), -1).astype(np.float32))
        near = torch.cdist(flat, torch.tensor(drawn.reshape(len(drawn), -1).astype(np.float32)))
        samples.append(-near.min(1)[0].numpy().astype(float))
        losses.append(
            np.array([_loss(network, design, *one) for one in zip(images, own, strict=True)])
        )
    return {"samples": advantage(*samples), "loss": advantage(*losses)}


@torch.inference_mode()
def _loss(network: object, design: object, image: NDArray[np.uint8], label: int) -> float:
    """Return minus the loss on one image, with the same noise for every image."""
    many = torch.tensor(image).repeat(16, 1, 1, 1)
    labels = torch.full((16,), int(label))
    stream = torch.Generator().manual_seed(0)
    draw = Draw.of(labels, CLASSES, tuple(image.shape), design, 0.0, stream)
    return -float(denoising_loss(network, design, design.noise(), many, draw))


def main() -> None:
    """Attack, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--members", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0, math.inf])
    parser.add_argument("--shadows", type=int, default=4)
    parser.add_argument("--diffusion", action="store_true")
    given = parser.parse_args()
    data = load_images("fashion_mnist")
    found: dict[str, object] = {"members": given.members}
    for epsilon in given.epsilon:
        try:
            runs = [
                attack(data, given.members, epsilon, seed, given.shadows)
                for seed in range(given.repeats)
            ]
        except InfeasibleError as error:
            found[f"{epsilon:g}"] = None
            print(f"epsilon {epsilon:g}: no generator: {error}", flush=True)
            continue
        own = {name: round(float(np.mean([run[name] for run in runs])), 3) for name in runs[0]}
        most = 1.0 if math.isinf(epsilon) else math.tanh(epsilon / 2) + 2 * DELTA
        found[f"{epsilon:g}"] = own
        print(f"epsilon {epsilon:g}: {own}, at most {most:.3f}", flush=True)
    if given.diffusion:
        found["diffusion"] = {k: round(v, 3) for k, v in diffusion(data, 300).items()}
        print(f"diffusion: {found['diffusion']}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
