"""Run the cells of a sweep, several at once, each in its own process."""

import io
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedeas.cores import usable_cores
from fedeas.errors import InputError
from fedeas.experiments.results import Result, read_result
from fedeas.experiments.sweep import Cell, unique

WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"
_LOOK = 0.2  # seconds between looks at the workers


@dataclass
class Progress:
    """The progress of a run."""

    cell: Cell
    state: str = WAITING
    line: dict[str, Any] = field(default_factory=dict)  # its worker's last message
    begun: float = 0.0  # of this start
    first_round: int = 0  # that this start finished
    wrong: str = ""

    @property
    def rounds(self) -> int:
        """The total number of rounds."""
        return self.cell.config.federated.rounds


Watch = Callable[[Sequence[Progress]], None]


def run_cells(
    cells: Sequence[Cell],
    root: Path,
    jobs: int | None = None,
    watch: Watch | None = None,
    allow_other_code: bool = False,
) -> list[Progress]:
    """Run unfinished cells, resuming interrupted ones; `watch` is called repeatedly with all runs.

    A cell that is in two grids runs once. If one fails, the others go on.
    """
    runs = [Progress(cell) for cell in unique(cells)]
    for run in runs:
        if finished_result(run.cell, root) is not None:
            run.state = FINISHED
    places = _places(runs, jobs)
    workers: dict[str, tuple[Progress, _Worker]] = {}
    try:
        while True:
            for place, (run, worker) in list(workers.items()):
                if worker.ended(run):
                    del workers[place]
            waiting = (run for run in runs if run.state == WAITING)
            for place in (p for p in places if p not in workers):
                for run in itertools.islice(waiting, 1):
                    workers[place] = run, _Worker(run, root, places[place], allow_other_code)
            if watch is not None:
                watch(runs)
            if not workers:
                return runs
            time.sleep(_LOOK)
    finally:
        for _, worker in workers.values():
            worker.stop()


def finished_result(cell: Cell, root: Path) -> Result | None:
    """Return the result of a cell, None if there is no complete one with exactly its settings."""
    try:
        found = read_result(root / cell.name / "result.json")
    except InputError:
        return None
    return found if found["settings"] == cell.config.identity() else None


def _places(runs: Sequence[Progress], jobs: int | None) -> dict[str, dict[str, str]]:
    """Return a name and an environment for each parallel run: cores, or one GPU each."""
    if jobs is not None and jobs < 1:
        raise InputError("not a number of runs at once", got=jobs, allowed="a whole number from 1")
    threads = max((run.cell.config.federated.threads for run in runs), default=1)
    gpus = _visible_gpus()
    wanted = {run.cell.config.device for run in runs}
    if gpus and wanted <= {"auto", "cuda"}:
        names = itertools.islice(itertools.cycle(gpus), jobs or len(gpus))
        return {str(n): {"CUDA_VISIBLE_DEVICES": name} for n, name in enumerate(names)}
    at_once = jobs or max(1, usable_cores() // threads)
    return {str(n): {"OMP_NUM_THREADS": str(threads)} for n in range(at_once)}


def _visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES calls them.

    Where the variable is set, its own names go to the workers: indices, UUIDs or MIG devices. CUDA
    ignores everything after the first name that it does not know, so they are counted.
    """
    count = torch.cuda.device_count()
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(count)) if mask is None else (n.strip() for n in mask.split(","))
    return list(names)[:count]


class _Worker:
    """A process that runs one cell, and the thread that reads its output."""

    def __init__(
        self, run: Progress, root: Path, environment: dict[str, str], allow_other_code: bool
    ) -> None:
        folder = root / run.cell.name
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "fedeas.experiments.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | environment,
                start_new_session=True,  # Ctrl-C is for the sweep, which then stops its workers
            )
        run.state, run.begun = RUNNING, time.monotonic()
        job: dict[str, object] = {"config": run.cell.config.to_dict(), "folder": str(folder)}
        job["allow_other_code"] = allow_other_code
        with suppress(BrokenPipeError):  # it has died already: `ended` says why
            self._pipe.write(json.dumps(job).encode() + b"\n")
            self._pipe.flush()
        self._listener = threading.Thread(target=self._hear, args=(run,), daemon=True)
        self._listener.start()

    @property
    def _pipe(self) -> Any:
        return self._process.stdin

    def _hear(self, run: Progress) -> None:
        for line in self._said():
            if line.get("round") and not run.first_round:
                run.first_round = line["round"]
                run.begun = time.monotonic()
            run.line = line

    def _said(self) -> Iterator[dict[str, Any]]:
        with self._process.stdout or io.BytesIO() as lines:
            for line in lines:
                with suppress(ValueError):
                    said = json.loads(line)
                    if isinstance(said, dict):
                        yield said

    def ended(self, run: Progress) -> bool:
        """Tell whether the process is gone, and note how it ended."""
        code = self._process.poll()
        if code is None:
            return False
        self._pipe.close()
        self._listener.join(5)
        run.state = FAILED if code else FINISHED
        if code:
            said = self._errors.read_text(errors="replace").split("\n")
            last = next((line for line in reversed(said) if line.strip()), f"exit code {code}")
            run.wrong = " ".join(last.split())[:500]
        else:
            self._errors.unlink(missing_ok=True)
        return True

    def stop(self) -> None:
        """End the process: it stops when its standard input closes."""
        with suppress(BrokenPipeError):
            self._pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(5)


def seconds_left(run: Progress, now: float) -> float | None:
    """Return the seconds that a run still takes, by its rounds so far; None before the second."""
    number: int = run.line.get("round", 0)
    done = number - run.first_round
    if run.state != RUNNING or done < 1:
        return None
    return (now - run.begun) / done * (run.rounds - number)
