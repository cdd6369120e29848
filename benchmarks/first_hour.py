"""The first hour of a stranger, timed: from an empty environment, by the README alone.

    python benchmarks/first_hour.py [--only plan demo flower] [--torch REQUIREMENT]

1. `plan`: install the planner and plan a table of one's own. Target: 60 seconds.
2. `demo`: install what the demo needs and train a comparison on real images. Target: 5 minutes.
3. `flower`: Flower's quick start without and with the two lines. Target: 10 minutes.

Every step has an environment of its own. Its commands are those that README and the page about
Flower apps show; fedeas itself comes from a wheel of this checkout. `--torch` is what to install
before a step that needs torch, since pip would otherwise bring its CUDA build. Times include the
installation. The last line is JSON; the exit code is 1 when a step fails or takes more than twice
its target.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS = {"plan": 60, "demo": 300, "flower": 600}
TABLE = "hospital,healthy,pneumonia,fracture\nnorth,1200,40,0\neast,300,610,25\nsouth,80,0,940\n"


def pinned_torch() -> str:
    """Return the torch that CI uses, or nothing."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("torch==")), "")


def shown(page: str, start: str) -> str:
    """Return the command that a page shows, which begins so; without its comment."""
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith(start):
            return re.sub(r"\s+#.*", "", line)
    raise SystemExit(f"{page} shows no command {start!r}")


def from_wheel(command: str) -> str:
    """Return the command for a folder that is no checkout, where pip finds the wheel.

    >>> from_wheel('pip install packages/fedeas "packages/fedeas-lab[demo]"')
    'pip install fedeas "fedeas-lab[demo]"'
    """
    return command.replace("packages/", "")


def commands(step: str) -> list[str]:
    """Return what a reader types for a step."""
    if step == "plan":
        install = from_wheel(shown("README.md", "pip install packages/fedeas  "))
        return [install, shown("README.md", "fedeas plan counts.csv").split(" --cost")[0]]
    if step == "demo":
        install = shown("README.md", 'pip install packages/fedeas "packages')
        return [from_wheel(install), shown("README.md", "fedeas demo")]
    page = "docs/howto/flower.md"
    run = shown(page, "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION")
    new = shown(page, "fedeas init")
    return [
        from_wheel(shown(page, 'pip install "packages/fedeas[quickstart]')),
        new,
        f"cd quickstart && {run}",
        f"cd quickstart && {shown(page, 'patch')} && {run}",
    ]


def take(step: str, wheels: Path, torch: str) -> dict[str, object]:
    """Do a step in an empty environment; return how long its commands took."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        venv.create(folder / "env", with_pip=True)
        (folder / "counts.csv").write_text(TABLE, encoding="utf-8")
        own = {
            "PATH": f"{folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PIP_FIND_LINKS": " ".join([str(wheels), os.environ.get("PIP_FIND_LINKS", "")]).strip(),
            "FEDEAS_STORE": str(folder / "store"),
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | own
        if torch and step != "plan":
            subprocess.run(["pip", "install", "-q", torch], env=environment, check=True)
        took: dict[str, float] = {}
        said, code = "", 0
        for command in commands(step):
            begun = time.monotonic()
            done = subprocess.run(
                ["bash", "-ec", command], cwd=folder, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            took[command] = round(time.monotonic() - begun, 1)
            print(f"{took[command]:7.1f} s  {command}", flush=True)
            said, code = done.stdout, done.returncode
            if code:
                print(said[-3000:])
                break
            scores = re.findall(r"'accuracy': '?([\d.e+-]+)", said)
            if scores:
                print(f"           accuracy {float(scores[-1]):.1%}", flush=True)
        subprocess.run(["pkill", "-f", f"flower-superlink .*{folder}"], check=False)
    return {"seconds": round(sum(took.values()), 1), "code": code, "commands": took}


def main() -> int:
    """Time the steps, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--torch", default=pinned_torch(), help="installed first, if needed")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as wheels:
        packages = sorted(str(path) for path in (ROOT / "packages").iterdir())
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, *packages]
        subprocess.run(build, check=True)
        for step in options.only:
            print(f"== {step}, target {TARGETS[step]} s", flush=True)
            found[step] = take(step, Path(wheels), options.torch)
    slow = [n for n, f in found.items() if f["code"] or f["seconds"] > 2 * TARGETS[n]]
    within = [n for n, f in found.items() if not f["code"] and f["seconds"] <= TARGETS[n]]
    print(json.dumps({"steps": found, "targets_met": within, "failed": slow}))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
