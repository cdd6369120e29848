"""What a fair comparison needs: equal steps, a random policy, a validation part, a fixed pool."""

import numpy as np
import pytest

import fedeas.train.flower.client as client
from fedeas import InputError, LabelCounts
from fedeas._internal.settings import read_settings
from fedeas.data import federate, open_dataset
from fedeas.lab import run
from fedeas.lab.config import Config, Data
from fedeas.lab.resolve import resolve
from fedeas.lab.sweep import GridConfig, SweepConfig, make_cells, run_specs
from fedeas.partition import IID
from fedeas.planning.policies import make_policy
from fedeas.train.loop import batches, steps_of
from fedeas.train.samples import Samples
from fedeas.train.settings import Local
from helpers.small_federations import write_shapes


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("shapes") / "set")


def config(shapes, cache, **augment):
    content = {
        "device": "cpu",
        "data": {"name": "shapes", "folder": str(shapes)},
        "partition": {"recipe": "dirichlet", "clients": 4, "alpha": 0.3},
        "augment": {"cache": str(cache), "generator": "noise", **augment},
        "federated": {"rounds": 2, "fraction": 1.0, "local": {"epochs": 2, "batch": 16}},
    }
    return read_settings(Config, content, "test")


@pytest.fixture
def steps_taken(monkeypatch):
    """The steps of every client's turn, in order."""
    taken, fit = [], client.fit

    def counted(*arguments):
        taken.append(fit(*arguments))
        return taken[-1]

    monkeypatch.setattr(client, "fit", counted)
    return taken


def test_every_policy_takes_the_steps_of_the_named_one(shapes, tmp_path, steps_taken):
    """And the named one itself trains bit by bit as it does without."""
    rule = "fedeas(beta=6)"
    by_policy = {}
    for policy in (rule, "none", "uniform(total=40)"):
        run(config(shapes, tmp_path / "cache", policy=policy, steps_as=rule), tmp_path / policy)
        by_policy[policy] = list(steps_taken)
        steps_taken.clear()
    assert by_policy["none"] == by_policy["uniform(total=40)"] == by_policy[rule]
    plain = run(config(shapes, tmp_path / "cache", policy=rule), tmp_path / "plain")
    assert steps_taken == by_policy[rule]
    steps_taken.clear()
    alone = run(config(shapes, tmp_path / "cache", policy="none"), tmp_path / "alone")
    assert sum(steps_taken) < sum(by_policy[rule])
    same = run(config(shapes, tmp_path / "cache", policy=rule, steps_as=rule), tmp_path / rule)
    more = run(config(shapes, tmp_path / "cache", policy="none", steps_as=rule), tmp_path / "none")
    assert same["curves"]["drift"] == plain["curves"]["drift"]
    assert more["curves"]["drift"] != alone["curves"]["drift"]
    assert more["experiment"] != alone["experiment"]


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 18, 33])
def test_steps_are_those_that_epochs_have(shapes, n):
    samples = Samples.of(open_dataset("shapes", shapes), np.arange(n))
    local = Local(epochs=3, batch=16)
    rng = np.random.default_rng(0)
    assert steps_of(n, local) == sum(1 for _ in range(3) for _ in batches(samples, 16, rng))


def test_a_sweep_matches_steps_as_it_matches_totals(shapes, tmp_path):
    base = config(shapes, tmp_path / "cache").to_dict()
    grid = GridConfig(
        name="g",
        match=("fedeas(beta=6)",),
        settings={
            "augment.policy": ["match", "none", "random"],
            "augment.steps_as": "match",
            "seed": [7],
        },
    )
    cells = make_cells(list(run_specs(SweepConfig(name="s", base=base, grids=(grid,)))))
    assert {cell.config.augment.steps_as for cell in cells} == {"fedeas(beta=6)"}
    assert len({cell.passes for cell in cells}) == 1
    total = cells[0].generated
    assert cells[2].config.augment.policy == f"random(total={total}, seed=7)"
    assert cells[2].generated == total


def test_random_spends_the_total_anywhere_but_at_empty_clients():
    counts = LabelCounts([[50, 0, 3], [0, 0, 0], [9, 9, 9]])
    plans = [make_policy(f"random(total=100, seed={s})").plan(counts).samples for s in range(200)]
    assert all(plan.sum() == 100 for plan in plans)
    assert all(plan[1].sum() == 0 for plan in plans)
    again = make_policy("random(total=100, seed=3)").plan(counts).samples
    assert np.array_equal(again, plans[3])
    # The flat Dirichlet distribution: all pairs alike, a share's variance that of Beta(1, 5).
    shares = np.array(plans)[:, [0, 2]].reshape(200, 6) / 100
    assert shares.mean(axis=0) == pytest.approx(np.full(6, 1 / 6), abs=0.04)
    assert shares.var() == pytest.approx(5 / (36 * 7), rel=0.2)


def test_a_validation_part_is_taken_from_training_samples_alone(shapes):
    data = open_dataset("shapes", shapes)
    federation = federate(data, IID(clients=3), pool_per_class=10, seed=5, validation=True)
    clients = federation.partition.train.indices
    assert federation.test.max() < data.train_size
    assert not set(federation.test) & (set(clients) | set(federation.pool))
    assert len(federation.test) == sum((np.bincount(data.labels[: data.train_size]) - 10) // 5)
    assert "validation part" in federation.describe()
    other = federate(data, IID(clients=5), pool_per_class=10, seed=5, validation=True)
    assert np.array_equal(other.test, federation.test)
    with pytest.raises(InputError):
        federate(data, IID(clients=3), "merged", validation=True)


def test_a_fixed_pool_is_the_same_for_every_seed(shapes, tmp_path):
    base = config(shapes, tmp_path / "cache")
    pools = {}
    for fixed in (None, 0):
        held = Data(name="shapes", folder=str(shapes), pool_per_class=10, pool_seed=fixed)
        pools[fixed] = [
            resolve(base.replace(data=held, seed=seed)).federation.pool for seed in (1, 2)
        ]
    assert not np.array_equal(*pools[None])
    assert np.array_equal(*pools[0])


def test_a_client_whose_steps_come_to_none_takes_none(tmp_path, steps_taken):
    """`steps = 0` in the settings means epochs."""
    lines = ["site,x,y,label"]
    lines += [f"{s},{i % 7},{i % 5},{i % 2}" for s in "abc" for i in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join([*lines, "d,1,2,0"]) + "\n")
    content = {
        "device": "cpu",
        "data": {"name": str(tmp_path / "rows.csv"), "site": "site", "test_share": 0.0},
        "partition": {"recipe": "column(site)"},
        "augment": {"cache": str(tmp_path / "c"), "generator": "noise", "steps_as": "none"},
        "federated": {"rounds": 1, "fraction": 1.0, "model": {"name": "mlp"}},
    }
    by_policy = {}
    for policy in ("none", "uniform(total=80)"):
        changed = {**content, "augment": {**content["augment"], "policy": policy}}
        changed["data"] = {**content["data"], "test_share": 0.2}
        run(read_settings(Config, changed, "test"), tmp_path / policy)
        by_policy[policy] = [*steps_taken]
        steps_taken.clear()
    assert by_policy["none"] == by_policy["uniform(total=80)"]


def test_rows_for_validation_are_not_the_generators(data):
    content = {
        "device": "cpu",
        "data": {"name": "tables/satimage", "test": "validation"},
        "augment": {"policy": "fedeas(beta=2)", "generator": "gaussian"},
        "partition": {"recipe": "dirichlet", "clients": 4, "alpha": 0.3},
        "federated": {"model": {"name": "mlp"}},
    }
    resolved = resolve(read_settings(Config, content, "test"))
    seen = resolved.generator.training_data.indices
    assert not set(resolved.federation.test) & set(seen)
    assert set(resolved.federation.partition.train.indices) == set(seen)
