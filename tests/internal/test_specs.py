"""Components by name: values in quotes, paths as they are, and a user's own mistakes in full."""

import subprocess
import sys
import traceback
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import InputError
from fedeas._internal.optional import import_extra
from fedeas._internal.specs import Registry, parse, quoted
from fedeas.train.flower.backends import run_on_backend
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.rounds import run_rounds
from helpers.small_federations import federation, settings


@dataclass
class Opened:
    model: str
    steps: int | None = None
    name: object = None


REGISTRY = Registry("generator", "fedeas.none", {"opened": Opened}, "sample(labels, seeds)")


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        ("opened(model=2024)", "2024"),
        ("opened(model=007)", "007"),
        ("opened(model=1e5)", "1e5"),
        ("opened(model=true)", "true"),
        ('opened(model="data/a, b/x", steps=3)', "data/a, b/x"),
        ("opened(steps=3, model='a)b=(c')", "a)b=(c"),
        ('opened(model="say ""a""")', 'say "a"'),
        (r"opened(model=C:\new\data,)", r"C:\new\data"),
    ],
)
def test_a_path_is_what_was_written(spec, model):
    made = REGISTRY.make(spec, {}, by_owner=True)
    assert made.model == model
    assert made.steps in (3, None)


def test_a_value_in_quotes_is_a_text():
    assert parse("a(b=3, c='3', d=x y, e=False)") == (
        "a",
        {"b": 3, "c": "3", "d": "x y", "e": False},
    )


@pytest.mark.parametrize(
    "spec", ["private(model=data/a, b/x)", 'private(model="a)', "x(=3)", "x(a=)"]
)
def test_half_a_setting_is_refused(spec):
    with pytest.raises(InputError):
        parse(spec)


@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_whatever_is_quoted_comes_back(text):
    assert REGISTRY.make(f"opened(model={quoted(text)}, steps=4)", {}, by_owner=True) == Opened(
        text, 4
    )
    assert parse(f"opened(model={quoted(text)})")[1]["model"] == text


class Faulty:
    def __init__(self, beta: float = 1.0) -> None:
        self.beta = self._checked(beta)

    def _checked(self, beta):
        return None + beta


def test_a_mistake_in_a_users_class_comes_with_its_line():
    with pytest.raises(InputError) as refused:
        Registry("policy", "fedeas.none", {}).make(f"{__name__}:Faulty(beta=2)", {}, by_owner=True)
    cause = refused.value.__cause__
    assert isinstance(cause, TypeError)
    last = traceback.extract_tb(cause.__traceback__)[-1]
    assert (last.name, f"line {last.lineno}" in refused.value.what) == ("_checked", True)


def test_a_mistake_in_a_clients_code_comes_with_its_traceback(tmp_path, caplog):
    made = federation(tmp_path)

    def broken(context):
        raise ZeroDivisionError("of my own")

    def main(grid):
        return run_rounds(
            grid, settings(), made.task, 42, tmp_path / "c.safetensors", "x", lambda _: {}
        )

    with pytest.raises(Exception, match="of my own") as failed:
        run_on_backend("inline", make_client_app(broken), made.clients, 1, main)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert traceback.extract_tb(failed.value.__cause__.__traceback__)[-1].name == "broken"
    assert "ZeroDivisionError: of my own" in caplog.text


def test_a_library_that_is_broken_is_not_said_to_be_missing(tmp_path, monkeypatch):
    said = "libcudnn.so.9: cannot open shared object file"
    (tmp_path / "needs_broken.py").write_text(f"raise ImportError({said!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as failed:
        import_extra("needs_broken", "the generator 'diffusion'", "diffusion")
    assert type(failed.value) is ImportError
    assert str(failed.value) == said


def output(script: str) -> list[str]:
    """Run a program in a process of its own, and return the words that it prints."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_public_name_imports_its_own_module_alone():
    script = (
        "import sys, fedeas; fedeas.Policy; "
        "print('fedeas.generators' in sys.modules, 'fedeas.augmentation' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "True" not in done.stdout.split()[1:]
