"""Run a federation again and again, killed at random moments, then to its end.

Prints the rounds that were done at every kill.

python killed_runs.py CONFIG OUT KILLS LONGEST
"""

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401 - the first optimizer of every fork would load it

from fedeas.lab.config import read_config
from fedeas.lab.experiment import run


def rounds_done(out: str) -> int:
    """Return the rounds in the run's log."""
    log = Path(out) / "log.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def main(config: str, out: str, kills: int, longest: float) -> int:
    """Fork, so that the seconds of importing are paid once; the kills are real ones."""
    chance = random.Random(0)
    settings = read_config(Path(config))
    done = 0
    for _ in range(10 * kills):
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            run(settings, Path(out))
            os._exit(0)
        with contextlib.suppress(OSError):
            os.setpgid(child, child)  # here too: the child may not have come to it
        if done == kills:
            break
        # One in four anywhere from the start, the others at any moment after one more round.
        goal = 0 if chance.random() < 0.25 else rounds_done(out) + 1
        while rounds_done(out) < goal and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, longest))
        try:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done += 1
            sys.stdout.write(f"{rounds_done(out)}\n")
        except (ProcessLookupError, ChildProcessError):
            break  # it came to its end
    else:
        return 3
    if done == kills:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    sys.stderr.write(f"it ended after {done} kills\n")
    return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
