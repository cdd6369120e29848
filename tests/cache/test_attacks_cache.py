"""Attacks on caches of generated images: each fails here, and works against a careless stand-in."""

import hashlib
import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedeas import InputError, LabelCounts, Plan, augment
from fedeas._internal.files import sealed, unsealed
from fedeas.cache import Cache, verify
from fedeas.cache.database import Segment, open_database
from fedeas.cache.fill import client_samples, fill
from fedeas.cache.store import summary
from helpers.cache_contents import changing, contents, flip_samples
from helpers.noted_generators import Counting

HELPERS = Path(__file__).parents[1] / "helpers"
WANTED = [3, 0, 4]


class Grey(Counting):
    """Knows its classes, and draws noise."""

    classes = ("cat", "dog", "bird")


def filled(base: Path) -> tuple[Cache, np.ndarray]:
    """A cache of one client, and its images."""
    cache = Cache(base, Grey(), 3)
    return cache, client_samples("a", WANTED, Grey(), cache)[0]


def careless_samples(cache: Cache) -> np.ndarray:
    """Read what the file says, as it is: no names, hashes or sizes are checked."""
    parts = []
    with changing(cache.folder) as database:
        for head, values in database.execute("SELECT head, samples FROM block"):
            shape = json.loads(head)["body"]["shape"]
            parts.append(np.frombuffer(values, np.uint8).reshape(shape))
    return np.concatenate(parts)


# Many processes at once


def at_once(folder: Path, processes: int, *more: str) -> list[list[str]]:
    """Run concurrent_fills.py: what each process says."""
    command = [sys.executable, HELPERS / "concurrent_fills.py", folder, str(processes), "10", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("attempts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_first_fill_by_twenty_processes_at_once_succeeds(tmp_path, attempts):
    """Processes that tidy up what others are about to rename make each other fail."""
    careless = at_once(tmp_path / "careless", 20, "careless")
    assert {how for _, how, _ in careless} <= {"FileAccessError", "FileNotFoundError"}
    assert len(careless) == 20
    alone = Cache(tmp_path / "alone", Counting(), 3)
    for client in range(10):
        client_samples(str(client), [5, 7, 3], Counting(), alone, 4)
    for attempt in range(attempts):
        said = at_once(tmp_path / str(attempt), 20)
        assert Counter(how for _, how, _ in said) == {"done": 20}, said
        assert len({(client, digest) for client, _, digest in said}) == 10
        folder = tmp_path / str(attempt) / alone.folder.name
        assert contents(folder) == contents(alone.folder)


# Files that somebody changed


def whiten(folder: Path) -> None:
    with changing(folder) as database:
        database.execute(
            "UPDATE block SET samples = CAST(replace(hex(zeroblob(112)), '00', 'x') AS BLOB)"
        )


def flip_and_restore_time(folder: Path) -> None:
    path = folder / "samples.sqlite"
    info = path.stat()
    flip_samples(folder)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@pytest.mark.parametrize("change", [flip_samples, whiten, flip_and_restore_time])
def test_changed_samples_are_never_used(change, tmp_path):
    """Also in the process that has read it before, and if its time is put back."""
    cache, images = filled(tmp_path)
    os.utime(cache.file, ns=(0, 0))
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    change(cache.folder)
    assert not np.array_equal(careless_samples(cache), images)
    with pytest.raises(InputError, match=r"is damaged.*; run `fedeas fill` or `augment` again"):
        cache.samples("a", WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    assert list(verify(cache.folder)) == []


@pytest.mark.parametrize(
    "promised",
    [
        [[0, 0, 9], [2, 0, 9]],
        [[0, 0, 3]],
        [[0, 1, 3]],
        [[0, 0, 3], [2, 0, 4], [1, 0, 2]],
        [[0, 0, 3], [2, 0, 4], [2, 4, 4]],
    ],
)
def test_a_head_that_promises_other_samples_is_not_believed(promised, tmp_path):
    """More or fewer samples than the block has, with the right hash of that promise."""
    cache, images = filled(tmp_path)
    with changing(cache.folder) as database:
        ((line,),) = database.execute("SELECT head FROM block")
        head = unsealed(line, "") | {"segments": promised}
        database.execute("UPDATE block SET head = ?", (sealed(head),))
    assert careless_samples(cache).shape == images.shape
    with pytest.raises(InputError, match="is damaged: samples of unknown origin; run `fedeas"):
        cache.samples("a", WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    assert list(verify(cache.folder)) == []


@pytest.mark.parametrize("shape", [[7, 4, 4, 2], [7, 4, 2, 1], [7, 2**40, 4, 1]])
def test_a_head_of_another_shape_is_not_believed(shape, tmp_path):
    cache, images = filled(tmp_path)
    with changing(cache.folder) as database:
        ((line,),) = database.execute("SELECT head FROM block")
        database.execute(
            "UPDATE block SET head = ?", (sealed(unsealed(line, "") | {"shape": shape}),)
        )
    with pytest.raises(InputError, match="is damaged"):
        cache.samples("a", WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    assert list(verify(cache.folder)) == []


def test_a_block_twice_is_found_and_one_of_them_removed(tmp_path):
    cache, images = filled(tmp_path)
    with changing(cache.folder) as database:
        database.execute("INSERT INTO block SELECT 9, client, head, samples FROM block")
    (problem,) = verify(cache.folder)
    assert "twice" in problem
    plan = Plan.of(LabelCounts([[1, 1, 1]], ["a"]), [WANTED], "all")
    assert fill(plan, Grey(), cache).generated == 0
    assert list(verify(cache.folder)) == []
    np.testing.assert_array_equal(cache.samples("a", WANTED)[0], images)


def test_a_block_of_another_client_is_not_used(tmp_path):
    cache, images = filled(tmp_path)
    client_samples("b", WANTED, Grey(), cache)
    with changing(cache.folder) as database:
        database.execute("UPDATE block SET client = iif(client = 'a', 'b', 'a')")
    with pytest.raises(InputError, match="unknown origin"):
        cache.samples("a", WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)


def test_a_file_with_tables_of_somebody_else_is_not_used(tmp_path):
    """A trigger would run whenever samples are entered."""
    cache, images = filled(tmp_path)
    with changing(cache.folder) as database:
        database.execute("CREATE TRIGGER evil AFTER INSERT ON block BEGIN DELETE FROM block; END")
    with changing(cache.folder) as database:  # the attack itself
        database.execute("SAVEPOINT before")
        database.execute("INSERT INTO block (client) VALUES ('b')")
        assert list(database.execute("SELECT * FROM block")) == []
        database.execute("ROLLBACK TO before")
    with pytest.raises(InputError, match="it has other tables"):
        cache.samples("a", WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    assert list(verify(cache.folder)) == []


def test_a_view_in_the_place_of_the_blocks_makes_nobody_wait(tmp_path):
    """What can be read of a damaged file is kept, and a view may never end."""
    cache, images = filled(tmp_path)
    with changing(cache.folder) as database:
        database.execute("DROP TABLE block")
        database.execute(
            "CREATE VIEW block AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)"
            " SELECT id, 'a' AS client, '' AS head, x'' AS samples FROM n"
        )
        rows = database.execute("SELECT id FROM block")
        assert len([next(rows) for _ in range(10_000)]) == 10_000  # and so on
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    assert list(verify(cache.folder)) == []


def test_a_pipe_in_the_place_of_samples_makes_nobody_wait(tmp_path):
    cache, images = filled(tmp_path)
    cache.file.unlink()
    os.mkfifo(cache.file)
    reader = [sys.executable, "-c", f"open({str(cache.file)!r}).read()"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(reader, timeout=0.5)
    with pytest.raises(InputError, match="it is not a file"):
        cache.samples("a", WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)


# Who may look


def shown_to_others(base: Path) -> list[Path]:
    """Files below a folder that other users of the machine can reach and read."""
    found = []
    for path in base.rglob("*"):
        above = [folder for folder in path.parents if folder.is_relative_to(base)]
        open_way = all(folder.stat().st_mode & stat.S_IXOTH for folder in above)
        if path.is_file() and open_way and path.stat().st_mode & stat.S_IROTH:
            found.append(path)
    return found


@pytest.fixture
def lenient(tmp_path):
    """The usual umask, and a folder that everybody may look into."""
    before = os.umask(0o022)
    (tmp_path / "base").mkdir()
    yield tmp_path / "base"
    os.umask(before)


def augmented(folder: Path, counts=(90, 10, 0), **more):
    labels = np.repeat([0, 1, 2], counts)
    images = np.zeros((len(labels), 4, 4, 1), np.uint8)
    return augment(
        images, labels=labels, generator=Grey(), beta=12, client="north", cache=folder, **more
    )


def test_other_users_cannot_read_a_cache(lenient):
    (lenient / "plain").mkdir()
    (lenient / "plain" / "cache.json").write_text("{}")
    assert shown_to_others(lenient) == [lenient / "plain" / "cache.json"]
    augmented(lenient / "cache")
    assert shown_to_others(lenient / "cache") == []
    folders = [path for path in (lenient / "cache").rglob("*") if path.is_dir()]
    assert len(folders) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_a_cache_of_ours_that_others_could_read_is_closed_to_them(lenient):
    """On the next use, whether it reads or generates; a link's target is left alone."""
    for more in ({}, {"counts": (90, 20, 0)}):
        augmented(lenient / "cache")
        (folder,) = (lenient / "cache").iterdir()
        for path in (folder, *(p for p in folder.rglob("*") if p.is_dir())):
            path.chmod(0o755)
        assert shown_to_others(lenient / "cache")
        augmented(lenient / "cache", **more)
        assert shown_to_others(lenient / "cache") == []
    folder.rename(lenient / "elsewhere")
    (lenient / "elsewhere").chmod(0o755)
    folder.symlink_to(lenient / "elsewhere")
    augmented(lenient / "cache")
    assert stat.S_IMODE((lenient / "elsewhere").stat().st_mode) == 0o755


def recovered(hashed: str, generated: list[int]) -> list[list[int]]:
    """Label counts of three classes that fit a hash of them and what was generated."""
    found = []
    for level in range(60):  # what each class that is generated is filled up to
        rest = [level - made for made in generated[1:]]
        for first in range(300 if min(rest) >= 0 else 0):
            if LabelCounts(np.array([[first, *rest]])).fingerprint == hashed:
                found.append([first, *rest])
    return found


def test_label_counts_cannot_be_recovered_from_what_a_cache_says_of_itself(tmp_path):
    counts = [90, 10, 0]
    made = np.bincount(augmented(tmp_path)[1], minlength=3) - counts
    assert recovered(LabelCounts([counts]).fingerprint, made.tolist()) == [counts]
    (path,) = tmp_path.glob("*/samples.sqlite")
    with open_database(path) as database:
        about = database.about()
    for hashed in about.values():
        assert recovered(hashed, made.tolist()) == []
    # It does not depend on them: other counts, the same cache.
    augmented(tmp_path, (7, 50, 20))
    assert list(tmp_path.glob("*/samples.sqlite")) == [path]
    with open_database(path) as database:
        assert database.about() == about


# Values of any kind in the database and in the heads of blocks

VALUES = [
    None, True, -1, 0, 3, 1e308, 2**62, "x", "", [], {}, [[]], "../../x", ["a"], {"a": 1},
    "\ud800", "\x1b[2J", [0, 0, 2**62], [0, 5, 2], [True, 0, 1], float("nan"), b"\xff",
]  # fmt: skip
PLAIN = [value for value in VALUES if not isinstance(value, list | dict) and value != "\ud800"]


def changed(value, chance: random.Random):
    """Change a random place of a JSON value."""
    if isinstance(value, dict | list) and value and chance.random() < 0.8:
        places = list(value) if isinstance(value, dict) else range(len(value))
        place, what = chance.choice(list(places)), chance.random()
        if what < 0.3:
            value[place] = chance.choice(VALUES[:-1])
        elif what < 0.4:
            del value[place]
        elif what < 0.5 and isinstance(value, dict):
            value["more"] = chance.choice(VALUES[:-1])
        elif what < 0.5:
            value.append(chance.choice(VALUES[:-1]))
        else:
            value[place] = changed(value[place], chance)
        return value
    return chance.choice(VALUES[:-1])


def careless_reading(cache: Cache) -> None:
    """Read a cache as if whoever can write to it is one of us."""
    with changing(cache.folder) as database:
        about = json.loads(database.execute("SELECT sealed FROM about").fetchone()[0])["body"]
        assert about["generator"] + about["classes"] + str(int(about["seed"]))
        rows = list(database.execute("SELECT client, head, samples FROM block"))
        noted = list(database.execute("SELECT requests FROM fill"))
    for client, line, values in rows:
        head = json.loads(line)["body"]
        assert client + head["client"] + str(sum(Segment(*s).size for s in head["segments"]))
        assert np.frombuffer(values, head["dtype"]).reshape(head["shape"]).size
    for (requests,) in noted:
        for name, segment in json.loads(requests):
            assert name + str(Segment(*segment).size)


def change_one_place(cache: Cache, key: str, chance: random.Random) -> str:
    """Change a value of the database, or the head of a block, and give it the right hash."""
    which = chance.choice(["about", "block", "block", "fill", "head"])
    with changing(cache.folder) as database:
        requests = [["a", [0, 3, 5]]]
        database.execute("INSERT INTO fill VALUES ('a', ?, ?)", (key, json.dumps(requests)))
        if which == "head":
            ((line,),) = database.execute("SELECT head FROM block")
            head = sealed(changed(unsealed(line, ""), chance))
            database.execute("UPDATE block SET head = ?", (head,))
        elif which == "about":
            body = unsealed(database.execute("SELECT sealed FROM about").fetchone()[0], "")
            database.execute("UPDATE about SET sealed = ?", (sealed(changed(body, chance)),))
        elif which == "fill":
            noted = json.dumps(changed(requests, chance))
            database.execute("UPDATE fill SET requests = ?", (noted,))
        else:
            table, columns = chance.choice(
                [("block", ("id", "client", "head", "samples"))] * 4
                + [("fill", ("owner", "wanted", "requests")), ("work", ("made", "seconds"))]
            )
            column, value = chance.choice(columns), chance.choice(PLAIN)
            with suppress(sqlite3.IntegrityError):  # a number must be one
                database.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
    return which


@pytest.mark.parametrize("cases", [90, pytest.param(300, marks=pytest.mark.slow)])
def test_hostile_values_with_right_hashes_end_in_one_clear_error(tmp_path, cases):
    chance = random.Random(0)
    outcomes, careless = Counter(), Counter()
    _, images = filled(tmp_path / "good")
    whole = Plan.of(LabelCounts([[1, 1, 1]], clients=["a"]), [[5, 0, 4]], "all")
    for case in range(cases):
        shutil.copytree(tmp_path / "good", tmp_path / str(case))
        cache = Cache(tmp_path / str(case), Grey(), 3)
        # The key of a fill for client "a" alone with this wish.
        wishes = json.dumps([{"a": [5, 0, 4]}, 64])
        which = change_one_place(cache, hashlib.sha256(wishes.encode()).hexdigest(), chance)
        try:
            careless_reading(cache)
        except InputError:
            pass
        except Exception as error:
            careless[type(error).__name__] += 1
        assert all(problem for problem in verify(cache.folder))
        assert summary(cache.folder).size > 0
        for read in (lambda c=cache: Cache.at(c.folder), lambda c=cache: c.samples("a", WANTED)):
            try:
                read()
                outcomes[which, "read"] += 1
            except InputError as error:
                assert len(str(error).splitlines()) == 1
                outcomes[which, "refused"] += 1
        try:
            again = client_samples("a", [5, 0, 4], Grey(), cache)[0]
        except InputError as error:
            # Well-formed, and of another cache: nothing to mend.
            assert "holds samples of another" in str(error)
            outcomes[which, "of another"] += 1
        else:
            np.testing.assert_array_equal(again[[0, 1, 2, 5, 6, 7, 8], 1:], images[:, 1:])
            # What it says of other clients is mended by whoever fills the whole cache.
            assert fill(whole, Grey(), cache).generated == 0
            assert list(verify(cache.folder)) == []
            outcomes[which, "mended"] += 1
    assert sum(careless.values()) > cases / 6
    assert len(careless) >= 4  # KeyError, TypeError and the like
    for which in ("about", "block", "head"):
        assert outcomes[which, "refused"] > cases / 15
        assert outcomes[which, "mended"] > cases / 15


# Writing elsewhere


@pytest.mark.parametrize("content", ["secret", "cache"])
def test_a_second_name_of_somebodys_file_is_not_written_to(tmp_path, content):
    """A hard link in the place of the samples: mending would change what it leads to."""
    cache, _ = filled(tmp_path / "cache")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret" * 100 if content == "secret" else cache.file.read_bytes())
    before = secret.read_bytes()
    plan = Plan.of(LabelCounts([[1, 1, 1]], ["a"]), [[5, 5, 5]], "by hand")
    for link, why in ((os.link, r"samples\.sqlite has 2 names"), (os.symlink, "is a link")):
        cache.file.unlink()
        link(secret, cache.file)
        for again in (
            lambda: fill(plan, Grey(), cache),
            lambda: client_samples("a", [5, 5, 5], Grey(), cache),
        ):
            with pytest.raises(InputError, match=why):
                again()
        assert secret.read_bytes() == before


@pytest.mark.parametrize("which", ["client", "clients", "cache"])
def test_nothing_is_written_through_a_linked_folder(tmp_path, which):
    cache, _ = filled(tmp_path / "cache")
    folder = {"client": cache.client_folder("a"), "clients": cache.folder / "clients",
              "cache": cache.folder}[which]  # fmt: skip
    elsewhere = tmp_path / "elsewhere"
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere, target_is_directory=True)
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="is a link"):
        client_samples("a", [5, 5, 5], Grey(), cache)
    assert before == {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}


def test_files_of_samples_are_their_owners_alone(tmp_path):
    cache, _ = filled(tmp_path / "cache")
    assert stat.S_IMODE(cache.file.stat().st_mode) == 0o600


def test_a_cache_is_listed_while_it_is_filled(tmp_path, monkeypatch):
    """A journal is there when it is looked for, and gone when it is measured."""
    cache, _ = filled(tmp_path / "cache")
    journal, there = cache.folder / "samples.sqlite-journal", Path.is_file

    def ends(path):
        answer = there(path)
        if path == journal:
            path.unlink()
        return answer

    journal.write_bytes(b"")
    monkeypatch.setattr(Path, "is_file", ends)
    assert summary(cache.folder).samples == sum(WANTED)


def test_a_schema_that_is_not_text_is_damage(tmp_path):
    """SQLite repeats names of the file in its message, which Python then cannot decode."""
    cache, _ = filled(tmp_path)
    content = cache.file.read_bytes()
    start = content.index(b"CREATE TABLE block")
    refused = 0
    for place in range(start, start + 40):
        cache.file.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        refused += bool(list(verify(cache.folder)))
        summary(cache.folder)
    assert refused > 10
