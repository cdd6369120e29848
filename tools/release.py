"""Build the release and try it: wheel and sdist, each extra in an environment of its own.

python tools/release.py WORK [EXTRA ...]     WORK: a folder for builds and environments

Needs `build` and `twine`. The wheel and the sdist are then in WORK/dist. `oldest` is the core with
the oldest versions that pyproject.toml admits, on which the tests of the core are run. The last
line is JSON: what each extra took.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from extras import PROJECT, ROOT, TRIALS, call, fresh
from extras import main as try_extras

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
    return wheel


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
