"""Faults for real, at random moments of a run over TLS, and whether the model is right.

    python benchmarks/faults.py [--moments 5] [--only KIND ...] [--folder FOLDER] [--sites 3]

A SuperLink and its SuperNodes run on this machine (examples/federation/loopback.py, Fashion-MNIST
from FEDEAS_DATA). Some seconds after a random round, or before the first one, comes one of

- `supernode`: kill -9 of a SuperNode, which its supervisor starts again
- `clientapp`: kill -9 of the process that a site trains in
- `superlink`: kill -9 of the SuperLink, which is started again; the run is submitted once more
- `disk`: a site's cache is on a disk that is full after some images; later there is room again
- `stop`: SIGSTOP of all processes of a site, for longer than a round may take

A fault is survived if the run ends, at most after being submitted again, if its model is bit by bit
that of a replay of its log on the inline grid, if no round took longer than its timeout, and if
every site's cache is whole. One line of JSON a fault, kept in FOLDER/faults.jsonl: called again,
what is there is not measured again. Needs root for `disk`. The exit code is 1 when a fault was not
survived.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "federation"))

from loopback import Loopback, all_pids, session_of, signal_to
from replay import is_right

from fedeas.cache import verify
from fedeas.cache.store import caches

TIMEOUT = 75.0  # seconds of a round
SLACK = 15.0  # for adding up and testing, on a busy machine
LONGEST = 900.0  # seconds of a whole trial's run
RESUMES = 3

Aim = Callable[[Loopback, random.Random], tuple[int | None, list[int]]]


def supernode(own: Loopback, chance: random.Random) -> tuple[int | None, list[int]]:
    """Aim at a SuperNode; those below it end by themselves."""
    site = chance.randrange(own.sites)
    return site, [own.pid(f"site-{site}")]


def clientapp(own: Loopback, chance: random.Random) -> tuple[int | None, list[int]]:
    """Aim at the process of a site's next turn, a part of the way through it."""

    def turns() -> list[tuple[int, int]]:
        sites = range(own.sites)
        return [(k, pid) for k in sites for pid in own.children(f"site-{k}", "flwr-clientapp")]

    before = turns()  # they may have answered, and only be about to end
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if begun := [turn for turn in turns() if turn not in before]:
            time.sleep(chance.uniform(0, 3))  # its imports alone take as long
            site, pid = chance.choice(begun)
            if session_of(pid) is not None:  # one that has ended is no fault
                return site, [pid]
        time.sleep(0.1)
    return None, []


def superlink(own: Loopback, chance: random.Random) -> tuple[int | None, list[int]]:
    """Aim at the SuperLink, and with it at the server's part of the run."""
    return None, [own.pid("link")]


def whole_site(own: Loopback, chance: random.Random) -> tuple[int | None, list[int]]:
    """Aim at all processes of a site."""
    site = chance.randrange(own.sites)
    supervisor = own.supervisor(f"site-{site}")
    return site, [p for p in all_pids() if session_of(p) == supervisor and p != supervisor]


AIMS: dict[str, Aim] = {
    "supernode": supernode,
    "clientapp": clientapp,
    "superlink": superlink,
    "stop": whole_site,
}
KINDS = (*AIMS, "disk")


def strike(kind: str, pids: list[int]) -> None:
    """Kill processes, or stop them for longer than a round may take."""
    for pid in pids:
        signal_to(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    if kind == "stop":
        time.sleep(TIMEOUT + 10)
        for pid in pids:
            signal_to(pid, signal.SIGCONT)


def mount(own: Loopback, site: int, size: str, again: bool = False) -> None:
    """Put a site's cache on a disk of that size, or change the size."""
    cache = own.folder / "sites" / str(site) / "cache"
    cache.mkdir(exist_ok=True)
    option = f"remount,size={size}" if again else f"size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(cache)], check=True)


def unmount(own: Loopback) -> None:
    """Take all disks off again."""
    for site in range(own.sites):
        cache = own.folder / "sites" / str(site) / "cache"
        if os.path.ismount(cache):
            subprocess.run(["umount", "-l", str(cache)], check=True)


def fresh(own: Loopback, name: str) -> None:
    """Forget what sites generated and kept, and name a new run."""
    unmount(own)
    for site in range(own.sites):
        for part in ("cache", "state"):
            shutil.rmtree(own.folder / "sites" / str(site) / part, ignore_errors=True)
    own.out = own.folder / "server" / name
    shutil.rmtree(own.out, ignore_errors=True)
    own.configure(timeout=TIMEOUT, min_reply_fraction=0.3)


def trial(own: Loopback, kind: str, number: int) -> dict[str, object]:
    """Run with one fault, submit again until there is a model, and look at what is left."""
    for attempt in range(5):
        chance = random.Random(f"{kind}/{number}/{attempt}")
        fresh(own, f"{kind}-{number}")
        begun = time.monotonic()
        hit = strike_disk(own, chance) if kind == "disk" else strike_process(own, kind, chance)
        if hit is not None:  # otherwise the moment came too late
            about = {"fault": kind, "number": number, **hit}
            return {**about, "attempt": attempt, **outcome(own, begun, replayed=kind != "disk")}
    raise SystemExit(f"{kind} {number}: its moment always came too late")


def strike_process(own: Loopback, kind: str, chance: random.Random) -> dict[str, object] | None:
    """Submit a run and strike processes at a random moment of it; None if that was too late."""
    after = chance.randrange(3)
    # Before the first round there is more to do.
    delay = chance.uniform(0, 12 if after else 25)
    running = own.submit()
    after_rounds(own, running, after)
    time.sleep(delay)
    site, pids = AIMS[kind](own, chance)
    late = (own.out / "model.safetensors").exists()
    strike(kind, pids)
    ended(running, own)
    if late or not pids:
        return None
    return {"after_round": after, "seconds_later": round(delay, 1), "site": site}


def strike_disk(own: Loopback, chance: random.Random) -> dict[str, object]:
    """Run a site with little room for its cache, and more after the first round."""
    site = chance.randrange(own.sites)
    size = chance.randrange(16, 80)
    mount(own, site, f"{size}k")
    running = own.submit()
    after_rounds(own, running, 1)
    mount(own, site, "8m", again=True)
    ended(running, own)
    return {"site": site, "kilobytes": size}


def outcome(own: Loopback, begun: float, replayed: bool) -> dict[str, object]:
    """Submit the run again until there is a model, and judge what is there.

    A site whose disk is full trains on its real samples and tells nobody: no replay knows that.
    """
    submitted = 1
    while not (own.out / "model.safetensors").exists() and submitted <= RESUMES:
        submitted += 1
        ended(own.submit(), own)
    lines = own.history()
    longest = max((line["seconds"] for line in lines), default=0.0)
    found: dict[str, object] = {
        "seconds": round(time.monotonic() - begun, 1),
        "submitted": submitted,
        "ended": (own.out / "model.safetensors").exists(),
        "missing": [line["missing"] for line in lines],
        "longest_round": longest,
        "said": [wrong for line in lines for wrong in line["refused"]][:6],
        "caches_whole": caches_whole(own),
    }
    found["right"] = bool(found["ended"]) and (not replayed or is_right(own))
    found["survived"] = bool(
        found["right"] and found["caches_whole"] and longest <= TIMEOUT + SLACK
    )
    return found


def ended(running: subprocess.Popen[bytes], own: Loopback) -> None:
    """Wait for the end of a submitted run: of the command, or of waiting."""
    deadline = time.monotonic() + LONGEST
    model = own.out / "model.safetensors"
    while running.poll() is None and time.monotonic() < deadline and not model.exists():
        time.sleep(0.5)
    if running.poll() is None:
        running.terminate()
        running.wait()


def after_rounds(own: Loopback, running: subprocess.Popen[bytes], rounds: int) -> None:
    """Wait until the log has that many lines, or the run has ended."""
    while len(own.history()) < rounds and running.poll() is None:
        time.sleep(0.3)


def caches_whole(own: Loopback) -> bool:
    """Read every image of every site's cache: nothing is damaged or half-written."""
    bases = [own.folder / "sites" / str(k) / "cache" for k in range(own.sites)]
    found = [folder for base in bases for folder in caches(base)]
    return bool(found) and not any(list(verify(folder)) for folder in found)


def main() -> int:
    """Try every fault that is still to be tried."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--moments", type=int, default=5, help="of every kind")
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--folder", type=Path, help="kept; otherwise removed at the end")
    parser.add_argument("--sites", type=int, default=3)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    os.environ["FEDEAS_STORE"] = str(folder / "store")
    own = Loopback(folder, given.sites)
    if not (folder / "run.toml").exists():
        own.prepare(rounds=3, policy="fedeas(beta=12)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # then, too, everything is stopped
    record = folder / "faults.jsonl"
    lines = record.read_text().splitlines() if record.exists() else []
    found = [json.loads(line) for line in lines]
    try:
        own.start()
        for number in range(given.moments):
            for kind in given.only:
                if any((one["fault"], one["number"]) == (kind, number) for one in found):
                    continue
                found.append(trial(own, kind, number))
                print(json.dumps(found[-1]), flush=True)
                with record.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    finally:
        own.stop()
        unmount(own)
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    lost = [one for one in found if not one["survived"]]
    print(json.dumps({"faults": len(found), "survived": len(found) - len(lost)}))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
