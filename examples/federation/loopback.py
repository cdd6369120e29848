"""A whole federation on this machine: a SuperLink and its SuperNodes, with TLS and known keys.

    python loopback.py FOLDER [--sites 5] [--rounds 3]      everything, from nothing to a model
    python loopback.py FOLDER prepare|start|run|stop        a step; `run` goes on after a crash

All that it makes is in FOLDER: certificates, keys, the sites' images (from FEDEAS_DATA), logs, the
server's run. `stop` leaves no process behind. Real sites differ in their machines, not in their
commands: see README.md.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.request
from itertools import islice
from pathlib import Path

import numpy as np

from fedeas._internal.files import write_json
from fedeas._internal.seeds import child_rng
from fedeas.data import parquet
from fedeas.data.labels import read_labels
from fedeas.private.flower.site_config import NOISY_SUMS, UPDATES
from fedeas.private.secure_sum.identity import Members, load_identity, make_identity
from fedeas.private.secure_sum.keys import identity_of

APP = Path(__file__).parent
# Noisy sums, and plain training beside them: the server can learn what a site holds.
PLAIN = f"{NOISY_SUMS} {UPDATES}"
SIZES = (240, 210, 190, 170, 150)  # of sites, again and again
FAILED_AUTHENTICATION = 305 % 256  # the exit code of a SuperNode whose key is not registered
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # or every run builds an environment
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",  # threads that wait leave their cores to others
}


class Loopback:
    """A federation in a folder."""

    def __init__(self, folder: Path, sites: int = 5) -> None:
        self.folder, self.sites = folder.resolve(), sites
        self.out = self.folder / "server" / "run"
        self._started: list[subprocess.Popen[bytes]] = []

    # What is there before anything starts

    def prepare(
        self, generator: str = "", site: dict[str, object] | None = None, **run: object
    ) -> None:
        """Make certificates, keys, the sites' images and configurations.

        `site` changes what the owners of all sites say, everything else the run's configuration.
        """
        for name in ("certificates", "keys", "logs", "pids", "sites", "tmp", "flwr", "server"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.make_certificates(self.folder / "certificates")
        classes = self.share_out()
        pool = f"pool(data=spare, folder={self.folder / 'spare'}, pool_per_class=20)"
        members = self.make_members()
        for k in range(self.sites):
            self.make_key(f"site-{k}")
            own = self.folder / "sites" / str(k)
            self.write_toml(
                self.folder / "sites" / f"{k}.toml",
                {
                    "partition-id": k, "classes": ", ".join(classes),
                    "data": str(own / "data"), "state": str(own / "state"),
                    "cache": str(own / "cache"), "generator": generator or pool, "device": "cpu",
                    **({
                        "members": members, "identity-key": self.identity(k), "allow": PLAIN
                    } if members else {}),
                    **(site or {}),
                },
            )  # fmt: skip
        usual = {"rounds": 3, "epochs": 2, "batch": 32, "learning_rate": 0.1, "device": "cpu"}
        test = str(self.folder / "server" / "test")
        own = {"test_data": test, "classes": ", ".join(classes), "sites": self.sites}
        own["members"] = members
        self.configure(**{**usual, **own, **run})
        ports = free_ports(1 + self.sites)
        write_json(self.folder / "ports.json", ports)
        self.write_toml(
            self.folder / "flwr" / "config.toml",
            {
                "superlink": {
                    "default": "loopback",
                    "loopback": {
                        "address": f"127.0.0.1:{ports[0]}",
                        "root-certificates": str(self.folder / "certificates" / "ca.crt"),
                    },
                }
            },
        )

    def configure(self, **changed: object) -> None:
        """Change the configuration of the run."""
        path = self.folder / "run.toml"
        values = tomllib.loads(path.read_text()) if path.exists() else {}
        values |= {key.replace("_", "-"): value for key, value in changed.items()}
        self.write_toml(path, {**values, "out": str(self.out)})

    def make_certificates(self, folder: Path) -> None:
        """Make a certificate authority and, signed by it, the SuperLink's certificate."""
        folder.mkdir(parents=True, exist_ok=True)
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-nodes"]
        ca, key = folder / "ca.crt", folder / "ca.key"
        openssl(
            "req", "-x509", *curve, "-days", "30", "-keyout", key, "-out", ca,
            "-subj", "/CN=fedeas loopback CA", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        request, extensions = folder / "server.csr", folder / "server.ext"
        openssl(
            "req", *curve, "-keyout", folder / "server.key", "-out", request,
            "-subj", "/CN=localhost",
        )  # fmt: skip
        extensions.write_text(
            "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n"
        )
        openssl(
            "x509", "-req", "-in", request, "-CA", ca, "-CAkey", key, "-CAcreateserial",
            "-days", "30", "-out", folder / "server.pem", "-extfile", extensions,
        )  # fmt: skip

    def make_members(self) -> str:
        """Make every site's identity and the list of them; real sites exchange it themselves."""
        if self.sites < 3:  # there are no secure sums of two
            return ""
        for k in range(self.sites):
            if not Path(self.identity(k)).exists():
                make_identity(self.identity(k))
        keys = {f"site-{k}": load_identity(self.identity(k)) for k in range(self.sites)}
        listed = self.folder / "members.toml"
        listed.write_text(Members.of({n: identity_of(k) for n, k in keys.items()}).to_toml())
        return str(listed)

    def identity(self, k: int) -> str:
        """Return the file of a site's private key for secure sums."""
        return str(self.folder / "keys" / f"site-{k}.identity")

    def make_key(self, name: str) -> Path:
        """Make the key of a SuperNode."""
        key = self.folder / "keys" / name
        if not key.exists():
            command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        return key

    def share_out(self) -> tuple[str, ...]:
        """Give every site some hundred images of Fashion-MNIST, most of them of a few classes."""
        train, test = fashion_mnist()
        # A class is a folder at some sites: its name holds no slash.
        classes = tuple(c.replace("/", "-") for c in read_labels([str(train)]).classes)
        images, labels = first_images(train, 8000)
        free = [np.flatnonzero(labels == c).tolist() for c in range(len(classes))]
        for k in range(self.sites):
            rng = child_rng(42, "loopback", k)
            shares = rng.dirichlet(np.full(len(classes), 0.3))
            counts = rng.multinomial(SIZES[k % len(SIZES)], shares)
            chosen = [free[c].pop() for c, n in enumerate(counts) for _ in range(n)]
            self.write_site(k, [images[i] for i in chosen], labels[chosen], classes)
        spare = [i for own in free for i in own[:40]]
        for part in ("train", "test"):  # the generator's, of which it holds some out
            write_parquet(self.folder / "spare", part, images, labels, spare, classes)
        images, labels = first_images(test, 500)
        every = range(len(labels))
        write_parquet(self.folder / "server" / "test", "test", images, labels, every, classes)
        return classes

    def write_site(
        self, k: int, images: list[bytes], labels: np.ndarray, classes: tuple[str, ...]
    ) -> None:
        """Write a site's images, as Parquet or, at the last one, as a folder per class."""
        folder = self.folder / "sites" / str(k) / "data"
        if k != self.sites - 1:
            write_parquet(folder, "train", images, labels, range(len(labels)), classes)
            return
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            own = folder / classes[label]
            own.mkdir(parents=True, exist_ok=True)
            (own / f"{i:05}.png").write_bytes(image)

    @staticmethod
    def write_toml(path: Path, values: dict[str, object]) -> None:
        """Write flat values, and tables of them, as TOML; JSON's text and numbers are TOML's."""
        flat, tables = [], []
        for key, value in values.items():
            if not isinstance(value, dict):
                flat.append(f"{key} = {json.dumps(value)}")
                continue
            inner = {k: v for k, v in value.items() if not isinstance(v, dict)}
            tables.append(
                f"[{key}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in inner.items())
            )
            for k, v in value.items():
                if isinstance(v, dict):
                    lines = "\n".join(f"{a} = {json.dumps(b)}" for a, b in v.items())
                    tables.append(f"[{key}.{k}]\n{lines}")
        path.write_text("\n".join([*flat, *tables]) + "\n", encoding="utf-8")

    # Processes

    @property
    def ports(self) -> list[int]:
        """The SuperLink's port, then the SuperNodes'."""
        return json.loads((self.folder / "ports.json").read_text())["body"]

    def environment(self, home: str = "flwr") -> dict[str, str]:
        """Return the environment of a process; each has a folder of its own for Flower's files."""
        (self.folder / home).mkdir(exist_ok=True)
        own = {
            "FLWR_HOME": str(self.folder / home),
            "FEDEAS_STORE": str(self.folder / "store"),
            "TMPDIR": str(self.folder / "tmp"),
        }
        return {**os.environ, **_QUIET, **own}

    def link_command(self) -> list[str]:
        """Return the SuperLink's command."""
        own = self.folder / "certificates"
        return [
            "flower-superlink", "--ssl-ca-certfile", str(own / "ca.crt"),
            "--ssl-certfile", str(own / "server.pem"), "--ssl-keyfile", str(own / "server.key"),
            "--enable-supernode-auth", "--database", str(self.folder / "server" / "state.db"),
            "--host", "127.0.0.1", "--port", str(self.ports[0]),
            "--disable-runtime-dependency-installation",
        ]  # fmt: skip

    def node_command(self, k: int, key: Path | None = None, ca: Path | None = None) -> list[str]:
        """Return a SuperNode's command."""
        return [
            "flower-supernode", "--superlink", f"127.0.0.1:{self.ports[0]}",
            "--root-certificates", str(ca or self.folder / "certificates" / "ca.crt"),
            "--auth-supernode-private-key", str(key or self.folder / "keys" / f"site-{k}"),
            "--node-config", str(self.folder / "sites" / f"{k}.toml"),
            "--host", "127.0.0.1", "--port", str(self.ports[1 + k]),
        ]  # fmt: skip

    def start(self) -> None:
        """Start the SuperLink, register the sites' keys, start the SuperNodes."""
        self.keep("link", self.link_command())
        self.wait_for_link()
        if not (self.folder / "registered").exists():
            for k in range(self.sites):
                self.register(f"site-{k}")
            (self.folder / "registered").touch()
        for k in range(self.sites):
            self.keep(f"site-{k}", self.node_command(k))

    def register(self, key: str) -> None:
        """Let the SuperLink know a SuperNode's key."""
        public = str(self.folder / "keys" / f"{key}.pub")
        self.flwr("supernode", "register", public, "loopback", "--name", key)

    def keep(self, name: str, command: list[str]) -> None:
        """Start a process that is started again whenever it ends, as systemd would."""
        if self.supervisor(name) is not None:
            return
        pids = self.folder / "pids" / name
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, __file__, str(self.folder), "keep", str(pids), *command],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env=self.environment(f"flwr-{name}"), cwd=self.folder,
            )  # fmt: skip
        self._started.append(started)
        pids.with_suffix(".supervisor").write_text(str(started.pid))

    def supervisor(self, name: str) -> int | None:
        """Return the id of the process that keeps another one, if it lives."""
        path = self.folder / "pids" / f"{name}.supervisor"
        if not path.exists():
            return None
        pid = int(path.read_text())
        return pid if session_of(pid) == pid else None

    def pid(self, name: str) -> int:
        """Return the id of a kept process."""
        return int((self.folder / "pids" / name).read_text())

    def children(self, name: str, command: str) -> list[int]:
        """Return the processes below a kept one that run a command."""
        supervisor = self.supervisor(name)
        return [
            pid for pid in all_pids()
            if supervisor is not None and session_of(pid) == supervisor and command in line_of(pid)
        ]  # fmt: skip

    def wait_for_link(self, seconds: float = 120) -> None:
        """Wait until the SuperLink answers."""
        context = ssl.create_default_context(cafile=self.folder / "certificates" / "ca.crt")
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                url = f"https://127.0.0.1:{self.ports[0]}/health"
                with urllib.request.urlopen(url, timeout=5, context=context) as answer:
                    if answer.status == 200:
                        return
            if time.monotonic() > deadline:
                raise SystemExit(f"the SuperLink does not answer: see {self.folder / 'logs'}")
            time.sleep(0.3)

    def flwr(self, *arguments: str, check: bool = True) -> str:
        """Call Flower's command line."""
        done = subprocess.run(
            ["flwr", *arguments], env=self.environment(), capture_output=True, text=True,
            cwd=self.folder, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise SystemExit(f"flwr {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def submit(self) -> subprocess.Popen[bytes]:
        """Submit the run and follow it; submitted again, it goes on after its last round."""
        self.wait_for_link()
        command = ["flwr", "run", str(APP), "loopback", "--run-config", "run.toml", "--stream"]
        with (self.folder / "logs" / "run.log").open("ab") as log:
            return subprocess.Popen(
                command, env=self.environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )  # fmt: skip

    def run(self) -> bool:
        """Submit the run, wait for its end, and tell whether there is a model."""
        model = self.out / "model.safetensors"
        before = model.stat().st_mtime_ns if model.exists() else 0
        self.submit().wait()
        return model.exists() and model.stat().st_mtime_ns != before

    def stop(self, patience: float = 20) -> None:
        """End all processes that were started here, by their ids; some need seconds for it."""
        for pid in self.members():  # one that was stopped hears nothing else
            signal_to(pid, signal.SIGCONT)
        for kept in (self.folder / "pids").glob("*.supervisor"):
            if (pid := self.supervisor(kept.stem)) is not None:
                signal_to(pid, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self.members() and time.monotonic() < deadline:
            time.sleep(0.2)
        for pid in self.members():
            signal_to(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()

    def members(self) -> list[int]:
        """Return the processes whose Flower folder is here, whoever their parents are by now.

        A SuperLink gives those below it a session of their own, and they may outlive it.
        """
        return [pid for pid in all_pids() if self.folder in flower_home(pid).parents]

    def history(self) -> list[dict[str, object]]:
        """Return the lines of the run's log."""
        log = self.out / "log.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def fashion_mnist() -> tuple[Path, Path]:
    """Find the Parquet files of Fashion-MNIST."""
    folder = os.environ.get("FEDEAS_DATA")
    if folder is None:
        raise SystemExit("set FEDEAS_DATA to a folder with fashion_mnist/ in Parquet")
    found = [sorted(Path(folder).glob(f"fashion_mnist/{p}-*.parquet")) for p in ("train", "test")]
    if not all(found):
        raise SystemExit(
            f"{folder} (FEDEAS_DATA) lacks fashion_mnist/train-*.parquet or test-*.parquet"
        )
    return found[0][0], found[1][0]


def keep_running(pid_file: Path, command: list[str]) -> None:
    """Run a command again and again until this process is told to end."""
    child: list[subprocess.Popen[bytes]] = []

    def end(*_: object) -> None:
        for running in child:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        child[:] = [subprocess.Popen(command)]
        pid_file.write_text(str(child[0].pid))
        code = child[0].wait()
        print(f"{command[0]} ended with {code}; again in two seconds", flush=True)
        time.sleep(2)


def all_pids() -> list[int]:
    """Return the ids of all processes."""
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def session_of(pid: int) -> int | None:
    """Return the session of a process that lives, None for others."""
    with contextlib.suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if state not in "ZX":
            return int(fields[2])
    return None


def line_of(pid: int) -> str:
    """Return the command line of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def flower_home(pid: int) -> Path:
    """Return the folder of Flower's files that a process was given, if it lives."""
    with contextlib.suppress(OSError):
        for setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if setting.startswith(b"FLWR_HOME="):
                return Path(os.fsdecode(setting.partition(b"=")[2]))
    return Path()


def last_lines(path: Path, count: int = 15) -> list[str]:
    """Return the end of a log."""
    return path.read_text(errors="replace").splitlines()[-count:] if path.exists() else []


def signal_to(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [own.getsockname()[1] for own in held]
    for own in held:
        own.close()
    return ports


def openssl(*arguments: object) -> None:
    """Call openssl."""
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def first_images(path: Path, count: int) -> tuple[list[bytes], np.ndarray]:
    """Read the first encoded images of a file and their labels."""
    images = list(islice(parquet.encoded_images(path), count))
    return images, read_labels([str(path)]).codes[:count]


def write_parquet(
    folder: Path, part: str, images: list[bytes], labels: np.ndarray, chosen: object, classes: tuple
) -> None:
    """Write some of the images as a data set of the Hugging Face hub has them."""
    folder.mkdir(parents=True, exist_ok=True)
    places = list(chosen)
    parquet.write_images(
        folder / f"{part}-00000-of-00001.parquet",
        [images[i] for i in places], [int(labels[i]) for i in places], classes,
    )  # fmt: skip


def main() -> int:
    """Do one step, or all of them."""
    if sys.argv[2:3] == ["keep"]:
        keep_running(Path(sys.argv[3]), sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "step", nargs="?", default="all", choices=("all", "prepare", "start", "run", "stop")
    )
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--generator", default="", help="default: pool, of images set aside")
    parser.add_argument("--policy", default="fedeas(beta=5)")
    given = parser.parse_args()
    own = Loopback(given.folder, given.sites)
    if given.step in ("all", "prepare"):
        own.prepare(
            given.generator, rounds=given.rounds, policy=given.policy, timeout=300.0,
        )  # fmt: skip
    good = True
    try:
        if given.step in ("all", "start"):
            own.start()
        if given.step in ("all", "run"):
            good = own.run()
            for line in own.history():
                print(json.dumps(line))
            if not good:
                log = own.folder / "logs" / "run.log"
                print(f"the run made no model; the end of {log}:", *last_lines(log), sep="\n")
    finally:
        if given.step in ("all", "stop"):
            own.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
