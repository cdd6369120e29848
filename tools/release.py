"""Build the release and try it: a wheel, a source archive, each extra in an environment of its own.

python tools/release.py WORK [TRIAL ...]     WORK: a folder for builds and environments

Trials are the extras; `core`, the wheel without one; `oldest`, the core with the oldest versions
that pyproject.toml admits, on which the tests of the core are run; and `checkout`, `git` and
`index`, three ways of installing. What is installed is what constraints.txt pins, through
PIP_CONSTRAINT, and PyTorch first: where there is no GPU, its build for CPUs. The archives are then
in WORK/dist and hold what git tracks and nothing else.
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
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = ROOT / "constraints.txt"
APP = "examples/quickstart/"  # in the wheel as well, for `fedeas init`
CORE_TESTS = ["@tests/core.txt", "tests/cli/test_cli.py", "tests/planning/test_stream.py"]
COUNTS = str(ROOT / "examples" / "fashion.csv")
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
import fedeas.private
fedeas.private.Ledger.open("ledger").enter("beta", 0.01, server="north", run="1", key=b"1")
"""
RESAMPLED = """
import numpy, fedeas
rows = numpy.random.default_rng(0).normal(size=(60, 2))
sampler = fedeas.FedEASSampler(generator="smote", random_state=0)
assert len(sampler.fit_resample(rows, [0] * 55 + [1] * 5)[1]) > 60
"""
# What shows that an extra is complete: programs, or commands of fedeas.
TRIALS: dict[str, list[list[str]]] = {
    "core": [["plan", COUNTS], ["compare", COUNTS]],
    "counts": [
        ["plan", COUNTS, "--plot", "plan.png"],
        ["plan", COUNTS, "--out", "plan.parquet"],
        ["python", "import fedeas; fedeas.LabelCounts([[1, 2]]).to_pandas()"],
        ["python", WORKBOOK],
        ["plan", "counts.xlsx"],
        ["counts", COUNTS, "--out", "counts.csv"],
        ["profile", COUNTS, "--out", "labels.html"],
        ["python", LABEL_SETS],
    ],
    "sampler": [["python", RESAMPLED]],
    "generate": [
        ["python", IMAGES],
        ["python", "from fedeas.data import load_images; load_images('tiny', 'images')"],
        ["python", "import fedeas.train.diffusion.sample, fedeas.train.diffusion.turbo"],
        ["generator", "sample", "diffusion(model=fashion_mnist, steps=2)", "--out", "g.png"],
    ],
    "train": [
        ["python", "import fedeas.train.flower.rounds, fedeas.train.flower.client, ray"],
        ["init", "quickstart"],
    ],
    "private": [["python", LEDGER], ["ledger", "ledger"]],
    "lab": [
        ["python", IMAGES],
        ["run", "run.toml", "--out", "runs/plain", "--tensorboard"],
        ["report", "runs", "--out", "report"],
    ],
    "all": [["python", IMAGES], ["run", "run.toml", "--out", "plain"], ["python", RESAMPLED]],
}


def main(work: Path, wanted: list[str]) -> None:
    """Build, check, install, try."""
    others: dict[str, Callable[[Path, Path], None]] = {
        "oldest": try_oldest, "checkout": try_checkout, "git": try_git, "index": try_index,
    }  # fmt: skip
    if unknown := set(wanted) - {*TRIALS, *others}:
        sys.exit(f"unknown trial {', '.join(unknown)}; known: {', '.join((*TRIALS, *others))}")
    work.mkdir(parents=True, exist_ok=True)
    dist = work / "dist"
    build(dist)
    for name in wanted or [*TRIALS, *others]:
        folder = work / f"env-{name}"
        begun = time.monotonic()
        if name in others:
            others[name](folder, dist)
            found = {}
        else:
            install(folder, name, "--find-links", dist, "fedeas" + bracketed(name))
            found = {"megabytes": megabytes(folder)}
            attempt(folder, name)
        seconds = round(time.monotonic() - begun)
        print(name, json.dumps({"seconds": seconds, **found}), flush=True)
        shutil.rmtree(folder)


def build(folder: Path) -> None:
    """Build the wheel and the source archive, and have twine read them."""
    shutil.rmtree(folder, ignore_errors=True)
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    tracked = set(listing.stdout.decode().split("\n")) - {""}
    call([sys.executable, "-m", "build", "--outdir", folder, ROOT])
    (wheel,) = folder.glob("*.whl")
    check_contents(wheel, tracked)
    call([sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()])


def check_contents(wheel: Path, tracked: set[str]) -> None:
    """Stop if a file is missing in a wheel, or one is in it that git does not track."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    wanted |= {f"fedeas/{name}" for name in tracked if name.startswith(APP)}
    if found != wanted:
        lacks, has = sorted(wanted - found), sorted(found - wanted)
        sys.exit(f"{wheel.name} lacks {lacks} and should not have {has}")


def bracketed(extra: str) -> str:
    """Return an extra as a requirement ends.

    >>> bracketed("train"), bracketed("core")
    ('[train]', '')
    """
    return "" if extra == "core" else f"[{extra}]"


def needs(extra: str) -> set[str]:
    """Return the packages that an extra asks for, through other extras as well.

    >>> sorted(needs("sampler"))
    ['imbalanced-learn']
    """
    found: set[str] = set()
    for wish in PROJECT["optional-dependencies"].get(extra, []):
        name, listed = re.match(r"([\w.-]+)(?:\[(.*?)\])?", wish).groups()
        found |= set().union(*map(needs, listed.split(","))) if name == "fedeas" else {name}
    return found


def fresh(folder: Path) -> Path:
    """Make an environment and return its folder of programs."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    return folder / "bin"


def install(folder: Path, extra: str, *arguments: object) -> None:
    """Install into a fresh environment; PyTorch first, by its exact version: the build for CPUs."""
    pip = [fresh(folder) / "python", "-m", "pip", "install", "--quiet"]
    if "torch" in needs(extra):
        call([*pip, re.search(r"^torch==.*$", PINS.read_text(), re.MULTILINE)[0]])
    call([*pip, *arguments], PIP_CONSTRAINT=str(PINS))


def attempt(folder: Path, extra: str) -> None:
    """Use what an extra is for."""
    programs, place = folder / "bin", folder / "trial"
    place.mkdir()
    (place / "run.toml").write_text(RUN)
    for first, *rest in TRIALS[extra]:
        if first == "python":
            call([programs / "python", "-c", *rest], place)
        else:
            call([programs / "fedeas", first, *rest], place)


def try_checkout(folder: Path, _: Path) -> None:
    """Install everything from the folder of a checkout."""
    install(folder, "all", f"{ROOT}[all]")
    attempt(folder, "all")


def try_git(folder: Path, _: Path) -> None:
    """Install an extra from a Git address; a missing one is then named in the same way."""
    # Older versions of pip take an address without a host for a path.
    place = ROOT.as_uri().replace("file://", "file://localhost")
    install(folder, "counts", f"fedeas[counts] @ git+{place}")
    attempt(folder, "counts")
    done = subprocess.run(
        [folder / "bin" / "python", "-c", "import fedeas; fedeas.FedEASSampler"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if f'"fedeas[sampler] @ git+{place}"' not in done.stderr:
        sys.exit(done.stderr)


def try_index(folder: Path, dist: Path) -> None:
    """Install the planner from a package index, which here is a folder of files."""
    index = folder.with_name("index")
    page = index / "fedeas" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    links = (f'<a href="{path.as_uri()}">{path.name}</a>' for path in dist.iterdir())
    page.write_text("\n".join(links))
    install(folder, "core", "--extra-index-url", index.as_uri(), "fedeas")
    attempt(folder, "core")


def try_oldest(folder: Path, dist: Path) -> None:
    """Run the tests of the core on the oldest versions that it says it works with."""
    programs = fresh(folder)
    oldest = [re.sub(r">=([\d.]+).*", r"==\1.*", wish) for wish in PROJECT["dependencies"]]
    others = ["pytest", "hypothesis", "matplotlib", "pandas", "pillow", "pyarrow", "scipy"]
    pip = [programs / "python", "-m", "pip", "install", "--quiet"]
    call([*pip, "--find-links", dist, "fedeas", *oldest, *others])
    call([programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE_TESTS], ROOT)


def megabytes(folder: Path) -> float:
    """Return the size of what is installed beside pip and setuptools."""
    packages = next(folder.glob("lib/python*/site-packages"))
    own = (p for p in packages.iterdir() if not re.match("pip|setuptools|pkg_res|_dist", p.name))
    files = (f for part in own for f in [part, *part.rglob("*")] if f.is_file())
    return round(sum(f.stat().st_size for f in files) / 1e6, 1)


def call(command: list[object], folder: Path | None = None, **more: str) -> None:
    """Run a program; what it says is shown only if it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("FEDEAS_DATA", "PYTHONPATH")}
    environment |= more
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
