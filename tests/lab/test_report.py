"""The report: one page that needs nothing else, with the numbers of the runs."""

import csv
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fedeas import InputError
from fedeas._internal.files import read_json, write_json
from fedeas.lab.experiment import run as run_config
from fedeas.lab.report import curves
from fedeas.lab.results import find_runs, private_epsilon, write_index
from fedeas.lab.sweep import make_cells, read_sweep, run_specs
from fedeas.lab.tables import make_tables
from fedeas.plots import page
from helpers.small_federations import write_shapes
from reproduction.claims import EXPORTS, recorded
from reproduction.tables import printed


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


def test_the_page_needs_nothing_else(tmp_path, reproduction):
    done = reproduction("report", "--out", tmp_path / "report")
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


def test_a_title_is_escaped(tmp_path, fedeas, folder):
    assert fedeas("report", folder, "--out", tmp_path, "--title", "A <b>title</b>").code == 0
    assert "A &lt;b&gt;title" in (tmp_path / "index.html").read_text()


def test_its_numbers_are_those_of_the_tables(tmp_path, reproduction, folder):
    assert reproduction("report", folder, "--out", tmp_path / "r").code == 0
    text = (tmp_path / "r" / "index.html").read_text()
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


def copied(folder, root, *, policy=None):
    """Copy a folder of runs, or those of one policy."""
    for path in folder.iterdir():
        if policy is None or f"-{policy}-" in path.name:
            shutil.copytree(path, root / path.name)
    return root


def changed(path, **changes):
    """Write a result anew with other values."""
    write_json(path / "result.json", read_json(path / "result.json") | changes)


def test_a_report_of_own_runs_holds_nothing_of_the_paper(tmp_path, fedeas, reproduction, folder):
    """Whatever their folder is called."""
    own = copied(folder, tmp_path / "cifar10")
    assert fedeas("report", own, "--out", tmp_path / "own").code == 0
    assert reproduction("report", own, "--out", tmp_path / "asked").code == 0
    text, asked = ((tmp_path / n / "report.md").read_text() for n in ("own", "asked"))
    for words in ("paper", "cannot tell", "Table 1"):
        assert words not in text
        assert words in asked
    assert not (tmp_path / "own" / "img" / "demand.svg").exists()


@pytest.mark.slow
def test_claims_are_judged_from_all_folders_also_of_one_name(tmp_path, reproduction, folder):
    whole = copied(folder, tmp_path / "runs")
    halves = [tmp_path / half / "runs" for half in "ab"]
    for n, path in enumerate(sorted(whole.iterdir())):
        shutil.copytree(path, halves[n % 2] / path.name)

    def claims(*runs):
        assert reproduction("report", *runs, "--out", tmp_path / "r").code == 0
        text = (tmp_path / "r" / "report.md").read_text()
        return text.partition("## The paper's claims")[2]

    assert claims(*halves) == claims(whole)


def test_runs_of_two_codes_are_mixed_when_asked_for(tmp_path, fedeas, folder):
    own = copied(folder, tmp_path / "runs")
    changed(next(own.iterdir()), versions="fedeas 99")
    refused = fedeas("report", own, "--out", tmp_path / "r")
    assert refused.code == 2
    assert "--mixed" in refused.err
    assert fedeas("report", own, "--out", tmp_path / "r", "--mixed").code == 0
    assert "runs of different versions" in (tmp_path / "r" / "report.md").read_text()


def test_copies_of_a_run_are_one_seed(tmp_path, fedeas, folder):
    own = copied(folder, tmp_path / "runs", policy="none")
    (whole,) = make_tables(find_runs(own)[1])
    first, second, *_ = sorted(own.iterdir())
    shutil.copytree(first, own / "a-copy")
    (table,) = make_tables(find_runs(own)[1])
    assert table.rows == whole.rows
    (note,) = table.notes
    assert note == f"{own / 'a-copy'} and {first} are the same run: it is counted once"
    # The same experiment with another outcome, and another experiment of the same seed.
    known = read_json(second / "result.json")["curves"]
    shutil.copytree(second, own / "z-other")
    changed(own / "z-other", curves=known | {"accuracy": [0.5] * len(known["accuracy"])})
    shutil.copytree(second, own / "z-third")
    changed(own / "z-third", experiment="0" * 64)
    (table,) = make_tables(find_runs(own)[1])
    assert table.rows == whole.rows
    said = "\n".join(table.notes)
    assert f"{second} and {own / 'z-other'} claim to be the same run but differ (" in said
    assert f"{second} and {own / 'z-third'} both have seed" in said
    assert fedeas("report", own, "--out", tmp_path / "r").code == 0
    text = (tmp_path / "r" / "report.md").read_text()
    assert "it is counted once" in text
    assert "| runs | 4 |" in text  # three seeds, and the one that claims to be another experiment


def test_rounds_between_evaluations_leave_the_curve_whole():
    runs = [run for run in recorded()["cifar10"].runs if run.entry.grid == "policies"]
    seldom = []
    for run in runs:
        accuracy = run.result["curves"]["accuracy"]
        every = [a if n % 5 == 0 else None for n, a in enumerate(accuracy, start=1)]
        result = run.result | {"curves": run.result["curves"] | {"accuracy": every}}
        seldom.append(replace(run, result=result))

    def lines(shown):
        picture = curves.convergence(shown, None).decode()
        paths = re.findall(r'<path d="(M [^"]+)" clip-path', picture)
        return [path for path in paths if path.count(" L ") + path.count("\nL ") > 2]

    policies = {run.entry.policy for run in runs}
    assert len(lines(runs)) == len(lines(seldom)) == len(policies)
    rounds, mean = curves.mean_curve([run.result["curves"]["accuracy"] for run in seldom[:1]])
    assert rounds.tolist() == list(range(5, len(runs[0].result["curves"]["accuracy"]) + 1, 5))
    assert mean.tolist() == [runs[0].result["curves"]["accuracy"][n - 1] for n in rounds]


def test_names_of_others_are_no_markup():
    section = page.Section("<script>", ["<i>", page.Grid(("<b>",), [("<u>",)])])
    text = page.render_page("<h1>", [section])
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
    assert "no finished run" in fedeas("report", tmp_path / "s", "--out", tmp_path / "r").err
    (tmp_path / "s" / "sweep.json").write_text("{}")
    with pytest.raises(InputError, match="is not the folder of a sweep"):
        find_runs(tmp_path / "s")


def test_exported_files_are_read_too():
    for path in EXPORTS:
        name, runs, missing = find_runs(path)
        assert name == path.stem
        assert runs
        assert not missing


def test_seeded_noise_has_no_epsilon():
    """Its axis shows guarantees, and a noise that anybody can draw again gives none."""
    assert private_epsilon("private(epsilon=3, seeded_noise=false)") == 3.0
    assert private_epsilon("private(epsilon=3, seeded_noise=true)") is None


def test_a_federations_own_generator_is_drawn_against_epsilon_and_side_by_side(tmp_path, fedeas):
    """Next to none, noise and copies, which other rows of the sweep have."""
    sweep = tmp_path / "own.toml"
    sweep.write_text(f"""
[base]
device = "cpu"
[base.data]
name = "shapes"
folder = "{write_shapes(tmp_path / "set")}"
[base.partition]
recipe = "dirichlet"
clients = 4
alpha = 0.3
[base.augment]
cache = "{tmp_path / "cache"}"
[base.federated]
rounds = 1
fraction = 1.0
[[grid]]
name = "own"
match = "fedeas(beta=3)"
augment.generator = ["copies"]
augment.policy = ["none", "copies"]
[[grid]]
name = "own"
augment.generator = ["noise", "private(epsilon=inf)", "private(epsilon=3000)"]
augment.policy = ["fedeas(beta=3)"]
""")
    for cell in make_cells(list(run_specs(read_sweep(sweep)))):  # a worker would load torch again
        run_config(cell.config, tmp_path / "runs" / cell.name)
    ran = fedeas("sweep", sweep, "--out", tmp_path / "runs")
    assert ran.code == 0, ran.err
    assert fedeas("report", tmp_path / "runs", "--out", tmp_path / "report").code == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "from left to right: private(epsilon=inf), private(epsilon=3000)." in text
    assert "drawn by noise:" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| generator trained on |")]
    assert "each client's own samples" in row
    assert "nothing" in row
    assert row.count("the run's own clients") == 2
    assert "generator trained on" in (tmp_path / "report" / "index.html").read_text()
    assert "drawn by private" not in text  # not once more
    drawn = (tmp_path / "report" / "img" / "runs-own-epsilon.svg").read_text()
    for line in ("no synthetic samples", "noise", "copies", "private", "no noise", "3000"):
        assert f"<!-- {line} -->" in drawn
    assert (tmp_path / "report" / "img" / "runs-own-samples.png").exists()
