"""Tables as people have them: each is understood, or refused in one line that says how to go on."""

import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedeas import FedEAS, InputError, LabelCounts, Plan
from fedeas.cost import Cost
from fedeas.files import read_json, write_json
from fedeas.sources import Columns, read_counts

NORTH_SOUTH = LabelCounts([[120, 15], [9, 80]], ["North", "South"], ["flu", "cold"])
SORTED = LabelCounts([[15, 120], [80, 9]], ["North", "South"], ["cold", "flu"])


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "counts.csv") -> str:
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    return write


# Layouts


@pytest.mark.parametrize("head", ["client,y,n", "client,label,other", "site,class,count"])
def test_classes_with_the_names_of_columns_are_not_guessed(head, write):
    """A wide table whose classes are called like the columns of a long one."""
    path = write(f"{head}\nNorth,55,45\nSouth,90,10\nWest,20,80\n")
    with pytest.raises(
        InputError, match=r"two|three ways: a row per client \(layout='wide'\), or "
    ):
        read_counts(path)
    found = read_counts(path, layout="wide")
    assert found.counts.total == 300
    assert found.counts.class_names == tuple(head.split(",")[1:])
    assert LabelCounts.load(path, layout="wide") == found.counts
    with pytest.raises(InputError, match="layout='wide'"):
        LabelCounts.load(path)


def test_a_row_per_client_and_class_is_added_up(write):
    rows = ["North,flu,2020,100", "North,flu,2021,20", "North,cold,2020,15", "South,flu,2020,9"]
    path = write("\n".join(["hospital,diagnosis,year,patients", *rows, "South,cold,2021,80"]))
    given = "client='hospital', label='diagnosis', count='patients'"
    with pytest.raises(InputError, match=rf"columns=Columns\({given}\)"):
        read_counts(path)
    columns = Columns("hospital", "diagnosis")
    with pytest.raises(
        InputError,
        match=rf"a row per sample \(layout='long'\), or a count per row "
        rf"\(columns=Columns\({given}\)\)",
    ):
        read_counts(path, columns)
    assert read_counts(path, columns, layout="counts").counts == SORTED
    assert read_counts(path, Columns("hospital", "diagnosis", "patients")).counts == SORTED
    assert read_counts(path, columns, layout="long").counts.total == 5


def test_counts_headed_so_are_counts(write):
    path = write("client,label,count\nNorth,flu,120\nNorth,cold,15\nSouth,flu,9\nSouth,cold,80\n")
    found = read_counts(path)
    assert found.counts == SORTED
    assert found.understood == "a count per row in 'count', of 'client' and 'label'"
    assert read_counts(path, layout="long").counts.total == 4
    other = write("client,label,beds\nNorth,flu,120\nNorth,cold,15\nSouth,flu,9\nSouth,cold,80\n")
    with pytest.raises(InputError, match="count='beds'"):
        read_counts(other)
    assert read_counts(other, Columns(count="beds")).counts == SORTED


def test_sums_and_names_that_cannot_be(write, tmp_path):
    rows = "a,x,9007199254740992\n" * 3 + "b,y,1\n"
    with pytest.raises(InputError, match="counts too large"):
        read_counts(write(f"client,label,count\n{rows}"), layout="counts")
    pq.write_table(pa.table({"client": [[1], [2]], "label": ["x", "y"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="not a name or a number"):
        read_counts(str(tmp_path / "x.parquet"))


def test_samples_with_features_are_samples(write):
    """Two rows that agree in all but one number cannot be counts."""
    path = write(",site,label,age\n0,a,flu,30\n1,a,flu,31\n2,a,cold,44\n3,b,flu,30\n4,b,cold,3\n")
    assert read_counts(path).counts.n.tolist() == [[1, 2], [1, 1]]
    path = write("file,site,label,age\nx,a,flu,30\ny,a,flu,31\nz,a,cold,44\nu,b,cold,3\n")
    with pytest.raises(InputError, match="layout='long'"):
        read_counts(path)


def test_parquet_has_the_same_layouts(tmp_path):
    path = tmp_path / "counts.parquet"
    wide = {"client": ["a", "b"], "y": [100, 90], "n": [3, 4]}
    pq.write_table(pa.table(wide), path)
    with pytest.raises(InputError, match="can be read in two ways"):
        read_counts(str(path))
    assert read_counts(str(path), layout="wide").counts.total == 197
    long = {"client": ["a", "a", "b"], "label": ["x", "y", "x"], "count": [100, 3, 90]}
    pq.write_table(pa.table(long), path)
    assert read_counts(str(path)).counts.n.tolist() == [[100, 3], [90, 0]]
    pq.write_table(pa.table(wide | {"region": ["n", "s"], "total": [103, 94]}), path)
    with pytest.raises(InputError, match=r"column 'region' is of type string"):
        LabelCounts.load(path, layout="wide")
    found = read_counts(str(path), layout="wide", drop_columns=["region", "total"])
    assert found.counts.n.tolist() == [[100, 3], [90, 4]]


def test_options_that_contradict_each_other_are_refused(write):
    path = write("client,a,b\nx,1,2\ny,3,4\n")
    for options, message in (
        ({"layout": "tall"}, "unknown layout"),
        ({"layout": "wide", "columns": Columns(label="a")}, "no column of labels"),
        ({"layout": "long", "columns": Columns(count="a")}, "pass layout='counts'"),
        ({"layout": "counts", "transpose": True}, "only a wide table"),
        ({"layout": "long"}, r"columns=Columns\(client='client', label='a'\)"),
        ({"drop_columns": ["c"]}, "no such column; got 'c'; allowed: client, a, b"),
        ({"drop_rows": ["z"]}, "no such row; got 'z'; allowed: x, y"),
    ):
        with pytest.raises(InputError, match=message):
            read_counts(path, **options)
    with pytest.raises(InputError, match="no table; got 'module:name'"):
        read_counts("module:name", layout="wide")


@pytest.mark.parametrize("text", ["0,1\n55,90\n12,7\n", "shop,0,1\na,55,90\nb,12,7\n"])
def test_a_heading_that_may_be_a_client_is_refused(text, write):
    with pytest.raises(InputError, match="a heading, or the counts of a client"):
        read_counts(write(text))


# What is neither a class nor a client


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("client,a,b,n\nx,30,4,34\ny,0,7,7\nz,5,5,10\n", "column n is the sum of the others"),
        ("client,Total,a,b\nx,5,3,2\n", "column Total is called a total"),
        ("client,a,b,Gesamt\nx,3,2,9\ny,4,4,9\n", "column Gesamt is called a total"),
        ("client,a,b\nx,3,2\ny,4,1\nall,9,9\n", "row all is called a total"),
        ("client,a,b\nx,31,20\ny,44,11\nz,75,31\n", "row z is the sum of the others"),
        ("client,year,a,b\nx,1,3,2\ny,2,4,4\n", "column year holds years"),
        ("client,when,a,b\nx,2019,3,2\ny,2021,4,4\n", "column when holds years"),
        ("31,20,51\n44,11,55\n7,9,16\n", "column 2 is the sum of the others"),
        ("class,North,South\nx,9,1\ny,4,4\n", "headed class: are rows classes, or clients"),
        ("client,a,b\nTOTAL AIR,3,2\nsum of us,4,1\n", "row TOTAL AIR is called a total"),
    ],
)  # fmt: skip
def test_totals_and_years_are_not_classes(text, refusal, write):
    path = write(text)
    for read in (read_counts, LabelCounts.load):
        with pytest.raises(InputError, match=refusal):
            read(path)
    # Asked for, the table is read exactly as it is, and what it holds is said.
    assert any(refusal in note for note in read_counts(path, layout="wide").notes)
    LabelCounts.load(path, layout="wide")


@pytest.mark.parametrize(
    "text",
    [
        "client,a,b,c\nx,5,5,0\ny,3,3,0\n",  # two equal classes
        "client,a,b,c\nx,2,1,1\n",  # one client
        "client,a,b\nx,2000,1950\ny,2001,2002\n",  # many samples of every class
        "client,a,b\nAIR AMERICA/TOTAL AIR,3,2\nSD,4,1\n",  # SD is South Dakota
        "client,year 1,year 2\nx,5,9\ny,3,30\n",
    ],
)
def test_coincidences_are_not_totals(text, write):
    assert read_counts(write(text)).counts.K >= 1


def test_a_total_among_counts_per_row_is_left_out_too(write):
    rows = ["North,a,30", "North,b,4", "North,Total,34", "South,a,7", "South,b,2", "South,Total,9"]
    path = write("\n".join(["client,label,count", *rows]))
    with pytest.raises(
        InputError, match=r"column Total is the sum of the others; pass drop_columns="
    ):
        read_counts(path)
    assert read_counts(path, drop_columns=["Total"]).counts.n.tolist() == [[30, 4], [7, 2]]


def test_a_total_among_a_million_clients_is_noticed(tmp_path, fedeas, monkeypatch):
    monkeypatch.setattr(sys.modules["fedeas.cli.plan"], "_STREAM_FROM", 5)
    n = np.random.default_rng(0).integers(1, 50, (20, 3))
    path = tmp_path / "counts.parquet"
    pq.write_table(pa.table({"a": n[:, 0], "b": n[:, 1], "c": n[:, 0] + n[:, 1]}), path)
    result = fedeas("plan", path)
    assert result.code == 2
    assert "column c is the sum of the others" in result.err
    assert fedeas("plan", path, "--drop-column", "c").code == 0
    pq.write_table(pa.table({"a": n[:, 0], "b": n[:, 1], "c": n[:, 2]}), path)
    assert "for 20 clients" in fedeas("plan", path).out


# Cells


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("", "line 3, column b is empty; write 0 for none, or pass blank=0"),
        ("-", "line 3, column b holds '-'; write 0 for none, or pass blank=0"),
        ("NaN", "line 3, column b holds 'NaN'; write 0 for none, or pass blank=0"),
        ("n/a", "line 3, column b holds 'n/a'; write 0 for none, or pass blank=0"),
        ("<5", "line 3, column b holds a suppressed number.*pass suppressed=2"),
        ("1-4", "line 3, column b holds a suppressed number.*pass suppressed=2"),
        ("12 %", "line 3, column b holds a percentage.*size_column"),
        ("12.345", "line 3, column b holds '12.345': .*; pass thousands='.' if it is 12345$"),
        ('"12,345"', "line 3, column b holds '12,345': .*; pass thousands=',' if it is 12345$"),
        ('"3,0"', "line 3, column b holds a decimal number; got '3,0'; pass thousands='.' if"),
        ("many", "line 3, column b holds a word"),
        ("-3", "line 3, column b: not a count; got '-3'"),
        ("0.5", "line 3, column b: not a count; got '0.5'"),
    ],
)
def test_a_cell_that_is_not_a_count(cell, said, write):
    with pytest.raises(InputError, match=said):
        read_counts(write(f"client,a,b\nx,1,2\ny,3,{cell}\n"))


@pytest.mark.parametrize(
    "cells", ["1.0,300.0", "1.000,0.000", "1.000,1200.000", "1.000,5.0", "1e3,1", "7.,8"]
)
def test_decimals_of_data_frames_are_whole_numbers(cells, write):
    one, other = (float(cell) for cell in cells.split(","))
    counts = read_counts(write(f"client,a,b\nx,{cells}\ny,4,4\n")).counts
    assert counts.n[0].tolist() == [one, other]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client,a,b\nx,1,2\ny,3,4\nx,5,6\n", r"client x appears twice \(lines 2, 4\)"),
        ("client,a,b,a\nx,1,2,3\n", "class a appears twice; got 'columns 2 and 4'"),
        ("client,a,b,\nx,1,2,\n", "column 4 has no heading"),
        ("client,a,b\nx,1,2\n,3,4\n", "line 3 has no client name"),
        ("client,a,b\nx,1,200,5\n", "line 2 has 4 cells, the first line has 3"),
        ("client,a,b\nx,1,2\nSource: a survey\n", "line 3 has one cell only"),
        (",a,b\nclient,,\nx,1,2\n", "line 2 has no counts, only a name; got 'client'"),
        ("id,hospital,a,b\n1,7,3,4\n2,9,3,9\n", "two columns of ids"),
        ("cat,dog,client\n5,6,1\n7,9,2\n", "column client seems to hold the clients, but is not"),
        ("shop,cat,dog\n1,5,6\n2,7,9\n", "the first column counts 1, 2"),
        ("shop,cat,dog\n7,5,6\n8,7,9\n9,1,1\n", "the first column counts 7, 8, 9"),
        ("client\ta\tb\nx\t1\n", "delimiter='tab'"),
    ],
)
def test_a_table_that_is_not_in_order(text, said, write):
    with pytest.raises(InputError, match=said):
        read_counts(write(text))


def test_files_that_are_something_else(write):
    for content, name, said in (
        (b"PK\x03\x04...", "x.csv", r"is a workbook or another archive.*\.xlsx"),
        (b"PK\x03\x04...", "x.xlsx", "not a readable workbook"),
        (b"\xd0\xcf\x11\xe0...", "x.csv", r"is a spreadsheet.*save it as \.xlsx or as CSV"),
        (b"...", "x.ods", r"is a spreadsheet.*save it as \.xlsx or as CSV"),
        (b"PAR1...", "x.csv", r"is a Parquet file.*\.parquet"),
    ):
        with pytest.raises(InputError, match=said):
            read_counts(write(content, name))
    with pytest.raises(InputError, match="is a pipe; pipe the table into `fedeas plan -`"):
        read_counts("/dev/fd/63")


@pytest.mark.parametrize("name", ["tab", "\\t", "\t"])
def test_a_tab_can_be_named(name, write):
    path = write("client\tflu\tcold\nNorth\t120\t15\nSouth\t9\t80\n")
    assert read_counts(path, delimiter=name).counts == NORTH_SOUTH


def test_semicolons_need_no_option_where_nothing_else_fits(write):
    assert read_counts(write("client;flu;cold\nNorth;120;15\nSouth;9;80\n")).counts == NORTH_SOUTH
    for text in ("client;flu;cold\nNorth;120\nSouth;9;80\n", "a;b\n1;2;3\n"):
        with pytest.raises(InputError, match="delimiter=';'"):
            read_counts(write(text))
    # Every line has as many commas as semicolons: then commas separate.
    found = read_counts(write("client,a;x,b;y\nNorth,120,15\nSouth,9,80\n")).counts
    assert found.class_names == ("a;x", "b;y")


def test_the_line_that_says_what_was_understood(fedeas, write):
    path = write(
        "client,Atelectasis,Cardiomegaly,Consolidation,Edema\nNIH,66,14,23,11\nX,0,0,0,0\n"
    )
    said = fedeas("plan", path).err.splitlines()
    assert said[0] == (
        f"{path}: 2 clients (NIH, X) x 4 classes (Atelectasis, Cardiomegaly, ...), 114 samples"
    )
    assert said[1] == "1 client has no samples and is ignored: X"
    path = write("client,a,b\nx,1,0\ny,0,0\nz,0,0\n")
    said = fedeas("select", path, "--total", "1")
    assert "1 sample" in said.err.splitlines()[0]
    assert "2 clients have no samples and are ignored: y, z" in said.err


# Costs and budgets


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0.8 seconds", Cost(0.8)),
        ("800ms", Cost(0.8)),
        ("2 minutes", Cost(120.0)),
        ("1 hour", Cost(3600.0)),
        ("0.01 USD", Cost(0.01, "USD")),
        ("$0.01", Cost(0.01, "USD")),
        ("0.01 €", Cost(0.01, "EUR")),
    ],
)
def test_costs_in_words(text, cost):
    assert Cost.parse(text) == cost


@pytest.mark.parametrize(
    ("text", "instead"),
    [("0,8s", "0.8s"), ("0,5 €", "0.5EUR"), ("$0,01", "0.01USD")],
)
def test_costs_that_are_nearly_right(text, instead):
    with pytest.raises(InputError, match=f"; write {instead}$"):
        Cost.parse(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--spend", "3h"], "--spend 3h also needs --cost; e.g. --cost 0.8s"),
        (
            ["--spend", "3h", "--cost", "1s", "--total", "3"],
            "give --spend or --total, not both; got ('3h', 3)",
        ),
        (["--policy", "waterfill"], "waterfill needs a budget; add --total 1000"),
        (["--policy", "uniform"], "uniform needs a budget; add --total 1000"),
    ],
)
def test_a_budget_that_is_missing(arguments, said, fedeas, paper_csv):
    assert fedeas("plan", paper_csv, *arguments).err == f"fedeas: {said}\n"


# Plans as plain tables


def test_a_saved_plan_is_a_plain_table(paper, tmp_path):
    plan = FedEAS().plan(paper)
    for ending, separator in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"plan{ending}"
        plan.save(path)
        frame = pd.read_csv(path, sep=separator, index_col="client")
        np.testing.assert_array_equal(frame.to_numpy(), plan.samples)
        assert tuple(frame.columns) == plan.class_names
        assert Plan.load(path) == plan
    assert {p.name for p in tmp_path.iterdir()} == {
        "plan.csv", "plan.csv.json", "plan.tsv", "plan.tsv.json",
    }  # fmt: skip


def test_a_plan_that_was_written_again_with_the_same_numbers_is_the_plan(paper, tmp_path):
    plan = FedEAS().plan(paper)
    path = tmp_path / "plan.csv"
    plan.save(path)
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(b",", b", "))
    assert Plan.load(path) == plan


def test_a_table_and_facts_that_do_not_belong_together_are_refused(paper, tmp_path):
    small, large = FedEAS(beta=8).plan(paper), FedEAS(beta=12).plan(paper)
    path, beside = tmp_path / "plan.csv", tmp_path / "plan.csv.json"
    small.save(path)
    kept = beside.read_bytes()
    large.save(path)
    beside.write_bytes(kept)
    for read in (Plan.load, LabelCounts.load):
        with pytest.raises(InputError, match=r"do not belong together.*make the plan again"):
            read(path)
    beside.write_bytes(kept[:-9])
    with pytest.raises(InputError, match=r"plan\.csv\.json is damaged; make the plan again"):
        Plan.load(path)
    beside.unlink()
    with pytest.raises(InputError, match=r"put plan\.csv\.json there too, or make the plan again"):
        Plan.load(path)


def test_facts_of_others_and_of_earlier_plans_are_no_obstacle(paper, tmp_path):
    path, beside = tmp_path / "table.csv", tmp_path / "table.csv.json"
    FedEAS().plan(paper).save(path)
    paper.save(path)
    assert not beside.exists()
    assert LabelCounts.load(path) == paper
    for content in ('{"mine": 1}', "not JSON"):
        beside.write_text(content)
        assert LabelCounts.load(path) == paper
        paper.save(path)
        assert beside.read_text() == content
    write_json(beside, {"format": "facts/99"})
    assert LabelCounts.load(path) == paper
    assert read_json(beside)


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_plan_is_read_whatever_its_classes_are_called(tmp_path, ending):
    counts = LabelCounts([[9, 1, 0], [0, 1, 9]], ["a", "b"], ["label", "y", "count"])
    plan = FedEAS(beta=4).plan(counts)
    plan.save(tmp_path / f"plan{ending}")
    assert Plan.load(tmp_path / f"plan{ending}") == plan


def test_a_plan_of_the_first_version_is_still_read(paper, tmp_path):
    """It has its facts in a comment above the table."""
    plan = FedEAS(beta=8).plan(paper)
    plan.save(tmp_path / "new.csv")
    facts = read_json(tmp_path / "new.csv.json")["facts"]
    text = (tmp_path / "new.csv").read_text()
    (tmp_path / "old.csv").write_text(f"# fedeas {json.dumps(facts)}\n{text}")
    assert Plan.load(tmp_path / "old.csv") == plan


def test_a_plan_is_named_by_its_table(paper, tmp_path, fedeas, paper_csv):
    path = tmp_path / "plan.csv"
    said = fedeas("plan", paper_csv, "--out", path).err.splitlines()
    assert said[1:] == [f"wrote {path}", f"wrote {path}.json"]
    with pytest.raises(InputError, match=r"belongs to plan\.csv"):
        Plan.load(f"{path}.json")
    assert f"{path} is a plan" in fedeas("plan", path).err
