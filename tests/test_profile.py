"""`fedeas profile`: what is on the page, and what it is made from."""

import json
import sys
from itertools import pairwise

import numpy as np
import pytest

import fedeas
from fedeas import Dirichlet, InputError, LabelCounts, MissingExtraError
from fedeas._util.files import write_json
from fedeas.planning.published import NoisyCounts
from fedeas.plots import canvas, label_report
from fedeas.plots.label_report import profile
from pages import span, table_of

HOSPITALS = LabelCounts(
    [[900, 100, 20], [60, 300, 4], [0, 40, 80]], ["North", "South", "West"], ["flu", "cold", "pox"]
)
SUMS = {
    "noisy_counts": {"all sites": {"flu": 812.4, "cold": -3.1, "pox": 90.0}},
    "std": 11.2, "epsilon": 1.0, "delta": 1e-6, "sites": 5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Pictures take most of the time."""
    monkeypatch.setattr(label_report, "picture", lambda *_, **__: b"<svg/>")


def test_the_page_of_a_table_of_counts(fedeas, tmp_path, monkeypatch):
    HOSPITALS.save(tmp_path / "counts.csv")
    out = tmp_path / "labels.html"
    assert fedeas("profile", tmp_path / "counts.csv", "--out", out, "--cost", "2s").code == 0
    html = out.read_text(encoding="utf-8")
    _, rows = table_of(html, "site", "all classes")
    assert [row[0][0] for row in rows] == ["North", "South", "West", "all sites"]
    assert rows[1][3] == ("1\u20139", "n withheld")  # 4, and a zero looks otherwise
    assert rows[2][1][0] == "0"
    assert "withheld" not in rows[2][1][1]
    assert [span(rows[3][c][0]) for c in (1, 2, 3)] == [(960, 960), (440, 440), (101, 109)]
    assert "to generate them" in html
    assert "beta" not in html
    assert 'src="http' not in html
    assert "<script" not in html


def test_figures_are_those_of_the_plan_where_nothing_is_withheld():
    html = profile(HOSPITALS, threshold=1).html
    plan, diagnosis = fedeas.plan(HOSPITALS), fedeas.diagnose(HOSPITALS)
    _, rows = table_of(html, "site", "mostly of")
    assert {row[0][0]: span(row[2][0])[0] for row in rows} == dict(
        zip(HOSPITALS.clients, plan.per_client.tolist(), strict=True)
    )
    assert f"<dd>{plan.total:,}</dd>" in html
    assert f"<dd>{100 * diagnosis.between:.0f}\u00a0%</dd>" in html


@pytest.mark.parametrize(
    ("n", "advice"),
    [
        ([[900, 0, 0], [0, 900, 0], [0, 0, 900]], "worth generating"),
        ([[900, 100, 50], [900, 100, 50]], "add little"),
        ([[100, 100], [100, 100]], "close to balanced"),
        ([[3, 2], [2, 3]], "too few samples"),
    ],
)
def test_the_advice_is_that_of_the_diagnosis(n, advice):
    assert advice in profile(n, threshold=1).html


def test_hundreds_of_sites_and_classes_stay_readable():
    n = np.random.default_rng(0).integers(0, 40, (300, 60))
    html = profile(n).html
    names, rows = table_of(html, "site", "all classes")
    assert (len(names), len(rows)) == (14, 26)
    assert rows[-2][0][0] == "276 other sites"
    low, high = span(rows[-1][-1][0])
    assert low <= n.sum() <= high
    for row in rows:
        assert sum(span(text)[0] for text, _ in row[1:-1]) <= span(row[-1][0])[1]


@pytest.mark.parametrize("n", [[[9, 1, 0]], [[1, 2], [0, 0]], [[3, 0], [0, 4]], [[5, 50], [0, 0]]])
def test_odd_federations_have_a_page(n):
    assert "What is not known" in profile(n).html


def test_names_are_not_markup():
    counts = LabelCounts([[90, 10], [30, 40]], ["<b>x</b>", "y"], ["</style>", "z"])
    html = profile(counts).html
    assert "<b>x" not in html
    assert html.count("</style>") == 1


def test_the_heat_map_is_drawn_and_its_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(label_report, "picture", canvas.picture)
    profile(HOSPITALS).save(tmp_path / "labels.html")
    assert "data:image/svg+xml;base64," in (tmp_path / "labels.html").read_text(encoding="utf-8")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="plot"):
        profile(HOSPITALS)


def test_other_files_than_pages_are_refused(tmp_path):
    with pytest.raises(InputError):
        profile(HOSPITALS).save(tmp_path / "labels.pdf")


# Noisy counts


def test_noisy_counts_are_shown_with_their_error(fedeas, tmp_path):
    (tmp_path / "policy.json").write_text(json.dumps({"asked": "fedeas", **SUMS}))
    assert fedeas("profile", tmp_path / "policy.json", "--out", tmp_path / "a.html").code == 0
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    _, rows = table_of(html, "site", "all classes")
    assert [text for text, _ in rows[0][1:4]] == ["812 ± 22", "0 ± 22", "90 ± 22"]
    assert "1 count below zero" in html
    assert "epsilon 1 and delta 1e-06" in html
    assert "5 sites" in html
    assert "would generate" not in html  # nothing is known about single sites


def test_noisy_counts_of_sites_are_planned_as_ranges():
    rows = np.array([[900.0, 10.0, -5.0], [20.0, 400.0, 80.0]])
    noisy = NoisyCounts(rows, 8.0, 1.0, 1e-6, 2, ("a", "b"), ("x", "y", "z"))
    _, lines = table_of(profile(noisy).html, "site", "mostly of")
    low, high = span(lines[0][2][0])
    assert low < high


@pytest.mark.parametrize(
    "change",
    [
        {"std": 0}, {"std": "x"}, {"epsilon": -1}, {"delta": 1}, {"sites": 0}, {"noisy_counts": {}},
        {"noisy_counts": {"a": {"x": 1, "y": 2}, "b": {"x": 1}}}, {"noisy_counts": [1]},
        {"noisy_counts": {"a": {"x": float("nan"), "y": 2}}}, {"noisy_counts": {"a": {"x": 3}}},
        {"noisy_counts": {"a": {"x": -1, "y": -2}}},
    ],
)  # fmt: skip
def test_files_that_are_not_noisy_counts_are_refused(change, tmp_path):
    path = tmp_path / "sums.json"
    path.write_text(json.dumps(SUMS | change))
    with pytest.raises(InputError):
        NoisyCounts.load(path)


def test_the_private_wing_writes_what_the_page_reads(tmp_path):
    from fedeas_private.queries.query import ClassTotals

    prior = ClassTotals(3).read(256 * np.array([700, 40, -10]), 256.0, 5)
    content = {**prior.noisy_counts(["a", "b", "c"]), "epsilon": 1, "delta": 0, "sites": 5}
    write_json(tmp_path / "policy.json", content)
    noisy = NoisyCounts.load(tmp_path / "policy.json")
    assert noisy.std == 1.0
    assert np.allclose(noisy.raw, [[700, 40, -10]], atol=0.01)


# NVFlare's statistics


def statistics(rows, edges, **features):
    """What NVFlare writes: bins are [low, high, count]."""

    def bins(row):
        return [[*ends, n] for ends, n in zip(pairwise(edges), row, strict=True)]

    sites = {f"site-{k + 1}": {"train": bins(row)} for k, row in enumerate(rows)}
    sites["Global"] = {"train": bins(np.sum(rows, axis=0).tolist())}
    count = {f"site-{k + 1}": {"train": sum(row)} for k, row in enumerate(rows)}
    return {"Outcome": {"count": count, "histogram": sites}, **features}


ROWS = [[90, 10, 0], [30, 40, 30]]


def written(tmp_path, content):
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("edges", [[0, 2 / 3, 4 / 3, 2], [-0.5, 0.5, 1.5, 2.5], [0, 1, 2, 2.9]])
def test_the_histogram_of_a_label_has_the_counts(edges, tmp_path, fedeas):
    path = written(tmp_path, statistics(ROWS, edges))
    counts = fedeas_counts(path)
    assert counts.n.tolist() == ROWS
    assert counts.clients == ("site-1", "site-2")
    assert fedeas("profile", path, "--out", tmp_path / "a.html").code == 0


def fedeas_counts(path, **options):
    return fedeas.read_counts(path, **options).counts


def test_which_feature_and_which_data_set_is_asked_for(tmp_path):
    other = statistics(ROWS, [0, 10, 20, 30])["Outcome"]
    content = statistics(ROWS, [0, 1, 2, 2.5], Age=other)
    content["Outcome"]["histogram"]["site-1"]["test"] = [[0, 1, 5], [1, 1.5, 5]]
    path = written(tmp_path, content)
    for options in ({}, {"label": "Outcome"}, {"label": "Sex"}, {"label": "Age", "sheet": "train"}):
        with pytest.raises(InputError):
            fedeas_counts(path, **options)
    assert fedeas_counts(path, label="Outcome", sheet="train").n.tolist() == ROWS


@pytest.mark.parametrize(
    ("edges", "row"),
    [
        ([0, 1, 2, 3], ROWS[1]),  # the last bin may be of 2 and of 3
        ([0, 2, 4, 5], ROWS[1]),
        ([0.1, 0.5, 1.5, 2.5], ROWS[1]),  # samples where no whole number is
        ([-1, -0.5, 0.5, 1.5], ROWS[1]),
    ],
)
def test_bins_of_several_labels_or_of_none_are_refused(edges, row, tmp_path):
    with pytest.raises(InputError):
        fedeas_counts(written(tmp_path, statistics([row, row], edges)))


def test_statistics_that_do_not_add_up_are_refused(tmp_path):
    content = statistics(ROWS, [0, 1, 2, 2.5])
    content["Outcome"]["count"]["site-1"]["train"] = 101  # a label outside of the bins
    with pytest.raises(InputError, match="101"):
        fedeas_counts(written(tmp_path, content))
    content = statistics(ROWS, [0, 1, 2, 2.5])
    del content["Outcome"]["histogram"]["site-2"]
    with pytest.raises(InputError, match="Global"):
        fedeas_counts(written(tmp_path, content))
    content = statistics(ROWS, [0, 1, 2, 2.5])
    content["Outcome"]["histogram"]["site-2"]["train"] = [[0, 1, -3], "x"]
    with pytest.raises(InputError):
        fedeas_counts(written(tmp_path, content))


# A partition


def test_the_page_of_a_partition(fedeas, tmp_path):
    labels = np.repeat(np.arange(4), 300)
    np.save(tmp_path / "labels.npy", labels)
    split = Dirichlet(clients=5, alpha=0.3).partition(labels)
    split.save(tmp_path / "split.npz")
    out, data = tmp_path / "a.html", ("--data", tmp_path / "labels.npy")
    assert fedeas("profile", tmp_path / "split.npz", "--out", out, *data).code == 0
    _, rows = table_of(out.read_text(encoding="utf-8"), "site", "all classes")
    low, high = span(rows[-1][-1][0])
    assert low <= 1200 <= high
    refusal = fedeas("profile", tmp_path / "split.npz", "--out", out)
    assert refusal.code == 2
    assert "--data" in refusal.err
