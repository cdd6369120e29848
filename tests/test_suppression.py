"""No withheld count can be worked out from a label report, whatever is on the page."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import fedeas
from fedeas import LabelCounts
from fedeas.errors import InputError
from fedeas.planning import published
from fedeas.planning.published import NoisyCounts, publish, sum_ranges
from fedeas.plots import canvas, label_report
from pages import span, table_of
from strategies import matrices


@pytest.fixture(autouse=True, scope="module")
def no_pictures():
    """Pictures take most of the time, and are compared in one test of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_report, "picture", lambda *_, **__: b"<svg/>")
        patch.setattr(label_report, "_TABLES", 2)
        yield


def attack(html: str) -> list[tuple[int, int, float, float]]:
    """Bound every cell of the page that is withheld, by all the totals on it."""
    classes, rows = table_of(html, "site", "all classes")
    spans = np.array([[span(text) for text, _ in row[1:]] for row in rows])
    cells, (K, C) = spans[:-1, :-1], spans[:-1, :-1].shape[:2]
    variables = np.arange(K * C).reshape(K, C)
    sums = [(variables[k], spans[k, C]) for k in range(K)]
    sums += [(variables[:, c], spans[K, c]) for c in range(C)] + [(variables, spans[K, C])]
    # The same totals again, elsewhere on the page.
    sites = {row[0][0]: variables[k] for k, row in enumerate(rows[:-1])}
    _, lines = table_of(html, "class", "note")
    sums += [
        (variables[:, classes.index(line[0][0]) - 1], span(line[1][0]))
        for line in lines
        if line[0][0] in classes
    ]
    if "would generate" in html:
        _, lines = table_of(html, "site", "mostly of")
        sums += [(sites[row[0][0]], span(row[1][0])) for row in lines if row[0][0] in sites]
    totals = re.search(r"<dd>([\d,\u2013]+)</dd><dt>samples", html)
    sums.append((variables, span(totals[1])))
    A, b = [], []
    for places, (low, high) in sums:
        row = np.zeros(K * C)
        row[places] = 1
        A += [row, -row]
        b += [high, -low]
    bounds = []
    for (k, c), place in np.ndenumerate(variables):
        if "withheld" in rows[k][c + 1][1]:
            ends = []
            for sign in (1, -1):
                objective = np.zeros(K * C)
                objective[place] = sign
                result = linprog(objective, A, b, bounds=cells.reshape(-1, 2))
                ends.append(sign * result.fun)
            bounds.append((k, c, *ends))
    return bounds


def recovered(html: str, threshold: int) -> list[tuple[int, int, float, float]]:
    """The cells about which the page says more than that they are withheld."""
    return [cell for cell in attack(html) if cell[2] > 1 + 1e-6 or cell[3] < threshold - 1 - 1e-6]


@pytest.mark.parametrize(
    ("name", "threshold"),
    [("birds", 10), ("covid", 10), ("loans", 10), ("xray", 10), ("xray", 1000), ("xray", 10_000)],
)
def test_totals_narrow_no_withheld_count_of_real_sites(name, threshold, data):
    counts = LabelCounts.load(data / "sites" / f"{name}.csv")
    html = fedeas.profile(counts, threshold).html
    assert recovered(html, threshold) == []
    assert ('<td class="n withheld">' in html) == bool(
        ((counts.n > 0) & (counts.n < threshold)).any()
    )


@settings(max_examples=10)  # hundreds of linear programs
@given(matrices, st.integers(3, 30))
def test_totals_narrow_no_withheld_count(n, threshold):
    if len(n) > 1:
        assert recovered(fedeas.profile(n, threshold).html, threshold) == []


def test_the_attack_recovers_counts_if_every_total_of_a_class_is_shown(monkeypatch):
    n = [[90, 4, 0], [80, 70, 30], [70, 90, 60]]
    assert attack(fedeas.profile(n).html) == [(0, 1, 1, 9)]
    monkeypatch.setattr(published, "sum_ranges", lambda _, sums, __: np.stack([sums, sums], 1))
    assert attack(fedeas.profile(n).html) == [(0, 1, 4, 4)]


@given(matrices, st.integers(3, 30), st.integers(0, 4))
def test_tables_that_differ_in_withheld_counts_alone_give_the_same_page(n, threshold, which):
    """So no figure can tell them apart: shares, plans, scores, order, notes."""
    counts = LabelCounts(n)
    shown = publish(counts, threshold)
    other = list(shown.tables(5))[which % (5 if shown.withheld.any() else 1)]
    assert (other.n[~shown.withheld] == counts.n[~shown.withheld]).all()
    assert fedeas.profile(other, threshold).html == fedeas.profile(counts, threshold).html


@pytest.mark.parametrize(("name", "threshold"), [("loans", 10), ("xray", 700)])
def test_nor_can_pictures_and_what_is_not_seen(name, threshold, data, monkeypatch):
    monkeypatch.setattr(label_report, "picture", canvas.picture)
    counts = LabelCounts.load(data / "sites" / f"{name}.csv")
    shown = publish(counts, threshold)
    *_, other = shown.tables(2)
    assert not np.array_equal(other.n, counts.n)
    html = fedeas.profile(counts, threshold).html
    assert "data:image/svg" in html
    assert fedeas.profile(other, threshold).html == html
    assert counts.fingerprint not in html  # which tables could be tried against


@given(st.integers(1, 40), st.integers(3, 12), st.floats(0, 1))
def test_every_sum_of_a_range_has_that_range_and_each_count_can_be_any(number, threshold, part):
    most = threshold - 1
    total = number + round(part * number * (most - 1))

    def shown(total):
        return sum_ranges(np.array([number]), np.array([total]), threshold)[0].tolist()

    low, high = shown(total)
    assert low <= total <= high
    assert all(shown(other) == [low, high] for other in range(low, high + 1))
    for count in range(1, threshold):
        assert any(
            number - 1 <= other - count <= (number - 1) * most for other in range(low, high + 1)
        )


def test_a_threshold_of_two_would_withhold_nothing():
    with pytest.raises(InputError):
        publish([[1, 5], [3, 1]], 2)
    assert not publish([[1, 5], [3, 1]], 1).withheld.any()


def test_noisy_counts_of_people_are_not_called_a_guarantee_for_samples(tmp_path):
    body = {
        "noisy_counts": {"all sites": {"flu": 812.4, "cold": 93.1}}, "std": 11.2, "epsilon": 1.0,
        "delta": 1e-06, "sites": 5,
    }  # fmt: skip
    pages = []
    for unit in ({}, {"unit": "group"}):
        (tmp_path / "policy.json").write_text(json.dumps(body | unit))
        pages.append(fedeas.profile(NoisyCounts.load(tmp_path / "policy.json")).html)
    assert ["one sample of a site" in page for page in pages] == [True, False]
    assert ["one group of a site" in page for page in pages] == [False, True]
