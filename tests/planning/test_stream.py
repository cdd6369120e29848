import importlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedeas import Cost, FedEAS, FullBalance, InputError, LabelCounts, Plan
from fedeas.counts.parquet import client_count
from fedeas.planning.stream import plan_stream
from helpers.limited_process import attempt


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Counts of 40,000 clients, some empty, in row groups that fit no block."""
    rng = np.random.default_rng(0)
    n = (rng.dirichlet([0.1] * 7, 40_000) * rng.integers(0, 900, (40_000, 1))).astype(np.int32)
    counts = LabelCounts(n, clients=[f"site-{k}" for k in range(len(n))])
    path = tmp_path_factory.mktemp("many") / "counts.parquet"
    columns = {"client": counts.client_names} | {str(c): n[:, c] for c in range(7)}
    pq.write_table(pa.table(columns), path, row_group_size=12_001)
    return path, counts


@pytest.mark.parametrize("policy", [FedEAS(beta=12), FullBalance()])
def test_a_streamed_plan_is_the_plan(many, policy, tmp_path):
    path, counts = many
    done = []
    out = tmp_path / "plan.parquet"
    streamed = plan_stream(path, policy, out, Cost(0.5), lambda now, end: done.append((now, end)))
    plan = policy.plan(counts)
    assert (streamed.total, streamed.real, streamed.negative_gain) == (
        plan.total,
        plan.real,
        plan.negative_gain,
    )
    assert streamed.clients == client_count(path) == counts.K
    assert streamed.empty == len(counts.empty) > 0
    assert streamed.reduction == pytest.approx(plan.reduction, abs=1e-12)
    assert done[-1] == (counts.K, counts.K)
    loaded = Plan.load(out)
    np.testing.assert_array_equal(loaded.samples, plan.samples)
    assert loaded.counts_hash == counts.fingerprint
    assert loaded.client_names == counts.clients
    assert loaded.cost == Cost(0.5)


def test_the_command_streams_large_files(many, fedeas, tmp_path, monkeypatch):
    path, counts = many
    command = importlib.import_module("fedeas.cli.plan")
    monkeypatch.setattr(command, "_STREAM_FROM", counts.K - 1)
    result = fedeas("plan", path, "--beta", 12, "--out", tmp_path / "plan.parquet", "--json")
    assert result.code == 0
    assert f'"total": {FedEAS().plan(counts).total}' in result.out
    assert fedeas("plan", path, "--policy", "uniform", "--total", 5).code == 2
    assert fedeas("plan", path, "--out", tmp_path / "plan.json").code == 2
    text = fedeas("plan", path, "--cost", "1s")
    assert "40,000 clients" in text.out
    assert "clients have no samples and are ignored" in text.err


@pytest.mark.parametrize(
    "table",
    [
        {"a": [1, -1], "b": [1, 1]},
        {"a": [1, None], "b": [1, 1]},
        {"a": [1.5, 2], "b": [1, 1]},
        {"a": [1, 1]},
        {"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())},
        {"a": [0, 0], "b": [0, 0]},
        {"a": [2**60, 0], "b": [0, 0]},
        {"name": ["x", "y"]},
    ],
)
def test_bad_streams_leave_nothing_behind(table, tmp_path):
    path, out = tmp_path / "counts.parquet", tmp_path / "plan.parquet"
    pq.write_table(pa.table(table), path)
    with pytest.raises(InputError):
        plan_stream(path, FedEAS(), out)
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_blamed_on_what_is_written(many, tmp_path):
    path, _ = many
    out = tmp_path / "plan.parquet"
    said = attempt(
        "plan_stream(Path(argument[0]), FedEAS(), Path(argument[1]))",
        path, out, limit="write_at_most(100)",
    )  # fmt: skip
    assert said.startswith(f"FileAccessError cannot write {out}: File too large")
    assert "read" not in said
    assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_source_is_blamed_on_what_is_read(many, tmp_path):
    path, _ = many
    content = bytearray(path.read_bytes())
    content[1000:200_000] = bytes(199_000)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.parquet is not a readable Parquet file"):
        plan_stream(broken, FedEAS(), tmp_path / "plan.parquet")
    assert list(tmp_path.iterdir()) == [broken]


def test_what_a_caller_raises_while_reading_is_left_alone(many):
    path, _ = many

    def stop(now: int, end: int) -> None:
        raise OSError(5, "of the caller")

    with pytest.raises(OSError, match="of the caller") as raised:
        plan_stream(path, FedEAS(), progress=stop)
    assert not isinstance(raised.value, InputError)


def test_the_memory_of_a_stream_does_not_grow_with_its_length(tmp_path):
    """Counts that do not compress: a reader that holds the file would show it."""
    code = (
        "import re, sys; from pathlib import Path; from fedeas import FedEAS;"
        "from fedeas.planning.stream import plan_stream; plan_stream(Path(sys.argv[1]), FedEAS());"
        # ru_maxrss would also count the process that started this one.
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    n = np.random.default_rng(0).integers(0, 10**6, (10, 500_000), dtype=np.int32)
    table = pa.table({str(c): n[c] for c in range(10)})
    peaks = []
    for times in (2, 7):  # 40 and 140 MB
        path = tmp_path / f"{times}.parquet"
        with pq.ParquetWriter(path, table.schema, compression="none") as writer:
            for _ in range(times):
                writer.write_table(table)
        done = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 60


def test_limits_and_qualities_by_name_are_those_of_the_plan(tmp_path):
    """Also where a limit is that of one client, and where names are in another order."""
    counts = LabelCounts([[80, 2], [1, 50], [7, 70]], ["north", "south", "west"], ["a", "b"])
    counts.save(path := tmp_path / "counts.parquet")
    for given in (
        {"limits": {"north": 5}},
        {"limits": {"west": 3, "north": 5}},
        {"limits": [5, 1000, 3]},
        {"quality": {"b": 0.5}},
        {"quality": {"b": 0.5, "a": 0.25}, "target": {"b": 1, "a": 3}},
    ):
        policy = FedEAS(beta=12, **given)
        out = tmp_path / "plan.parquet"
        assert plan_stream(path, policy, out).total == policy.plan(counts).total, given
        np.testing.assert_array_equal(Plan.load(out).samples, policy.plan(counts).samples)
        assert Plan.load(out).settings == policy.plan(counts).settings
    for wrong in ({"limits": {"nowhere": 5}}, {"limits": [1, 2]}, {"quality": {"c": 0.5}}):
        with pytest.raises(InputError):
            plan_stream(path, FedEAS(**wrong))
