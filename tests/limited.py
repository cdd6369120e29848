"""Run a snippet in a process of its own that may take only so much memory or write so much."""

import os
import subprocess
import sys

_PRELUDE = """
import resource, sys
from pathlib import Path
import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from fedeas import FedEAS, LabelCounts, Partition, parquet
from fedeas.data import load_images
from fedeas.partition import read_labels
from fedeas.stream import plan_stream

def at_most(megabytes):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20),) * 2)

def write_at_most(kilobytes):
    sys.dont_write_bytecode = True  # half a file of it would break whoever imports that next
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10,) * 2)

Image.init()
argument = sys.argv[1:]
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
    program = _PRELUDE + limit + _ATTEMPT.format(code=code.strip().replace("\n", "\n    "))
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
