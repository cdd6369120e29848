"""The Flower app of `examples/federation` under NVFlare, compared with our simulation.

    python benchmarks/nvflare_app.py [--python PYTHON | --install] [--sites 3]

1. `examples/nvflare_statistics.py`: NVFlare counts the sites' labels, fedeas reads its JSON.
2. `examples/nvflare_flower.py`: NVFlare's simulator starts a server and the sites; `FlowerRecipe`
   runs a SuperLink in the one and a SuperNode in each of the others. The app is unchanged.
3. The same sites and configuration once more, in one process (`replay.py`).

NVFlare 2.9 starts Flower with options that Flower 1.35 removed, so it needs an environment of its
own with an older Flower: PYTHON is the interpreter there, `--install` makes one for this run. Sites
have some hundred images of Fashion-MNIST (FEDEAS_DATA) and fill up their scarce classes. Prints the
seconds of both; the exit code is 1 when the counts are wrong or the two models differ in a bit. The
last line is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "federation"))

import torch  # noqa: E402
from loopback import Loopback  # noqa: E402
from replay import replay, site_counts  # noqa: E402

from fedeas.countfiles.choices import Options  # noqa: E402
from fedeas.countfiles.people import read_people  # noqa: E402
from fedeas.training.tensors import load_tensors  # noqa: E402

REQUIREMENTS = ["nvflare==2.9.0", "flwr>=1.26,<1.35", "pandas"]
VERSIONS = "import flwr, nvflare; print(flwr.__version__, nvflare.__version__)"
SETTINGS = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # or every run builds an environment
    "FLWR_TELEMETRY_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


def install(folder: Path) -> Path:
    """Make an environment with NVFlare, an older Flower and fedeas; return its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    first = next(line for line in pinned if line.startswith("torch=="))
    pip = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, first], check=True)  # asked for in another way it brings gigabytes
    own = [f"{ROOT / 'packages' / 'fedeas'}[data,torch]", ROOT / "packages" / "fedeas-private"]
    subprocess.run([*pip, *REQUIREMENTS, *own], check=True)
    return python


def versions(python: Path) -> tuple[str, str]:
    """Return the versions of Flower and NVFlare that an interpreter has, or say what it lacks."""
    done = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=False)
    flower, _, nvflare = done.stdout.strip().partition(" ")
    if done.returncode or tuple(map(int, flower.split(".")[:2])) >= (1, 35):
        needs = " ".join(f'"{need}"' for need in REQUIREMENTS)
        lack = f"has Flower {flower}, too new for NVFlare" if flower else "has no NVFlare"
        print(
            f"{python} {lack}: use --install, or make another environment with pip install {needs} "
            '"packages/fedeas[data,torch]" packages/fedeas-private, and name its --python',
            file=sys.stderr,
        )
        raise SystemExit(2)
    return flower, nvflare


def run_job(python: Path, script: str, *arguments: object, **settings: str) -> float:
    """Run an example in NVFlare's environment; return its seconds."""
    environment = {**os.environ, **SETTINGS, **settings}
    environment.pop("PYTHONPATH", None)
    command = [python, ROOT / "examples" / script, *map(str, arguments)]
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
        if done.returncode:
            log.seek(0)
            raise SystemExit(f"{log.read()[-5000:]}\n{script} failed under NVFlare")
    return time.monotonic() - started


def count_labels(python: Path, federation: Loopback) -> bool:
    """Count the sites' labels by NVFlare's statistics; tell whether fedeas reads the right ones."""
    counts = np.array([site_counts(federation, k) for k in range(federation.sites)])
    tables = federation.folder / "tables"
    tables.mkdir()
    for k, row in enumerate(counts):
        labels = np.repeat(np.arange(len(row)), row).tolist()
        lines = "\n".join(["diagnosis", *map(str, labels)])
        (tables / f"site-{k + 1}.csv").write_text(lines + "\n")
    where = federation.folder / "statistics"
    arguments = "--classes", counts.shape[1], "--workspace", where
    run_job(python, "nvflare_statistics.py", tables, *arguments)
    path = where / "labels" / "server" / "simulate_job" / "labels.json"
    read = read_people([path], Options(label="diagnosis"), "counts.csv")
    return bool((read.table.values == counts).all())


def compare(python: Path, folder: Path, sites: int, rounds: int) -> dict[str, object]:
    """Train under NVFlare and in one process; return what came out."""
    federation = Loopback(folder, sites)
    federation.prepare(
        policy="fedeas(beta=5)", rounds=rounds, timeout=300.0,
    )  # fmt: skip
    same_counts = count_labels(python, federation)
    arguments = federation.folder / "run.toml", "--sites", sites, "--workspace", folder / "nvflare"
    configurations = str(federation.folder / "sites")
    seconds = run_job(python, "nvflare_flower.py", *arguments, FEDEAS_SITES=configurations)
    model, _ = load_tensors(federation.out / "model.safetensors")
    started = time.monotonic()
    weights = replay(federation, folder / "replay", {})
    replayed = time.monotonic()
    history = federation.history()
    return {
        "sites": sites, "rounds": len(history),
        "seconds_nvflare": round(seconds, 1),
        "seconds_of_its_rounds": [line["seconds"] for line in history],
        "seconds_simulation": round(replayed - started, 1),
        "accuracy": history[-1]["accuracy"],
        "missing": sum(len(line["missing"]) for line in history),
        "same_counts": same_counts,
        "same_bits": model.keys() == weights.keys()
        and all(torch.equal(model[name], weights[name]) for name in model),
    }  # fmt: skip


def main() -> int:
    """Train twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--install", action="store_true", help="make NVFlare's environment first")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = install(Path(folder) / "env") if options.install else options.python
        flower, nvflare = versions(python)
        sizes = options.sites, options.rounds
        result = compare(python, Path(folder) / "federation", *sizes)
    print("the counts are", "equal" if result["same_counts"] else "different")
    print("the models are", "equal, bit by bit" if result["same_bits"] else "different")
    print(json.dumps({"nvflare": nvflare, "flower": flower, **result}))
    return 0 if result["same_bits"] and result["same_counts"] else 1


if __name__ == "__main__":
    sys.exit(main())
