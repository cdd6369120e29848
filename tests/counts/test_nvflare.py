"""NVFlare's federated statistics as label counts."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedeas
from fedeas.counts.messy_tables import read_people
from fedeas.counts.nvflare import features_of, read_statistics
from fedeas.counts.options import Options, UnclearError
from fedeas.errors import InputError

# Made by FedStatsRecipe of NVFlare 2.9.0 in its simulator: three sites, two features and data sets.
FILE = Path(__file__).parents[1] / "data" / "nvflare-statistics.json"
COUNTS = [[120, 4, 0], [30, 61, 25], [8, 0, 94]]


def counts_in(path, **options):
    table = read_people([Path(path)], Options(**options), "counts.csv").table
    return fedeas.LabelCounts(table.values, table.clients, table.classes)


@pytest.fixture
def statistics():
    return json.loads(FILE.read_text())


@pytest.fixture
def read(tmp_path):
    def read_content(content, **options):
        path = tmp_path / "statistics.json"
        path.write_text(json.dumps(content))
        return counts_in(path, **options)

    return read_content


def test_the_histograms_of_a_label_are_counts():
    expected = fedeas.LabelCounts(COUNTS, ["site-1", "site-2", "site-3"], "012")
    assert counts_in(FILE, label="diagnosis") == expected


def test_several_features_need_the_label(statistics, read):
    with pytest.raises(UnclearError) as error:
        read(statistics)
    assert "--label diagnosis" in error.value.command
    del statistics["age"]
    assert read(statistics).total == 342


def test_options_leave_out_a_site(statistics, read):
    counts = read(statistics, label="diagnosis", drop_rows=("site-2",))
    assert counts.clients == ("site-1", "site-3")


def edited(statistics, **bins):
    """Change the training histograms of sites."""
    changed = copy.deepcopy(statistics["diagnosis"])
    for site, histogram in bins.items():
        changed["histogram"][site.replace("_", "-")]["train"] = histogram
    return {"diagnosis": changed}


@pytest.mark.parametrize(
    ("bins", "got"),
    [
        ([[0, 2, 120], [2, 4, 4]], "0 to 2"),
        ([[-0.5, 0.2, 120], [0.2, 0.9, 4], [0.9, 1.6, 0]], "0.2 to 0.9"),
        ([[0, 1, 1], [0, 1, 3]], "twice"),
        ([[0, 1, 120.5], [1, 2, 4]], "120.5"),
        ([[-0.5, float("inf"), 3]], "inf"),
        ([[-0.5, 0.5]], "0.5"),
        ([], "not a histogram"),
    ],
)
def test_bins_that_are_not_classes_are_refused(statistics, read, bins, got):
    sites = {f"site_{k}": bins for k in (1, 2, 3)}
    with pytest.raises(InputError, match=got):
        read(edited(statistics, **sites, Global=bins), keep=True)


def test_the_last_bin_holds_its_upper_end(statistics, read):
    """NumPy's histogram of 0, 1, 2 in two bins from 0 to 2 counts 2 as 1."""
    thirds = [[0.0, 0.6667], [0.6667, 1.3333], [1.3333, 2.0]]
    units = [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    for ends, certain in ((thirds, True), (units, False)):
        rows = [[[*e, n] for e, n in zip(ends, row, strict=True)] for row in COUNTS]
        total = [[*e, sum(n)] for e, n in zip(ends, zip(*COUNTS, strict=True), strict=True)]
        content = edited(statistics, site_1=rows[0], site_2=rows[1], site_3=rows[2], Global=total)
        if not certain:
            with pytest.raises(InputError, match="counts label 3 as 2"):
                read(content)
        assert read(content, keep=not certain) == fedeas.LabelCounts(
            COUNTS, ["site-1", "site-2", "site-3"]
        )


def test_what_the_file_says_twice_has_to_agree(statistics, read):
    less = [[-0.5, 0.5, 30], [0.5, 1.5, 61], [1.5, 2.5, 24]]
    with pytest.raises(InputError, match="'Global' is not the sum"):
        read(edited(statistics, site_2=less), keep=True)
    total = [[-0.5, 0.5, 158], [0.5, 1.5, 65], [1.5, 2.5, 118]]
    content = edited(statistics, site_2=less, Global=total)
    with pytest.raises(InputError, match="116 samples, and 115"):
        read(content)
    shifted = [[0.5, 1.5, 30], [1.5, 2.5, 61], [2.5, 3.5, 25]]
    with pytest.raises(InputError, match="different bins"):
        read(edited(statistics, site_2=shifted), keep=True)


def test_a_site_that_the_privacy_filter_silenced_is_named(statistics, read):
    content = edited(statistics)
    del content["diagnosis"]["histogram"]["site-3"], content["diagnosis"]["histogram"]["Global"]
    with pytest.raises(InputError, match="no histogram of 'site-3'"):
        read(content)
    assert read(content, keep=True).clients == ("site-1", "site-2")


@pytest.mark.parametrize(
    ("content", "got"),
    [
        ({"Global": {"histogram": {"all": {"Pass": [[0, 1, 3]]}}}}, "hierarchical"),
        ({"y": {"histogram": {"site-1": 3}}}, "site-1"),
        ({"y": {"histogram": {"site-1": {"a": [], "b": []}}}}, "a, b"),
        ({"y": {"histogram": {}}}, "train"),
    ],
)
def test_other_files_are_refused(read, content, got):
    with pytest.raises(InputError, match=got):
        read(content)


NUMBERS = st.integers() | st.floats() | st.sampled_from([-0.5, 0.5, 1.5, 2.5, 1e300, 7])
VALUES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3) | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["train", "site-1", "Global"]), inner, max_size=3)
        | st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_any_content_is_counts_or_refused(histogram, count):
    """Whatever the JSON holds, the reader raises nothing else."""
    for content in (histogram, {"site-1": histogram}, {"site-1": {"train": histogram}}):
        file = {"y": {"histogram": content, "count": {"site-1": {"train": count}}}}
        if not features_of(file):
            continue
        try:
            table, _ = read_statistics(Path("labels.json"), file, "y")
        except InputError:
            continue
        assert table.values.shape == (len(table.clients), len(table.classes))
        assert (table.values >= 0).all()


def test_a_site_without_a_histogram_is_named_even_where_nobody_counted():
    bins = [[-0.5, 0.5, 1], [0.5, 1.5, 2]]
    for other in ({}, {"test": bins}):
        histogram = {"a": {"train": bins}, "b": other}
        _, doubts = read_statistics(Path("labels.json"), {"y": {"histogram": histogram}}, "y")
        assert ["b" in doubt for doubt in doubts] == [True]


def test_the_global_histogram_has_the_bins_of_the_sites():
    bins, others = ([[k + at, k + at + 1, 3] for k in range(2)] for at in (-0.5, 9.5))
    file = {"y": {"histogram": {"a": {"train": bins}, "Global": {"train": others}}}}
    with pytest.raises(InputError, match="Global"):
        read_statistics(Path("labels.json"), file, "y")
