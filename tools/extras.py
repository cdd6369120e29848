"""Install each extra of the wheels in an environment of its own, and use what the extra is for.

python tools/extras.py WORK DIST [EXTRA ...]     folders: of environments, of the wheels

Versions are those of constraints.txt. One line per extra: how long installing and trying it took,
and how many megabytes are installed. `core` is the wheel without an extra; `dev` is what CI
installs, and is not tried.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("fedeas", "fedeas-private", "fedeas-lab")


def project(package: str) -> dict[str, Any]:
    """Return what a package says of itself."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


PROJECT = project("fedeas")
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
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
from typing import Any
from PIL import Image
rng = np.random.default_rng(0)
for name in ("dots", "noise"):
    for n in range(40):
        path = Path("images") / name / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (16, 16), dtype=np.uint8)).save(path)
"""
LABEL_SETS = """
from fedeas import LabelSetCounts, plan_label_sets
print(plan_label_sets(LabelSetCounts([[1, 0], [0, 1], [1, 1]], [[90, 10, 30], [5, 70, 9]])))
"""
WORKBOOK = """
import openpyxl
book = openpyxl.Workbook()
for row in (["client", "flu", "cold"], ["north", 120, 15], ["south", 9, 80]):
    book.active.append(row)
book.save("counts.xlsx")
"""
LEDGER = """
import fedeas_private
fedeas_private.Ledger.open("ledger").enter("beta", 0.01, server="north", run="1", key=b"1")
"""
RESAMPLED = (
    "import numpy, fedeas; rows = numpy.random.default_rng(0).normal(size=(60, 2)); "
    "sampler = fedeas.FedEASSampler(generator='smote', random_state=0); "
    "assert len(sampler.fit_resample(rows, [0] * 55 + [1] * 5)[1]) > 60"
)
# What shows that an extra is complete: programs, or commands of fedeas.
TRIALS: dict[str, list[list[str]]] = {
    "core": [["plan", str(COUNTS)]],
    "plot": [["plan", str(COUNTS), "--plot", "plan.png"]],
    "pandas": [["python", "import fedeas; fedeas.LabelCounts([[1, 2]]).to_pandas()"]],
    "polars": [["python", "import fedeas; fedeas.LabelCounts([[1, 2]]).to_polars()"]],
    "excel": [["python", WORKBOOK], ["plan", "counts.xlsx"]],
    "parquet": [["plan", str(COUNTS), "--out", "plan.parquet"]],
    "label-sets": [["python", LABEL_SETS]],
    "data": [["python", "from fedeas.data import load_images; load_images('tiny', 'images')"]],
    "flower": [["python", "from fedeas import Partition; import flwr_datasets"]],
    "torch": [["python", "import fedeas.training.tensors, fedeas.training.models"]],
    "diffusion": [["python", "import fedeas.generators.diffusion, fedeas.generators.train"]],
    "turbo": [["python", "import fedeas.generators.turbo"]],
    "imbalanced": [["python", RESAMPLED]],
    "train": [["python", "import fedeas.flower.rounds, fedeas.flower.client"]],
    "private": [["python", LEDGER], ["ledger", "ledger"]],
    "lab": [["run", "run.toml", "--out", "plain"]],
    "tensorboard": [["run", "run.toml", "--out", "board", "--tensorboard"]],
    "ray": [["python", "import fedeas.flower.rounds, ray"]],
    "demo": [["demo", "--out", "demo"]],
    "quickstart": [["init", "quickstart"], ["python", "import flwr.simulation, flwr_datasets"]],
    "all": [["run", "run.toml", "--out", "plain"], ["report", "plain", "--out", "r"]],
}
WITH_IMAGES = {"pillow", "pyarrow"}  # what the trials on images need


def main(work: Path, wheels: Path, extras: list[str]) -> dict[str, dict[str, float]]:
    """Try the extras, all of them unless some are named."""
    unknown = set(extras) - set(TRIALS)
    if unknown:
        sys.exit(f"unknown extra {', '.join(sorted(unknown))}; known: {', '.join(TRIALS)}")
    found = {}
    for extra in extras or TRIALS:
        folder = work / f"env-{extra}"
        begun = time.monotonic()
        install(folder, wheels, extra)
        installed = time.monotonic()
        attempt(folder, extra)
        found[extra] = {
            "install_seconds": round(installed - begun),
            "trial_seconds": round(time.monotonic() - installed, 1),
            "megabytes": megabytes(folder),
        }
        print(f"{extra:<12}", *(f"{key} {value}" for key, value in found[extra].items()), sep="  ")
        shutil.rmtree(folder)
    return found


def packages_of(extra: str) -> set[str]:
    """Return the packages that an extra asks for, through other extras of ours as well.

    >>> sorted(packages_of("torch"))
    ['safetensors', 'torch']
    """
    found: set[str] = set()
    for wish in EXTRAS.get(extra, []):
        found |= _packages(wish)
    return found


def _packages(wish: str) -> set[str]:
    """Return the packages behind a requirement, which may be one of ours with extras."""
    name, listed = re.match(r"([\w.-]+)(?:\[(.*?)\])?", wish).groups()
    if name not in PACKAGES:
        return {name}
    about = project(name)
    wishes = list(about["dependencies"])
    for extra in filter(None, (listed or "").split(",")):
        wishes += about["optional-dependencies"][extra]
    return set().union(*map(_packages, wishes)) if name != "fedeas" or listed else set()


def fresh(folder: Path) -> Path:
    """Make an environment and return its folder of programs."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    return folder / "bin"


def install(folder: Path, wheels: Path, extra: str) -> None:
    """Install the core with an extra into a fresh environment."""
    programs = fresh(folder)
    pins = ROOT / "constraints.txt"
    command = [programs / "python", "-m", "pip", "install", "--quiet"]
    if "torch" in packages_of(extra):  # first, and by its exact version: the build for CPUs
        call([*command, re.search(r"^torch==.*$", pins.read_text(), re.MULTILINE)[0]])
    wanted = "fedeas" if extra == "core" else f"fedeas[{extra}]"
    call([*command, "--constraint", pins, "--find-links", wheels, wanted])


def attempt(folder: Path, extra: str) -> None:
    """Use what an extra is for."""
    programs, place = folder / "bin", folder / "trial"
    place.mkdir()
    (place / "run.toml").write_text(RUN)
    if packages_of(extra) >= WITH_IMAGES:
        call([programs / "python", "-c", IMAGES], place)
    for first, *rest in TRIALS[extra]:
        if first == "python":
            call([programs / "python", "-c", *rest], place)
        else:
            call([programs / "fedeas", first, *rest], place)


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
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:])
