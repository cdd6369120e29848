"""What the operator of a federation reads: the stage, who answered, and errors in one line."""

import json
import logging

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedeas import InfeasibleError, InputError
from fedeas.private.flower import run_server
from fedeas.private.flower.deployed import client_app
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.deployed import REFUSAL, SITES
from fedeas.train.flower.exchange import exchange, log_errors_in_one_line
from helpers.deployed_sites import NAMES, config, settings


@pytest.fixture
def asked(monkeypatch):
    """Return what asks sites that take some seconds each, by a clock of our own."""
    now = [100.0]
    monkeypatch.setattr("fedeas.train.flower.exchange.time.monotonic", lambda: now[0])
    return lambda *what, **more: ask(now, *what, **more)


def ask(now: list[float], seconds: float, kind: str, clients: int = 3) -> None:
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        now[0] += seconds
        return Message(RecordDict(), reply_to=message)

    app.query("secure_keys")(answer)
    app.train()(answer)
    grid = InlineGrid(app, clients)
    messages = [
        Message(RecordDict(), node, kind, ttl=600.0, group_id="7") for node in grid.get_node_ids()
    ]
    assert len(list(exchange(grid, messages, clients, 600.0))) == clients


def lines(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "flwr.waits"]


def test_the_stream_says_the_stage_who_answered_and_how_long_yet(caplog, asked):
    with caplog.at_level(logging.INFO, "flwr.waits"):
        asked(40.0, "query.secure_keys")
    assert lines(caplog) == [
        "secure sum, keys: 1 of 3 sites have answered after 40 s; waiting for at most 560 s more",
        "secure sum, keys: 3 of 3 sites have answered, after 120 s",
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO, "flwr.waits"):
        asked(30.0, "train", clients=4)
    assert lines(caplog)[0].startswith("round 7, training: 1 of 4 sites have answered after 30 s")
    caplog.clear()
    with caplog.at_level(logging.INFO, "flwr.waits"):
        asked(1.0, "train")
    assert lines(caplog) == []  # nothing to wait for


def test_an_error_of_ours_is_one_line_and_another_keeps_its_traceback(caplog):
    log_errors_in_one_line()
    logger = logging.getLogger("flwr")
    mine = InputError("clients 1 are missing", got="2 of 3")
    for error in (mine, ValueError("a bug")):
        try:
            raise error
        except Exception as raised:
            logger.error("%s raised an exception", "ServerApp", exc_info=raised)  # as Flower does
    ours, other = [record for record in caplog.records if record.name == "flwr"]
    assert ours.exc_info is None
    assert ours.getMessage() == f"ServerApp raised an exception: {mine}"
    assert other.exc_info is not None


def test_a_site_names_the_class_that_differs_in_its_own_log_alone(
    sites, tmp_path, caplog, monkeypatch
):  # fmt: skip
    folder = tmp_path / "configs"
    folder.mkdir()
    for k in range(2):
        values = config(sites, tmp_path, k).to_dict().items()
        lines = [f"{key.replace('_', '-')} = {json.dumps(value)}\n" for key, value in values]
        (folder / f"{k}.toml").write_text("".join(lines))
    monkeypatch.setenv(SITES, str(folder))
    grid = InlineGrid(client_app(), 2)
    for context in grid._contexts.values():
        context.run_config = {"classes": NAMES.replace("bar", "bars")}
    given = settings(sites, tmp_path / "run", members="") | {"sites": 2}
    with pytest.raises(InfeasibleError) as ended, caplog.at_level(logging.WARNING, "fedeas"):
        run_server(grid, given)
    (log, _) = [r.getMessage() for r in caplog.records if r.name == "fedeas"]
    assert "class 1 differs" in log and "bars" in log
    assert str(ended.value).count(REFUSAL) == 2
    assert "bars" not in str(ended.value) and "differs" not in str(ended.value)
