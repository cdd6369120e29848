"""Every command's help has an example, and the example runs."""

import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from fedeas.cli import app

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(r"Example: `fedeas (.+?)`", re.DOTALL)
LONG = ("run", "demo", "generator train", "generator judge", "sweep")
PATIENCE = 25  # seconds, after which a long one is stopped


def commands():
    """Every command with its function."""

    def own(group, above=""):
        for info in group.registered_commands:
            yield above + (info.name or info.callback.__name__), info.callback

    yield from own(app)
    for group in app.registered_groups:
        inner = group.typer_instance
        yield from own(inner, f"{group.name} ")
        if inner.registered_callback is not None:  # `fedeas paper` alone is a command too
            yield group.name, inner.registered_callback.callback


def examples():
    found = {}
    for name, function in commands():
        match = EXAMPLE.search(inspect.getdoc(function))
        assert match, f"{name} shows no example"
        found[name] = " ".join(match[1].split())
        assert found[name].startswith(name)
    return found


def test_every_example_runs(tmp_path, data):
    """In one folder, with the counts of some clients; long ones are stopped when under way."""
    head = (ROOT / "examples" / "fashion.csv").read_text().splitlines()[0]
    (tmp_path / "counts.csv").write_text(f"{head}\na,9,0,0,1,2,0,4,0,0,0\nb,0,3,3,0,0,0,0,2,0,1\n")
    for name in ("examples", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    found = examples()
    assert len(found) >= 18
    order = ["plan", "fill", *sorted(found.keys() - {"plan", "fill"})]
    for name in order:
        if name == "cache prune":  # the name in its example stands for one that there is
            (cache,) = (tmp_path / "cache").iterdir()
            found[name] = found[name].replace("0123456789abcdef", cache.name)
        started = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "fedeas", *shlex.split(found[name])],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, err = started.communicate(timeout=PATIENCE if name in LONG else 300)
        except subprocess.TimeoutExpired:
            assert name in LONG, name
            os.killpg(started.pid, signal.SIGINT)
            out, err = started.communicate(timeout=60)
            assert err.splitlines()[-1] == "stopped", (name, err)
            continue
        assert started.returncode == 0, (name, out, err)
