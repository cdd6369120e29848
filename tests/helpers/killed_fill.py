"""Fill a cache again and again, killed in the middle of it, then to its end.

Every process is killed right before one of its steps, which is drawn by a seed: an image that is
drawn, or a statement of SQL; or at a random moment of writing. Prints the step, or `end`.

python killed_fill.py PLAN CACHE LOG KIND KILLS
"""

import os
import random
import signal
import sqlite3
import sys
import threading

from fedeas.cache import Cache
from fedeas.cache.fill import fill
from fedeas.planning.plan import Plan
from helpers.noted_generators import KINDS, Counting

STEPS = ("sample", "statement", "moment")


class Struck:
    """Kills its process right before the n-th step of a kind, or some time after the n-th batch."""

    def __init__(self, inner: Counting, kind: str, left: int, delay: float) -> None:
        self.inner, self.fingerprint = inner, inner.fingerprint
        self.kind, self.left, self.delay = kind, left, delay

    def step(self, event: str) -> None:
        if event == self.kind:
            self.left -= 1
            if not self.left:
                self.strike()

    def strike(self) -> None:
        sys.stdout.write(f"{self.kind}\n")
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def sample(self, labels, seeds):
        self.step("sample")
        samples = self.inner.sample(labels, seeds)
        if self.kind == "moment":  # while SQLite writes and syncs, mostly
            self.left -= 1
            if not self.left:
                threading.Timer(self.delay, self.strike).start()
        return samples


def watch(step) -> None:
    """Call `step` before every statement of SQL."""
    connect = sqlite3.connect

    def connected(*arguments, **more) -> sqlite3.Connection:
        connection = connect(*arguments, **more)
        connection.set_trace_callback(lambda _: step("statement"))
        return connection

    sqlite3.connect = connected


def start(plan: Plan, cache: Cache, inner: Counting, *strike) -> int:
    """Fill in a process of its own, killed at a step, or at none; return how it ended."""
    child = os.fork()  # so that the seconds of importing are paid once
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    generator = Struck(inner, *strike)
    watch(generator.step)
    fill(plan, generator, cache, 7)
    sys.stdout.write("end\n")
    sys.stdout.flush()
    os._exit(0)


def main(plan_file: str, folder: str, log: str, samples: str, kills: int) -> int:
    """Kill as often as is asked for; each must strike."""
    plan = Plan.load(plan_file)
    generator = KINDS[samples](log)
    cache = Cache(folder, generator, 3)
    chance = random.Random(0)
    for _ in range(kills):
        kind = chance.choice(STEPS)
        # A fill begins with some twenty statements, and a batch takes half as many.
        number = chance.randint(1, 60 if kind == "statement" else 5)
        delay = chance.uniform(0, 0.02)  # seconds
        if start(plan, cache, generator, kind, number, delay) != -signal.SIGKILL:
            return 1
    return start(plan, cache, generator, "", 0, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5], int(sys.argv[5])))
