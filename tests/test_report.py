"""The report: one page that needs nothing else, with the numbers of the runs."""

import csv
import re
import shutil
from html.parser import HTMLParser

import pytest

from fedeas import InputError
from fedeas.experiments.paper_claims import RECORDED, recorded
from fedeas.experiments.paper_tables import printed
from fedeas.experiments.tables import find_runs, make_tables, write_index
from fedeas.files import write_json
from fedeas.report import page


class Page(HTMLParser):
    """Collects what a browser would fetch, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched, self.open, self.images = [], [], 0

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "href") and not value.startswith(("data:", "#")):
                self.fetched.append(value)
        self.images += tag == "img"
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of runs as `fedeas run` leaves them, without a sweep."""
    root = tmp_path_factory.mktemp("report") / "mine"
    runs = [run for run in recorded()["cifar10"].runs if run.entry.grid == "policies"]
    for run in runs:
        own = root / run.entry.folder
        own.mkdir(parents=True)
        write_json(own / "result.json", run.result)
        write_json(own / "config.json", {})
    return root


def test_the_page_needs_nothing_else(tmp_path, fedeas):
    done = fedeas("report", "--out", tmp_path / "report")
    assert done.code == 0, done.err
    text = (tmp_path / "report" / "index.html").read_text()
    seen = Page()
    seen.feed(text)
    assert seen.fetched == []
    assert seen.open == []
    assert seen.images >= 6
    assert "@import" not in text
    assert "<script" not in text
    markdown = (tmp_path / "report" / "report.md").read_text()
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", markdown)
    assert len(pictures) == seen.images
    assert all((tmp_path / "report" / name).stat().st_size > 1000 for name in pictures)


def test_its_numbers_are_those_of_the_tables(tmp_path, fedeas, folder):
    assert fedeas("report", folder, "--out", tmp_path / "r", "--title", "A <b>title</b>").code == 0
    text = (tmp_path / "r" / "index.html").read_text()
    assert "A &lt;b&gt;title" in text
    _, runs, _ = find_runs(folder)
    (table,) = make_tables(runs)
    with (tmp_path / "r" / "tables.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(table.rows)
    for row, written in zip(table.rows, rows, strict=True):
        assert float(written["accuracy"]) == pytest.approx(row.accuracy.value, rel=1e-5)
        assert f"{100 * row.accuracy.value:.1f}" in text
        paper = printed("cifar10", 20, 0.1, row.method, row.policy)
        assert paper is None or f"{paper:.2f}" in text


def test_names_of_others_are_no_markup():
    section = page.Section("<script>", ["<i>", page.Grid(("<b>",), [("<u>",)])])
    text = page._html("<h1>", [section])
    for tag in ("<script>", "<i>", "<b>", "<u>"):
        assert tag not in text


def test_unfinished_and_damaged_runs_are_named(tmp_path, fedeas, folder):
    root = tmp_path / "runs"
    shutil.copytree(folder, root)
    first, second, *_ = sorted(root.iterdir())
    (first / "result.json").unlink()
    (second / "result.json").write_text("{}")
    done = fedeas("report", root, "--out", tmp_path / "r")
    assert done.code == 0
    assert f"{first} is not finished" in done.err
    assert "is damaged" in done.err
    assert "holds no finished runs" in fedeas("report", tmp_path / "r").err
    assert fedeas("report", tmp_path / "nowhere").code == 2


def test_a_sweep_without_a_finished_run_is_said(tmp_path, fedeas):
    runs = recorded()["cifar10"].runs[:2]
    write_index(tmp_path / "s", "s", "", [run.entry for run in runs])
    assert "no run is finished" in fedeas("report", tmp_path / "s", "--out", tmp_path / "r").err
    (tmp_path / "s" / "sweep.json").write_text("{}")
    with pytest.raises(InputError, match="is no folder of a sweep"):
        find_runs(tmp_path / "s")


def test_exported_files_are_read_too():
    for path in RECORDED.glob("*.jsonl"):
        name, runs, missing = find_runs(path)
        assert name == path.stem
        assert runs
        assert not missing
