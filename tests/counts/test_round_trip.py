"""`save` then `load` is the identity, whatever names and numbers counts and plans hold."""

import csv
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedeas import Cost, FedEAS, LabelCounts, Plan, Target
from fedeas.errors import InputError

ENDINGS = (".csv", ".tsv", ".json", ".parquet")

# Names that mean something to a reader of tables: totals, years, headings, numbers, cells.
_LOADED = (
    "all", "total", "Total", "sum", "Summe", "count", "client", "label", "class", "year", "site",
    "2019", "2020", "2021", "1950", "0", "1", "01", "1e3", "1,5", "1.200", "-1", "+1", "=1+1",
    "@SUM(A1)", "<5", "n<5", "*", "-", "NaN", "nan", "None", "true", "#", "# fedeas {}", "a;b",
    "a|b", "a,b", 'a"b', '"', "'a'", "sep=;", "a\\b", "100%", "Unnamed: 0", "index",
    "ä", "雪", "😀", "a  b", "size", "n", "<b>", "&amp;",
)  # fmt: skip
_names = st.one_of(
    st.sampled_from(_LOADED),
    st.integers(1890, 2110).map(str),
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8),
).filter(lambda name: name.isprintable() and name == name.strip())
_cells = st.one_of(
    st.just(0), st.integers(0, 9), st.integers(1900, 2100), st.integers(0, 10**6), st.just(2**45)
)


@st.composite
def adversarial(draw) -> LabelCounts:
    """Counts with loaded names; now and then a column is the sum of the others."""
    shape = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    n = draw(arrays(np.int64, shape, elements=_cells))
    if draw(st.booleans()):
        n[:, -1] = n[:, :-1].sum(axis=1)
    if draw(st.booleans()):
        n[-1] = n[:-1].sum(axis=0)
    n[0, 0] += not n.any()

    def names(size: int) -> list[str] | None:
        some = st.lists(_names, min_size=size, max_size=size, unique=True)
        return draw(st.one_of(st.none(), some))

    return LabelCounts(n, names(shape[0]), names(shape[1]))


YEARS = LabelCounts([[1950, 7], [2010, 9]], ["north", "south"], ["cat", "dog"])


@pytest.mark.parametrize("ending", ENDINGS)
@given(adversarial())
@example(YEARS)
@example(LabelCounts([[1, 2, 3], [4, 5, 9], [2, 2, 4]], classes=["a", "b", "all"]))
@example(LabelCounts([[1, 2], [4, 5]], classes=["2019", "2020"]))
@example(LabelCounts([[1, 2], [4, 5]], ["a;b", "c;d"], ["client", "label"]))
@example(LabelCounts([[1, 2], [4, 5]], ["a", "b"], ["class", "count"]))
@settings(deadline=None, max_examples=40)
def test_counts_come_back(tmp_path_factory, ending, counts):
    """Text that would be read as something else is not written; JSON and Parquet hold anything."""
    path = tmp_path_factory.mktemp("counts") / f"counts{ending}"
    try:
        counts.save(path)
    except InputError:
        assert ending in (".csv", ".tsv")
        return
    assert LabelCounts.load(path) == counts


@pytest.mark.parametrize("ending", [".json", ".parquet"])
@given(adversarial(), st.sampled_from(["none", "one", "each"]), st.booleans())
@settings(deadline=None, max_examples=25)
def test_plans_come_back(tmp_path_factory, ending, counts, cost, aimed):
    path = tmp_path_factory.mktemp("plans") / f"plan{ending}"
    target = Target(np.arange(1, counts.C + 1), name="2019, all;'\"") if aimed else None
    plan = FedEAS(beta=3, target=target).plan(counts)
    if cost != "none":
        prices = {"one": Cost(0.1), "each": Cost((0.5,) * counts.K, "EUR")}
        plan = plan.with_cost(prices[cost])
    plan.save(path)
    assert Plan.load(path) == plan
    with pytest.raises(InputError, match="plan"):
        LabelCounts.load(path)


@pytest.mark.parametrize("ending", [".json", ".parquet"])
def test_a_saved_table_that_was_changed_is_checked_like_any_other(tmp_path, ending):
    """A total that somebody added is refused: the mark of fedeas is for what fedeas wrote."""
    path = tmp_path / f"counts{ending}"
    LabelCounts([[1, 2, 9], [4, 5, 7], [3, 3, 8]], classes=["a", "b", "Total"]).save(path)
    assert LabelCounts.load(path).C == 3
    if ending == ".json":
        content = json.loads(path.read_text())
        content["counts"][0][0] = 8
        path.write_text(json.dumps(content))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        changed = table.set_column(0, "a", pa.array([8, 4, 3], pa.int64()))
        assert changed.schema.metadata  # pyarrow keeps the mark
        pq.write_table(changed, path)
    with pytest.raises(InputError, match="Total"):
        LabelCounts.load(path)


def test_text_that_a_spreadsheet_takes_for_a_formula_comes_back_as_it_was(tmp_path):
    names = ["=1+1", "+a", "-b", "@c"]
    counts = LabelCounts([[9, 1]] * 4, names, ["=A1", "@b"])
    counts.save(tmp_path / "counts.csv")
    with (tmp_path / "counts.csv").open(newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == names
    assert LabelCounts.load(tmp_path / "counts.csv") == counts
