"""Tables as data sets: their schema, how they are read, split and stored."""

import json

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedeas import InputError, LabelCounts, NaturalId
from fedeas.data import (
    Column,
    Dataset,
    Schema,
    TableOptions,
    describe_columns,
    federate,
    load_table,
    open_dataset,
)
from fedeas.data.kinds import find_kind
from fedeas.lab.config import read_config
from fedeas.lab.experiment import run
from fedeas.partition import Partition
from fedeas.train.flower import run_server
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.deployed import open_site
from fedeas.train.flower.deployment import SiteConfig
from fedeas.train.flower.site import check_task
from fedeas.train.methods import make_method
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import ModelSettings
from helpers import table_sets
from helpers.image_sets import CLASSES, draw_shapes, write_set
from helpers.small_federations import federation, settings
from helpers.small_federations import run as train

SCHEMA = Schema((Column("age", whole=True), Column("home", ("own", "rent")), Column("income")))
ROWS = np.array([[30, 1, 5.5], [np.nan, 0, np.nan], [41, np.nan, -2.0]], np.float32)


def write(folder, schema=SCHEMA, rows=ROWS):
    batches = iter([(rows, np.array([0, 1, 0]))])
    return Dataset.write(folder, "t", ("a", "b"), (2, 1), batches, kind="table", schema=schema)


def test_a_schema_survives_json_and_is_stored_with_its_data_set(tmp_path):
    assert Schema.from_list(json.loads(json.dumps(SCHEMA.to_list()))) == SCHEMA
    data = write(tmp_path / "set")
    assert data.schema == Dataset.open(tmp_path / "set").schema == SCHEMA
    np.testing.assert_array_equal(data.samples, ROWS)  # gaps are NaN
    assert (SCHEMA.numbers.tolist(), SCHEMA.categorical.tolist()) == ([0, 2], [1])
    assert SCHEMA.whole.tolist() == [0]
    SCHEMA.check(ROWS)


def test_what_codes_stand_for_is_part_of_a_fingerprint(tmp_path):
    other = Schema((SCHEMA.columns[0], Column("home", ("rent", "own")), SCHEMA.columns[2]))
    found = {write(tmp_path / str(i), s).fingerprint for i, s in enumerate((SCHEMA, other, None))}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        (2, 1, "column 'home'.*got 2.0.*a code from 0 to 1"),
        (-1, 1, "a code from 0 to 1"),
        (0.5, 1, "a code from 0 to 1"),
        (30.5, 0, "column 'age'.*a whole number"),
        (np.inf, 2, "row 2, column 'income'"),
    ],
)
def test_rows_that_a_schema_does_not_describe_are_refused(value, place, words):
    rows = ROWS.copy()
    rows[2, place] = value
    with pytest.raises(InputError, match=words):
        SCHEMA.check(rows)


def test_schemas_that_make_no_sense_are_refused(tmp_path):
    for make in (
        lambda: Schema(()),
        lambda: Schema((Column("a"), Column("a"))),
        lambda: Column("a", ("x", "x")),
        lambda: Column("a", ("x\x1b[31m",)),
        lambda: Column(""),
        lambda: Column("a", ("x",), whole=True),
        lambda: Schema.from_list([{"name": "a"}]),
        lambda: Schema.from_list([{"name": "a", "categories": [], "whole": 1}]),
    ):
        with pytest.raises(InputError):
            make()
    with pytest.raises(InputError, match="does not describe"):
        write(tmp_path / "set", Schema(SCHEMA.columns[:2]))


# How tables are read

TABLES = {
    # rows, numbers, categorical, whole, classes
    "letter": (20_000, 16, 0, 16, 26),
    "penbased": (10_992, 16, 0, 16, 10),
    "satimage": (6_435, 36, 0, 36, 6),
    "loans": (10_000, 18, 4, 15, 7),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_schema_of_real_tables_is_found_whatever_they_come_in(data, tmp_path, name):
    """Parquet, CSV, frames and a Hugging Face data set become the same data set."""
    path = data / "tables" / f"{name}.parquet"
    site = "state" if name == "loans" else ""
    found = load_table(path, site=site)
    schema = found.schema
    sizes = (len(schema.numbers), len(schema.categorical), len(schema.whole))
    assert (len(found.labels), *sizes, len(found.classes)) == TABLES[name]
    assert not found.notes
    frame = pd.read_parquet(path)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    hugging_face = datasets.Dataset.from_pandas(frame, preserve_index=False)
    others = (frame, pl.read_parquet(path), hugging_face, tmp_path / "t.csv", tmp_path / "t.tsv")
    for other in others:
        assert load_table(other, site=site).fingerprint == found.fingerprint
    assert open_dataset(f"tables/{name}").labels.shape == found.labels.shape


def test_gaps_and_categories_of_real_loans_are_kept(data):
    frame = pd.read_parquet(data / "tables" / "loans.parquet")
    found = load_table(data / "tables" / "loans.parquet", site="state")
    rows_of = pd.DataFrame(np.asarray(found.samples), columns=found.schema.names)
    for column in found.schema.columns:
        assert rows_of[column.name].isna().sum() == frame[column.name].isna().sum()
        known = frame[column.name].dropna()
        if column.categories:
            codes = rows_of[column.name].dropna().astype(int)
            back = pd.Series([column.categories[code] for code in codes])
            assert back.value_counts().to_dict() == known.value_counts().to_dict()
        else:
            assert sorted(rows_of[column.name].dropna()) == sorted(known.astype(np.float32))
    found.schema.check(np.asarray(found.samples))
    # The sites are kept beside the rows: the first training row is the first that is not held out.
    assert len(found.sites.names) == 50
    pairs = pd.Series(list(zip(found.sites.codes, found.labels, strict=True))).value_counts()
    real = frame.groupby(["state", "label"]).size()
    named = {(found.sites.names[s], found.classes[y]): n for (s, y), n in pairs.items()}
    assert named == real.to_dict()


def frame(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(40) % 7 / 2, "label": ["a", "b"] * 20, **columns})


def test_a_share_of_every_class_is_held_out(tmp_path):
    labels = np.repeat(["a", "b", "c"], [100, 50, 1])
    table = pd.DataFrame({"x": np.arange(151) * 1.5, "label": labels})
    found, other = (load_table(table, test_seed=seed) for seed in (0, 1))
    test = np.bincount(found.labels[found.train_size :], minlength=3)
    assert test.tolist() == [20, 10, 0]
    assert found.test_origin == "20% of each class, set aside by fedeas (test_seed = 0)"
    assert sorted(found.samples[:, 0]) == sorted(table["x"].astype(np.float32))
    assert found.fingerprint != other.fingerprint
    assert load_table(table, test_share=0.0).train_size == 151
    with pytest.raises(InputError, match="test_share out of range; got 1"):
        load_table(table, test_share=1.0)


def test_columns_that_say_nothing_are_left_out_and_said():
    table = frame(
        one=3, same="yes", empty=[None] * 40, row=range(40), id=[f"n{i}" for i in range(40)],
        when=pd.Timestamp("2020-01-01"), long=["x" * 300, "y"] * 20, nested=[[1]] * 40,
        half=[1.0, None] * 20,
    )  # fmt: skip
    found = load_table(table)
    assert found.schema.names == ("x", "half")  # a constant with gaps says something: the gaps
    assert [note.split(" is left out: ")[0] for note in found.notes] == [
        "one", "same", "empty", "row", "id", "when", "long", "nested",
    ]  # fmt: skip
    assert "when is left out: it holds dates or times" in found.notes
    assert "id is left out: 40 different texts in 40 rows, as of an identifier" in found.notes
    assert [line for line in describe_columns(found) if line.startswith("note: one")]


def test_booleans_pandas_categories_and_class_labels_are_categories():
    table = frame(
        yes=pd.array([True, False, None, True] * 10, "boolean"),
        size=pd.Categorical([10, 2, 10, 2] * 10),
        home=pd.Categorical(["b", "a", None, "b"] * 10, categories=["unused", "b", "a"]),
        spaced=[" u", "v ", "", "u"] * 10,
    )
    found = load_table(table)
    columns = {column.name: column.categories for column in found.schema.columns}
    assert columns["yes"] == ("false", "true")
    assert columns["size"] == ("2", "10")  # by value
    assert columns["home"] == ("a", "b")
    assert columns["spaced"] == ("u", "v")
    assert np.isnan(found.samples[:, 4]).sum() == 10
    # Hugging Face's labels keep the order that the data set gives them.
    features = datasets.Features(
        {"x": datasets.Value("float32"), "label": datasets.ClassLabel(names=["zebra", "ant"])}
    )
    named = datasets.Dataset.from_dict(
        {"x": list(np.arange(20) * 1.5), "label": [0, 1] * 10}, features=features
    )
    made = load_table(named, test_share=0.0)
    assert (made.classes, made.labels.tolist()) == (("zebra", "ant"), [0, 1] * 10)


def test_what_is_found_can_be_corrected():
    table = frame(term=[36, 60] * 20, code=["1", "2.5"] * 20, one=1, grade=["u", "v"] * 20)
    found = load_table(
        table, label="grade", numbers=["code", "one"], categories=["term"], drop_columns=["label"]
    )
    assert found.classes == ("u", "v")
    assert [(c.name, c.categories, c.whole) for c in found.schema.columns] == [
        ("x", (), False), ("term", ("36", "60"), False), ("code", (), False), ("one", (), True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label": "grade"}, "no column 'grade'; allowed: x, label, text, when; set label"),
        ({"categories": ["txt"]}, "no column 'txt'.*did you mean 'text'"),
        ({"numbers": ["text"]}, "column .text. has text.*.u.; allowed: numbers"),
        ({"numbers": ["when"]}, "column 'when' cannot be learnt from: it holds dates or times"),
        ({"numbers": ["x"], "drop_columns": ["x"]}, "column 'x' is named twice"),
        ({"drop_columns": ["x", "text"]}, "no column to learn from"),
        ({"schema": "s.json", "numbers": ["x"]}, "a schema says what all columns are"),
        ({"label": "text"}, "column 'text' has 10 gaps, the first in row 4"),
        ({"label": "when"}, "column 'when' holds dates or times"),
    ],
)
def test_mistakes_about_columns_are_one_line(options, words):
    table = frame(text=["u", "v", "u", None] * 10, when=pd.Timestamp("2020-01-01"))
    with pytest.raises(InputError, match=words) as error:
        load_table(table, **options)
    assert "\n" not in str(error.value)


def test_tables_that_cannot_be_read_are_one_line(tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n1,a\n2\n")
    (tmp_path / "b.csv").write_text("x,x,label\n1,1,a\n2,2,b\n")
    (tmp_path / "c.csv").write_text("x,label\n")
    (tmp_path / "d.csv").write_text("x,label\n1,a\n2,a\n")
    (tmp_path / "e.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "f.csv").write_text("x,label\n1e39,a\n2,b\n")
    (tmp_path / "g.parquet").write_bytes(b"PAR1")
    (tmp_path / "h.xlsx").write_bytes(b"")
    for path, words in {
        "a.csv": "not CSV", "b.csv": "two columns of the same name", "c.csv": "has no rows",
        "d.csv": "has one class; got 'a'", "e.csv": "not CSV in UTF-8", "f.csv": "very large numbe",
        "g.parquet": "not a readable Parquet", "h.xlsx": "unknown kind of file",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=words) as error:
            load_table(tmp_path / path)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="not a table; got 'list'"):
        load_table([1, 2])
    with pytest.raises(InputError, match=r"there is no table nowhere.csv"):
        open_dataset("nowhere.csv")


def test_whole_numbers_that_float32_rounds_are_said():
    found = load_table(frame(big=[2**24 + 1, 5] * 20))
    assert found.schema.columns[1] == Column("big", whole=True)
    assert found.notes == ("big: whole numbers above 16,777,216 are rounded, by at most 1",)
    found.schema.check(np.asarray(found.samples))


def test_a_table_is_read_once_and_again_when_it_changes(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    frame().to_parquet(path)
    first = load_table(path, store=tmp_path / "store")
    with monkeypatch.context() as patch:
        patch.setattr("fedeas.data.load._write_table", None)
        assert load_table(path, store=tmp_path / "store").fingerprint == first.fingerprint
        load_table_again = pytest.raises(TypeError)
        with load_table_again:
            load_table(path, test_seed=1, store=tmp_path / "store")
    frame(y=[1.5, 2.5] * 20).to_parquet(path)
    assert load_table(path, store=tmp_path / "store").fingerprint != first.fingerprint


def test_a_given_schema_is_kept_to(tmp_path):
    values, labels = table_sets.draw_rows(60)
    pq.write_table(table_sets.to_table(values, labels), tmp_path / "t.parquet")
    table_sets.SCHEMA.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == table_sets.SCHEMA
    # A site that has one home only: the codes are the federation's all the same.
    own = np.flatnonzero(values[:, 2] == 2)
    pq.write_table(table_sets.to_table(values[own], labels[own]), tmp_path / "site.parquet")
    found = load_table(tmp_path / "site.parquet", schema=tmp_path / "schema.json", test_share=0.0)
    np.testing.assert_array_equal(found.samples, values[own])
    fewer = Schema((*table_sets.SCHEMA.columns[:2], Column("home", ("own", "rent"))))
    fewer.save(tmp_path / "fewer.json")
    with pytest.raises(InputError, match="a category that the schema does not know; got 'with f"):
        load_table(tmp_path / "t.parquet", schema=tmp_path / "fewer.json")
    Schema((Column("wage"),)).save(tmp_path / "other.json")
    with pytest.raises(InputError, match="no column 'wage'"):
        load_table(tmp_path / "t.parquet", schema=tmp_path / "other.json")
    Schema((Column("income", whole=True),)).save(tmp_path / "whole.json")
    with pytest.raises(InputError, match="column 'income' has fractions"):
        load_table(tmp_path / "t.parquet", schema=tmp_path / "whole.json")


def test_a_table_is_found_by_its_name_and_mistaken_for_nothing_else(tmp_path, monkeypatch):
    """Counts in the working folder that have the name of a data set are not that data set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDEAS_DATA", str(tmp_path / "data"))
    images, _ = draw_shapes(12)
    write_set(tmp_path / "data" / "mine", list(images[:6]), list(images[6:]), CLASSES)
    frame().to_csv("mine.csv", index=False)
    frame().to_csv(tmp_path / "data" / "mine.csv", index=False)
    frame().to_csv(tmp_path / "data" / "other.csv", index=False)
    assert open_dataset("mine").kind == "image"
    assert [open_dataset(n).kind for n in ("mine.csv", "other", "other.csv")] == ["table"] * 3
    assert open_dataset("set", tmp_path / "data" / "other.csv").kind == "table"
    assert open_dataset("other", tmp_path / "data").kind == "table"
    # Most tables of the hub have no test set.
    split = tmp_path / "data" / "split"
    split.mkdir()
    frame().to_parquet(split / "train-00000-of-00002.parquet")
    with pytest.raises(InputError, match="files are missing"):
        open_dataset("split")
    frame().to_parquet(split / "train-00001-of-00002.parquet")
    whole = open_dataset("split")
    assert (len(whole.labels), whole.train_size) == (80, 64)
    assert whole.test_origin.startswith("20% of each class")


# Sites


def test_clients_are_the_sites_of_a_column(data):
    found = load_table(data / "tables" / "loans.parquet", site="state")
    shared = federate(found, NaturalId("state"))
    counts = shared.counts
    assert counts.K == 50
    assert counts.clients[:3] == ("AK", "AL", "AR")
    assert counts.total == found.train_size
    assert int(counts.sizes.min()) < 20  # a site of few rows is kept
    for client, own in zip(counts.clients, shared.partition.train, strict=True):
        assert {found.sites.names[s] for s in found.sites.codes[own]} == {client}
    with pytest.raises(InputError, match="read without the sites of column 'region'; got 'state'"):
        federate(found, NaturalId("region"))
    with pytest.raises(InputError, match="fedeas counts FILE --client state --label label"):
        NaturalId("state").partition([0, 1])


def test_a_partition_keeps_the_names_of_its_clients(tmp_path):
    made = NaturalId("site").partition([0, 1, 1, 0], ["10", "9", "9", "10"])
    assert made.clients == ("9", "10")
    made.save(tmp_path / "p.npz")
    again = Partition.load(tmp_path / "p.npz")
    assert again == made
    assert again.counts([0, 1, 1, 0]).clients == ("9", "10")


def test_images_have_sites_too(tmp_path):
    images, _ = draw_shapes(60)
    write_set(tmp_path / "set", list(images[:48]), list(images[48:]), CLASSES)
    plain = open_dataset("mine", tmp_path / "set")
    for path in (tmp_path / "set").glob("*.parquet"):
        table = pq.read_table(path)
        sites = pa.array([f"h{i // 6 % 4}" for i in range(len(table))])
        pq.write_table(table.append_column("hospital", sites), path)
    found = open_dataset("mine", tmp_path / "set", TableOptions(site="hospital"))
    np.testing.assert_array_equal(found.samples, plain.samples)
    counts = federate(found, NaturalId("hospital")).counts
    assert counts.clients == ("h0", "h1", "h2", "h3")
    assert counts.total == 48
    with pytest.raises(InputError, match="no column 'ward'"):
        open_dataset("mine", tmp_path / "set", TableOptions(site="ward"))
    with pytest.raises(InputError, match="holds images: label, numbers"):
        open_dataset("mine", tmp_path / "set", TableOptions(numbers=("x",)))


def test_the_counts_of_a_table_are_planned_by_its_sites(data, tmp_path, fedeas):
    path = data / "tables" / "loans.parquet"
    out = tmp_path / "counts.csv"
    done = fedeas("counts", path, "--client", "state", "--label", "label", "--out", out)
    assert done.code == 0, done.err
    assert len(json.loads(fedeas("plan", out, "--json").out)["clients"]) == 50
    refused = fedeas("plan", path)
    assert (refused.code, "--client" in refused.err) == (2, True)


# Learning from rows


def test_statistics_ignore_gaps():
    mean, spread = find_kind("table").statistics(ROWS)
    np.testing.assert_allclose(mean, [35.5, 0.5, 1.75])
    np.testing.assert_allclose(spread, [5.5, 0.5, 3.75])
    gaps = np.full((3, 1), np.nan, np.float32)
    assert find_kind("table").statistics(gaps) == ((0.0,), (1.0,))
    # Years and the like: a small spread beside a large mean.
    large = np.array([[1e7], [1e7 + 2]], np.float32)
    assert find_kind("table").statistics(large) == ((1e7 + 1,), (1.0,))


def test_the_network_sees_numbers_gaps_and_categories(tmp_path):
    """Worked out by hand: numbers standardised, their gaps marked, categories embedded."""
    task = Task.of(write(tmp_path / "set"))
    task = Task(2, (3,), (30.0, 9.9, 1.0), (10.0, 9.9, 2.0), "table", SCHEMA)
    assert task.width == 2 * 2 + 3
    model = make_model(ModelSettings("mlp"), task, 0)
    seen = model.normalise(torch.from_numpy(ROWS))
    expected = [
        [0.0, 2.25, 0, 0, 0, 1, 0],  # age 30, income 5.5, rent
        [0.0, 0.0, 1, 1, 1, 0, 0],  # no age, no income, own
        [1.1, -1.5, 0, 0, 0, 0, 1],  # age 41, income -2, no home
    ]
    torch.testing.assert_close(seen, torch.tensor(expected))
    vectors = model.embeddings[0]
    assert vectors.shape == (3, 2)
    rest = torch.cat([seen[:, :4], vectors[[1, 0, 2]]], 1)
    hidden = torch.relu(model.hidden2(torch.relu(model.hidden1(rest))))
    torch.testing.assert_close(model(torch.from_numpy(ROWS)), model.fc(hidden))
    model(torch.from_numpy(ROWS)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_task_travels_as_json_and_a_client_checks_its_columns(tmp_path):
    data = write(tmp_path / "set")
    task = Task.of(data)
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert "schema" not in Task(3, (8, 8, 1), (0.2,), (0.3,)).to_dict()
    samples = Samples.of(data, np.arange(2))
    check_task(task, samples)
    other = Schema((SCHEMA.columns[0], Column("home", ("rent", "own")), SCHEMA.columns[2]))
    strange = Task(task.classes, task.shape, task.mean, task.std, "table", other)
    with pytest.raises(InputError, match="does not match this client's data"):
        check_task(strange, samples)


def test_generated_rows_have_only_known_categories(tmp_path):
    data = write(tmp_path / "set")
    with pytest.raises(InputError, match="column 'home'; got 2"):
        Samples.of(data, np.arange(2), np.array([[1, 2, 3]], np.float32), np.array([0]))


def test_fedmix_refuses_categories_and_averages_numbers_without_gaps(tmp_path):
    made = federation(tmp_path / "all", kind="table")
    with pytest.raises(InputError, match="categories have no average; got 'home'"):
        train(made, tmp_path, settings("fedmix", model="mlp"))
    values, labels = table_sets.draw_rows(90)
    table = table_sets.to_table(values, labels).drop(["home"])
    found = load_table(table, test_share=0.0)
    assert np.isnan(found.samples).any()
    method = make_method("fedmix(mash=0)")
    known = method.client_init(Samples.of(found, np.arange(90)), np.random.default_rng(0))
    np.testing.assert_allclose(known["samples"][0], np.nanmean(found.samples, axis=0), rtol=1e-5)
    method.validate_client_init(known, Task.of(found), 90)
    known["samples"][0, 0] = torch.inf
    with pytest.raises(InputError, match="out of range"):
        method.validate_client_init(known, Task.of(found), 90)


LOANS = """
[data]
name = "tables/loans"
pool_per_class = 5
categories = ["term"]
[partition]
recipe = "column(state)"
[augment]
policy = "fedeas(beta=4)"
generator = "pool"
cache = "{}/cache"
[federated]
rounds = 2
[federated.model]
name = "mlp"
"""


def test_real_loans_end_to_end(data, tmp_path, fedeas):
    path = tmp_path / "loans.toml"
    path.write_text(LOANS.format(tmp_path))
    said = []
    result = run(path, tmp_path / "run", said.append)
    assert result["generated"] > 100
    assert result["accuracy"] > 0.25
    assert any(line.split()[:2] == ["term", "2"] for line in said)
    assert "term" in {c.name for c in Schema.load(tmp_path / "run" / "schema.json").columns}
    assert LabelCounts.load(tmp_path / "run" / "counts.json").client_names[0] == "AK"
    assert run(path, tmp_path / "run") == result
    done = fedeas("report", tmp_path / "run", "--out", tmp_path / "report")
    assert done.code == 0, done.err
    page = (tmp_path / "report" / "report.md").read_text()
    assert "| class | emp_length | homeownership |" in page
    assert "The first 2 of each class" in page
    assert "Samples per client" in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("(state)", "(county)"), "no column 'county'"),
        (("column(state)", "column"), "needs the name of one; write column"),
        (('recipe = "column(state)"', 'recipe = "column(state)"\nclients = 9'), "no setting 'cli"),
        (
            ("pool_per_class = 5", 'pool_per_class = 5\nsite = "term"'),
            "named twice|different columns",
        ),
        (("categories = ", "categorys = "), "did you mean 'categories'"),
        (('name = "mlp"', 'name = "cnn"'), "this model is for images; got 'table'"),
        (("rounds = 2", 'rounds = 2\nmethod = "fedmix"'), "categories have no average"),
    ],
)
def test_a_wrong_config_of_a_table_is_one_line(data, tmp_path, change, words):
    path = tmp_path / "loans.toml"
    path.write_text(LOANS.format(tmp_path).replace(*change))
    with pytest.raises(InputError, match=words) as error:
        run(read_config(path), tmp_path / "run")
    assert "\n" not in str(error.value)


# Deployed sites


def test_sites_with_tables_train_on_the_columns_that_they_agreed_on(tmp_path):
    """Three sites; one has one class and two of three homes. The server has test rows."""
    values, labels = table_sets.draw_rows(400)
    schema = tmp_path / "schema.json"
    table_sets.SCHEMA.save(schema)
    parts = np.array_split(np.arange(300), 2)
    parts.append(np.flatnonzero((labels == 1) & (values[:, 2] != 0))[-25:])
    for k, own in enumerate([*parts, np.arange(300, 400)]):
        pq.write_table(table_sets.to_table(values[own], labels[own]), tmp_path / f"{k}.parquet")

    def config(k: int, **changed: object) -> SiteConfig:
        place, state = str(tmp_path / f"{k}.parquet"), str(tmp_path / f"state{k}")
        names = ",".join(table_sets.CLASSES)
        return SiteConfig(k, names, place, state, device="cpu", schema=str(schema)).replace(
            **changed
        )

    site = open_site(config(2))
    assert site.real.data.schema == table_sets.SCHEMA
    assert site.real.counts().tolist() == [0, 25, 0]
    app = make_client_app(lambda context: open_site(config(context.node_config["partition-id"])))
    asked = {
        "out": str(tmp_path / "out"), "test-data": str(tmp_path / "3.parquet"), "sites": 3,
        "classes": ",".join(table_sets.CLASSES), "policy": "none", "model": "mlp", "rounds": 2,
        "batch": 8, "learning-rate": 0.05, "device": "cpu", "schema": str(schema),
        "max-weight-ratio": 0.0,
    }  # fmt: skip
    done = run_server(InlineGrid(app, 3), asked)
    assert done.history[-1]["accuracy"] > 0.6
    with pytest.raises(InputError, match="needs the columns that all sites agreed on"):
        open_site(config(0, schema=""))
