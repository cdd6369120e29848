"""Faults for real, at random moments of a run over TLS, and whether the model is right.

    python benchmarks/faults.py [--moments 5] [--only KIND ...] [--folder FOLDER] [--sites 3]

A SuperLink and its SuperNodes run on this machine (examples/federation/loopback.py, Fashion-MNIST
from FEDEAS_DATA). One run is left alone; then, some seconds after a random one of its rounds:

- `supernode`: kill -9 of a SuperNode, which its supervisor starts again
- `clientapp`: kill -9 of the process that a site trains in
- `superlink`: kill -9 of the SuperLink, which is started again; the run is submitted once more
- `disk`: a site's cache is on a disk that is full after some images; later there is room again
- `stop`: SIGSTOP of all processes of a site, for longer than a round may take

A fault is survived if the run ends, at most after being submitted again, if its model is bit by bit
that of a replay of its log on the inline grid (the undisturbed model where nobody was missing), if
no round took longer than its timeout, and if every site's cache is whole. One line of JSON a fault,
kept in FOLDER/faults.jsonl: called again, what is there is not measured again. Needs root for
`disk`. The exit code is 1 when a fault was not survived.
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

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "federation"))

from loopback import Loopback, all_pids, session_of, signal_to
from replay import replay

from fedeas.cache import verify
from fedeas.cache.verify import caches
from fedeas.tensors import load_tensors

TIMEOUT = 75.0  # seconds of a round
SLACK = 15.0  # for adding up and testing, on a busy machine
LONGEST = 900.0  # seconds of a whole trial's run
RESUMES = 3

Fault = Callable[[Loopback, random.Random], dict[str, object]]


def kill_supernode(own: Loopback, chance: random.Random) -> dict[str, object]:
    """Kill a SuperNode; those below it end by themselves."""
    site = chance.randrange(own.sites)
    signal_to(own.pid(f"site-{site}"), signal.SIGKILL)
    return {"site": site}


def kill_clientapp(own: Loopback, chance: random.Random) -> dict[str, object]:
    """Kill the next process that trains, once one has run for a while."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        found = [
            (site, pid)
            for site in range(own.sites)
            for pid in own.children(f"site-{site}", "flwr-clientapp")
        ]
        if found:
            time.sleep(chance.uniform(0, 5))
            site, pid = chance.choice(found)
            lived = session_of(pid) is not None
            signal_to(pid, signal.SIGKILL)
            if lived:
                return {"site": site}
        time.sleep(0.1)
    return {"site": None}


def kill_superlink(own: Loopback, chance: random.Random) -> dict[str, object]:
    """Kill the SuperLink, and with it the server's part of the run."""
    signal_to(own.pid("link"), signal.SIGKILL)
    return {}


def fill_disk(own: Loopback, chance: random.Random) -> dict[str, object]:
    """Give a site little room (before the run), and more after its first round without it."""
    site = chance.randrange(own.sites)
    size = chance.randrange(16, 80)
    mount(own, site, f"{size}k")
    return {"site": site, "kilobytes": size, "later": lambda: mount(own, site, "8m", again=True)}


def stop_site(own: Loopback, chance: random.Random) -> dict[str, object]:
    """Stop a site for longer than a round may take, then let it go on."""
    site = chance.randrange(own.sites)
    supervisor = own.supervisor(f"site-{site}")
    stopped = [p for p in all_pids() if session_of(p) == supervisor and p != supervisor]
    for pid in stopped:
        signal_to(pid, signal.SIGSTOP)
    time.sleep(TIMEOUT + 10)
    for pid in stopped:
        signal_to(pid, signal.SIGCONT)
    return {"site": site}


FAULTS: dict[str, Fault] = {
    "supernode": kill_supernode,
    "clientapp": kill_clientapp,
    "superlink": kill_superlink,
    "disk": fill_disk,
    "stop": stop_site,
}


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
    own.configure(timeout=TIMEOUT, minimum=0.3)


def trial(own: Loopback, kind: str, number: int) -> dict[str, object]:
    """Run with one fault, submit again until there is a model, and look at what is left."""
    for attempt in range(5):
        found = _trial(own, kind, number, random.Random(f"{kind}/{number}/{attempt}"))
        if found["struck"]:  # otherwise the run ended before the moment came
            return found
    raise SystemExit(f"{kind} {number}: the run always ended before its moment")


def _trial(own: Loopback, kind: str, number: int, chance: random.Random) -> dict[str, object]:
    after = chance.randrange(3)
    delay = chance.uniform(0, 12 if after else 25)  # before the first round there is more to do
    fresh(own, f"{kind}-{number}")
    begun = time.monotonic()
    about: dict[str, object] = {"fault": kind, "number": number}
    if kind == "disk":
        about |= fill_disk(own, chance)
    running = own.submit()
    model = own.out / "model.safetensors"
    if kind != "disk":
        after_rounds(own, running, after)
        time.sleep(delay)
        about |= {"after_round": after, "seconds_later": round(delay, 1)}
        alive = not model.exists()
        about |= FAULTS[kind](own, chance)
    else:
        after_rounds(own, running, 1)
        about.pop("later")()
        alive = True
    about["struck"] = alive and about.get("site", 0) is not None
    ended(running, own)
    submitted = 1
    while not model.exists() and submitted <= RESUMES:
        submitted += 1
        ended(own.submit(), own)
    lines = own.history()
    longest = max((line["seconds"] for line in lines), default=0.0)
    found = {
        **about,
        "seconds": round(time.monotonic() - begun, 1),
        "submitted": submitted,
        "ended": model.exists(),
        "missing": [line["missing"] for line in lines],
        "longest_round": longest,
        "said": [wrong for line in lines for wrong in line["refused"]][:6],
        "caches_whole": caches_whole(own),
    }
    found["right"] = bool(found["ended"]) and is_right(own)
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


def is_right(own: Loopback) -> bool:
    """Compare the model with the undisturbed one, or with a replay where somebody was missing."""
    model, _ = load_tensors(own.out / "model.safetensors")
    missing = {line["round"]: line["missing"] for line in own.history()}
    if not any(missing.values()):
        other, _ = load_tensors(own.folder / "server" / "undisturbed" / "model.safetensors")
    else:
        with tempfile.TemporaryDirectory() as folder:
            other = replay(own, Path(folder), missing)
    return model.keys() == other.keys() and all(torch.equal(model[k], other[k]) for k in model)


def caches_whole(own: Loopback) -> bool:
    """Read every image of every site's cache: nothing is damaged or half-written."""
    bases = [own.folder / "sites" / str(k) / "cache" for k in range(own.sites)]
    found = [folder for base in bases for folder in caches(base)]
    return bool(found) and not any(list(verify(folder)) for folder in found)


def undisturbed(own: Loopback) -> None:
    """Run once with no fault, if that is still to be done."""
    if not (own.folder / "server" / "undisturbed" / "model.safetensors").exists():
        fresh(own, "undisturbed")
        if not own.run() or any(line["missing"] for line in own.history()):
            raise SystemExit(f"the undisturbed run did not end well: see {own.folder / 'logs'}")


def main() -> int:
    """Try every fault that is still to be tried."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--moments", type=int, default=5, help="of every kind")
    parser.add_argument("--only", nargs="*", choices=FAULTS, default=list(FAULTS))
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
        undisturbed(own)
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
