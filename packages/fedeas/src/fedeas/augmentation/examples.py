"""Keep N_k as a client's weight: the sets that `augment` made, and a Flower mod that uses them.

Flower weights a client by the `num-examples` of its reply, which most apps take from the length of
the training set. With synthetic samples in it that length is no longer N_k. Others count without
the last batch, over several epochs, or what a validation split leaves: whatever an app counts, its
part that is real is the share of real samples in the augmented set.
"""

import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fedeas.errors import InputError

_KEYS = ("num-examples", "num_examples")  # of the Message API, and of a NumPyClient


_LOG = logging.getLogger("fedeas")


@dataclass(frozen=True)
class _Note:
    """A set of `total` samples, `real` of them real, that `augment` made for a client."""

    client: str
    node: int | None  # whose message was being answered; None outside of messages
    total: int
    real: int

    @property
    def share(self) -> Fraction:
        """The part of the set that is real."""
        return Fraction(self.real, max(1, self.total))


# An app may keep its data from message to message, and one process may serve many nodes. By client
# and node, so that a process that augments for ever keeps no more than the latest of each.
_notes: dict[tuple[str, int | None], tuple[_Note, ...]] = {}
_MOST_SETS = 16  # of one client
_answering: ContextVar[tuple[int, list[_Note]] | None] = ContextVar("answering", default=None)
_warned: set[int] = set()  # nodes that were warned of


def note_lengths(client: str, total: int, real: int) -> None:
    """Remember that a set of `total` samples, made for a client, has `real` real ones.

    >>> note_lengths("north", 160, 100)
    """
    node, noted = _answering.get() or (None, [])
    note = _Note(client, node, total, real)
    noted.append(note)
    others = [n for n in _notes.get((client, node), ()) if n.total != total]
    _notes[client, node] = (*others[1 - _MOST_SETS :], note)


def report_real_num_examples(
    message: Any, context: Any, call_next: Callable[[Any, Any], Any]
) -> Any:
    """Report the real samples alone of what an app trained on, by which servers weight clients.

    Use it as `ClientApp(mods=[fedeas.report_real_num_examples])`. What the app reports is scaled by
    the client's share of real samples in its augmented set: the length of the set becomes N_k, and
    so does every other count of it, without the last batch, over several epochs, or of a part of
    the set. Only `num-examples` is looked at, and only in replies to `train` messages: the length
    of a test set is left alone. An app that reports `num_real` of the augmented set itself must not
    use the mod.

    A set belongs to the node in whose message it was made, or to the node whose `partition-id` is
    the `client` that `augment` was given. If it is unclear which set a node reports, that is an
    error. A node that trained without `augment` is warned of: its count is left as it is.

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
    new_notes: list[_Note] = []
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


def _real_examples(reported: float, context: Any, new_notes: Sequence[_Note]) -> float:
    """Return the real samples in what a node reports.

    The sets that were made while the node answered come first, then those that it made before or
    that bear its name. One that was made outside of messages for another name may be any node's: it
    counts only where the node reports exactly its length.
    """
    names = {str(context.node_id)}
    if "partition-id" in context.node_config:
        names.add(str(context.node_config["partition-id"]))
    notes = [note for notes in tuple(_notes.values()) for note in notes]
    own = [n for n in notes if n.node == context.node_id or n.client in names]
    clients = {note.client for note in own}
    own += [n for n in notes if n.node is None and n.client in clients and n not in own]
    made_now = [note for note in new_notes if note.client in names] or list(new_notes)
    # Of a client's earlier sets only the latest is in use, unless the length is that of another.
    latest = list({note.client: note for note in own}.values())
    anybodys = [note for note in notes if note.node is None]
    for sets, otherwise in ((made_now, made_now), (own, latest), (anybodys, [])):
        candidates = [note for note in sets if note.total == reported] or otherwise
        if candidates:
            return _scaled(reported, candidates, context.node_id)
    _warn_once(
        context.node_id,
        f"node {context.node_id} reports {reported:g} examples, and no augmented set is known to "
        "be its own: its weight is left as it is. If it called fedeas.augment, pass its "
        "partition-id as client=",
    )
    return reported


def _scaled(reported: float, candidates: Sequence[_Note], node: int) -> float:
    """Scale a count by the share of real samples in the set that it is of, if that is clear."""
    latest = {(note.client, note.total): note for note in candidates}.values()
    if len({note.share for note in latest}) > 1:
        raise InputError(
            f"a node reports {reported:g} examples of one of several augmented sets, which have "
            "different numbers of real samples",
            got=sorted(note.real for note in latest),
            fix="give `augment` the node's partition-id as client=, or report `num_real` of the "
            "augmented set as num-examples",
        )
    note = candidates[-1]
    if reported == note.real != note.total:
        _warn_once(
            node,
            f"node {node} reports {reported:g} examples, as many as are real in its augmented set "
            f"of {note.total}: it is scaled as a count of the whole set. Leave the mod out of an "
            "app that reports `num_real`",
        )
    return round(reported * note.share) if isinstance(reported, int) else reported * note.share


def _warn_once(node: int, message: str) -> None:
    if node not in _warned:
        _warned.add(node)
        _LOG.warning("%s", message)
