"""Interrupt a command when it is at work, not while it still imports its libraries.

A hook in the command's process leaves a file when it imports a module that the work begins with.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from paths import python_path

FEDEAS = (sys.executable, "-W", "ignore", "-m", "fedeas")
# What a long command imports last before it works.
BEGINS_WITH = {
    "run": "fedeas.flower.rounds",
    "sweep": "fedeas.experiments.runner",
    "demo": "fedeas.experiments.demo",
    "fill": "fedeas.generators.diffusion",
    "generator train": "fedeas.generators.train",
    "generator judge": "fedeas.generators.judge",
    "generator sample": "fedeas.generators.diffusion",
    "generator bench": "fedeas.generators.diffusion",
    "report": "fedeas.report.page",
    "partition": "fedeas.partition.flbench",
    "paper counts": "fedeas.paper.counts",
}
_HOOK = """
import pathlib, sys
class Noticing:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            pathlib.Path({sign!r}).touch()
sys.meta_path.insert(0, Noticing())
"""


def interrupted(arguments: list[str], cwd: Path, hook: Path, patience: float = 120):
    """Start a command, send Ctrl-C some time after its work began; return it and what it said.

    The second result is None where the command ended by itself before that.
    """
    name = " ".join(arguments[:2]) if arguments[0] in ("generator", "paper") else arguments[0]
    hook.mkdir(parents=True)
    sign = hook / "begun"
    (hook / "sitecustomize.py").write_text(
        _HOOK.format(module=BEGINS_WITH[name], sign=str(sign)), encoding="utf-8"
    )
    started = subprocess.Popen(
        [*FEDEAS, *arguments], cwd=cwd, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": python_path(hook)},
    )  # fmt: skip
    deadline = time.monotonic() + patience
    while not sign.exists() and started.poll() is None:
        assert time.monotonic() < deadline, f"{name} did not begin"
        time.sleep(0.02)
    time.sleep(random.Random(" ".join(arguments)).uniform(0.0, 2.0))
    if started.poll() is not None:
        out, err = started.communicate()
        assert started.returncode == 0, (name, out, err)
        return started, None
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=60)
    return started, (out, err)
