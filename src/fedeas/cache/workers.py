"""Workers of a fill: actors of Ray, each with a generator of its own, that write their own shards.

The driver hands out batches and sees numbers only. A worker that dies is started again, and what it
had not written is generated again. A batch that fails beside another is run alone before it is
blamed, and one that fails three times alone is given up while the others go on.
"""

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fedeas._internal.optional import import_extra
from fedeas.cache.store import Cache
from fedeas.cache.writer import Batch, BatchWriter, Expected
from fedeas.errors import FedeasError, InputError, first_line
from fedeas.generators import Generator, open_generator

_AT_ONCE = 2  # batches of a worker: one that runs, and one that waits
_TRIES = 3  # of a batch that runs alone
_PATIENCE = 300.0  # seconds until a worker has to be ready
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerSettings:
    """What every worker is made from."""

    cache: dict[str, Any]
    generator: str | Generator
    threads: int
    expected: Expected | None
    encoding: str


class Worker:
    """A process that generates batches and writes them."""

    def open(self, settings: WorkerSettings) -> None:
        """Open the generator and the cache; what prevents that is raised at the driver."""
        generator = settings.generator
        opened = open_generator(generator) if isinstance(generator, str) else generator
        cache = Cache.elsewhere(settings.cache)
        self._writer = BatchWriter(cache, opened, settings.expected, settings.encoding)

    def generate(self, batch: Batch) -> tuple[int, float]:
        """Generate a batch; return how many samples, and in which time."""
        begun = time.monotonic()
        return len(self._writer.add(batch)), time.monotonic() - begun

    def flush(self) -> None:
        """Write what waits."""
        self._writer.flush()


@dataclass
class _Task:
    batch: Batch
    tries: int = 0  # alone


@dataclass
class _Actor:
    handle: Any
    number: int
    starting: Any  # the answer that says that it has opened its generator; None once it has
    tasks: dict[Any, _Task] = field(default_factory=dict)
    alone: bool = False  # whether its task runs by itself, after it failed beside another


@dataclass(frozen=True)
class Workers:
    """So many workers, each with so many GPUs, on a cluster that exists or on one started here.

    Parameters
    ----------
    number : int
        How many workers.
    gpus : float
        GPUs of each.
    address : str, optional
        A cluster that exists: 'auto', or HOST:PORT; RAY_ADDRESS by default, otherwise Ray is
        started on this machine.
    """

    number: int
    gpus: float = 0
    address: str | None = None

    def run(
        self,
        settings: WorkerSettings,
        batches: Iterable[Batch],
        on_batch: Callable[[int, int, float], None],
    ) -> list[tuple[Batch, str]]:
        """Generate all batches; return those that no worker survived, and why.

        `on_batch(worker, samples, seconds)` is called after each.
        """
        with _cluster(self.address, self.number * settings.threads):
            self._check_room(settings.threads)
            return _Run(self, settings, iter(batches), on_batch).run()

    def _check_room(self, threads: int) -> None:
        """Refuse what not even one worker has room for; say if not all of them have."""
        ray = import_extra("ray", "workers", "generate")
        there = ray.cluster_resources()
        least = self.number
        for what, each in (("GPU", self.gpus), ("CPU", threads)):
            has = there.get(what, 0.0)
            if has < each:
                raise InputError(
                    f"a worker needs {each:g} {what}s, and Ray has {has:g}",
                    fix="lower --gpus-per-worker or --threads, or name another --address",
                )
            least = min(least, int(has // each) if each else least)
        if least < self.number:
            _LOG.warning("there is room for %s of %s workers", least, self.number)


class _Run:
    """One run of workers."""

    def __init__(
        self,
        workers: Workers,
        settings: WorkerSettings,
        batches: Iterator[Batch],
        on_batch: Callable[[int, int, float], None],
    ) -> None:
        self._ray = import_extra("ray", "workers", "generate")
        self._workers, self._batches, self._on_batch = workers, batches, on_batch
        self._make = self._ray.remote(Worker).options(
            num_cpus=settings.threads,
            num_gpus=workers.gpus,
            max_restarts=0,  # another one is started in its place
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(settings.threads)}},
        )
        self._settings = self._ray.put(settings)
        self._actors = [self._start(number) for number in range(workers.number)]
        self._suspects: deque[_Task] = deque()  # to be run alone
        self._given_up: list[tuple[Batch, str]] = []
        self._left = True  # whether there may be more batches
        self._deaths = 0  # in a row, of workers that did not get to start
        self._heard = time.monotonic()

    def run(self) -> list[tuple[Batch, str]]:
        """Hand out batches until none is left, then let all write what waits."""
        try:
            while self._left or self._suspects or any(actor.tasks for actor in self._actors):
                self._hand_out()
                self._wait()
        except KeyboardInterrupt:
            self._flush_at_once()
            raise
        else:
            for actor in self._actors:
                if actor.starting is None:
                    self._flush(actor)
        finally:
            for actor in self._actors:
                self._ray.kill(actor.handle)
        return self._given_up

    def _start(self, number: int) -> _Actor:
        handle = self._make.remote()
        return _Actor(handle, number, handle.open.remote(self._settings))

    def _hand_out(self) -> None:
        """Give batches to workers that have room; while there are suspects, nothing else."""
        for actor in self._actors:
            if actor.starting is not None or actor.alone:
                continue
            if self._suspects:
                if not actor.tasks:
                    self._submit(actor, self._suspects.popleft())
                    actor.alone = True
                continue
            while self._left and len(actor.tasks) < _AT_ONCE:
                batch = next(self._batches, None)
                if batch is None:
                    self._left = False
                else:
                    self._submit(actor, _Task(batch))

    def _submit(self, actor: _Actor, task: _Task) -> None:
        actor.tasks[actor.handle.generate.remote(task.batch)] = task

    def _wait(self) -> None:
        """Take the next answer."""
        answers = {ref: actor for actor in self._actors for ref in actor.tasks}
        answers |= {one.starting: one for one in self._actors if one.starting is not None}
        if not answers:
            return
        done, _ = self._ray.wait(list(answers), num_returns=1, timeout=1.0)
        for reference in done:
            self._take(answers[reference], reference)
        starting = all(actor.starting is not None for actor in self._actors)
        if done or not starting:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > _PATIENCE:
            raise FedeasError(
                f"no worker could be started in {_PATIENCE:.0f} s",
                fix="ask for fewer workers, threads or GPUs than the cluster has",
            )

    def _take(self, actor: _Actor, reference: Any) -> None:
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, FedeasError):
                raise cause from None
            if reference == actor.starting:
                raise FedeasError(
                    f"workers cannot open the generator: {first_line(cause)}"
                ) from cause
            self._suspect(actor, [actor.tasks.pop(reference)], cause)
        except self._ray.exceptions.RayError as error:
            self._replace(actor, error)
            self._suspect(actor, list(actor.tasks.values()), error)
        else:
            self._deaths = 0
            if reference == actor.starting:
                actor.starting = None
            else:
                del actor.tasks[reference]
                actor.alone = False
                self._on_batch(actor.number, *answer)

    def _suspect(self, actor: _Actor, tasks: list[_Task], error: BaseException) -> None:
        """Have batches run alone that failed, or give up one that failed alone too often."""
        for task in tasks:
            task.tries += actor.alone
            if task.tries >= _TRIES:
                self._given_up.append((task.batch, first_line(error)))
            else:
                self._suspects.append(task)
        actor.alone = False

    def _replace(self, actor: _Actor, error: Exception) -> None:
        """Start a worker in the place of one that died."""
        self._deaths += not actor.tasks
        if self._deaths > _TRIES * self._workers.number:
            raise FedeasError(f"workers die before they generate anything: {first_line(error)}")
        _LOG.warning("worker %s died; another one takes its place", actor.number)
        self._actors[self._actors.index(actor)] = self._start(actor.number)

    def _flush_at_once(self) -> None:
        """Let all write what waits, after the batches that they are at, for half a minute."""
        ready = [actor.handle.flush.remote() for actor in self._actors if actor.starting is None]
        if ready:
            self._ray.wait(ready, num_returns=len(ready), timeout=30.0)

    def _flush(self, actor: _Actor) -> None:
        try:
            self._ray.get(actor.handle.flush.remote())
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, FedeasError):
                raise error.cause from None
        except self._ray.exceptions.RayError:
            pass  # what it had not written is found to be missing


def _check_answers(address: str) -> None:
    """Refuse an address where nobody answers: Ray tries for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():  # auto
        return
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError as error:
        raise InputError(
            f"no Ray cluster answers at {address}: {first_line(error)}",
            fix="start one with `ray start --head`, or leave out the address",
        ) from None


@contextmanager
def _cluster(address: str | None, cores: int) -> Iterator[None]:
    """Join the cluster at an address, or start Ray on this machine; end what was started."""
    ray = import_extra("ray", "workers", "generate")
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "ignore_reinit_error": True}
    if address or "RAY_ADDRESS" in os.environ:
        _check_answers(address or os.environ["RAY_ADDRESS"])
        ray.init(address=address, **quiet)
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns
        ray.init(
            "local", num_cpus=max(cores, os.cpu_count() or 1), include_dashboard=False, **quiet
        )
    try:
        yield
    finally:
        ray.shutdown()
