"""`fedeas profile`: what is on the page, and what it is made from."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fedeas
from fedeas import Dirichlet, InputError, LabelCounts, LabelSetCounts, MissingExtraError
from fedeas._util.files import write_json
from fedeas.planning.published import NoisyCounts, publish
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


def test_the_page_of_nvflares_statistics(fedeas, tmp_path):
    statistics = Path(__file__).parent / "data" / "nvflare-statistics.json"
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
    names, rows = table_of(html, "site", "all person/label-set pairs")
    assert names[1:-1] == ["no label", "flu", "cough"]
    north, south, west, everywhere = ([text for text, _ in row] for row in rows)
    assert north[1].startswith("300 (")
    assert north[3].startswith("13\u201321 (")  # 12 with both, and 1 to 9 with a cough alone
    assert south[2].startswith("2\u201318 (")
    assert "withheld" in rows[1][2][1]  # five and one: too few people, whatever their images
    assert west[1] == "0"
    assert span(everywhere[2]) == (40 + 12 + 20 + 14 + 2, 40 + 12 + 20 + 14 + 18)
    _, pairs = table_of(html, "labels", "of those with the first label")
    assert span(pairs[0][1][0]) == (12 + 14 + 1, 12 + 14 + 9)
    assert "Counts are of people" in html
    assert ">samples</dt>" not in html
    assert "to generate them" in html
    by_sample = LabelSetCounts(SETS, WARDS.n, WARDS.clients, WARDS.labels)
    _, rows = table_of(profile(by_sample).html, "site", "all samples")
    assert rows[0][3][0].startswith("42 (4")


def test_label_sets_that_differ_in_withheld_counts_alone_give_the_same_page():
    """So nothing on it, shares and plans included, tells a withheld number."""
    shown = publish(LabelCounts(WARDS.people), 10)
    assert shown.withheld.sum() == 3
    pages = {
        profile(LabelSetCounts(SETS, 9 * WARDS.n, WARDS.clients, WARDS.labels, other.n)).html
        for other in (LabelCounts(WARDS.people), *shown.tables(5))
    }
    assert len(pages) == 1


@pytest.mark.parametrize("n", [[[9, 1, 0, 0]], [[5, 0, 0, 0], [0, 4, 3, 0]], [[50, 40, 0, 0]] * 2])
def test_odd_label_sets_have_a_page(n):
    assert "What is not known" in profile(LabelSetCounts(SETS, n)).html


def test_the_prevalences_of_the_archives_are_drawn(data, monkeypatch):
    monkeypatch.setattr(label_report, "picture", canvas.picture)
    html = profile(LabelSetCounts.load(data / "sites" / "xray_label_sets.csv")).html
    assert "data:image/svg+xml;base64," in html
    _, rows = table_of(html, "site", "all person/label-set pairs")
    assert [row[0][0] for row in rows] == ["CheXpert", "NIH", "PadChest", "all sites"]


@pytest.mark.parametrize(("n", "reached"), [([[90, 9], [9, 90]], True), ([[9, 0, 0]] * 9, False)])
def test_a_plan_short_of_its_aim_says_so(n, reached):
    plan = fedeas.plan(LabelCounts(n))
    assert (plan.reduction >= 0.5) == reached
    assert ("removes as much as it can" in profile(LabelCounts(n), threshold=1).html) != reached


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
