"""The demo: sites of the covertype data as scikit-learn caches them."""

import csv
import os
from collections import Counter
from pathlib import Path
from urllib.error import URLError

import joblib
import numpy as np
import pytest

from fedeas import LabelCounts
from fedeas._internal.files import read_json
from fedeas.lab import forest
from fedeas.lab.results import Mean

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("FEDEAS_DATA", "")) / forest.NAME


@pytest.fixture(autouse=True)
def without_data(monkeypatch):
    monkeypatch.delenv("FEDEAS_DATA", raising=False)


@pytest.fixture
def folder():
    if not (FOLDER / "train.parquet").exists():
        pytest.skip(f"set FEDEAS_DATA to a folder with {forest.NAME}")
    return FOLDER


def covertype(rows=4400):
    """Return rows as `fetch_covtype` has them: ten numbers, areas, soil types; labels 1 to 7."""
    rng = np.random.default_rng(0)
    labels = rng.integers(1, 8, rows)
    numbers = rng.normal(200 * labels[:, None], 100, (rows, 10)).round()
    area = rng.integers(0, 4, rows)
    soil = np.array([1, 12, 30, 40])[(labels + area) % 4] - 1  # zones 2, 4, 7 and 8
    return np.hstack([numbers, np.eye(4)[area], np.eye(40)[soil]]), labels.astype(np.int32)


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Put such rows where scikit-learn keeps what it has fetched."""
    folder = tmp_path / "scikit_learn_data" / "covertype"
    folder.mkdir(parents=True)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(folder.parent))
    for name, values in zip(("samples_py3", "targets_py3"), covertype(), strict=True):
        joblib.dump(values, folder / name, compress=9)


def test_every_way_trains_at_its_own_best_rate_or_level_with_it():
    """By the record of the grid: no other rate is ahead, over the same seeds."""
    recorded: dict[tuple[str, float], dict[int, float]] = {}
    with (ROOT / "reproduction/recorded/demo-rates.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            seeds = recorded.setdefault((row["way"], float(row["learning_rate"])), {})
            if row["accuracy"]:
                seeds[int(row["seed"])] = 100 * float(row["accuracy"])
    assert {rate for _, rate in recorded} == set(forest.GRID)
    assert min(forest.GRID) < forest.RATE < max(forest.GRID)  # not at the edge
    for way in ("none", "copies", "fedeas"):
        ours = recorded[way, forest.RATE]
        assert len(ours) == 10  # nothing diverged
        for rate in {*forest.GRID} - {forest.RATE}:
            other = recorded[way, rate]
            ahead = Mean.of([other[seed] - ours[seed] for seed in ours.keys() & other.keys()])
            assert ahead.bounds[0] <= 0, (way, rate, ahead)


def table_of_gains(printed: str) -> dict[str, dict[str, str]]:
    """Read the demo's last table, a row for every way to train; every cell is filled."""
    lines = [line.split() for line in printed.splitlines()]
    head = next(line for line in lines if "learning_rate" in line)
    found = {}
    for line in lines:
        if len(line) >= len(head) and line[1] == "fedavg":
            row = dict(zip(head, line, strict=False))
            assert "-" not in row.values(), row
            found[row["policy"].partition("(")[0]] = row
    assert found.keys() == {"none", "copies", "fedeas"}
    return found


def test_the_demo_runs_the_sites_and_ends_in_a_picture(tmp_path, cached, monkeypatch, fedeas):
    """On fewer rows and in fewer rounds than users see."""
    monkeypatch.setattr(forest, "ROUNDS", 2)
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    out = tmp_path / "demo"
    done = fedeas("demo", "--out", out)
    assert done.code == 0, done.err
    assert "16 clients" in done.err
    assert (out / "picture.png").read_bytes().startswith(b"\x89PNG")
    rows = table_of_gains(done.out)
    assert {float(row["learning_rate"]) for row in rows.values()} == {forest.RATE}
    assert rows["none"]["gain"] == "baseline"
    for way in ("copies", "fedeas"):
        gain = float(rows[way]["accuracy"]) - float(rows["none"]["accuracy"])
        assert float(rows[way]["gain"]) == pytest.approx(gain, abs=0.11)
        assert float(rows[way]["eta"]) * gain >= 0
    results = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    runs = [read_json(path) for path in results]
    assert sorted(run["policy"].split("(")[0] for run in runs) == ["copies", "fedeas", "none"]
    (ours,) = (run for run in runs if run["policy"].startswith("fedeas"))
    assert "the run's own clients" in ours["generator_trained_on"]
    steps = {run["settings"]["augment"]["steps_as"] for run in runs}
    assert steps == {forest.POLICY}  # all three take as many
    earlier = read_json(out / "seconds.json")["seconds"]
    assert earlier > 1
    again = fedeas("demo", "--out", out)
    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in results} == results  # nothing ran again
    assert read_json(out / "seconds.json")["seconds"] > earlier
    assert "this time" in again.out


def test_sites_are_areas_and_zones_and_small_ones_are_left_out():
    values, labels = covertype()
    values[:40, 14:] = np.eye(40)[6]  # a soil of zone 3, which 40 rows have
    columns = forest.site_rows(values, labels)
    assert len(columns["site"]) == 4360
    zones = {1: 2, 12: 4, 30: 7, 40: 8}
    for area, soil, site in zip(*(columns[n] for n in ("area", "soil_type", "site")), strict=True):
        assert site == f"{area}_zone{zones[soil]}"
    assert set(columns["label"].tolist()) == set(range(7))


def test_the_sites_are_those_of_the_folder(folder):
    """The table that studies use was built by the same rules."""
    import pyarrow.parquet as pq

    parts = [pq.read_table(folder / f"{part}.parquet").to_pydict() for part in ("train", "test")]
    both = {name: np.array(parts[0][name] + parts[1][name]) for name in parts[0]}
    areas, soils = np.array(["rawah", "neota", "comanche", "poudre"]), np.arange(1, 41)
    marks = both["area"][:, None] == areas, both["soil_type"][:, None] == soils
    values = np.column_stack([*list(both.values())[:10], *marks])
    columns = forest.site_rows(values, both["label"] + 1)
    assert len(columns["site"]) == 15_010
    assert all((columns[name] == both[name]).all() for name in columns)

    def cells(sites, labels):
        return Counter(zip(sites, labels, strict=True))

    test = forest.choose_test(columns["site"], columns["label"])
    rows = (columns["site"][test].tolist(), columns["label"][test].tolist())
    assert cells(*rows) == cells(parts[1]["site"], parts[1]["label"])
    counts = LabelCounts.load(ROOT / "examples" / "forest.csv")
    names = [(site, counts.classes.index(c)) for site in counts.clients for c in counts.classes]
    train = cells(parts[0]["site"], parts[0]["label"])
    assert [train[name] for name in names] == counts.n.ravel().tolist()


def test_without_a_network_the_message_says_what_to_do(tmp_path, monkeypatch, fedeas):
    def fail(**_):
        raise URLError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_covtype", fail)
    done = fedeas("demo", "--out", tmp_path / "demo")
    assert done.code == 2
    assert "no network" in done.err
    assert "--data" in done.err
    done = fedeas("demo", "--out", tmp_path / "demo", "--data", tmp_path)
    assert done.code == 2
    assert "train.parquet" in done.err
