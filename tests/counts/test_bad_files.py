"""Whatever somebody feeds the planner ends in one line and exit code 2, never in a traceback."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TEXTS = {
    "empty.csv": "",
    "blank-lines.csv": "\n\n\n",
    "only-heading.csv": "client,a,b\n",
    "only-comment.csv": "# nothing here\n",
    "negative.csv": "1,2\n3,-4\n",
    "fraction.csv": "1,2\n3,4.5\n",
    "nan.csv": "1,2\nnan,4\n",
    "nan-first.csv": "nan,2\n3,4\n",
    "infinite.csv": "1,2\ninf,4\n",
    "huge.csv": "1,2\n3,99999999999999999999\n",
    "huge-digits.csv": f"1,2\n3,{'9' * 5000}\n",
    "huge-exponent.csv": "1,2\n3,1e300\n",
    "too-many.csv": "9007199254740992,9007199254740992\n",
    "one-class.csv": "client,a\nx,1\ny,2\n",
    "one-column.csv": "1\n2\n",
    "all-zero.csv": "0,0\n0,0\n",
    "ragged-short.csv": "1,2,3\n4,5\n",
    "ragged-long.csv": "1,2,3\n4,5,6,7\n",
    "semicolons.csv": "1;2;3\n4;5\n",
    "tabs.csv": "1\t2\t3\n4\t5\n",
    "spaces.csv": "1 2 3\n4 5 6\n",
    "pipes.csv": "1|2|3\n4|5\n",
    "commas.tsv": "1,2,3\n4,5,6\n",
    "duplicate-clients.csv": "client,a,b\nx,1,2\nx,3,4\n",
    "duplicate-classes.csv": "client,a,a\nx,1,2\ny,3,4\n",
    "word-in-cell.csv": "client,a,b\nx,1,2\ny,three,4\n",
    "empty-cell.csv": "client,a,b\nx,1,2\ny,,4\n",
    "mixed-heading.csv": "1,two,3\n4,5,6\n",
    "underscore.csv": "1,2\n3,1_000\n",
    "arabic-digits.csv": "1,2\n3,\u0663x\n",
    "control-codes.csv": "client,a,b\n\x1b[2Jgone,1,2\n",
    "empty-name.csv": "client,a,b\n,1,2\ny,3,4\n",
    "open-quote.csv": 'client,a,b\n"x,1,2\ny,3,4\n',
    "long-cell.csv": "client,a,b\n" + "x" * 200_000 + ",1,2\n",
    "html.csv": "<!DOCTYPE html><html><body>Not found</body></html>\n",
    "broken.json": '{"counts": [[1, 2]',
    "nan.json": "[[1, NaN]]",
    "negative.json": "[[1, -2]]",
    "fraction.json": "[[1, 2.5]]",
    "text.json": '[["1", "2"]]',
    "bool.json": "[[true, 1]]",
    "null.json": "[[null, 1]]",
    "ragged.json": "[[1, 2], [3]]",
    "flat.json": "[1, 2, 3]",
    "empty.json": "[]",
    "empty-rows.json": "[[], []]",
    "number.json": "42",
    "other-key.json": '{"matrix": [[1, 2]]}',
    "few-names.json": '{"counts": [[1, 2], [3, 4]], "clients": ["x"]}',
    "odd-names.json": '{"counts": [[1, 2]], "clients": {"x": 1}}',
    "deep.json": "[" * 100_000,
    "huge.json": "[[1, 1e400]]",
    "unknown.xlsx": "whatever",
    "no-ending": "1,2\n3,4\n",
}
BYTES = {
    "binary.csv": bytes(range(256)) * 10,
    "nul.csv": b"1,2\n3,\x004\n",
    "utf16.csv": "1,2\n3,4\n".encode("utf-16-le"),
    "half-utf16.csv": "1,2\n3,4\n".encode("utf-16")[:-1],
    "archive.xlsx": b"PK\x03\x04" + b"\x00" * 50,
    "binary.json": b"\xff\xfe\x00[1]",
    "junk.parquet": b"not parquet at all, only named so",
    "magic.parquet": b"PAR1" + b"\x00" * 50 + b"PAR1",
    "empty.parquet": b"",
}
TABLES = {
    "negative.parquet": {"a": [1, -1], "b": [1, 1]},
    "float.parquet": {"a": [1.0, 2.5], "b": [1, 1]},
    "nulls.parquet": {"a": [1, None], "b": [1, 1]},
    "one-class.parquet": {"client": ["x", "y"], "a": [1, 1]},
    "text.parquet": {"client": ["x", "y"], "a": ["one", "2"], "b": [1, 2]},
    "duplicate.parquet": {"client": ["x", "x"], "a": [1, 2], "b": [1, 2]},
    "no-rows.parquet": {"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())},
    "no-columns.parquet": {},
    "only-names.parquet": {"client": ["x", "y"]},
    "null-name.parquet": {"client": ["x", None], "a": [1, 2], "b": [1, 2]},
    "too-large.parquet": {"a": [2**53 + 1, 1], "b": [1, 1]},
    "unsigned.parquet": {"a": pa.array([2**63 + 5, 1], pa.uint64()), "b": [1, 1]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    for name, content in BYTES.items():
        (folder / name).write_bytes(content)
    for name, table in TABLES.items():
        pq.write_table(pa.table(table), folder / name)
    twice = pa.table([[1, 2], [3, 4]], names=["a", "a"])
    pq.write_table(twice, folder / "two-columns.parquet")
    (folder / "folder.csv").mkdir()
    return folder


@pytest.mark.parametrize("command", ["plan", "compare"])
@pytest.mark.parametrize(
    "name",
    [*TEXTS, *BYTES, *TABLES, "folder.csv", "absent.csv", "absent.parquet", "two-columns.parquet"],
)
def test_a_bad_file_ends_in_one_helpful_line(name, command, folder, fedeas):
    result = fedeas(command, folder / name)
    assert result.code == 2
    assert result.out == ""
    lines = result.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("fedeas: ")
    assert lines[0].isprintable()
    assert len(lines[0]) < 1000


def test_there_are_many_of_them():
    assert len({*TEXTS, *BYTES, *TABLES}) >= 30


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policy", "fedaes"],
        ["--policy", "uniform"],
        ["--policy", "fedeas(beta=-1)"],
        ["--beta", "0"],
        ["--beta", "nan"],
        ["--beta", "many"],
        ["--beta", "1e300"],
        ["--total", "0"],
        ["--total", "1.5"],
        ["--beta", "3", "--total", "3"],
        ["--spend", "3h"],
        ["--cost", "1s", "--spend", "1e308d"],
        ["--cost", "1e-320s", "--spend", "1d"],
        ["--policy", "fedeas(beta=3)", "--total", "100"],
        ["--out", "/"],
        ["--policy", "full-balance", "--total", "100"],
        ["--policy", "full-balance", "--beta", "3"],
        ["--policy", "uniform", "--total", "100", "--beta", "3"],
        ["--cost", "free"],
        ["--cost", "1EUR", "--spend", "3h"],
        ["--out", "plan.xlsx"],
        ["--out", "no/such/folder/plan.csv"],
        ["--plot", "plan.gif"],
        ["--rows", "0"],
        ["--no-such-option"],
    ],
)
def test_a_bad_option_ends_in_one_helpful_line(arguments, paper_csv, fedeas):
    result = fedeas("plan", paper_csv, *arguments)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("fedeas: ")


def test_an_empty_client_is_no_error_and_is_named(tmp_path, fedeas):
    path = tmp_path / "counts.csv"
    path.write_text("client,a,b,c\nfull,9,1,0\nbare,0,0,0\n")
    for command in ("plan", "compare"):
        result = fedeas(command, path)
        assert result.code == 0
        assert "bare" in result.err
    plan = json.loads(fedeas("plan", path, "--json", "--policy", "uniform(total=7)").out)
    assert plan["empty_clients"] == ["bare"]
    assert plan["clients"][1]["samples"] == [0, 0, 0]
    assert np.sum(plan["clients"][0]["samples"]) == 7


def test_options_that_would_be_ignored_are_refused(fedeas, paper_csv):
    for arguments in (["compare", paper_csv, "--beta", 5, "--total", 7],):
        result = fedeas(*arguments)
        assert result.code == 2
        assert len(result.err.splitlines()) == 1


def test_a_file_cannot_send_control_codes_to_the_terminal(fedeas, tmp_path):
    evil = "\x1b[31mevil"
    pq.write_table(pa.table({evil: [1, 2]}), tmp_path / "labels.parquet")
    pq.write_table(pa.table({evil: ["x"], "b": ["y"]}), tmp_path / "counts.parquet")
    for arguments in (
        ["partition", tmp_path / "labels.parquet", "--clients", 2, "--recipe", "iid"],
        ["plan", tmp_path / "counts.parquet"],
    ):
        result = fedeas(*arguments)
        assert result.code == 2
        assert "\x1b" not in result.err
