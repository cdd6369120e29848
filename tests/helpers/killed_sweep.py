"""Run a sweep again and again, killed at random moments, then to its end.

Prints how many lines the logs had at every kill.

python killed_sweep.py SWEEP OUT KILLS LONGEST
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(sweep: str, out: str, kills: int, longest: float) -> int:
    """Start the command itself; its workers have to notice that it is gone."""
    chance = random.Random(0)
    command = [sys.executable, "-W", "ignore", "-m", "fedeas", "sweep", sweep, "--out", out]
    command += ["--jobs", "2"]
    for _ in range(kills):
        before = lines(out)
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Kills fall where something happens: after one more line in any log.
        while lines(out) <= before and child.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, longest))
        if child.poll() is not None:
            sys.stderr.write("it ended before all kills\n")
            return 4
        child.send_signal(signal.SIGKILL)
        child.wait()
        sys.stdout.write(f"{lines(out)}\n")
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def lines(out: str) -> int:
    """Return the lines of all logs."""
    return sum(len(log.read_text().splitlines()) for log in Path(out).glob("*/log.jsonl"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
