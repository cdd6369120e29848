"""A run in a process of its own: `python -m fedeas.experiments.worker`, started by a sweep.

The first line of standard input is the job. Then the worker listens: when the sweep ends, even if
it is killed, its end of the pipe closes, and the worker stops.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from fedeas.errors import FedeasError
from fedeas.experiments.run import run
from fedeas.locks import locked
from fedeas.settings.config import Config
from fedeas.settings.reading import read_settings

FAILED = 2


def main() -> int:
    """Run one job; an error is the last line on standard error."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_with_the_sweep, daemon=True).start()
    try:
        config, folder = read_settings(Config, job["config"], "job"), Path(job["folder"])
        # A worker of a killed sweep may take a moment to stop, or another sweep may do this run:
        # then wait, and find what it leaves.
        with locked(folder):
            pass
        allowed = bool(job.get("allow_other_code"))
        run(config, folder, report=_say, generated=_made, allow_other_code=allowed)
    except FedeasError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0


def _say(line: dict[str, Any]) -> None:
    kept = {key: line[key] for key in ("round", "accuracy", "seconds", "made", "of") if key in line}
    sys.stdout.write(json.dumps(kept) + "\n")
    sys.stdout.flush()


def _made(done: int, total: int) -> None:
    _say({"round": 0, "made": done, "of": total})


def _stop_with_the_sweep() -> None:
    sys.stdin.read()
    os._exit(FAILED)


if __name__ == "__main__":
    sys.exit(main())
