"""Where the clients of a simulation run: in this process (`inline`), or in Ray's actors (`ray`).

In a deployment Flower itself starts the apps, with a grid of its own.

Flower runs apps in processes of its own, where it says which run a message belongs to. `InlineGrid`
has no such process and says it itself: this module holds everything that we use of Flower outside
its public API. These names may move with any release, so `flwr` is pinned to one minor version;
`tests/train/test_flower_names.py` tells which of them did.
"""

import logging
import os
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar, cast

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedeas._internal.blocks import usable_cores
from fedeas._internal.names import choice
from fedeas._internal.specs import place_of
from fedeas.errors import FedeasError, InputError, MissingExtraError
from fedeas.train.flower.exchange import wait_for_nodes

Result = TypeVar("Result")
BACKENDS = ("inline", "ray")
IDENTITY = "flwr.supercore.task_identity.TaskIdentity"
MESSAGE_ID = "flwr.app.Metadata._message_id"
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_LOG = logging.getLogger("fedeas.flwr")
_CLIENTS = logging.getLogger(__name__)
_PATIENCE = 120.0  # seconds for the nodes of a simulation to come up
_RUN = 1
_SERVER = 1  # node id; clients follow


def run_on_backend(
    kind: str,
    app: ClientApp,
    clients: int,
    threads: int,
    main: Callable[[Grid], Result],
    gpus: float = 0.0,
) -> Result:
    """Run the server's `main` with this ClientApp on every node of a backend.

    On Ray every client has `threads` cores and `gpus` of a GPU, which bounds how many run at once.
    An error of a client is the cause of the server's error that it led to, with its traceback.
    """
    check_backend(kind)
    if kind == "ray":
        return _on_ray(app, clients, threads, main, gpus)
    grid = InlineGrid(app, clients)
    with _caused_by_client(grid):
        return main(grid)


@contextmanager
def _caused_by_client(grid: Any) -> Iterator[None]:
    """Chain an error of the server's to the client's that led to it."""
    try:
        yield
    except FedeasError as error:
        if grid.failure is None or error.__cause__ is not None:
            raise
        raise error from grid.failure


def check_backend(kind: str) -> None:
    """Refuse a backend that is unknown, or not installed."""
    choice(kind, "backend", BACKENDS)
    if kind == "ray":
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)  # before its first import
        try:
            import_module("ray")
        except ModuleNotFoundError:
            raise MissingExtraError("the backend 'ray'", "train") from None


def _on_ray(
    app: ClientApp, clients: int, threads: int, main: Callable[[Grid], Result], gpus: float
) -> Result:
    """Run on Flower's simulation engine: as many actors as the cores allow, `threads` each."""
    # Here, not at the top: it loads a web server and a database, a second of every start.
    simulation = import_module("flwr.simulation")
    outcome: list[Result] = []
    failed: list[BaseException] = []
    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        try:
            # A cohort drawn before all are there would be too small.
            if len(there := wait_for_nodes(grid, clients, _PATIENCE)) < clients:
                raise InputError("nodes are missing", got=len(there))
            traced = _TracedGrid(grid)
            with _caused_by_client(traced):
                outcome.append(main(cast(Grid, traced)))
        except BaseException as error:
            failed.append(error)  # the engine would only log it
            raise

    config: dict[str, Any] = {
        "client_resources": {"num_cpus": threads, "num_gpus": gpus},
        "init_args": {"num_cpus": max(threads, usable_cores()), "log_to_driver": False},
    }
    with quiet_flower(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # marked deprecated in favour of a daemon
        try:
            simulation.run_simulation(
                server, _TracedApp(app), num_supernodes=clients, backend_config=config
            )
        except RuntimeError:
            if not failed:
                raise
    if failed:
        raise failed[0]
    return outcome[0]


@contextmanager
def quiet_flower() -> Iterator[None]:
    """Redirect Flower's log of a simulation to our logger; failures are raised here instead."""
    logger = logging.getLogger("flwr")
    logger.addFilter(_pass_on)
    try:
        yield
    finally:
        logger.removeFilter(_pass_on)


def _pass_on(record: logging.LogRecord) -> bool:
    """Pass Flower's log record to our logger, and keep it from Flower's own handlers."""
    if _LOG.isEnabledFor(record.levelno):
        _LOG.handle(record)
    return False


class ClientError(RuntimeError):
    """What a client raised in another process: its number and the traceback, as text."""


class _TracedApp(ClientApp):
    """A ClientApp whose errors travel with their traceback, which Flower would only log."""

    def __init__(self, app: ClientApp) -> None:
        super().__init__()
        self._app = app

    def __call__(self, message: Message, context: Context) -> Message:
        """Handle a message; an error is the reply."""
        try:
            return self._app(message, context)
        except Exception as error:
            client = context.node_config["partition-id"]
            reason = f"{_one_line(error)}\nclient {client}: {traceback.format_exc()}"
            return Message(Error(code=0, reason=reason), reply_to=message)


class _TracedGrid:
    """The grid of a `_TracedApp`: keeps the first traceback, and lets one line of each pass."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.failure: ClientError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            if reply.has_error():
                line, _, trace = str(reply.error.reason).partition("\n")
                if trace:
                    self.failure = self.failure or ClientError(trace)
                    reply.error = Error(reply.error.code, line)
        return replies


def _one_line(error: Exception) -> str:
    """Return what a reply says of a client's error."""
    if isinstance(error, FedeasError):
        return str(error)
    return f"{type(error).__name__}: {error}{place_of(error)}"


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message the id that its reply refers to, as the grid that takes it does."""
    message.metadata.__dict__["_message_id"] = message_id
    if message.metadata.message_id != message_id:
        raise _moved(MESSAGE_ID)


class InlineGrid(Grid):
    """Calls the ClientApp in this process, one message after the other, when replies are pulled.

    The reference that the other grids must equal; also the fastest on one GPU, and for debugging.
    """

    def __init__(self, app: ClientApp, clients: int) -> None:
        self._app = app
        self._contexts = {
            _SERVER + 1 + number: Context(
                run_id=_RUN,
                node_id=_SERVER + 1 + number,
                node_config={"partition-id": number, "num-partitions": clients},
                state=RecordDict(),
                run_config={},
            )
            for number in range(clients)
        }
        self._waiting: dict[str, Message] = {}
        self._sent = 0
        self.failure: Exception | None = None  # the first error of a client
        set_identity(_RUN, _SERVER)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes' ids."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue messages; they are handled when their replies are pulled."""
        taken = []
        for message in messages:
            self._sent += 1
            name = str(self._sent)
            set_message_id(message, name)
            self._waiting[name] = message
            taken.append(name)
        return taken

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Handle the oldest message, and return its reply alone."""
        asked = set(message_ids)
        name = next((known for known in self._waiting if known in asked), None)
        return [] if name is None else [self._reply(self._waiting.pop(name))]

    def _reply(self, message: Message) -> Message:
        context = self._contexts[message.metadata.dst_node_id]
        try:
            return self._app(message, context)
        except Exception as error:  # as on Ray: a client's error is its reply
            client = context.node_config["partition-id"]
            error.add_note(f"raised by client {client}")
            if not isinstance(error, FedeasError):
                _CLIENTS.error("client %s raised %s", client, type(error).__name__, exc_info=error)
            self.failure = self.failure or error
            return Message(Error(code=0, reason=_one_line(error)), reply_to=message)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for all replies."""
        names = list(self.push_messages(messages))
        return [reply for _ in names for reply in self.pull_messages(names)]

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Any:
        """Not supported: there is no Flower run."""
        raise NotImplementedError

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """Not needed: `Message` is made directly."""
        raise NotImplementedError


def _moved(name: str) -> FedeasError:
    return FedeasError(
        f"{name} no longer exists",
        got=f"flwr {version('flwr')}",
        fix='install the version that fedeas works with: pip install "fedeas[train]"',
    )


def set_identity(run_id: int, node_id: int) -> None:
    """Set which run and node this process is: a new `Message` asks for it."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # not a missing package: installing flwr would change nothing
        raise _moved(IDENTITY) from None
    for name, value in (("task_id", 1), ("run_id", run_id), ("node_id", node_id)):
        if not hasattr(type(TaskIdentity), name):
            raise _moved(f"{IDENTITY}.{name}")
        setattr(TaskIdentity, name, value)
