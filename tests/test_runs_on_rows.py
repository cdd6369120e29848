"""Whole runs on a table: plan, rows that are generated, training, the same again."""

import numpy as np
import pandas as pd
import pytest

from fedeas.experiments.planning import plan_run
from fedeas.experiments.run import prepare, run
from fedeas.settings.config import Config
from fedeas.settings.reading import read_settings
from tabular import SCHEMA, draw_table


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    rows, labels = draw_table(700)
    frame = pd.DataFrame(rows, columns=SCHEMA.names)
    for at in SCHEMA.categorical.tolist():
        names = dict(enumerate(SCHEMA.columns[at].categories))
        frame[SCHEMA.names[at]] = frame[SCHEMA.names[at]].map(names)
    frame["grade"] = np.array(["good", "fair", "bad"])[labels]
    frame.to_parquet(tmp_path / "loans.parquet")
    return read_settings(Config, {
        "seed": 3, "device": "cpu",
        "data": {"name": str(tmp_path / "loans.parquet"), "label": "grade", "categories": ["term"]},
        "partition": {"recipe": "dirichlet", "clients": 5, "alpha": 0.4},
        "augment": {"policy": "fedeas(beta=12)", "generator": "gaussian",
                    "cache": str(tmp_path / "cache")},
        "federated": {"rounds": 1, "model": {"name": "mlp"}, "local": {"epochs": 1, "batch": 16}},
    })  # fmt: skip


def test_a_run_with_gaussian_fills_its_cache_and_trains(config, tmp_path):
    ready = prepare(config)
    assert ready.generator.moments.counts.sum() == ready.federation.data.train_size
    result = run(config, tmp_path / "run")
    assert result["generated"] == result["generation"]["made"] == ready.plan.total > 0
    assert run(config, tmp_path / "run") == result
    again = run(config, tmp_path / "again")
    assert again["generation"]["made"] == 0  # the same rows, from the cache
    assert again["curves"]["accuracy"] == result["curves"]["accuracy"]


@pytest.mark.parametrize("generator", ["smote", "local-gaussian", "copies"])
def test_a_run_with_clients_own_rows_leaves_out_what_they_cannot_make(config, tmp_path, generator):
    if generator == "smote":
        pytest.importorskip("imblearn")
    own = config.replace(augment=config.augment.replace(generator=generator))
    counts = prepare(config).federation.counts
    least = 2 if generator == "smote" else 1
    plan = plan_run(own, counts)
    whole = plan_run(config, counts)
    np.testing.assert_array_equal(plan.samples, np.where(counts.n >= least, whole.samples, 0))
    assert 0 < plan.total < whole.total
    result = run(own, tmp_path / "run")
    assert result["generation"] == {"made": plan.total, "seconds": 0.0}
    assert not (tmp_path / "cache").exists()
