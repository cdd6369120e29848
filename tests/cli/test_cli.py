import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from typer.main import get_command

from fedeas import EqualReduction, FedEAS, LabelCounts, Partition, Plan
from fedeas._internal import specs
from fedeas.cli.main import app
from helpers.interrupted import interrupted


def test_compare_prints_the_papers_reductions(fedeas, paper_csv):
    result = fedeas("compare", paper_csv, "--beta", 12, "--json")
    rows = {row["policy"]: row for row in json.loads(result.out)}
    wanted = {
        "fedeas": 0.5178,
        "uniform": 0.3718,
        "missing-only": 0.4424,
        "waterfill": 0.5326,
        "full-balance": 1.0,
    }
    assert {name: round(rows[name]["reduction"], 4) for name in wanted} == wanted
    for row in rows.values():
        assert row.keys() >= {"policy", "total", "reduction", "synthetic_share", "negative_gain"}


def test_compare_says_why_a_policy_is_missing(fedeas, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("client,0,1,2\n0,9,1,1\n1,1,9,1\n")
    result = fedeas("compare", path)
    assert result.code == 0
    assert "missing-only: no client lacks a class" in result.out
    assert json.loads(fedeas("compare", path, "--json").out)[2]["note"]


def test_compare_takes_a_total_and_policies(fedeas, paper_csv):
    arguments = [
        "--total",
        5000,
        "--policy",
        "fedeas",
        "--policy",
        "uniform",
        "--policy",
        "waterfill",
    ]
    rows = json.loads(fedeas("compare", paper_csv, *arguments, "--json").out)
    totals = {row["total"] for row in rows}
    assert len(rows) == 3
    assert len(totals) == 1
    assert 4950 < totals.pop() <= 5000


def test_plan_saves_what_it_shows(fedeas, paper_csv, paper, tmp_path):
    out = tmp_path / "plan.json"
    result = fedeas("plan", paper_csv, "--beta", 8, "--cost", "0.8s", "--out", out)
    assert result.code == 0
    assert "8,673" in result.out
    assert "1h 56min" in result.out
    assert Plan.load(out).counts_hash == paper.fingerprint
    assert Plan.load(out).total == 8673


def test_plan_by_total_and_by_money(fedeas, paper_csv):
    by_total = json.loads(fedeas("plan", paper_csv, "--total", 13437, "--json").out)
    assert by_total["total"] == 13437
    by_money = json.loads(
        fedeas("plan", paper_csv, "--cost", "0.01EUR", "--spend", "134.37EUR", "--json").out
    )
    assert by_money["total"] == 13437
    assert by_money["cost"] == {"amount": pytest.approx(134.37), "unit": "EUR"}
    exact = json.loads(
        fedeas("plan", paper_csv, "--policy", "waterfill", "--total", 777, "--json").out
    )
    assert exact["total"] == 777


def test_plan_shows_the_largest_clients_first(fedeas, paper_csv):
    result = fedeas("plan", paper_csv, "--rows", 3)
    assert "17 more" in result.out


def test_names_are_shown_as_they_are(fedeas, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("client,[red]cat,dog\n[bold]x[/bold],9,1\n")
    result = fedeas("plan", path)
    assert "[bold]x[/bold]" in result.out
    assert "dog" in result.out


def test_partition_writes_indices_and_counts(fedeas, paper, tmp_path):
    out, counts = tmp_path / "cut.npz", tmp_path / "counts.csv"
    result = fedeas(
        "partition", "balanced:10x6000", "--recipe", "flbench", "--clients", 20, "--alpha", 0.1,
        "--out", out, "--counts", counts,
    )  # fmt: skip
    assert result.code == 0
    assert "45,007 of 60,000 samples and 14,993 for testing" in result.out
    assert LabelCounts.load(counts) == paper
    assert len(Partition.load(out).train) == 20


@pytest.mark.parametrize("recipe", ["dirichlet", "iid", "shards"])
def test_every_recipe_has_a_command(fedeas, recipe):
    arguments = ["partition", "balanced:4x100", "--recipe", recipe, "--clients", 5]
    if recipe == "dirichlet":
        arguments += ["--alpha", 0.5]
    found = json.loads(fedeas(*arguments, "--json").out)
    assert found["train"] == 400
    assert found["imbalance"] == pytest.approx(found["cross_client"] + found["overall"])
    assert fedeas(*arguments).code == 0


def test_a_table_is_partitioned_by_its_sites_and_keeps_the_names_of_classes(fedeas, tmp_path):
    rows = "".join(f"{'ab'[i % 2]},{i % 7},{['neg', 'pos', 'pos'][i % 3]}\n" for i in range(60))
    (tmp_path / "visits.csv").write_text("clinic,age,result\n" + rows)
    arguments = [tmp_path / "visits.csv", "--recipe", "column(clinic)", "--label", "result"]
    counts = tmp_path / "counts.csv"
    result = fedeas("partition", *arguments, "--counts", counts)
    assert result.code == 0, result.err
    expected = LabelCounts([[10, 20], [10, 20]], ("a", "b"), ("neg", "pos"))
    assert LabelCounts.load(counts) == expected
    refused = fedeas("partition", *arguments, "--clients", 2)
    assert (refused.code, "no setting 'clients'" in refused.err) == (2, True)


def test_a_data_set_is_partitioned_by_its_name(fedeas, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    (tmp_path / "data").mkdir()
    rows = "".join(f"{'ab'[i % 2]},{i % 7},{['neg', 'pos'][i // 50]}\n" for i in range(100))
    (tmp_path / "data" / "visits.csv").write_text("clinic,age,result\n" + rows)
    arguments = ["partition", "visits", "--label", "result", "--json"]
    by_site = json.loads(fedeas(*arguments, "--recipe", "column(clinic)").out)
    assert (by_site["clients"], by_site["classes"], by_site["train"]) == (2, 2, 80)
    iid = fedeas(*arguments, "--recipe", "iid", "--clients", 4)
    assert json.loads(iid.out)["clients"] == 4
    assert "20 test samples" in iid.err


def test_bad_partitions_end_in_one_line(fedeas):
    for arguments in (
        ["balanced:4x100", "--clients", 5],
        ["balanced:4x100", "--clients", 500, "--alpha", 1],
        ["balanced:4x100", "--clients", 5, "--recipe", "magic"],
        ["balanced:4x100", "--clients", 5, "--recipe", "iid", "--alpha", 1],
        ["balanced:4x100", "--clients", 5, "--alpha", 1, "--shards-per-client", 2],
        ["labels.csv", "--clients", 5, "--alpha", 1],
        ["balanced:4x100", "--recipe", "column(site)"],
        ["balanced:4x100", "--recipe", "iid"],
        ["balanced:4x100", "--clients", 5, "--alpha", 1, "--out", "cut.csv"],
    ):
        result = fedeas("partition", *arguments)
        assert result.code == 2
        assert len(result.err.splitlines()) == 1


def test_python_dash_m_and_version():
    for command in (["--version"], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "fedeas", *command], capture_output=True, text=True, check=True
        )
        assert "fedeas" in done.stdout


def every_command():
    """Yield the words of every command, those of the wings too."""
    for name, command in get_command(app).commands.items():
        yield [name]
        yield from ([name, inner] for inner in getattr(command, "commands", {}))


def test_help_fits_on_a_screen(fedeas, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lengths = {}
    for command in every_command():
        lines = fedeas(*command, "--help").out.splitlines()
        assert max(map(len, lines)) <= 80
        lengths[" ".join(command)] = len(lines)
    assert lengths["plan"] > 20
    assert {name: length for name, length in lengths.items() if length > 55} == {}


def test_a_closed_pipe_is_no_error(paper_csv):
    for options in ("", "--json"):
        shell = f"{sys.executable} -W ignore -m fedeas plan {paper_csv} {options} | true"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True
        )
        assert done.returncode == 0
        assert len(done.stderr.splitlines()) <= 1


def test_ctrl_c_stops_with_one_word_and_leaves_nothing(tmp_path):
    slow = ["balanced:10x6000", "--recipe", "flbench", "--clients", "100", "--alpha", "0.05"]
    place = tmp_path / "place"
    place.mkdir()
    command = ["partition", *slow, "--out", "cut.npz"]
    process, said = interrupted(command, place, tmp_path / "hook")
    assert process.returncode == 130
    assert [text.strip() for text in said] == ["", "stopped"]
    assert not list(place.iterdir())


def test_odd_terminals(paper_csv, tmp_path):
    names = tmp_path / "counts.csv"
    names.write_text("client,éléphant,dog\nx,9000000,1\n", encoding="utf-8")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    narrow = {"COLUMNS": "30", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-W", "ignore", "-m", "fedeas"]
    for environment in (ascii_only, narrow):
        for arguments in (
            ["plan", names],
            ["compare", paper_csv],
        ):
            done = subprocess.run(
                [*command, *arguments], env=environment, capture_output=True, text=True, check=True
            )
            assert "…" not in done.stdout
    full = f"{sys.executable} -W ignore -m fedeas plan {paper_csv} > /dev/full"
    done = subprocess.run(["bash", "-c", full], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No space left" in done.stderr.splitlines()[-1]


def test_nothing_asked_shows_the_help(fedeas):
    for arguments in ([], ["generator"], ["cache"]):
        result = fedeas(*arguments)
        assert "Usage" in result.out + result.err
        assert "fedeas: " not in result.err


def test_a_wrong_number_of_the_paper_fails(reproduction, monkeypatch):
    good = reproduction("counts")
    assert good.code == 0
    assert "DIFFERS" not in good.out
    original = FedEAS.fill
    monkeypatch.setattr(FedEAS, "fill", lambda self, n: original(self, n) + (n == 0))
    bad = reproduction("counts")
    assert bad.code == 1
    assert "DIFFERS" in bad.out


def test_threads_do_not_spin_unless_the_user_says_so(fedeas, paper_csv, monkeypatch):
    """Beside other work, threads that wait by spinning made a fill ten times slower."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    fedeas("plan", paper_csv)
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    fedeas("plan", paper_csv)
    assert os.environ["OMP_WAIT_POLICY"] == "active"


def test_long_names_keep_to_one_line(fedeas, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "counts.csv"
    path.write_text(
        "client,a class with a very long name indeed,another class with a long name,x\n"
        "The University Hospital of a Town with a Long Name,900,3,0\n"
        "emergency department,10,2000,300\n"
    )
    done = fedeas("plan", path)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    (top,) = (n for n, line in enumerate(lines) if set(line.strip()) == {"─"})
    first, second, after = (line.strip() for line in lines[top + 1 : top + 4])
    assert {first[:20], second[:20]} == {"The University Hospi", "emergency department"}
    assert not after


@pytest.mark.parametrize("words", [["plann"], ["cache", "lst"]])
def test_a_misspelled_command_is_corrected_once(fedeas, words):
    result = fedeas(*words)
    assert result.code == 2
    assert result.err.count("Did you mean") == 1


@pytest.mark.parametrize("name", ["counts.csv", "counts.json", "sets.csv"])
def test_a_plan_opens_its_table_once(name, tmp_path):
    table = tmp_path / name
    if name == "sets.csv":
        table.write_text("site,flu,cough,images\nA,1,0,60\nA,1,1,9\nB,0,1,30\nB,0,0,40\n")
    else:
        LabelCounts([[90, 10, 0], [30, 40, 30]], ["north", "south"], ["a", "b", "c"]).save(table)
    program = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, values: event == 'open' and opened.append(values[0]))\n"
        "from fedeas.cli.main import main\n"
        "try: main()\n"
        "finally: print(sum(str(path) == sys.argv[2] for path in opened), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "plan", table]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "1"


def test_a_plan_is_made_once_and_its_policy_read_once(paper_csv, fedeas, monkeypatch):
    calls = Counter()

    def counted(owner, name):
        original = getattr(owner, name)

        def call(*arguments, **more):
            calls[name] += 1
            return original(*arguments, **more)

        monkeypatch.setattr(owner, name, call)

    counted(FedEAS, "plan")
    counted(specs, "_texts")
    assert fedeas("plan", paper_csv, "--policy", "fedeas").code == 0
    assert calls == {"plan": 1, "_texts": 1}


def test_where_no_beta_fits_equal_reduction_plans_and_says_so(tmp_path, fedeas):
    """Two hundred clients of fifty samples of one class each: nothing by any beta below a share."""
    table = tmp_path / "counts.csv"
    sites, classes = [f"site {k}" for k in range(200)], [f"class {c}" for c in range(20)]
    counts = LabelCounts(50 * np.eye(20, dtype=int).repeat(10, axis=0), sites, classes)
    counts.save(table)
    total = EqualReduction().plan(counts).total
    done = fedeas("plan", table)
    assert done.code == 0
    assert f"equal-reduction: {total:,} samples" in done.out
    assert total > 0
    assert "no beta keeps fewer than 25 %" in " ".join(done.out.split())
    facts = json.loads(fedeas("plan", table, "--json").out)
    assert (facts["policy"], facts["total"]) == ("equal-reduction", total)


@pytest.mark.parametrize(
    ("typed", "call"),
    [
        ([], "beta=12"),
        (["--policy", "equal-reduction"], "reduction=0.5"),
        (["--policy", "uniform(total=100)"], 'plan="plan.csv"'),
        (["--target", "federation"], 'plan="plan.csv"'),
    ],
)
def test_the_line_for_an_app_makes_exactly_this_plan(typed, call, paper_csv, fedeas):
    done = fedeas("plan", paper_csv, *typed)
    assert call in " ".join(done.out.split())
