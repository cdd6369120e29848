"""What a classifier from noisy sums alone is worth, without any training.

    python benchmarks/private_classifier.py [--data NAME ...] [--epsilon E ...] [--seeds N]
        [--what alone both free] [--quick] [--record]

Shares a data set out over 20 clients (Dirichlet 0.1), asks them for the sums of a private
classifier, and tests it on the real test samples: `fashion`, `cifar10`, or a table (`letter`,
`satimage`, `loans`, `penbased`). Noise comes from the operating system, in one part per client as a
secure sum has it; delta is 1e-5, and the unit one sample of one client, added or removed. A seed is
another partition and other noise. `free` is what the sums of a generator give that is made anyway:
of images, linear discriminants of the 14 x 14 lowest frequencies, from the sums of `moments`; of
rows, the classifier itself. `both` is the classifier that shares a budget with a generator.
`seconds` is the processor time of one classifier, sites and server together.

Every setting (filters, cells, split of the budget, clipping norms, shrinkage) was chosen on the
training images of CIFAR-10 in grey at 28 x 28, on the sixteen commonest of the handwritten symbols
of CROHME, and on the tables penbased, forest cover and rodents. Fashion-MNIST's test images were
looked at three times: for two scales of filters (84.5, 85.7 and 86.4 % at epsilon 1, 3 and 10,
noise added in one place), for the three that were chosen instead (83.5 and 85.5 % at epsilon 1 and
3), and for the record, reproduction/recorded/private-classifier.csv; those of CIFAR-10 once, so
that its figures are of a data set whose training images had a say in the settings. With
discriminants that were quadratic in categories too, and leant less on all classes, letter had 72.8,
79.5 and 84.3 %, satimage 78.9, 78.0 and 78.5 %, loans 32.2, 33.4 and 31.3 %: the cause was looked
for on their test rows, and the remedy's one setting chosen on the other tables.

`--record` writes the figures there; without it the exit code is 1 if one is lower than recorded by
more than 1 point. `--quick` only shows that it works, at one epsilon.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from private_generator import DELTA, IMAGES, processor_time, share
from records import read_record, update_record

from fedeas.data import Dataset, load_images, open_dataset
from fedeas.private.generator import classifier
from fedeas.private.generator.classifier import discriminants, shrunk
from fedeas.private.generator.images import GaussianImages
from fedeas.private.generator.make import classifier_from_sums
from fedeas.private.queries import features
from fedeas.private.queries.moments import ImageMoments, ImageProducts, clip_norms, frequencies_of
from fedeas.private.queries.query import SampleSum
from fedeas.private.sums import Release, SimulatedSums

RECORD = Path(__file__).parents[1] / "reproduction/recorded/private-classifier.csv"
KEYS = ("data", "what", "epsilon")
SLACK = 1.0  # points below the record that noise explains
Ints = NDArray[np.int64]


def remember_features() -> None:
    """Keep the edge features of every image: sites compute them once for every sum."""
    compute, known = features.edge_features, dict[bytes, NDArray[np.int32]]()

    def look_up(images: NDArray[Any]) -> Ints:
        keys = [image.tobytes() for image in images]
        new = [k for k, key in enumerate(keys) if key not in known]
        if new:
            rows = compute(images[new]).astype(np.int32)
            known.update(zip((keys[k] for k in new), rows, strict=True))
        return np.stack([known[key] for key in keys]).astype(np.int64)

    features.edge_features = classifier.edge_features = look_up


def asked(sums: SimulatedSums, epsilon: float, part: float = 1.0) -> Any:
    """Return a function that asks for shares of a part of a budget."""

    def ask(query: SampleSum, share: float) -> Release:
        return sums.ask(query, epsilon, part * share)

    return ask


def free(data: Dataset, sums: SimulatedSums, epsilon: float, places: Ints) -> Ints:
    """Classify images at places by the two sums of a generator."""
    kept: dict[str, tuple[SampleSum, Release]] = {}

    def ask(query: SampleSum, share: float) -> Release:
        kept[query.name] = query, sums.ask(query, epsilon, share)
        return kept[query.name][1]

    GaussianImages.make(data.classes, data.samples.shape[1:], ask)
    query, released = kept[ImageMoments.name]
    moments = query.read(released.sums, released.sigma, released.sites)
    products, other = kept[ImageProducts.name]
    together, error = products.read(other.sums, other.sigma, other.sites)
    total, shares = moments.counts.sum(), moments.counts / moments.counts.sum()
    within = together / total - np.einsum("c,ci,cj->ij", shares, moments.means, moments.means)
    within = shrunk(within, error / total / np.sqrt(2))
    tensors = discriminants(moments.counts, moments.means, within[np.newaxis], moments.mean_errors)
    weights, offsets = tensors["weights"].numpy(), tensors["offsets"].numpy()
    blocks = np.array_split(places, max(1, len(places) // 1000))
    low = (frequencies_of(np.asarray(data.samples[block]), 14) for block in blocks)
    return np.concatenate([(clip_norms(x) @ weights + offsets).argmax(axis=1) for x in low])


def measure(
    name: str, epsilons: list[float], seeds: int, whats: list[str], quick: bool
) -> list[dict[str, Any]]:
    """Return a row of figures for every epsilon, alone, with a generator, and at no cost."""
    image = name in IMAGES
    data = load_images(IMAGES[name]) if image else open_dataset(f"tables/{name}")
    size = 4000 if quick and image else data.train_size
    tested = np.arange(data.train_size, len(data.labels))[: 500 if quick else None]
    truth = np.asarray(data.labels[tested])
    rows, parts = [], {"alone": 1.0, "both": 0.5, "free": 0.0}
    parts = {what: parts[what] for what in (whats if image else ["alone"])}
    seconds = 0.0  # of the first, before features are known
    if "alone" not in parts:
        remember_features()
    for epsilon in epsilons:
        figures: dict[str, list[float]] = {what: [] for what in parts}
        for seed in range(seeds):
            sites, _ = share(data, size, seed)
            for what, part in parts.items():
                sums, used = SimulatedSums(data, sites, DELTA), processor_time()
                if what == "free":
                    labels = free(data, sums, epsilon, tested)
                else:
                    made = classifier_from_sums(data, asked(sums, epsilon, part))
                    if what == "alone" and not seconds:
                        seconds = processor_time() - used
                        remember_features()
                    labels = made.predict(data.samples[tested])
                figures[what].append(100 * float((labels == truth).mean()))
                print(f"{name} epsilon {epsilon:g} {what}: {figures[what][-1]:.2f} %", flush=True)
        rows += [
            {
                "data": name, "what": what, "epsilon": f"{epsilon:g}",
                "accuracy": f"{mean(values):.2f}", "seeds": " ".join(f"{x:.2f}" for x in values),
                "seconds": f"{seconds:.1f}" if what == "alone" else "",
            }
            for what, values in figures.items()
        ]  # fmt: skip
    return rows


def main() -> None:
    """Measure, and compare with the record or write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=["fashion"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--what", nargs="+", default=["alone", "both", "free"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    lower = []
    if chosen.quick:
        chosen.seeds, chosen.epsilon = 1, chosen.epsilon[:1]
    for name in chosen.data:
        rows = measure(name, chosen.epsilon, chosen.seeds, chosen.what, chosen.quick)
        for row in rows:
            print(*row.values(), flush=True)
        if chosen.quick:
            continue
        if chosen.record:
            command = " ".join(["python benchmarks/private_classifier.py", *sys.argv[1:]])
            update_record(RECORD, KEYS, rows, command)
            continue
        known = read_record(RECORD, KEYS)
        for row in rows:
            before = known.get((row["data"], row["what"], row["epsilon"]))
            if before and float(row["accuracy"]) < float(before["accuracy"]) - SLACK:
                lower.append(f"{name} {row['what']} at epsilon {row['epsilon']}")
    if lower:
        sys.exit(f"lower than recorded: {', '.join(lower)}")


if __name__ == "__main__":
    main()
