"""A site's ledger: what was answered is never forgotten, and the owner's budget is never passed."""

import hashlib
import inspect
import json
import math
import os
import shutil
import stat
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedeas import InputError
from fedeas._internal.files import sealed, write_json
from fedeas._internal.settings import read_settings
from fedeas.private import Ledger
from fedeas.private.accounting import (
    ADDED,
    DELTA,
    REPLACED,
    epsilon_of,
    replace_one_epsilon,
    rho_for,
)
from fedeas.private.flower.queries import ask
from fedeas.private.flower.site_config import SiteConfig
from fedeas.private.ledger import LedgerEntry
from fedeas.private.queries import QUERIES

RHO = 0.01
ENTRIES, HEAD = "entries.jsonl", "head.json"


def enter(ledger: Ledger, key: str, rho: float = RHO, server: str = "north") -> None:
    ledger.enter("beta", rho, server=server, run="7", key=key.encode())


@pytest.fixture
def folder(tmp_path) -> Path:
    """A ledger with three entries."""
    made = tmp_path / "state" / "ledger"
    for key in "abc":
        enter(Ledger.open(made), key)
    return made


def asked_until_refused(ledger: Ledger, rho: float, server: str = "north") -> int:
    """How many answers a server gets."""
    for number in range(1000):
        try:
            enter(ledger, f"{server} {number}", rho, server)
        except InputError as refusal:
            assert "privacy budget" in str(refusal)
            assert ADDED["sample"] in str(refusal)
            assert "\n" not in str(refusal)
            return number
    pytest.fail("never refused")


# The budget


def test_a_server_that_asks_until_the_budget_is_gone_is_refused_also_by_another_name(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger", epsilon=1.0, delta=1e-6)
    assert asked_until_refused(ledger, ledger.budget / 10) == 10
    assert ledger.left == pytest.approx(0, abs=1e-12)
    assert ledger.epsilon_spent <= 1.0
    # The same after a restart, and for another server.
    again = Ledger.open(tmp_path / "ledger", epsilon=1.0, delta=1e-6)
    assert asked_until_refused(again, ledger.budget / 1e6, server="south") == 0
    assert again.spent == pytest.approx(ledger.budget)


def test_a_lower_budget_is_obeyed_and_a_higher_one_is_the_owners_right(tmp_path):
    enter(Ledger.open(tmp_path, epsilon=3.0), "a", rho_for(2.9, 1e-6))
    lower = Ledger.open(tmp_path, epsilon=1.0)
    assert lower.left == 0
    with pytest.raises(InputError, match="privacy budget of epsilon 1 "):
        enter(lower, "b", 1e-9)
    enter(lower, "a", rho_for(2.9, 1e-6))  # the same answer again: nothing new is sent
    enter(Ledger.open(tmp_path, epsilon=4.0), "b", 0.01)
    # At a smaller delta the same epsilon is a smaller budget.
    assert Ledger.open(tmp_path, 4.0, 1e-9).budget < Ledger.open(tmp_path, 4.0).budget


def test_the_same_answer_costs_nothing_twice_and_another_one_with_its_key_is_refused(folder):
    ledger = Ledger.open(folder)
    before = ledger.entries
    enter(ledger, "b")
    assert ledger.entries == before
    for query, rho in (("beta", 2 * RHO), ("price", RHO)):
        with pytest.raises(InputError, match="another answer"):
            ledger.enter(query, rho, server="north", run="7", key=b"b")
    assert ledger.spent == pytest.approx(3 * RHO)
    assert ledger.epsilon_spent == pytest.approx(epsilon_of([3 * RHO], 1e-6))


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf])
def test_an_answer_without_a_cost_is_refused(tmp_path, rho):
    with pytest.raises(InputError, match="cost"):
        enter(Ledger.open(tmp_path / "ledger"), "a", rho)
    assert not (tmp_path / "ledger").exists()


def test_several_processes_do_not_pass_the_budget_together(tmp_path):
    """Each opens the ledger for itself, as they do."""
    budget = rho_for(3.0, 1e-6)

    def attempt(number: int) -> bool:
        try:
            enter(Ledger.open(tmp_path / "ledger"), str(number), budget / 8)
        except InputError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(20))) == 8
    assert len(Ledger.open(tmp_path / "ledger").entries) == 8


def test_names_that_a_server_chose_are_short_and_printable(tmp_path):
    ledger = Ledger.open(tmp_path)
    ledger.enter("beta", RHO, server="\x1b[31mred\n", run="9" * 10**4, key=b"1")
    (entry,) = ledger.entries
    assert entry.server == r"\x1b[31mred\n"
    assert len(entry.run) == 100
    assert (entry.epsilon, entry.delta) == (3.0, 1e-6)


def test_an_answer_that_cannot_be_paid_for_is_known_before_it_is_entered(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger", epsilon=1.0)
    ledger.check("beta", ledger.budget)
    with pytest.raises(InputError, match="privacy budget"):
        ledger.check("beta", 1.01 * ledger.budget)
    assert not (tmp_path / "ledger").exists()
    enter(ledger, "a", 0.7 * ledger.budget)
    with pytest.raises(InputError, match="privacy budget") as refusal:
        ledger.check("beta", 0.5 * ledger.budget)
    assert f"{0.3 * ledger.budget:.4g}" in refusal.value.allowed
    ledger.check("beta", 0.3 * ledger.budget)
    assert len(ledger.entries) == 1


def test_a_budget_is_enough_for_ten_thousand_answers_however_little_they_cost(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger")
    enter(ledger, "a", 1e-300)
    assert ledger.entries[0].rho == ledger.budget / 10_000
    enter(ledger, "a", 1e-300)  # the same answer, at the same cost
    assert len(ledger.entries) == 1


def many_entries(folder: Path, count: int, head: bool = True) -> None:
    """Write a ledger as earlier versions did, with cheap entries."""
    folder.mkdir(parents=True, mode=0o700)
    previous, lines = "0" * 64, []
    for number in range(count):
        key = hashlib.sha256(str(number).encode()).hexdigest()
        entry = LedgerEntry("2026-01-01T00:00:00+00:00", "beta", 1e-9, "1", "1", key, 3.0, 1e-6)
        lines.append(sealed({**entry._asdict(), "number": number, "previous": previous}))
        previous = hashlib.sha256(lines[-1].rstrip("\n").encode()).hexdigest()
    (folder / ENTRIES).write_text("".join(lines))
    if head:
        write_json(folder / HEAD, [count, previous])


def entered_in(ledger: Ledger, prefix: str, times: int = 20) -> float:
    """Return the median seconds of an entry, without those of a busy disk."""
    taken = []
    for number in range(times):
        start = time.process_time()
        enter(ledger, f"{prefix} {number}", ledger.budget / 10_000)
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def test_an_entry_takes_no_longer_after_many_than_after_none(tmp_path, monkeypatch):
    """And a ledger of an earlier version goes on: it is read as a whole once."""
    many_entries(tmp_path / "old", 3000)
    old, new = Ledger.open(tmp_path / "old"), Ledger.open(tmp_path / "new")
    reads, read = [], Ledger._read
    monkeypatch.setattr(Ledger, "_read", lambda self: reads.append(1) or read(self))
    enter(old, "first")
    assert len(reads) == 1
    slow, fast = entered_in(old, "x"), entered_in(new, "x")
    assert slow < 5 * fast + 0.002
    assert len(reads) == 2  # the one of the new ledger, which had no file
    assert old.spent == pytest.approx(3000e-9 + RHO + 20 * old.budget / 10_000)
    assert len(reads) == 2
    # As it was: every line is read and checked for every entry.
    monkeypatch.setattr(Ledger, "_state", lambda self: self._read()[1])
    assert entered_in(old, "y", 3) > 10 * slow


def test_what_the_head_says_is_what_the_entries_add_up_to(tmp_path):
    """Thousandths of a budget pass it neither by rounding nor are the last of them refused."""
    ledger = Ledger.open(tmp_path / "ledger")
    assert asked_until_refused(ledger, ledger.budget / 999) == 999
    assert ledger.spent == pytest.approx(math.fsum(e.rho for e in ledger.entries), rel=1e-15)


def test_a_head_is_believed_only_while_the_entries_are_as_it_left_them(folder):
    """The same size, and another time: every line is read again."""
    lines = (folder / ENTRIES).read_text()
    (folder / ENTRIES).write_text(lines.replace('"rho": 0.01', '"rho": 0.00', 1))
    later = (folder / ENTRIES).stat().st_mtime_ns + 10**9
    os.utime(folder / ENTRIES, ns=(later, later))
    assert "line 1" in refuses_everything(folder)
    (folder / ENTRIES).write_text(lines)
    os.utime(folder / ENTRIES, ns=(later, later))
    enter(Ledger.open(folder), "new")
    assert len(Ledger.open(folder).entries) == 4


def test_there_is_one_delta():
    """An epsilon at another delta is another epsilon: 1 at 1e-5 is 1.13 at 1e-6."""
    site = inspect.signature(SiteConfig).parameters["delta"].default
    assert {DELTA, site, Ledger.open("x").delta, inspect_delta(ask)} == {1e-6}


def inspect_delta(function) -> float:
    return inspect.signature(function).parameters["delta"].default


# Killed, damaged, removed


def test_a_ledger_killed_at_twenty_random_moments_never_forgets_what_was_sent(tmp_path):
    script = Path(__file__).parents[1] / "helpers" / "killed_ledger.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "ledger", tmp_path / "sent", "20"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(lines) == 20
    assert lines[-1][0] > 20  # they did answer in between
    assert all(missing == 0 for _, missing in lines)


def test_the_audit_of_kills_finds_a_ledger_that_writes_after_it_sends(tmp_path):
    """The check above is worth something: sent without being entered counts as missing."""
    sent = tmp_path / "sent"
    sent.write_text("never-entered\n")
    script = Path(__file__).parents[1] / "helpers" / "killed_ledger.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "ledger", sent, "1"], capture_output=True, text=True
    )
    assert done.stdout.split()[-1] == "1"


def test_both_files_and_their_folder_are_synced_before_enter_returns(tmp_path, monkeypatch):
    """A power cut is like a kill only if this holds: the entry first, then the head."""
    synced = []
    fsync = os.fsync

    def record(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux's /proc")
    monkeypatch.setattr(os, "fsync", record)
    enter(Ledger.open(tmp_path / "ledger"), "a")
    entries, folder, head, last = synced
    assert (entries, folder, last) == (ENTRIES, "ledger", "ledger")
    assert head.endswith(HEAD)


def test_an_entry_cut_short_at_any_byte_is_repaired_and_nothing_else_is_forgotten(folder, tmp_path):
    """Killed while writing the third line, which the head does not know yet: it was never sent."""
    length = len((folder / ENTRIES).read_bytes().splitlines(keepends=True)[2])
    for cut in [0, 1, 2, length // 2, *range(length - 3, length + 1)]:
        for zeros in (b"", bytes(10)):
            trial = tmp_path / f"{cut} {len(zeros)}"
            for key in "ab":
                enter(Ledger.open(trial), key)
            known = (trial / ENTRIES).read_bytes()
            head = (trial / HEAD).read_bytes()
            enter(Ledger.open(trial), "c")
            third = (trial / ENTRIES).read_bytes()[len(known) :]
            (trial / ENTRIES).write_bytes(known + third[:cut] + zeros * (cut < length))
            (trial / HEAD).write_bytes(head)
            readable = cut == length or (cut == length - 1 and not zeros)
            assert [e.key for e in Ledger.open(trial).entries] == [
                e.key for e in Ledger.open(folder).entries[: 2 + readable]
            ]
            enter(Ledger.open(trial), "d")
            assert len(Ledger.open(trial).entries) == 3 + readable
            assert (trial / ENTRIES).read_bytes().startswith(known)


def refuses_everything(folder: Path) -> str:
    """Return the reason."""
    ledger = Ledger.open(folder)
    before = sorted((p.name, p.read_bytes()) for p in folder.iterdir())
    with pytest.raises(InputError, match=r"privacy ledger is damaged.*backup") as refusal:
        enter(ledger, "new", 1e-12)
    with pytest.raises(InputError, match="damaged"):
        _ = ledger.spent
    assert sorted((p.name, p.read_bytes()) for p in folder.iterdir()) == before
    return str(refusal.value)


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_changed_entry_refuses_everything(folder, line):
    lines = (folder / ENTRIES).read_text().splitlines(keepends=True)
    lines[line] = lines[line].replace('"rho": 0.01', '"rho": 0.00')
    (folder / ENTRIES).write_text("".join(lines))
    assert f"line {line + 1}" in refuses_everything(folder)


def test_entries_that_are_gone_refuse_everything(folder):
    lines = (folder / ENTRIES).read_text().splitlines(keepends=True)
    for left in (lines[:2], lines[1:], [lines[0], lines[2]], [], [*lines[:2], lines[2][:40]]):
        (folder / ENTRIES).write_text("".join(left))
        refuses_everything(folder)
    (folder / ENTRIES).unlink()
    assert "0 of 3 entries" in refuses_everything(folder)
    (folder / ENTRIES).write_text("".join(lines))
    enter(Ledger.open(folder), "new")  # put back, it is trusted again


def test_an_older_or_another_ledger_in_its_place_refuses_everything(folder, tmp_path):
    saved = (folder / ENTRIES).read_bytes()
    enter(Ledger.open(folder), "d")
    (folder / ENTRIES).write_bytes(saved)
    assert "3 of 4" in refuses_everything(folder)
    other = tmp_path / "other"
    for key in "wxyz":
        enter(Ledger.open(other), key)
    shutil.copy(other / ENTRIES, folder / ENTRIES)
    assert "not the file" in refuses_everything(folder)


def test_a_head_that_is_gone_or_damaged_refuses_everything(folder):
    head = (folder / HEAD).read_text()
    (folder / HEAD).write_text(head.replace('"entries": 3', '"entries": 1'))
    assert "head.json is damaged" in refuses_everything(folder)
    (folder / HEAD).unlink()
    assert "missing or old" in refuses_everything(folder)


def test_only_its_user_enters_the_folder(folder, tmp_path):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / ENTRIES).stat().st_mode) == 0o600
    folder.chmod(0o770)
    with pytest.raises(InputError, match="others can write"):
        enter(Ledger.open(folder), "d")
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(InputError, match="not a folder"):
        enter(Ledger.open(tmp_path / "link"), "d")


# What the owner says and sees


def test_a_sites_configuration_has_a_budget(tmp_path):
    site = {"partition-id": 0, "classes": "a, b", "data": "d", "state": str(tmp_path)}
    config = read_settings(SiteConfig, site, "a site")
    assert (config.epsilon, config.delta) == (3.0, 1e-6)
    config = config.replace(members="members.toml")
    assert list(config.allowed) == list(QUERIES)
    assert config.ledger_folder == tmp_path / "ledger"
    for wrong in ({"epsilon": 0.0}, {"epsilon": -1.0}, {"delta": 0.0}, {"delta": 0.5}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            read_settings(SiteConfig, {**site, **wrong}, "a site")


def test_fedeas_privacy_shows_what_was_spent_on_what(fedeas, folder):
    shown = fedeas("ledger", folder)
    assert shown.code == 0
    assert shown.out.startswith("3 answers")
    assert shown.out.count("north") == 3
    epsilon = epsilon_of([RHO] * 3, 1e-6)
    budget = rho_for(3.0, 1e-6)
    assert f"spent: epsilon {epsilon:.3g} of 3 at delta 1e-06" in shown.out
    assert f"(rho 0.03 of {budget:.4g}, 16.2 %)" in shown.out
    # Both units: who knows the number of samples knows whether there is one more.
    replaced = replace_one_epsilon(3 * RHO, 1e-6)
    assert f"Epsilon {epsilon:.3g} is the privacy of {ADDED['sample']}." in shown.out
    assert f"{REPLACED['sample']}: epsilon {replaced:.3g}." in shown.out
    assert replaced > 2 * epsilon
    told = json.loads(fedeas("ledger", folder, "--json").out)
    assert (told["unit"], told["unit_replaced"]) == (ADDED["sample"], REPLACED["sample"])
    assert told["epsilon_spent_replaced"] == pytest.approx(replaced)
    assert told["rho_spent"] + told["rho_left"] == pytest.approx(told["rho"])
    assert [answer["query"] for answer in told["answers"]] == ["beta"] * 3


def test_fedeas_privacy_names_servers_only_where_they_are_known(fedeas, folder, tmp_path):
    assert "server" in fedeas("ledger", folder).out.splitlines()[2]
    for server in ("", "7"):  # unknown, or the run's number, as it was once entered
        ledger = Ledger.open(tmp_path / f"own{server}")
        ledger.enter("beta", RHO, server=server, run="7", key=b"a")
        heading = fedeas("ledger", ledger.folder).out.splitlines()[2]
        assert "run" in heading
        assert "server" not in heading


def test_fedeas_privacy_reads_the_budget_of_a_site(fedeas, folder, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text(
        f'partition-id = 0\nclasses = "a, b"\ndata = "d"\nstate = "{folder.parent}"\n'
        "epsilon = 1.0\ndelta = 1e-7\n"
    )
    shown = fedeas("ledger", site).out
    assert "of 1 at delta 1e-07" in shown
    assert "left:  nothing; more was spent before the budget was lowered" in shown
    # A folder alone has the budget of its last answer.
    Ledger.open(folder, 8.0, 1e-5).enter("price", RHO, server="south", run="8", key=b"d")
    assert "of 8 at delta 1e-05" in fedeas("ledger", folder).out


def test_fedeas_privacy_on_a_site_without_answers_and_a_damaged_ledger(fedeas, folder, tmp_path):
    state, site = tmp_path / "new", tmp_path / "site.toml"
    state.mkdir(mode=0o755)
    site.write_text(f'partition-id = 0\nclasses = "a, b"\ndata = "d"\nstate = "{state}"\n')
    shown = fedeas("ledger", site)
    assert shown.code == 0
    assert shown.out.startswith("no answers yet\nspent: epsilon 0 of 3")
    assert stat.S_IMODE(state.stat().st_mode) == 0o755
    assert not list(state.iterdir())  # looking at it changes nothing
    (folder / ENTRIES).unlink()
    damaged = fedeas("ledger", folder)
    assert damaged.code == 2
    assert damaged.err.count("\n") == 1
    assert "backup" in damaged.err


def test_fedeas_privacy_does_not_take_another_folder_for_a_ledger(fedeas, folder, tmp_path):
    """ "Nothing spent" would be a wrong answer about a site that has spent its budget."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, said in (
        (folder.parent, f"pass {folder}"),  # the site's state
        (empty, f"no ledger in {empty}"),
        (tmp_path / "typo.toml", f"there is no {tmp_path / 'typo.toml'}"),
    ):
        refused = fedeas("ledger", path)
        assert (refused.code, refused.out) == (2, "")
        assert said in " ".join(refused.err.split())
    assert not list(empty.iterdir())
