"""Build the release and try it: wheel and sdist, each extra in an environment of its own.

python tools/release.py WORK [EXTRA ...]     WORK: a folder for builds and environments

Needs `build`, `twine` and a checkout. The wheel and the sdist are then in WORK/dist; both hold what
git tracks, and nothing else. `oldest` is the core with
the oldest versions that pyproject.toml admits, on which the tests of the core are run. The last
line is JSON: what each extra took.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from extras import PROJECT, ROOT, TRIALS, call, fresh
from extras import main as try_extras

# Of the repository, but not of a release.
UNRELEASED = (".ci/", ".github/", ".dockerignore", ".pre-commit-config.yaml")
APP = "examples/quickstart/"  # in the wheel as well, for `fedeas new`
CORE_TESTS = ["@tests/core.txt", "tests/test_cli.py", "tests/test_stream.py"]


def main(work: Path, extras: list[str]) -> None:
    """Build, check, install, try."""
    work.mkdir(parents=True, exist_ok=True)
    wheel = build(work / "dist")
    wanted = extras or [*TRIALS, "oldest"]
    names = [extra for extra in wanted if extra != "oldest"]
    found = try_extras(work, wheel, names) if names else {}
    if "oldest" in wanted:
        try_oldest(work / "env-oldest", wheel)
    print(json.dumps({"wheel": wheel.name, "extras": found}))


def build(folder: Path) -> Path:
    """Build wheel and sdist, and have twine read them."""
    shutil.rmtree(folder, ignore_errors=True)
    call([sys.executable, "-m", "build", "--outdir", folder, ROOT])
    call([sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()])
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    check_contents(wheel, sdist, set(listing.stdout.decode().split("\n")) - {""})
    return wheel


def check_contents(wheel: Path, sdist: Path, tracked: set[str]) -> None:
    """Stop if a file is missing in a release, or one is in it that git does not track."""
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()} - {"PKG-INFO"}
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    for path, found, wanted in (
        (wheel, in_wheel, package | {f"fedeas/{name}" for name in tracked if name.startswith(APP)}),
        (sdist, in_sdist, {name for name in tracked if not name.startswith(UNRELEASED)}),
    ):
        if found != wanted:
            lacks, has = sorted(wanted - found), sorted(found - wanted)
            sys.exit(f"{path.name} lacks {lacks} and should not have {has}")


def try_oldest(folder: Path, wheel: Path) -> None:
    """Run the tests of the core on the oldest versions that it says it works with."""
    programs = fresh(folder)
    oldest = [re.sub(r">=([\d.]+).*", r"==\1.*", wish) for wish in PROJECT["dependencies"]]
    others = ["pytest", "hypothesis", "matplotlib", "pandas", "pillow", "pyarrow"]
    call([programs / "python", "-m", "pip", "install", "--quiet", wheel, *oldest, *others])
    call([programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE_TESTS], ROOT)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
