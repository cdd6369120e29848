"""A server that cheats at noisy sums over real sites: noise left out, answers asked again."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedeas import InfeasibleError
from fedeas.private.flower import secure_sum as secure_sum_module
from fedeas.private.flower.deployed import client_app
from fedeas.private.flower.queries import ask
from fedeas.private.flower.secure_sum import _new_session, _shared_run, secure_sum
from fedeas.private.ledger import Ledger
from fedeas.private.queries import encode_query
from fedeas.private.queries.query import ClassTotals
from fedeas.private.secure_sum.client import Client
from fedeas.private.secure_sum.identity import Members, make_identity
from fedeas.private.secure_sum.keys import identity_of
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.samples import Task
from helpers.image_sets import CLASSES, draw_shapes, encoded

SITES, UNITS = 4, 2**24
NAMES = ", ".join(CLASSES)
IMAGES, LABELS = draw_shapes(120)
TASK = Task(len(CLASSES), IMAGES.shape[1:], (0.5,) * IMAGES.shape[-1], (0.5,) * IMAGES.shape[-1])
HELD = 100  # images of sites; the others are of nobody


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Four sites with 25 images each."""
    folder = tmp_path_factory.mktemp("trained")
    for k, part in enumerate(np.array_split(np.arange(HELD), SITES)):
        for i in part:
            image = folder / f"data{k}" / CLASSES[LABELS[i]] / f"{i:04}.png"
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(encoded(IMAGES[i]))
    keys = {f"site-{k}": identity_of(make_identity(folder / f"{k}.key")) for k in range(SITES)}
    (folder / "members.toml").write_text(Members.of(keys).to_toml())
    return folder


class Cheating:
    """A server that sends what it likes to four real sites, and reads the sum as it is."""

    def __init__(self, place: Path, state: Path, **changed: object) -> None:
        self.members, self.state = Members.load(place / "members.toml"), state
        self.grid = InlineGrid(client_app(), SITES)
        self.nodes = list(self.grid.get_node_ids())
        for k, context in enumerate(self.grid._contexts.values()):
            context.node_config = {
                "partition-id": k, "classes": NAMES, "data": str(place / f"data{k}"),
                "state": str(state / str(k)), "device": "cpu",
                "identity-key": str(place / f"{k}.key"), "members": str(place / "members.toml"),
                **changed,
            }  # fmt: skip
            context.run_config = {"classes": NAMES}

    def entries(self, k: int) -> list[str]:
        ledger = Ledger.open(self.state / str(k) / "ledger")
        return [entry.query for entry in ledger.entries]


@pytest.mark.parametrize("allow", [None, "class-totals", "class-totals updates"])
def test_a_server_cannot_leave_the_noise_out(place, tmp_path, allow):
    server = Cheating(place, tmp_path, **({"allow": allow} if allow else {}))
    query = ClassTotals(3)
    for rho in (0.0, -0.0, 0, False, "0"):
        asked = {**encode_query(query), "rho": rho}
        with pytest.raises(InfeasibleError, match="too few clients"):
            secure_sum(server.grid, server.nodes, asked, query.length, server.members, 600.0)
    assert all(server.entries(k) == [] for k in range(SITES))


# The ledger


def test_a_query_that_one_site_cannot_pay_for_costs_nobody(place, tmp_path, caplog):
    server = Cheating(place, tmp_path, epsilon=1.0)
    for context in list(server.grid._contexts.values())[:2]:
        context.node_config["epsilon"] = 0.4
    with pytest.raises(InfeasibleError, match="at shares"):
        ask(server.grid, server.nodes, ClassTotals(3), server.members, epsilon=0.5)
    assert all(server.entries(k) == [] for k in range(SITES))
    assert "privacy budget of epsilon 0.4" in caplog.text


def test_a_site_without_its_key_says_so_in_its_own_log(place, tmp_path, caplog):
    server = Cheating(place, tmp_path)
    for context in list(server.grid._contexts.values())[:2]:
        context.node_config["identity-key"] = str(place / "lost.key")
    with pytest.raises(InfeasibleError, match="at keys") as failure:
        ask(server.grid, server.nodes, ClassTotals(3), server.members)
    assert "lost.key" in caplog.text
    assert "lost.key" not in str(failure.value)


@pytest.mark.parametrize("client", ["now", "as it was"])
def test_a_sum_whose_record_is_lost_is_paid_for_again(place, tmp_path, monkeypatch, client):
    """The same session gets new noise then, and the average of many answers is exact.

    Sites have an older copy of their keys back, and nothing of the sum.
    """
    if client == "as it was":  # the session was the key
        masked = Client.masked
        monkeypatch.setattr(
            Client, "masked",
            lambda self, request, release: masked(self, request, lambda _: release(self._session)),
        )  # fmt: skip
    server = Cheating(place, tmp_path)
    query = ClassTotals(3)
    run = _shared_run(server.grid, server.nodes, server.members, 600.0)
    session = _new_session({**encode_query(query), "rho": 0.001}, query.length, run)
    for k in range(SITES):
        shutil.copytree(tmp_path / str(k) / "sums", tmp_path / f"copy-{k}")
    answers = []
    for _ in range(3):
        monkeypatch.setattr(secure_sum_module, "_new_session", lambda *_: session)
        found = secure_sum_module.secure_sum(
            server.grid, server.nodes, {}, query.length, server.members, 600.0
        )
        answers.append(found.words.tobytes())
        # Answered again it is not.
        with pytest.raises(InfeasibleError, match="at shares"):
            secure_sum_module.secure_sum(
                server.grid, server.nodes, {}, query.length, server.members, 600.0
            )
        for k in range(SITES):
            shutil.rmtree(tmp_path / str(k) / "sums")
            shutil.copytree(tmp_path / f"copy-{k}", tmp_path / str(k) / "sums")
            (tmp_path / str(k) / "refusals").unlink(missing_ok=True)
    assert len(set(answers)) == 3
    paid = 3 if client == "now" else 1
    assert all(server.entries(k) == ["class-totals"] * paid for k in range(SITES))
