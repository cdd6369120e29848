"""Run the cells of a sweep, several at once, in processes that take one after the other."""

import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedeas._internal.blocks import usable_cores
from fedeas.errors import InputError
from fedeas.lab.results import Result, read_result
from fedeas.lab.sweep import Cell, unique

WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"
_ERRORS = "errors.txt"  # in the folder of a run that failed
_POLL_SECONDS = 0.2  # between looks at the workers


@dataclass
class RunProgress:
    """The progress of a run."""

    cell: Cell
    state: str = WAITING
    line: dict[str, Any] = field(default_factory=dict)  # its worker's last message
    begun: float = 0.0  # of this start
    first_round: int = 0  # that this start finished
    error: str = ""

    @property
    def rounds(self) -> int:
        """The total number of rounds."""
        return self.cell.config.federated.rounds


OnProgress = Callable[[Sequence[RunProgress]], None]


def run_cells(
    cells: Sequence[Cell],
    root: Path,
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
) -> list[RunProgress]:
    """Run unfinished cells, resuming interrupted ones; `on_progress` is called repeatedly.

    A cell that is in two grids runs once. If one fails, the others go on.
    """
    runs = [RunProgress(cell) for cell in unique(cells)]
    for run in runs:
        if finished_result(run.cell, root) is not None:
            run.state = FINISHED
    environments = _environments(runs, jobs)
    workers: dict[str, _Worker] = {}
    try:
        while True:
            for name, worker in list(workers.items()):
                worker.poll()
                if worker.gone:
                    workers.pop(name).stop()
            waiting = (run for run in runs if run.state == WAITING)
            free = (n for n in environments if n not in workers or not workers[n].busy)
            for name, run in zip(free, waiting, strict=False):
                if name not in workers:
                    workers[name] = _Worker(root, environments[name])
                workers[name].start(run)
            if on_progress is not None:
                on_progress(runs)
            if not any(worker.busy for worker in workers.values()):
                return runs
            time.sleep(_POLL_SECONDS)
    finally:
        for worker in workers.values():
            worker.stop()


def finished_result(cell: Cell, root: Path) -> Result | None:
    """Return the result of a cell, None if there is no complete one with exactly its settings."""
    try:
        result = read_result(root / cell.name / "result.json")
    except InputError:
        return None
    return result if result["settings"] == cell.config.identity() else None


def _environments(runs: Sequence[RunProgress], jobs: int | None) -> dict[str, dict[str, str]]:
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
    """A process that runs one cell after the other, and the thread that reads its output."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".worker-", dir=root)
        self._errors = Path(name)
        with os.fdopen(handle, "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "fedeas.lab.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | environment,
                start_new_session=True,  # Ctrl-C is for the sweep, which then stops its workers
            )
        self._run: RunProgress | None = None
        self._outcome: dict[str, Any] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def busy(self) -> bool:
        """Whether it has a run."""
        return self._run is not None

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def start(self, run: RunProgress) -> None:
        """Give it a run."""
        folder = self._root / run.cell.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _ERRORS).unlink(missing_ok=True)
        self._run, self._outcome = run, {}
        run.state, run.begun = RUNNING, time.monotonic()
        job: dict[str, object] = {"config": run.cell.config.to_dict(), "folder": str(folder)}
        with suppress(BrokenPipeError):  # it has died already: `poll` says why
            self._pipe.write(json.dumps(job).encode() + b"\n")
            self._pipe.flush()

    @property
    def _pipe(self) -> Any:
        return self._process.stdin

    def _listen(self) -> None:
        for line in self._messages():
            run = self._run
            if run is None:
                continue
            if line.keys() & {"finished", "failed"}:
                self._outcome = line
                continue
            if line.get("round") and not run.first_round:
                run.first_round = line["round"]
                run.begun = time.monotonic()
            run.line = line

    def _messages(self) -> Iterator[dict[str, Any]]:
        with self._process.stdout or io.BytesIO() as lines:
            for line in lines:
                with suppress(ValueError):
                    message = json.loads(line)
                    if isinstance(message, dict):
                        yield message

    def poll(self) -> None:
        """Note how its run ended, if it did."""
        run = self._run
        if run is None:
            return
        if self.gone and not self._outcome:
            self._listener.join(5)  # it may have said something at the end
            self._outcome = self._outcome or {"failed": self._last_error_line()}
        if "finished" in self._outcome:
            run.state = FINISHED
        elif "failed" in self._outcome:
            run.state, run.error = FAILED, " ".join(self._outcome["failed"].split())[:500]
            path = self._root / run.cell.name / _ERRORS
            path.write_bytes(self._errors.read_bytes() or f"{run.error}\n".encode())
        if self._outcome:
            self._run = None

    def _last_error_line(self) -> str:
        lines = self._errors.read_text(errors="replace").split("\n")
        code = f"exit code {self._process.returncode}"
        return next((line for line in reversed(lines) if line.strip()), code)

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
        self._errors.unlink(missing_ok=True)


def seconds_left(run: RunProgress, now: float) -> float | None:
    """Return the seconds that a run still takes, by its rounds so far; None before the second."""
    number: int = run.line.get("round", 0)
    done = number - run.first_round
    if run.state != RUNNING or done < 1:
        return None
    return (now - run.begun) / done * (run.rounds - number)
