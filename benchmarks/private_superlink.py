"""A federation without any generator, for real: it settles beta, makes a generator, fills, trains.

    python benchmarks/private_superlink.py [--folder FOLDER] [--sites 5] [--only KIND ...]

A SuperLink and its SuperNodes run on this machine with TLS and node authentication
(examples/federation/loopback.py, Fashion-MNIST from FEDEAS_DATA). One `flwr run` does it all. The
first run is left alone; then there is one per stage in which the process of a site is killed:

- `negotiation`: while beta is settled by a noisy secure sum
- `generator`: in one of the sums that the generator is made of
- `fill`: when it has the generator, and is to fill classes and train in the first round
- `round`: in the second round

A run is right if it ends, at most after being submitted again, if its model is bit by bit that of a
replay of its log on the inline grid with the generator that the sites were given, if every site's
cache is whole, and if the ledgers agree with what the server has: every sum is entered at most once
in a ledger, at the same cost everywhere, by all sites that were not killed, and all of a ledger
costs no more than what the run asked for. One line of JSON a run, kept in FOLDER/own.jsonl: called
again, what is there is not measured again. The exit code is 1 when a run was not right.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "federation"))

from faults import RESUMES, TIMEOUT, caches_whole, ended, strike
from loopback import Loopback, session_of
from replay import is_right, site_config

from fedeas._util.files import read_json
from fedeas.generators.card import GeneratorCard
from fedeas_private.ledger import Ledger

KINDS = ("none", "negotiation", "generator", "fill", "round")
EPSILON = {"negotiation": 2.0, "generator": 40.0}  # a thousand images are few
BUDGET = 60.0
QUERIES = ("beta", "image-moments", "image-products")


def begun(own: Loopback, kind: str) -> bool:
    """Tell whether a run has come to a stage."""
    return {
        "negotiation": True,
        "generator": (own.out / "policy.json").exists(),
        "fill": (own.out / "private-generator" / "generator.json").exists(),
        "round": len(own.history()) > 0,
    }[kind]


def kill_in(own: Loopback, kind: str, chance: random.Random) -> tuple[int, bool]:
    """Submit a run, kill the process of a site in a stage, and wait; return the site."""
    site = chance.randrange(own.sites)
    running, struck = own.submit(), kind == "none"
    while running.poll() is None and not (struck or begun(own, kind)):
        time.sleep(0.1)
    old = set(own.children(f"site-{site}", "flwr-clientapp"))
    while running.poll() is None and not struck:
        new = set(own.children(f"site-{site}", "flwr-clientapp")) - old
        time.sleep(chance.uniform(0.05, 1.5) if new else 0.05)
        alive = [pid for pid in new if session_of(pid) is not None]
        strike("clientapp", alive)
        struck = bool(alive)
    ended(running, own)
    return site, struck


def ledger_of(own: Loopback, number: int) -> Ledger:
    """Open the ledger of a site."""
    site = site_config(own, number)
    return Ledger.open(site.ledger_folder, BUDGET, site.delta)


def ledgers(own: Loopback) -> dict[int, dict[str, list[float]]]:
    """Return what every site has entered: the costs in rho by query."""
    found: dict[int, dict[str, list[float]]] = {}
    for k in range(own.sites):
        entries = ledger_of(own, k).entries
        found[k] = {query: [e.rho for e in entries if e.query == query] for query in QUERIES}
        if len(entries) != sum(map(len, found[k].values())):
            found[k]["other"] = [e.rho for e in entries if e.query not in QUERIES]
    return found


def agree(own: Loopback, killed: int | None) -> bool:
    """Tell whether the ledgers and the server's record say the same."""
    card = GeneratorCard.load(own.out / "private-generator")
    entered = ledgers(own)
    costs = {query: {rho for k in entered for rho in entered[k][query]} for query in QUERIES}
    once = all(len(rhos) <= 1 for one in entered.values() for rhos in one.values())
    everywhere = all(
        len(entered[k][query]) == 1 for k in entered if k != killed for query in QUERIES
    )
    within = all(ledger_of(own, k).epsilon_spent <= sum(EPSILON.values()) + 1e-9 for k in entered)
    same = all(len(rhos) == 1 for rhos in costs.values())
    right = card.privacy.epsilon == EPSILON["generator"] and card.training.sites >= own.sites - 1
    return once and everywhere and within and same and right


def trial(own: Loopback, kind: str) -> dict[str, object]:
    """Run with a kill in a stage, submit again until there is a model, and look at what is left."""
    for k in range(own.sites):
        for part in ("cache", "state"):
            shutil.rmtree(own.folder / "sites" / str(k) / part, ignore_errors=True)
    own.out = own.folder / "server" / kind
    shutil.rmtree(own.out, ignore_errors=True)
    own.configure(timeout=TIMEOUT, min_reply_fraction=0.3)
    since, model = time.monotonic(), own.out / "model.safetensors"
    site, struck = kill_in(own, kind, random.Random(kind))
    submitted = 1
    while not model.exists() and submitted <= RESUMES:
        submitted += 1
        ended(own.submit(), own)
    lines, killed = own.history(), None if kind == "none" else site
    found: dict[str, object] = {
        "killed_in": kind, "site": killed, "struck": struck, "submitted": submitted,
        "seconds": round(time.monotonic() - since, 1), "ended": model.exists(),
        "missing": [line["missing"] for line in lines],
        "accuracy": [round(line["accuracy"], 4) for line in lines if "accuracy" in line],
        "settled": read_json(own.out / "policy.json"),
        "caches_whole": caches_whole(own),
        "ledgers_agree": agree(own, killed),
    }  # fmt: skip
    found["right"] = bool(
        struck and found["ended"] and found["caches_whole"] and found["ledgers_agree"]
    ) and is_right(own)
    return found


def main() -> int:
    """Try every stage that is still to be tried."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", type=Path, help="kept; otherwise removed at the end")
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    os.environ["FEDEAS_STORE"] = str(folder / "store")
    own = Loopback(folder, given.sites)
    if not (folder / "run.toml").exists():
        own.prepare(
            generator="private", site={"epsilon": BUDGET}, rounds=2,
            policy=f"negotiate(epsilon={EPSILON['negotiation']})",
            generator_epsilon=EPSILON["generator"],
        )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # then, too, everything is stopped
    record = folder / "own.jsonl"
    found = (
        [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    )
    try:
        own.start()
        for kind in given.only:
            if any(one["killed_in"] == kind for one in found):
                continue
            found.append(trial(own, kind))
            print(json.dumps(found[-1]), flush=True)
            with record.open("a") as file:
                file.write(json.dumps(found[-1]) + "\n")
    finally:
        own.stop()
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    wrong = [one for one in found if not one["right"]]
    print(json.dumps({"runs": len(found), "right": len(found) - len(wrong)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
