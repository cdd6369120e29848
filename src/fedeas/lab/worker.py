"""Runs in a process of their own: `python -m fedeas.lab.worker`, started by a sweep.

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

from fedeas._internal.files import locked
from fedeas._internal.settings import read_settings
from fedeas.errors import FedeasError
from fedeas.lab.config import Config
from fedeas.lab.experiment import run

STOPPED = 2


def main() -> None:
    """Run one job after the other, and say how each ended."""
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        try:
            _run(jobs.get())
        except FedeasError as error:
            _send({"failed": str(error)})
        else:
            _send({"finished": True})


def _run(job: dict[str, Any]) -> None:
    config, folder = read_settings(Config, job["config"], "job"), Path(job["folder"])
    # A worker of a killed sweep may take a moment to stop, or another sweep may do this run:
    # then wait, and find what it leaves.
    with locked(folder):
        pass
    run(config, folder, on_round=_send_round, progress=_send_progress)


def _send_round(line: dict[str, Any]) -> None:
    shown = ("round", "accuracy", "seconds", "made", "of")
    _send({key: line[key] for key in shown if key in line})


def _send_progress(done: int, total: int) -> None:
    _send_round({"round": 0, "made": done, "of": total})


def _send(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _listen(jobs: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
