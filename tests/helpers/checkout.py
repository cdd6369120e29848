"""The checkout that is tested: its folder, its tools, the sweeps that come along."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_tool(name: str):
    """Import a program of tools/ by its name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def sweep_files() -> list[Path]:
    """The sweeps that come along; a config without grids is of a single run."""
    found = sorted(
        [*(ROOT / "reproduction" / "configs").glob("*/*.toml"), *(ROOT / "examples").glob("*.toml")]
    )
    return [path for path in found if "[[grid]]" in path.read_text()]
