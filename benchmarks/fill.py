"""How well a fill is batched, as ratios measured in one run.

    python benchmarks/fill.py [--model FOLDER] [--batch 32] [--steps 5] [--rounds 5]

1. `fill_over_bare`: images per second of filling a cache from a FedEAS plan, against a bare loop
   over diffusers' own network and scheduler at the same batch size, steps and guidance.
   Target: at least 0.95.
2. `fill_over_one_by_one`: the same against generating class by class and client by client, on the
   same plan, which has many small requests. Target: at least 3.

Contestants alternate; the ratio is the median over the rounds. The last line is JSON; the exit code
is 1 when a target is missed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from diffusers import DPMSolverMultistepScheduler, UNet2DModel

from fedeas import FedEAS, LabelCounts, Plan
from fedeas.cache import Cache
from fedeas.cache.fill import fill
from fedeas.generators import Generator, make_generator

MODELS = Path(__file__).parents[1] / "src" / "fedeas" / "generators" / "included"
GUIDANCE = 2.0


def small_requests(batch: int) -> Plan:
    """Plan for many small clients: a few images of a few classes each."""
    rng = np.random.default_rng(0)
    n = rng.multinomial(12, rng.dirichlet(np.full(10, 0.2), 60))
    plan = FedEAS(beta=2.5).plan(LabelCounts(n))
    # Whole batches, so that the bare loop has the same work.
    samples = plan.samples.copy()
    excess = samples.sum() % batch
    for client, label in zip(*np.nonzero(samples), strict=True):
        taken = min(excess, samples[client, label])
        samples[client, label] -= taken
        excess -= taken
    return Plan.of(LabelCounts(n), samples, "fedeas(beta=2.5)")


@torch.inference_mode()
def bare(network: UNet2DModel, noise: dict, batch: int, steps: int, batches: int) -> None:
    """Sample as the scheduler's documentation shows, with nothing of ours."""
    side, classes = network.config.sample_size, network.config.num_class_embeds
    for number in range(batches):
        scheduler = DPMSolverMultistepScheduler.from_config(noise, thresholding=True)
        scheduler.set_timesteps(steps)
        rng = torch.Generator().manual_seed(number)
        x = torch.randn((batch, network.config.in_channels, side, side), generator=rng)
        labels = torch.randint(classes - 1, (batch,), generator=rng)
        both = torch.cat([labels, torch.full_like(labels, classes - 1)])
        for t in scheduler.timesteps:
            asked, unasked = network(torch.cat([x, x]), t, class_labels=both).sample.chunk(2)
            x = scheduler.step(unasked + GUIDANCE * (asked - unasked), t, x).prev_sample
        ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).numpy()


def one_by_one(plan: Plan, generator: Generator, batch: int) -> None:
    """Generate class by class and client by client, as a loop over clients does."""
    for client, label in zip(*np.nonzero(plan.samples), strict=True):
        wanted = int(plan.samples[client, label])
        for start in range(0, wanted, batch):
            size = min(batch, wanted - start)
            seeds = np.arange(start, start + size, dtype=np.uint64)
            generator.sample(np.full(size, label), seeds)


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODELS / "fashion_mnist")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    plan = small_requests(options.batch)
    spec = f"diffusion(model={options.model}, steps={options.steps}, guidance={GUIDANCE})"
    generator = make_generator(spec)
    network = UNet2DModel.from_pretrained(options.model / "unet", torch_dtype=torch.float32).eval()
    noise = DPMSolverMultistepScheduler.load_config(options.model / "scheduler")
    batches = plan.total // options.batch
    requests = int((plan.samples > 0).sum())
    print(f"{plan.total} images in {requests} requests of {len(plan.samples)} clients")

    def fill_anew() -> None:
        with tempfile.TemporaryDirectory() as folder:
            cache = Cache(folder, generator, plan.samples.shape[1])
            fill(plan, generator, cache, options.batch)

    contestants = {
        "bare": lambda: bare(network, noise, options.batch, options.steps, batches),
        "fill": fill_anew,
        "one_by_one": lambda: one_by_one(plan, generator, options.batch),
    }
    contestants["bare"]()  # to warm up
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(options.rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
        shown = ", ".join(f"{name} {plan.total / own[-1]:.1f}" for name, own in times.items())
        print(f"round {number + 1}, images per second: {shown}", flush=True)
    over_bare, over_one = (
        statistics.median(a / b for a, b in zip(times[name], times["fill"], strict=True))
        for name in ("bare", "one_by_one")
    )
    met = over_bare >= 0.95 and over_one >= 3
    found = {
        "fill_over_bare": round(over_bare, 3),
        "fill_over_one_by_one": round(over_one, 2),
        "images_per_second": {k: round(plan.total / min(v), 2) for k, v in times.items()},
        "images": plan.total,
        "requests": requests,
        "batch": options.batch,
        "steps": options.steps,
        "targets_met": met,
    }
    print(json.dumps(found))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
