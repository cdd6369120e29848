"""Write the real output of every `$ command` into the console blocks of README and docs.

python tools/refresh_docs.py          rewrite
python tools/refresh_docs.py --check  fail when something shown is not what the command gives
python tools/refresh_docs.py --quick  without the blocks below a line `<!-- takes a while -->`
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRESS = re.compile(r"[\w ]+: [\d,]+ of [\d,]+( samples)?(, .*)?$")  # not the same twice
TIMES = re.compile(r"\d+(\.\d+)?s\b|\s+")  # nor are these, and the spaces before them
LONG = "<!-- takes a while -->\n"
BLOCK = re.compile(r"(?P<long>" + LONG + r")?```console\n\$ (?P<command>[^\n]+)\n.*?```", re.DOTALL)


def output_of(command: str, folder: str) -> str:
    """Run a command as a reader would, in an 80-column terminal, and return what it prints."""
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    lines = (line.rstrip() for line in done.stdout.strip("\n").splitlines())
    return "\n".join(line for line in lines if not PROGRESS.match(line))


def refreshed(text: str, quick: bool = False) -> str:
    """Return a document with every console block run again, in one folder beside ours."""

    def run(block: re.Match[str]) -> str:
        command, long = block["command"], block["long"] or ""
        if quick and long:
            return block[0]
        new = f"{long}```console\n$ {command}\n{output_of(command, folder)}\n```"
        same = long and TIMES.sub(" ", new) == TIMES.sub(" ", block[0])
        return block[0] if same else new

    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "reproduction"):
            (Path(folder) / name).symlink_to(ROOT / name)
        return BLOCK.sub(run, text)


def main(check: bool, quick: bool = False) -> int:
    """Refresh all documents, or tell which are out of date."""
    stale = 0
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        old = document.read_text(encoding="utf-8")
        new = refreshed(old, quick)
        if old != new:
            stale += 1
            if check:
                diff = difflib.unified_diff(
                    old.splitlines(), new.splitlines(), document.name, "now"
                )
                sys.stdout.write("\n".join(diff) + "\n")
            else:
                document.write_text(new, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv, "--quick" in sys.argv))
