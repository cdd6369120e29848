"""Run a snippet in a process of its own that may take only so much memory or write so much.

A server loads the libraries once and forks for each snippet.
"""

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

_PRELUDE = """
import sys
from pathlib import Path
import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from fedeas._internal import arrow
from fedeas import FedEAS, LabelCounts, Partition
from fedeas.data import load_images
from fedeas.data.labels import read_labels
from fedeas.planning.stream import plan_stream

Image.init()
"""
_ATTEMPT = """
try:
    {code}
    print("fine")
except MemoryError:
    print("MemoryError")
except Exception as error:
    print(type(error).__name__, error)
"""


def attempt(code: str, *arguments: object, limit: str = "at_most(400)") -> str:
    """Return 'fine', or the kind of error that the code ends in and what it says."""
    program = limit + _ATTEMPT.format(code=code.strip().replace("\n", "\n    "))
    server = _server()
    with tempfile.TemporaryDirectory() as place:
        job = {
            "program": program,
            "arguments": [str(argument) for argument in arguments],
            "folder": str(Path.cwd()),
            "environment": dict(os.environ),
            "out": f"{place}/out",
            "err": f"{place}/err",
        }
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        exit_code = int(server.stdout.readline())
        assert exit_code == 0, (exit_code, Path(place, "err").read_text()[-2000:])
        return Path(place, "out").read_text().strip()


@cache
def _server() -> subprocess.Popen[str]:
    """Start the server, which ends with its standard input."""
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(lambda: (server.stdin.close(), server.stdout.close(), server.wait(10)))
    return server


def at_most(megabytes: int) -> None:
    """Allow this much more memory than is in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20),) * 2)


def write_at_most(kilobytes: int) -> None:
    """Allow files of this size."""
    sys.dont_write_bytecode = True  # half a file of it would break whoever imports that next
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10,) * 2)


def serve() -> None:
    """Fork for each job, and say with which code it ended."""
    names = {"at_most": at_most, "write_at_most": write_at_most}
    exec(_PRELUDE, names)
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            run(json.loads(line), names)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def run(job: dict, names: dict[str, object]) -> None:
    """Run a snippet and end."""
    signal.alarm(120)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_CREAT | os.O_WRONLY, 0o600), number)
    try:
        exec(job["program"], names | {"argument": job["arguments"]})
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    serve()
