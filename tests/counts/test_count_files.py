"""The strict form of a table of counts: what is read and refused, and what plans write."""

import io
import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedeas import FedEAS, InputError, LabelCounts, Plan
from fedeas.planning.cost import Cost

TWO = "site,pneumonia,covid\nA,120,30\nB,10,300\n"


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "counts.csv") -> str:
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(
    "text",
    [
        "client,a,b,c\nx,5,5,0\ny,3,3,0\n",  # two equal classes
        "client,a,b,c\nx,2,1,1\n",  # one client
        "client,a,b\nx,2000,1950\ny,2001,2002\n",  # many samples of every class
        "client,year 1,year 2\nx,5,9\ny,3,30\n",
        "client,a,b\nSD,3,2\nAll Saints,4,1\n",
        "client,0,1\nx,3,2\ny,4,1\n",
        "client,a;x,b;y\nx,3,2\ny,4,1\n",
        "client, a,b\nx,1.0,300.0\ny,4, 4\n\n",
    ],
)
def test_coincidences_are_counts(text, write):
    assert LabelCounts.load(write(text)).K >= 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("client,a,b\nx,1,2\ny,3,many\n", ["line 3", "'b'", "'many'"]),
        ("client,a,b\nx,1,2\ny,3,\n", ["line 3", "'b'", "''"]),
        ("client,a,b\nx,1,2\ny,3,1_000\n", ["line 3", "1_000"]),
        ("client,a,b\nx,1,2\ny,3,-4\n", ["line 3", "-4"]),
        ("client,a,b\nx,1,2\ny,3,\u0664\n", ["line 3"]),
        ("client,a,b\nx,1,2\ny,3,99999999999999999999\n", ["line 3"]),
        ("client,a,b\nx,1,2\nx,3,4\n", ["'x'", "line 2", "line 3"]),
        ("client,a,b\nx,1,2\ny,3\n", ["line 3"]),
        ("client,a,b\nx,1,2\n,3,4\n", ["line 3"]),
        ("client,a,a\nx,1,2\n", ["column 3", "'a'"]),
        ("client,a,\nx,1,2\n", ["column 3"]),
        ("client,class,count\nx,a,1\nx,b,1\nx,a,2\n", ["line 2", "line 4", "'a'", "'x'"]),
        ("client,a,b,n\nx,30,4,34\ny,0,7,7\nz,5,5,10\n", ["'n'"]),
        ("client,a,b\nx,31,20\ny,44,11\nTotal,80,31\n", ["'Total'"]),
    ],
)
def test_what_is_not_in_the_strict_form_is_named(text, named, write):
    path = write(text)
    with pytest.raises(InputError) as refused:
        LabelCounts.load(path)
    assert all(part in str(refused.value) for part in [*named, f"fedeas counts {path}"])


def test_counts_come_from_standard_input(fedeas, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(TWO))
    done = fedeas("plan", "-", "--json")
    assert (
        json.loads(done.out)["counts_hash"]
        == LabelCounts([[120, 30], [10, 300]], ["A", "B"], ["pneumonia", "covid"]).fingerprint
    )


def test_a_folder_of_images_is_counted(tmp_path, fedeas):
    for client, label, number in (("a", "cat", 3), ("a", "dog", 1), ("b", "cat", 2)):
        folder = tmp_path / "set" / client / label
        folder.mkdir(parents=True)
        for k in range(number):
            (folder / f"{k}.png").touch()
    done = fedeas("plan", tmp_path / "set", "--json")
    assert (
        json.loads(done.out)["counts_hash"]
        == LabelCounts([[3, 1], [2, 0]], ["a", "b"], ["cat", "dog"]).fingerprint
    )
    assert fedeas("plan", tmp_path / "set" / "a").code == 2


def test_files_that_are_something_else(write):
    for content, name in (
        (b"PK\x03\x04rest", "x.csv"), (b"\xd0\xcf\x11\xe0", "x.csv"), (b"PAR1", "x.csv"),
        (b"", "x.csv"), (b"client,a,b\n", "x.csv"),
        (b"PAR1", "x.parquet"), (b"{", "x.json"), (b"[[1, 2]]", "x.json"), (b"", "x.ods"),
        (TWO.encode("utf-16"), "x.csv"), (b"client,a,b\n\xfc,1,2\n", "x.csv"),
        (b'{"counts": [[1, 2], [3]]}', "x.json"), (b'{"counts": [[1, 2.5]]}', "x.json"),
        (b'{"counts": [[1, 2]], "clients": ["a", "b"]}', "x.json"),
    ):  # fmt: skip
        with pytest.raises(InputError):
            LabelCounts.load(write(content, name))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".json", ".parquet"])
def test_counts_that_text_cannot_hold_are_not_written_as_text(tmp_path, ending):
    counts = LabelCounts([[1, 2], [3, 4]], ["a", "b"], ["p", "Total"])
    path = tmp_path / f"counts{ending}"
    if ending in (".csv", ".tsv"):
        with pytest.raises(InputError, match="Total"):
            counts.save(path)
        assert not path.exists()
    else:
        counts.save(path)
        assert LabelCounts.load(path) == counts


def test_parquet_has_the_same_forms(tmp_path):
    path = tmp_path / "counts.parquet"
    pq.write_table(pa.table({"place": ["a", "b"], "x": [100, 90], "y": [3, 4]}), path)
    assert LabelCounts.load(path).n.tolist() == [[100, 3], [90, 4]]
    long = {"client": ["a", "a", "b"], "class": ["x", "y", "x"], "count": [100, 3, 90]}
    pq.write_table(pa.table(long), path)
    assert LabelCounts.load(path).n.tolist() == [[100, 3], [90, 0]]
    frame = pd.DataFrame({"x": [1, 2], "y": [3, 4]}, index=["a", "b"])
    frame.to_parquet(path)
    assert LabelCounts.load(path) == LabelCounts(frame)
    for wrong in (
        {"client": ["a", "b"], "x": [1, 2], "region": ["n", "s"]},
        {"client": ["a", "b"], "x": [1, 2], "y": [0.5, 1.0]},
        {"client": ["a", "b"], "x": [1, 2], "y": [3, None]},
        {"client": ["a", "a"], "x": [1, 2], "y": [3, 4]},
        {"client": ["a", "b"], "x": [1, 2], "total": [3, 4]},
    ):
        pq.write_table(pa.table(wrong), path)
        with pytest.raises(InputError):
            LabelCounts.load(path)


def test_the_line_that_says_what_was_understood(fedeas, write):
    path = write("client,a,b\nx,1,0\ny,0,0\nz,0,0\n")
    first, second = fedeas("plan", path, "--total", "1").err.splitlines()[:2]
    assert "3 clients (x, y, z) x 2 classes (a, b), 1 sample" in first
    assert second.endswith("y, z")


def test_a_total_among_a_million_clients_is_noticed(tmp_path, fedeas, monkeypatch):
    monkeypatch.setattr(sys.modules["fedeas.cli.plan"], "_STREAM_FROM", 5)
    n = np.random.default_rng(0).integers(1, 50, (20, 3))
    path = tmp_path / "counts.parquet"
    pq.write_table(pa.table({"a": n[:, 0], "b": n[:, 1], "c": n[:, 0] + n[:, 1]}), path)
    result = fedeas("plan", path)
    assert result.code == 2
    assert "'c'" in result.err
    out = tmp_path / "clean.parquet"
    assert fedeas("counts", path, "--drop-column", "c", "--out", out).code == 0
    assert "for 20 clients" in fedeas("plan", out).out
    pq.write_table(pa.table({"a": n[:, 0], "b": n[:, 1], "c": n[:, 2]}), path)
    assert "for 20 clients" in fedeas("plan", path).out


# Costs and budgets


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0.8 s", Cost(0.8)),
        ("800ms", Cost(0.8)),
        ("2min", Cost(120.0)),
        ("1 h", Cost(3600.0)),
        ("0.01 USD", Cost(0.01, "USD")),
    ],
)
def test_costs_with_units(text, cost):
    assert Cost.parse(text) == cost


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--spend", "3h"], "--spend 3h also needs --cost; e.g. --cost 0.8s"),
        (
            ["--spend", "3h", "--cost", "1s", "--total", "3"],
            "give --spend or --total, not both; got ('3h', 3)",
        ),
        (["--policy", "waterfill"], "waterfill needs a budget; give a total, such as 1000"),
        (["--policy", "uniform"], "uniform needs a budget; give a total, such as 1000"),
    ],
)
def test_a_budget_that_is_missing(arguments, said, fedeas, paper_csv):
    assert fedeas("plan", paper_csv, *arguments).err == f"fedeas: {said}\n"


# Plans


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_plan_as_text_is_a_plain_table_and_nothing_else(paper, tmp_path, ending):
    plan = FedEAS().plan(paper)
    path = tmp_path / f"plan{ending}"
    plan.save(path)
    frame = pd.read_csv(
        path, sep="," if ending == ".csv" else "\t", index_col="samples to generate"
    )
    np.testing.assert_array_equal(frame.to_numpy(), plan.samples)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    with pytest.raises(InputError, match=r"plan\.json"):
        Plan.load(path)


@pytest.mark.parametrize("ending", [".json", ".parquet"])
def test_a_plan_is_loaded_whatever_its_classes_are_called(tmp_path, ending, fedeas):
    counts = LabelCounts([[9, 1, 0], [0, 1, 9]], ["a", "b"], ["label", "total", "count"])
    plan = FedEAS(beta=4).plan(counts)
    path = tmp_path / f"plan{ending}"
    plan.save(path)
    assert Plan.load(path) == plan
    assert fedeas("plan", path).code == 2  # it is no table of counts


@pytest.mark.parametrize("cell", ["1e999", "-1", "NaN", "1.5", "true", '"3"'])
def test_a_json_cell_that_is_no_count_is_one_line(fedeas, tmp_path, cell):
    file = tmp_path / "counts.json"
    file.write_text(f'{{"counts": [[{cell}, 2], [3, 4]]}}')
    done = fedeas("plan", file)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
