"""What a classifier learns from the samples of a federation's own generator alone.

    python benchmarks/private_generator.py [--data cifar10] [--images N] [--seeds S]
        [--epsilon E ...] [--validation] [--record] [--quick]
    python benchmarks/private_generator.py --table letter [--seeds S] [--epsilon E ...] [--quick]

Shares Fashion-MNIST, or CIFAR-10, out over 20 clients (Dirichlet 0.1), makes a generator from the
noisy sum over them, trains a CNN on its samples alone, and tests it on the real test images. The
parts of the noise of all clients are drawn and added as a secure sum would, from a seed, so that
figures can be had again; delta is 1e-5, and the unit one sample of one client, added or removed.
`--images` leaves that many training images, as many of each class. With `--validation` the network
is tested on the training images that are left over instead: for choosing settings. `--epsilon inf`
is the generator without noise. `--quick` only shows that it works. The last line is JSON: per
epsilon the accuracies in percent, one per seed, the seconds and the seconds of processor time that
the generator took. `--record` writes them into reproduction/recorded/private-generator.csv.

With `--table` it is a table in the folder `tables` of FEDEAS_DATA and a random forest (`--model
mlp`: a network), trained on as many rows as there are real ones, classes as frequent as the sums
say, and tested on the real test rows. `quality` is what the card says, the mean over the classes.
`classes` is the rank correlation of a class's quality with the share of its test rows that are
recognised, as a part of that without noise; it needs `--epsilon ... inf`.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray
from records import update_record

from fedeas._internal.seeds import child_rng
from fedeas.data import Dataset, federate, load_images, open_dataset
from fedeas.partition import make_partition
from fedeas.private.generator.make import PrivateGenerator, make_private
from fedeas.train.loop import fit, predict
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings

CLIENTS, ALPHA = 20, 0.1
DELTA = 1e-5  # of the published figures
IMAGES = {"fashion": "fashion_mnist", "cifar10": "cifar10"}
RECORD = Path(__file__).parents[1] / "reproduction/recorded/private-generator.csv"
KEYS = ("data", "images", "tested_on", "epsilon")
Ints = NDArray[np.int64]


def processor_time() -> float:
    """Return the seconds that this process has computed, on all cores together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def share(data: Dataset, samples: int, seed: int) -> tuple[list[Ints], Ints]:
    """Share some of the training samples out; return where each client's are, and the others."""
    each = (data.train_size - samples) // len(data.classes)
    recipe = make_partition("flbench", clients=CLIENTS, alpha=ALPHA, seed=seed)
    made = federate(data, recipe, "official", each, seed)
    return [np.asarray(own) for own in made.partition.train], made.pool


def accuracy(
    data: Dataset, generator: PrivateGenerator, each: int, epochs: int, seed: int, tested: Ints
) -> float:
    """Train on samples alone; return the accuracy on real images, in percent."""
    labels = np.tile(np.arange(len(data.classes)), each)
    found = learnt(data, generator, labels, "cnn", epochs, seed, tested)
    return 100 * float((found == np.asarray(data.labels[tested])).mean())


def learnt(
    data: Dataset,
    generator: PrivateGenerator,
    labels: Ints,
    model: str,
    epochs: int,
    seed: int,
    places: Ints,
) -> Ints:
    """Train on samples of these labels alone; return what real samples at places are taken for."""
    seeds = child_rng(seed, "samples").integers(2**63, size=len(labels)).astype(np.uint64)
    drawn = generator.sample(labels, seeds)
    tested = np.asarray(data.samples[places])
    if model == "forest":
        return forest(drawn, labels, tested, seed)
    # The spread of pixels comes from the samples as well: nothing real but the test images.
    network = make_model(ModelSettings(model), Task.of(data, drawn), seed)
    samples = Samples.of(data, np.empty(0, np.int64), drawn, labels)
    rng = child_rng(seed, "classifier")
    for passes, rate in ((epochs, 1e-3), (1, 1e-4)):
        local = Local(epochs=passes, batch=128, learning_rate=rate, optimizer="adam")
        fit(network, samples, local, rng)
    return np.asarray(predict(network, tested))


def forest(rows: NDArray[np.float32], labels: Ints, tested: NDArray[np.float32], seed: int) -> Ints:
    """Train a random forest, which knows no gaps: they are a number that no column has."""
    from sklearn.ensemble import RandomForestClassifier

    trained = RandomForestClassifier(100, min_samples_leaf=2, random_state=seed)
    trained.fit(np.nan_to_num(rows, nan=-1e6), labels)
    return np.asarray(trained.predict(np.nan_to_num(tested, nan=-1e6)))


def measure_table(name: str, epsilons: list[float], seeds: int, model: str, quick: bool) -> None:
    """Measure a table, and print a line of JSON."""
    data = open_dataset(f"tables/{name}")
    classes, tested = len(data.classes), np.arange(data.train_size, len(data.labels))
    truth = np.asarray(data.labels[tested])
    found: dict[str, dict[str, list[float]]] = {}
    shown: dict[tuple[float, int], tuple[tuple[float, ...], NDArray[np.float64]]] = {}
    for epsilon in epsilons:
        own = found.setdefault(f"{epsilon:g}", {"accuracy": [], "quality": [], "seconds": []})
        for seed in range(seeds):
            (sites, _), since = share(data, data.train_size, seed), time.monotonic()
            made = make_private(data, sites, epsilon, DELTA, seed=seed, seeded_noise=True)
            own["seconds"].append(round(time.monotonic() - since, 1))
            counts = np.maximum(np.array(made.card.counts), 0)
            size = 500 if quick else data.train_size
            labels = np.repeat(
                np.arange(classes), np.ceil(size * counts / counts.sum()).astype(int)
            )
            taken = learnt(data, made, labels, model, 2 if quick else 20, seed, tested)
            right = np.bincount(truth[taken == truth], minlength=classes)
            shown[epsilon, seed] = made.card.quality, right / np.bincount(truth, minlength=classes)
            own["accuracy"].append(round(100 * float((taken == truth).mean()), 2))
            own["quality"].append(round(float(np.mean(made.card.quality)), 3))
            print(f"epsilon {epsilon:g}, seed {seed}: {own['accuracy'][-1]} %", flush=True)
    for epsilon in epsilons if np.inf in epsilons else []:
        pairs = [shown[epsilon, seed] for seed in range(seeds)]
        best = np.mean([shown[np.inf, seed][1] for seed in range(seeds)], axis=0)
        seen = np.mean([share for _, share in pairs], axis=0) / np.maximum(best, 0.05)
        quality = np.mean([own for own, _ in pairs], axis=0)
        if np.ptp(quality) > 0 and np.ptp(seen) > 0:
            ranks = [np.argsort(np.argsort(x)) for x in (quality, seen)]
            found[f"{epsilon:g}"]["classes"] = [round(float(np.corrcoef(*ranks)[0, 1]), 2)]
    print(json.dumps({"table": name, "model": model, "epsilon": found}))


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=IMAGES, default="fashion")
    parser.add_argument("--images", type=int, help="of the training images; default: all")
    parser.add_argument("--table", default="", help="letter, penbased, satimage, loans, ...")
    parser.add_argument("--model", default="forest", help="forest or mlp, for a table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--validation", action="store_true", help="no test image is looked at")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.seeds, chosen.images = 1, chosen.images or 6000
    if chosen.table:
        measure_table(chosen.table, chosen.epsilon, chosen.seeds, chosen.model, chosen.quick)
        return
    data = load_images(IMAGES[chosen.data])
    images = chosen.images or data.train_size
    if chosen.validation and images >= data.train_size:
        parser.error(
            f"--validation needs --images below {data.train_size}: the others are tested on"
        )
    each, epochs = (100, 3) if chosen.quick else (4000, 3)
    found: dict[str, dict[str, list[float]]] = {}
    for epsilon in chosen.epsilon:
        own = found.setdefault(f"{epsilon:g}", {"accuracy": [], "seconds": [], "processor": []})
        for seed in range(chosen.seeds):
            sites, left = share(data, images, seed)
            tested = left if chosen.validation else np.arange(data.train_size, len(data.labels))
            since, used = time.monotonic(), processor_time()
            made = make_private(data, sites, epsilon, DELTA, seed, seeded_noise=True)
            own["seconds"].append(round(time.monotonic() - since, 1))
            own["processor"].append(round(processor_time() - used, 1))
            own["accuracy"].append(round(accuracy(data, made, each, epochs, seed, tested), 2))
            print(f"epsilon {epsilon:g}, seed {seed}: {own['accuracy'][-1]} %", flush=True)
    on = "validation" if chosen.validation else "test"
    about = {"data": chosen.data, "images": images, "tested_on": on}
    print(json.dumps({**about, "epsilon": found}))
    if chosen.record:
        rows = [
            {
                **about, "epsilon": epsilon, "accuracy": f"{mean(own['accuracy']):.2f}",
                "seeds": " ".join(f"{x:.2f}" for x in own["accuracy"]),
                "core_seconds": f"{mean(own['processor']):.0f}",
            }
            for epsilon, own in found.items()
        ]  # fmt: skip
        command = " ".join(["python benchmarks/private_generator.py", *sys.argv[1:]])
        update_record(RECORD, KEYS, rows, command)


if __name__ == "__main__":
    main()
