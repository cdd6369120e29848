"""Runs that begin from a private generator: what they start with, who may, and going on."""

import dataclasses
import json
import math
import re
import shutil
from contextlib import nullcontext

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedeas import InfeasibleError, InputError
from fedeas._internal.settings import read_settings
from fedeas.data import Dataset, open_dataset
from fedeas.generators.card import CARD, GeneratorCard
from fedeas.lab.config import Config
from fedeas.lab.experiment import run
from fedeas.lab.report.page import what_ran
from fedeas.lab.resolve import resolve
from fedeas.lab.results import find_runs
from fedeas.private.flower import run_server
from fedeas.private.flower.site_config import RunConfig
from fedeas.private.generator import start as module
from fedeas.private.generator.make import CLASSIFIER_FOLDER, make_private
from fedeas.private.generator.start import FILE, PrivateStart
from fedeas.train.loop import accuracy
from fedeas.train.models import load_weights
from fedeas.train.samples import Samples
from fedeas.train.settings import Federated, ModelSettings
from fedeas.train.tensors import load_tensors, save_tensors
from helpers.deployed_sites import settings
from helpers.private_sites import GIVEN, RealSites
from helpers.table_sets import CLASSES, SCHEMA, draw_rows, to_table


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A tenth of the samples and steps: what holds of them holds of more."""
    monkeypatch.setattr(module, "_SAMPLES", 2000)
    monkeypatch.setattr(module, "_STEPS", 100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A generator of four sites with a table, its classifier, and the table's file."""
    folder = tmp_path_factory.mktemp("start")
    rows, labels = draw_rows(900)
    pq.write_table(to_table(rows, labels), folder / "people.parquet")
    data = Dataset(rows, labels, "x", CLASSES, 900, "x", kind="table", schema=SCHEMA)
    places = np.array_split(np.arange(900), 4)
    make_private(data, places, 20.0, out=folder / "own", classifier=True)
    return folder


@pytest.fixture
def config(folder, tmp_path) -> Config:
    return read_settings(Config, {
        "seed": 3, "device": "cpu",
        "data": {"name": str(folder / "people.parquet")},
        "partition": {"recipe": "dirichlet", "clients": 4, "alpha": 0.2},
        "augment": {"cache": str(tmp_path / "cache")},
        "federated": {"rounds": 2, "fraction": 1.0, "local": {"batch": 32, "learning_rate": 0.2},
                      "model": {"name": "mlp", "weights": str(folder / "own")}},
    })  # fmt: skip


def starting(config: Config, weights: object) -> Config:
    model = config.federated.model.replace(weights=str(weights))
    return config.replace(federated=config.federated.replace(model=model))


def test_the_first_weights_know_the_classes_and_are_another_experiment(config, tmp_path):
    ready, nothing = resolve(config), resolve(starting(config, ""))
    assert ready.experiment != nothing.experiment
    result = run(config, tmp_path / "run")
    test = Samples.of(ready.federation.data, ready.federation.test)
    load_weights(ready.model, tmp_path / "run" / FILE)
    assert accuracy(ready.model, test)[0] > 0.8 > accuracy(nothing.model, test)[0]
    # The same file by its own name: another experiment, the same rounds.
    same = run(starting(config, tmp_path / "run" / FILE), tmp_path / "same")
    assert same["curves"]["accuracy"] == result["curves"]["accuracy"]
    assert len({same["experiment"], result["experiment"], nothing.experiment}) == 3


def test_what_it_is_made_of_is_in_the_result_and_on_the_page(config, tmp_path):
    result = run(config, tmp_path / "runs" / "one")
    assert "samples of 4 sites" in result["start_made_of"]
    assert "epsilon = 20" in result["start_made_of"]
    _, runs, _ = find_runs(tmp_path / "runs")
    (grid,) = what_ran("runs", runs).parts
    facts = dict(grid.rows)
    assert result["start_made_of"] in facts["first weights"]
    assert config.federated.model.weights in facts["first weights"]


def test_first_weights_depend_on_the_generator_and_on_no_sample(folder, tmp_path):
    """Neighbouring data, one generator: the same content."""
    start, federated = PrivateStart.load(folder / "own"), Federated(model=ModelSettings("mlp"))
    rows, labels = draw_rows(900)
    for name, size in (("all", 900), ("fewer", 500)):
        some = rows[:size], labels[:size]
        data = Dataset(*some, name, CLASSES, size, name, kind="table", schema=SCHEMA)
        start.write(tmp_path / name, data, federated, seed=1)
    start.write(tmp_path / "other", data, federated, seed=2)
    (one, about), (same, as_much), (other, _) = (
        load_tensors(tmp_path / name) for name in ("all", "fewer", "other")
    )
    assert about == as_much
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_first_samples_have_the_classes_of_the_card(folder, tmp_path, monkeypatch):
    start = PrivateStart.load(folder / "own")
    counts = (1000.0, 3000.0, -5.0)
    start.generator.card = dataclasses.replace(start.generator.card, counts=counts)
    seen, draw = [], start.generator.sample
    monkeypatch.setattr(
        start.generator, "sample", lambda labels, seeds: seen.extend(labels) or draw(labels, seeds)
    )
    rows, labels = draw_rows(30)
    data = Dataset(rows, labels, "x", CLASSES, 30, "x", kind="table", schema=SCHEMA)
    start.write(tmp_path / "w", data, Federated(model=ModelSettings("mlp")), seed=1)
    share = np.bincount(seen, minlength=3) / len(seen)
    assert share == pytest.approx([0.25, 0.75, 0.0], abs=0.05)


class Killed(BaseException):
    """Nothing catches this: the process is gone."""


@pytest.mark.parametrize("damage", [None, b"damaged"])
def test_a_killed_run_ends_with_the_same_bits(config, tmp_path, damage):
    whole = run(config, tmp_path / "whole")

    def kill(line):
        raise Killed

    with pytest.raises(Killed):
        run(config, tmp_path / "killed", on_round=kill)
    if damage is not None:
        (tmp_path / "killed" / FILE).write_bytes(damage)  # made once more
    ended = run(config, tmp_path / "killed")
    assert ended["curves"]["accuracy"] == whole["curves"]["accuracy"]
    both = (load_file(tmp_path / name / FILE) for name in ("whole", "killed"))
    first, again = both
    assert all(torch.equal(first[name], again[name]) for name in first)
    with pytest.raises(InputError, match="another run"):
        run(starting(config, ""), tmp_path / "killed")


def changed_card(folder, **changed):
    """Write the card in a folder anew, with its checksum."""
    dataclasses.replace(GeneratorCard.load(folder), **changed).save(folder)


def test_folders_that_are_no_start_are_refused(folder, config, tmp_path):
    own, copy = folder / "own", tmp_path / "copy"
    with pytest.raises(InputError, match=f"a private classifier.*give {own}$"):
        resolve(starting(config, own / CLASSIFIER_FOLDER))
    with pytest.raises(InputError, match="not the folder of a private generator"):
        resolve(starting(config, tmp_path))  # a folder of anything
    with pytest.raises(InputError):
        resolve(starting(config, tmp_path / "missing"))
    for changed in ({"counts": (1.0,)}, {"counts": (1.0, 2.0, math.inf)}, {"counts": (1e308,) * 3}):
        shutil.copytree(own, copy, dirs_exist_ok=True)
        changed_card(copy, **changed)
        with pytest.raises(InputError, match="how many samples"):
            PrivateStart.load(copy)
    body = json.loads((own / CARD).read_text()) | {"classes": ["x", "y", "z"]}
    (copy / CARD).write_text(json.dumps(body))  # without a right checksum
    with pytest.raises(InputError, match="damaged"):
        PrivateStart.load(copy)


def test_other_classes_columns_and_models_are_refused(folder):
    start, federated = PrivateStart.load(folder / "own"), Federated(model=ModelSettings("mlp"))
    rows, labels = draw_rows(30)
    data = Dataset(rows, labels, "x", CLASSES, 30, "x", kind="table", schema=SCHEMA)
    start.check(data, federated)
    renamed = dataclasses.replace(SCHEMA.columns[0], name="height")
    fewer = dataclasses.replace(SCHEMA, columns=SCHEMA.columns[:2])
    for wrong in (
        {"classes": CLASSES[::-1]},
        {"schema": dataclasses.replace(SCHEMA, columns=(renamed, *SCHEMA.columns[1:]))},
        {"schema": fewer, "samples": rows[:, :2]},
        {"schema": None, "samples": np.zeros((30, 8, 8, 1), np.uint8), "kind": "image"},
    ):
        with pytest.raises(InputError):
            start.check(dataclasses.replace(data, **wrong), federated)
    with pytest.raises(InputError, match="unet"):
        start.check(data, Federated(model=ModelSettings("unet(preset=tiny)")))


def test_a_run_draws_from_no_generator_of_columns_in_another_order(folder, config, tmp_path):
    """Its rows would be taken for something else. The control is the generator of these columns."""
    rows, labels = draw_rows(900)
    turned = dataclasses.replace(SCHEMA, columns=SCHEMA.columns[::-1])
    data = Dataset(rows[:, ::-1], labels, "x", CLASSES, 900, "x", kind="table", schema=turned)
    make_private(data, np.array_split(np.arange(900), 4), 20.0, out=tmp_path / "turned")
    config = starting(config, "")
    for own, fits in ((folder / "own", True), (tmp_path / "turned", False)):
        augment = config.augment.replace(
            policy="fedeas(beta=12)", generator=f"private(model='{own}')"
        )
        with nullcontext() if fits else pytest.raises(InputError, match="column 1 is"):
            assert resolve(config.replace(augment=augment)).plan.total > 0


def test_first_weights_that_diverged_are_not_written(folder, tmp_path):
    start, rows = PrivateStart.load(folder / "own"), draw_rows(30)
    data = Dataset(*rows, "x", CLASSES, 30, "x", kind="table", schema=SCHEMA)
    local = Federated().local.replace(learning_rate=900.0)
    federated = Federated(model=ModelSettings("mlp"), local=local)
    with pytest.raises(InfeasibleError, match="diverged; got 'learning rate 900"):
        start.write(tmp_path / "w", data, federated, seed=1)
    assert not (tmp_path / "w").exists()


def test_two_private_models_would_be_two_budgets(folder, config, tmp_path, monkeypatch):
    augment = config.augment.replace(policy="fedeas(beta=12)", generator="private(epsilon=20)")
    with pytest.raises(InputError, match="name a generator"):
        resolve(config.replace(augment=augment.replace(generator="")))
    ready = config.replace(augment=augment)
    with monkeypatch.context() as patch:  # it is refused before anybody pays
        patch.setattr("fedeas.private.generator.make.make_private", None)
        with pytest.raises(InputError, match="two budgets"):
            resolve(ready)
    make_private(
        resolve(starting(ready, "")).federation.data, [np.arange(450), np.arange(450, 800)], 20.0,
        out=tmp_path / "other",
    )  # fmt: skip
    other = augment.replace(generator=f"private(model='{tmp_path / 'other'}')")
    with pytest.raises(InputError, match="two budgets"):
        resolve(config.replace(augment=other))
    one = augment.replace(generator=f"private(model='{folder / 'own'}')")
    assert resolve(config.replace(augment=one)).plan.total > 0
    assert resolve(config.replace(augment=augment.replace(generator="copies"))).plan.total > 0


def test_a_file_of_first_weights_is_a_budget_too(folder, config, tmp_path):
    """Of other weights nothing is known: the control."""
    federated, one = Federated(model=ModelSettings("mlp")), PrivateStart.load(folder / "own")
    data = resolve(config).federation.data
    one.write(tmp_path / "renamed", data, federated, seed=1)
    tensors, about = load_tensors(tmp_path / "renamed")
    save_file(tensors, tmp_path / "plain")
    del about["generator"]  # as earlier versions wrote it
    save_tensors(tmp_path / "earlier", tensors, about)
    with pytest.raises(InputError, match="two budgets"):
        augment = config.augment.replace(policy="fedeas(beta=12)", generator="private(epsilon=20)")
        resolve(starting(config.replace(augment=augment), tmp_path / "earlier"))
    for generator, fits in (
        ("private(epsilon=20)", False), (f"private(model='{folder / 'own'}')", True),
        ("copies", True),
    ):  # fmt: skip
        augment = config.augment.replace(policy="fedeas(beta=12)", generator=generator)
        again = config.replace(augment=augment)
        assert resolve(starting(again, tmp_path / "plain")).plan.total > 0
        with nullcontext() if fits else pytest.raises(InputError, match="two budgets"):
            resolve(starting(again, tmp_path / "renamed"))


def test_the_command_begins_from_a_folder(fedeas, folder, config, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))  # of generators that runs make
    path = tmp_path / "config.toml"
    text = (
        f'[data]\nname = "{folder / "people.parquet"}"\n[partition]\nclients = 4\n'
        '[federated]\nrounds = 1\n[federated.model]\nname = "mlp"\n'
    )
    path.write_text(text)
    done = fedeas("run", path, "--out", tmp_path / "run", "--start", folder / "own", "--json")
    assert done.code == 0, done.err
    assert "4 sites" in json.loads(done.out)["start_made_of"]
    augment = '[augment]\npolicy = "fedeas(beta=12)"\ngenerator = "private(epsilon=1)"\n'
    augment += f'cache = "{tmp_path / "cache"}"\n'
    path.write_text(augment + text)  # of one folder: samples and first weights
    done = fedeas("run", path, "--out", tmp_path / "both", "--start", folder / "own")
    assert done.code == 0, done.err
    assert re.search(r"started from .* 4 sites; .*epsilon = 20", done.out)
    assert not (tmp_path / "store" / "private").exists()
    for start in (folder / "people.parquet", tmp_path / "missing"):
        done = fedeas("run", path, "--out", tmp_path / "other", "--start", start)
        assert done.code == 2 and "--start" in done.err
    path.write_text(text + 'weights = "x.safetensors"\n')
    done = fedeas("run", path, "--out", tmp_path / "other", "--start", folder / "own")
    assert done.code == 2 and "x.safetensors" in done.err


def test_samples_are_judged_without_data(fedeas, folder):
    """What is not known of a private judge has no place in the table."""
    own = folder / "own"
    given = ("generator", "sample", f"private(model='{own}')", "--each", "50", "--judge")
    done = fedeas(*given, own / CLASSIFIER_FOLDER, "--json")
    assert done.code == 0, done.err
    quality = json.loads(done.out)
    assert quality["agreement_mean"] > 0.8 and "judge_accuracy" not in quality
    alone = fedeas(*given, own / CLASSIFIER_FOLDER).out
    assert "agreement" in alone and "real" not in alone and " - " not in alone
    with_data = fedeas(*given, own / CLASSIFIER_FOLDER, "--data", folder / "people.parquet").out
    assert " real " in with_data and "accuracy" not in with_data


def test_a_judge_is_looked_for_where_it_can_be(fedeas, folder, tmp_path):
    own, copy = folder / "own", tmp_path / "copy"
    given = ("generator", "sample", f"private(model='{own}')", "--judge")
    done = fedeas(*given, own)
    assert done.code == 2 and f"give {own / CLASSIFIER_FOLDER}" in done.err
    shutil.copytree(own, copy, ignore=shutil.ignore_patterns(CLASSIFIER_FOLDER))
    for judge in (copy, copy / CLASSIFIER_FOLDER):
        done = fedeas(*given, judge)
        assert done.code == 2 and f"{copy} has no classifier" in done.err
    shutil.copytree(own, copy, dirs_exist_ok=True)
    changed_card(copy / CLASSIFIER_FOLDER, classes=("x", "y", "z"))
    done = fedeas(*given, copy / CLASSIFIER_FOLDER)
    assert done.code == 2 and "3 (high, low, middle)" in done.err
    assert "3 (x, y, z) in the judge" in done.err


def test_samples_are_compared_by_the_names_of_their_columns(fedeas, folder, tmp_path):
    """By place, a judge of other columns would judge nonsense, and a file have wrong heads."""
    rows, labels = draw_rows(300)
    table = to_table(rows, labels)
    own, names = folder / "own", table.column_names
    spec, judge = f"private(model='{own}')", ("--judge", own / CLASSIFIER_FOLDER)
    features = [name for name in names if name != "label"]
    renamed = [f"{name}2" if name == features[0] else name for name in names]
    others = {
        "same": table,
        "turned": table.select(["label", *features[::-1]]),
        "renamed": table.rename_columns(renamed),
    }
    for name, other in others.items():
        pq.write_table(other, tmp_path / f"{name}.parquet")
        given = ("--data", tmp_path / f"{name}.parquet", "--out", tmp_path / f"{name}.csv")
        drawn = fedeas("generator", "sample", spec, *given)
        judged = fedeas("generator", "sample", "gaussian", *given[:2], *judge)
        assert (drawn.code, judged.code) == ((0, 0) if name == "same" else (2, 2)), name
        if name != "same":
            assert "column" in drawn.err and "column" in judged.err
    with pytest.raises(InputError, match="column 1 is"):
        data = open_dataset(str(tmp_path / "renamed.parquet"))
        PrivateStart.load(own).check(data, Federated(model=ModelSettings("mlp")))


def test_a_judge_of_other_samples_is_refused_before_it_is_trained(
    fedeas, folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("fedeas.train.diffusion.judge.Judge.of", None)
    table = to_table(*draw_rows(300))
    fewer = [name for name in table.column_names if name != "label"][1:]
    pq.write_table(table.select(["label", *fewer]), tmp_path / "fewer.parquet")
    spec = f"private(model='{folder / 'own'}')"
    done = fedeas("generator", "sample", spec, "--judge", tmp_path / "fewer.parquet")
    assert done.code == 2 and "another shape" in done.err


# Real sites


@pytest.mark.slow
def test_real_sites_begin_from_what_they_made(sites, tmp_path):
    given = GIVEN | {"generator-start": True, "policy": "none"}
    grid = RealSites(sites, tmp_path, generator="private")
    run_server(grid, settings(sites, tmp_path / "run", **given))
    first = load_file(tmp_path / "run" / "private-generator" / FILE)
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert first.keys() == model.keys()


def test_a_start_of_real_sites_needs_a_generator(sites, tmp_path):
    given = settings(sites, tmp_path / "run", **GIVEN) | {"generator-start": True}
    for wrong in ({"generator-epsilon": 0.0}, {"model": "unet(preset=tiny)"}):
        with pytest.raises(InputError, match="a private start"):
            read_settings(RunConfig, given | wrong, "run")
    right = read_settings(RunConfig, given, "run")
    without = right.replace(generator_start=False)
    assert right.experiment("none", ()) != without.experiment("none", ())
