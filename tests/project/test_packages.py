"""What importing the packages costs and needs; import-linter holds the order of imports."""

import json
import subprocess
import sys

import pytest

import fedeas
import fedeas.lab
import fedeas.private

WITH_EXTRA = {"FedEASSampler": "sampler", "Method": "train"}


def loaded_by(program: str) -> set[str]:
    """Return the top-level packages that a fresh process has loaded after a program."""
    code = f"import sys, json\n{program}\nprint(json.dumps([m.split('.')[0] for m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_importing_fedeas_loads_numpy_alone():
    heavy = {
        "typer", "rich", "click", "msgspec", "pyarrow", "matplotlib", "datasets", "pandas", "torch",
        "flwr",
    }  # fmt: skip
    planning = "import fedeas; fedeas.FedEAS(beta=12).plan(fedeas.LabelCounts([[9, 1], [1, 9]]))"
    assert not heavy & loaded_by(planning)


def test_the_command_line_starts_without_numpy_and_msgspec():
    assert not {"numpy", "msgspec"} & loaded_by("import fedeas.cli.main")


@pytest.mark.parametrize("package", [fedeas, fedeas.private, fedeas.lab], ids=lambda p: p.__name__)
def test_the_public_names_are_there_once(package):
    assert len(package.__all__) == len(set(package.__all__))
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name).__name__ == name for name in package.__all__)
    assert not hasattr(package, "nothing_of_this_name")


def test_a_public_name_names_the_extra_that_it_needs():
    """And `dir`, which `help(fedeas)` goes through, leaves it out where that is not installed."""
    code = (
        "import sys, json\n"
        "sys.modules |= dict.fromkeys(['torch', 'flwr', 'imblearn'])\n"
        "import fedeas\n"
        "said = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: getattr(fedeas, name)\n"
        "    except fedeas.MissingExtraError as error: said[name] = error.extra\n"
        "print(json.dumps([said, sorted(set(sys.argv[1:]) & set(dir(fedeas)))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *WITH_EXTRA], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [WITH_EXTRA, []]


def test_a_missing_extra_is_named(monkeypatch, fedeas, paper_csv, tmp_path):
    for package, arguments in (
        ("pyarrow", ["plan", tmp_path / "x.parquet"]),
        ("matplotlib", ["plan", paper_csv, "--plot", tmp_path / "x.png"]),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            result = fedeas(*arguments)
        assert result.code == 2
        assert "pip install" in result.err and "[counts]" in result.err
