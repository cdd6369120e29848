"""`fedeas profile`: what is on the page, and what it is made from."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedeas
from fedeas import InputError, LabelCounts, LabelSetCounts, MissingExtraError
from fedeas.plots import canvas, label_report
from fedeas.plots.label_report import profile
from helpers.hypothesis_strategies import matrices
from helpers.report_pages import table_of

HOSPITALS = LabelCounts(
    [[900, 100, 20], [60, 300, 4], [0, 40, 80]], ["North", "South", "West"], ["flu", "cold", "pox"]
)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Pictures take most of the time."""
    monkeypatch.setattr(label_report, "picture", lambda *_, **__: b"<svg/>")


def test_the_page_of_a_table_of_counts(fedeas, tmp_path):
    HOSPITALS.save(tmp_path / "counts.csv")
    out = tmp_path / "labels.html"
    assert fedeas("profile", tmp_path / "counts.csv", "--out", out, "--cost", "2s").code == 0
    html = out.read_text(encoding="utf-8")
    _, rows = table_of(html, "site", "pox")
    assert [row[0][0] for row in rows] == ["North", "South", "West", "all sites"]
    assert rows[1][3] == ("<10", "n withheld")  # 4, and a zero looks otherwise
    assert rows[2][1][0] == "0"
    assert "withheld" not in rows[2][1][1]
    assert [rows[3][c][0] for c in (1, 2, 3)] == ["960", "440", "100+"]
    _, short = table_of(html, "site", "has little of")
    assert {row[0][0]: (row[1][0], row[2][0]) for row in short} == {
        "North": ("nothing", "pox, cold"), "South": ("nothing", "pox, flu"),
        "West": ("flu", "nothing"),
    }  # fmt: skip
    assert "to generate them" in html
    assert 'src="http' not in html
    assert "<script" not in html


def test_figures_are_those_of_the_plan_where_nothing_is_withheld():
    html = profile(HOSPITALS, threshold=1).html
    plan, diagnosis = fedeas.plan(HOSPITALS), fedeas.diagnose(HOSPITALS)
    _, rows = table_of(html, "site", "mostly of")
    assert {row[0][0]: int(row[2][0].replace(",", "")) for row in rows} == {
        name: total
        for name, total in zip(HOSPITALS.clients, plan.per_client.tolist(), strict=True)
        if total
    }
    assert f"<dd>{plan.total:,}</dd>" in html
    assert f"{100 * diagnosis.between:.0f}\u00a0%" in html


# What is withheld


def like(counts: LabelCounts, threshold: int, seed: int) -> LabelCounts:
    """Another table that is shown in the same way."""
    hidden = (counts.n > 0) & (counts.n < threshold)
    drawn = np.random.default_rng(seed).integers(1, threshold, counts.n.shape)
    return LabelCounts(np.where(hidden, drawn, counts.n), counts.clients, counts.classes)


@given(matrices, st.integers(3, 30), st.integers(0, 99))
def test_tables_that_differ_in_withheld_counts_alone_have_one_page(n, threshold, seed):
    """So nothing on it tells them apart, whatever a reader knows: shares, plans, order, notes."""
    counts = LabelCounts(n)
    other = like(counts, threshold, seed)
    assert profile(other, threshold).html == profile(counts, threshold).html


def test_the_comparison_of_pages_sees_a_single_count():
    """The control of the test above: one more of a count that is shown."""
    n = HOSPITALS.n.copy()
    n[0, 0] += 1
    assert profile(n).html != profile(HOSPITALS.n).html
    n = HOSPITALS.n.copy()
    n[1, 2] += 1  # a withheld one
    assert profile(n).html == profile(HOSPITALS.n).html
    assert profile(n, threshold=1).html != profile(HOSPITALS.n, threshold=1).html


@pytest.mark.parametrize(("name", "threshold"), [("loans", 10), ("xray", 700)])
def test_nor_do_pictures_tell_and_what_is_not_seen(name, threshold, data, monkeypatch):
    monkeypatch.setattr(label_report, "picture", canvas.picture)
    counts = LabelCounts.load(data / "sites" / f"{name}.csv")
    other = like(counts, threshold, 0)
    assert not np.array_equal(other.n, counts.n)
    html = profile(counts, threshold).html
    assert "data:image/svg" in html
    assert profile(other, threshold).html == html
    assert counts.fingerprint not in html  # which tables could be tried against


@given(matrices, st.integers(3, 30))
def test_sums_are_of_what_is_shown(n, threshold):
    counts = LabelCounts(n)
    _, rows = table_of(profile(counts, threshold).html, "site", str(counts.class_names[-1]))
    shown = np.where((counts.n > 0) & (counts.n < threshold), 0, counts.n)
    if counts.K > 1:
        sums = [
            0 if "<" in text else int(text.rstrip("+").replace(",", "")) for text, _ in rows[-1][1:]
        ]
        assert sums == shown.sum(axis=0).tolist()


def test_a_threshold_of_two_would_withhold_nothing():
    with pytest.raises(InputError):
        profile([[1, 5], [3, 1]], 2)
    assert "withheld" not in profile([[1, 5], [3, 1]], 1).html.partition("</style>")[2].replace(
        "what is withheld of it", ""
    )


# What the page says


@pytest.mark.parametrize(
    ("n", "advice"),
    [
        ([[900, 0, 0], [0, 900, 0], [0, 0, 900]], "worth generating"),
        ([[900, 100, 50], [900, 100, 50]], "may be enough"),
        ([[100, 100], [100, 100]], "close to balanced"),
        ([[3, 2], [2, 3]], "too few samples"),
    ],
)
def test_the_advice_is_that_of_the_diagnosis(n, advice):
    assert advice in profile(n, threshold=1).html


def test_hundreds_of_sites_and_classes_stay_readable():
    n = np.random.default_rng(0).integers(0, 40, (300, 60))
    html = profile(n).html
    names, rows = table_of(html, "site", "49 other classes")
    assert (len(names), len(rows)) == (13, 26)
    assert rows[-2][0][0] == "276 other sites"


@pytest.mark.parametrize("n", [[[9, 1, 0]], [[1, 2], [0, 0]], [[3, 0], [0, 4]], [[5, 50], [0, 0]]])
def test_odd_federations_have_a_page(n):
    assert "whom to ask" in profile(n).html


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
    with pytest.raises(MissingExtraError, match=r"\[counts\]"):
        profile(HOSPITALS)


def test_other_files_than_pages_are_refused(tmp_path):
    with pytest.raises(InputError):
        profile(HOSPITALS).save(tmp_path / "labels.pdf")


# NVFlare's statistics


def test_the_page_of_nvflares_statistics(fedeas, tmp_path):
    statistics = Path(__file__).parents[1] / "data" / "nvflare-statistics.json"
    refusal = fedeas("profile", statistics, "--out", tmp_path / "a.html")
    assert (refusal.code, "--label diagnosis" in refusal.err) == (2, True)
    clean = tmp_path / "counts.csv"
    assert fedeas("counts", statistics, "--label", "diagnosis", "--out", clean).code == 0
    assert fedeas("profile", clean, "--out", tmp_path / "a.html").code == 0


# Samples with several labels

SETS = [[0, 0], [1, 0], [0, 1], [1, 1]]
WARDS = LabelSetCounts(
    SETS, [[900, 80, 12, 30], [400, 4, 60, 7], [0, 50, 20, 90]], ["North", "South", "West"],
    ["flu", "cough"], [[300, 40, 4, 12], [200, 1, 30, 5], [0, 20, 11, 14]],
)  # fmt: skip


def test_samples_with_several_labels_are_compared_by_the_plan_alone(fedeas, tmp_path):
    (tmp_path / "sets.csv").write_text("site,flu,cough,images\nA,1,1,1\nA,1,0,1\nB,0,1,2\n")
    refusal = fedeas("compare", tmp_path / "sets.csv")
    assert (refusal.code, "fedeas plan" in refusal.err) == (2, True)


def test_the_page_of_label_sets_counts_people(fedeas, tmp_path):
    WARDS.save(tmp_path / "sets.csv")
    out = tmp_path / "a.html"
    assert fedeas("profile", tmp_path / "sets.csv", "--out", out, "--cost", "2s").code == 0
    html = out.read_text(encoding="utf-8")
    names, rows = table_of(html, "site", "no label")
    assert names[1:] == ["flu", "cough", "no label"]
    north, south, west, everywhere = ([text for text, _ in row[1:]] for row in rows)
    assert north == ["52", "16", "300"]  # 12 with both, and 40 with flu or 4 with a cough alone
    assert south == ["<10", "35", "200"]
    assert west == ["34", "25", "0"]
    assert everywhere == ["86+", "76", "500"]
    assert "Counts are of people" in html
    assert ">samples</dt>" not in html
    by_sample = LabelSetCounts(SETS, WARDS.n, WARDS.clients, WARDS.labels)
    _, rows = table_of(profile(by_sample).html, "site", "no label")
    assert rows[0][2][0] == "42"


@pytest.mark.parametrize("n", [[[9, 1, 0, 0]], [[5, 0, 0, 0], [0, 4, 3, 0]], [[50, 40, 0, 0]] * 2])
def test_odd_label_sets_have_a_page(n):
    assert "whom to ask" in profile(LabelSetCounts(SETS, n)).html


def test_the_page_of_the_archives_is_drawn(data, monkeypatch):
    monkeypatch.setattr(label_report, "picture", canvas.picture)
    html = profile(LabelSetCounts.load(data / "sites" / "xray_label_sets.csv")).html
    assert "data:image/svg+xml;base64," in html
    for site in ("CheXpert", "NIH", "PadChest"):
        assert site in html
