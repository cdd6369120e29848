"""Build the release and try it: three wheels, each extra in an environment of its own.

python tools/release.py WORK [EXTRA ...]     WORK: a folder for builds and environments

Needs `build`, `twine` and a checkout. The wheels are then in WORK/dist and hold what git tracks and
nothing else. `oldest` is the core with
the oldest versions that pyproject.toml admits, on which the tests of the core are run. The last
line is JSON: what each extra took.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from extras import PACKAGES, PROJECT, ROOT, TRIALS, call, fresh
from extras import main as try_extras

APP = "examples/quickstart/"  # in the wheel as well, for `fedeas init`
CORE_TESTS = ["@tests/core.txt", "tests/test_cli.py", "tests/test_stream.py"]


def main(work: Path, extras: list[str]) -> None:
    """Build, check, install, try."""
    work.mkdir(parents=True, exist_ok=True)
    build(work / "dist")
    wanted = extras or [*TRIALS, "oldest"]
    names = [extra for extra in wanted if extra != "oldest"]
    found = try_extras(work, work / "dist", names) if names else {}
    if "oldest" in wanted:
        try_oldest(work / "env-oldest", work / "dist")
    print(json.dumps({"extras": found}))


def build(folder: Path) -> None:
    """Build the wheels and the source archives, and have twine read them."""
    shutil.rmtree(folder, ignore_errors=True)
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    tracked = set(listing.stdout.decode().split("\n")) - {""}
    for package in PACKAGES:
        call(
            [
                sys.executable,
                "-m",
                "build",
                "--wheel",
                "--outdir",
                folder,
                ROOT / "packages" / package,
            ]
        )
        (wheel,) = folder.glob(f"{package.replace('-', '_')}-[0-9]*.whl")
        check_contents(wheel, package, tracked)
    call([sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()])


def check_contents(wheel: Path, package: str, tracked: set[str]) -> None:
    """Stop if a file is missing in a wheel, or one is in it that git does not track."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = f"packages/{package}/src/"
    wanted = {name.removeprefix(source) for name in tracked if name.startswith(source)}
    if package == "fedeas":
        wanted |= {f"fedeas/{name}" for name in tracked if name.startswith(APP)}
    if found != wanted:
        lacks, has = sorted(wanted - found), sorted(found - wanted)
        sys.exit(f"{wheel.name} lacks {lacks} and should not have {has}")


def try_oldest(folder: Path, wheels: Path) -> None:
    """Run the tests of the core on the oldest versions that it says it works with."""
    programs = fresh(folder)
    oldest = [re.sub(r">=([\d.]+).*", r"==\1.*", wish) for wish in PROJECT["dependencies"]]
    others = ["pytest", "hypothesis", "matplotlib", "pandas", "pillow", "pyarrow"]
    call(
        [
            programs / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--find-links",
            wheels,
            "fedeas",
            *oldest,
            *others,
        ]
    )
    call([programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE_TESTS], ROOT)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
