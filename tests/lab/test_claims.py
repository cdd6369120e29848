"""The paper's claims: each has a state, and the state follows from runs."""

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs

from fedeas._internal.files import write_json
from fedeas.lab.results import FinishedRun, Mean, write_index
from fedeas.lab.tables import make_tables
from helpers.made_up_paper_results import cells_of, write_results
from reproduction.claims import EXACT, INFERRED, NEEDS_GPU, all_claims, recorded
from reproduction.evidence import (
    AGREES,
    AGREES_REDUCED,
    CANNOT_TELL,
    DISAGREES,
    Column,
    Evidence,
    PairedTest,
    holm,
    judge,
    minus,
    points,
)

STATES = {EXACT, INFERRED, AGREES, AGREES_REDUCED, DISAGREES, CANNOT_TELL, NEEDS_GPU}
OVER = ("Table 1", "FedEAS over Uniform, CIFAR-10, K = 20, alpha = 0.1, points")


def states(sweeps=None):
    return {(claim.where, claim.what): claim.state for claim in all_claims(sweeps)}


# The listing


def test_the_command_lists_every_claim_with_its_state(reproduction):
    shown = reproduction("claims")
    assert shown.code == 0
    found = json.loads(reproduction("claims", "--json").out)
    assert len(found) >= 100
    assert {claim["state"] for claim in found} <= STATES
    assert all(claim["where"] and claim["what"] and claim["paper"] for claim in found)
    counted = Counter(claim["state"] for claim in found)
    assert (counted[EXACT], counted[INFERRED]) == (30, 4)
    last = shown.out.splitlines()[-1]
    assert all(f"{count} {state}" in last for state, count in counted.items())
    for claim in found:
        if claim["state"] == NEEDS_GPU:
            assert claim["command"].startswith("fedeas sweep reproduction/configs/paper/")
            assert claim["command"] in shown.out
        if claim["state"] in (AGREES, AGREES_REDUCED):
            assert claim["split"] in ("merged", "official")


def test_the_headline_and_every_gap_of_the_paper_are_listed():
    """Abstract: +18.82; gaps at K = 100 and on CIFAR-100; the parts of the gain recovered."""
    printed = {(claim.where, claim.what): claim.paper for claim in all_claims({})}
    gap = "FedEAS over Uniform, {}, points"
    assert printed["Abstract", gap.format("CIFAR-10, K = 100, alpha = 0.05")] == "+18.82"
    for column, value in (
        ("CIFAR-10, K = 20, alpha = 0.05", "+13.28"),
        ("CIFAR-10, K = 20, alpha = 0.1", "+7.22"),
        ("CIFAR-10, K = 20, alpha = 0.3", "+1.81"),
        ("CIFAR-10, K = 100, alpha = 0.1", "+13.74"),
        ("CIFAR-10, K = 100, alpha = 0.3", "+5.27"),
        ("CIFAR-100, K = 20, alpha = 0.1", "+5.16"),
        ("CIFAR-100, K = 100, alpha = 0.1", "+8.32"),
    ):
        assert printed["Table 1", gap.format(column)] == value
    part = "part of Full-Balance's gain, {}, alpha = 0.1: more than half"
    for column, value in (
        ("CIFAR-10, K = 20", "66 %"), ("CIFAR-10, K = 100", "77 %"),
        ("CIFAR-100, K = 20", "51 %"), ("CIFAR-100, K = 100", "67 %"),
    ):  # fmt: skip
        assert printed["Sec. 4.2", part.format(column)] == value


def test_numbers_with_a_constant_that_was_searched_for_are_marked(reproduction):
    inferred = {claim.what for claim in all_claims({}) if claim.state == INFERRED}
    assert inferred == {
        "ablation, floor(6 sqrt(mean))",
        "ablation, floor(0.6 mean (1 - H))",
        "budget ratio, square root",
        "budget ratio, 0.77 mean (1 - H)",
    }
    shown = reproduction("counts").out
    assert shown.count("equal *") == 4
    assert "the constant 6" in shown
    assert "7.26 cut off" in shown
    assert "32 of 32 numbers are equal" in shown


def test_without_runs_nothing_is_claimed_of_training():
    found = states({})
    assert not Counter(found.values()).keys() & {AGREES, AGREES_REDUCED}
    training = {k: v for k, v in found.items() if "K = 20" in k[1] and "CIFAR-10," in k[1]}
    assert len(training) > 15
    assert set(training.values()) <= {CANNOT_TELL, NEEDS_GPU}


# Noise: one definition for all claims


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def p_of_three(values: list[float]) -> float:
    """Student's t with two degrees of freedom: P(|T| > t) = 1 - t / sqrt(t^2 + 2)."""
    mean = sum(values) / 3
    spread = math.sqrt(sum((x - mean) ** 2 for x in values) / 2)
    t = abs(mean) / (spread / math.sqrt(3))
    return 1 - t / math.sqrt(t * t + 2)


def test_a_difference_is_tested_by_students_t_over_its_own_seeds():
    values = [0.039, 0.0277, 0.0225]
    test = PairedTest.of([by_seed(*values)])
    assert test.p_value == pytest.approx(p_of_three(values), rel=1e-9)
    assert test.agrees
    behind = PairedTest.of([by_seed(*(-v for v in values))])
    assert behind.p_value == pytest.approx(test.p_value)
    assert not behind.agrees
    # The interval that stands beside it is of the same t: 4.303 standard errors.
    assert points(values) == Mean.of(values).points("+") == "+3.0 ± 2.1"


def test_one_seed_tells_nothing():
    assert PairedTest.of([by_seed(0.5)]).p_value is None
    assert judge([(PairedTest.of([by_seed(0.5)]), True)]) == [CANNOT_TELL]
    assert PairedTest.of([]).p_value is None
    assert PairedTest.of([by_seed(0.5, 0.6), {}]).p_value is None  # nothing is common


def test_several_differences_are_as_weak_as_the_weakest_and_fail_with_one():
    strong, weak = [0.5, 0.51, 0.52], [0.02, 0.03, -0.005]
    both = PairedTest.of([by_seed(*strong), by_seed(*weak)])
    assert both.agrees
    assert both.p_value == pytest.approx(p_of_three(weak))
    below = [-0.5, -0.51, -0.52]
    mixed = PairedTest.of([by_seed(*strong), by_seed(*below)])
    assert not mixed.agrees
    assert mixed.p_value == pytest.approx(2 * p_of_three(below))  # Bonferroni, of two


def test_holms_correction_by_hand():
    # .05/4 = .0125, .05/3 = .0167, .05/2 = .025: the third fails, and all after it.
    assert holm([0.03, 0.001, 0.016, 0.04]) == [False, True, True, False]
    assert holm([0.0167, 0.9, 0.9]) == [False, False, False]
    assert holm([]) == []


def test_states_follow_from_holm_over_all_that_is_judged():
    values = [0.039, 0.0277, 0.0225]  # p = .0258
    one = PairedTest.of([by_seed(*values)])
    assert judge([(one, True)]) == [AGREES]
    assert judge([(one, False)]) == [AGREES_REDUCED]
    assert judge([(one, True), (one, True)]) == [CANNOT_TELL] * 2  # .0258 * 2 > .05
    strong = PairedTest.of([by_seed(-0.5, -0.501, -0.502)])
    assert judge([(one, True), (strong, True), (PairedTest.of([by_seed(1.0)]), True)]) == [
        AGREES, DISAGREES, CANNOT_TELL,
    ]  # fmt: skip


def test_equal_differences_have_no_noise_at_all():
    assert PairedTest.of([by_seed(0.1, 0.1)]).p_value == 0.0
    assert PairedTest.of([by_seed(-0.1, -0.1)]).agrees is False
    assert PairedTest.of([by_seed(0.0, 0.0)]).p_value == 1.0


# Runs are found by their settings


def changed(evidence: Evidence, policy: str, amount: float) -> Evidence:
    """Runs in which one policy is better or worse by some points."""
    runs = []
    for run in evidence.runs:
        curves = run.result["curves"]
        if run.entry.policy == policy:
            shifted = [None if a is None else a + amount / 100 for a in curves["accuracy"]]
            curves = curves | {"accuracy": shifted}
        runs.append(FinishedRun(run.entry, run.result | {"curves": curves}))
    return Evidence(runs)


def test_a_state_follows_from_the_runs():
    """Lift one policy by 30 points, and what is said of it turns round."""
    known = recorded()
    better = states(known | {"cifar10": changed(known["cifar10"], "fedeas(beta=8)", 30)})
    worse = states(known | {"cifar10": changed(known["cifar10"], "fedeas(beta=8)", -30)})
    assert (better[OVER], worse[OVER]) == (AGREES_REDUCED, DISAGREES)
    missing = ("Table 1", "FedEAS over Missing-only, CIFAR-10, K = 20, alpha = 0.1, points")
    assert (better[missing], worse[missing]) == (AGREES_REDUCED, DISAGREES)


def test_names_of_grids_do_not_matter():
    known = recorded()
    renamed = {
        name: Evidence([replace(r, entry=structs.replace(r.entry, grid=f"x{n % 3}"))
                        for n, r in enumerate(own.runs)])
        for name, own in known.items()
    }  # fmt: skip
    assert list(all_claims(renamed)) == list(all_claims(known))


def test_runs_are_not_compared_across_codes_rates_or_protocols():
    runs = recorded()["cifar10"].runs
    own = [r for r in runs if r.entry.grid == "policies"]

    def other(run: FinishedRun, where: str, value: object) -> FinishedRun:
        result = json.loads(json.dumps(run.result))
        if where == "versions":
            result["versions"] = value
        else:
            *above, last = where.split(".")
            place = result["settings"]
            for key in above:
                place = place[key]
            place[last] = value
        return FinishedRun(run.entry, result)

    def speaks(found: list[FinishedRun]) -> bool:
        claims = {(c.where, c.what): c for c in all_claims({"x": Evidence(found)})}
        return claims[OVER].ours != "-"

    eas = [r for r in own if r.entry.policy == "fedeas(beta=8)"]
    rest = [r for r in own if r.entry.policy != "fedeas(beta=8)"]
    assert speaks(own)
    for where, value in (
        ("versions", "fedeas 99"),
        ("federated.local.learning_rate", 0.02),
        ("data.protocol", "paper"),
        ("partition.clients", 100),
        ("federated.model.projection", 256),
    ):
        assert not speaks([*rest, *(other(r, where, value) for r in eas)]), where


def test_the_fedeas_of_a_comparison_is_the_one_that_missing_only_is_matched_to():
    """Also where a sweep of beta has several others in the same setting."""
    runs = [r for r in recorded()["cifar10"].runs if r.entry.grid != "ablation"]  # of other code
    (group,) = [
        g for g in Evidence(runs).groups
        if g.common["partition.alpha"] == 0.1
        and g.common["federated.local.learning_rate"] == 0.1
    ]  # fmt: skip
    assert list(group.betas) == [4, 8, 12, 16, 20]
    assert group.main == "fedeas(beta=8)"
    for policy in ("uniform", "missing-only", "waterfill"):
        for seed, result in group.results(policy).items():
            assert result["generated"] == group.results("fedeas")[seed]["generated"]
    assert {r["generated"] for r in group.uniform_like("fedeas(beta=16)").values()} == {13_420}
    only = Evidence([r for r in recorded()["cifar10"].runs if r.entry.grid == "budget"])
    (alone,) = only.groups
    assert alone.main is None  # five betas, and nothing says which is the paper's
    assert alone.results("uniform") == {}


def test_what_is_said_of_eta_is_what_is_said_of_accuracy():
    """At equal totals these are one statement; they can have no different states."""
    known = recorded()
    budget = [r for r in known["cifar10"].runs if r.entry.grid in ("budget", "policies")]

    def shifted(by: float) -> Evidence:
        """Five betas over three seeds, FedEAS ahead by some points and a little noise."""
        runs = []
        for seed in (42, 43, 44):
            for run in budget:
                lead = by if run.entry.policy.startswith("fedeas") else 0.0
                accuracy = [0.3 + run.result["generated"] / 1e5 + lead + seed * 1e-6 * (1 + lead)]
                result = run.result | {"seed": seed}
                curves = run.result["curves"] | {"accuracy": accuracy * 25}
                runs.append(FinishedRun(run.entry, result | {"curves": curves}))
        return Evidence(runs)

    for by, state in ((0.05, AGREES_REDUCED), (-0.05, DISAGREES)):
        found = states({"x": shifted(by)})
        assert found["Sec. 4.3", "FedEAS over Uniform at every beta, points"] == state
        assert found["Sec. 4.3", "eta of FedEAS / Uniform, above one at every beta"] == state


def test_runs_that_learnt_nothing_settle_nothing():
    """All accuracies equal: there is no gain to take a part of, and no difference to test."""
    flat = {}
    for name, own in recorded().items():
        runs = [
            FinishedRun(
                r.entry, r.result | {"curves": r.result["curves"] | {"accuracy": [0.1] * 25}}
            )
            for r in own.runs
        ]
        flat[name] = Evidence(runs)
    found = {c.what: c for c in all_claims(flat) if c.split}
    part = found["part of Full-Balance's gain, CIFAR-10, K = 20, alpha = 0.1: more than half"]
    assert part.ours.startswith("no gain to recover")
    accuracies = {what: c.state for what, c in found.items() if "points" in what}
    assert set(accuracies.values()) == {CANNOT_TELL}


def test_peaks_are_held_against_peaks():
    """FedEAS with SCAFFOLD: the paper's 78.18 stands beside peaks, so ours does too."""
    known = recorded()
    claims = {c.what: c for c in all_claims(known)}
    ours = next(c for what, c in claims.items() if what.startswith("FedEAS with SCAFFOLD"))
    assert ours.paper == "+4.52, +2.42"  # 78.18 - 73.66 and - 75.76
    peaks = {
        (r.entry.method, r.entry.policy): 100 * max(r.result["curves"]["accuracy"])
        for r in known["cifar10"].runs if r.entry.grid == "combined"
    }  # fmt: skip
    both = peaks["scaffold", "fedeas(beta=8)"]
    alone = peaks["fedavg", "fedeas(beta=8)"], peaks["scaffold", "none"]
    assert ours.ours.startswith(", ".join(f"{both - a:+.1f}" for a in alone))


# The recorded runs


def test_the_recorded_runs_can_stand_in_their_tables():
    """Grids may come from two codes, a table from one."""
    known = recorded()
    assert set(known) == {"cifar10", "fashion"}
    for evidence in known.values():
        for table in make_tables(evidence.runs):  # refuses what cannot be compared
            assert table.rows
            assert not table.notes
            codes = {r.result["versions"] for r in evidence.runs if r.entry.grid == table.grid}
            assert len(codes) == 1
        for group in evidence.groups:
            assert len({run.result["versions"] for run in group.runs}) == 1
    grids = {run.entry.grid for run in known["cifar10"].runs}
    assert grids >= {"policies", "skew", "budget", "methods", "combined"}
    policies = {
        (r.entry.column, r.entry.policy) for r in known["cifar10"].runs if r.entry.grid == "skew"
    }
    assert len(policies) == 2 * 6  # two alphas, with Full-Balance
    seeds = {run.entry.seed for run in known["cifar10"].runs if run.entry.grid == "policies"}
    assert len(seeds) >= 3


def test_a_gain_is_never_over_a_run_of_another_code():
    runs = recorded()["cifar10"].runs
    own = [r for r in runs if r.entry.grid == "budget"]
    other = [
        FinishedRun(r.entry, r.result | {"versions": "fedeas 99"})
        for r in runs
        if r.entry.grid == "policies"
    ]
    gains = {t.grid: [row.gain for row in t.rows] for t in make_tables([*own, *other])}
    assert set(gains["budget"]) == {None}
    assert None not in {row.gain for row in make_tables([*own, *(
        r for r in runs if r.entry.grid == "policies")])[0].rows}  # fmt: skip


def test_the_recorded_tables_are_printed(reproduction):
    shown = reproduction("tables", "cifar10", "--grid", "policies")
    assert shown.code == 0
    assert "waterfill" in shown.out
    (code,) = {
        r.result["versions"] for r in recorded()["cifar10"].runs if r.entry.grid == "policies"
    }
    assert f"versions: policies {code}" in (" ".join(shown.out.split()))
    assert "unknown sweep" in reproduction("tables", "mnist").err
    assert "unknown grid" in reproduction("tables", "cifar10", "--grid", "x").err


def test_the_command_and_the_tables_mean_the_same_by_plus_minus(fedeas, reproduction):
    """A mean over seeds and half of the 95 % interval of Student's t."""
    (table,) = [t for t in make_tables(recorded()["cifar10"].runs) if t.grid == "policies"]
    gain = next(row.gain for row in table.rows if row.policy == "fedeas(beta=8)")
    found = {c["what"]: c["ours"] for c in json.loads(reproduction("claims", "--json").out)}
    ours = found["FedEAS over FedAvg, CIFAR-10, K = 20, alpha = 0.1, points"]
    assert ours.startswith(gain.points("+"))
    assert "± is half the 95 % confidence interval" in reproduction("claims").out


# Own runs


def test_own_runs_take_the_place_of_the_recorded_ones(tmp_path, reproduction):
    root = tmp_path / "cifar10"
    runs = [run for run in recorded()["cifar10"].runs if run.entry.grid == "policies"]
    for run in runs:
        (root / run.entry.folder).mkdir(parents=True)
        write_json(root / run.entry.folder / "result.json", run.result)
    write_index(root, "cifar10", "", [run.entry for run in runs])
    found = json.loads(reproduction("claims", root, "--json").out)
    by_what = {claim["what"]: claim for claim in found}
    assert by_what[OVER[1]]["ours"] != "-"
    assert by_what[OVER[1]]["split"] == "official"
    assert by_what[OVER[1].replace("0.1", "0.3")]["ours"] == "-"
    assert "is not the folder of a sweep" in reproduction("claims", tmp_path).err


@pytest.fixture(scope="module")
def full_size(tmp_path_factory):
    """Both of the paper's sweeps, finished without training, at the accuracies printed there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedeas.lab.experiment.library_version", lambda _: "2.13.0")  # 3 s of 600
        cells = {name: cells_of(name, patch) for name in ("cifar10", "cifar100")}
        root = tmp_path_factory.mktemp("full")
        for name, own in cells.items():
            write_results(root / name, own, lambda _: True)
    return root, cells


def test_a_finished_sweep_of_the_papers_configs_settles_every_claim(full_size, reproduction):
    """At the accuracies that the paper prints, every claim agrees, under both protocols."""
    root, _ = full_size
    shown = reproduction("claims", root / "cifar10", root / "cifar100", "--json")
    assert shown.code == 0, shown.err
    found = [claim for claim in json.loads(shown.out) if claim["split"]]
    assert Counter(claim["state"] for claim in found) == {AGREES: len(found)}
    by_claim: dict[str, set[str]] = {}
    for claim in found:
        by_claim.setdefault(claim["what"], set()).add(claim["split"])
    levels = {what for what in by_claim if "within 2 points" in what}
    assert all(by_claim[what] == {"merged"} for what in levels)  # another test set has others
    assert all(by_claim[what] == {"merged", "official"} for what in by_claim.keys() - levels)
    # Nothing is left open but what Fashion-MNIST says.
    everything = json.loads(shown.out)
    left = [c["what"] for c in everything if c["state"] in (CANNOT_TELL, NEEDS_GPU)]
    assert len(left) == 3
    assert all("Fashion-MNIST" in what for what in left)


def test_accuracies_the_other_way_round_disagree(tmp_path, full_size, reproduction):
    cells = [
        c for c in full_size[1]["cifar10"]
        if c.spec.grid.name == "table-1-k20" and c.config.data.split == "merged"
    ]  # fmt: skip
    root = write_results(tmp_path / "other", cells, lambda _: True, flip=True)
    found = json.loads(reproduction("claims", root, "--json").out)
    judged = {c["what"]: c["state"] for c in found if c["split"]}
    over = [state for what, state in judged.items() if what.startswith("FedEAS over")]
    assert len(over) == 3 * 3  # policies and alphas
    assert set(over) == {DISAGREES}
    assert judged["accuracies within 2 points, CIFAR-10, K = 20"] == DISAGREES


@pytest.mark.parametrize(
    "grid", ["table-1-k20", "table-1-k100", "budget", "ablation", "combined", "turbo"]
)
def test_each_grid_alone_settles_what_it_covers(tmp_path, full_size, reproduction, grid):
    """A sweep of beta alone used to end the command."""
    own = [c for c in full_size[1]["cifar10"] if c.spec.grid.name == grid]
    root = write_results(tmp_path / grid, own, lambda c: c.config.data.split == "official")
    shown = reproduction("claims", root, "--json")
    assert shown.code == 0, shown.err
    found = [c for c in json.loads(shown.out) if c["split"]]
    assert {c["state"] for c in found} == {AGREES}
    assert {c["split"] for c in found} == {"official"}
    covered = {"table-1-k20": 22, "table-1-k100": 13, "budget": 2, "ablation": 2,
               "combined": 3, "turbo": 1}  # fmt: skip
    assert len(found) == covered[grid], [c["what"] for c in found]


def test_columns_are_printed_as_the_paper_names_them():
    assert str(Column("cifar10", 20, 0.1)) == "CIFAR-10, K = 20, alpha = 0.1"
    assert minus({1: 3.0, 2: 5.0}, {2: 1.0, 3: 0.0}) == {2: 4.0}
