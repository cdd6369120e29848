"""What the secure sum adds to a round of training, beside the same round without.

    python benchmarks/secure_rounds.py [--clients 5] [--rounds 3] [--superlink]

Inline: rounds of a small CNN on CIFAR-sized images (as in rounds.py), plain and secure in turn, in
one process; the ratio is the median over the turns. With `--superlink`: a run over a SuperLink and
its SuperNodes on this machine (examples/federation/loopback.py, needs FEDEAS_DATA), plain, then
secure. There every message starts a process at its site, and a secure round has four messages
instead of one. The last line is JSON: seconds of a round, their ratio, and whether the models are
the same. The exit code is 1 if they are not.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from rounds import EACH, TASK, open_site, settings, write_data

from fedeas.flower.backends import InlineGrid
from fedeas.flower.rounds import PLAIN, run_rounds
from fedeas.training.tensors import Tensors, load_tensors
from fedeas_private.flower.secure_client import simulated_app, simulated_members
from fedeas_private.flower.secure_round import SecureAggregation

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "federation"))


def inline(clients: int, rounds: int) -> dict[str, object]:
    """Train plain and secure in turn."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    models: dict[bool, Tensors] = {}
    with tempfile.TemporaryDirectory() as place:
        write_data(Path(place) / "data", clients * EACH + 10)
        grid = InlineGrid(
            simulated_app(partial(open_site, str(Path(place) / "data"), EACH), clients), clients
        )
        for turn in range(3):
            for secure in (False, True):
                moments: list[float] = []
                models[secure] = run_rounds(
                    grid, settings(rounds + 1).replace(secure=secure), TASK, 0,
                    Path(place) / f"{turn}-{secure}", "bench", lambda _: {},
                    lambda _, moments=moments: moments.append(time.perf_counter()),
                    aggregation=SecureAggregation(simulated_members(clients)) if secure else PLAIN,
                ).weights  # fmt: skip
                seconds[secure] += [b - a for a, b in itertools.pairwise(moments)]
    return judged(seconds, models)


def over_superlink(sites: int, rounds: int) -> dict[str, object]:
    """Train real sites, plain and secure, one after the other."""
    from loopback import Loopback

    seconds: dict[bool, list[float]] = {}
    models: dict[bool, Tensors] = {}
    for secure in (False, True):
        with tempfile.TemporaryDirectory() as place:
            own = Loopback(Path(place), sites)
            # The first round also generates.
            own.prepare(
                site={"allow": "train exact updates"}, rounds=rounds + 1, policy="fedeas(beta=5)",
                timeout=600.0, secure=secure,
            )  # fmt: skip
            try:
                own.start()
                if not own.run():
                    raise SystemExit((own.folder / "logs" / "run.log").read_text()[-2000:])
            finally:
                own.stop()
            seconds[secure] = [float(line["seconds"]) for line in own.history()[1:]]
            models[secure] = load_tensors(own.out / "model.safetensors")[0]
    return judged(seconds, models)


def judged(seconds: dict[bool, list[float]], models: dict[bool, Tensors]) -> dict[str, object]:
    """Return seconds of a round, plain and secure, and whether the models have the same bits."""
    plain, secure = (statistics.median(seconds[s]) for s in (False, True))
    same = all(torch.equal(w, models[True][k]) for k, w in models[False].items())
    print(
        f"a round: plain {plain:.2f} s, secure {secure:.2f} s; the same model: {same}", flush=True
    )
    return {"plain": plain, "secure": secure, "ratio": secure / plain, "same": same}


def main() -> int:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--superlink", action="store_true")
    given = parser.parse_args()
    found = {"inline": inline(given.clients, given.rounds)}
    if given.superlink:
        found["superlink"] = over_superlink(given.clients, given.rounds)
    print(json.dumps(found))
    return 0 if all(one["same"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
