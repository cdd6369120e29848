"""A run's settings: TOML into frozen dataclasses, with strict keys."""

import difflib
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedeas.errors import InputError
from fedeas.files import read_toml
from fedeas.flower.rounds import Federated

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Data:
    """Which images, and who is tested on what."""

    name: str  # below FEDEAS_DATA, in `folder`, or of the Hugging Face hub
    folder: str | None = None  # of the data's Parquet files
    protocol: str = "clean"  # official split; 'paper' merges and tests on clients' parts
    hold_out: int = 0  # images of every class that no client gets, for the pool


@dataclass(frozen=True)
class PartitionConfig:
    """How clients share the data."""

    recipe: str = "flbench"  # or dirichlet, iid, shards
    clients: int = 20
    alpha: float | None = 0.1  # of the Dirichlet distribution: small is skewed
    min_samples: int | None = None  # that every client gets at least
    shards_per_client: int | None = None  # of the recipe shards


@dataclass(frozen=True)
class Augment:
    """What is generated, and by what."""

    policy: str = "none"  # or fedeas(beta=12), uniform(total=...), waterfill(total=...), ...
    generator: str = ""  # pool, diffusion(model=...), turbo(model=...), package.module:Name
    cache: str = "cache"  # folder of generated images
    seed: int = 0  # added to the run's: another one gives other samples
    batch: int = 64  # images generated at a time


@dataclass(frozen=True)
class Config:
    """All that a run depends on; `grid` and `device` only say where it happens."""

    data: Data
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    augment: Augment = field(default_factory=Augment)
    federated: Federated = field(default_factory=Federated)
    seed: int = 42  # of partition, held-out images, weights, cohorts and shuffling
    grid: str = "inline"  # or ray
    device: str = "auto"  # cpu, cuda, ...

    def settings(self) -> dict[str, Any]:
        """Return what makes a run this run; where and how fast it happens is left out."""
        held = asdict(self)
        for place in ("grid", "device"):
            held.pop(place)
        for place in ("window", "timeout"):
            held["federated"].pop(place)
        held["data"].pop("folder")
        held["augment"].pop("cache")
        return held

    def identity(self, data: str, generator: str, weights: str, code: str) -> str:
        """Name what the outcome depends on: settings, the contents behind names and paths, code."""
        held = self.settings() | {"code": code}
        held["data"]["name"] = data
        held["augment"]["generator"] = generator
        held["federated"]["model"]["weights"] = weights
        return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def read_config(path: Path | str) -> Config:
    """Read a TOML file; a wrong key is an error that names the nearest right one."""
    return build(Config, read_toml(Path(path)), str(path))


def build(kind: type[Settings], content: object, where: str) -> Settings:
    """Make a settings object from plain values, checking keys and kinds."""
    if not isinstance(content, Mapping):
        raise InputError(f"{where} is not a table", got=content)
    hints = typing.get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for key in content:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            raise InputError(
                f"{where} has no setting {key!r}",
                allowed=", ".join(known),
                fix=f"did you mean {close[0]!r}?" if close else None,
            )
    values = {key: _value(hints[key], value, f"{where}: {key}") for key, value in content.items()}
    needed = [
        name
        for name, f in known.items()
        if name not in values and f.default is f.default_factory  # both are "missing"
    ]
    if needed:
        raise InputError(f"{where} lacks {needed[0]!r}", allowed=", ".join(known))
    return kind(**values)


def _value(hint: Any, value: object, where: str) -> Any:
    if is_dataclass(hint):
        return build(typing.cast(type[Any], hint), value, where)
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) in allowed:
        return value
    names = " or ".join(kind.__name__ for kind in allowed if kind is not type(None))
    raise InputError(f"{where} is of a wrong kind", got=value, allowed=names)
