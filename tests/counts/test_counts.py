import copy
import pickle
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import FedEAS, InputError, LabelCounts
from fedeas.counts.label_counts import Fingerprint
from helpers.hypothesis_strategies import counts

FORMATS = [".csv", ".tsv", ".json", ".parquet"]
names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)


@pytest.mark.parametrize("ending", FORMATS)
@given(c=counts, data=st.data())
def test_saving_and_loading_changes_nothing(c, data, ending, tmp_path_factory):
    clients = data.draw(st.none() | st.lists(names, min_size=c.K, max_size=c.K, unique=True))
    classes = data.draw(st.none() | st.lists(names, min_size=c.C, max_size=c.C, unique=True))
    c = LabelCounts(c.n, clients, classes)
    path = tmp_path_factory.mktemp("counts") / f"counts{ending}"
    try:
        c.save(path)
    except InputError:  # text that would be read as something else
        assert ending in (".csv", ".tsv")
        return
    again = LabelCounts.load(path)
    assert again == c
    assert again.fingerprint == c.fingerprint


@given(counts, st.integers(1, 6))
def test_the_fingerprint_does_not_depend_on_how_rows_are_cut(c, step):
    clients = [f"site {k}" for k in range(c.K)]
    running = Fingerprint()
    for start in range(0, c.K, step):
        running.add(c.n[start : start + step], clients[start : start + step])
    assert running.digest(None) == LabelCounts(c.n, clients).fingerprint


def test_the_fingerprint_tells_counts_apart():
    base = LabelCounts([[1, 2], [3, 4]])
    others = [
        LabelCounts([[1, 2], [3, 5]]),
        LabelCounts([[1, 2, 3, 4]]),
        LabelCounts([[1, 2], [3, 4]], clients=["a", "b"]),
        LabelCounts([[1, 2], [3, 4]], classes=["a", "b"]),
    ]
    assert len({base, *others}) == 5
    assert base == LabelCounts([[1.0, 2.0], [3.0, 4.0]], clients=["0", "1"], classes=["0", "1"])


def test_counts_cannot_be_changed():
    given_matrix = np.array([[1, 2], [3, 4]])
    c = LabelCounts(given_matrix)
    given_matrix[0, 0] = 9
    assert c.n[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        c.n[0, 0] = 9
    with pytest.raises(AttributeError):
        c.n = given_matrix
    view = given_matrix.view()
    view.setflags(write=False)
    c = LabelCounts(view)
    given_matrix[0, 0] = 7
    assert c.n[0, 0] == 9
    with pytest.raises(ValueError, match="read-only"):
        c.sizes[0] = 1


@pytest.mark.parametrize(
    ("n", "message"),
    [
        ([[1, -2]], "out of range"),
        ([[1.0, 2.5]], "fraction"),
        ([[1.0, float("nan")]], "out of range"),
        ([[1.0, float("inf")]], "out of range"),
        ([[1, 2**60]], "out of range"),
        ([[2**53, 2**53]], "too large"),
        ([[1], [2]], "only one class"),
        (np.empty((0, 3), int), "no clients"),
        ([1, 2, 3], "1 dimensions"),
        ([["a", "b"]], "type"),
        ([[True, False]], "type"),
        ([[1, 2], [3]], "different lengths"),
        ([[0, 0], [0, 0]], "no client has samples"),
    ],
)
def test_bad_matrices_are_refused(n, message):
    with pytest.raises(InputError, match=message):
        LabelCounts(n)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (["a"], "1 client names for 2"),
        (["a", "a"], "client names must be different"),
        (["a", ""], "client name"),
        (["a", "\x1b[31mred"], "not a client name"),
        (["a", "b" * 201], "not a client name"),
        (["a", " b"], "not a client name"),
    ],
)
def test_bad_names_are_refused(clients, message):
    with pytest.raises(InputError, match=message):
        LabelCounts([[1, 2], [3, 4]], clients=clients)


def test_empty_clients_are_named():
    c = LabelCounts([[1, 2], [0, 0]], clients=["full", "bare"])
    assert c.empty == ("bare",)


def test_from_labels():
    c = LabelCounts.from_labels(["cat", "dog", "cat"], [7, 7, 9])
    assert c.clients == ("7", "9")
    assert c.classes == ("cat", "dog")
    np.testing.assert_array_equal(c.n, [[1, 1], [1, 0]])
    with pytest.raises(InputError, match="differ in length"):
        LabelCounts.from_labels([0, 1], [0])


def test_from_labels_keeps_classes_that_nobody_has():
    owners = [7, 7, 9]
    c = LabelCounts.from_labels(["cat", "dog", "cat"], owners, classes=["dog", "emu", "cat"])
    assert c.classes == ("dog", "emu", "cat")
    np.testing.assert_array_equal(c.n, [[1, 0, 1], [0, 0, 1]])
    for number in (4, np.int64(4)):
        c = LabelCounts.from_labels(np.array([0, 2, 2]), owners, classes=number)
        assert c.classes is None
        np.testing.assert_array_equal(c.n, [[1, 0, 1, 0], [0, 0, 1, 0]])
    names = np.array(["3", "5"])
    np.testing.assert_array_equal(
        LabelCounts.from_labels([5, 3, 5], owners, classes=names).n, [[1, 1], [0, 1]]
    )
    for labels, classes in (
        ([0, 1, 2], 2),
        ([0, 1, -1], 2),
        (["cat", "emu", "cat"], ["cat", "dog"]),
    ):
        with pytest.raises(InputError, match="not among the classes"):
            LabelCounts.from_labels(labels, owners, classes=classes)
    for classes in (1, 0, -1, 2**40, True, "cat"):
        with pytest.raises(InputError, match="invalid classes"):
            LabelCounts.from_labels([0, 0, 0], owners, classes=classes)


def test_a_data_frame_keeps_its_names():
    import pandas as pd

    frame = pd.DataFrame([[9, 1], [0, 5]], index=["north", "south"], columns=["cat", "dog"])
    c = LabelCounts(frame)
    assert (c.clients, c.classes) == (("north", "south"), ("cat", "dog"))
    assert LabelCounts(frame, clients=["a", "b"]).clients == ("a", "b")
    frame.index = ["same", "same"]
    assert LabelCounts(frame, clients=["a", "b"]).clients == ("a", "b")
    with pytest.raises(InputError):
        LabelCounts(frame)
    frame.index = ["north", "south"]
    plain = LabelCounts(pd.DataFrame([[9, 1], [0, 5]]))
    assert (plain.clients, plain.classes) == (None, None)
    samples = pd.DataFrame({"site": ["x", "x", "y"], "kind": ["cat", "dog", "cat"]})
    crossed = LabelCounts(pd.crosstab(samples["site"], samples["kind"]))
    assert crossed == LabelCounts.from_labels(samples["kind"], samples["site"])
    for column in (["north", "south"], [1, 2]):  # a column of ids is not a class
        with pytest.raises(InputError, match="client"):
            LabelCounts(frame.reset_index(drop=True).assign(client=column))
    indexed = LabelCounts(frame.assign(client=[3, 4]))  # the index says who the clients are
    assert indexed.classes == ("cat", "dog", "client")
    with pytest.raises(InputError, match="nan"):
        LabelCounts(frame.astype(float).replace(5, float("nan")))


def test_counts_of_counts_keep_their_names():
    c = LabelCounts([[9, 1], [0, 5]], ["north", "south"], ["cat", "dog"])
    assert LabelCounts(c) == c
    assert LabelCounts.of(c) is c


@pytest.mark.parametrize(
    ("text", "clients", "classes"),
    [
        ("client,a,b,c\nx,1,2,3\ny,4,5,6\n", ("x", "y"), ("a", "b", "c")),
        ("Client_ID,0,1,2\nx,1,2,3\ny,4,5,6\n", ("x", "y"), None),
        ("id,a,b,c\nx,1,2,3\ny,4,5,6\n", ("x", "y"), ("a", "b", "c")),
        ("hospital,a,b,c\nx,1,2,3\ny,4,5,6\n", ("x", "y"), ("a", "b", "c")),
        ("\ufeffclient,a,b,c\r\nx,1,2,3\r\n\r\ny,4,5,6\r\n", ("x", "y"), ("a", "b", "c")),
        ("ClientID,a,b,c\n101,1,2,3\n205,4,5,6\n", ("101", "205"), ("a", "b", "c")),
        ("hospital no,a,b,c\n7,1,2,3\n9,4,5,6\n", ("7", "9"), ("a", "b", "c")),
        ('client,"a",b,c\n"x", 1 ,2.0,3\ny,4,5,6\n', ("x", "y"), ("a", "b", "c")),
        ("client,0,1,2\n0,1,2,3\n1,4,5,6\n", None, None),
    ],
)
def test_csv_as_people_write_it(text, clients, classes, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_bytes(text.encode())
    c = LabelCounts.load(path)
    np.testing.assert_array_equal(c.n, [[1, 2, 3], [4, 5, 6]])
    assert (c.clients, c.classes) == (clients, classes)


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n4,5,6\n",  # no heading
        "x,1,2,3\ny,4,5,6\n",
        "client_1,1,2,3\nclient_2,4,5,6\n",
        "0,1,2\n1,2,3\n4,5,6\n",
        ",client,cat,dog\n3,101,90,10\n5,102,30,40\n",
    ],
)
def test_ambiguous_csv_is_refused_rather_than_guessed(text, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"heading|first column"):
        LabelCounts.load(path)


def test_numbers_are_read_exactly_or_refused(tmp_path):
    path = tmp_path / "counts.csv"
    for cell in ("9007199254740993", "0.99999999999999999999", "1e-400", "1e999"):
        path.write_text(f"client,a,b\nx,1,{cell}\n")
        with pytest.raises(InputError, match="line 2"):
            LabelCounts.load(path)
    path.write_text("client,a,b\nx,1,9007199254740991\n")
    assert LabelCounts.load(path).n[0, 1] == 2**53 - 1


def test_a_plan_is_no_counts(tmp_path):
    from fedeas import FedEAS

    for ending in (".json", ".parquet"):
        FedEAS().plan(LabelCounts([[9, 0], [1, 5]])).save(tmp_path / f"plan{ending}")
        with pytest.raises(InputError, match="is a plan"):
            LabelCounts.load(tmp_path / f"plan{ending}")


def test_a_class_may_be_called_client(tmp_path):
    c = LabelCounts([[9, 1], [1, 2]], clients=["x", "y"], classes=["client", "site"])
    for ending in FORMATS:
        c.save(tmp_path / f"counts{ending}")
        assert LabelCounts.load(tmp_path / f"counts{ending}") == c


def test_parquet_as_data_frames_write_it(tmp_path):
    import pandas as pd

    frame = pd.DataFrame([[1, 2], [3, 4]], index=["x", "y"], columns=["a", "b"])
    for index_name in (None, "hospital"):
        frame.index.name = index_name
        frame.to_parquet(tmp_path / "counts.parquet")
        c = LabelCounts.load(tmp_path / "counts.parquet")
        assert (c.clients, c.classes) == (("x", "y"), ("a", "b"))
    plain = LabelCounts([[1, 2], [3, 4]], classes=["id", "name"])
    plain.save(tmp_path / "counts.parquet")
    assert LabelCounts.load(tmp_path / "counts.parquet") == plain


@given(c=counts)
def test_to_a_data_frame_and_back(c):
    assert LabelCounts.from_pandas(c.to_pandas()) == c


def test_a_class_may_be_called_client_in_a_data_frame_too():
    c = LabelCounts([[9, 1], [1, 2]], classes=["client", "id"])
    assert LabelCounts.from_pandas(c.to_pandas()) == c


def test_only_a_data_frame_is_a_data_frame():
    with pytest.raises(InputError, match=r"not a data frame; got 'list'; use LabelCounts\(n\)"):
        LabelCounts.from_pandas([[9, 1], [1, 2]])


def test_large_counts_are_abbreviated_in_a_notebook():
    c = LabelCounts(np.ones((1000, 100), int))
    table = ElementTree.fromstring(c._repr_html_())
    assert "1,000 clients x 100 classes" in table.find("caption").text
    cells = ["".join(row.itertext()) for row in table.iter("tr")]
    assert len(cells) == 22
    assert cells[-1] == "… 980 more clients"
    assert "… 84 more" in cells[0]
    assert cells[1].endswith("…100")  # a row's sum is that of all its classes


@pytest.mark.parametrize("shape", [(1, 2), (6, 3), (300, 4), (50, 100)])
def test_counts_of_any_size_are_drawn(shape):
    n = np.random.default_rng(0).integers(0, 99, shape)
    n[0] = 0, *[1] * (shape[1] - 1)
    figure = LabelCounts(n, clients=[f"a hospital of number {k}" for k in range(shape[0])]).plot()
    axes = figure.axes[0]
    assert axes.get_images()[0].get_array().shape == (
        30 if shape[0] > 60 else shape[0],
        shape[1],
        4,
    )
    assert all(len(label.get_text()) <= 20 for label in axes.get_yticklabels())
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("column", ["labels", "clients"])
@pytest.mark.parametrize(
    "gap", [np.nan, None, np.datetime64("NaT"), pytest.param("NA", id="pandas NA")]
)
@pytest.mark.parametrize("kind", ["list", "object", "series"])
def test_samples_without_a_label_or_a_client_are_refused(column, gap, kind):
    pd = pytest.importorskip("pandas")
    values = ["a", "b", pd.NA if gap == "NA" else gap, "b"]
    if kind == "series":
        values = pd.Series(values)
    elif kind == "object":
        values = np.array(values, object)
    given = {"labels": [0, 1, 0, 1], "clients": ["x", "x", "y", "y"]} | {column: values}
    with pytest.raises(InputError) as error:
        LabelCounts.from_labels(**given)
    assert "1 of 4" in str(error.value)
    assert column[:-1] in str(error.value)


def test_masked_labels_are_refused_and_mixed_ones_are_text():
    with pytest.raises(InputError, match="1 of 3"):
        LabelCounts.from_labels(np.array([0, np.nan, 1]), ["x", "x", "y"])
    masked = np.ma.masked_array([0, 1, 1], [False, True, False])
    with pytest.raises(InputError, match="1 of 3"):
        LabelCounts.from_labels(masked, ["x", "x", "y"])
    assert LabelCounts.from_labels([0, "a", 0], ["x", "x", "y"]).classes == ("0", "a")


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copy_cannot_be_written_to(again):
    counts = LabelCounts([[9, 1], [3, 4]], ["north", "south"])
    plan = FedEAS().plan(counts)
    assert plan.per_client.sum() == plan.total
    for value, matrix in ((counts, "n"), (plan, "samples")):
        other = again(value)
        assert other == value
        assert not getattr(other, matrix).flags.writeable
        assert not (other.sizes if value is counts else other.per_client).flags.writeable
