"""Tables as people have them: each is understood, or refused in one line that says how to go on."""

import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedeas import FedEAS, InputError, LabelCounts, Plan
from fedeas._util.files import read_json, write_json
from fedeas.data.count_sources import read_counts
from fedeas.planning.cost import Cost

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
    for read in (read_counts, LabelCounts.load):
        with pytest.raises(InputError, match=r"label='|keep=True"):
            read(path)
    client = head.partition(",")[0]
    file = read_counts(path, client=client, keep=True)
    assert file.counts.total == 300
    assert file.counts.class_names == tuple(head.split(",")[1:])


def test_a_row_per_client_and_class_is_added_up(write):
    rows = ["North,flu,2020,100", "North,flu,2021,20", "North,cold,2020,15", "South,flu,2020,9"]
    path = write("\n".join(["hospital,diagnosis,year,patients", *rows, "South,cold,2021,80"]))
    columns = {"client": "hospital", "label": "diagnosis"}
    with pytest.raises(InputError, match="client='hospital', label='diagnosis', count='patients'"):
        read_counts(path)
    with pytest.raises(
        InputError, match=r"line 3 counts flu of North again: 20, after 100 in line 2"
    ):
        read_counts(path, **columns, count="patients")
    added = {"count": "patients", "add_up": True}
    assert read_counts(path, **columns, **added).counts == SORTED
    assert read_counts(path, label="diagnosis", **added).counts == SORTED
    assert read_counts(path, **columns).counts.total == 5
    # No client has two samples of a class, beside numbers: these may be the counts.
    once = write("client,kind,beds\nNorth,flu,120\nNorth,cold,15\nSouth,flu,9\nSouth,cold,80\n")
    with pytest.raises(InputError, match="count='beds'"):
        read_counts(once, label="kind")
    assert read_counts(once, label="kind", count="beds").counts == SORTED


@pytest.mark.parametrize("first", [5, 6])
def test_a_long_table_with_a_row_twice_is_refused(write, fedeas, first):
    """As a wide one is: whether 5 and 6 are 11 samples, or one of them is wrong, nobody knows."""
    path = write(f"client,class,count\nA,x,3\nA,y,4\nB,x,{first}\nB,y,1\nB,x,6\n")
    with pytest.raises(
        InputError, match=rf"line 6 counts x of B again: 6, after {first} in line 4"
    ):
        LabelCounts.load(path)
    done = fedeas("plan", path)
    assert done.code == 2
    assert "--add-up" in done.err
    columns = {"client": "client", "label": "class", "count": "count"}
    added = read_counts(path, **columns, add_up=True).counts
    assert added.n.tolist() == [[3, 4], [first + 6, 1]]


@pytest.mark.parametrize("label", ["class", "label", "Class"])
def test_a_clean_long_table(label, write):
    rows = "North,flu,120\nNorth,cold,15\nSouth,flu,9\nSouth,cold,80\n"
    path = write(f"client,{label},count\n{rows}")
    assert LabelCounts.load(path) == SORTED
    assert read_counts(path).description == f"a count per row in 'count', of 'client' and {label!r}"
    assert read_counts(path, client="client", label=label, keep=True).counts.total == 4


def test_sums_and_names_that_cannot_be(write, tmp_path):
    rows = "a,x,9007199254740992\n" * 3 + "b,y,1\n"
    with pytest.raises(InputError, match="counts too large"):
        read_counts(write(f"client,label,count\n{rows}"), label="label", count="count", add_up=True)
    pq.write_table(pa.table({"client": [[1], [2]], "label": ["x", "y"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError):
        read_counts(str(tmp_path / "x.parquet"))


def test_parquet_has_the_same_layouts(tmp_path):
    path = tmp_path / "counts.parquet"
    wide = {"client": ["a", "b"], "y": [100, 90], "n": [3, 4]}
    pq.write_table(pa.table(wide), path)
    with pytest.raises(InputError, match="column y may hold labels"):
        read_counts(str(path))
    assert read_counts(str(path), keep=True).counts.total == 197
    long = {"client": ["a", "a", "b"], "label": ["x", "y", "x"], "count": [100, 3, 90]}
    pq.write_table(pa.table(long), path)
    assert LabelCounts.load(path).n.tolist() == [[100, 3], [90, 0]]
    pq.write_table(pa.table(wide | {"region": ["n", "s"], "total": [103, 94]}), path)
    with pytest.raises(InputError, match=r"drop_columns=\['region'\]"):
        LabelCounts.load(path)
    file = read_counts(str(path), keep=True, drop_columns=["region", "total"])
    assert file.counts.n.tolist() == [[100, 3], [90, 4]]


def test_options_that_contradict_each_other_are_refused(write):
    path = write("client,a,b\nx,1,2\ny,3,4\n")
    for options, message in (
        ({"count": "a"}, "`count` needs `label`"),
        ({"label": "a", "transpose": True}, "`transpose` or `label`"),
        ({"label": "a", "add_up": True}, "`add_up` or `label`"),
        ({"sizes": "a", "add_up": True}, "`sizes` or `add_up`"),
        ({"blank": -1}, "`blank` is not a count"),
        ({"label": "c"}, "no such column; got 'c'; allowed: client, a, b"),
        ({"drop_columns": ["c"]}, "no such column; got 'c'; allowed: client, a, b"),
        ({"drop_rows": ["z"]}, "no such row; got 'z'; allowed: x, y"),
    ):
        with pytest.raises(InputError, match=message):
            read_counts(path, **options)
    with pytest.raises(InputError, match="no table; got 'module:name'"):
        read_counts("module:name", keep=True)


@pytest.mark.parametrize("text", ["0,1\n55,90\n12,7\n", "shop,5,7\na,55,90\nb,12,7\n"])
def test_a_table_without_a_heading_is_refused(text, write):
    with pytest.raises(InputError, match=r"no heading|first column is headed"):
        read_counts(write(text))
    with pytest.raises(InputError, match="no heading"):
        read_counts(write("A,120,30\nB,10,300\n"), client="A")


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
        ("client,a,b\nTOTAL AIR,3,2\nsum of us,4,1\n", "row TOTAL AIR is called a total"),
    ],
)  # fmt: skip
def test_totals_and_years_are_not_classes(text, refusal, write):
    path = write(text)
    for read in (read_counts, LabelCounts.load):
        with pytest.raises(InputError, match=refusal):
            read(path)
    # Asked for, the table is read exactly as it is, and what it holds is said.
    assert any(refusal in note for note in read_counts(path, keep=True).notes)


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
    with pytest.raises(InputError, match=r"column Total is the sum of the others; .*drop_columns="):
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
    out = tmp_path / "clean.parquet"
    assert fedeas("counts", path, "--drop-column", "c", "--out", out).code == 0
    assert "for 20 clients" in fedeas("plan", out).out
    pq.write_table(pa.table({"a": n[:, 0], "b": n[:, 1], "c": n[:, 2]}), path)
    assert "for 20 clients" in fedeas("plan", path).out


# Cells


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("", "line 3, column b is empty; .*blank=0"),
        ("-", "line 3, column b holds '-'; .*blank=0"),
        ("NaN", "line 3, column b holds 'NaN'; .*blank=0"),
        ("n/a", "line 3, column b holds 'n/a'; .*blank=0"),
        ("<5", "line 3, column b holds a suppressed number.*suppressed=2"),
        ("1-4", "line 3, column b holds a suppressed number.*suppressed=2"),
        ("12 %", "line 3, column b holds a percentage.*sizes='n'"),
        ("12.345", r"line 3, column b holds '12.345'.*thousands='\.'\) if it is 12345$"),
        ("1.000", r"column b holds '1.000'.*'\.'\) if it is 1000, or thousands='none' if it is 1$"),
        ('"12,345"', r"line 3, column b holds '12,345'.*thousands=','\) if it is 12345$"),
        ('"3,0"', r"line 3, column b holds a decimal number; got '3,0'; .*thousands='\.'"),
        ("many", "line 3, column b holds a word"),
        ("-3", "line 3, column b: .*'-3'"),
        ("1e3", "line 3, column b: .*'1e3'"),
        ("0.5", "line 3, column b holds a decimal number.*got '0.5'"),
    ],
)
def test_a_cell_that_is_not_a_count(cell, said, write):
    with pytest.raises(InputError, match=said):
        read_counts(write(f"client,a,b\nx,1,2\ny,3,{cell}\n"))


def test_decimals_of_data_frames_are_whole_numbers(write):
    assert read_counts(write("client,a,b\nx,1.0,300.0\ny,4,4\n")).counts.n[0].tolist() == [1, 300]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client,a,b\nx,1,2\ny,3,4\nx,5,6\n", r"client x appears twice \(lines 2, 4\)"),
        ("client,a,b,a\nx,1,2,3\n", "column a appears twice; got 'columns 2 and 4'"),
        ("client,a,b,\nx,1,2,\n", "column 4 has no heading"),
        ("client,a,b\nx,1,2\n,3,4\n", "line 3 has no client name"),
        ("client,a,b\nx,1,200,5\n", "line 2 has 4 cells, the first line has 3"),
        ("client,a,b\nx,1,2\nSource: a survey\n", "line 3 has one cell only"),
        ("client,a,b\ny,,\nx,1,2\n", "line 2 has no counts, only a name; got 'y'"),
        ("row,hospital,a,b\n1,7,3,4\n2,9,3,9\n", "client='hospital'"),
        ("cat,dog,client\n5,6,1\n7,9,2\n", "client='client'"),
        ("shop,cat,dog\n1,5,6\n2,7,9\n", "client='shop'.*transpose=True"),
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


@pytest.mark.parametrize("mark", [";", "tab", "|"])
def test_a_delimiter_is_named_where_it_is_not_a_comma(mark, write):
    sign = {"tab": "\t"}.get(mark, mark)
    text = "client,flu,cold\nNorth,120,15\nSouth,9,80\n".replace(",", sign)
    for above in ("", "\n", "# a comment\n"):
        path = write(above + text)
        with pytest.raises(InputError, match=f"delimiter={mark!r}".replace("|", r"\|")):
            read_counts(path)
        assert read_counts(path, delimiter=mark).counts == NORTH_SOUTH
    # Every line has as many commas as semicolons: then commas separate.
    counts = read_counts(write("client,a;x,b;y\nNorth,120,15\nSouth,9,80\n")).counts
    assert counts.class_names == ("a;x", "b;y")
    with pytest.raises(InputError, match="not a delimiter"):
        read_counts(path, delimiter="ab")


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
    said = fedeas("plan", path, "--total", "1")
    assert "1 sample" in said.err.splitlines()[0]
    assert "2 clients have no samples and are ignored: y, z" in said.err


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
    with pytest.raises(
        InputError, match=r"needs plan\.csv\.json beside it; or make the plan again"
    ):
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


@pytest.mark.parametrize(
    ("cell", "good", "bad"),
    [("<5", 4, 5), ("<=5", 5, 6), ("\u22645", 5, 6), ("3-6", 3, 2), ("*", 99, -1)],
)
def test_a_suppressed_number_is_read_as_one_that_it_can_be(tmp_path, cell, good, bad):
    path = tmp_path / "counts.csv"
    path.write_text(f"client,a,b\nx,{cell},3\ny,7,9\n", encoding="utf-8")
    assert read_counts(path, suppressed=good).counts.n[0, 0] == good
    with pytest.raises(InputError):
        read_counts(path, suppressed=bad)


def test_a_table_is_never_replaced_by_its_clean_form(tmp_path, fedeas, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "client,a,b\nx,<5,3\ny,7,9\n"
    (tmp_path / "counts.csv").write_text(text)
    assert "--out clean.csv --suppressed 2" in fedeas("plan", "counts.csv").err
    refused = fedeas("counts", "counts.csv", "--suppressed", 2, "--out", tmp_path / "counts.csv")
    assert refused.code == 2
    assert (tmp_path / "counts.csv").read_text() == text
