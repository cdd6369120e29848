"""What a federated round costs beside the training itself, as ratios measured in one run.

    python benchmarks/rounds.py [--pfl PYTHON] [--rounds 5] [--only NAME ...]

Every contestant is a process of its own with one thread and takes the same steps: the clients of a
cohort train a small CNN on CIFAR-sized images for one epoch, and their weights are averaged.
Contestants alternate; a ratio is the median over the alternations.

1. `inline_over_bare`: a round on the inline grid against a bare PyTorch loop that takes the same
   steps on the same tensors and averages. Target: at most 1.05.
2. `inline_over_pfl`: the same against Apple's pfl-research 0.6.0, where `--pfl` names the Python of
   an environment that has `pfl[pytorch]`. Target: at most 1.
3. `plain_over_inline`: the plain loop over float tensors in NCHW that most people write, with the C
   library's own allocator settings, against ours. Target: at least 1.4.
4. `inline_over_bf16`: what bfloat16 adds, and its accuracy beside that of float32 on real CIFAR-10
   (with FEDEAS_DATA). No target.
5. `inline_over_ray`: one thread inline against two Ray actors of one thread, six clients with three
   times the images. Target: at least 1.7.
6. `turn_1000_over_100`: a turn among 1,000 clients against one among 100, one step of two images,
   so that all else counts most. Target: at most 1.2.
7. `memory_1000_over_10`: peak memory of the same, 1,000 clients against 10. Target: at most 1.3.

The last line is JSON; the exit code is 1 when a target is missed.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from flwr.app import Context
from torch.nn import functional

from fedeas._internal.seeds import child_rng
from fedeas.data import Dataset, load_images
from fedeas.train.flower.backends import InlineGrid, run_on_backend
from fedeas.train.flower.client import Site, make_client_app
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.loop import accuracy, keep_memory
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Federated, Local, ModelSettings

COHORT, EACH, BATCH, RATE = 5, 512, 64, 0.02
MORE = 3 * EACH  # images of a client on Ray: near the 2,000 of CIFAR-10 on 20 clients
TASK = Task(10, (32, 32, 3), (0.5,) * 3, (0.25,) * 3)
PFL_WORKER = Path(__file__).with_name("rounds_pfl.py")


def write_data(folder: Path, images: int) -> None:
    """Write noise of the size of CIFAR-10: speed does not depend on what images show."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, 32, 32, 3), np.uint8)
    labels = np.arange(images) % 10
    names = tuple(map(str, range(10)))
    Dataset.write(folder, "noise", names, (images - 10, 10), iter([(pixels, labels)]))


MODELS: dict[object, object] = {}  # that clients of this process train


@lru_cache(maxsize=1)
def open_data(folder: str) -> Dataset:
    """Open the noise once a process."""
    return Dataset.open(Path(folder))


def open_site(folder: str, each: int, context: Context) -> Site:
    """Give client k the k-th `each` images, from the start again where they end."""
    number = int(context.node_config["partition-id"])
    data = open_data(folder)
    places = (number * each + np.arange(each)) % data.train_size
    real = Samples.of(data, places)
    kept = Path(folder) / "kept" / str(number)
    return Site(number, real, lambda _: real, kept, "cpu", models=MODELS)


def settings(rounds: int, precision: str = "float32") -> Federated:
    """Return the settings of a measured round: everybody takes part."""
    local = Local(epochs=1, batch=BATCH, learning_rate=RATE, precision=precision)
    return Federated(rounds=rounds, fraction=1.0, model=ModelSettings("cnn"), local=local)


def timed_rounds(grid: object, federated: Federated, folder: str) -> Iterator[float]:
    """Yield the seconds of every round but the first, checkpoint included, without an end."""
    while True:
        moments: list[float] = []
        with tempfile.TemporaryDirectory() as place:
            run_rounds(
                grid, federated, TASK, 0, Path(place) / "c.safetensors", "bench", lambda _: {},
                lambda _, moments=moments: moments.append(time.perf_counter()),
            )  # fmt: skip
        yield from np.diff(moments).tolist()


def inline(folder: str, clients: int, each: int, precision: str = "float32") -> Iterator[float]:
    """Yield the seconds of rounds on the inline grid."""
    grid = InlineGrid(make_client_app(partial(open_site, folder, each)), clients)
    return timed_rounds(grid, settings(2, precision), folder)


def bare(folder: str, channels_last: bool) -> Iterator[float]:
    """Yield the seconds of the same rounds in a loop with nothing of ours but the model."""
    data = open_data(folder)
    images, labels = (
        torch.from_numpy(np.array(data.samples)),
        torch.from_numpy(np.array(data.labels)),
    )
    server = make_model(ModelSettings("cnn"), TASK, 0)
    if channels_last:
        keep_memory()
    else:
        server.channels_last = False
        server.to(memory_format=torch.contiguous_format)
    weights = {k: v.clone() for k, v in server.state_dict().items()}
    model = make_model(ModelSettings("cnn"), TASK, 0)
    model.channels_last = channels_last
    if not channels_last:
        model.to(memory_format=torch.contiguous_format)
        pixels = ((images.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25).contiguous()
    while True:
        begun = time.perf_counter()
        sums = {k: torch.zeros_like(v, dtype=torch.float64) for k, v in weights.items()}
        for client in range(COHORT):
            model.load_state_dict(weights)
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), RATE)
            order = torch.from_numpy(child_rng(0, "train", 2, client).permutation(EACH))
            for start in range(0, EACH, BATCH):
                places = client * EACH + order[start : start + BATCH]
                if channels_last:
                    logits = model(images[places])
                else:
                    logits = model.fc(model.body(pixels[places]))
                loss = functional.cross_entropy(logits, labels[places])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            for name, weight in model.state_dict().items():
                sums[name] += EACH * weight.double()
        weights = {k: (v / (COHORT * EACH)).float() for k, v in sums.items()}
        yield time.perf_counter() - begun


def worker(name: str, folder: str) -> None:
    """Answer every line of standard input with the seconds of one round."""
    torch.set_num_threads(1)
    if name == "ray":
        import rounds  # by name, so that actors find it; `__main__` is another module there

        app = make_client_app(partial(rounds.open_site, folder, MORE))
        run_on_backend(
            "ray", app, COHORT + 1, 1, lambda grid: serve(timed_rounds(grid, settings(2), ""))
        )
        return
    contestants: dict[str, Callable[[], Iterator[float]]] = {
        "inline": lambda: inline(folder, COHORT, EACH),
        "inline_6": lambda: inline(folder, COHORT + 1, MORE),
        "bf16": lambda: inline(folder, COHORT, EACH, "bfloat16"),
        "bare": lambda: bare(folder, channels_last=True),
        "plain": lambda: bare(folder, channels_last=False),
        "turns_10": lambda: inline(folder, 10, 2),
        "turns_100": lambda: inline(folder, 100, 2),
        "turns_1000": lambda: inline(folder, 1000, 2),
    }
    serve(contestants[name]())


def serve(rounds: Iterator[float]) -> None:
    """Measure one round for each line that comes in."""
    for _ in sys.stdin:
        seconds = next(rounds)
        status = Path("/proc/self/status").read_text()
        peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1])
        print(json.dumps({"seconds": seconds, "peak_kb": peak}), flush=True)


class Contestant:
    """A worker process that is asked for one round at a time."""

    def __init__(self, command: list[str]) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parent),
        }
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.peak = 0
        self.round()  # to warm up

    def round(self) -> float:
        """Return the seconds of one round."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise SystemExit(f"{self._process.args} ended with {self._process.wait()}")
            if line.startswith("{"):
                answer = json.loads(line)
                self.peak = answer["peak_kb"]
                return answer["seconds"]

    def stop(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def ratio(folder: str, rounds: int, above: str, below: str, pfl: str | None = None) -> float:
    """Return the median of above/below over alternations."""
    pair = []
    for name in (above, below):
        command = [sys.executable, "-W", "ignore", __file__, "--worker", name, "--data", folder]
        if name == "pfl":
            command = [str(pfl), "-W", "ignore", str(PFL_WORKER), folder]
        pair.append(Contestant(command))
    times = [[one.round() for one in pair] for _ in range(rounds)]
    for one in pair:
        one.stop()
    shown = ", ".join(f"{a:.2f}/{b:.2f}" for a, b in times)
    print(f"{above}/{below} in seconds: {shown}", flush=True)
    return round(statistics.median(a / b for a, b in times), 3)


def turns(folder: str, rounds: int) -> dict[str, float]:
    """Compare a client's turn and the peak memory between numbers of clients."""
    sizes = (10, 100, 1000)
    command = [sys.executable, "-W", "ignore", __file__, "--data", folder, "--worker"]
    workers = {size: Contestant([*command, f"turns_{size}"]) for size in sizes}
    times = [{size: w.round() / size for size, w in workers.items()} for _ in range(rounds)]
    for one in workers.values():
        one.stop()
    found = statistics.median(t[1000] / t[100] for t in times)
    shown = {size: f"{1e3 * min(t[size] for t in times):.1f} ms" for size in sizes}
    print(f"a turn of one step: {shown}", flush=True)
    return {
        "turn_1000_over_100": round(found, 3),
        "memory_1000_over_10": round(workers[1000].peak / workers[10].peak, 3),
    }


def bf16_accuracy() -> dict[str, float]:
    """Train on real CIFAR-10 in both precisions and compare the accuracies."""
    if "FEDEAS_DATA" not in os.environ:
        return {}
    data = load_images("cifar10")
    test = Samples.of(data, np.arange(data.train_size, data.train_size + 5000))
    found = {}
    for precision in ("float32", "bfloat16"):
        parts = [Samples.of(data, np.arange(k * 2000, (k + 1) * 2000)) for k in range(5)]

        def site(context: Context, parts: list[Samples] = parts) -> Site:
            number = int(context.node_config["partition-id"])
            return Site(number, parts[number], lambda _: parts[number], Path(), "cpu")

        with tempfile.TemporaryDirectory() as place:
            trained = run_rounds(
                InlineGrid(make_client_app(site), 5), settings(8, precision), TASK, 0,
                Path(place) / "c.safetensors", precision, lambda _: {},
            )  # fmt: skip
        model = make_model(ModelSettings("cnn"), TASK, 0)
        model.load_state_dict(trained.weights)
        found[f"accuracy_{precision}"] = round(accuracy(model, test)[0], 4)
    print(found, flush=True)
    return found


TARGETS: dict[str, Callable[[float], bool]] = {
    "inline_over_bare": lambda r: r <= 1.05,
    "inline_over_pfl": lambda r: r <= 1.0,
    "plain_over_inline": lambda r: r >= 1.4,
    "inline_over_ray": lambda r: r >= 1.7,
    "turn_1000_over_100": lambda r: r <= 1.2,
    "memory_1000_over_10": lambda r: r <= 1.3,
}


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pfl", help="Python of an environment with pfl[pytorch]==0.6.0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="names of ratios to measure")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.data)
        return 0
    pairs = {
        "inline_over_bare": ("inline", "bare"),
        "plain_over_inline": ("plain", "inline"),
        "inline_over_bf16": ("inline", "bf16"),
        "inline_over_ray": ("inline_6", "ray"),
    }
    if options.pfl:
        pairs["inline_over_pfl"] = ("inline", "pfl")
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = str(Path(place) / "noise")
        write_data(Path(folder), 20_000)
        for name, (above, below) in pairs.items():
            if not options.only or name in options.only:
                found[name] = ratio(folder, options.rounds, above, below, options.pfl)
        if not options.only or "turns" in options.only:
            found |= turns(folder, options.rounds)
    if not options.only or "bf16" in options.only:
        found |= bf16_accuracy()
    missed = [name for name, met in TARGETS.items() if name in found and not met(found[name])]
    print(json.dumps({**found, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
