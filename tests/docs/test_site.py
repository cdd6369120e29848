"""The site: built without a warning, complete, and readable on any screen."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import fedeas

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # builds the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as a reader gets it, as text by path."""
    out = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return {str(p.relative_to(out)): p.read_text(encoding="utf-8") for p in out.rglob("*.html")}


def words(html):
    """Return the text of a page without tags."""
    return unescape(re.sub(r"<[^>]+>", "", html))


def entry(page, name, package="fedeas"):
    """Return the part of the reference on a public name."""
    start = page.index(f'id="{package}.{name}"')
    ends = [
        m.start()
        for m in re.finditer(r'id="fedeas(?:_lab|_private)?\.\w+"', page)
        if m.start() > start
    ]
    return words(page[start : min(ends, default=len(page))])


def test_the_reference_shows_signatures_parameters_and_examples(site):
    page = site["reference/python/index.html"]
    counts = entry(page, "LabelCounts")
    assert re.search(r"LabelCounts\(\s*n: ArrayLike,\s*clients: Sequence\[str\]", counts)
    assert "Whole numbers, clients x classes." in counts
    assert ">>> counts = LabelCounts([[90, 10, 0], [30, 40, 30]]" in counts
    assert re.search(r">>> counts\.sizes\n+array\(\[100, 100\]\)", counts)
    assert re.search(r"FedEAS\(\s*beta: float = ", entry(page, "FedEAS"))


def test_constructors_of_fields_are_shown(site):
    page = site["reference/python/index.html"]
    assert re.search(
        r"Config\(\s*data: Data,\s*partition: PartitionConfig = ",
        entry(page, "Config", "fedeas.lab"),
    )
    context = entry(page, "QueryContext", "fedeas.private")
    assert re.search(
        r"QueryContext\(\s*histogram: ArrayLike .*\s*folder: Path,\s*identity: ", context
    )


def test_public_functions_say_their_parameters():
    public = {name: getattr(fedeas, name) for name in (*fedeas.__all__, *fedeas._WITH_EXTRA)}
    functions = {name: f for name, f in public.items() if inspect.isfunction(f)}
    assert len(functions) > 10
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters
        assert not parameters or "Parameters\n" in function.__doc__, name


def test_every_doctest_is_code(site):
    """Outside of code a prompt would be a quotation within a quotation within a quotation."""
    page = site["reference/python/index.html"]
    assert page.count("&gt;&gt;&gt;") > 30
    rest = re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL)
    assert "&gt;&gt;&gt;" not in rest
    assert "<blockquote>" not in rest


def test_pages_have_what_a_reader_looks_for(site):
    for path, page in site.items():
        if path == "404.html":
            continue
        assert 'name="viewport"' in page
        schemes = set(re.findall(r'<input[^>]+data-md-color-media="(.*?)"', page))
        assert len(schemes) == 3, "automatic, light, dark"
        assert not re.findall(r'(?:src|rel="stylesheet" href)="https?://', page)
    tutorial = site["tutorial/index.html"]
    assert 'rel="prev"' in tutorial
    assert "md-footer__link--next" in tutorial
    doors = words(site["index.html"])
    for door in ("Look", "Make", "Train", "pip install ."):
        assert door in doors


def test_wide_tables_scroll():
    style = (ROOT / "docs" / "site.css").read_text(encoding="utf-8")
    assert re.search(r"table:not\(\[class\]\) \{[^}]*overflow-x: auto", style)


def test_the_tutorial_shows_each_plan_once_and_pictures():
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert text.count("fedeas (beta 2): 55 samples") == 1
    assert len(re.findall(r"!\[.+?\]\(img/", text)) >= 1


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_examples_keep_a_heading_that_they_have():
    heading = tool("site_docstrings").with_heading
    assert heading("One.\n\n>>> f()\n1") == "One.\n\nExamples\n--------\n>>> f()\n1"
    assert heading("One.\n\nExamples\n--------\n>>> f()\n1").count("Examples") == 1
    assert heading("One, with >>> within.") == "One, with >>> within."
