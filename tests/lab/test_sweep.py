"""Sweeps: grids of configs, matched budgets, tables that are never wrong."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedeas import InfeasibleError, InputError
from fedeas._internal.files import locked, read_json, write_json
from fedeas.cache import Cache
from fedeas.cache.store import work
from fedeas.lab import estimate
from fedeas.lab.experiment import run as run_config
from fedeas.lab.results import (
    PLUS_MINUS,
    FinishedRun,
    Mean,
    efficiency,
    export,
    read_export,
    read_index,
    read_result,
    read_runs,
    rounds_to,
    tail,
    write_index,
)
from fedeas.lab.runner import FAILED, FINISHED, finished_result, run_cells
from fedeas.lab.sweep import make_cells, read_sweep, run_specs, with_total
from fedeas.lab.tables import generations, make_tables
from fedeas.lab.versions import versions
from helpers.small_federations import write_shapes

TESTS = Path(__file__).parents[1]
CONFIGS = TESTS.parent / "reproduction" / "configs"
SECONDS = {"generation_seconds", "training_seconds"}
ROUNDS = 6


def sweep_file(folder: Path, **changes: str) -> Path:
    """Write a sweep of seconds: shapes on six clients, two seeds, matched policies."""
    folder.mkdir(parents=True, exist_ok=True)
    write_shapes(folder / "set")
    text = f"""
title = "Shapes"
[base]
device = "cpu"
[base.data]
name = "shapes"
folder = "{folder / "set"}"
[base.partition]
recipe = "dirichlet"
clients = 6
alpha = 0.3
[base.augment]
generator = "helpers.small_federations:Shapes"
cache = "{folder / "cache"}"
batch = 8
[base.federated]
rounds = {ROUNDS}
fraction = 0.5
[base.federated.local]
epochs = 1
batch = 8
[[grid]]
name = "policies"
title = "Policies"
match = "fedeas(beta=4)"
threshold = 0.5
seed = [1, 2]
augment.policy = ["none", "fedeas(beta=4)", "uniform"]
"""
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "shapes.toml"
    path.write_text(text)
    return path


def cells_of(path: Path):
    return make_cells(list(run_specs(read_sweep(path))))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep that has run to its end: its folder of runs and its cells.

    All workers of pytest-xdist share it: whoever comes later finds its runs finished. One run is
    left to a worker of the sweep's own; in this process the others need not load torch again.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "sweep"
    with locked(folder):
        path = folder / "shapes.toml"
        if not path.exists():  # another worker may be reading it
            sweep_file(folder)
        cells = cells_of(path)
        run_here(cells[:-1], folder / "runs")
        runs = run_cells(cells, folder / "runs", jobs=2)
        assert [run.state for run in runs] == [FINISHED] * 6, [run.error for run in runs]
        write_index(folder / "runs", "shapes", "Shapes", [cell.entry for cell in cells])
    return folder / "runs", cells


def run_here(cells, root: Path) -> None:
    """Run cells as the workers of a sweep do, one after the other in this process."""
    for cell in cells:
        run_config(cell.config, root / cell.name)


def copied(finished, folder: Path) -> Path:
    root, _ = finished
    return Path(shutil.copytree(root, folder / "runs"))


def table(root: Path, cells, **options):
    entries = [cell.entry for cell in cells]
    (made,) = make_tables(read_runs(root, entries)[0], entries, **options)
    return made


def without_seconds(made):
    return [replace(row, **dict.fromkeys(SECONDS)) for row in made.rows]


# Grids


def test_lists_combine_and_the_last_varies_fastest(tmp_path):
    runs = list(run_specs(read_sweep(sweep_file(tmp_path))))
    assert [(run.config.seed, run.config.augment.policy) for run in runs] == [
        (seed, policy) for seed in (1, 2) for policy in ("none", "fedeas(beta=4)", "uniform")
    ]


def test_matched_policies_spend_the_reference_total_on_the_same_counts(tmp_path):
    cells = cells_of(sweep_file(tmp_path))
    for seed in (1, 2):
        none, own, uniform = (cell for cell in cells if cell.config.seed == seed)
        assert none.generated == 0
        assert own.generated == uniform.generated > 0
        assert uniform.config.augment.policy == f"uniform(total={own.generated})"
        assert uniform.entry.match == "fedeas(beta=4)"
        assert own.entry.match == ""


def test_a_list_of_references_is_one_more_list(tmp_path):
    path = sweep_file(
        tmp_path,
        **{
            'match = "fedeas(beta=4)"': 'match = ["fedeas(beta=4)", "fedeas(beta=8)"]',
            '["none", "fedeas(beta=4)", "uniform"]': '["match", "uniform", "none"]',
            "seed = [1, 2]": "seed = 1",
        },
    )
    cells = cells_of(path)
    assert [cell.entry.policy for cell in cells] == [
        "fedeas(beta=4)",
        "uniform",
        "none",
        "fedeas(beta=8)",
        "uniform",
    ]  # fmt: skip - without generation there is one run, whatever is matched
    by_total = [cell.generated for cell in cells]
    assert by_total[0] == by_total[1] < by_total[3] == by_total[4]


def test_a_total_is_written_only_where_one_is_missing():
    assert with_total("waterfill", 7) == "waterfill(total=7)"
    assert with_total("uniform(total=3)", 7) == "uniform(total=3)"
    assert with_total("full-balance", 7) == "full-balance"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[base.data]", "[base.dta]", "did you mean 'data'?"),
        (f"rounds = {ROUNDS}", f"round = {ROUNDS}", "did you mean 'rounds'?"),
        ("augment.policy =", "augment.polcy =", "did you mean 'policy'?"),
        ("seed = [1, 2]", "seed = []", "is an empty list"),
        ("seed = [1, 2]", 'seed = ["one"]', "grid policies: seed has the wrong type; got 'one'"),
        ("epochs = 1", 'optimizer = "adm"', "unknown optimizer; got 'adm'"),
        ('name = "policies"', "", "grid 1 lacks 'name'"),
        ('name = "policies"', 'name = "../up"', "grid 1: name is not valid; got '../up'"),
        ('title = "Shapes"', 'name = "../up"', "shapes.toml: name is not valid"),
        ("threshold = 0.5", "threshold = 50", "grid 1: threshold is out of range; got 50"),
        ("[[grid]]", "[grid]", "grid is not a list of tables"),
        ("threshold = 0.5", "device.name = 1", "grid policies: device is not a table; got 'cpu'"),
        ('device = "cpu"', "device = 2026-01-01", "grid policies: device has the wrong type"),
        ("[[grid]]", "[[grids]]", "is not a sweep"),
        ('title = "Shapes"', 'titel = "Shapes"', "has no setting 'titel'"),
        ('match = "fedeas(beta=4)"', "", "needs 'total'"),
        ('["none", "fedeas(beta=4)", "uniform"]', '["match", "none"]\nmatch = []', "overwrite"),
        ("seed = [1, 2]", "seed = [1, 2", "is not TOML"),
        ('"uniform"]', '"unifrom"]', "did you mean 'uniform'?"),
    ],
)
def test_a_wrong_sweep_is_one_line(tmp_path, fedeas, old, new, message):
    result = fedeas("sweep", sweep_file(tmp_path, **{old: new}), "--out", tmp_path / "runs")
    assert result.code == 2
    assert message in result.err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_the_papers_tables_are_two_grids():
    ten = list(run_specs(read_sweep(CONFIGS / "paper" / "cifar10.toml")))
    hundred = list(run_specs(read_sweep(CONFIGS / "paper" / "cifar100.toml")))
    for runs, alphas in ((ten, {0.05, 0.1, 0.3}), (hundred, {0.1})):
        for clients, fraction, grid in ((20, 0.5, "table-1-k20"), (100, 0.1, "table-1-k100")):
            for split in ("merged", "official"):
                column = [
                    run.config
                    for run in runs
                    if run.grid.name == grid and run.config.data.split == split
                ]
                assert {c.partition.clients for c in column} == {clients}
                assert {c.federated.fraction for c in column} == {fraction}
                assert {c.partition.alpha for c in column} == alphas
                methods = {c.federated.method.split("(")[0] for c in column}
                assert methods == {"fedavg", "fedprox", "scaffold", "moon", "fedgen", "fedmix"}
                policies = {c.augment.policy for c in column}
                assert policies >= {"uniform", "missing-only", "fedeas(beta=12)", "full-balance"}
    settings = {(c.federated.rounds, c.federated.local.epochs, c.federated.local.learning_rate,
                 c.federated.local.batch, c.federated.model.name)
                for c in (run.config for run in (*ten, *hundred))}  # fmt: skip
    assert settings == {(200, 10, 1e-3, 64, "resnet18")}
    assert {run.grid.name for run in ten} >= {"budget", "ablation", "combined", "turbo"}


@pytest.mark.slow
def test_the_papers_totals_come_out_of_its_grid(data):
    """FedEAS' total on the real labels, and every policy that is matched to it."""
    planned = [
        run
        for run in run_specs(read_sweep(CONFIGS / "paper" / "cifar10.toml"))
        if run.grid.name in ("table-1-k20", "budget", "ablation")
        and run.config.data.split == "merged"
        and run.config.federated.method == "fedavg"
        and run.config.seed == 42
    ]
    found = {(c.config.partition.alpha, c.entry.policy, c.entry.match): c.generated
             for c in make_cells(planned)}  # fmt: skip
    eas = "fedeas(beta=12)"
    for alpha, total in ((0.05, 18_080), (0.1, 13_437), (0.3, 5_675)):
        assert found[alpha, eas, ""] == total
        for policy in ("uniform", "missing-only", "waterfill"):
            assert found[alpha, policy, eas] == total
    assert found[0.1, "full-balance", ""] == 226_783
    for beta, total in ((4, 4_113), (8, 8_673), (16, 18_435), (20, 23_514)):
        assert found[0.1, f"fedeas(beta={beta})", ""] == total
        assert found[0.1, "uniform", f"fedeas(beta={beta})"] == total
    assert found[0.1, "fedeas(beta=6, entropy=false)", ""] == 10_337
    assert found[0.1, "fedeas(beta=0.6, size_exponent=1)", ""] == 10_198


# Running


def test_the_command_runs_shows_and_skips(tmp_path, fedeas, finished):
    root = copied(finished, tmp_path)
    path = finished[0].parent / "shapes.toml"
    times = {p: p.stat().st_mtime_ns for p in root.glob("*/*") if p.name != "lock"}
    lines = tmp_path / "runs.jsonl"
    done = fedeas("sweep", path, "--out", root, "--export", lines)
    assert done.code == 0, done.err
    assert {p: p.stat().st_mtime_ns for p in times} == times  # nothing is run again
    assert done.out.splitlines()[0] == "Shapes"  # the sweep's title
    assert "policies: Policies; matched to fedeas(beta=4)" in done.out
    assert re.search(r"\d+\.\d \(\d+\.\d to \d+\.\d\)", done.out)  # two seeds, as they are
    assert PLUS_MINUS in done.out
    again = make_tables(read_export(lines))
    assert again[0].rows == table(root, finished[1]).rows
    as_json = json.loads(fedeas("sweep", path, "--out", root, "--tables", "--json").out)
    assert [row["seeds"] for row in as_json[0]["rows"]] == [2, 2, 2]
    assert "unknown grid" in fedeas("sweep", path, "--grid", "policy", "--out", root).err


def test_a_dry_run_lists_runs_samples_and_time(tmp_path, fedeas, finished):
    path = sweep_file(tmp_path)
    listed = fedeas("sweep", path, "--out", tmp_path / "runs", "--dry-run")
    assert listed.code == 0, listed.err
    assert listed.out.splitlines()[0] == "Shapes"
    assert "(start, generation, training with its evaluations)" in listed.out
    assert "6 runs, 0 of them finished" in listed.out
    assert not (tmp_path / "runs").exists()
    found = json.loads(fedeas("sweep", path, "--out", tmp_path / "x", "--dry-run", "--json").out)
    cells = cells_of(path)
    assert [one["generated"] for one in found] == [cell.generated for cell in cells]
    assert all(one["training_seconds"] > 0 for one in found)
    # Passes are exact: they are what the logs of the finished runs add up to.
    for cell in finished[1]:
        curves = read_result(finished[0] / cell.name / "result.json")["curves"]
        assert sum(curves["trained_on"]) == cell.passes
    path = finished[0].parent / "shapes.toml"
    assert "6 of them finished" in fedeas("sweep", path, "--out", finished[0], "--dry-run").out


def test_an_estimate_counts_the_start_and_the_evaluations(tmp_path, monkeypatch):
    """With times that are given: a second a start, and so on."""
    times = {"_time_training": 0.01, "_time_evaluation": 0.002, "_time_generation": 0.5}
    for name, seconds in times.items():
        monkeypatch.setattr(estimate, name, lambda _, seconds=seconds: seconds)
    changes = {f"rounds = {ROUNDS}": 'rounds = 40\neval_every = 3\nmethod = "fedprox(mu=0.1)"'}
    cells = cells_of(sweep_file(tmp_path, **changes))
    for one in estimate.estimate(cells, tmp_path / "runs", importing=10.0):
        assert 10 < one.start < 70  # opening the data took a moment as well
        evaluations, images = 14, 60
        wanted = 0.01 * one.cell.passes + 0.002 * evaluations * images
        assert one.training == pytest.approx(wanted)
        assert one.generation == pytest.approx(0.5 * one.cell.generated)
        assert one.seconds == pytest.approx(one.start + one.training + one.generation)
        assert one.uncounted == "fedprox"


def test_a_run_that_fails_leaves_the_others_running(tmp_path, monkeypatch):
    """Its process ends with it; runs that finish leave theirs to the next, with torch loaded."""
    started = []

    def start(*given, **more):
        started.append(given)
        return popen(*given, **more)

    popen = subprocess.Popen
    monkeypatch.setattr("fedeas.lab.runner.subprocess.Popen", start)
    shapes, broken = (f"helpers.small_federations:{name}" for name in ("Shapes", "Broken"))
    path = sweep_file(
        tmp_path,
        **{
            f'"{shapes}"': f'["{broken}", "{shapes}"]',
            "[base.augment]\ngenerator = ": "[base.augment]\n#",
            "seed = [1, 2]": f'seed = 1\naugment.generator = ["{broken}", "pool"]',
            '["none", "fedeas(beta=4)", "uniform"]': '["none", "fedeas(beta=4)"]',
            "[base.partition]": "pool_per_class = 30\n[base.partition]",
            f"rounds = {ROUNDS}": "rounds = 1",
        },
    )
    runs = run_cells(cells_of(path), tmp_path / "runs", jobs=1)
    crashed = [
        "Broken" in run.cell.config.augment.generator and run.cell.generated > 0 for run in runs
    ]
    assert crashed.index(True) not in (0, len(runs) - 1)  # one finishes before, one begins after
    assert [run.state for run in runs] == [FAILED if one else FINISHED for one in crashed]
    assert all("out of memory" in run.error for run in runs if run.state == FAILED)
    assert len(started) == 1 + sum(crashed[:-1]) < len(runs)
    left = list((tmp_path / "runs").glob("*/errors.txt"))
    assert len(left) == sum(crashed)
    assert not list((tmp_path / "runs").glob(".worker*"))


@pytest.mark.slow
@pytest.mark.parametrize(("times", "seeds", "rounds"), [(1, "1", 12), (10, "[1, 2]", 40)])
def test_a_killed_sweep_ends_with_the_same_table(tmp_path, finished, times, seeds, rounds):
    changes = {"seed = [1, 2]": f"seed = {seeds}", f"rounds = {ROUNDS}": f"rounds = {rounds}"}
    whole, root = [cell for cell in finished[1] if cell.config.seed == 1], finished[0]
    if rounds != ROUNDS:
        whole = cells_of(sweep_file(tmp_path / "whole", **changes))
        root = tmp_path / "whole" / "runs"
        run_here(whole, root)
    path = sweep_file(tmp_path, **changes)
    script = [sys.executable, "-W", "ignore", TESTS / "helpers" / "killed_sweep.py"]
    done = subprocess.run(
        [*script, path, tmp_path / "runs", str(times), "0.3"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    struck = [int(lines) for lines in done.stdout.split()]
    assert len(struck) == times
    assert all(0 < lines < len(whole) * rounds for lines in struck)  # in the middle of the rounds
    made = table(tmp_path / "runs", cells_of(path))
    assert without_seconds(made) == without_seconds(table(root, whole))


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_workers_stop_with_their_sweep(tmp_path, how):
    changes = {f"rounds = {ROUNDS}": "rounds = 3000", "seed = [1, 2]": "seed = 1"}
    path = sweep_file(tmp_path, **changes)
    command = [sys.executable, "-W", "ignore", "-m", "fedeas", "sweep", path, "--out",
               tmp_path / "runs", "--jobs", "1"]  # fmt: skip
    sweep = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        (log,) = wait_for(lambda: list((tmp_path / "runs").glob("*/log.jsonl")))
        assert not is_free(log.parent)
        sweep.send_signal(how)
        assert sweep.wait(30) == (130 if how == signal.SIGINT else -how)
        wait_for(lambda: is_free(log.parent))
    finally:
        sweep.kill()  # its worker ends with it
        sweep.wait()


def wait_for(found, seconds: float = 600):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if result := found():
            return result
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def is_free(folder: Path) -> bool:
    """Tell whether no process holds a run's folder: locks go with the process."""
    with (folder / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_run_is_run_by_one_process_at_a_time(tmp_path, finished):
    cell = finished[1][0]
    with (
        locked(tmp_path / "run"),
        pytest.raises(InputError, match="is being run by another process"),
    ):
        run_config(cell.config, tmp_path / "run")


# Damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# Deleting, cutting off, flipping one bit, and what another program might leave.
DAMAGES = {
    "deleted": lambda path: path.unlink(),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "flipped": flip,
    "emptied": lambda path: path.write_bytes(b""),
    "replaced": lambda path: path.write_text('{"accuracy": 1.0}'),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_of_a_finished_sweep_never_makes_a_wrong_table(tmp_path, finished, how):
    """All rows stay as they are, or a run is missing and named, and comes back with one command."""
    whole = table(*finished)
    _, cells = finished
    root = copied(finished, tmp_path)
    folder = root / cells[1].name
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    assert names == ["checkpoint.safetensors", "config.json", "counts.json",
                     "generation.json", "lock",
                     "log.jsonl", "partition.npz", "plan.json", "result.json"]  # fmt: skip
    for name in names:
        before = (folder / name).read_bytes()
        if not before and how != "deleted":
            continue
        DAMAGES[how](folder / name)
        entries = [cell.entry for cell in cells]
        runs, missing = read_runs(root, entries)
        if name == "result.json":
            assert len(runs) == 5
            (line,) = missing
            assert cells[1].name in line
            assert [finished_result(cell, root) is None for cell in cells].index(True) == 1
            run_here(cells, root)
        assert without_seconds(table(root, cells)) == without_seconds(whole), name
        (folder / name).write_bytes(before)
    DAMAGES[how](root / "sweep.json")
    with pytest.raises(InputError, match="is not the folder of a sweep"):
        read_index(root)


def test_a_result_in_the_folder_of_another_run_is_refused(tmp_path, finished):
    root = copied(finished, tmp_path)
    _, cells = finished
    shutil.copy(root / cells[0].name / "result.json", root / cells[1].name / "result.json")
    runs, (line,) = read_runs(root, [cell.entry for cell in cells])
    assert len(runs) == 5
    assert "holds the result of another run" in line
    assert finished_result(cells[1], root) is None


@pytest.fixture(scope="module", params=["fedavg", "scaffold"])
def half_done(request, tmp_path_factory, finished):
    """A run of five rounds: its config, its result, and its folder after three of them."""
    folder, config = tmp_path_factory.mktemp(request.param), finished[1][1].config
    config = config.replace(federated=config.federated.replace(method=request.param, rounds=5))
    whole = run_config(config, folder / "whole")
    cut_off(config, folder / "cut")
    return config, whole, folder / "cut"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=pytest.mark.slow) if how in ("cut off", "emptied") else how
        for how in DAMAGES
    ],
)
def test_a_damaged_file_of_a_cut_off_run_is_mended_or_named(tmp_path, half_done, how):
    """A run after three of five rounds goes on to the same result, or says which file is wrong."""
    config, whole, cut = half_done
    method = config.federated.method
    files = sorted(p for p in cut.rglob("*") if p.is_file() and p.name != "lock")
    assert len(files) >= 6
    if method == "scaffold":  # what a client keeps; FedAvg's run has all the other files
        kept = [path for path in files if "clients" in path.parts]
        assert len(kept) >= 3
        files = kept[:: len(kept) - 1]
    for number, path in enumerate(files):
        root = Path(shutil.copytree(cut, tmp_path / str(number)))
        DAMAGES[how](root / path.relative_to(cut))
        try:
            result = run_config(config, root)
        except InfeasibleError as error:  # what a client kept: the round cannot be right
            assert method == "scaffold"
            assert path.parent.parent.parent.name == "clients"
            assert str(path.name) in str(error)
        except InputError as error:
            assert path.name in str(error)
            assert path.name == "checkpoint.safetensors"
        else:
            for key in ("accuracy", "drift", "trained_on"):
                assert result["curves"][key] == whole["curves"][key], path
            assert result["generated"] == whole["generated"]


def cut_off(config, folder: Path) -> None:
    """Leave a run as a kill after its third round does."""

    def stop(line) -> None:
        if line["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_config(config, folder, on_round=stop)


# Tables


def test_figures_are_those_of_the_curves(finished):
    root, cells = finished
    results = [read_result(root / cell.name / "result.json") for cell in cells]
    made = table(root, cells)
    assert [(row.policy, row.seeds) for row in made.rows] == [
        ("none", 2), ("fedeas(beta=4)", 2), ("uniform", 2)]  # fmt: skip
    by_policy = {cell.entry.policy: [] for cell in cells}
    for cell, result in zip(cells, results, strict=True):
        by_policy[cell.entry.policy].append(result)
    for row in made.rows:
        own = by_policy[row.policy]
        last = [sum(r["curves"]["accuracy"][-5:]) / 5 for r in own]
        assert row.accuracy.value == pytest.approx(sum(last) / 2)
        assert row.accuracy.half is None  # an interval of two seeds says nothing
        assert row.accuracy.range == pytest.approx((min(last), max(last)))
        peaks = [max(r["curves"]["accuracy"]) for r in own]
        assert row.peak.value == pytest.approx(sum(peaks) / 2)
        assert len(row.per_class) == 3
        if row.policy == "none":
            assert row.gain is None
            assert row.eta is None
            without = last
            continue
        gains = [a - b for a, b in zip(last, without, strict=True)]
        assert row.gain.value == pytest.approx(sum(gains) / 2)
        etas = [1e5 * g / r["generated"] for g, r in zip(gains, own, strict=True)]
        assert row.eta.value == pytest.approx(sum(etas) / 2)


def test_what_was_generated_once_costs_every_run_that_uses_it(finished):
    """Runs share their images; a table charges each the measured seconds of all it trains on."""
    root, cells = finished
    made = [read_result(root / cell.name / "result.json")["generation"] for cell in cells]
    caches = [work(Cache.at(path)) for path in (root.parent / "cache").iterdir()]
    assert len(caches) == 2  # one a seed
    assert sum(one["made"] for one in made) == sum(one.made for one in caches)
    per_sample = sum(one.seconds for one in caches) / sum(one.made for one in caches)
    assert sum(one.made for one in caches) < sum(cell.generated for cell in cells)
    rows = {row.policy: row for row in table(root, cells).rows}
    for policy in ("fedeas(beta=4)", "uniform"):
        row = rows[policy]
        assert row.generation_seconds.value == pytest.approx(row.generated.value * per_sample)
    assert rows["none"].generation_seconds.value == 0


def with_generation(runs, **changes):
    """Change what runs say of their generation; None removes it."""
    made = []
    for run in runs:
        own = {k: v for k, v in (run.result["generation"] | changes).items() if v is not None}
        made.append(replace(run, result=run.result | {"generation": own}))
    return made


def test_the_cost_of_generation_is_there_also_where_no_run_made_an_image(finished):
    """All images were in the cache, as after `fedeas fill`."""
    root, cells = finished
    runs, _ = read_runs(root, [cell.entry for cell in cells])
    whole = {row.policy: row for row in table(root, cells).rows}
    found = with_generation(runs, made=0, seconds=0.0)
    rows = {row.policy: row for row in make_tables(found)[0].rows}
    for policy in ("none", "fedeas(beta=4)", "uniform"):
        ours, theirs = rows[policy].generation_seconds, whole[policy].generation_seconds
        # Of the runs that share a cache only the last one to fill it knows all of it.
        assert ours.value == pytest.approx(theirs.value, rel=1e-6)
    total = list(generations(run.result for run in [*found, *found]))
    assert sum(one.made for one in total) == sum(run.result["generation"]["made"] for run in runs)
    assert not any(one.by_runs for one in total)
    # Without a word from the cache nothing is known, and nothing is not said to be free.
    unknown = with_generation(runs, made=0, seconds=0.0, in_cache=None)
    rows = {row.policy: row for row in make_tables(unknown)[0].rows}
    assert rows["fedeas(beta=4)"].generation_seconds is None
    assert rows["none"].generation_seconds.value == 0


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("versions", "runs of different versions"),
        ("counts_hash", "runs on different label counts"),
        ("generator_hash", "runs with samples of different generators"),
    ],
)
def test_runs_that_cannot_be_compared_are_not_in_one_table(
    tmp_path, finished, fedeas, key, message
):
    root = copied(finished, tmp_path)
    _, cells = finished
    path = root / cells[2].name / "result.json"
    result = read_json(path)
    write_json(path, result | {key: "0" * 64})
    with pytest.raises(InputError, match=message):
        table(root, cells)
    made = table(root, cells, mixed=True)
    assert any(message in note for note in made.notes)
    command = ("sweep", finished[0].parent / "shapes.toml", "--out", root, "--tables")
    refused = fedeas(*command)
    assert refused.code == 2
    assert message in refused.err
    assert f"note: {message}" in fedeas(*command, "--mixed").out


def test_an_exported_line_cannot_be_changed(tmp_path, finished):
    root, cells = finished
    runs, _ = read_runs(root, [cell.entry for cell in cells])
    path = tmp_path / "runs.jsonl"
    export(path, runs)
    assert read_export(path) == [
        FinishedRun(r.entry, json.loads(json.dumps(r.result))) for r in runs
    ]
    path.write_text(path.read_text().replace('"seed": 2', '"seed": 3', 1))
    with pytest.raises(InputError, match=r"line 4 of .* is damaged"):
        read_export(path)


def test_the_papers_efficiencies_come_out():
    for accuracy, generated, eta in (
        (66.11, 4_113, 2.575), (70.86, 8_673, 1.769), (71.65, 13_437, 1.200),
        (72.59, 18_435, 0.926), (74.05, 23_514, 0.788), (60.81, 4_113, 1.286),
        (66.46, 23_514, 0.465), (79.91, 226_783, 0.108),
    ):  # fmt: skip
        assert efficiency(accuracy / 100, 0.5552, generated) == pytest.approx(eta, abs=6e-4)
    assert efficiency(0.5, 0.4, 0) is None


def test_intervals_are_students():
    assert Mean.of([0.4]).half is None
    assert Mean.of([0.4, 0.5]).points() == "45.0 (40.0 to 50.0)"
    assert Mean.of([0.4, 0.5]).bounds == (0.4, 0.5)
    assert Mean.of([0.1, 0.2, 0.3]).points("+") == "+20.0 ± 24.8"
    assert Mean.of([1.0, 2.0, 3.0, 4.0]).half == pytest.approx(3.182 * 1.2910 / 2, rel=1e-3)


def test_rounds_are_counted_from_one():
    assert rounds_to([0.1, 0.5, 0.6], 0.5) == 2
    assert rounds_to([0.1, None, 0.6], 0.5) == 3
    assert rounds_to([0.1], 0.5) is None
    assert [tail(n) for n in (1, 5, 49, 60, 200)] == [1, 5, 5, 6, 20]


# The code's name


# Versions


def test_a_run_of_other_versions_goes_on_and_says_so(tmp_path, finished, monkeypatch, caplog):
    config = finished[1][0].config
    cut_off(config, tmp_path / "run")
    now = versions()
    monkeypatch.setattr("fedeas.lab.resolve.versions", lambda: "fedeas 99")
    result = run_config(config, tmp_path / "run")
    assert result["versions"] == f"{now}; then fedeas 99"  # it is in no table with runs of either
    assert "goes on with fedeas 99" in caplog.text
    assert run_config(config, tmp_path / "run") == result
    straight = read_result(finished[0] / finished[1][0].name / "result.json")
    assert result["accuracy"] == straight["accuracy"]
    other = config.replace(seed=config.seed + 1)
    with pytest.raises(InputError, match="holds another run"):
        run_config(other, tmp_path / "run")
    cut_off(config, tmp_path / "lost")
    (tmp_path / "lost" / "config.json").unlink()
    assert run_config(config, tmp_path / "lost")["versions"] == "unknown versions; then fedeas 99"
