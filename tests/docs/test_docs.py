"""README and docs: every command shown is run, every example too, every link leads somewhere."""

import csv
import doctest
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from fedeas._internal.settings import read_settings
from fedeas.lab.config import Config, read_config
from fedeas.lab.sweep import read_sweep, run_specs
from fedeas.train.diffusion.train import PRESETS
from fedeas.train.models import make_model
from fedeas.train.samples import Task
from fedeas.train.simulate import draw_cohort
from helpers.checkout import ROOT, load_tool, sweep_files

DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *(p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "docs").rglob("*.md"))),
]


@pytest.mark.slow
def test_the_output_shown_is_the_output_given():
    refresh_docs = load_tool("refresh_docs")
    assert refresh_docs.main(check=True) == 0
    shown = "".join((ROOT / name).read_text() for name in DOCUMENTS)
    assert len(refresh_docs.BLOCK.findall(shown)) >= 4


def test_the_examples_of_the_readme_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted >= 5
    assert result.failed == 0


def test_the_configs_shown_and_shipped_are_configs():
    shown = "".join((ROOT / name).read_text() for name in DOCUMENTS)
    # A block that says its file's name is another kind of file: see test_site_guide.py.
    blocks = re.findall(r"```toml\n(?!# \w+\.toml\b)(.*?)```", shown, re.DOTALL)
    single = set((ROOT / "examples").glob("*.toml")) - set(sweep_files())
    files = [path.read_text() for path in single]
    assert blocks
    assert files
    for text in (*(block for block in blocks if "--8<--" not in block), *files):
        name = read_settings(Config, tomllib.loads(text), "a config").data.name
        assert name in ("cifar10", "fashion_mnist", "loans.parquet")


def test_the_advice_beside_what_paid_is_that_of_its_record(monkeypatch):
    """A table of the benchmark for every setting of the record that the findings are of."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    advice = importlib.import_module("advice")
    rows = advice.markdown(ROOT / "docs" / "data" / "advice.csv").splitlines()[2:]
    bold = sum("**" in row for row in rows)
    assert 0 < bold < len(rows)
    said = f"Of {len(rows)} recorded settings ([data/advice.csv](data/advice.csv)) generating is "
    said += f"ahead of copies with its whole interval in {bold};"
    assert said in " ".join((ROOT / "docs" / "findings.md").read_text("utf-8").split())


def test_every_record_says_how_and_when_it_was_made():
    recorded, data = ROOT / "reproduction" / "recorded", ROOT / "docs" / "data"
    with (recorded / "records.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    records = {path.name for path in recorded.iterdir()} - {"records.csv"}
    records |= {path.relative_to(ROOT).as_posix() for path in data.iterdir()}
    assert {row["file"] for row in rows} == records
    for row in rows:
        assert row["what"]
        assert re.fullmatch(r"2026-\d\d-\d\d", row["date"]), row


def test_the_reference_is_what_the_code_says():
    assert load_tool("reference").main(check=True) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("docs/howto")])
def test_the_programs_shown_run(name, tmp_path, monkeypatch):
    """In a folder with the examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = re.sub(
        r'^--8<-- "(.+\.py)"\n',
        lambda included: (ROOT / included[1]).read_text(),
        (ROOT / name).read_text(),
        flags=re.MULTILINE,
    )
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        if "--8<--" in block:  # a part of a program, which does not run alone
            continue
        exec(compile(block, name, "exec"), {"__name__": "shown"})


def test_the_runs_that_come_along_train_generators():
    single = set((ROOT / "reproduction" / "configs").glob("*/*.toml")) - set(sweep_files())
    assert {path.stem for path in single} == {"federated_diffusion"}
    for path in single:
        federated = read_config(path).federated
        assert federated.model.is_generator
        make_model(federated.model, Task(10, (28, 28, 1), (0.5,), (0.2,)), 0)
        clients = len(draw_cohort(42, 1, 20, federated.fraction))
        # The steps of the central training, all clients together.
        assert clients * federated.local.steps * federated.rounds == PRESETS["tiny"].steps


def test_the_sweeps_shown_and_shipped_are_sweeps(tmp_path):
    shown = "".join((ROOT / name).read_text() for name in DOCUMENTS)
    blocks = re.findall(r"```toml-sweep\n(.*?)```", shown, re.DOTALL)
    files = [path.read_text() for path in sweep_files()]
    assert blocks
    assert len(files) >= 4
    for text in (*blocks, *files):
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        assert list(run_specs(read_sweep(path)))


@pytest.mark.parametrize("name", [*DOCUMENTS, "SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_links_and_pictures_lead_somewhere(name):
    document = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        # Pages of others cannot be looked up without a network.
        if not target.startswith("https://"):
            assert (document.parent / target).exists(), target


WRITTEN = (".py", ".md", ".toml", ".html", ".css", ".ipynb", ".patch")
# Where the project would be if it were published: nothing may lead there until it is.
NOT_YET = (
    "github.com/fedeas", "fedeas.github.io", "githubusercontent.com/fedeas", "img.shields.io",
    "pypi.org/project/fedeas", "pip install fedeas",
)  # fmt: skip


def test_nothing_leads_to_a_home_that_does_not_exist():
    folders = (ROOT / name for name in ("src", "docs", "examples", "notebooks", "tools"))
    paths = [path for folder in folders for path in folder.rglob("*") if path.suffix in WRITTEN]
    paths += [ROOT / name for name in ("mkdocs.yml", "pyproject.toml")]
    paths += [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
    assert len(paths) > 200
    led = {str(path): [old for old in NOT_YET if old in path.read_text()] for path in paths}
    assert {path: found for path, found in led.items() if found} == {}


def test_what_is_installed_from_a_checkout_is_an_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pages = "".join((ROOT / name).read_text() for name in DOCUMENTS)
    shown = re.findall(r'"\.\[([\w,]+)\]"', pages)
    assert len(shown) >= 3
    named = {extra for listed in shown for extra in listed.split(",")}
    assert named <= set(extras["optional-dependencies"])


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/security.md", "docs/proofs.md"])
def test_pages_on_security_begin_with_what_nobody_has_reviewed(name):
    beginning = " ".join((ROOT / name).read_text()[:1200].split())
    assert "xperimental" in beginning
    assert re.search(r"reviewed by a third party", beginning)


def test_what_is_said_of_secaggplus_is_so():
    """The table of the security page, on the Flower that is installed."""
    from flwr.app import ConfigRecord
    from flwr.client.mod.secure_aggregation.secaggplus_mod import SecAggPlusState, _unmask
    from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.server.workflow import SecAggPlusWorkflow

    workflow = SecAggPlusWorkflow(3, 2)
    assert (workflow.clipping_range, workflow.quantization_range) == (8.0, 2**22)
    assert len(Stage.all()) == 4
    # Two seeds of 256 bits that are equal once they are folded to 32 bits have the same masks.
    seeds = bytes(32), b"abcd" * 2 + bytes(24)
    masks = [pseudo_rand_gen(seed, 2**32, [(50,)])[0] for seed in seeds]
    assert (masks[0] == masks[1]).all()
    # A node that is said to have survived and to be gone: the client gives both of its secrets.
    state = SecAggPlusState(threshold=2)
    state.rd_seed_share_dict, state.sk1_share_dict = {1: b"seed", 2: b"other"}, {1: b"key"}
    lists = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: [1, 2], Key.DEAD_NODE_ID_LIST: [1]})
    assert {b"seed", b"key"} < set(_unmask(state, lists)[Key.SHARE_LIST])


def test_every_benchmark_is_run_every_night():
    steps = load_tool("nightly").STEPS.values()
    named = {Path(part).name for step in steps for part in step if part.startswith("benchmarks/")}
    # The part of `rounds.py` that runs in another environment, one that needs 390 MB more, and what
    # writes records.
    others = {"rounds_pfl.py", "row_marginals.py", "records.py"}
    assert {p.name for p in (ROOT / "benchmarks").glob("*.py")} - named == others
