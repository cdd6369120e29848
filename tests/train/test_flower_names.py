"""What we use of Flower beside its public API: which names, where, and what if one moves."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.app import Message, RecordDict

from fedeas.errors import FedeasError, MissingExtraError
from fedeas.train.flower import backends

SOURCE = Path(__file__).parents[2] / "src"
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.simulation"}
MODULES = sorted(SOURCE.rglob("*.py"))


def private_uses(path: Path) -> set[str]:
    """Return what a module imports of Flower's inner modules, and what it reaches inside for."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
            names = {alias.name for alias in node.names}
            if node.module not in PUBLIC or any(name.startswith("_") for name in names):
                found |= {f"{node.module}.{name}" for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("flwr.")}
        elif isinstance(node, ast.Attribute) and node.attr == "__dict__":
            found |= {ast.unparse(node)} - {"self.__dict__"}
    return found


def test_private_names_are_in_one_module():
    used = {path.relative_to(SOURCE).as_posix(): private_uses(path) for path in MODULES}
    assert {module: names for module, names in used.items() if names} == {
        "fedeas/train/flower/backends.py": {backends.IDENTITY, "message.metadata.__dict__"}
    }


def test_the_names_are_where_they_were():
    """Fails with the name of what moved."""
    backends.set_identity(run_id=1, node_id=1)
    message = Message(RecordDict(), dst_node_id=2, message_type="train")
    backends.set_message_id(message, "7")
    assert Message(RecordDict(), reply_to=message).metadata.reply_to_message_id == "7"


def test_a_class_that_moved_is_named_and_no_extra_is_blamed():
    code = (
        "import sys, flwr.app, flwr.clientapp, flwr.serverapp, flwr.simulation\n"
        "sys.modules['flwr.supercore.task_identity'] = None\n"
        "import fedeas, fedeas.train.flower.backends\n"
        "try: fedeas.train.flower.backends.InlineGrid(None, 1)\n"
        "except fedeas.FedeasError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"FedeasError {backends.IDENTITY} no longer exists; got 'flwr")


def test_an_attribute_that_moved_is_named(monkeypatch):
    renamed = SimpleNamespace(metadata=SimpleNamespace(message_id=""))
    with pytest.raises(FedeasError, match=r"Metadata\._message_id no longer exists") as raised:
        backends.set_message_id(renamed, "7")
    assert not isinstance(raised.value, MissingExtraError)
    monkeypatch.setattr(backends.IDENTITY, type("TaskIdentity", (), {}))
    with pytest.raises(FedeasError, match=r"TaskIdentity\.task_id no longer exists"):
        backends.set_identity(1, 1)
