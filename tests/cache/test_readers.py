"""Other programs read the folder of a cache as it is, and see each sample once."""

import shutil
import subprocess
import sys

import pandas as pd
import pytest

from fedeas import LabelCounts, Uniform
from fedeas.cache import Cache, writer
from fedeas.cache.fill import fill, fill_by_client
from helpers.noted_generators import Counting

COUNTS = LabelCounts([[30, 0, 2], [5, 5, 5], [0, 0, 40]], clients=["a/b", "c", "d e"])
PLAN = Uniform(total=300).plan(COUNTS)


@pytest.fixture(params=["filled", "killed", "twice", "by client", "compacted"])
def cache(request, tmp_path, monkeypatch) -> Cache:
    """Shards of three batches: after one fill, a fill that was killed, two that met, and others."""
    monkeypatch.setattr(writer, "SHARD_BYTES", 3 * 7 * 16)
    cache = Cache(tmp_path / "cache", Counting(), 3)
    if request.param == "by client":
        fill_by_client(PLAN, Counting(), cache, 7)
        return cache
    fill(PLAN, Counting(), cache, 7)
    shard = min(cache.folder.glob("*.parquet"))
    if request.param == "killed":  # before the shard's entry was written, and half of another's
        (cache.folder / ".fedeas" / "entries" / f"{shard.stem}.json").unlink()
        (cache.folder / f".12345678.{'0' * 64}.parquet").write_bytes(shard.read_bytes()[:99])
    if request.param == "twice":
        other = Cache(tmp_path / "other", Counting(), 3)
        monkeypatch.setattr(writer, "SHARD_BYTES", 5 * 7 * 16)
        fill(PLAN, Counting(), other, 7)
        shutil.copytree(other.folder, cache.folder, dirs_exist_ok=True)
    if request.param == "compacted":
        from fedeas.cache.compact import compact

        assert compact(cache)[0] > compact(cache)[1] == 1
        return cache
    fill(PLAN, Counting(), Cache(tmp_path / "cache", Counting(), 3), 7)
    return cache


def expected() -> pd.DataFrame:
    rows = [
        (name, label, index)
        for name, row in zip(PLAN.client_names, PLAN.samples.tolist(), strict=True)
        for label, number in enumerate(row)
        for index in range(number)
    ]
    return pd.DataFrame(rows, columns=["client", "class", "index"])


def check(cache: Cache, frame: pd.DataFrame) -> None:
    keys = ["client", "class", "index"]
    frame = frame.sort_values(keys, ignore_index=True)
    found = frame[keys].astype({"client": str})
    pd.testing.assert_frame_equal(found, expected().sort_values(keys, ignore_index=True),
                                  check_dtype=False)  # fmt: skip
    for name, row in zip(PLAN.client_names, PLAN.samples.tolist(), strict=True):
        samples, _ = cache.samples(name, row)
        content = b"".join(frame[found["client"] == name]["sample"])
        assert content == samples.tobytes()


def test_pandas(cache):
    check(cache, pd.read_parquet(cache.folder))


def test_datasets(cache, tmp_path):
    from datasets import load_dataset

    rows = load_dataset(
        "parquet", data_dir=str(cache.folder), split="train", cache_dir=str(tmp_path / "hub")
    )
    check(cache, rows.to_pandas())


def test_duckdb(cache):
    import duckdb

    place = f"{cache.folder}/**/*.parquet"
    check(cache, duckdb.sql(f"select * from read_parquet('{place}')").df())


READ = """
import sys
import ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
ray.data.read_parquet(sys.argv[1]).to_pandas().to_pickle(sys.argv[2])
"""


@pytest.mark.slow
def test_ray_data(cache, tmp_path):
    out = tmp_path / "rows"
    subprocess.run([sys.executable, "-W", "ignore", "-c", READ, cache.folder, out], check=True)
    check(cache, pd.read_pickle(out))
