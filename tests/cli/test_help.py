"""Every command's help has an example, and the example runs."""

import inspect
import re
import shlex
from pathlib import Path

import openpyxl
import pytest

from fedeas.cli.main import app
from fedeas.private.secure_sum.identity import Members, load_identity
from fedeas.private.secure_sum.keys import identity_of, new_identity
from helpers.deployed_sites import write_image
from helpers.image_sets import draw_shapes
from helpers.interrupted import interrupted

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"Example: `fedeas (.+?)`", re.DOTALL)
LONG = (
    "run", "demo", "sweep", "generator train", "generator sample", "generator private",
    "generator federated", "generator report",
)  # fmt: skip


def commands():
    """Every command with its function."""

    def own(group, above=""):
        for info in group.registered_commands:
            yield above + (info.name or info.callback.__name__), info.callback

    yield from own(app)
    for group in app.registered_groups:
        inner = group.typer_instance
        yield from own(inner, f"{group.name} ")


def examples():
    found = {}
    for name, function in commands():
        match = EXAMPLE.search(inspect.getdoc(function))
        assert match, f"{name} shows no example"
        found[name] = " ".join(match[1].split())
        assert found[name].startswith(name)
    return found


@pytest.fixture
def desk(tmp_path):
    """A folder with the counts of some clients, a site, the examples and the configs."""
    head = (ROOT / "examples" / "fashion.csv").read_text().splitlines()[0]
    (tmp_path / "counts.csv").write_text(f"{head}\na,9,0,0,1,2,0,4,0,0,0\nb,0,3,3,0,0,0,0,2,0,1\n")
    (tmp_path / "site.toml").write_text(
        'partition-id = 0\nclasses = "a, b"\ndata = "own"\nstate = "state"\n'
    )
    write_image(tmp_path / "own" / "a", draw_shapes(1)[0][0])
    book = openpyxl.Workbook()
    for row in (("hospital", "diagnosis"), ("north", "flu"), ("south", "cold")):
        book.active.append(row)
    book.save(tmp_path / "patients.xlsx")
    diffusion = ROOT / "reproduction" / "configs" / "cpu" / "federated_diffusion.toml"
    (tmp_path / "config.toml").symlink_to(diffusion)
    for name in ("examples", "reproduction"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_every_command_shows_an_example():
    assert len(examples()) >= 12


def test_every_short_example_runs(desk, data, fedeas, monkeypatch):
    """One after the other in one folder: what `plan` and `fill` leave, others look at."""
    monkeypatch.chdir(desk)
    monkeypatch.setenv("FEDEAS_STORE", str(desk / "store"))
    # A report needs finished runs: tests/lab/test_report.py has them.
    found = {k: line for k, line in examples().items() if k not in (*LONG, "report")}
    order = ["plan", "fill", *sorted(found.keys() - {"plan", "fill"})]
    for name in order:
        if "0123456789abcdef" in found[name]:  # stands for one that there is
            (cache,) = (desk / "store" / "samples").iterdir()
            found[name] = found[name].replace("0123456789abcdef", cache.name)
            found[name] = found[name].replace(" cache/", f" {cache.parent}/")
            found[name] = found[name].replace(" prune cache ", f" prune {cache.parent} ")
        if name == "keys show":  # among others, the key that the example before made
            own = {"north": identity_of(load_identity("identity.key"))}
            others = {f"site-{k}": identity_of(new_identity()) for k in range(2)}
            (desk / "members.toml").write_text(Members.of({**own, **others}).to_toml())
        if name == "counts":  # the others read the counts that are there
            found[name] = found[name].replace("--out counts.csv", "--out clean.csv")
        done = fedeas(*shlex.split(found[name]))
        assert done.code == 0, (name, done.out, done.err)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*LONG} - {"demo"}))  # which ends soon: test_demo.py
def test_every_long_example_begins(desk, data, tmp_path, name):
    """It is stopped when it is at work."""
    arguments = shlex.split(examples()[name])
    _, said = interrupted(arguments, desk, tmp_path / "hook")
    assert said is None or said[1].splitlines()[-1] == "stopped", said
