"""Two runs in one process: each has the bits that it would have alone."""

import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from safetensors.torch import load_file

import fedeas
import fedeas.lab
from fedeas import InputError
from fedeas.generators import Gaussian
from fedeas.lab import resolve
from fedeas.lab.config import Augment, PartitionConfig
from fedeas.train.flower.simulated import open_simulated
from helpers.small_federations import federation
from helpers.table_runs import config


def write_loans(path: Path, seed: int, flipped: bool = False) -> Path:
    """Write a table of two columns; flipped ones have as many rows and bytes."""
    rng = random.Random(seed)
    lines = ["income,age,label"]
    for _ in range(90):
        age = rng.randint(20, 70)
        good = (age > 45) != flipped
        lines.append(f"{rng.uniform(1, 9):.3f},{age},{int(good)}")
    path.write_text("\n".join(lines) + "\n")
    return path


ALONE = """
import json, sys
from pathlib import Path
from helpers.table_runs import config
import fedeas.lab
for data, seed, clients, out in json.loads(sys.argv[1]):
    fedeas.lab.run(config(Path(data), seed, clients), out)
"""


def test_two_runs_in_one_process_have_the_bits_of_two_processes(tmp_path):
    """The same folder once more, other clients in it, and a table that was edited in between."""
    table, folder = write_loans(tmp_path / "loans.csv", 0), tmp_path / "run"
    here = []
    for seed, clients in ((1, 3), (2, 3), (2, 4)):
        here.append(fedeas.lab.run(config(table, seed, clients), folder))
        shutil.move(folder, tmp_path / f"here{len(here)}")
    before = shutil.copy(table, tmp_path / "before.csv")
    write_loans(table, 1, flipped=True)
    here.append(fedeas.lab.run(config(table, 2), tmp_path / "here4"))
    alone = [
        (before, 1, 3, "alone1"),
        (before, 2, 3, "alone2"),
        (before, 2, 4, "alone3"),
        (table, 2, 3, "alone4"),
    ]
    runs = [(str(data), *others, str(tmp_path / out)) for data, *others, out in alone]
    subprocess.run(
        [
            sys.executable,
            "-c",
            ALONE,
            json.dumps(runs),
        ],
        check=True,
    )
    for number, result in enumerate(here, start=1):
        fresh = json.loads((tmp_path / f"alone{number}" / "result.json").read_text())["body"]
        assert fresh["experiment"] == result["experiment"]
        weights, saved = (
            load_file(tmp_path / f"{where}{number}" / "checkpoint.safetensors")
            for where in ("here", "alone")
        )
        assert weights.keys() == saved.keys()
        assert all(torch.equal(weights[name], saved[name]) for name in weights)
    assert len({result["experiment"] for result in here}) == 4


def test_a_run_opens_its_data_its_plan_and_its_generator_once(tmp_path, monkeypatch):
    opened = []
    for name in ("open_dataset", "open_generator"):
        original = getattr(resolve, name)

        def count(*given, name=name, original=original):
            opened.append(name)
            return original(*given)

        monkeypatch.setattr(resolve, name, count)
    for name in ("open_dataset", "open_generator", "Plan", "Partition"):
        monkeypatch.setattr(f"fedeas.train.flower.simulated.{name}", None)
    table = write_loans(tmp_path / "loans.csv", 0)
    given = config(table, 1).replace(
        partition=PartitionConfig("dirichlet", clients=3, alpha=0.3, min_samples=1),
        augment=Augment("fedeas(beta=4)", "gaussian", str(tmp_path / "cache")),
    )
    assert fedeas.lab.run(given, tmp_path / "run")["generated"] > 0
    assert opened == ["open_dataset", "open_generator"]


def test_a_generator_that_was_fitted_again_makes_other_samples(tmp_path):
    rows = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    labels = np.repeat([0, 1], 100)
    spec = f"gaussian(model={tmp_path / 'model'})"

    def mean(moved: float) -> float:
        Gaussian.fit(rows + moved, labels, ("a", "b")).save(tmp_path / "model")
        more = fedeas.augment(
            rows[:110], labels=np.array(["a", "b"])[labels[:110]], generator=spec, beta=8,
            cache=tmp_path / "cache", progress=False, client="client",
        )  # fmt: skip
        return float(more[0][110:].mean())

    assert abs(mean(0.0)) < 1
    assert abs(mean(100.0) - 100) < 1


def test_data_or_a_generator_that_changes_under_a_run_is_refused(tmp_path):
    made = federation(tmp_path, policy="fedeas(beta=12)").simulation
    for changed in ({"data_hash": "0" * 64}, {"generator_hash": "another"}):
        context = Context(1, 2, {"partition-id": 0}, RecordDict(), {})
        with pytest.raises(InputError) as refused:
            open_simulated(replace(made, **changed), context).samples("")
        assert refused.value.allowed == next(iter(changed.values()))


def test_a_client_without_samples_is_refused_before_anything_is_made(tmp_path):
    table = write_loans(tmp_path / "loans.csv", 0)
    few = config(table, 3, 12).replace(
        partition=PartitionConfig("dirichlet", clients=12, alpha=0.02, min_samples=0)
    )
    with pytest.raises(InputError) as refused:
        fedeas.lab.run(few, tmp_path / "run")
    assert refused.value.got
    assert "min_samples" in refused.value.fix
    assert not (tmp_path / "run").exists()
