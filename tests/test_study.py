"""The statistics of the study, on made-up runs whose answers are known by hand."""

import tomllib
from pathlib import Path

import pytest

from reproduction.evidence import holm_p_values
from reproduction.rates import RateRun, best_rates, read_rates, write_rates
from reproduction.study import (
    StudyRun,
    difference,
    first_step,
    means,
    primary,
    read_rows,
    secondary,
    write_rows,
)  # fmt: skip

CONFIGS = Path(__file__).parent.parent / "reproduction" / "configs" / "evidence"
FILES = {
    "letter": "letter", "satimage": "satimage", "loans": "loans", "forest": "forest",
    "rodents": "rodents", "CIFAR-10": "cifar10", "Fashion-MNIST": "fashion",
}  # fmt: skip


def runs(data, way, accuracies, grid="where"):
    return [
        StudyRun(data, way, seed, 0.1, 10, accuracy, accuracy, None, accuracy, grid, "e", "c")
        for seed, accuracy in enumerate(accuracies, start=1)
    ]


LETTER = [
    *runs("letter", "fedeas", [0.62, 0.64, 0.66]),
    *runs("letter", "uniform", [0.60, 0.60, 0.60]),
    *runs("letter", "copies", [0.61, 0.61, 0.61]),
]


def test_a_difference_is_paired_and_has_students_interval():
    """Points 2, 4, 6: mean 4, deviation 2, so t = 4 / (2 / sqrt 3) with two degrees of freedom."""
    found = difference(LETTER, "letter", "fedeas", "uniform")
    assert (found.seeds, found.mean, found.spread) == (3, pytest.approx(4), pytest.approx(2))
    assert found.half == pytest.approx(4.9683, abs=1e-3)
    assert found.p == pytest.approx(0.0742, abs=1e-4)
    # A lead of two deviations: five seeds have a power of 80 %, four have not.
    assert found.seeds_needed == 5
    assert difference(LETTER, "letter", "fedeas", "random") is None
    assert difference(LETTER, "forest", "fedeas", "uniform") is None


def test_the_family_is_of_four_also_while_some_are_missing():
    ((found, p, verdict),) = primary(LETTER)
    assert (p, verdict) == (pytest.approx(4 * found.p), "open")
    clear = [
        *runs("satimage", "fedeas", [0.70, 0.71, 0.70, 0.71]),
        *runs("satimage", "uniform", [0.80, 0.81, 0.801, 0.809]),
    ]
    assert [verdict for *_, verdict in primary([*LETTER, *clear])] == [
        "open",
        "refuted in direction",
    ]
    assert holm_p_values([0.01, 0.02, 0.5, 1.0]) == [0.04, 0.06, 1.0, 1.0]


def test_the_first_step_on_a_gpu_is_a_family_of_its_own():
    step = [
        *runs("CIFAR-10", "fedeas", [0.62, 0.64, 0.66], grid="first-step"),
        *runs("CIFAR-10", "none", [0.60, 0.60, 0.60], grid="first-step"),
    ]
    assert primary(step) == []
    ((found, p, _),) = first_step(step)
    assert (found.what, p) == ("fedeas - none", pytest.approx(3 * found.p))


def test_only_real_sites_have_the_private_generator_everywhere():
    """The policies of letter have another generator: they are not compared under its name."""
    forest = [*runs("forest", "fedeas", [0.7, 0.8]), *runs("forest", "copies", [0.6, 0.6])]
    private = "FedEAS with the private generator, epsilon 1, minus copies"
    compared = [found.data for what, found, _ in secondary([*LETTER, *forest]) if what == private]
    assert compared == ["forest"]


def test_runs_are_written_and_read_and_repetitions_do_not_count(tmp_path):
    again = runs("letter", "fedeas", [0.1], grid="again")
    write_rows(tmp_path / "study.csv", [*LETTER, *again])
    read = read_rows(tmp_path / "study.csv")
    assert sorted(read, key=repr) == sorted([*LETTER, *again], key=repr)
    assert means(read)["letter"]["fedeas"].value == pytest.approx(0.64)


def test_the_sweeps_train_at_the_rates_that_were_best_on_validation_samples():
    """Of the data sets whose rates were chosen; ways share a rate as the plan says."""
    best = best_rates(read_rates())
    assert best
    for data in {data for data, _ in best}:
        sweep = tomllib.loads((CONFIGS / f"{FILES[data]}.toml").read_text(encoding="utf-8"))
        base = sweep["base"]["federated"]["local"]["learning_rate"]
        assert base == best[data, "fedeas"]
        for grid in sweep["grid"]:
            if grid["name"].startswith("rates"):
                continue
            rate = grid.get("federated", {}).get("local", {}).get("learning_rate", base)
            way = {"none": "none", "none-own-steps": "none", "copies": "none"}.get(
                grid["name"], "fedeas"
            )
            if grid["name"] == "class-weights":
                way = "class weights"
            assert rate == best.get((data, way), base), (data, grid["name"])


def test_the_best_rate_is_that_of_the_highest_mean_over_seeds(tmp_path):
    runs = [
        RateRun("letter", "none", rate, seed, accuracy, "c")
        for rate, accuracies in {0.1: (0.6, 0.7), 0.3: (0.5, 0.9), 1.0: (0.7, 0.7)}.items()
        for seed, accuracy in enumerate(accuracies)
    ]
    runs.append(RateRun("letter", "none", 3.0, 0, 0.99, "c"))  # its other seed diverged
    write_rates(tmp_path / "rates.csv", runs)
    assert sorted(read_rates(tmp_path / "rates.csv"), key=repr) == sorted(runs, key=repr)
    assert best_rates(runs) == {("letter", "none"): 0.3}
