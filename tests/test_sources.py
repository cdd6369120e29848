"""Counts from whatever people have."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from fedeas import InputError, LabelCounts
from fedeas.data.count_sources import read_counts
from pictures import encoded

CLIENTS = ["b", "a", "a", "b", "b", "a", "c"]
LABELS = ["cat", "dog", "dog", "cat", "dog", "cat", "cat"]
COUNTS = LabelCounts([[1, 2], [2, 1], [1, 0]], ["a", "b", "c"], ["cat", "dog"])


def long_csv(path, head=("client", "label"), rows=None):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows or zip(CLIENTS, LABELS, strict=True))
    return str(path)


def dataset() -> Dataset:
    features = Features({"site": Value("string"), "label": ClassLabel(names=["cat", "dog"])})
    rows = {"site": CLIENTS, "label": [("cat", "dog").index(label) for label in LABELS]}
    return Dataset.from_dict(rows, features)


@pytest.mark.parametrize("head", [("client", "label"), ("hospital", "Target"), ("owner", "kind")])
def test_a_row_per_sample_by_its_columns(tmp_path, head):
    path = long_csv(tmp_path / "x.csv", head)
    with pytest.raises(InputError, match=f"client={head[0]!r}, label={head[1]!r}"):
        LabelCounts.load(path)
    file = read_counts(path, client=head[0], label=head[1])
    assert file.counts == COUNTS
    assert file.description == f"a row per sample, {head[0]!r} and {head[1]!r}"


def test_other_columns_and_other_names(tmp_path):
    rows = [(i, c, "x", m) for i, (c, m) in enumerate(zip(CLIENTS, LABELS, strict=True))]
    path = long_csv(tmp_path / "x.csv", ("row", "owner", "file", "kind"), rows)
    assert read_counts(path, client="owner", label="kind").counts == COUNTS
    with pytest.raises(InputError, match="no such column; got 'kinds'; allowed: row, owner"):
        read_counts(path, client="owner", label="kinds")
    with pytest.raises(InputError, match="which column holds the clients"):
        read_counts(path, label="kind")


def test_numbers_are_in_the_order_of_numbers(tmp_path):
    path = long_csv(tmp_path / "x.csv", rows=[(10, 2), (9, 10), (10, 2)])
    counts = read_counts(path, label="label").counts
    assert (counts.client_names, counts.class_names) == (("9", "10"), ("2", "10"))
    assert counts.n.tolist() == [[0, 1], [2, 0]]


def test_a_long_parquet_file(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"site": CLIENTS, "label": LABELS, "x": range(7)}), path)
    assert read_counts(path, client="site", label="label").counts == COUNTS
    pq.write_table(pa.table({"site": ["a", None], "label": ["x", "y"]}), path)
    with pytest.raises(InputError, match="row 2 lacks a client or a label"):
        read_counts(path, client="site", label="label")


def test_a_table_of_counts_stays_one(tmp_path, paper_csv):
    file = read_counts(str(paper_csv))
    assert file.description == "a table of counts"
    assert file.counts == LabelCounts.load(paper_csv)
    (tmp_path / "x.csv").write_text("client,label_a,label_b\n1,2,3\n2,3,4\n")
    assert read_counts(str(tmp_path / "x.csv")).counts.total == 12


def test_a_folder_of_images_by_client_and_class(tmp_path):
    picture = encoded(np.zeros((8, 8, 1), np.uint8))
    for number, (client, label) in enumerate(zip(CLIENTS, LABELS, strict=True)):
        folder = tmp_path / "set" / client / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(picture)
    (tmp_path / "set" / "a" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "set" / ".cache" / "cat").mkdir(parents=True)
    found = read_counts(str(tmp_path / "set"))
    assert found.counts == COUNTS
    assert "folder per client" in found.description
    with pytest.raises(InputError, match="one folder of images per class"):
        read_counts(str(tmp_path / "set" / "a"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="allowed: client/class/image"):
        read_counts(str(tmp_path / "empty"))


def test_a_hugging_face_data_set_on_disk(tmp_path):
    dataset().save_to_disk(tmp_path / "one")
    DatasetDict({"train": dataset(), "test": dataset()}).save_to_disk(tmp_path / "two")
    for name, said in (("one", "'label'"), ("two", "split 'train'")):
        found = read_counts(str(tmp_path / name))
        assert found.counts == COUNTS
        assert said in found.description
    dataset().rename_column("site", "place").save_to_disk(tmp_path / "three")
    with pytest.raises(InputError, match=r"which column holds the client.*client='place'"):
        read_counts(str(tmp_path / "three"))
    assert read_counts(str(tmp_path / "three"), client="place").counts == COUNTS


def test_objects_of_a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_app.py").write_text(
        """
from datasets import Dataset
from flwr_datasets.partitioner import IidPartitioner, NaturalIdPartitioner
from fedeas import LabelCounts

rows = Dataset.from_dict({"site": list("abab"), "label": [0, 1, 1, 1]})
partitioner = IidPartitioner(2)
partitioner.dataset = rows
fresh = IidPartitioner(2)
counts = LabelCounts([[1, 2], [3, 4]])
nothing = 3
def by_site():
    made = NaturalIdPartitioner("site")
    made.dataset = rows
    return made
"""
    )
    assert read_counts("my_app:partitioner").counts.n.tolist() == [[1, 1], [0, 2]]
    assert "IidPartitioner" in read_counts("my_app:partitioner").description
    assert read_counts("my_app:by_site").counts.total == 4
    assert read_counts("my_app:rows").counts.n.tolist() == [[1, 1], [0, 2]]
    assert read_counts("my_app:counts").counts.total == 10
    for name, message in (
        ("fresh", "has no data set"),
        ("nothing", "does not hold the labels"),
        ("missing", "cannot import"),
    ):
        with pytest.raises(InputError, match=message):
            read_counts(f"my_app:{name}")


def test_the_commands_say_what_they_read(tmp_path, fedeas):
    path, out = long_csv(tmp_path / "x.csv"), tmp_path / "counts.csv"
    columns = ["--client", "client", "--label", "label"]
    shown = fedeas("counts", path, *columns, "--out", out)
    assert shown.err.startswith(f"{path}: a row per sample, 'client' and 'label': 3 clients")
    for command in ("plan", "compare"):
        assert fedeas(command, out).err.startswith(f"{out}: 3 clients (a, b, c)")
    assert fedeas("counts", path, "--label", "client", "--out", out).code == 2
    for rows, said in (
        ([("a", "")], "line 2 lacks a client"),
        ([("a", "x")] * 2, "only one class"),
    ):
        long_csv(tmp_path / "bad.csv", rows=rows)
        assert said in fedeas("counts", tmp_path / "bad.csv", *columns, "--out", out).err
