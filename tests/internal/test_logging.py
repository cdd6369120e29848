"""The library logs under "fedeas"; its warnings are seen unless a program says otherwise."""

import logging
import shutil
import subprocess
import sys

import numpy as np
import pytest

from fedeas import augment
from fedeas.train.flower.backends import quiet_flower
from helpers.fashion_generator import Bars

WARN = "import logging; logging.getLogger('fedeas').warning('one line')"


def shown(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_a_warning_is_seen_as_that_of_any_library():
    """A cap that was reached, or a weight that was left as it is, must not pass in silence."""
    assert shown(f"import fedeas; {WARN}") == "one line\n"
    quiet = "logging.getLogger('fedeas').setLevel('ERROR')"
    assert shown(f"import fedeas, logging; {quiet}; {WARN}") == ""
    assert "one line" in shown(f"import fedeas, logging; logging.basicConfig(); {WARN}")


def test_a_site_still_reads_why_it_refused():
    assert (
        shown(f"import fedeas.train.flower; fedeas.train.flower.client_app(); {WARN}")
        == "one line\n"
    )
    configured = (
        "import fedeas.train.flower, logging; logging.basicConfig(); "
        "fedeas.train.flower.client_app()"
    )
    assert shown(f"{configured}; {WARN}") == "WARNING:fedeas:one line\n"  # once


def test_augment_says_what_it_generates_and_how_long_that_took(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    images, labels = np.zeros((100, 28, 28), np.uint8), np.repeat([0, 1], [90, 10])

    def said() -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "fedeas"):
            augment(
                images,
                labels=labels,
                generator=Bars(tmp_path / "drawn"),
                beta=8,
                client="north",
                cache=tmp_path / "cache",
            )
        assert all(record.name.startswith("fedeas.") for record in caplog.records)
        return [record.getMessage() for record in caplog.records]

    first, last = said()
    (folder,) = (tmp_path / "cache").iterdir()
    assert first == f"client north: generating 168 of 168 samples, kept in {folder}"
    assert last.startswith("client north: 168 samples ready after ")
    assert last.endswith(" s")
    assert said() == []  # read from disk
    (shard,) = folder.rglob("*.parquet")
    shard.write_text("{")
    shutil.rmtree(tmp_path / "store")  # what was decoded
    damaged, again, _ = said()
    assert f"{shard} is damaged" in damaged
    assert again == f"client north: generating 168 of 168 samples, kept in {folder}"


def test_what_flower_logs_while_it_simulates_is_passed_on(caplog, capsys):
    logger = logging.getLogger("flwr")
    handlers, filters = list(logger.handlers), list(logger.filters)
    with quiet_flower(), caplog.at_level(logging.INFO, "fedeas"):
        logger.info("a round of Flower's")
    assert [r.getMessage() for r in caplog.records] == ["a round of Flower's"]
    assert "a round" not in capsys.readouterr().err
    assert (logger.handlers, logger.filters) == (handlers, filters)
    with pytest.raises(KeyError), quiet_flower():
        raise KeyError
    assert logger.filters == filters
