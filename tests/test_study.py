"""The statistics of the study, on made-up runs whose answers are known by hand."""

import pytest

from reproduction.evidence import holm_p_values
from reproduction.study import (
    StudyRun,
    difference,
    means,
    primary,
    read_rows,
    secondary,
    write_rows,
)  # fmt: skip


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
