"""Run every block of a page as a newcomer would: in a fresh checkout, in an empty environment.

    python tools/page_blocks.py [PAGE ...] [--first]

A page's `bash` blocks, the commands of its `console` blocks and its Python run in the order of the
page, in one environment that holds only what the page itself has installed by then. So an install
line that fails, a file that is not in the checkout and an extra that no line above has installed
are found. A block below `<!-- not run: REASON -->` is named and left out; `--first` runs the first
block alone. Of this shell's variables a block sees only those of KEPT: where an index is, and in
FEDEAS_DATA data that a page would fetch. Versions are those of constraints.txt. The exit code is 1
when a block fails.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/index.md", "docs/tutorial.md", "docs/howto/flower.md")
KEPT = ("LANG", "TMPDIR", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT",
        "PIP_TRUSTED_HOST", "FEDEAS_DATA")  # fmt: skip
# Flower ends with exit code 0 when every client has failed.
FAILED_CLIENTS = re.compile(r"\b[1-9]\d* failures")
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]*?) -->\n+)?```(?P<kind>\w+)[^\n]*\n(?P<body>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ (.*(?:\n> .*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """What a page shows in one frame: its line, its language, its text, and why it is not run."""

    line: int
    kind: str
    body: str
    why: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that can be run, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, found.start()) + 1, found["kind"], found["body"],
              found["why"] or "")
        for found in BLOCK.finditer(text)
        if found["kind"] in ("bash", "console", "python")
    ]  # fmt: skip


def scripts(block: Block, earlier: str, folder: Path) -> Iterator[list[str]]:
    """Yield the programs that run a block; `earlier` is the Python that the page showed before."""
    if block.kind == "bash":
        yield ["bash", "-euo", "pipefail", "-c", block.body]
    elif block.kind == "console":
        for command in COMMAND.findall(block.body):
            yield ["bash", "-euo", "pipefail", "-c", command.replace("\n> ", "\n")]
    elif ">>>" in block.body:
        path = folder / "page.txt"
        path.write_text(earlier + block.body, encoding="utf-8")
        options = ["-o", "NORMALIZE_WHITESPACE", "-o", "ELLIPSIS"]
        yield ["python", "-m", "doctest", *options, str(path)]
    else:
        yield ["python", "-c", block.body]


def run_page(page: str, folder: Path, first: bool) -> bool:
    """Run the blocks of a page in a folder of its own; tell whether all of them work."""
    checkout = copy_checkout(folder / "checkout")
    venv.create(folder / "env", with_pip=True)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {
        "PATH": f"{folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder), "FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")),
    }  # fmt: skip
    good, earlier = True, ""
    try:
        for block in blocks_of(page)[: 1 if first else None]:
            what = f"{page}:{block.line}"
            if block.why:
                print(f"not run  {what}: {block.why}", flush=True)
                continue
            started = time.monotonic()
            for script in scripts(block, earlier, folder):
                done = subprocess.run(
                    script, cwd=checkout, env=environment, text=True, check=False,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
                works = done.returncode == 0 and not FAILED_CLIENTS.search(done.stdout)
                verdict = "ok      " if works else "FAILED  "
                print(f"{verdict} {what} ({time.monotonic() - started:.1f} s)", flush=True)
                if not works:
                    print(done.stdout[-3000:])
                    good = False
                    break
            if block.kind == "python" and ">>>" in block.body:
                earlier += block.body
    finally:
        stop_flower(folder / "flwr")
    return good


def copy_checkout(folder: Path) -> Path:
    """Copy what git would check out, with what has been changed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


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
    """Run the pages, and tell whether every block works."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("pages", nargs="*", default=PAGES)
    parser.add_argument("--first", action="store_true", help="the first block of each page alone")
    options = parser.parse_args()
    good = True
    for page in options.pages:
        with tempfile.TemporaryDirectory() as name:
            good &= run_page(page, Path(name), options.first)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
