"""The first hour of a new user, timed: from an empty environment, by the commands of the README.

    python benchmarks/first_hour.py [--only plan profile demo flower] [--skip-install]

| step | what is timed | goal |
|---|---|---|
| plan | `fedeas plan` of one's own table | 60 s |
| profile | the label report of the same table | 60 s |
| demo | a comparison on real images | 5 min |
| flower | Flower's quick start with the two lines | 10 min |

All steps share one new environment; each installs what it adds, which is timed apart. The planner
comes first, so it runs where there is no PyTorch. PyTorch comes by its exact version before what
needs it, as in the Makefile: else pip brings its CUDA build. `--skip-install` uses the environment
of this interpreter. A test checks that README.md and docs/howto/flower.md show the commands. The
last line is JSON; the exit code is 1 when a command fails or a step takes longer than its goal.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = "hospital,healthy,pneumonia,fracture\nnorth,1200,40,0\neast,300,610,25\nsouth,80,0,940\n"
README, FLOWER = "README.md", "docs/howto/flower.md"


@dataclass(frozen=True)
class Step:
    """What a reader types, in a checkout to install and in an empty folder for the rest."""

    goal: int  # seconds, without the installation
    page: str
    install: str
    commands: tuple[str, ...]
    needs_torch: bool = True


STEPS = {
    "plan": Step(
        60, README, "pip install packages/fedeas", ("fedeas plan counts.csv",), needs_torch=False
    ),
    "profile": Step(
        60, README, "pip install packages/fedeas",
        ("fedeas profile counts.csv --out labels.html",), needs_torch=False,
    ),
    "demo": Step(
        300, README, 'pip install packages/fedeas "packages/fedeas-lab[demo]"', ("fedeas demo",)
    ),
    "flower": Step(
        600, FLOWER, 'pip install "packages/fedeas[quickstart]"',
        (
            "fedeas init quickstart && cd quickstart",
            "patch -p1 < fedeas.patch",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run . --stream "
            "--federation-config num-supernodes=10",
        ),
    ),
}  # fmt: skip


def run(command: str, folder: Path, environment: dict[str, str]) -> tuple[float, int]:
    """Type a command; return its seconds and exit code, and print its end if it fails."""
    started = time.monotonic()
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    seconds = round(time.monotonic() - started, 1)
    print(f"{seconds:7.1f} s  {command}".replace("\n", "; "), flush=True)
    if done.returncode:
        print(done.stdout[-3000:])
    return seconds, done.returncode


def take(step: Step, folder: Path, environment: dict[str, str], install: bool) -> dict[str, object]:
    """Do a step in a folder; return how long its parts took."""
    installation, code = 0.0, 0
    if install:
        pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        torch = next(line for line in pinned if line.startswith("torch=="))
        first = [f"pip install {torch}"] if step.needs_torch else []
        for command in (*first, step.install):
            seconds, code = run(command, ROOT, environment)
            installation += seconds
            if code:
                return {"install": installation, "seconds": 0.0, "code": code}
    folder.mkdir()
    (folder / "counts.csv").write_text(TABLE, encoding="utf-8")
    seconds, code = run("\n".join(step.commands), folder, environment)
    return {"install": round(installation, 1), "seconds": seconds, "code": code}


def stop_flower(home: Path) -> None:
    """End the local SuperLink that `flwr run` leaves behind, and what it started."""
    setting = os.fsencode(f"FLWR_HOME={home}")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if setting in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGTERM)
        except OSError:  # it ended, or is another user's
            continue


def main() -> int:
    """Time the steps, print, and tell whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--skip-install", action="store_true", help="use this environment")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = Path(sys.executable).parent
        if not options.skip_install:
            venv.create(folder / "env", with_pip=True)
            programs = folder / "env" / "bin"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "FEDEAS_STORE": str(folder / "store"),
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        try:
            for step in options.only:
                print(f"== {step}, goal {STEPS[step].goal} s", flush=True)
                place = folder / f"at-{step}"
                results[step] = take(STEPS[step], place, environment, not options.skip_install)
        finally:
            stop_flower(folder / "flwr")
    late = [n for n, r in results.items() if r["code"] or r["seconds"] > STEPS[n].goal]
    print(json.dumps({"steps": results, "late_or_failed": late}))
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
