"""Errors are those that other code expects, and cross processes with all that they say."""

import copy
import errno
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from fedeas import FedEAS, FedeasError, InfeasibleError, InputError, LabelCounts, MissingExtraError
from fedeas._internal.files import read_text, write_json
from fedeas.errors import FileAccessError
from fedeas.partition import IID, Partition
from fedeas.private.secure_sum.messages import RefusedError
from fedeas.train.diffusion.judge import Judge
from fedeas.train.diffusion.sample import Diffusion
from fedeas.train.diffusion.turbo import Turbo
from fedeas.train.tensors import save_tensors
from helpers.limited_process import attempt

MISSING = FileNotFoundError(errno.ENOENT, "whatever the library says")
ERRORS = [
    FedeasError("what", got=[1, {"a": (2.5, None)}], allowed="less", fix="take less"),
    InputError("what", got="x" * 500),
    InputError("what", got=lambda: 0),  # cannot be pickled
    InputError("what", got=Path("x")),
    InfeasibleError("what", fix="ask for less"),
    MissingExtraError("Parquet", "parquet"),
    RefusedError("what"),
    FileAccessError("read", Path("x.csv"), MISSING, "check the path"),
]


def known(error: FedeasError) -> dict[str, object]:
    fields = {k: v for k, v in vars(error).items() if not callable(v)}
    return fields | {n: getattr(error, n, None) for n in ("args", "errno", "strerror", "filename")}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "passed_on", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_errors_survive_copying_and_pickling(error, passed_on):
    again = passed_on(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    before = known(error)
    assert {key: value for key, value in known(again).items() if key in before} == before


def fail(number: int) -> None:
    raise ERRORS[number]


def test_errors_come_back_from_other_processes():
    with ProcessPoolExecutor(1) as pool:
        for number, error in enumerate(ERRORS):
            with pytest.raises(type(error)) as raised:
                pool.submit(fail, number).result()
            assert str(raised.value) == str(error)


def test_errors_are_what_other_code_catches(tmp_path):
    with pytest.raises(ValueError, match="beta out of range"):
        FedEAS(beta=-1)
    with pytest.raises(ImportError, match="pip install"):
        raise MissingExtraError("Parquet", "parquet")
    with pytest.raises(OSError, match="No such file") as missing:
        LabelCounts.load(tmp_path / "absent.csv")
    assert isinstance(missing.value, InputError)
    assert missing.value.errno == errno.ENOENT
    assert missing.value.filename == str(tmp_path / "absent.csv")
    with pytest.raises(OSError, match="cannot write") as unwritable:
        FedEAS().plan([[9, 1], [5, 5]]).save(tmp_path / "no" / "plan.json")
    assert unwritable.value.errno == errno.ENOENT


def test_a_value_that_cannot_be_shown_does_not_hide_the_error():
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    assert str(InputError("not a table", got=deep)) == "not a table; got <list>"
    assert str(InputError("not a count", got=10**5000)) == "not a count; got <int>"
    assert len(pickle.dumps(InputError("not a table", got=deep))) < 1000


@pytest.mark.parametrize(
    "read",
    [
        lambda folder: Diffusion.load(folder / "absent"),
        lambda folder: Turbo(folder, ["a"], (4, 4, 1)),
        lambda folder: Judge.load(folder / "absent"),
        lambda folder: Partition.load(folder / "absent.npz"),
    ],
)
def test_what_is_wrong_with_a_file_is_not_rephrased(tmp_path, read):
    """An `InputError` is a `ValueError`: whoever turns those into another line must let it pass."""
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path)


def test_a_cost_file_that_is_not_there_is_said_to_be(fedeas, tmp_path, paper_csv):
    done = fedeas("plan", paper_csv, "--cost", tmp_path / "absent.json")
    assert done.code == 2
    assert "cannot read" in done.err
    (tmp_path / "cost.json").write_text('{"seconds_per_sample": "free"}')
    assert (
        "is not a file of costs" in fedeas("plan", paper_csv, "--cost", tmp_path / "cost.json").err
    )


def test_a_partition_says_what_is_wrong_with_it(tmp_path):
    IID(clients=2).partition([0, 1, 0, 1]).save(tmp_path / "good.npz")
    content = dict(np.load(tmp_path / "good.npz"))
    np.savez(tmp_path / "twice.npz", **content | {"train": np.array([0, 0, 1, 2])})
    with pytest.raises(InputError, match=r"twice\.npz: .*twice; got 0"):
        Partition.load(tmp_path / "twice.npz")


def test_a_text_that_is_not_utf8_is_said_to_be(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a text file"):
        read_text(tmp_path / "x.txt")


def test_a_failed_write_names_the_file_that_was_asked_for(tmp_path):
    said = attempt(
        "LabelCounts(np.full((9000, 9), 7)).save(argument[0])",
        tmp_path / "counts.csv",
        limit="write_at_most(64)",
    )
    assert said.startswith(
        f"FileAccessError cannot write {tmp_path / 'counts.csv'}: File too large"
    )
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="cannot write"):
        save_tensors(tmp_path / "no" / "x.safetensors", {"a": torch.ones(2)}, {})


@pytest.mark.skipif(os.name != "posix", reason="Windows syncs no folders")
def test_a_file_that_was_written_outlasts_a_power_cut(tmp_path, monkeypatch):
    """Its folder is synced too, after the file has its name."""
    synced, real = [], os.fsync

    def noted(handle):
        synced.append((os.fstat(handle).st_ino, (tmp_path / "x.json").exists()))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    write_json(tmp_path / "x.json", {"a": 1})
    assert (tmp_path.stat().st_ino, True) == synced[-1]
    assert [there for _, there in synced] == [False, True]
