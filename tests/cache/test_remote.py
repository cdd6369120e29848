"""A cache in an object store: a real server of S3 on this machine."""

import os

import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from fedeas import InputError, LabelCounts, Uniform, augment
from fedeas.cache import Cache, fill_by_client, verify, writer
from fedeas.cache.fill import fill
from fedeas.cache.storage import open_storage
from fedeas.cache.store import caches
from helpers.cache_contents import rows_of
from helpers.noted_generators import Counting

COUNTS = LabelCounts([[30, 0, 2], [5, 5, 5], [0, 0, 40]], clients=["a/b", "c", "d e"])
PLAN = Uniform(total=300).plan(COUNTS)


@pytest.fixture(scope="module")
def server():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keep = dict(os.environ)
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "secret-value", "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    yield server
    server.stop()
    os.environ.clear()
    os.environ.update(keep)


@pytest.fixture
def bucket(server, request):
    import s3fs

    name = f"b{abs(hash(request.node.name))}"
    s3fs.S3FileSystem().mkdir(name)
    return f"s3://{name}/caches"


def test_the_same_rows_as_in_a_folder(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "SHARD_BYTES", 3 * 7 * 16)
    local, remote = (Cache(place, Counting(), 3) for place in (tmp_path, bucket))
    for cache in (local, remote):
        assert fill(PLAN, Counting(), cache, 7).generated == PLAN.total
    assert rows_of(remote) == rows_of(local)
    assert list(verify(remote.storage)) == []
    assert fill(PLAN, Counting(), Cache(bucket, Counting(), 3), 7).generated == 0
    assert [each.name for each in caches(bucket)] == [remote.storage.name]


def test_commands(bucket, tmp_path, fedeas):
    PLAN.save(tmp_path / "plan.json")
    spec = "helpers.noted_generators:Counting"
    done = fedeas("fill", tmp_path / "plan.json", "--generator", spec, "--cache", bucket)
    assert f"generated {PLAN.total} samples" in done.out, done.err
    assert "1 cache" in fedeas("cache", "list", bucket, "--check").out
    (cache,) = caches(bucket)
    assert fedeas("cache", "compact", str(cache)).code == 0
    assert "wrote" in fedeas("export", str(cache), "--out", tmp_path / "out").out
    other = Cache(bucket, Counting(), 3, seed=7)
    fill(PLAN, Counting(), other)
    pruned = fedeas("cache", "prune", bucket, "--keep", cache.name, "--yes").out
    assert pruned == f"removed {other.storage}\n"
    assert caches(bucket) == [cache]


def test_a_client_reads_its_samples_without_a_generator(bucket):
    fill_by_client(PLAN, Counting(), Cache(bucket, Counting(), 3))
    labels = np.repeat([0, 2], [30, 2])
    images = np.zeros((32, 4, 4, 1), np.uint8)
    images, labels = augment(
        images, labels=labels, classes=3, client="a/b", plan=PLAN, samples=bucket
    )
    assert np.bincount(np.asarray(labels)[32:], minlength=3).tolist() == PLAN.samples[0].tolist()


def test_what_is_damaged_or_gone_is_named_and_made_again(bucket):
    cache = Cache(bucket, Counting(), 3)
    fill(PLAN, Counting(), cache, 7)
    (entry,) = cache.entries()
    content = bytearray(cache.storage.read(entry.file))
    content[len(content) // 2] ^= 1
    cache.storage.write(entry.file, bytes(content))
    (problem,) = verify(cache.storage, repair=True)
    assert entry.shard in problem
    assert fill(PLAN, Counting(), Cache(bucket, Counting(), 3), 7).generated == PLAN.total


def test_no_secret_is_in_a_message(server):
    with pytest.raises((InputError, OSError)) as refused:
        fill(PLAN, Counting(), Cache("s3://no-such-bucket-here/caches", Counting(), 3), 7)
    assert "secret-value" not in str(refused.value)


def test_an_address_that_nobody_knows_is_one_sentence():
    with pytest.raises(InputError, match="cannot open nosuch://bucket"):
        open_storage("nosuch://bucket/caches").names()
