"""Finished runs: what a result holds, numbers from its curves, and how runs are found on disk.

A checksum detects damage, not forgery: a file of runs can hold anything with a valid checksum. So
everything that tables and reports rely on is declared here, and checked when it is read.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from scipy.special import stdtrit

from fedeas._internal.files import (
    atomic_write,
    content_hash,
    read_json,
    read_text,
    sealed,
    unsealed,
    write_json,
)
from fedeas._internal.specs import parse
from fedeas.errors import InputError

Result = dict[str, Any]
_PER_ROUND = ("accuracy", "drift", "seconds", "trained_on")
_DRIFT_ALL = "drift_all"  # of every round, where the model has running statistics
_PER_SITE = "per_site"  # accuracy by the site that test samples are from
_MIN_TAIL = 5  # rounds of the mean at the end, at least


# Numbers from curves


def curves(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the curves that figures and tables need, with None for rounds without a value.

    Accuracy by class, and by site where sites are real, is the mean of the last rounds.
    """
    series: dict[str, list[Any]] = {key: [line.get(key) for line in history] for key in _PER_ROUND}
    if any(_DRIFT_ALL in line for line in history):
        series[_DRIFT_ALL] = [line.get(_DRIFT_ALL) for line in history]
    series["per_class"] = _last_mean(history, "per_class")
    if any(_PER_SITE in line for line in history):
        series[_PER_SITE] = _last_mean(history, _PER_SITE)
    return series


def _last_mean(history: Sequence[Mapping[str, Any]], key: str) -> list[float | None]:
    """Return the means of a list's entries over the last rounds that have it."""
    by_round = [line[key] for line in history if key in line]
    return [
        None if None in values else round(statistics.mean(values), 5)
        for values in zip(*by_round[-tail(len(by_round)) :], strict=True)
    ]


def tail(rounds: int) -> int:
    """Return how many rounds the accuracy at the end is averaged over: a tenth, at least five.

    The paper's 200 rounds give its last 20.

    >>> tail(200), tail(40), tail(3)
    (20, 5, 3)
    """
    return min(rounds, max(_MIN_TAIL, rounds // 10))


def summarise(series: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the figures of a run from its curves."""
    accuracies = [a for a in series["accuracy"] if a is not None]
    last = accuracies[-tail(len(accuracies)) :]
    drift_all = [d for d in series.get(_DRIFT_ALL, ()) if d is not None]
    return {
        "rounds": len(series["accuracy"]),
        "accuracy": accuracies[-1],
        "accuracy_last": statistics.mean(last),
        "accuracy_last_rounds": len(last),
        "accuracy_peak": max(accuracies),
        "drift_median": statistics.median(series["drift"]),
        **({"drift_all_median": statistics.median(drift_all)} if drift_all else {}),
        "seconds": round(sum(series["seconds"]), 1),
    }


def rounds_to(accuracy: Sequence[float | None], threshold: float) -> int | None:
    """Return the first round whose accuracy reaches a threshold; None if none does.

    >>> rounds_to([0.2, None, 0.5, 0.4], 0.45)
    3
    """
    reached = (n for n, a in enumerate(accuracy, start=1) if a is not None and a >= threshold)
    return next(reached, None)


def efficiency(accuracy: float, without: float, generated: int) -> float | None:
    """Return the paper's eta: percentage points gained over no generation, per 1,000 samples.

    >>> round(efficiency(0.7165, 0.5552, 13_437), 3)
    1.2
    """
    return 1e5 * (accuracy - without) / generated if generated else None


# What every table, figure and report means by the sign.
PLUS_MINUS = (
    "± is half the 95 % confidence interval (Student's t) over seeds; two seeds: their range"
)


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and their spread.

    From three values on, the spread is half of the 95 % confidence interval (Student's t). For two
    it is their range: an interval of two values is many times as wide, and says nothing.
    """

    value: float
    half: float | None  # half of the interval's width
    count: int
    range: tuple[float, float] | None = None  # of two values

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """Return the mean of at least one value.

        >>> Mean.of([1.0, 2.0, 3.0])
        Mean(value=2.0, half=2.484..., count=3, range=None)
        """
        count = len(values)
        mean = statistics.mean(values)
        if count < 3:
            return cls(mean, None, count, (min(values), max(values)) if count == 2 else None)
        t = float(stdtrit(count - 1, 0.975))
        return cls(mean, t * statistics.stdev(values) / math.sqrt(count), count)

    @property
    def bounds(self) -> tuple[float, float]:
        """Both ends of the interval or the range; twice the mean if there is neither."""
        half = self.half or 0.0
        return self.range or (self.value - half, self.value + half)

    def points(self, sign: str = "") -> str:
        """Format a fraction in percentage points, with its spread.

        >>> Mean(0.475, 0.014, 3).points("+"), Mean.of([0.101, 0.199]).points()
        ('+47.5 ± 1.4', '15.0 (10.1 to 19.9)')
        """
        spread = "" if self.half is None else f" ± {100 * self.half:.1f}"
        if self.range is not None:
            spread = " ({:{s}.1f} to {:{s}.1f})".format(*(100 * x for x in self.range), s=sign)
        return f"{100 * self.value:{sign}.1f}{spread}"


# The form of a result


class _Form(Struct, frozen=True):
    """What a file must hold; it may hold more. All of its texts can be printed."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            for text in _texts(getattr(self, name)):
                # Titles and descriptions may have several lines.
                line = " ".join(text.split()) if name in ("title", "data") else text
                if not line.isprintable():
                    raise ValueError(f"{name} is not a printable text")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _texts(part)


_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Number = Annotated[float, Meta(ge=-(2**53), le=2**53)]  # NaN is none
_Text = Annotated[str, Meta(max_length=1000)]
_Scalar = bool | Annotated[int, Meta(ge=-(2**53), le=2**53)] | _Number | _Text | None


class _GenerationForm(_Form, frozen=True):
    made: _Count
    seconds: _Number


class _MachineForm(_Form, frozen=True):
    machine: _Text
    device: _Text
    threads: _Scalar
    torch: _Text


class _CurvesForm(_Form, frozen=True):
    accuracy: tuple[_Number | None, ...]
    drift: tuple[_Number, ...]
    seconds: tuple[_Number, ...]
    per_class: tuple[_Number | None, ...]


class _DataForm(_Form, frozen=True):
    name: _Text
    split: _Text


class _PartitionForm(_Form, frozen=True):
    clients: _Scalar
    alpha: _Scalar


class _ModelForm(_Form, frozen=True):
    name: _Text


class _LocalForm(_Form, frozen=True):
    epochs: _Scalar
    learning_rate: _Scalar


class _FederatedForm(_Form, frozen=True):
    rounds: _Count
    fraction: _Number
    model: _ModelForm
    local: _LocalForm


class _SettingsForm(_Form, frozen=True):
    augment: dict[str, Any]
    data: _DataForm
    partition: _PartitionForm
    federated: _FederatedForm


class _ResultForm(_Form, frozen=True):
    method: _Text
    policy: _Text
    seed: _Count
    data: _Text
    generator: _Text
    generated: _Count
    generation: _GenerationForm
    versions: _Text
    counts_hash: _Text
    generator_hash: _Text
    experiment: _Text
    on: _MachineForm
    curves: _CurvesForm
    settings: _SettingsForm
    classes: tuple[_Text, ...] = ()
    asked: _Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        curves, rounds = self.curves, len(self.curves.accuracy)
        if all(accuracy is None for accuracy in curves.accuracy):
            raise ValueError("no round was evaluated")
        if not len(curves.drift) == len(curves.seconds) == rounds:
            raise ValueError("curves of different lengths")
        if self.classes and curves.per_class and len(self.classes) != len(curves.per_class):
            raise ValueError("another number of classes")


class SweepEntry(_Form, frozen=True, forbid_unknown_fields=True):
    """A run's place in a sweep."""

    grid: _Text
    title: _Text
    threshold: _Number | None
    match: _Text  # the policy whose total it spends, empty if none is matched
    method: _Text
    policy: _Text  # as the sweep names it, without a matched total
    varied: tuple[tuple[_Text, _Scalar], ...]  # what else varies in its grid: dotted name, value
    seed: _Count
    # Below the runs' folder.
    folder: Annotated[str, Meta(max_length=1000, pattern=r"^(?!\.{1,2}\Z)[^/\\]+\Z")]

    @property
    def column(self) -> tuple[tuple[str, Any], ...]:
        """What varies apart from method, policy and seed: runs of one column can be compared."""
        return tuple((k, v) for k, v in self.varied if k not in ("seed", "federated.method"))


@dataclass(frozen=True)
class FinishedRun:
    """A run's result and its place in a sweep."""

    entry: SweepEntry
    result: Result
    path: Path | None = None  # its folder, where it was read from one


def read_result(path: Path) -> Result:
    """Read a run's result; refuse a modified file."""
    return check_result(read_json(path), str(path))


def check_result(content: Any, name: str) -> Result:
    """Return a result that tables can be made of; refuse anything else, called `name`."""
    try:
        msgspec.convert(content, _ResultForm)
    except msgspec.ValidationError:
        raise InputError(f"{name} is not a result", fix="pass a folder of `fedeas run`") from None
    result: Result = content
    return result


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return the short name of a run's settings, which ends the name of its folder."""
    return content_hash(settings)[:8]


def private_epsilon(spec: str) -> float | None:
    """Return the epsilon of a run's own private generator; None for any other generator.

    None for seeded noise too: whoever knows the seed can take it off, so nothing is guaranteed.

    >>> private_epsilon("private(epsilon=3)"), private_epsilon("private"), private_epsilon("copies")
    (3.0, 1.0, None)
    """
    name, settings = parse(spec, "generator")
    if name != "private" or "model" in settings or settings.get("seeded_noise", False) is not False:
        return None
    return float(str(settings.get("epsilon", 1.0)))


# Runs on disk

INDEX = "sweep.json"
_FORMAT = "sweep/1"


def write_index(root: Path, name: str, title: str, entries: Sequence[SweepEntry]) -> None:
    """Write the index of a folder of runs, so that it can be read without the sweep's file."""
    root.mkdir(parents=True, exist_ok=True)
    runs = msgspec.to_builtins(entries)
    write_json(root / INDEX, {"format": _FORMAT, "name": name, "title": title, "runs": runs})


def read_index(root: Path) -> list[SweepEntry]:
    """Read what `write_index` wrote."""
    try:
        content = read_json(root / INDEX)
        if content["format"] != _FORMAT:
            raise ValueError("another format")
        return msgspec.convert(content["runs"], list[SweepEntry])
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{root} is not the folder of a sweep: {error}",
            fix="run `fedeas sweep` with this folder again",
        ) from None


def read_runs(root: Path, entries: Sequence[SweepEntry]) -> tuple[list[FinishedRun], list[str]]:
    """Return the finished runs, and a line for every other one: unfinished, or damaged."""
    runs, missing = [], []
    for entry in entries:
        path = root / entry.folder / "result.json"
        try:
            result = read_result(path)
            if not entry.folder.endswith(f"-{settings_hash(result['settings'])}"):
                raise InputError(
                    f"{entry.folder} holds the result of another run", fix="remove the folder"
                )
        except InputError as error:
            reason = f"{error}" if path.exists() else f"{entry.folder} is not finished"
            if reason not in missing:
                missing.append(reason)
            continue
        runs.append(FinishedRun(entry, result, path.parent))
    return runs, missing


def export(path: Path, runs: Sequence[FinishedRun]) -> None:
    """Write finished runs into one file of JSON lines, each with its checksum."""
    lines = [
        sealed({"entry": msgspec.to_builtins(run.entry), "result": run.result}) for run in runs
    ]
    with atomic_write(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def read_export(path: Path) -> list[FinishedRun]:
    """Read what `export` wrote; refuse a modified file."""
    runs = []
    for number, line in enumerate(read_text(path).splitlines(keepends=True), start=1):
        name = f"line {number} of {path}"
        body = unsealed(line, name)
        try:
            entry, result = msgspec.convert(body["entry"], SweepEntry), body["result"]
        except (KeyError, TypeError, msgspec.ValidationError):
            raise InputError(f"{name} is not a run", allowed="lines of `sweep --export`") from None
        runs.append(FinishedRun(entry, check_result(result, name)))
    return runs


def find_runs(path: Path) -> tuple[str, list[FinishedRun], list[str]]:
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
            reason = error if (folder / "result.json").exists() else f"{folder} is not finished"
            missing.append(str(reason))
    if not results:
        raise InputError(
            f"{path} holds no finished runs",
            allowed="a folder of `fedeas run` or `fedeas sweep`, or a file of `sweep --export`",
        )
    keys = _varied_settings([result for _, result in results])
    runs = []
    for folder, result in results:
        flat = flat_settings(result["settings"])
        varied = tuple((key, flat.get(key)) for key in keys)
        method, policy, seed = result["method"], result["policy"], result["seed"]
        entry = SweepEntry(path.name, "", None, "", method, policy, varied, seed, folder.name)
        runs.append(FinishedRun(entry, result, folder))
    return path.name, runs, missing


_ALWAYS_SHOWN = ("seed", "federated.method", "augment.policy", "augment.generator", "augment.batch")


def _varied_settings(results: Sequence[Result]) -> list[str]:
    """Return the settings in which runs differ, apart from those that a table shows anyway."""
    settings = [flat_settings(result["settings"]) for result in results]
    keys = dict.fromkeys(key for flat in settings for key in flat)
    return [
        key
        for key in keys
        if key not in _ALWAYS_SHOWN and len({str(flat.get(key)) for flat in settings}) > 1
    ]


def flat_settings(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested settings by dotted names.

    >>> flat_settings({"seed": 1, "data": {"name": "cifar10"}})
    {'seed': 1, 'data.name': 'cifar10'}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat
