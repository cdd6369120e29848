"""A federation without any generator, for real: it aims, makes one, fills, trains.

    python benchmarks/private_superlink.py [--folder FOLDER] [--sites 5] [--only KIND ...]

A SuperLink and its SuperNodes run on this machine with TLS and node authentication
(examples/federation/loopback.py, Fashion-MNIST from FEDEAS_DATA). One `flwr run` does it all. The
first run is left alone; then there is one per stage in which the process of a site is killed, and
one (`server-target` and so on) in which the SuperLink is, and with it the server:

- `target`: while the class distribution is summed up
- `generator`: in one of the sums that the generator is made of
- `classifier`: in one of those of the classifier, from the same budget
- `fill`: when it has the generator, and is to fill classes and train in the first round
- `round`: in the second round

A run is right if it ends, at most after being submitted again, if its model is bit by bit that of a
replay of its log on the inline grid with the generator that the sites were given, if every site's
cache is whole, and if the ledgers agree with what the server has: every sum is entered at most once
in a ledger, at the same cost everywhere, by all sites that were not killed, and all of a ledger
costs no more than what the run asked for. A server that was killed may have asked once more, which
the generator's card counts. The classifier is compared with one from exact sums over all samples in
one process: right means that they agree on three quarters of the test images. One line of JSON a
run, kept in FOLDER/own.jsonl: called again, what is there is not measured again. The exit code is 1
when a run was not right.
"""

import argparse
import dataclasses
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "federation"))

from faults import RESUMES, TIMEOUT, caches_whole, ended, strike
from loopback import Loopback, session_of
from replay import is_right, run_config, site_config

from fedeas._internal.files import read_json
from fedeas.generators.card import CARD, GeneratorCard
from fedeas.private.accounting import epsilon_of, rho_for
from fedeas.private.flower.deployed import open_site
from fedeas.private.generator.classifier import PrivateClassifier
from fedeas.private.generator.make import CLASSIFIER_FOLDER, make_classifier
from fedeas.private.ledger import Ledger
from fedeas.train.flower.deployed import open_part

STAGES = ("target", "generator", "classifier", "fill", "round")
SERVER = "server-"  # that is killed, and not a site
KINDS = ("none", *STAGES, *(SERVER + stage for stage in STAGES))
# A thousand images are few: so little noise that the result can be compared with an exact one.
EPSILON = {"target": 2.0, "generator": 1e5}
BUDGET = 3e5
# The sums that sites are asked for, and how often.
QUERIES = {
    "class-totals": 1, "image-moments": 1, "image-products": 1, "feature-means": 2,
    "feature-products": 1,
}  # fmt: skip
ALIKE = 0.75  # of the test images


def begun(own: Loopback, kind: str) -> bool:
    """Tell whether a run has come to a stage."""
    return {
        "target": True,
        "generator": (own.out / "policy.json").exists(),
        "classifier": (own.out / "private-generator" / CARD).exists(),
        "fill": (own.out / "private-generator" / CLASSIFIER_FOLDER / CARD).exists(),
        "round": len(own.history()) > 0,
    }[kind.removeprefix(SERVER)]


def kill_in(own: Loopback, kind: str, chance: random.Random) -> tuple[int, bool]:
    """Submit a run, kill the process of a site or the server in a stage; return the site."""
    site = chance.randrange(own.sites)
    running, struck = own.submit(), kind == "none"
    while running.poll() is None and not (struck or begun(own, kind)):
        time.sleep(0.1)
    old = set(own.children(f"site-{site}", "flwr-clientapp"))
    while running.poll() is None and not struck:
        new = set(own.children(f"site-{site}", "flwr-clientapp")) - old
        time.sleep(chance.uniform(0.05, 1.5) if new else 0.05)
        alive = [pid for pid in new if session_of(pid) is not None]
        if alive and kind.startswith(SERVER):  # while a site answers
            alive = [own.pid("link")]
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


def agree(own: Loopback, killed: int | None, server: bool) -> bool:
    """Tell whether the ledgers and the server's record say the same."""
    card = GeneratorCard.load(own.out / "private-generator")
    entered = ledgers(own)
    costs = {query: {rho for k in entered for rho in entered[k][query]} for query in QUERIES}
    again = 1 if server else 0  # a sum whose answer the server lost
    once = all(
        len(rhos) <= QUERIES.get(query, 0) + again
        for one in entered.values()
        for query, rhos in one.items()
    )
    everywhere = all(
        len(entered[k][query]) >= often
        for k in entered
        if k != killed
        for query, often in QUERIES.items()
    )
    within = all(within_budget(ledger_of(own, k), card.privacy.epsilon, again) for k in entered)
    same = all(len(costs[query]) <= often for query, often in QUERIES.items())
    paid = card.privacy.epsilon == EPSILON["generator"] or server
    right = paid and card.training.sites >= own.sites - 1
    return once and everywhere and within and same and right


def within_budget(ledger: Ledger, epsilon: float, again: int) -> bool:
    """Tell whether a site paid no more than it was asked for, or than its least entry."""
    target = (1 + again) * ledger.amount(rho_for(EPSILON["target"], ledger.delta))
    most = epsilon_of([target, rho_for(epsilon, ledger.delta)], ledger.delta)
    return bool(ledger.epsilon_spent <= most * (1 + 1e-9))


def alike(own: Loopback) -> float:
    """Return on how many test images the classifier agrees with one from exact sums."""
    made = PrivateClassifier.load(own.out / "private-generator" / CLASSIFIER_FOLDER)
    parts = [open_site(site_config(own, k)).real for k in range(own.sites)]
    ends = np.cumsum([len(part.labels) for part in parts])
    pooled = dataclasses.replace(
        parts[0].data, train_size=int(ends[-1]),
        samples=np.concatenate([part.data.samples[: len(part.labels)] for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
    )  # fmt: skip
    sites = np.split(np.arange(ends[-1]), ends[:-1])
    exact = make_classifier(pooled, sites, epsilon=math.inf)
    config, store = run_config(own), str(own.folder / "store")
    test = open_part("test", str(config["test-data"]), store, pooled.classes, "", "")
    return float((made.predict(test.samples) == exact.predict(test.samples)).mean())


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
    lines, server = own.history(), kind.startswith(SERVER)
    killed = None if server or kind == "none" else site
    found: dict[str, object] = {
        "killed_in": kind, "site": killed, "struck": struck, "submitted": submitted,
        "seconds": round(time.monotonic() - since, 1), "ended": model.exists(),
        "missing": [line["missing"] for line in lines],
        "accuracy": [round(line["accuracy"], 4) for line in lines if "accuracy" in line],
        "settled": read_json(own.out / "policy.json"),
        "caches_whole": caches_whole(own),
        "ledgers_agree": agree(own, killed, server), "classifiers_alike": alike(own),
    }  # fmt: skip
    found["right"] = (
        bool(struck and found["ended"] and found["caches_whole"] and found["ledgers_agree"])
        and found["classifiers_alike"] >= ALIKE
        and is_right(own)
    )
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
            policy="fedeas(beta=5, target=federation)", prior_epsilon=EPSILON["target"],
            generator_epsilon=EPSILON["generator"], generator_classifier=True,
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
