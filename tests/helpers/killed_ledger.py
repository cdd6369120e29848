"""Enter answers into a ledger and send them, killed at random moments; print what a kill found.

python killed_ledger.py FOLDER SENT KILLS

Every line of the output is the number of answers sent and of those missing in the ledger.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from fedeas.private.ledger import Ledger

RHO = 1e-6


def answer(ledger: Ledger, sent: str) -> None:
    """Enter one answer after the other; each is sent, to a file here, only after that."""
    out = os.open(sent, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while True:
        key = os.urandom(8).hex()
        ledger.enter("beta", RHO, server="north", run=key, key=key.encode())
        os.write(out, f"{key}\n".encode())


def main(folder: str, sent: str, kills: int) -> int:
    """Fork, so that the seconds of importing are paid once; the kills are real ones."""
    chance = random.Random(0)
    ledger = Ledger.open(folder)
    Path(sent).touch()
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            answer(ledger, sent)
        # One in four anywhere from the start, the others at any moment after one more answer.
        goal = 0 if chance.random() < 0.25 else Path(sent).stat().st_size + 1
        while Path(sent).stat().st_size < goal and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        keys = Path(sent).read_text().split()
        entered = {entry.run for entry in ledger.entries}
        sys.stdout.write(f"{len(keys)} {len(set(keys) - entered)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
