"""Whole runs on a table: plan, rows that are generated, training, the same again."""

import numpy as np
import pandas as pd
import pytest

from fedeas import InputError
from fedeas.lab.config import Config
from fedeas.lab.experiment import run
from fedeas.lab.report.samples import run_samples
from fedeas.lab.resolve import plan_config, resolve
from fedeas.train.diffusion.quality import measure
from helpers.table_runs import loans_config


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    return loans_config(tmp_path)


def test_a_run_with_gaussian_fills_its_cache_and_trains(config, tmp_path):
    ready = resolve(config)
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
    counts = resolve(config).federation.counts
    least = 2 if generator == "smote" else 1
    plan = plan_config(own, counts)
    whole = plan_config(config, counts)
    np.testing.assert_array_equal(plan.samples, np.where(counts.n >= least, whole.samples, 0))
    assert 0 < plan.total < whole.total
    result = run(own, tmp_path / "run")
    assert result["generation"] == {"made": plan.total, "seconds": 0.0}
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("generator", ["gaussian", "copies"])
def test_what_a_run_generated_is_measured(config, tmp_path, generator):
    """From the cache, or made again of clients' own rows: copies are known as such."""
    own = config.replace(augment=config.augment.replace(generator=generator))
    ready, _ = resolve(own), run(own, tmp_path / "run")
    found = run_samples(tmp_path / "run")
    classes = found.real.data.classes
    wanted = ready.plan.samples.sum(axis=0).tolist()
    assert np.bincount(found.drawn.labels, minlength=len(classes)).tolist() == wanted
    assert found.real.training.size == found.real.data.train_size
    quality = measure(found.drawn, classes, real=found.real)
    near = quality.memorisation
    assert near.suspected == (generator == "copies")
    if generator == "copies":
        assert (near.share, near.median) == (1.0, 0.0)


def test_a_run_whose_table_has_changed_is_not_measured(config, tmp_path):
    run(config, tmp_path / "run")
    frame = pd.read_parquet(config.data.name)
    frame.iloc[50:].to_parquet(config.data.name)
    with pytest.raises(InputError, match="have changed"):
        run_samples(tmp_path / "run")


@pytest.mark.slow
def test_a_report_says_how_good_the_rows_of_a_run_are(config, tmp_path, fedeas):
    run(config, tmp_path / "run")
    done = fedeas("report", tmp_path / "run", "--out", tmp_path / "report", "--quality")
    assert done.code == 0, done.err
    page = (tmp_path / "report" / "report.md").read_text()
    _, _, part = page.partition("## Are the synthetic samples any good?")
    assert "| a judge sees the requested class |" in part
    assert "| accuracy on unseen real rows, trained on these alone |" in part
    assert (tmp_path / "report" / "img" / "run-quality-0-projection.svg").exists()
    (tmp_path / "loans.parquet").unlink()
    again = fedeas("report", tmp_path / "run", "--out", tmp_path / "other", "--quality")
    assert again.code == 0, again.err
    assert "was not measured" in (tmp_path / "other" / "report.md").read_text()
