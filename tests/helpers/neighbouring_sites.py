"""Sites that a test compares: all that can be seen of how each answers the same message."""

import json
import shutil
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedeas import FedeasError
from fedeas.private.flower.deployed import client_app
from fedeas.private.ledger import Ledger
from fedeas.private.queries import QUERIES, read_query
from fedeas.private.secure_sum.identity import Identity, Members, load_identity, make_identity
from fedeas.private.secure_sum.keys import identity_of
from fedeas.private.secure_sum.memory import open_pairs
from fedeas.train.flower.backends import InlineGrid
from helpers.secure_sums import give_keys

CLASSES = ("a", "b", "c", "d")
TOUCHED: list[str] = []  # what was looked at of a site's own samples


class Site:
    """A deployed site with some samples, and all that can be seen of how it answers."""

    def __init__(
        self, folder: Path, name: str, number: int, data: Path, classes=CLASSES, **more: str
    ) -> None:
        self.state = folder / f"state-{name}"
        node = {
            "partition-id": 0, "classes": ", ".join(classes), "data": str(data),
            "state": str(self.state), "device": "cpu", "generator": "private", "max-samples": 30,
            "identity-key": str(folder / f"{number}.key"),
            "members": str(folder / "members.toml"), "max-steps": 20,
            "max-epochs": 3, "max-batch": 64, "allow": f"{' '.join(QUERIES)} updates",
            **more,
        }  # fmt: skip
        self.context = Context(1, 2, node, RecordDict(), {"classes": ", ".join(classes)})
        key, members = node["identity-key"], Members.load(node["members"])
        self._who = Identity.of(load_identity(key), members)
        self._grid = InlineGrid(client_app(), 1)
        self._grid._contexts = {2: self.context}

    def send(self, content: RecordDict, kind: str) -> Message:
        (name,) = self._grid.push_messages([Message(content, 2, kind)])
        (reply,) = self._grid.pull_messages([name])
        return reply

    def forget(self) -> None:
        """Remove what earlier messages left; the data and the generator stay."""
        for name in ("refusals", "ledger", "sums", "kept", "cache"):
            path = self.state / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        give_keys("a run", self._who, open_pairs(self.state / "sums", "a run", begin=True))

    def seen(self, content: RecordDict, kind: str, again: bool = False) -> tuple[object, ...]:
        """Return all that may not depend on the samples."""
        if not again:
            self.forget()
        TOUCHED.clear()
        reply = self.send(content, kind)
        return (
            reply.error.reason if reply.has_error() else None,
            bool(TOUCHED) if reply.has_error() else None,
            None if reply.has_error() else form(reply.content),
            *self.left(),
        )

    def left(self) -> tuple[list[object], dict[str, int]]:
        """Return what is in the ledger, and the names and sizes of files."""
        ledger = Ledger.open(self.state / "ledger", 3.0, 1e-6)
        files = {
            str(path.relative_to(self.state)): path.stat().st_size
            for path in self.state.rglob("*")
            if path.is_file() and path.relative_to(self.state).parts[0] not in ("cache", "store")
        }
        return [(entry.query, entry.rho) for entry in ledger.entries], files


def form(content: RecordDict) -> list[tuple[object, ...]]:
    """Return the names and sizes of all that a reply holds."""
    found: list[tuple[object, ...]] = []
    for name, record in content.items():
        for key, value in record.items():
            size = (value.dtype, value.shape) if hasattr(value, "dtype") else type(value)
            found.append((name, key, size, len(value) if isinstance(value, bytes | str) else 0))
    return sorted(found, key=repr)


def members(folder: Path) -> Path:
    keys = {f"s{k}": identity_of(make_identity(folder / f"{k}.key")) for k in range(4)}
    (folder / "members.toml").write_text(Members.of(keys).to_toml())
    return folder


def length_of(asked: dict[str, Any]) -> int:
    """How many words the answer has; 4 if there is none."""
    try:
        return read_query({k: v for k, v in asked.items() if k != "rho"}).length
    except FedeasError:
        return 4


def keys(asked: object, words: int) -> RecordDict:
    named = {"asked": asked, "words": words, "sum": "1", "run": "a run", "number": 0}
    session = json.dumps(named, sort_keys=True)
    return RecordDict({"secure-sum": ConfigRecord({"session": session, "content": b""})})
