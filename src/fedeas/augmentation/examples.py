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
_NAME_CLIENT = "pass the node's partition-id to fedeas.augment as client="
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
    error. A node that trained without `augment` is warned of: its count is left as it is. Put the
    mod last in `mods`: one that weights updates itself, as Flower's secure aggregation does, has to
    see the corrected number.

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
    that bear its name. One that was made outside of messages under another name is the node's only
    if the process has no other, or if the node reports exactly its length, with a warning.
    """
    node, partition = context.node_id, context.node_config.get("partition-id")
    names = {str(node), str(node if partition is None else partition)}
    notes = [note for notes in tuple(_notes.values()) for note in notes]
    node_notes = [n for n in notes if n.node == node or n.client in names]
    clients = {note.client for note in node_notes}
    node_notes += [n for n in notes if n.node is None and n.client in clients - names]
    # A name that is the number of another partition is of another node.
    unclaimed = [
        note
        for note in notes
        if note.node is None and (partition is None or not _is_partition_id(note.client))
    ]
    if partition is None and len({note.client for note in unclaimed}) == 1:
        node_notes = node_notes or unclaimed
    made_now = [note for note in new_notes if note.client in names] or list(new_notes)
    # Of a client's earlier sets only the latest is in use, unless the length is that of another.
    latest = list({note.client: note for note in node_notes}.values())
    for sets, otherwise in ((made_now, made_now), (node_notes, latest)):
        candidates = [note for note in sets if note.total == reported] or otherwise
        if candidates:
            _warn_of_another(reported, candidates, notes, node)
            return _scaled(reported, candidates, node)
    if same_length := [note for note in unclaimed if note.total == reported]:
        _warn_once(
            node,
            f"node {node} reports {reported:g} examples, and is taken for client "
            f"{same_length[-1].client!r} since its augmented set is as long; {_NAME_CLIENT}",
        )
        return _scaled(reported, same_length, node)
    _warn_once(
        node,
        f"node {node} reports {reported:g} examples, and no augmented set is known to be its own: "
        f"its weight is left as it is. If it called fedeas.augment, {_NAME_CLIENT}",
    )
    return reported


def _is_partition_id(client: str) -> bool:
    return client.isdecimal() and str(int(client)) == client


def _warn_of_another(
    reported: float, candidates: Sequence[_Note], notes: Sequence[_Note], node: int
) -> None:
    """Warn of a count that is not that of the node's own set, and exactly that of another's."""
    clients = {note.client for note in candidates}
    if reported in {note.total for note in candidates}:
        return
    if others := sorted({n.client for n in notes if n.total == reported} - clients):
        _warn_once(
            node,
            f"node {node} reports {reported:g} examples, which is scaled as a part of the set of "
            f"client {candidates[-1].client!r}, although that of client {others[0]!r} is exactly "
            f"as long; {_NAME_CLIENT}",
        )


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
