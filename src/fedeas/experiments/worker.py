"""Runs in a process of their own: `python -m fedeas.experiments.worker`, started by a sweep.

Every line of standard input is a job; torch is loaded once for all of them. When the sweep ends,
even if it is killed, its end of the pipe closes, and the worker stops at once.
"""

import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

from fedeas.errors import FedeasError
from fedeas.experiments.run import run
from fedeas.locks import locked
from fedeas.settings.config import Config
from fedeas.settings.reading import read_settings

STOPPED = 2


def main() -> None:
    """Run one job after the other, and say how each ended."""
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        try:
            _run(jobs.get())
        except FedeasError as error:
            _say({"failed": str(error)})
        else:
            _say({"finished": True})


def _run(job: dict[str, Any]) -> None:
    config, folder = read_settings(Config, job["config"], "job"), Path(job["folder"])
    # A worker of a killed sweep may take a moment to stop, or another sweep may do this run:
    # then wait, and find what it leaves.
    with locked(folder):
        pass
    allowed = bool(job.get("allow_other_code"))
    run(config, folder, report=_report, generated=_made, allow_other_code=allowed)


def _report(line: dict[str, Any]) -> None:
    shown = ("round", "accuracy", "seconds", "made", "of")
    _say({key: line[key] for key in shown if key in line})


def _made(done: int, total: int) -> None:
    _report({"round": 0, "made": done, "of": total})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _listen(jobs: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
