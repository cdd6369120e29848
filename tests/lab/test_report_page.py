"""How a report looks: the numbers that matter first, charts of one height, any screen, paper."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedeas.lab.report import curves
from fedeas.lab.report.page import SweepResults, assemble, headline
from fedeas.lab.tables import make_tables
from fedeas.plots.canvas import HEIGHT, WIDTH
from reproduction.claims import recorded


def chosen(*policies, seeds=(42,)):
    """Return recorded runs of some policies, all else being equal."""
    return [
        run
        for run in recorded()["cifar10"].runs
        if run.entry.grid == "policies"
        and run.entry.seed in seeds
        and run.entry.policy.partition("(")[0] in policies
    ]


@pytest.fixture(scope="module")
def pair():
    """Two runs of one seed whose samples were generated beforehand, in 178 seconds."""
    made = []
    for run in chosen("none", "fedeas"):
        generation = {"made": 0, "seconds": 0.0}
        if run.result["generated"]:
            generation["in_cache"] = {"made": run.result["generated"], "seconds": 178.0}
        made.append(replace(run, result=run.result | {"generation": generation}))
    return made


@pytest.fixture(scope="module")
def folder(pair, tmp_path_factory):
    """The report on these two."""
    out = tmp_path_factory.mktemp("report")
    assemble(out, "A title", [SweepResults("mine", pair, make_tables(pair))])
    return out


class Outline(HTMLParser):
    """Collects headings, links and what every table is in."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.titles, self.around = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.around.append(self.inside[-1])
        if tag not in ("img", "meta"):
            self.inside.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self.inside.pop()

    def handle_data(self, data):
        if self.inside and self.inside[-1][0] in ("h1", "h2", "a"):
            self.titles.append(data)


def test_the_numbers_that_matter_come_first(pair, folder):
    (table,) = make_tables(pair)
    plain, ours = sorted(table.rows, key=lambda row: row.generated.value)
    before, after = 100 * plain.accuracy.value, 100 * ours.accuracy.value
    text = (folder / "index.html").read_text(encoding="utf-8")
    first = text[: text.index("<nav")]
    assert f"{before:.1f} → {after:.1f} %" in first
    assert f"{after - before:+.1f} points" in first
    assert f"{ours.generated.value:,.0f} samples" in first
    assert "<dd>3.0 min</dd><dt>of generation</dt>" in first
    assert "<table" not in first
    assert "<img" not in first


def test_the_cost_of_samples_from_a_cache_is_shown(pair, folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    generated = max(run.result["generated"] for run in pair)
    assert f"{generated:,}, generated beforehand in 3min" in text
    row = next(line for line in text.splitlines() if line.startswith("| fedeas"))
    assert "| 3.0 min |" in row
    assert (folder / "img" / "mine-policies-cost.svg").exists()


def test_a_time_that_was_not_measured_is_said(pair):
    unknown = [
        replace(run, result=run.result | {"generation": {"made": 0, "seconds": 0.0}})
        for run in pair
    ]
    assert ("not measured", "of generation") in headline(make_tables(unknown)).items


def test_without_a_comparison_the_headline_is_the_accuracy(pair):
    (own,) = (run for run in pair if run.result["generated"])
    (number, what), *_ = headline(make_tables([own])).items
    assert re.fullmatch(r"[\d.]+ %", number)
    assert what.startswith("accuracy, fedeas")
    assert headline([]) is None


def test_names_of_sweeps_are_shown_only_where_there_are_several(pair, folder, tmp_path):
    outline = Outline()
    outline.feed((folder / "index.html").read_text(encoding="utf-8"))
    assert len(outline.titles) >= 5
    assert not any("mine" in title for title in outline.titles)
    sweeps = [SweepResults(name, pair, make_tables(pair)) for name in ("one", "two")]
    assemble(tmp_path, "Both", sweeps)
    both = Outline()
    both.feed((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert {"one: What ran", "two: What ran"} < set(both.titles)
    assert "## What ran (two)" in (tmp_path / "report.md").read_text(encoding="utf-8")


def sizes(folder):
    """Return the sizes of the charts in a report's folder, by name."""
    found = {}
    for path in (folder / "img").glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        found[path.stem] = re.search(r'<svg[^>]* width="(.+?)" height="(.+?)"', text).groups()
    return found


def test_charts_are_of_one_size(folder, tmp_path):
    few = sizes(folder)
    assert len(few) == 3
    assert set(few.values()) == {(f"{72 * WIDTH:g}pt", f"{72 * HEIGHT:g}pt")}
    many = [run for run in recorded()["cifar10"].runs if run.entry.grid == "policies"]
    assemble(tmp_path, "Many", [SweepResults("many", many, make_tables(many))])
    assert len(sizes(tmp_path)) == 4  # with the scatter plot
    assert len(set(sizes(tmp_path).values())) == 1


def test_no_chart_is_without_content(folder):
    """Two rows make no scatter plot, and one seed has no interval and no mean."""
    assert not (folder / "img" / "mine-policies-drift.svg").exists()
    pictures = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.svg"))
    assert "Highest: fedeas" in pictures  # captions are readable in the file
    assert "Whiskers" not in pictures
    assert "over seeds" not in pictures


def test_it_can_be_read_on_a_phone_in_the_dark_and_on_paper(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    outline = Outline()
    outline.feed(text)
    assert len(outline.around) == 3
    for tag, attributes in outline.around:
        assert (tag, attributes["class"], attributes["tabindex"]) == ("div", "wide", "0")
    style = re.search(r"<style>(.+?)</style>", text, re.DOTALL)[1]
    assert re.search(r"\.wide \{ overflow-x: auto", style)
    assert "@media screen and (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    head = re.search(r"<thead>(.+?)</thead>", text)[1]
    assert re.findall(r">([^<]+)</th>", head)[:2] == ["policy", "accuracy %"]


def test_charts_follow_the_colour_scheme(folder):
    for path in folder.rglob("*.svg"):
        text = path.read_text(encoding="utf-8")
        rules = re.search(r"prefers-color-scheme: dark\) \{(.+?)</style>", text)[1]
        for light in re.findall(r'\[style\*="fill: (#\w+)"\]', rules)[:2]:
            assert text.count(f"fill: {light}") > 1, "a rule for a colour that is not drawn"
        assert "fill: #000000" not in text


def test_legends_are_not_over_lines(monkeypatch):
    made = []

    def drawn(draw, kind="svg", width=WIDTH, height=HEIGHT):
        figure = Figure(figsize=(width, height), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        draw(figure)
        canvas.draw()
        made.append(figure)

    monkeypatch.setattr(curves, "picture", drawn)
    runs = [run for run in recorded()["cifar10"].runs if run.entry.grid == "policies"]
    (table,) = make_tables(runs)
    curves.convergence(runs, 0.45)
    curves.drift(table.rows)
    for figure in made:
        (axes,) = figure.axes
        legend = axes.get_legend().get_window_extent()
        assert len(axes.get_legend().get_texts()) == len(table.rows)
        assert axes.bbox.x0 <= legend.x0 < legend.x1 <= axes.bbox.x1
        for line in axes.get_lines():
            points = axes.transData.transform(line.get_xydata())
            assert not any(legend.contains(*point) for point in points)
