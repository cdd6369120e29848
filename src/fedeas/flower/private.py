"""Everything that we use of Flower outside its public API, in one place.

Flower runs apps in processes of its own, where it says which run a message belongs to. `InlineGrid`
has no such process and says it itself. These names may move with any release, so `flwr` is pinned
to one minor version; `tests/test_flower_names.py` tells which of them did.
"""

from importlib.metadata import version

from flwr.app import Message

from fedeas.errors import FedeasError

IDENTITY = "flwr.supercore.task_identity.TaskIdentity"
MESSAGE_ID = "flwr.app.Metadata._message_id"


def _moved(name: str) -> FedeasError:
    return FedeasError(
        f"{name} no longer exists",
        got=f"flwr {version('flwr')}",
        fix='install the version that fedeas works with: pip install "fedeas[train]"',
    )


try:
    from flwr.supercore.task_identity import TaskIdentity
except ImportError:  # not a missing package: installing flwr would change nothing
    raise _moved(IDENTITY) from None


def set_identity(run_id: int, node_id: int) -> None:
    """Set which run and node this process is: a new `Message` asks for it."""
    for name, value in (("task_id", 1), ("run_id", run_id), ("node_id", node_id)):
        if not hasattr(type(TaskIdentity), name):
            raise _moved(f"{IDENTITY}.{name}")
        setattr(TaskIdentity, name, value)


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message the id that its reply refers to, as the grid that takes it does."""
    message.metadata.__dict__["_message_id"] = message_id
    if message.metadata.message_id != message_id:
        raise _moved(MESSAGE_ID)
