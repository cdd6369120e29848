"""N_k stays the weight of a client: what `augment` did, and the Flower mod that makes up for it.

Flower weighs a client by the `num-examples` of its reply, which most apps take from the length of
the training set. With synthetic samples in it that length is no longer N_k.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Lengths = dict[float, int]  # N_k by the length of the augmented set

_KEYS = ("num-examples", "num_examples")  # of the Message API, and of a NumPyClient
_now: ContextVar[Lengths | None] = ContextVar("lengths", default=None)
# An app may keep its data from message to message, and one process may serve many nodes.
_by_node: dict[int, Lengths] = {}
_outside: Lengths = {}  # augmented before any message came, say when the app was imported


def note_lengths(total: int, real: int) -> None:
    """Remember that a set of `total` samples, made for the present message, has `real` real ones.

    >>> note_lengths(160, 100)
    """
    lengths = _now.get()
    (_outside if lengths is None else lengths)[total] = real


def real_examples_mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
    """Report N_k where a client reports the length of a set that `augment` made.

    Use it as `ClientApp(mods=[fedeas.real_examples_mod])`. Every other number is left alone: the
    length of a test set, or of real samples counted by the app itself. Only `num-examples` is
    looked at, in the replies to any message.

    >>> from types import SimpleNamespace as Some
    >>> def app(message, context):
    ...     note_lengths(160, 100)  # what `augment` does
    ...     records = {"metrics": {"num-examples": 160, "loss": 160.0}}
    ...     return Some(has_content=lambda: True, content=Some(metric_records=records))
    >>> real_examples_mod("train", Some(node_id=7), app).content.metric_records
    {'metrics': {'num-examples': 100, 'loss': 160.0}}
    """
    lengths = _by_node.setdefault(context.node_id, {})
    token = _now.set(lengths)
    try:
        reply = call_next(message, context)
    finally:
        _now.reset(token)
    if reply.has_content():
        for record in reply.content.metric_records.values():
            for key in _KEYS:
                said = record.get(key)
                if isinstance(said, int | float):
                    real = lengths.get(said, _outside.get(said, said))
                    record[key] = type(said)(real)
    return reply
