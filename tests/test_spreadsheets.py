"""Tables as spreadsheets and statistics offices write them: understood, or refused in a line."""

import datetime
import io
import json
import shlex
import sys
import zipfile
from xml.etree import ElementTree

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pytest

from fedeas import FedEAS, InputError, LabelCounts, MissingExtraError
from fedeas.cli.label_counts import typed_options
from fedeas.data.count_sources import read_counts

NORTH_SOUTH = LabelCounts([[1200, 15], [9, 80]], ["North", "South"], ["flu", "cold"])
SORTED = LabelCounts([[15, 1200], [80, 9]], ["North", "South"], ["cold", "flu"])
SITES = ("birds", "covid", "loans", "xray")


def workbook(*rows, title="Counts", merged=None, percent=(), others=()) -> bytes:
    """An Excel workbook with one filled sheet, and perhaps others."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = title
    for row in rows:
        sheet.append(row)
    if merged:
        sheet.merge_cells(merged)
    for cell in percent:
        sheet[cell].number_format = "0.0%"
    for name, content in others:
        more = book.create_sheet(name)
        for row in content:
            more.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "counts.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


# A file's name and content; the options that read it (none for a clean table), what is said of it.
TABLES = {
    "Excel": (
        "counts.xlsx",
        workbook(["hospital", "flu", "cold"], ["North", 1200, 15.0], ["South", 9, 80]),
        {}, "", NORTH_SOUTH,
    ),
    "German thousands": (
        "counts.csv", "hospital;flu;cold\nNorth;1.200;15\nSouth;9;80\n",
        {"delimiter": ";", "thousands": "."}, "", NORTH_SOUTH,
    ),
    "small numbers suppressed": (
        "counts.csv", "hospital,flu,cold\nNorth,1200,15\nSouth,<20,80\n",
        {"suppressed": 9}, "", NORTH_SOUTH,
    ),
    "totals": (
        "counts.csv",
        "hospital,flu,cold,N\nNorth,1200,15,1215\nSouth,9,80,89\nBoth,1209,95,1304\n",
        {"drop_columns": ["N"], "drop_rows": ["Both"]}, "", NORTH_SOUTH,
    ),
    "long with counts": (
        "counts.csv",
        'hospital,label,count\nNorth,flu,"1,200"\nNorth,cold,15\nSouth,flu,9\nSouth,cold,80\n',
        {"thousands": ","}, "a count per row in 'count', of 'hospital' and 'label'", SORTED,
    ),
    "transposed": (
        "counts.csv", "diagnosis,North,South\nflu,1200,9\ncold,15,80\n",
        {"transpose": True}, "a row per class", NORTH_SOUTH,
    ),
    "percentages": (
        "counts.csv", "hospital,flu,cold,n\nNorth,98.8%,1.2 %,1215\nSouth,10.1%,89.9%,89\n",
        {"sizes": "n"}, "shares of column n", NORTH_SOUTH,
    ),
    "latin-1": (
        "counts.csv", "hospital,flu,cold\nNorth,1200,15\nSüd,9,80\n".encode("latin-1"),
        {"encoding": "cp1252"}, "",
        LabelCounts(NORTH_SOUTH.n, ["North", "Süd"], ["flu", "cold"]),
    ),
    "a pivot table with a title": (
        "counts.xlsx",
        workbook(
            ["Patients by hospital in 2023"], [], ["Count of id", "Column Labels"],
            ["Row Labels", "flu", "cold", "Grand Total"], ["North", 1200, 15, 1215],
            ["South", 9, 80, 89], ["Grand Total", 1209, 95, 1304], merged="A1:D1",
        ),
        {"drop_rows": ["Patients by hospital in 2023", "Count of id", "Grand Total"],
         "drop_columns": ["Grand Total"], "client": "Row Labels"}, "", NORTH_SOUTH,
    ),
    "JSON of pandas": (
        "counts.json",
        '[{"hospital": "North", "flu": 1200, "cold": 15}, '
        '{"hospital": "South", "flu": 9, "cold": 80}]',
        {}, "", NORTH_SOUTH,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_ten_tables_as_people_have_them(kind, write, fedeas, tmp_path):
    name, content, options, description, counts = TABLES[kind]
    path, out = write(content, name), tmp_path / "clean.csv"
    for command in ("plan", "compare"):
        result = fedeas(command, path)
        if options:
            assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
            clean = "clean.csv" if name == "counts.csv" else "counts.csv"  # never the table itself
            assert f"fedeas counts {path} --out {clean} --" in result.err
        else:
            assert result.code == 0
    result = fedeas("counts", path, "--out", out, *shlex.split(typed_options(options)))
    assert result.code == 0, result.err
    assert description in result.err.splitlines()[0]
    assert "1,304 samples" in result.err.splitlines()[0]
    planned = json.loads(fedeas("plan", out, "--json").out)
    assert planned["counts_hash"] == counts.fingerprint


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("form", ["excel", "german", "english", "long", "transposed", "total"])
def test_real_tables_in_every_form_are_the_same_counts(site, form, data, tmp_path):
    """Never other counts: a form that is not certain is refused, and an option settles it."""
    source = data / "sites" / f"{site}.csv"
    counts = LabelCounts.load(source)
    frame = pd.read_csv(source, index_col="client")
    path, options = tmp_path / "table.csv", {}
    if form == "excel":
        path = tmp_path / "table.xlsx"
        frame.to_excel(path)
    elif form in ("german", "english"):
        sign, separator = (".", ";") if form == "german" else (",", ",")
        frame.map(lambda n: f"{n:,}".replace(",", sign)).to_csv(path, sep=separator)
        options = {"thousands": sign} | ({"delimiter": ";"} if form == "german" else {})
    elif form == "long":
        long = frame.reset_index().melt("client", var_name="label", value_name="count")
        long.to_csv(path, index=False)
    elif form == "transposed":
        frame.T.to_csv(path, index_label="label")
        options = {"transpose": True}
    else:
        frame.assign(n=frame.sum(axis=1)).to_csv(path)
        options = {"drop_columns": ["n"]}
    needed = form not in ("excel", "long") and (form == "total" or "thousands" not in options or (
        frame.to_numpy().max() > 999
    ))  # fmt: skip
    if needed:
        with pytest.raises(InputError, match="read_counts"):
            LabelCounts.load(path)
    again = read_counts(path, **options).counts
    assert again.total == counts.total
    np.testing.assert_array_equal(
        again.to_pandas().loc[frame.index, frame.columns].to_numpy(), frame.to_numpy()
    )


# Numbers


@pytest.mark.parametrize(
    ("cells", "first", "option"),
    [
        (["1.200;15", "9;80"], 1200, "."),
        (["1.234.567;15", "9;80"], 1234567, "."),
        (["1.200,00;15", "9;80"], 1200, "."),
        (["1 200;15", "9;80"], 1200, "space"),
        (["1'200;15", "9;80"], 1200, "apostrophe"),
        (["1\u202f200;15", "9;80"], 1200, "space"),
        (["1.000;2.000", "3.000;4.000"], 1000, "."),
        (["1.000;2.000", "3.000;4.000"], 1, "none"),
    ],
)
def test_thousands_are_read_where_one_says_so(cells, first, option, write):
    path = write("client;a;b\n" + "\n".join(f"c{k};{row}" for k, row in enumerate(cells)))
    with pytest.raises(InputError, match=rf"line 2, column a holds .*thousands='{option}'"):
        read_counts(path, delimiter=";")
    assert read_counts(path, delimiter=";", thousands=option).counts.n[0, 0] == first


def test_a_rate_beside_counts_is_not_taken_for_thousands(write):
    """Its column has no number without a point, so that nothing says what the point is."""
    path = write("client,flu,cold,rate\nx,15,3,1.250\ny,9,8,2.125\nz,7,1,3.500\n")
    with pytest.raises(InputError, match=r"column rate.*drop_columns"):
        read_counts(path)


def test_signs_that_contradict_each_other_are_refused(write):
    path = write('client,a,b\nx,"1,200",9\ny,1.300,8\nz,7,1\n')
    with pytest.raises(InputError, match=r"thousands=','\) if it is 1200"):
        read_counts(path)
    for sign in (",", "."):
        with pytest.raises(InputError, match="because numbers are written in two ways"):
            read_counts(path, thousands=sign)
    with pytest.raises(InputError, match="not a thousands separator; got '#'"):
        read_counts(path, thousands="#")


def test_a_count_column_with_odd_cells_is_still_one(write):
    """It used to be ignored, and rows were counted as samples: 4 of them."""
    rows = "North,flu,{}\nNorth,cold,15\nSouth,flu,9\nSouth,cold,80\n"
    for cell in ('"1,200"', "<5", "", "12%", "-"):
        path = write("hospital,label,count\n" + rows.format(cell))
        try:
            assert read_counts(path).counts.total == 1304
        except InputError as error:
            assert "line 2, column count" in str(error)
    with pytest.raises(InputError, match="line 2 has 4 cells, the first line has 3"):
        read_counts(write("hospital,label,count\n" + rows.format("1,200")))


def test_suppressed_cells(write, fedeas, tmp_path):
    text = "hospital,flu,cold,rare\nNorth,120,<5,1-4\nSouth,*,80,≤3\n"
    path = write(text)
    found = read_counts(path, suppressed=2)
    assert found.counts.n.tolist() == [[120, 2, 2], [2, 80, 2]]
    assert found.notes == ("4 suppressed cells read as 2",)
    out = tmp_path / "clean.csv"
    shown = fedeas("counts", path, "--suppressed", "2", "--out", out).err
    assert "note: 4 suppressed cells read as 2" in shown
    with pytest.raises(InputError, match=r"column cold holds '<5'.*allowed: 0 to 4"):
        read_counts(path, suppressed=5)
    with pytest.raises(InputError, match=r"column rare holds '1-4'.*allowed: 1 to 4"):
        read_counts(path, suppressed=0)


def test_a_total_of_suppressed_cells_is_still_a_total(write):
    """It is not the sum of what was put in their place."""
    rows = ["North,120,<5,123", "South,<5,80,84", "West,40,40,80", "All,164,123,287"]
    path = write("\n".join(["hospital,flu,cold,N", *rows]))
    with pytest.raises(InputError, match=r"column N is the sum.*row All is"):
        read_counts(path, suppressed=2)
    assert read_counts(path, suppressed=2, drop_columns=["N"], drop_rows=["All"]).counts.K == 3


@pytest.mark.parametrize("cell", ["", "-", "\u2013", "NaN", "n/a", "#N/A"])
def test_blank_cells(cell, write, fedeas, tmp_path):
    path = write(f"client,a,b\nx,1,2\ny,3,{cell}\n")
    with pytest.raises(InputError, match=r"line 3, column b .*blank=0"):
        read_counts(path)
    assert read_counts(path, blank=0).counts.n.tolist() == [[1, 2], [3, 0]]
    shown = fedeas("counts", path, "--blank", "0", "--out", tmp_path / "clean.csv").err
    assert "note: 1 empty cell read as 0" in shown


def test_percentages_become_counts_that_add_up(write):
    shares = 'hospital,size,a,b,c\nx,7,"33,3","33,3","33,3"\ny,1000,12.5,80,7.5\nz,0,0,0,0\n'
    found = read_counts(write(shares), sizes="size")
    assert found.counts.n.tolist() == [[3, 2, 2], [125, 800, 75], [0, 0, 0]]
    assert found.counts.class_names == ("a", "b", "c")
    for text, said in (
        ("hospital,size,a,b\nx,7,50,60\n", "the shares of .* line 2 add up to 110"),
        ("hospital,size,a,b\nx,7,half,50\n", "line 2: not a percentage; got 'half'"),
        ("hospital,a,b\nx,50,50\n", "no such column; got 'size'; allowed: hospital, a, b"),
        ("hospital,size,a,b\nx,7,,100%\n", "line 2, column a is empty"),
    ):
        with pytest.raises(InputError, match=said):
            read_counts(write(text), sizes="size")
    with pytest.raises(InputError, match="`transpose` or `sizes`"):
        read_counts(write(shares), sizes="size", transpose=True)
    with pytest.raises(InputError, match=r"column a holds a decimal.*got '0.5'.*sizes="):
        read_counts(write("hospital,a,b\nx,0.5,0.5\n"))


# Encodings and delimiters


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1250"])
def test_a_clean_table_is_in_utf_8(encoding, write):
    text = "hospital,Grippe,Erkältung\nSüd,1200,15\nKöln-Groß,9,80\nOrléans,1,1\n"
    path = write(text.encode(encoding))
    if not encoding.startswith("utf-8"):
        with pytest.raises(InputError, match=r"not UTF-8.*encoding="):
            read_counts(path)
    counts = read_counts(path, encoding=encoding).counts
    assert counts.client_names == ("Süd", "Köln-Groß", "Orléans")


@pytest.mark.parametrize(
    ("word", "encoding", "others"),
    [("Genève", "cp1252", ["cp1250"]), ("Plzeň", "cp1250", ["cp1252"]), ("Süd", "mac_roman", []),
     ("Москва", "cp1251", ["cp1252", "cp1250"]), ("Süd", "cp850", [])],
)  # fmt: skip
def test_encodings_that_are_not_certain(word, encoding, others, write):
    path = write(f"client,a,b\nx,1,2\n{word},3,4\n".encode(encoding))
    with pytest.raises(InputError, match="line 3 is not UTF-8") as refused:
        read_counts(path)
    assert all(f"encoding={other!r}" in str(refused.value) for other in (encoding, *others))
    assert f"if it is {word!r}" in str(refused.value)
    assert read_counts(path, encoding=encoding).counts.client_names == ("x", word)


def test_encodings_by_name(write):
    path = write("client,a,b\nx,1,2\n".encode("utf-16-le"))
    with pytest.raises(InputError, match="encoding='utf-16-le'"):
        read_counts(path)
    assert read_counts(path, encoding="utf-16-le").counts.total == 3
    for name in ("klingon", "base64", "rot13"):
        with pytest.raises(InputError, match="unknown encoding"):
            read_counts(path, encoding=name)
    with pytest.raises(InputError, match="is not in ascii; save it as UTF-8"):
        read_counts(write("client,a,b\nü,1,2\n"), encoding="ascii")


def test_decimal_commas_are_not_delimiters(write):
    path = write("hospital;flu;cold\nNorth;1200,0;15,0\nSouth;9,0;80,0\n")
    with pytest.raises(InputError, match=r"a decimal number; got '1200,0'; .*thousands='\.'"):
        read_counts(path, delimiter=";")
    assert read_counts(path, delimiter=";", thousands=".").counts == NORTH_SOUTH
    with pytest.raises(InputError, match=r"does not apply to .*, which is a workbook"):
        read_counts(write(TABLES["Excel"][1], "x.xlsx"), delimiter=";")


def test_options_together_on_the_command_line(write, fedeas, tmp_path):
    path = write("hospital\tflu\tcold\nNorth\t1.234\t-\nGenève\t9\t80\n".encode("cp1252"))
    options = ["--delimiter", "\\t", "--encoding", "cp1252", "--thousands", ".", "--blank", "0"]
    result = fedeas("counts", path, *options, "--out", tmp_path / "clean.csv")
    assert result.code == 0
    assert "2 clients (North, Genève) x 2 classes (flu, cold), 1,323 samples" in result.err
    assert "note: 1 empty cell read as 0" in result.err
    costs = ["--cost", "0.8 s"], ["--cost", "0.01USD"]
    assert [fedeas("plan", tmp_path / "clean.csv", *cost).code for cost in costs] == [0, 0]


# Workbooks


def test_a_workbook_of_several_sheets(write, fedeas, tmp_path):
    table = [["hospital", "flu", "cold"], ["North", 1200, 15], ["South", 9, 80]]
    path = write(workbook(*table, others=[("Notes", [["from 2023"]]), ("Empty", [])]), "x.xlsx")
    with pytest.raises(InputError, match=r"has 2 sheets; got 'Counts, Notes'; .*sheet='Counts'"):
        read_counts(path)
    assert read_counts(path, sheet="Counts").counts == NORTH_SOUTH
    assert fedeas("counts", path, "--sheet", "Counts", "--out", tmp_path / "x.csv").code == 0
    with pytest.raises(InputError, match="no such sheet; got 'counts'; allowed: Counts, Notes"):
        read_counts(path, sheet="counts")
    path = write(workbook(*table, others=[("Empty", [])]), "x.xlsx")
    assert read_counts(path).description == "a table of counts, sheet 'Counts'"
    with pytest.raises(InputError, match=r"x\.xlsx is empty"):
        read_counts(write(workbook(), "x.xlsx"))


def test_a_formula_is_its_value_or_refused(write, tmp_path):
    """A program that does not calculate leaves formulas without values: they are not zeros."""
    path = write(workbook(["hospital", "a", "b"], ["x", 5, "=B2*2"], ["y", 3, 4]), "x.xlsx")
    for options in ({}, {"blank": 0}):
        with pytest.raises(InputError, match="cell C2 holds a formula without a value"):
            read_counts(path, **options)
    # As a spreadsheet program saves it, with the value that it calculated.
    calculated = tmp_path / "calculated.xlsx"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(calculated, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("sheet1.xml"):
                assert b"<f>B2*2</f><v />" in content or b"<f>B2*2</f><v></v>" in content
                content = content.replace(b"<v />", b"<v>10</v>").replace(b"<v></v>", b"<v>10</v>")
            new.writestr(name, content)
    assert read_counts(calculated).counts.n.tolist() == [[5, 10], [3, 4]]


def test_cells_that_a_workbook_formats(write):
    rows = [["hospital", "a", "b", "n"], ["x", 0.25, 0.75, 40], ["y", 0.5, 0.5, 10]]
    path = write(workbook(*rows, percent=["B2", "C2", "B3", "C3"]), "x.xlsx")
    with pytest.raises(InputError, match="row 2, column a holds a percentage; got '25%'"):
        read_counts(path)
    assert read_counts(path, sizes="n").counts.n.tolist() == [[10, 30], [5, 5]]
    text = workbook(["hospital", "a", "b"], ["x", "1.200", 3], ["y", 9, "<5"])
    file = read_counts(write(text, "x.xlsx"), suppressed=1, thousands=".")
    assert file.counts.n.tolist() == [[1200, 3], [9, 1]]


def test_a_table_that_is_not_in_the_corner_of_its_sheet(write):
    table = [["hospital", "flu", "cold"], ["North", 1200, 15], ["South", 9, 80]]
    path = write(workbook([], [], *([None, None, *row] for row in table)), "x.xlsx")
    assert read_counts(path).counts == NORTH_SOUTH


def test_dates_and_merged_cells_of_a_workbook_are_refused(write):
    path = write(workbook(["hospital", "a", "b"], ["x", datetime.date(2024, 4, 1), 3]), "x.xlsx")
    with pytest.raises(InputError, match=r"row 2, column a holds a date; got '2024-04-01"):
        read_counts(path)
    rows = [["hospital", "label", "n"], ["x", "flu", 3], [None, "cold", 4], ["y", "flu", 5]]
    with pytest.raises(InputError, match=r"row 3 lacks a client or a label.*merged cells"):
        read_counts(write(workbook(*rows, merged="A2:A3"), "x.xlsx"), label="label", count="n")


def test_a_workbook_that_is_not_one_is_refused(write, fedeas, monkeypatch):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("hello.txt", "hello")
    for content in (b"PK\x03\x04", b"", b"a,b\n1,2\n", buffer.getvalue()):
        result = fedeas("plan", write(content, "x.xlsx"))
        assert (result.code, len(result.err.splitlines())) == (2, 1)
        assert "not a readable workbook" in result.err
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "openpyxl", None)
        result = fedeas("plan", write(TABLES["Excel"][1], "x.xlsx"))
    assert result.code == 2
    assert 'pip install "fedeas[excel]"' in result.err
    with pytest.raises(InputError, match="does not write workbooks"):
        NORTH_SOUTH.save(write(b"", "x.xlsx"))


def test_a_workbook_that_unpacks_to_gigabytes_is_measured_first(write):
    """And one whose entities double with every level is not expanded."""
    buffer = io.BytesIO(TABLES["Excel"][1])
    with (
        zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("xl/more.xml", "w", force_zip64=True) as file,
    ):
        for _ in range(300):
            file.write(bytes(1 << 20))
    assert len(buffer.getvalue()) < 1 << 20
    with pytest.raises(InputError, match=r"unpacks to 3.* bytes; allowed: at most"):
        read_counts(write(buffer.getvalue(), "x.xlsx"))

    def laughs(depth: int) -> str:
        levels = "".join(f'<!ENTITY e{k} "{f"&e{k - 1};" * 10}">' for k in range(1, depth + 1))
        return f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "ha">{levels}]><x>&e{depth};</x>'

    assert len(ElementTree.fromstring(laughs(3)).text) == 2000  # such a file does expand
    bomb = laughs(11)
    hostile = io.BytesIO()
    with (
        zipfile.ZipFile(write(TABLES["Excel"][1], "x.xlsx")) as old,
        zipfile.ZipFile(hostile, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, bomb if name == "xl/workbook.xml" else old.read(name))
    with pytest.raises(InputError, match="not a readable workbook"):
        read_counts(write(hostile.getvalue(), "x.xlsx"))


# Titles, frames, standard input


@pytest.mark.parametrize("text", ["client,,\nx,1,2\ny,3,4\n", "Patients,,\nx,1,2\ny,3,4\n"])
def test_a_line_that_may_be_a_heading_is_not_skipped(text, write):
    with pytest.raises(InputError, match="has one cell only"):
        read_counts(write(text))


def test_json_as_pandas_and_polars_write_records(write):
    frame = pd.DataFrame({"hospital": ["North", "South"], "flu": [1200, 9], "cold": [15, 80]})
    assert read_counts(write(frame.to_json(orient="records"), "x.json")).counts == NORTH_SOUTH
    assert read_counts(write(NORTH_SOUTH.to_polars().write_json(), "x.json")).counts == NORTH_SOUTH
    long = NORTH_SOUTH.to_pandas().stack().rename("count").reset_index()
    assert read_counts(write(long.to_json(orient="records"), "x.json")).counts == SORTED
    for orient in ("columns", "split", "index", "table"):
        with pytest.raises(InputError, match='orient="records"'):
            read_counts(write(frame.to_json(orient=orient), "x.json"))
    with pytest.raises(InputError, match=r"row 1, column flu is empty; .*blank=0"):
        read_counts(write('[{"client": "x", "flu": null, "cold": 3}]', "x.json"))
    with pytest.raises(InputError, match="not a count or a name; got True"):
        read_counts(write('[{"client": "x", "flu": true, "cold": 3}]', "x.json"))


def test_the_index_of_a_frame_is_not_a_class(tmp_path):
    frame = NORTH_SOUTH.to_pandas().rename_axis("hospital").reset_index()
    frame.to_csv(tmp_path / "frame.csv")
    frame.to_excel(tmp_path / "frame.xlsx")
    for name in ("frame.csv", "frame.xlsx"):
        with pytest.raises(InputError, match=r"first column has no heading.*client='hospital'"):
            read_counts(tmp_path / name)
        options = {"client": "hospital", "drop_columns": [""]}
        assert read_counts(tmp_path / name, **options).counts == NORTH_SOUTH


@pytest.mark.parametrize("kind", TABLES)
def test_standard_input(kind, fedeas, monkeypatch, tmp_path):
    _, content, options, _, counts = TABLES[kind]
    content = content if isinstance(content, bytes) else content.encode()

    def run(*arguments):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        return fedeas(*arguments)

    typed = shlex.split(typed_options(options))
    result = run("counts", "-", "--out", tmp_path / "clean.csv", *typed)
    assert LabelCounts.load(tmp_path / "clean.csv") == counts
    assert result.err.startswith("standard input: ")
    planned = run("plan", "-")
    assert planned.code == (2 if options else 0)
    assert planned.err.startswith("fedeas: standard input" if options else "standard input: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hospital,2021,2022\nNorth,120,15\nSouth,9,80\n", "classes are headed 2021, 2022"),
        ("Praxis,flu,cold\n45,5,6\n12,7,8\n", "first column is headed Praxis"),
        ("Kennung,flu,cold\n12,5,6\n45,7,8\n47,1,8\n90,2,2\n", "first column is headed Kennung"),
    ],
)
def test_years_and_numbers_of_clients_are_not_classes(text, said, write):
    with pytest.raises(InputError, match=said):
        read_counts(write(text))


def test_a_plan_is_read_by_pandas_and_by_a_spreadsheet(tmp_path, fedeas, paper_csv):
    """As it is, without options: a heading, a row per client, nothing else."""
    path = tmp_path / "plan.csv"
    assert fedeas("plan", paper_csv, "--out", path).code == 0
    counts = LabelCounts.load(paper_csv)
    plan = FedEAS().plan(counts)
    frame = pd.read_csv(path)
    assert frame.columns.tolist() == ["client", *counts.class_names]
    assert frame["client"].astype(str).tolist() == list(counts.client_names)
    np.testing.assert_array_equal(frame.drop(columns="client").to_numpy(), plan.samples)
    assert set(frame.drop(columns="client").dtypes.map(str)) == {"int64"}
    assert len(path.read_text().splitlines()) == 1 + counts.K


# Data frames of polars


def test_polars_frames_in_and_out(paper):
    named = LabelCounts(paper.n, [f"site {k}" for k in range(paper.K)], paper.classes)
    for counts in (NORTH_SOUTH, paper, named):
        frame = counts.to_polars()
        assert frame.columns == ["client", *counts.class_names]
        assert {str(kind) for kind in frame.dtypes} == {"String", "Int64"}
        assert LabelCounts(frame) == LabelCounts.of(frame) == counts
        assert FedEAS().plan(frame) == FedEAS().plan(counts)
        assert LabelCounts.of(counts.to_pandas()) == counts
        plan = FedEAS().plan(counts)
        np.testing.assert_array_equal(plan.to_polars()[:, 1:].to_numpy(), plan.samples)
        assert plan.to_polars()["client"].to_list() == list(counts.client_names)
    odd = LabelCounts([[1, 2], [3, 4]], ["x", "y"], ["client", "agent"])
    assert odd.to_polars().columns == ["client0", "client", "agent"]
    assert LabelCounts.of(odd.to_polars()) == odd


def test_polars_frames_as_people_have_them():
    text = pl.DataFrame({"praxis": ["x", "y"], "a": [1, 2], "b": [3, 4]})
    assert LabelCounts.of(text).client_names == ("x", "y")
    numbered = pl.DataFrame({"hospital": [12, 45], "a": [1, 2], "b": [3, 4]})
    assert LabelCounts.of(numbered).client_names == ("12", "45")
    assert LabelCounts.of(pl.DataFrame({"a": [1, 2], "b": [3, 4]})).clients is None
    long = pl.DataFrame({"client": ["x", "x", "y"], "label": ["a", "b", "a"]})
    for wrong, said in (
        (long, "column 'label' holds no counts.*LabelCounts.from_labels"),
        (pl.DataFrame({"a": [1], "b": [2], "site": [3]}), "column 'site' holds no counts"),
        (pl.DataFrame({"client": ["x"], "a": [None], "b": [2]}), "fill_null"),
        (pl.DataFrame({"client": ["x", "x"], "a": [1, 2], "b": [2, 3]}), "'x' twice"),
    ):
        with pytest.raises(InputError, match=said):
            LabelCounts.of(wrong)
    assert LabelCounts.from_labels(long["label"], long["client"]).n.tolist() == [[1, 1], [1, 0]]


def test_polars_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"fedeas\[polars\]"):
        NORTH_SOUTH.to_polars()
