"""Attacks on caches of generated images: each fails here, and works against a careless stand-in."""

import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from counting import Counting
from fedeas import InputError, LabelCounts, augment
from fedeas.cache import Cache, client_samples, spent, verify
from fedeas.cache.shard import SUFFIX, Segment
from fedeas.cache.verify import summary
from fedeas.files import read_json, sealed, write_json

TESTS = Path(__file__).parent
WANTED = [3, 0, 4]


class Grey(Counting):
    """Knows its classes, and draws noise."""

    classes = ("cat", "dog", "bird")


def filled(base: Path) -> tuple[Cache, np.ndarray]:
    """A cache of one client, and its images."""
    cache = Cache(base, Grey.fingerprint, "data")
    return cache, client_samples("a", WANTED, Grey(), cache)[0]


def careless_images(cache: Cache) -> np.ndarray:
    """Read what the manifest lists, as it is: no names, hashes or sizes are checked."""
    own = cache.client("a")
    found = []
    for shard in read_json(own.manifest)["shards"]:
        head, _, pixels = (own.folder / shard["name"]).read_bytes().partition(b"\n")
        found.append(np.frombuffer(pixels, np.uint8).reshape(json.loads(head)["shape"]))
    return np.concatenate(found)


def shard_of(cache: Cache) -> Path:
    (shard,) = cache.client("a").folder.glob(f"*{SUFFIX}")
    return shard


# Many processes at once


def at_once(folder: Path, processes: int, *more: str) -> list[list[str]]:
    """Run first_fill.py: what each process says."""
    command = [sys.executable, TESTS / "first_fill.py", folder, str(processes), "10", *more]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_first_fill_by_twenty_processes_at_once_succeeds(tmp_path):
    """Processes that tidy up what others are about to rename make each other fail."""
    careless = at_once(tmp_path / "careless", 20, "careless")
    assert {how for _, how, _ in careless} <= {"FileAccessError", "FileNotFoundError"}
    assert len(careless) == 20
    alone = Cache(tmp_path / "alone", Counting.fingerprint, "data")
    for client in range(10):
        client_samples(str(client), [5, 7, 3], Counting(), alone, 4)
    for attempt in range(3):
        said = at_once(tmp_path / str(attempt), 20)
        assert Counter(how for _, how, _ in said) == {"done": 20}, said
        assert len({(client, digest) for client, _, digest in said}) == 10
        folder = tmp_path / str(attempt) / alone.folder.name
        assert contents(folder) == contents(alone.folder)


def contents(folder: Path) -> dict[str, bytes]:
    beside = ("lock", spent.FILE)  # what images took is not the same twice
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in beside)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# Files that somebody changed


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)


def whiten(path: Path) -> None:
    head, _, pixels = path.read_bytes().partition(b"\n")
    path.write_bytes(head + b"\n" + b"\xff" * len(pixels))


def flip_and_restore_time(path: Path) -> None:
    info = path.stat()
    flip(path)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@pytest.mark.parametrize("change", [flip, whiten, flip_and_restore_time])
def test_a_changed_shard_is_never_used(change, tmp_path):
    """Also in the process that has read it before, and if its time is put back."""
    cache, images = filled(tmp_path)
    shard = shard_of(cache)
    os.utime(shard, ns=(0, 0))
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    change(shard)
    assert not np.array_equal(careless_images(cache), images)
    with pytest.raises(InputError, match=r"is damaged; run `fedeas fill` or `augment` again"):
        cache.client("a").samples(WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    assert [path.name[9:] for path in (cache.folder / "quarantine").iterdir()] == [shard.name]
    assert list(verify(cache.folder)) == []


def reseal(path: Path, change) -> None:
    """Change what a JSON file says, and give it the right hash."""
    body = read_json(path)
    change(body)
    path.write_text(sealed(body))


def rename(shard: Path, pixels: int, folder: Path | None = None) -> str:
    """Write a shard with other pixels under its own hash; return its name."""
    head, _, old = shard.read_bytes().partition(b"\n")
    content = head + b"\n" + bytes([pixels]) * len(old)
    name = hashlib.sha256(content).hexdigest() + SUFFIX
    ((folder or shard.parent) / name).write_bytes(content)
    return name


@pytest.mark.parametrize("named", ["../../evil.shard", "/evil.shard", "../../{hash}"])
def test_a_manifest_that_names_a_file_elsewhere_is_not_followed(named, tmp_path):
    cache, images = filled(tmp_path)
    evil = rename(shard_of(cache), 7, cache.folder)  # whole, and where ../.. leads to
    (cache.folder / evil).rename(cache.folder / "evil.shard")
    if named.startswith("/"):
        named = str(cache.folder / "evil.shard")
    elif "hash" in named:
        (cache.folder / "evil.shard").rename(cache.folder / evil)
        named = f"../../{evil}"
    manifest = cache.client("a").manifest
    reseal(manifest, lambda body: body["shards"][0].update(name=named))
    assert (careless_images(cache) == 7).all()
    with pytest.raises(InputError, match="not the name of a shard"):
        cache.client("a").samples(WANTED)
    np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
    assert read_json(manifest)["shards"][0]["name"] == shard_of(cache).name


def test_a_manifest_that_promises_other_images_is_not_believed(tmp_path):
    """Neither more images than a shard holds, nor those of another class."""
    cache, images = filled(tmp_path)
    for promised in ([[0, 0, 9], [2, 0, 9]], [[2, 0, 3], [0, 0, 4]], [[0, 0, 3]]):
        manifest = cache.client("a").manifest
        reseal(manifest, lambda body, said=promised: body["shards"][0].update(segments=said))
        wanted = [max([0, *(b for c, _, b in promised if c == label)]) for label in range(3)]
        careless = sum(b - a for s in read_json(manifest)["shards"] for _, a, b in s["segments"])
        assert careless == sum(wanted)  # by its manifest it has all of them
        with pytest.raises(InputError, match="holds other samples; run `fedeas fill`"):
            cache.client("a").samples(wanted)
        np.testing.assert_array_equal(client_samples("a", WANTED, Grey(), cache)[0], images)
        assert list(verify(cache.folder)) == []


def test_a_pipe_named_like_a_shard_makes_nobody_wait(tmp_path):
    cache, images = filled(tmp_path)
    name = "0" * 64 + SUFFIX
    os.mkfifo(cache.client("a").folder / name)
    reader = [sys.executable, "-c", f"open({str(cache.client('a').folder / name)!r}).read()"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(reader, timeout=0.5)
    reseal(cache.client("a").manifest, lambda body: body["shards"][0].update(name=name))
    with pytest.raises(InputError, match="it is not a file"):
        cache.client("a").samples(WANTED)
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


def test_label_counts_cannot_be_recovered_from_the_head_of_a_cache(tmp_path):
    counts = [90, 10, 0]
    made = np.bincount(augmented(tmp_path)[1], minlength=3) - counts
    assert recovered(LabelCounts([counts]).fingerprint, made.tolist()) == [counts]
    (head,) = tmp_path.glob("*/cache.json")
    assert recovered(read_json(head)["data"], made.tolist()) == []
    # The head does not depend on them: other counts, the same file.
    before = head.read_bytes()
    augmented(tmp_path, (7, 50, 20))
    assert list(tmp_path.glob("*/cache.json")) == [head]
    assert head.read_bytes() == before


# JSON with a right hash and wrong content

VALUES = [
    None, True, -1, 0, 3, 1e308, 10**30, 2**63, "x", "", [], {}, [[]], "../../x", ["a"],
    {"a": 1}, "\ud800", "\x1b[2J", [0, 0, 10**30], [0, 5, 2], [True, 0, 1], float("nan"),
]  # fmt: skip


def changed(value, chance: random.Random):
    """Change a random place of a JSON value."""
    if isinstance(value, dict | list) and value and chance.random() < 0.8:
        places = list(value) if isinstance(value, dict) else range(len(value))
        place, what = chance.choice(list(places)), chance.random()
        if what < 0.3:
            value[place] = chance.choice(VALUES)
        elif what < 0.4:
            del value[place]
        elif what < 0.5 and isinstance(value, dict):
            value["more"] = chance.choice(VALUES)
        elif what < 0.5:
            value.append(chance.choice(VALUES))
        else:
            value[place] = changed(value[place], chance)
        return value
    return chance.choice(VALUES)


def careless_reading(cache: Cache) -> None:
    """Read a cache's files as if whoever can seal them is one of us."""
    about = read_json(cache.folder / "cache.json")
    Cache(cache.folder.parent, about["generator"], about["data"], about["seed"])
    content = read_json(cache.client("a").manifest)
    if content.get("client") == "a":
        for shard in content["shards"]:
            for segment in shard["segments"]:
                assert Segment(*segment).size >= 0
                (cache.client("a").folder / shard["name"]).stat()
    for name, segment in read_json(cache.client("a").journal)["requests"]:
        assert name + str(Segment(*segment).size)


def change_one_file(cache: Cache, key: list, chance: random.Random) -> str:
    """Change a JSON file, or the head of a shard, and give it the right hash."""
    which = chance.choice(["cache.json", "manifest", "manifest", "journal", "shard"])
    own = cache.client("a")
    write_json(own.journal, {"key": key, "requests": [["a", [0, 3, 5]]]})
    if which == "shard":
        shard = shard_of(cache)
        head, _, pixels = shard.read_bytes().partition(b"\n")
        content = json.dumps(changed(json.loads(head), chance)).encode() + b"\n" + pixels
        name = hashlib.sha256(content).hexdigest() + SUFFIX
        shard.unlink()
        (shard.parent / name).write_bytes(content)
        reseal(own.manifest, lambda body: body["shards"][0].update(name=name))
    else:
        files = {"manifest": own.manifest, "journal": own.journal}
        path = files.get(which, cache.folder / which)
        path.write_text(sealed(changed(read_json(path), chance)))
    return which


def test_hostile_json_with_a_right_hash_ends_in_one_clear_error(tmp_path):
    chance = random.Random(0)
    outcomes, careless = Counter(), Counter()
    _, images = filled(tmp_path / "good")
    for case in range(300):
        shutil.copytree(tmp_path / "good", tmp_path / str(case))
        cache = Cache(tmp_path / str(case), Grey.fingerprint, "data")
        # The key of a fill for client "a" alone with this wish.
        key = [hashlib.sha256(json.dumps({"a": [5, 0, 4]}).encode()).hexdigest(), 64]
        which = change_one_file(cache, key, chance)
        try:
            careless_reading(cache)
        except InputError:
            pass
        except Exception as error:
            careless[type(error).__name__] += 1
        assert all(problem.what for problem in verify(cache.folder))
        assert summary(cache.folder).size > 0
        for read in (
            lambda c=cache: Cache.at(c.folder),
            lambda c=cache: c.client("a").samples(WANTED),
        ):
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
            if which != "shard":  # a shard with a right hash is a right shard
                np.testing.assert_array_equal(again[[0, 1, 2, 5, 6, 7, 8], 1:], images[:, 1:])
            assert list(verify(cache.folder)) == []
            outcomes[which, "mended"] += 1
    assert sum(careless.values()) > 50
    assert len(careless) >= 4  # KeyError, TypeError and the like
    for which in ("cache.json", "manifest", "shard"):
        assert outcomes[which, "refused"] > 20
        assert outcomes[which, "mended"] > 20
