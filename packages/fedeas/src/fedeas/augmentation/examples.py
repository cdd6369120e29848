"""Keep N_k as a client's weight: the sets that `augment` made, and a Flower mod that uses them.

Flower weights a client by the `num-examples` of its reply, which most apps take from the length of
the training set. With synthetic samples in it that length is no longer N_k.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from fedeas.errors import InputError

_KEYS = ("num-examples", "num_examples")  # of the Message API, and of a NumPyClient


@dataclass(frozen=True)
class _Note:
    """A set of `total` samples, `real` of them real, that `augment` made for a client."""

    client: str
    node: int | None  # whose message was being answered; None outside of messages
    total: int
    real: int


# An app may keep its data from message to message, and one process may serve many nodes. By client
# and node, so that a process that augments for ever keeps no more than the latest of each.
_notes: dict[tuple[str, int | None], tuple[_Note, ...]] = {}
_MOST_SETS = 16  # of one client
_answering: ContextVar[tuple[int, set[_Note]] | None] = ContextVar("answering", default=None)


def note_lengths(client: str, total: int, real: int) -> None:
    """Remember that a set of `total` samples, made for a client, has `real` real ones.

    >>> note_lengths("north", 160, 100)
    """
    node, noted = _answering.get() or (None, set())
    note = _Note(client, node, total, real)
    noted.add(note)
    others = [n for n in _notes.get((client, node), ()) if n.total != total]
    _notes[client, node] = (*others[1 - _MOST_SETS :], note)


def report_real_num_examples(
    message: Any, context: Any, call_next: Callable[[Any, Any], Any]
) -> Any:
    """Report N_k instead of the length of a set that `augment` made.

    Use it as `ClientApp(mods=[fedeas.report_real_num_examples])`. Only `num-examples` is looked at,
    and only in replies to `train` messages: the length of a test set is left alone, whatever it is.
    So is every number that is not the length of an augmented set. An app that reports `num_real` of
    the augmented set itself needs no mod.

    A set belongs to the node in whose message it was made, or to the node whose `partition-id` is
    the `client` that `augment` was given. If sets of different clients have the same length, and it
    is unclear which one a node reports, that is an error.

    Parameters
    ----------
    message : flwr.app.Message
        The message to the ClientApp.
    context : flwr.app.Context
        The node's context, with its `node_id` and `node_config`.
    call_next : callable
        The next mod, or the ClientApp itself.

    Returns
    -------
    flwr.app.Message
        The reply, with the number of real samples in it.

    Examples
    --------
    >>> from types import SimpleNamespace as Some
    >>> def app(message, context):
    ...     note_lengths("north", 160, 100)  # what `augment` does
    ...     records = {"metrics": {"num-examples": 160, "loss": 160.0}}
    ...     return Some(has_content=lambda: True, content=Some(metric_records=records))
    >>> context = Some(node_id=7, node_config={"partition-id": 0})
    >>> message = Some(metadata=Some(message_type="train"))
    >>> report_real_num_examples(message, context, app).content.metric_records
    {'metrics': {'num-examples': 100, 'loss': 160.0}}

    """
    new_notes: set[_Note] = set()
    token = _answering.set((context.node_id, new_notes))
    try:
        reply = call_next(message, context)
    finally:
        _answering.reset(token)
    training = message.metadata.message_type.split(".")[0] == "train"
    if training and reply.has_content():
        for record in reply.content.metric_records.values():
            for key in _KEYS:
                reported = record.get(key)
                if isinstance(reported, int | float):
                    real = _real_examples(reported, context, new_notes)
                    record[key] = type(reported)(real)
    return reply


def _real_examples(reported: float, context: Any, new_notes: set[_Note]) -> float:
    """Return N_k if a node reports the length of an augmented set, otherwise what it reports.

    `new_notes` are of sets that were made while the node answered: they come first. Next come the
    node's own sets and, if it has none, those that were made outside of messages.
    """
    names = {str(context.node_id)}
    if "partition-id" in context.node_config:
        names.add(str(context.node_config["partition-id"]))
    notes = [note for notes in tuple(_notes.values()) for note in notes]
    node_notes = {n for n in notes if n.node == context.node_id or n.client in names}
    clients = {note.client for note in node_notes}
    outside = {n for n in notes if n.node is None and (not node_notes or n.client in clients)}
    for candidates in (new_notes, node_notes | outside):
        matching = [note for note in candidates if note.total == reported]
        # One message may have made the sets of all clients.
        named = [note for note in matching if note.client in names]
        if matching:
            return _only({note.real for note in named or matching}, reported)
    return reported


def _only(reals: Iterable[int], reported: float) -> int:
    """Return the one number of real samples, or refuse to guess."""
    first, *others = sorted(reals)
    if others:
        raise InputError(
            f"augmented sets of length {reported:g} have different numbers of real samples",
            got=[first, *others],
            fix="give `augment` the node's partition-id as client=, or report `num_real` of the "
            "augmented set as num-examples",
        )
    return first
