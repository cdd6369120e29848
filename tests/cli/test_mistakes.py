"""What goes wrong at a terminal: one helpful line, no traceback, nothing half-written.

A command is a process of its own, but where only its words matter.
"""

import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from helpers import preloaded
from helpers.image_sets import write_set
from helpers.interrupted import interrupted

CONFIG = """
[data]
name = "fashion_mnist"
pool_per_class = 5000

[partition]
recipe = "dirichlet"
clients = 10
alpha = 0.1

[augment]
policy = "fedeas(beta=4)"
generator = "pool"

[federated]
rounds = 500
"""
SWEEP = """
title = "Two runs"

[base.data]
name = "fashion_mnist"
pool_per_class = 5000

[base.partition]
recipe = "dirichlet"
clients = 10
alpha = 0.1

[base.augment]
generator = "pool"

[base.federated]
rounds = 500

[[grid]]
name = "both"
augment.policy = ["none", "fedeas(beta=4)"]
"""


@pytest.fixture
def desk(tmp_path, data, monkeypatch):
    """A folder with the files of somebody's work, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(CONFIG)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    (tmp_path / "patients.csv").write_text("hospital,diagnosis\na,flu\na,cold\nb,flu\nb,flu\n")
    (tmp_path / "counts.csv").write_text(
        "client,T - shirt / top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot\n"
        "a,900,0,0,9,0,0,0,0,0,0\nb,0,700,20,0,0,0,0,0,0,5\n"
    )
    return tmp_path


def files(folder):
    """Every file and folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def check_one_line(code, stderr, *words):
    """The last line says it all; before it only what was understood."""
    said = stderr.splitlines()
    assert code == 2, stderr
    assert "Traceback" not in stderr
    assert said[-1].startswith("fedeas: ")
    assert sum(line.startswith("fedeas: ") for line in said) == 1
    for word in words:
        assert word in said[-1], said[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "cuonts.csv"], ["cannot read cuonts.csv", "check the path"]),
        (["run", "rnu.toml"], ["cannot read rnu.toml", "check the path"]),
        (["report", "rnus"], ["rnus holds no finished runs", "fedeas sweep"]),
        (["fill", "paln.csv", "--generator", "pool(data=cifar10)"], ["cannot read paln.csv"]),
        (["generator", "sample", "diffusion(model=nowhere)"], ["cannot read nowhere"]),
        (["generator", "train", "fashion_mnist", "--folder", "no", "--out", "g"], ["no train set"]),
        (
            [
                *("counts", "patients.csv", "--out", "counts.csv"),
                *("--client", "hospitl", "--label", "diagnosis"),
            ],
            ["'hospitl'", "allowed: hospital, diagnosis"],
        ),
        (["run", "key.toml"], ["no setting 'round'", "did you mean 'rounds'?"]),
        (["run", "many.toml"], ["1,000,000 clients", "at most 10,000 clients"]),
        (["run", "run.toml", "--device", "cuda"], ["'cuda'", "allowed: auto, cpu"]),
        (
            ["generator", "train", "fashion_mnist", "--out", "g", "--device", "cuda:7"],
            ["'cuda:7'", "allowed: auto, cpu"],
        ),
    ],
)
def test_wrong_paths_columns_keys_sizes_and_devices(desk, arguments, words, fedeas):
    (desk / "key.toml").write_text(CONFIG.replace("rounds", "round"))
    (desk / "many.toml").write_text(CONFIG.replace("clients = 10", "clients = 1000000"))
    before = files(desk)
    done = fedeas(*arguments)
    check_one_line(done.code, done.err, *words)
    assert files(desk) == before


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("flwr", ["run", "run.toml"], "train"),
        ("torch", ["run", "run.toml"], "train"),
        ("torch", ["sweep", "sweep.toml"], "train"),
        ("torch", ["demo"], "lab"),
        ("diffusers", ["generator", "train", "fashion_mnist", "--out", "g"], "generate"),
        ("matplotlib", ["plan", "counts.csv", "--plot", "plan.png"], "counts"),
    ],
)
def test_a_missing_extra_is_named(desk, package, arguments, extra):
    """The package is hidden in the command's process, as if it were not installed.

    A process that begins with nothing: what is hidden must not be loaded.
    """
    (desk / "hide").mkdir()
    (desk / "hide" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {package!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    before = files(desk)
    path = os.pathsep.join([str(desk / "hide"), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fedeas", *arguments],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    check_one_line(done.returncode, done.stderr, f'[{extra}]"')
    assert files(desk) == before


def test_a_missing_backend_is_named(desk, monkeypatch, fedeas):
    monkeypatch.setitem(sys.modules, "ray", None)
    before = files(desk)
    done = fedeas("run", "run.toml", "--backend", "ray")
    check_one_line(done.code, done.err, "[train]")
    assert files(desk) == before


def test_a_cache_of_another_generator_is_not_used(desk, fedeas):
    """Somebody moves a cache to where another generator's would be."""
    fedeas("plan", "counts.csv", "--beta", 4, "--out", "plan.json")
    folders = {}
    for seed in (0, 1):
        done = fedeas(
            "fill",
            "plan.json",
            "--generator",
            f"pool(data=fashion_mnist, seed={seed})",
            "--json",
            "--cache",
            "cache",
        )
        folders[seed] = Path(json.loads(done.out)["cache"])
    assert folders[0] != folders[1]
    shutil.rmtree(folders[1])
    folders[0].rename(folders[1])
    before = files(desk)
    done = fedeas(
        "fill", "plan.json", "--generator", "pool(data=fashion_mnist, seed=1)", "--cache", "cache"
    )
    check_one_line(
        done.code,
        done.err,
        str(folders[1]),
        "samples of another generator",
        "move it back",
    )
    assert files(desk) == before


@contextmanager
def hub(folder, share):
    """A hub on this machine, whose downloads break off after a share of each file."""
    commit = "a" * 40
    known = {f"data/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.parquet"))}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def answer(self, body):
            path = self.path.split("?")[0]
            name = next((name for name in known if path.endswith(name)), None)
            if name is not None:
                content, part = known[name], share
                tag = hashlib.sha256(content).hexdigest()
                headers = {"ETag": f'"{tag}"', "X-Repo-Commit": commit}
            else:
                listing = [
                    {"type": "file", "path": name, "size": len(held), "oid": "b" * 40}
                    for name, held in known.items()
                ]
                about = {
                    "id": "some/set",
                    "sha": commit,
                    "siblings": [{"rfilename": name} for name in known],
                }
                content = json.dumps(listing if "/tree/" in path else about).encode()
                headers, part = {"Content-Type": "application/json"}, 1.0
            self.send_response(200)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content[: int(part * len(content))])
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_an_interrupted_download(desk, tmp_path_factory):
    """Says so; the store of decoded data is left alone; called again, it is fetched whole."""
    source = tmp_path_factory.mktemp("hub")
    store = tmp_path_factory.mktemp("store")
    noise = np.random.default_rng(0).integers(0, 256, (450, 8, 8), dtype=np.uint8)
    write_set(source, list(noise[:400]), list(noise[400:]))
    config = CONFIG.replace('"fashion_mnist"', '"some/set"').replace("5000", "20")
    config = config.replace("rounds = 500", "rounds = 1").replace("clients = 10", "clients = 2")
    (desk / "hub.toml").write_text(config)
    before = files(desk)
    environment = {
        "FEDEAS_STORE": str(store),
        "HF_HOME": str(tmp_path_factory.mktemp("hf")),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    with hub(source, share=0.5) as address:
        done = preloaded.call(
            ["run", "hub.toml"], environment=environment | {"HF_ENDPOINT": address}
        )
    check_one_line(done.returncode, done.stderr, "some/set", "run it again")
    assert files(desk) == before
    assert not list(store.rglob("*"))
    with hub(source, share=1.0) as address:
        done = preloaded.call(
            ["run", "hub.toml"], environment=environment | {"HF_ENDPOINT": address}
        )
    assert done.returncode == 0, done.stderr


def test_half_of_a_set_is_not_taken_for_all_of_it(desk, data, fedeas):
    """One of two files, as a download that broke off between files leaves them."""
    (desk / "part").mkdir()
    test = next((data / "fashion_mnist").rglob("test-*.parquet"))
    shutil.copy(test, desk / "part" / "train-00000-of-00002.parquet")
    shutil.copy(test, desk / "part" / "test-00000-of-00001.parquet")
    done = fedeas("generator", "train", "fashion_mnist", "--folder", "part", "--out", "g")
    check_one_line(done.code, done.err, "files are missing in", "2 of them")


@contextmanager
def as_others():
    """Root may write anywhere: without this right even root keeps to what a folder allows."""
    if os.geteuid() != 0:
        yield
        return
    libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted, inherited, and once more
    libc.capget(header, rights)
    own = rights[0]
    rights[0] &= ~(1 << 1)  # CAP_DAC_OVERRIDE
    assert libc.capset(header, rights) == 0
    try:
        yield
    finally:
        rights[0] = own
        assert libc.capset(header, rights) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "../counts.csv", "--out", "plan.json"],
        ["partition", "balanced:10x100", "--clients", "5", "--alpha", "1", "--out", "clients.npz"],
        ["run", "../run.toml"],
        ["fill", "../plan.json", "--generator", "pool(data=fashion_mnist)", "--cache", "cache"],
        ["generator", "train", "fashion_mnist", "--out", "g"],
        *(
            pytest.param(arguments, marks=pytest.mark.slow)
            for arguments in (
                ["sweep", "../sweep.toml"],
                ["demo"],
                ["generator", "sample", "diffusion(model=fashion_mnist)", "--out", "g.png"],
            )
        ),
    ],
    ids=lambda arguments: "-".join(arguments[:2]).replace("../", ""),
)
def test_a_folder_that_cannot_be_written_to(desk, arguments, monkeypatch, fedeas):
    """Found at once, not after the work is done."""
    fedeas("plan", "counts.csv", "--beta", 4, "--out", "plan.json")
    closed = desk / "closed"
    closed.mkdir(mode=0o555)
    monkeypatch.chdir(closed)
    before = files(desk)
    begun = time.monotonic()
    with as_others():
        with pytest.raises(PermissionError):
            Path("x").touch()
        done = fedeas(*arguments)
    check_one_line(done.code, done.err, "ermission denied", "choose a folder")
    assert time.monotonic() - begun < 60
    assert files(desk) == before


LONG = [
    ["run", "run.toml"],
    ["sweep", "sweep.toml"],
    ["sweep", "sweep.toml", "--dry-run"],
    pytest.param(
        [
            "fill",
            "plan.json",
            "--generator",
            "diffusion(model=fashion_mnist, steps=200)",
            "--cache",
            "cache",
        ],
        marks=pytest.mark.slow,
    ),
    ["generator", "train", "fashion_mnist", "--out", "g"],
    ["generator", "sample", "diffusion(model=fashion_mnist, steps=200)", "--out", "g.png"],
]
HALF = re.compile(r"^\.[0-9a-f]{8}\.|\.tmp$|\.part$|\.incomplete$")


@pytest.mark.parametrize("arguments", LONG, ids=lambda arguments: "-".join(arguments[:3])[:40])
def test_ctrl_c_in_every_long_command(desk, arguments, tmp_path_factory, fedeas):
    """At a random moment of its work; the word 'stopped', and no file that is not whole."""
    if arguments[0] == "fill":
        fedeas("plan", "counts.csv", "--beta", 40, "--out", "plan.json")
    started, said = interrupted(arguments, desk, tmp_path_factory.mktemp("hook") / "own")
    assert said is not None or arguments == ["report"], "it ended before it was interrupted"
    if said is not None:
        out, err = said
        assert "Traceback" not in err
        # An import that is interrupted in a library's C code ends by the signal: 130 to a shell.
        assert started.returncode in (130, -signal.SIGINT), (out, err)
        assert err.splitlines()[-1] == "stopped"
    with pytest.raises(ProcessLookupError):
        os.killpg(started.pid, 0)  # nothing of it is left
    assert not [path for path in desk.rglob("*") if HALF.search(path.name)]
