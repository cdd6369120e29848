"""Interrupt a command when it is at work, not while it still imports its libraries.

A hook in the command's process leaves a file when it imports a module that the work begins with.
"""

import os
import random
import signal
import time
from pathlib import Path

from helpers import preloaded

# What a long command imports last before it works.
BEGINS_WITH = {
    "run": "fedeas.train.flower.rounds",
    "sweep": "fedeas.lab.runner",
    "demo": "fedeas.lab.forest",
    "demo --images": "fedeas.lab.demo",
    "fill": "fedeas.train.diffusion.sample",
    "generator train": "fedeas.train.diffusion.train",
    "generator sample": "fedeas.train.diffusion.sample",
    "generator private": "fedeas.private.generator.make",
    "generator federated": "fedeas.train.flower.rounds",
    "generator report": "fedeas.train.diffusion.sample",
    "partition": "fedeas.partition.recipes",
}


def interrupted(arguments: list[str], cwd: Path, hook: Path, patience: float = 120):
    """Start a command, send Ctrl-C some time after its work began; return it and what it said.

    The second result is None where the command ended by itself before that.
    """
    two = arguments[0] == "generator" or "--images" in arguments
    name = " ".join(arguments[:2]) if two else arguments[0]
    hook.mkdir(parents=True)
    module, sign = BEGINS_WITH[name], hook / "begun"
    libraries = () if name == "partition" else preloaded.DRAWING  # one server for all that trains
    started = preloaded.start(arguments, cwd, libraries=libraries, sign=(module, sign))
    deadline = time.monotonic() + patience
    while not sign.exists() and started.poll() is None:
        assert time.monotonic() < deadline, f"{name} did not begin"
        time.sleep(0.02)
    time.sleep(random.Random(" ".join(arguments)).uniform(0.0, 1.0))
    if started.poll() is not None:
        out, err = started.communicate()
        assert started.returncode == 0, (name, out, err)
        return started, None
    os.killpg(started.pid, signal.SIGINT)
    return started, started.communicate(timeout=60)
