"""A cluster of two nodes on this machine, the cache in an object store, and a node that stops."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import ray
from moto.server import ThreadedMotoServer

from fedeas import LabelCounts, Uniform
from fedeas.cache import Cache, verify
from fedeas.cache.fill import fill
from helpers.cache_contents import rows_of
from helpers.noted_generators import Counting

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
COUNTS = LabelCounts([[30, 0, 2], [5, 5, 5], [0, 0, 40]], clients=["a/b", "c", "d e"])
PLAN = Uniform(total=3000).plan(COUNTS)


def free_port() -> int:
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def node(environment, *options) -> subprocess.Popen:
    """Start a node that ends with its process."""
    command = ["ray", "start", "--block", "--num-cpus=2", "--disable-usage-stats", *options]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def stop(process: subprocess.Popen) -> None:
    """Kill a node and all that it started."""
    if process.poll() is None:
        for one in psutil.Process(process.pid).children(recursive=True):
            one.kill()
        process.kill()
    process.wait(30)


def nodes_alive(environment, address: str) -> int:
    code = f"import ray; ray.init({address!r}, log_to_driver=False); " \
           "print(sum(node['Alive'] for node in ray.nodes()))"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    return int(done.stdout.split()[-1]) if done.returncode == 0 else 0


def test_a_node_that_stops_costs_time_alone(tmp_path, monkeypatch):
    s3 = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    s3.start()
    host, port = s3.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
        "RAY_DISABLE_IMPORT_WARNING": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem().mkdir("bucket")
    environment = dict(os.environ)
    gcs = free_port()
    address = f"{ray.util.get_node_ip_address()}:{gcs}"
    started = [node(environment, "--head", f"--port={gcs}")]
    try:
        time.sleep(5)
        started.append(node(environment, f"--address={address}"))
        deadline = time.monotonic() + 90
        while nodes_alive(environment, address) < 2:
            assert time.monotonic() < deadline, "the second node did not join"
        PLAN.save(tmp_path / "plan.json")
        log = tmp_path / "log"
        command = [
            sys.executable, "-W", "ignore", "-m", "fedeas", "fill", tmp_path / "plan.json",
            "--generator", f"helpers.noted_generators:Counting(log={log}, delay=0.1)",
            "--cache", "s3://bucket/caches", "--batch", "7", "--workers", "4", "--threads", "1",
            "--address", address,
        ]  # fmt: skip
        filling = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        while len(log.read_text().split() if log.exists() else []) < 500:
            assert filling.poll() is None, filling.communicate()[0]
            time.sleep(0.05)
        stop(started[1])
        said = filling.communicate(timeout=300)[0]
        assert filling.returncode == 0, said
    finally:
        for process in reversed(started):
            stop(process)
    straight = Cache(tmp_path / "straight", Counting(), 3)
    fill(PLAN, Counting(), straight, 7, threads=1)
    cache = Cache("s3://bucket/caches", Counting(), 3)
    assert list(verify(cache.storage)) == []
    assert rows_of(cache) == rows_of(straight)
    s3.stop()
