"""What 100, 10,000 and a million clients need, from what one message, megabyte and sample cost.

    python benchmarks/superlink.py > superlink.json
    python benchmarks/scale.py --measure superlink.json  # writes reproduction/recorded/scale.json
    python benchmarks/scale.py                           # prints the table of docs/architecture.md

`--measure` takes the SuperLink's costs from the last line of `superlink.py` and adds those of the
server's own part, measured here in seconds: reading, checking and adding up a reply, and planning
clients. Nothing else enters the tables but the assumptions that are printed with them.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "reproduction" / "recorded" / "scale.json"
MODEL = 2.5  # megabytes
LOOK = 3.0  # seconds between looks of a SuperNode for messages; Flower has no setting for it
BUSY = 0.5  # share of a core that is planned for, so that there is room for peaks
FEDERATIONS = ((100, 100), (10_000, 1_000), (1_000_000, 10_000))  # clients, of them in a round


def measure(superlink: dict) -> dict:
    """Add the costs of the server's own part to the SuperLink's."""
    import numpy as np

    from fedeas import FedEAS, LabelCounts
    from fedeas.train.models import make_model
    from fedeas.train.samples import Task
    from fedeas.train.settings import ModelSettings
    from fedeas.train.tensors import ExactSum, check_values

    model = make_model(ModelSettings("cnn"), Task(10, (64, 72, 1), (0.5,), (0.25,)), 0)
    weights = dict(model.state_dict())
    megabytes = sum(t.numel() * 4 for t in weights.values()) / 1e6
    total = ExactSum(10**6)
    begun = time.process_time()
    for _ in range(20):
        check_values(weights)
        total.add(weights, 100)
    added = (time.process_time() - begun) / 20 / megabytes
    counts = LabelCounts(np.random.default_rng(0).integers(0, 300, (200_000, 10)))
    begun = time.process_time()
    FedEAS(beta=12).plan(counts)
    planned = (time.process_time() - begun) / counts.K
    kept = ("clients", "link_cpu_s_per_look", "link_cpu_s_per_message", "link_cpu_s_per_megabyte")
    return {
        **{key: superlink[key] for key in (*kept, "link_peak_mb")},
        "server_cpu_s_per_megabyte": round(added, 5),
        "plan_cpu_s_per_client": float(f"{planned:.3g}"),
    }


def needs(cost: dict, clients: int, cohort: int) -> dict[str, float]:
    """Return what a federation needs of one SuperLink and one server, a round."""
    link = cohort * (cost["link_cpu_s_per_message"] + 2 * MODEL * cost["link_cpu_s_per_megabyte"])
    server = cohort * MODEL * cost["server_cpu_s_per_megabyte"]
    return {
        "idle_cores": clients / LOOK * cost["link_cpu_s_per_look"],
        "link_s": link,
        "server_s": server,
        "links": max(1, math.ceil(clients / holds(cost))),
    }


def holds(cost: dict) -> int:
    """Return how many clients one SuperLink holds connected: it is one process, on one core."""
    return int(BUSY * LOOK / cost["link_cpu_s_per_look"])


def table(cost: dict) -> str:
    """Return the table of docs/architecture.md."""
    found = [needs(cost, *federation) for federation in FEDERATIONS]
    rows = {
        "in a round": [f"{cohort:,}" for _, cohort in FEDERATIONS],
        "cores for idle clients that poll": [f"{own['idle_cores']:,.2g}" for own in found],
        "SuperLink, CPU seconds a round": [f"{own['link_s']:,.0f}" for own in found],
        "server (check and add), CPU seconds a round": [f"{own['server_s']:,.0f}" for own in found],
        "SuperLinks, at half a core of looks each": [f"{own['links']:,}" for own in found],
        "seconds a round if they share the messages": [
            f"{own['link_s'] / own['links'] / BUSY:,.0f}" for own in found
        ],
    }
    heads = " | ".join(f"{clients:,} clients" for clients, _ in FEDERATIONS)
    lines = [f"| | {heads} |", "|---|" + "---|" * len(FEDERATIONS)]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    return "\n".join(lines)


def main() -> int:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--measure", type=Path, help="output of superlink.py")
    given = parser.parse_args()
    if given.measure:
        line = given.measure.read_text().splitlines()[-1]
        RECORD.write_text(json.dumps(measure(json.loads(line)), indent=1) + "\n")
    print(table(json.loads(RECORD.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
