"""Run a federation again and again, killed at random moments, then to its end.

python killed.py CONFIG OUT KILLS LONGEST
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from fedeas.experiments.config import read_config
from fedeas.experiments.run import run


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
        if done == kills:
            break
        deadline = time.monotonic() + chance.uniform(0.0, longest)
        while time.monotonic() < deadline and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.002)
        try:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done += 1
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
