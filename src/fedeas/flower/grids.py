"""Where messages go: to this process (`inline`), or to Ray's actors (`ray`).

In a deployment Flower itself starts the apps, with a grid of its own.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedeas.cores import usable_cores
from fedeas.errors import FedeasError, InputError, MissingExtraError
from fedeas.flower.exchange import wait_for_nodes
from fedeas.flower.private import set_identity, set_message_id
from fedeas.specs import place_of

Result = TypeVar("Result")
GRIDS = ("inline", "ray")
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
        self.failure: Exception | None = None  # the first that is not of ours
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
        except FedeasError as error:
            reason = str(error)
        except Exception as error:  # as on the other grids: a client's error is its reply
            number = context.node_config["partition-id"]
            _CLIENTS.error("client %s raised %s", number, type(error).__name__, exc_info=error)
            self.failure = self.failure or error
            reason = f"{type(error).__name__}: {error}{place_of(error)}"
        return Message(Error(code=0, reason=reason), reply_to=message)

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


def on_grid(
    kind: str,
    app: ClientApp,
    clients: int,
    threads: int,
    main: Callable[[Grid], Result],
    gpus: float = 0.0,
) -> Result:
    """Run the server's `main` on a grid with this ClientApp on every node.

    On Ray every client has `threads` cores and `gpus` of a GPU, which bounds how many run at once.
    """
    check_grid(kind)
    if kind == "inline":
        grid = InlineGrid(app, clients)
        try:
            return main(grid)
        except FedeasError as error:
            if grid.failure is None:
                raise
            raise error from grid.failure  # with the traceback of the client's own code
    return _on_ray(app, clients, threads, main, gpus)


def check_grid(kind: str) -> None:
    """Refuse a grid that is unknown, or not installed."""
    if kind not in GRIDS:
        raise InputError("unknown grid", got=kind, allowed=", ".join(GRIDS))
    if kind == "ray":
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)  # before its first import
        try:
            import_module("ray")
        except ModuleNotFoundError:
            raise MissingExtraError("the grid 'ray'", "ray") from None


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
            outcome.append(main(grid))
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
            simulation.run_simulation(server, app, num_supernodes=clients, backend_config=config)
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
