"""The statistics of the study, on made-up runs whose answers are known by hand."""

import csv
import json
import re
import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fedeas._internal.specs import parse
from fedeas.data import open_dataset
from fedeas.errors import InputError
from fedeas.generators import make_generator
from fedeas.lab.results import FinishedRun, SweepEntry, export, write_index
from reproduction.central import REAL, CentralRun, read_central, write_central
from reproduction.claims import recorded
from reproduction.evidence import holm_p_values
from reproduction.generator import STEPS, held_out
from reproduction.page import MARKER, NOT_RUN, fill_page, study_tables
from reproduction.rates import RateRun, best_rates, read_rates, write_rates
from reproduction.study import (
    FULL_SIZE,
    RECORD,
    StudyRun,
    _check_finished,
    difference,
    first_step,
    means,
    merge_rows,
    primary,
    read_rows,
    repeated,
    replication,
    secondary,
    write_rows,
)  # fmt: skip

CONFIGS = Path(__file__).parents[2] / "reproduction" / "configs" / "evidence"
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
    # A lead of two deviations at a level of .0125: six seeds have a power of 79.8 %, seven of 91.
    assert found.seeds_needed == 7
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
        *runs(FULL_SIZE, "fedeas", [0.62, 0.64, 0.66], grid="first-step"),
        *runs(FULL_SIZE, "none", [0.60, 0.60, 0.60], grid="first-step"),
    ]
    assert primary(step) == []
    ((found, p, _),) = first_step(step)
    assert (found.what, p) == ("fedeas - none", pytest.approx(3 * found.p))


def test_a_replication_is_a_family_of_its_own_below_the_primary_one():
    again = [replace(run, data="letter, replication") for run in LETTER]
    assert primary([*LETTER, *again]) == primary(LETTER)
    ((found, p, _),) = replication(again)
    assert p == pytest.approx(2 * found.p)
    tables = study_tables([*LETTER, *again])
    for name, data in (("primary", "letter"), ("replication", "letter, replication")):
        (line,) = tables[name].splitlines()[2:]
        assert line.startswith(f"| {data} |")


def test_a_family_says_what_its_leads_were_in_the_tenth_before():
    earlier = [replace(run, before_last=run.accuracy - 0.01 * run.seed) for run in LETTER]
    before = [replace(run, accuracy=run.before_last) for run in earlier]
    (found,) = [lead for lead, _, _ in primary(before)]
    (line,) = study_tables(earlier)["primary"].splitlines()[2:]
    assert line.endswith(f" | {found.mean:+.2f} ± {found.half:.2f} |")


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


def test_a_record_grows_by_runs_that_are_of_one_version_on_every_data_set():
    new = [*runs("letter", "fedeas", [0.9]), *runs("satimage", "fedeas", [0.8])]
    merged = merge_rows(LETTER, new)
    assert len(merged) == len(LETTER) + 1
    assert means(merged)["letter"]["fedeas"].value == pytest.approx((0.9 + 0.64 + 0.66) / 3)

    later = [replace(run, code="later") for run in new]
    again = replace(later[0], grid="again")
    assert len(merge_rows(LETTER, [*later[1:], again])) == len(LETTER) + 2
    with pytest.raises(InputError, match="several versions of the code on letter"):
        merge_rows(LETTER, later)


def test_the_sweeps_train_at_the_rates_that_were_best_on_validation_samples():
    """Of the data sets whose rates were chosen; ways share a rate as the plan says."""
    best = best_rates(read_rates())
    assert best
    for data in {data for data, _ in best}:
        sweep = tomllib.loads((CONFIGS / f"{FILES[data]}.toml").read_text(encoding="utf-8"))
        base = sweep["base"]["federated"]["local"]["learning_rate"]
        assert base == best.get((data, "fedeas"), base)  # ways may be chosen one after another
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


@pytest.mark.slow
def test_the_generator_of_cifar10_saw_the_images_that_no_client_holds(data):
    sweep = tomllib.loads((CONFIGS / "cifar10.toml").read_text(encoding="utf-8"))
    _, settings = parse(sweep["base"]["augment"]["generator"])
    folder = Path(__file__).parents[2] / settings["model"]
    training = json.loads((folder / "generator.json").read_text(encoding="utf-8"))["training"]
    seen = held_out(open_dataset("cifar10"))
    assert (training["data"], training["samples"]) == (seen.fingerprint, seen.train_size)
    assert training["steps"] == STEPS
    assert make_generator(f"diffusion(model={folder})").classes == seen.classes


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


FINDINGS = Path(__file__).parents[2] / "docs" / "findings.md"
PAGE = """Before.

<!-- study:primary -->
old
<!-- /study -->

<!-- study:real-sites -->
<!-- /study -->
"""


def test_the_page_has_the_tables_of_a_record(tmp_path, reproduction, monkeypatch):
    """LETTER has a lead of 4.00 ± 4.97 with p .0742, times four for the family of four."""
    record, page = tmp_path / "study.csv", tmp_path / "page.md"
    write_rows(record, LETTER)
    monkeypatch.setattr("reproduction.study.RECORD", record)
    page.write_text(PAGE)
    assert reproduction("study", "--page", page).code == 0
    text = page.read_text()
    assert text.startswith(
        "Before.\n\n<!-- study:primary -->\n\n| data | seeds | FedEAS - uniform |"
    )
    assert "| letter | 3 | +4.00 ± 4.97 | .297 | open | 7 |" in text
    assert f"<!-- study:real-sites -->\n\n{NOT_RUN}\n\n<!-- /study -->" in text
    assert "old" not in text
    assert fill_page(text, study_tables(LETTER)) == text
    with pytest.raises(InputError, match="unknown table of the study; got 'real'"):
        fill_page(PAGE.replace("real-sites", "real"), study_tables(LETTER))


def test_every_way_has_its_accuracy_and_fedeas_minus_it():
    fewer = runs("letter", "mine", [0.5, 0.5])
    assert study_tables([*LETTER, *fewer])["drawn-sites"].splitlines() == [
        "| accuracy, % | letter, 3 seeds |",
        "| --- | --- |",
        "| copies | 61.0 ± 0.0<br>(+3.00 ± 4.97) |",
        "| uniform | 60.0 ± 0.0<br>(+4.00 ± 4.97) |",
        "| fedeas | 64.0 ± 5.0 |",
        "| mine | 50.0 (50.0 to 50.0)<br>(+13.00 ± 12.71)<br>2 seeds |",
    ]
    assert study_tables(LETTER)["real-sites"] == NOT_RUN


def test_central_classifiers_stand_beside_the_federation(tmp_path):
    central = [
        CentralRun("letter", what, 100, seed, 10, 0.1, accuracy, accuracy, agreement)
        for what, accuracy, agreement in ((REAL, 0.9, 0.8), ("both", 0.7, 1.0))
        for seed in (1, 2, 3)
    ]
    write_central(tmp_path / "central.csv", central)
    assert read_central(tmp_path / "central.csv") == central
    assert study_tables(LETTER, central)["central"].splitlines() == [
        f"| accuracy, % | central, on {REAL} | central, on both | agreement | FedEAS | best way |",
        "| --- | --- | --- | --- | --- | --- |",
        "| letter, 3 seeds | 90.0 ± 0.0 | 70.0 ± 0.0 | 80.0 ± 0.0 | 64.0 ± 5.0 | 64.0 ± 5.0 (fedeas) |",  # noqa: E501
    ]


def test_secondary_comparisons_are_columns():
    table = study_tables(LETTER)["secondary"].splitlines()
    assert table[0].startswith("| data | water-filling minus FedEAS | FedEAS minus copies |")
    assert re.match(r"\| letter \|  \| \+3\.00 ± 4\.97 \(p \.122\) \|", table[2])


def test_the_noise_floor_is_a_repeated_run_minus_the_first_of_the_same_seed():
    first = replace(LETTER[0], grid="where")
    again = replace(first, grid="again", accuracy=first.accuracy + 0.0025)
    others = [run for run in LETTER if run is not LETTER[0]]
    assert repeated([first, *others, again]) == {("letter", first.way): [pytest.approx(0.25)]}
    assert repeated(LETTER) == {}
    ways = study_tables(LETTER)["drawn-sites"]
    assert (
        study_tables([*LETTER, *runs("letter", "fedeas", [0.6], grid="again")])["drawn-sites"]
        == ways
    )


def test_other_figures_are_compared_where_they_are_known():
    """By hand: the means over classes are the accuracies, but for FedEAS two points higher."""
    better = [replace(run, class_mean=run.class_mean + 0.02) for run in LETTER[:3]]
    sites = [replace(run, data="forest", worst_site=run.accuracy / 2) for run in LETTER]
    assert study_tables([*better, *LETTER[3:], *sites])["classes"].splitlines()[2:] == [
        "| letter |  | +5.00 ± 4.97 | +6.00 ± 4.97 |",
        "| forest |  | +3.00 ± 4.97 | +4.00 ± 4.97 |",
        "| forest, worst site |  | +1.50 ± 2.48 | +2.00 ± 2.48 |",
    ]


def test_a_grid_that_did_not_finish_is_refused(tmp_path):
    """What is missing may be what diverged."""
    entries = [
        SweepEntry(grid, "", None, "", "fedavg", "none", (), 1, f"{grid}-{number}")
        for grid in ("where", "none")
        for number in (1, 2)
    ]
    write_index(tmp_path, "letter", "", entries)
    begun, ended = ([FinishedRun(entry, {}) for entry in entries[:n]] for n in (1, 2))
    with pytest.raises(InputError, match="1 runs that did not finish; got 'where-2'"):
        _check_finished(tmp_path, begun)
    _check_finished(tmp_path, ended)  # a grid that was not begun is not run


def test_a_run_in_two_grids_is_refused():
    with pytest.raises(InputError, match="two grids"):
        merge_rows(LETTER, runs("letter", "fedeas", [0.5], grid="other"))
    assert len(merge_rows(LETTER, runs("letter", "fedeas", [0.5], grid="again"))) == len(LETTER) + 1


def test_the_recorded_ways_take_the_same_steps():
    """But for a client with a single sample, which takes none where nothing is generated."""
    steps: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for row in read_rows(RECORD):
        if row.steps is not None:
            steps[row.data, row.seed][row.way] = row.steps
    assert len(steps) >= 50
    for ways in steps.values():
        ways.pop("none, own steps", None)
        without = [ways.pop(name) for name in ("none", "class weights") if name in ways]
        assert len(set(ways.values())) == 1
        assert all(0.9 * max(ways.values()) < one <= max(ways.values()) for one in without)


def test_what_moves_by_more_than_a_point_at_the_end_is_not_flat():
    assert study_tables(LETTER)["flat"] == "Every setting is flat."
    climbing = [replace(run, before_last=run.accuracy - 0.011) for run in LETTER[:3]]
    table = study_tables([*climbing, *LETTER[3:]])["flat"].splitlines()
    assert table[2:] == ["| letter | fedeas +1.1 |"]


def test_the_findings_have_a_place_for_every_comparison_of_the_plan():
    named = MARKER.findall(FINDINGS.read_text(encoding="utf-8"))
    assert sorted(named) == sorted(study_tables([]))


def test_the_findings_are_those_of_the_record():
    page = FINDINGS.read_text(encoding="utf-8")
    assert fill_page(page, study_tables(read_rows(RECORD), read_central())) == page


def study_run(grid, policy, seed, accuracy, data="natural/covertype_areas"):
    """A run of the study, made from a recorded one."""
    run = recorded()["cifar10"].runs[0]
    settings = run.result["settings"]
    result = run.result | {
        "seed": seed,
        "curves": run.result["curves"] | {"accuracy": accuracy},
        "settings": settings
        | {
            "data": settings["data"] | {"name": data},
            "augment": settings["augment"] | {"policy": policy, "steps_as": "fedeas(beta=10)"},
        },
    }
    return FinishedRun(msgspec.structs.replace(run.entry, grid=grid, seed=seed), result)


def test_curves_are_of_three_ways_on_one_data_set(tmp_path, reproduction):
    rounds = len(recorded()["cifar10"].runs[0].result["curves"]["accuracy"])
    rising = [None, *(n / 100 for n in range(2, rounds + 1))]
    kept = [
        study_run("where", "fedeas(beta=10)", 2, rising),
        study_run("none", "none", 1, rising),
        study_run("copies", "copies(total=9)", 1, rising),
    ]
    others = [
        study_run("where", "uniform(total=9)", 1, rising),
        study_run("again", "fedeas(beta=10)", 1, rising),
        study_run("rates-none", "none", 101, rising),
    ]
    runs_file, out = tmp_path / "forest.jsonl", tmp_path / "curves.csv"
    export(runs_file, [*kept, *others])
    assert reproduction("study", "--curves", runs_file, "--out", out).code == 0
    with out.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {(line["way"], line["seed"]) for line in lines} == {
        ("fedeas", "2"), ("none", "1"), ("copies", "1"),
    }  # fmt: skip
    assert len(lines) == 3 * (rounds - 1)
    assert lines[0] == {"way": "copies", "round": "2", "seed": "1", "accuracy": "0.02000"}
    assert reproduction("study", "--curves", runs_file).code != 0
    export(runs_file, [*kept, study_run("none", "none", 1, rising, "tables/letter")])
    assert reproduction("study", "--curves", runs_file, "--out", out).code != 0
