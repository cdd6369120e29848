"""Fill a cache again and again, killed in the middle of it, then to its end.

Every process is killed right before one of its steps, which is drawn by a seed: a batch that is
generated, a file that is written, put in its place or removed. Prints the step, or `end`.

python killed_fill.py PLAN CACHE LOG KIND STEPS KILLS
"""

import os
import random
import signal
import sys
from pathlib import Path

import numpy as np

from fedeas.cache import Cache, writer
from fedeas.cache.fill import fill
from fedeas.cache.storage import LocalStorage
from fedeas.planning.plan import Plan
from helpers.noted_generators import KINDS, Counting

MOST = {"sample": 6, "write": 8, "replace": 8, "remove": 3}  # steps of a kind before a kill


class Struck:
    """Kills its process right before the n-th step of a kind."""

    def __init__(self, inner: Counting, kind: str, left: int) -> None:
        self.inner, self.fingerprint = inner, inner.fingerprint
        self.kind, self.left = kind, left

    def step(self, kind: str) -> None:
        if kind == self.kind:
            self.left -= 1
            if not self.left:
                sys.stdout.write(f"{self.kind}\n")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGKILL)

    def sample(self, labels, seeds):
        self.step("sample")
        return self.inner.sample(labels, seeds)

    def watch(self, owner: type, kind: str) -> None:
        """Take a step before every call of a method."""
        method = getattr(owner, kind)

        def watched(*arguments):
            self.step(kind)
            return method(*arguments)

        setattr(owner, kind, watched)


def start(plan: Plan, cache: Cache, inner: Counting, kind: str, left: int) -> int:
    """Fill in a process of its own, killed at a step, or at none; return how it ended."""
    child = os.fork()  # so that the seconds of importing are paid once
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    generator = Struck(inner, kind, left)
    generator.watch(LocalStorage, "write")
    generator.watch(LocalStorage, "remove")
    generator.watch(Path, "replace")
    fill(plan, generator, cache, 7)
    sys.stdout.write("end\n")
    sys.stdout.flush()
    os._exit(0)


def main(plan_file: str, folder: str, log: str, samples: str, steps: str, kills: int) -> int:
    """Kill as often as is asked for; a fill may be over before its step comes."""
    plan = Plan.load(plan_file)
    generator = KINDS[samples](log)
    writer.SHARD_BYTES = (
        3 * generator.draw(np.zeros(7, int), np.zeros(7, np.uint64)).nbytes
    )  # of three batches
    cache = Cache(folder, generator, 3)
    chance = random.Random(0)
    for _ in range(kills):
        kind = chance.choice(steps.split(","))
        if start(plan, cache, generator, kind, chance.randint(1, MOST[kind])) > 0:
            return 1
    return start(plan, cache, generator, "", 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:6], int(sys.argv[6])))
