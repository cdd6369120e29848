"""Finished runs: from a sweep's folder, any folder of runs, or an exported file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedeas.errors import InputError
from fedeas.experiments.results import Result, check_result, known_by, read_result
from fedeas.experiments.shapes import ENTRY, fits
from fedeas.files import atomic_write, read_json, read_text, sealed, unsealed, write_json

INDEX = "sweep.json"
_FORMAT = "sweep/1"


@dataclass(frozen=True)
class Entry:
    """A run's place in a sweep."""

    grid: str
    title: str
    threshold: float | None
    match: str  # the policy whose total it spends, empty if none is matched
    method: str
    policy: str  # as the sweep names it, without a matched total
    varied: tuple[tuple[str, Any], ...]  # what else varies in its grid: dotted name, value
    seed: int
    folder: str  # below the runs' folder

    @property
    def column(self) -> tuple[tuple[str, Any], ...]:
        """What varies apart from method, policy and seed: runs of one column can be compared."""
        return tuple((k, v) for k, v in self.varied if k not in ("seed", "federated.method"))


@dataclass(frozen=True)
class Run:
    """A finished run and its place."""

    entry: Entry
    result: Result
    place: Path | None = None  # its folder, where it was read from one


def write_index(root: Path, name: str, title: str, entries: Sequence[Entry]) -> None:
    """Write the index of a folder of runs, so that it can be read without the sweep's file."""
    root.mkdir(parents=True, exist_ok=True)
    listed = [asdict(entry) for entry in entries]
    write_json(root / INDEX, {"format": _FORMAT, "name": name, "title": title, "runs": listed})


def read_index(root: Path) -> list[Entry]:
    """Read what `write_index` wrote."""
    try:
        content = read_json(root / INDEX)
        if content["format"] != _FORMAT:
            raise ValueError("another format")
        return [_entry(entry) for entry in content["runs"]]
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{root} is not the folder of a sweep: {error}",
            fix="run `fedeas sweep` with this folder again",
        ) from None


def _entry(content: Any) -> Entry:
    if not fits(content, ENTRY):
        raise ValueError("a run without its place in the sweep")
    varied = tuple((str(k), v) for k, v in content["varied"])
    return Entry(**{**content, "varied": varied})


def read_runs(root: Path, entries: Sequence[Entry]) -> tuple[list[Run], list[str]]:
    """Return the finished runs, and a line for every other one: unfinished, or damaged."""
    runs, missing = [], []
    for entry in entries:
        path = root / entry.folder / "result.json"
        try:
            result = read_result(path)
            _check_place(entry.folder, result)
        except InputError as error:
            known = f"{error}" if path.exists() else f"{entry.folder} is not finished"
            if known not in missing:
                missing.append(known)
            continue
        runs.append(Run(entry, result, path.parent))
    return runs, missing


def _check_place(folder: str, result: Result) -> None:
    """Refuse a result in the folder of another run."""
    if not folder.endswith(f"-{known_by(result['settings'])}"):
        raise InputError(f"{folder} holds the result of another run", fix="remove the folder")


def export(path: Path, runs: Sequence[Run]) -> None:
    """Write finished runs into one file of JSON lines, each with its checksum."""
    lines = [sealed({"entry": asdict(run.entry), "result": run.result}) for run in runs]
    with atomic_write(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def read_export(path: Path) -> list[Run]:
    """Read what `export` wrote; refuse a modified file."""
    runs = []
    for number, line in enumerate(read_text(path).splitlines(keepends=True), start=1):
        name = f"line {number} of {path}"
        body = unsealed(line, name)
        try:
            entry, result = _entry(body["entry"]), body["result"]
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{name} is not a run", allowed="lines of `sweep --export`") from None
        runs.append(Run(entry, check_result(result, name)))
    return runs


def find_runs(path: Path) -> tuple[str, list[Run], list[str]]:
    """Find finished runs: from a sweep's folder, any folder of runs, or an exported file.

    Returns a name for them, the runs, and a line for every run that is unfinished or damaged.
    """
    if path.is_file():
        return path.stem, read_export(path), []
    if (path / INDEX).exists():
        return path.name, *read_runs(path, read_index(path))
    folders = [path] if (path / "result.json").exists() else sorted(path.glob("*/"))
    results, missing = [], []
    for folder in folders:
        if not (folder / "config.json").exists():
            continue
        try:
            results.append((folder, read_result(folder / "result.json")))
        except InputError as error:
            known = error if (folder / "result.json").exists() else f"{folder} is not finished"
            missing.append(str(known))
    if not results:
        raise InputError(
            f"{path} holds no finished runs",
            allowed="a folder of `fedeas run` or `fedeas sweep`, or a file of `sweep --export`",
        )
    varied = _varied([result for _, result in results])
    runs = []
    for folder, result in results:
        flat = flat_settings(result["settings"])
        own = tuple((key, flat[key]) for key in varied)
        method, policy, seed = result["method"], result["policy"], result["seed"]
        entry = Entry(path.name, "", None, "", method, policy, own, seed, folder.name)
        runs.append(Run(entry, result, folder))
    return path.name, runs, missing


_SHOWN = ("seed", "federated.method", "augment.policy", "augment.generator", "augment.batch")


def _varied(results: Sequence[Result]) -> list[str]:
    """Return the settings in which runs differ, apart from those that a table shows anyway."""
    flat = [flat_settings(result["settings"]) for result in results]
    keys = dict.fromkeys(key for own in flat for key in own)
    return [
        key for key in keys if key not in _SHOWN and len({str(own.get(key)) for own in flat}) > 1
    ]


def flat_settings(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested settings by dotted names.

    >>> flat_settings({"seed": 1, "data": {"name": "cifar10"}})
    {'seed': 1, 'data.name': 'cifar10'}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat_settings(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found
