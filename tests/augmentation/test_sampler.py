"""`FedEASSampler`, `augment` of frames and arrays of rows, and plans for imbalanced-learn."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedeas import FedEAS, FedEASSampler, InputError, LabelCounts, Plan, augment
from fedeas.augmentation.tables import Frame
from fedeas.generators import Gaussian
from helpers.small_tables import SCHEMA, draw_table

imblearn = pytest.importorskip("imblearn")

from imblearn.over_sampling import SMOTE  # noqa: E402
from imblearn.pipeline import make_pipeline  # noqa: E402
from imblearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402

GRADES = np.array(["good", "fair", "bad"])


def all_checks() -> pytest.MarkDecorator:
    """Those of imbalanced-learn, as a list: pytest takes no generator."""
    names, values = (made := parametrize_with_checks([FedEASSampler(random_state=0)])).args
    return pytest.mark.parametrize(names, list(values), **made.kwargs)


@all_checks()
def test_it_is_a_sampler_of_imbalanced_learn(estimator, check):
    check(estimator)


def loans(size: int = 480) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, categories of three types, true or false, gaps."""
    rows, labels = draw_table(size)
    frame = pd.DataFrame({
        "age": rows[:, 0].astype(int),
        "home": pd.Categorical.from_codes(rows[:, 1].astype(int), ["own", "rent", "other"]),
        "income": rows[:, 2].astype(float),
        "late": pd.array(rows[:, 3].astype(int), "Int64"),
        "term": [None if np.isnan(t) else ["36", "60"][int(t)] for t in rows[:, 4]],
        "owner": rows[:, 1] == 0,
    })  # fmt: skip
    frame.loc[frame.index % 7 == 0, "late"] = pd.NA
    keep = (labels == 0) | (np.arange(size) % 16 == 0)
    return frame[keep], pd.Series(GRADES[labels], name="grade", index=frame.index)[keep]


def test_a_frame_comes_back_with_its_types_its_categories_and_its_gaps():
    frame, grades = loans()
    more, labels = FedEASSampler(beta=12, random_state=0).fit_resample(frame, grades)
    assert (more.dtypes == frame.dtypes).all()
    assert (list(more.columns), labels.name) == (list(frame.columns), "grade")
    pd.testing.assert_frame_equal(more[: len(frame)], frame.reset_index(drop=True))
    wanted = FedEAS(beta=12).local([(grades == grade).sum() for grade in sorted(GRADES)])
    counts = labels.value_counts()
    for grade, extra in zip(sorted(GRADES), wanted, strict=True):
        assert counts[grade] == (grades == grade).sum() + extra
    new = more[len(frame) :]
    assert len(new) == wanted.sum() > 0
    assert set(new["home"].dropna()) <= {"own", "rent", "other"}
    assert set(new["term"].dropna()) <= {"36", "60"}
    assert new["income"].isna().any()
    assert new["late"].isna().any()
    assert not new["age"].isna().any()


@pytest.mark.parametrize("generator", ["gaussian", "smote", "copies"])
def test_a_polars_frame_comes_back_as_one(generator):
    frame, grades = loans()
    theirs = pl.from_pandas(frame.reset_index(drop=True))
    marks = pl.Series("grade", grades.tolist())
    sampler = FedEASSampler(generator=generator, random_state=0)
    more, labels = sampler.fit_resample(theirs, marks)
    assert more.schema == theirs.schema
    assert isinstance(labels, pl.Series)
    assert more[: len(theirs)].equals(theirs)
    again, _ = sampler.fit_resample(theirs, marks)
    assert again.equals(more)


def test_absent_classes_are_said_and_a_federations_generator_makes_them(tmp_path):
    rows, labels = draw_table(600)
    federation = Gaussian.fit(rows, labels, GRADES, SCHEMA)
    federation.save(tmp_path)
    frame = Frame.of(loans()[0][["age"]])  # another table
    with pytest.raises(InputError, match="other columns than the generator"):
        FedEASSampler(generator=federation).fit_resample(frame.data, loans()[1])
    own = pd.DataFrame(rows[labels == 0], columns=SCHEMA.names)
    own["home"] = own["home"].map(dict(enumerate(SCHEMA.columns[1].categories)))
    own["term"] = own["term"].map(dict(enumerate(SCHEMA.columns[4].categories)))
    good = np.full(len(own), "good")
    with pytest.warns(UserWarning, match="of fair, bad are not made: they lack a sample to"):
        same, _ = FedEASSampler(classes=GRADES).fit_resample(own, good)
    assert len(same) == len(own)
    for generator in (federation, f"gaussian(model={tmp_path})"):
        sampler = FedEASSampler(beta=12, generator=generator, random_state=0)
        more, marks = sampler.fit_resample(own, good)
        wanted = FedEAS(beta=12).local([len(own), 0, 0])
        assert [(marks == grade).sum() for grade in GRADES] == [len(own), *wanted[1:]]
        assert (more.dtypes == own.dtypes).all()
    own.loc[own.index[0], "home"] = "boat"
    with pytest.raises(InputError, match="'home' has a category that the schema does not know"):
        FedEASSampler(generator=federation).fit_resample(own, good)


def test_a_plan_says_how_many_samples_a_client_shall_have(tmp_path):
    counts = LabelCounts([[90, 10, 8], [3, 40, 0]], clients=["a", "b"], classes=GRADES.tolist())
    plan = FedEAS(beta=12).plan(counts)
    for client, row in (("a", 0), ("b", 1), (1, 1)):
        total = dict(zip(GRADES.tolist(), (counts.n + plan.samples)[row].tolist(), strict=True))
        assert plan.sampling_strategy(client) == {
            grade: total[grade] for at, grade in enumerate(GRADES) if plan.samples[row, at]
        }
    rng = np.random.default_rng(0)
    rows, marks = rng.normal(size=(108, 3)), np.repeat(GRADES, counts.n[0])
    for sampler in (SMOTE, FedEASSampler):
        made = sampler(sampling_strategy=plan.sampling_strategy("a"), random_state=0)
        _, labels = made.fit_resample(rows, marks)
        found = [int((labels == grade).sum()) for grade in GRADES]
        assert found == (counts.n + plan.samples)[0].tolist()
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded.sampling_strategy("a", counts) == plan.sampling_strategy("a")
    with pytest.raises(InputError, match="does not include its counts"):
        loaded.sampling_strategy("a")
    with pytest.raises(InputError, match="other counts"):
        plan.sampling_strategy("a", LabelCounts([[1, 2, 3], [4, 5, 6]]))


def test_it_works_in_a_pipeline():
    frame, grades = loans()
    model = make_pipeline(FedEASSampler(random_state=0), DecisionTreeClassifier(random_state=0))
    numbers = frame[["age", "owner"]].astype(float)
    assert model.fit(numbers, grades).score(numbers, grades) > 0.5
    assert FedEASSampler(beta=3).get_params()["beta"] == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"beta": -1}, "beta"),
        ({"generator": "nothing"}, "unknown generator"),
        ({"sampling_strategy": {"good": 1}}, "fewer samples than there are"),
        ({"sampling_strategy": {"best": 9}}, "unknown class"),
        ({"classes": ["good", "bad"]}, "without a class"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        FedEASSampler(**settings).fit_resample(*loans())


def test_what_no_row_can_hold_is_refused():
    dates = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2021-01-01"] * 4)})
    with pytest.raises(InputError, match="'when' holds datetime64"):
        FedEASSampler().fit_resample(dates, [0, 1] * 4)
    with pytest.raises(InputError, match="has infinity"):
        Frame.of(np.array([[1.0], [np.inf]]))


@pytest.mark.parametrize(
    ("column", "categories"),
    [
        (pd.Categorical([1, 4] * 30), ("1", "4")),  # numbers that are called categories
        (pd.Categorical(["s1", "s2"] * 30, [f"s{i}" for i in range(50)]), None),  # most unused
        (pd.Series([True, False] * 30), ("False", "True")),
        (pd.Series([1, None] * 30, dtype="Int64"), ()),
    ],
)
def test_columns_of_frames_are_what_the_frame_calls_them(column, categories):
    frame = Frame.of(pd.DataFrame({"a": column}))
    (found,) = frame.schema.columns
    if categories is not None:
        assert found.categories == categories
    again = frame.with_rows(frame.rows[:2])["a"]
    assert again.dtype == frame.data["a"].dtype
    assert again.tolist()[-2:] == again.tolist()[:2] or again.isna().any()


# augment


def test_two_lines_for_a_frame_and_for_an_array(tmp_path):
    frame, grades = loans()
    more, labels = augment(
        frame, labels=grades, generator="gaussian", beta=12, cache=tmp_path, client="client"
    )
    assert len(more) == len(labels) > len(grades)
    assert (more.dtypes == frame.dtypes).all()
    assert isinstance(labels, pd.Series)
    assert not any(tmp_path.iterdir())  # learnt from the client's own rows, and not kept
    rows, marks = draw_table(300)
    few = (marks == 0) | (np.arange(300) % 8 == 0)
    pair = augment(
        rows[few], labels=marks[few], generator="copies", beta=12, cache=tmp_path, client="client"
    )
    assert pair.num_real == few.sum() < len(pair[1])
    assert pair[0].dtype == np.float32
    federation = Gaussian.fit(rows, marks, ("0", "1", "2"), SCHEMA)
    zeros = np.zeros((marks == 0).sum(), int)
    theirs = pd.DataFrame(rows[marks == 0], columns=SCHEMA.names)
    theirs["home"] = theirs["home"].map(dict(enumerate(SCHEMA.columns[1].categories)))
    theirs["term"] = theirs["term"].map(dict(enumerate(SCHEMA.columns[4].categories)))
    first = augment(theirs, labels=zeros, generator=federation, beta=12, cache=tmp_path, client="a")
    again = augment(theirs, labels=zeros, generator=federation, beta=12, cache=tmp_path, client="a")
    assert set(first[1].tolist()) == {0, 1, 2}
    pd.testing.assert_frame_equal(first[0], again[0])
    assert any(tmp_path.iterdir())


def test_augment_says_what_rows_need(tmp_path):
    frame, grades = loans()
    for data, labels in ((frame, None), (frame, grades[:5])):
        with pytest.raises(InputError, match="labels"):
            augment(
                data, labels=labels, generator="gaussian", beta=12, cache=tmp_path, client="client"
            )


WITHOUT_TORCH = """
import sys
import numpy as np
import pandas as pd
import fedeas
rng = np.random.default_rng(0)
frame = pd.DataFrame(rng.normal(size=(100, 3)), columns=list("abc"))
labels = np.repeat([0, 1], [90, 10])
X, y = fedeas.FedEASSampler(beta=8, random_state=0).fit_resample(frame, labels)
more, marks = fedeas.augment(frame, labels=labels, generator="gaussian", beta=8, client=0,
                             cache=sys.argv[1])
plan = fedeas.FedEAS(beta=8).plan([[90, 10]])
assert len(y) == len(marks) == 100 + plan.total
print("torch" in sys.modules)
"""


def test_rows_need_no_torch(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_TORCH, tmp_path],
        capture_output=True,
        text=True,
        env=os.environ.copy(),
    )
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("label", [None, np.nan, pd.NA])
def test_rows_without_a_label_are_refused(label, tmp_path):
    labels = np.array(["a", "b"] * 50, object)
    labels[7] = label
    rows = np.random.default_rng(0).normal(size=(100, 2))
    for made in (
        lambda: FedEASSampler(beta=8).fit_resample(rows, labels),
        lambda: augment(
            rows, labels=labels, generator="copies", beta=8, cache=tmp_path, client="client"
        ),
    ):
        with pytest.raises(InputError) as refused:
            made()
        assert refused.value.got == "row 7"


def test_more_rows_than_memory_holds_are_refused(tmp_path):
    rows, labels = np.random.default_rng(0).normal(size=(100, 2)), np.repeat([0, 1], [90, 10])
    for made in (
        lambda: FedEASSampler(beta=1e9).fit_resample(rows, labels),
        lambda: augment(
            rows,
            labels=labels,
            generator="copies",
            beta=1e9,
            cache=tmp_path,
            client="client",
            max_samples=2**40,
        ),
    ):
        with pytest.raises(InputError) as refused:
            made()
        assert "lower " in refused.value.fix
