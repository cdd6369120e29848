"""The paper's claims: each has a state, and the state follows from runs."""

import json
from collections import Counter

from fedeas.experiments import paper_claims
from fedeas.experiments.evidence import AGREES, CANNOT_TELL, DISAGREES, Evidence
from fedeas.experiments.paper_claims import EXACT, NEEDS_GPU, all_claims, recorded
from fedeas.experiments.tables import Run, make_tables

STATES = {EXACT, AGREES, DISAGREES, CANNOT_TELL, NEEDS_GPU}


def states(sweeps=None):
    return {(claim.where, claim.what): claim.state for claim in all_claims(sweeps)}


def test_the_command_lists_every_claim_with_its_state(fedeas):
    shown = fedeas("paper")
    assert shown.code == 0
    found = json.loads(fedeas("paper", "--json").out)
    assert len(found) >= 65
    assert {claim["state"] for claim in found} <= STATES
    assert all(claim["where"] and claim["what"] and claim["paper"] for claim in found)
    counted = Counter(claim["state"] for claim in found)
    assert counted[EXACT] == 34
    last = shown.out.splitlines()[-1]
    assert all(f"{count} {state}" in last for state, count in counted.items())
    for claim in found:
        if claim["state"] == NEEDS_GPU:
            assert claim["ours"].startswith("fedeas sweep configs/paper/")


def test_without_runs_nothing_is_claimed_of_training():
    found = states({})
    assert Counter(found.values())[AGREES] == 0
    training = {k: v for k, v in found.items() if k[1].startswith(("FedEAS over", "drift"))}
    assert set(training.values()) == {CANNOT_TELL}


def changed(evidence: Evidence, policy: str, points: float) -> Evidence:
    """Runs in which one policy is better or worse by some points."""
    runs = []
    for run in evidence.runs:
        curves = run.result["curves"]
        if run.entry.policy == policy:
            shifted = [None if a is None else a + points / 100 for a in curves["accuracy"]]
            curves = curves | {"accuracy": shifted}
        runs.append(Run(run.entry, run.result | {"curves": curves}))
    return Evidence(runs)


def test_a_state_follows_from_the_runs():
    """Lift one policy by 30 points, and what is said of it turns round."""
    known = recorded()
    over = ("Table 1", "FedEAS over Uniform, alpha = 0.1, points")
    better = states(known | {"cifar10": changed(known["cifar10"], "fedeas(beta=8)", 30)})
    worse = states(known | {"cifar10": changed(known["cifar10"], "fedeas(beta=8)", -30)})
    assert better[over] == AGREES
    assert worse[over] == DISAGREES
    missing = ("Table 1", "FedEAS over Missing-only, alpha = 0.1, points")
    assert (better[missing], worse[missing]) == (AGREES, DISAGREES)


def test_the_recorded_runs_can_stand_in_their_tables():
    known = recorded()
    assert set(known) == {"cifar10", "fashion"}
    for evidence in known.values():
        assert len({run.result["code_hash"] for run in evidence.runs}) == 1
        for table in make_tables(evidence.runs):  # refuses what cannot be compared
            assert table.rows
            assert not table.notes
    grids = {run.entry.grid for run in known["cifar10"].runs}
    assert grids == {"policies", "skew", "budget", "methods", "combined"}
    policies = {
        (r.entry.column, r.entry.policy) for r in known["cifar10"].runs if r.entry.grid == "skew"
    }
    assert len(policies) == 2 * 6  # two alphas, with Full-Balance
    seeds = {run.entry.seed for run in known["cifar10"].runs if run.entry.grid == "policies"}
    assert len(seeds) >= 3


def test_the_recorded_tables_are_printed(fedeas):
    shown = fedeas("paper", "runs", "cifar10", "--grid", "policies", "--per-class")
    assert shown.code == 0
    assert "waterfill" in shown.out
    assert "accuracy by class" in shown.out
    assert "unknown sweep" in fedeas("paper", "runs", "mnist").err
    assert "unknown grid" in fedeas("paper", "runs", "cifar10", "--grid", "x").err


def test_own_runs_take_the_place_of_the_recorded_ones(tmp_path, fedeas):
    from fedeas.experiments.tables import write_index
    from fedeas.files import write_json

    root = tmp_path / "cifar10"
    runs = [run for run in recorded()["cifar10"].runs if run.entry.grid == "policies"]
    for run in runs:
        (root / run.entry.folder).mkdir(parents=True)
        write_json(root / run.entry.folder / "result.json", run.result)
    write_index(root, "cifar10", "", [run.entry for run in runs])
    found = json.loads(fedeas("paper", "--runs", root, "--json").out)
    by_what = {claim["what"]: claim["ours"] for claim in found}
    assert by_what["FedEAS over Uniform, alpha = 0.1, points"] != "-"
    assert by_what["FedEAS over Uniform, alpha = 0.3, points"] == "-"
    assert "is no folder of a sweep" in fedeas("paper", "--runs", tmp_path).err


def test_gpu_hours_follow_the_one_run_that_the_paper_times():
    claims = {claim.what: claim.ours for claim in paper_claims.gpu_claims()}
    # K = 20: six runs without generation, four with FedEAS' total at three alphas, one balanced.
    passes = 6 * 3 * 45_007 + 4 * (3 * 45_007 + 18_080 + 13_437 + 5_675) + 45_007 + 226_783
    hours = 2 * 187 / 60 * passes / (45_007 + 13_437)
    assert f"some {hours:,.0f} h" in claims["accuracies, CIFAR-10, K = 20"]
