"""Build the release and try it: wheel and sdist, each extra in an environment of its own.

python tools/release.py WORK [EXTRA ...]     WORK: a folder for builds and environments

Needs `build` and `twine`. One JSON line at the end: seconds and installed megabytes by extra.
`oldest` is the core with the oldest versions that pyproject.toml admits, on which the tests of the
core are run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "examples" / "fashion.csv"
RUN = """
[data]
name = "tiny"
folder = "images"
[partition]
recipe = "dirichlet"
clients = 2
alpha = 1.0
[federated]
rounds = 1
"""
IMAGES = """
import numpy as np
from pathlib import Path
from PIL import Image
rng = np.random.default_rng(0)
for name in ("dots", "noise"):
    for n in range(40):
        path = Path("images") / name / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (16, 16), dtype=np.uint8)).save(path)
"""
WORKBOOK = """
import openpyxl
book = openpyxl.Workbook()
for row in (["client", "flu", "cold"], ["north", 120, 15], ["south", 9, 80]):
    book.active.append(row)
book.save("counts.xlsx")
"""
# What shows that an extra is complete: programs, or commands of fedeas.
TRIALS: dict[str, list[list[str]]] = {
    "": [["plan", str(COUNTS)], ["paper", "counts"]],
    "plot": [["plan", str(COUNTS), "--plot", "plan.png"]],
    "parquet": [["plan", str(COUNTS), "--out", "plan.parquet"]],
    "polars": [
        ["python", f"import fedeas; fedeas.LabelCounts.load({str(COUNTS)!r}).to_polars()"],
    ],
    "excel": [["python", WORKBOOK], ["plan", "counts.xlsx"]],
    "data": [["python", "from fedeas.data import load_images; load_images('tiny', 'images')"]],
    "flower": [["python", "from fedeas.partition.flower import *; import flwr_datasets"]],
    "torch": [["python", "import fedeas.tensors, fedeas.training.models"]],
    "diffusion": [["generator", "sample", "diffusion(model=digits, steps=2)", "--each", "1"]],
    "turbo": [["python", "import fedeas.generators.turbo"]],
    "quality": [["python", "import fedeas.generators.quality, torchmetrics"]],
    "train": [["run", "run.toml", "--out", "plain"], ["report", "plain", "--out", "r"]],
    "ray": [["run", "run.toml", "--out", "ray", "--grid", "ray"]],
    "tensorboard": [["run", "run.toml", "--out", "board", "--track", "tensorboard"]],
    "mlflow": [["run", "run.toml", "--out", "flow", "--track", "mlflow"]],
    "demo": [["demo", "--out", "demo"]],
}
NEEDS_PLOT = {"train": "train,plot"}  # a report draws
CORE_TESTS = (
    "blocks", "counts", "figures", "plan", "policies", "select", "skew", "stream", "waterfill",
    "partition", "bad_files", "cli",
)  # fmt: skip


def main(work: Path, extras: list[str]) -> None:
    """Build, check, install, try."""
    work.mkdir(parents=True, exist_ok=True)
    wheel = build(work / "dist")
    found = {}
    for extra in extras or [*TRIALS, "oldest"]:
        begun = time.monotonic()
        folder = work / f"env-{extra or 'core'}"
        size = try_oldest(folder, wheel) if extra == "oldest" else try_extra(folder, wheel, extra)
        found[extra or "core"] = {"seconds": round(time.monotonic() - begun), "megabytes": size}
        print(extra or "core", found[extra or "core"], file=sys.stderr)
        shutil.rmtree(folder)
    print(json.dumps({"wheel": wheel.name, "extras": found}))


def build(folder: Path) -> Path:
    """Build wheel and sdist, and have twine read them."""
    shutil.rmtree(folder, ignore_errors=True)
    call([sys.executable, "-m", "build", "--outdir", folder, ROOT])
    call([sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()])
    (wheel,) = folder.glob("*.whl")
    return wheel


def fresh(folder: Path) -> Path:
    """Make an environment and return its folder of programs."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    return folder / "bin"


def try_extra(folder: Path, wheel: Path, extra: str) -> float:
    """Install the wheel with an extra, and use what the extra is for."""
    programs = fresh(folder)
    pins = (ROOT / "constraints.txt").read_text()
    torch = re.search(r"^torch==.*$", pins, re.MULTILINE)[0]
    wanted = f"{wheel}[{NEEDS_PLOT.get(extra, extra)}]" if extra else str(wheel)
    install = [programs / "python", "-m", "pip", "install", "--quiet"]
    if extra not in ("", "plot", "parquet", "data", "flower"):
        call([*install, torch])  # by its exact version: the build for CPUs
    call([*install, "--constraint", ROOT / "constraints.txt", wanted])
    place = folder / "trial"
    place.mkdir()
    (place / "run.toml").write_text(RUN)
    if extra not in ("", "plot", "parquet", "flower", "torch"):
        call([programs / "python", "-c", IMAGES], place)
    for first, *rest in TRIALS[extra]:
        if first == "python":
            call([programs / "python", "-c", *rest], place)
        else:
            call([programs / "fedeas", first, *rest], place)
    return megabytes(folder)


def try_oldest(folder: Path, wheel: Path) -> float:
    """Run the tests of the core on the oldest versions that it says it works with."""
    programs = fresh(folder)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = [re.sub(r">=([\d.]+).*", r"==\1.*", wish) for wish in project["dependencies"]]
    install = [programs / "python", "-m", "pip", "install", "--quiet"]
    others = ["pytest", "hypothesis", "matplotlib", "pyarrow"]
    call([*install, wheel, *oldest, *others])
    tests = [ROOT / "tests" / f"test_{name}.py" for name in CORE_TESTS]
    present = [path for path in tests if path.exists()]
    quiet = ["-q", "-p", "no:cacheprovider", "-k", "not data_frames and not flwr_datasets"]
    call([programs / "python", "-m", "pytest", *quiet, *present], ROOT)
    return megabytes(folder)


def megabytes(folder: Path) -> float:
    """Return the size of what is installed beside pip and setuptools."""
    packages = next(folder.glob("lib/python*/site-packages"))
    own = (p for p in packages.iterdir() if not re.match("pip|setuptools|pkg_res|_dist", p.name))
    files = (f for part in own for f in [part, *part.rglob("*")] if f.is_file())
    return round(sum(f.stat().st_size for f in files) / 1e6, 1)


def call(command: list[object], folder: Path | None = None) -> None:
    """Run a program; what it says is shown only if it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("FEDEAS_DATA", "PYTHONPATH")}
    if folder is not None:
        environment["FEDEAS_STORE"] = str(folder / "store")
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
