"""Commands as processes of their own, without the seconds that their libraries take to load.

A server loads torch and Flower once, then forks for each command. What it forks is as good as
`python -m fedeas`: it has its own session, folder, environment and output, it ends as any program
does, and all of fedeas is still to be imported.

python preloaded.py LIBRARY ...     reads jobs from standard input, one JSON object per line
"""

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

# `torch._dynamo` is loaded by the first optimizer.
TRAINING = (
    "torch", "torch._dynamo", "safetensors.torch", "flwr.app", "flwr.clientapp", "flwr.serverapp",
    "pyarrow.parquet", "PIL.Image", "typer", "rich.table",
)  # fmt: skip
# These also load huggingface_hub, which reads its environment when it is imported.
DRAWING = (
    *TRAINING, "diffusers.models.unets.unet_2d", "diffusers.schedulers.scheduling_ddim",
    "diffusers.schedulers.scheduling_ddpm", "diffusers.training_utils", "accelerate",
    "diffusers.schedulers.scheduling_dpmsolver_multistep",
)  # fmt: skip


class Command:
    """A command that was started, much like `subprocess.Popen`."""

    def __init__(self, place: Path, arguments: list[str]) -> None:
        self.args, self._place = arguments, place
        self.returncode: int | None = None
        self.pid = int(self._read_when_there("pid", 120))

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal; None while it runs."""
        if self.returncode is None and (self._place / "status").exists():
            self.returncode = int((self._place / "status").read_text())
        return self.returncode

    def wait(self, timeout: float = 300) -> int:
        """Wait for the end."""
        self._read_when_there("status", timeout)
        return self.poll()

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Wait for the end, and return what was printed."""
        self.wait(timeout)
        return (self._place / "out").read_text(), (self._place / "err").read_text()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def _read_when_there(self, name: str, timeout: float) -> str:
        until = time.monotonic() + timeout
        while not (self._place / name).exists():
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return (self._place / name).read_text()


def start(
    arguments: list[object],
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
    libraries: tuple[str, ...] = TRAINING,
    sign: tuple[str, Path] | None = None,
) -> Command:
    """Start `fedeas ARGUMENTS`.

    `sign` is a module and a file that is made when the command imports the module.
    """
    place = Path(tempfile.mkdtemp(dir=_base()))
    words = [str(part) for part in arguments]
    job = {
        "arguments": words,
        "folder": str(folder or Path.cwd()),
        "environment": {**os.environ, **(environment or {})},
        "place": str(place),
        "sign": sign and [sign[0], str(sign[1])],
    }
    _server(libraries).write(json.dumps(job).encode() + b"\n")
    return Command(place, words)


def call(arguments: list[object], **options: object) -> subprocess.CompletedProcess[str]:
    """Run `fedeas ARGUMENTS` to its end; options are those of `start`."""
    started = start(arguments, **options)
    out, err = started.communicate()
    return subprocess.CompletedProcess(started.args, started.returncode, out, err)


@cache
def _base() -> str:
    """Make the folder of what commands print."""
    base = tempfile.TemporaryDirectory(prefix="warm-")
    atexit.register(base.cleanup)
    return base.name


@cache
def _server(libraries: tuple[str, ...]):
    """Start a server, and return the pipe with which it ends."""
    command = [sys.executable, "-W", "ignore", __file__, *libraries]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
    atexit.register(lambda: (process.stdin.close(), process.wait(10)))
    return process.stdin


def serve(libraries: list[str]) -> None:
    """Fork for each job; in the command's process this raises SystemExit."""
    for name in libraries:
        with suppress(ImportError):  # where the core is tested alone
            import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    for line in iter(sys.stdin.readline, ""):
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            job = json.loads(line)
            place = Path(job["place"])
            command = os.fork()
            if command == 0:
                return run_command(job, place)
            leave(place / "pid", command)
            _, status = os.waitpid(command, 0)
            leave(place / "status", os.waitstatus_to_exitcode(status))
            os._exit(0)
    return None


def leave(path: Path, number: int) -> None:
    """Write a file that is never seen half written."""
    part = path.with_suffix(".part")
    part.write_text(str(number))
    part.rename(path)


def run_command(job: dict, place: Path) -> None:
    """Become the command."""
    os.setsid()
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for number, (name, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (place / "out", os.O_CREAT | os.O_WRONLY),
         (place / "err", os.O_CREAT | os.O_WRONLY)]
    ):  # fmt: skip
        os.dup2(os.open(name, flags, 0o600), number)
    sys.stdin = open(0)  # noqa: SIM115 - for as long as the command runs
    warnings.simplefilter("ignore")
    sys.path[:1] = ["", *job["environment"].get("PYTHONPATH", "").split(os.pathsep)]
    if job["sign"]:
        sys.meta_path.insert(0, Noticing(*job["sign"]))
    sys.argv = ["fedeas", *job["arguments"]]
    runpy.run_module("fedeas", run_name="__main__", alter_sys=True)


class Noticing:
    """Leaves a file when a module is imported."""

    def __init__(self, module: str, sign: str) -> None:
        self._module, self._sign = module, Path(sign)

    def find_spec(self, name, path=None, target=None):
        if name == self._module:
            self._sign.touch()


if __name__ == "__main__":
    serve(sys.argv[1:])
