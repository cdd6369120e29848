"""The direction of imports: data flows one way, and the core needs NumPy alone."""

import ast
import importlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedeas"
# A package imports only from packages above it.
PACKAGES = [
    "errors", "plotting", "notebook",
    "cores", "limits", "scalars", "seeds", "specs", "blocks", "files", "locks", "hub",
    "tensors", "parquet", "tables", "counts", "targets", "skew", "tally", "cost", "progress",
    "per_name", "policy_settings", "overfill", "plan", "policies", "beta_path", "select",
    "beta_choice", "diagnosis", "comparison", "stream",
    "privacy", "partition", "settings", "sources", "data",
    "training", "generators", "cache", "dropin", "methods", "flower", "experiments", "report",
    "paper", "cli",
]  # fmt: skip
# The only places outside `cli` that import another package, and then where it is used.
LEAVES = {
    "notebook.py": {"pandas", "polars"},
    "progress.py": {"rich"},
    "privacy/accounting.py": {"dp_accounting"},
    "parquet/arrow.py": {"pyarrow"},
    "partition/flower.py": {"datasets", "flwr_datasets"},
    "hub.py": {"huggingface_hub"},
    "locks.py": {"filelock"},
    "sources.py": {"datasets"},
    "tables/workbook.py": {"openpyxl"},
    "data/decode.py": {"PIL"},
    "dropin/hugging_face.py": {"datasets"},
    "dropin/pictures.py": {"PIL"},
    "generators/quality.py": {"torch", "torchmetrics"},
    "generators/smote.py": {"imblearn"},
    "experiments/tracking.py": {"torch", "mlflow"},
    "experiments/demo.py": {"PIL", "sklearn"},
    "report/canvas.py": {"matplotlib"},
    "report/figures.py": {"matplotlib"},
    "report/samples.py": {"PIL"},
}
# Modules that need torch, flwr, cryptography or dp-accounting as a whole. Others import them only
# where they are used.
HEAVY = {
    "tensors.py", "training/loop.py", "training/normalise.py", "training/optimizers.py",
    "training/models/__init__.py", "training/models/classifier.py", "training/models/cnn.py",
    "training/models/mlp.py", "training/models/registry.py", "training/models/resnet.py",
    "training/models/unet.py", "generators/diffusion.py", "generators/federated.py",
    "generators/train.py", "generators/turbo.py", "generators/judge.py",
    "generators/own/features.py", "generators/own/network.py", "generators/own/matching.py",
    "generators/own/clipped_normal.py", "generators/own/embedded.py",
    "generators/own/gaussians.py", "generators/own/kept_sums.py", "generators/own/make.py",
    "generators/own/refine.py", "generators/own/refined.py", "generators/own/rows.py",
    "dropin/torch_set.py", "dropin/sampler.py", "methods/method.py",
    "methods/fedprox.py", "methods/scaffold.py", "methods/moon.py", "methods/fedgen.py",
    "methods/fedmix.py", "methods/class_weights.py", "methods/fedlc.py", "methods/fedrs.py",
    "methods/fedvls.py", "methods/registry.py", "flower/sums.py", "flower/records.py",
    "flower/state.py", "flower/client.py", "flower/rounds.py", "flower/aggregate.py",
    "flower/grids.py", "flower/simulated.py", "flower/site.py",
    "flower/exchange.py", "flower/limits.py", "flower/members.py", "flower/robust.py",
    "flower/deployed.py", "flower/server.py", "flower/private.py", "flower/watched_grid.py",
    "flower/site_check.py",
    "experiments/run.py", "experiments/generator.py", "experiments/sweep.py",
    "experiments/runner.py", "experiments/worker.py", "experiments/estimate.py",
    "privacy/secure_sum/keys.py", "privacy/secure_sum/client.py",
    "privacy/secure_sum/server.py", "privacy/secure_sum/identity.py",
    "flower/secure_sum.py", "flower/negotiate.py",
    "flower/queries.py", "flower/secure_round.py", "flower/own_generator.py",
}  # fmt: skip
HEAVY_PACKAGES = {
    "torch", "diffusers", "accelerate", "safetensors", "flwr", "cryptography", "dp_accounting",
    "imblearn", "sklearn",
}  # fmt: skip
# Public names that need an extra, and which.
WITH_EXTRA = {
    "FedEASSampler": "imbalanced",
    "Method": "torch",
    **dict.fromkeys(["Identity", "Members"], "privacy"),
    **dict.fromkeys(["run", "serve", "make_deployed_app"], "train"),
    **dict.fromkeys(
        [
            "Holding",
            "answer_queries",
            "class_prior",
            "negotiate_beta",
            "negotiate_price",
        ],
        "train",
    ),
}
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
INNER = [m for m in MODULES if m not in ("__init__.py", "__main__.py")]


def package(module: str) -> str:
    return module.split("/", maxsplit=1)[0].removesuffix(".py")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_text())


@cache
def imports(module: str, *, top_level: bool, executed: bool = False) -> set[str]:
    """The dotted names that a module imports, at its top level or inside functions.

    `executed` leaves out what only type checkers import.
    """
    tree = tree_of(module)
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if (id(node) not in inner) != top_level or (executed and id(node) in for_types):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_functions_are_short(module):
    """A reader keeps them in mind: 60 lines; docstrings do not count."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef):
            said = ast.get_docstring(node, clean=False) or ""
            lines = node.end_lineno - node.lineno + 1 - len(said.splitlines())
            assert lines <= 60, f"{node.name} has {lines} lines"


def test_every_package_is_on_the_map():
    assert {package(module) for module in INNER} == set(PACKAGES)


@pytest.mark.parametrize("module", INNER)
def test_a_package_imports_only_from_packages_above_it(module):
    own = PACKAGES.index(package(module))
    for name in imports(module, top_level=True) | imports(module, top_level=False):
        parts = name.split(".")
        if parts[0] != "fedeas":
            continue
        if len(parts) > 1 and parts[1] in PACKAGES:
            assert PACKAGES.index(parts[1]) <= own, f"{module} imports {name}"
        else:  # `from fedeas import Plan`: the public face, for commands only
            assert package(module) == "cli", f"{module} imports {name}"


def test_only_two_commands_know_the_paper():
    def knows(module: str) -> bool:
        names = imports(module, top_level=True) | imports(module, top_level=False)
        return any(f"{name}.".startswith("fedeas.paper.") for name in names)

    outside = {module for module in MODULES if package(module) != "paper" and knows(module)}
    assert outside == {"cli/paper.py", "cli/report.py"}


@pytest.mark.parametrize("module", sorted(HEAVY))
def test_a_heavy_module_says_what_it_needs_at_its_top(module):
    standard = sys.stdlib_module_names | {"fedeas", "numpy"} | HEAVY_PACKAGES
    assert {name.split(".")[0] for name in imports(module, top_level=True)} <= standard
    assert not imports(module, top_level=False)


@pytest.mark.parametrize("module", [m for m in INNER if m not in HEAVY])
def test_heavy_modules_are_imported_only_where_they_are_used(module):
    dotted = {f"fedeas.{m.removesuffix('.py').replace('/', '.')}" for m in HEAVY}
    for name in imports(module, top_level=True, executed=True):
        found = [heavy for heavy in dotted if f"{name}.".startswith(f"{heavy}.")]
        assert not found, f"{module} imports {name}"


@pytest.mark.parametrize("module", [m for m in INNER if package(m) != "cli" and m not in HEAVY])
def test_the_core_imports_nothing_but_numpy_and_settings_nothing_but_msgspec(module):
    own = {"msgspec"} if package(module) == "settings" else {"numpy"}
    standard = sys.stdlib_module_names | {"fedeas"} | own
    assert {name.split(".")[0] for name in imports(module, top_level=True)} <= standard
    inside = {name.split(".")[0] for name in imports(module, top_level=False)} - standard
    assert inside <= LEAVES.get(module, set())


@pytest.mark.parametrize(
    "module",
    [m for m in INNER if package(m) in ("cache", "flower", "methods") or m == "training/loop.py"],
)
def test_nothing_is_assumed_to_be_an_image_where_any_sample_will_do(module):
    """Only data sets, models and generators of images know what an image is."""
    words = re.compile(r"uint8|height|channels")
    assert not words.findall((SOURCE / module).read_text())


def test_the_command_line_starts_without_numpy_and_msgspec():
    code = "import sys, fedeas.cli; sys.exit(bool({'numpy', 'msgspec'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code]).returncode == 0


def test_the_public_names_are_there():
    import fedeas

    public = {*fedeas.__all__, *WITH_EXTRA}
    assert public <= set(dir(fedeas))
    assert all(getattr(fedeas, name).__name__ == name for name in public)
    assert not hasattr(fedeas, "nothing_of_this_name")


def test_type_checkers_see_the_public_names():
    import fedeas

    for_types = imports("__init__.py", top_level=True) - imports(
        "__init__.py", top_level=True, executed=True
    )
    shown = [name for name in for_types if name.startswith("fedeas.")]
    assert {name.split(".")[-1] for name in shown} == {*fedeas.__all__, *WITH_EXTRA}
    for name in shown:
        module, _, own = name.rpartition(".")
        assert getattr(importlib.import_module(module), own) is getattr(fedeas, own)


def test_importing_fedeas_loads_numpy_alone():
    code = (
        "import sys, json; from fedeas import *;"
        "print(json.dumps([m.split('.')[0] for m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "typer",
        "rich",
        "click",
        "pyarrow",
        "matplotlib",
        "datasets",
        "pandas",
        "torch",
        "flwr",
    }
    assert not heavy & set(json.loads(done.stdout))


def test_a_public_name_names_the_extra_that_it_needs():
    """And `dir`, which `help(fedeas)` goes through, leaves it out where that is not installed."""
    code = (
        "import sys, json\n"
        "gone = ['torch', 'flwr', 'dp_accounting', 'cryptography', 'imblearn']\n"
        "sys.modules |= dict.fromkeys(gone)\n"
        "import fedeas\n"
        "said = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: getattr(fedeas, name)\n"
        "    except fedeas.MissingExtraError as error: said[name] = [str(error), error.extra]\n"
        "listed = set(sys.argv[1:]) & set(dir(fedeas))\n"
        "print(json.dumps([said, sorted(listed), 'Plan' in dir(fedeas)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *WITH_EXTRA], capture_output=True, text=True, check=True
    )
    said, listed, core = json.loads(done.stdout)
    assert not listed
    assert core
    assert {name: extra for name, (_, extra) in said.items()} == WITH_EXTRA
    assert said["run"][0] == (
        'fedeas.run needs an optional package; install it with: pip install "fedeas[train]"'
    )


@pytest.mark.parametrize("module", MODULES)
def test_nothing_seeds_globally_or_runs_text(module):
    """A global seed of torch is set only inside `fork_rng`, which puts the stream back."""
    tree = tree_of(module)
    forked = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and "fork_rng" in ast.unparse(node.items[0])
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"np.random.seed", "random.seed", "eval", "exec"}
            assert called != "torch.manual_seed" or id(node) in forked


def test_a_missing_extra_is_named(monkeypatch, fedeas, paper_csv, tmp_path):
    for package, arguments in (
        ("pyarrow", ["plan", tmp_path / "x.parquet"]),
        ("matplotlib", ["plan", paper_csv, "--plot", tmp_path / "x.png"]),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            result = fedeas(*arguments)
        assert result.code == 2
        assert 'pip install "fedeas[' in result.err
