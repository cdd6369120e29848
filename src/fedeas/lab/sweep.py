"""Many configs from one file: a base, and grids of what varies; matched budgets between them.

A sweep is a TOML file. `[base]` is a config as `fedeas run` takes it. Every `[[grid]]` names
settings of it; a list stands for one run per value, and lists combine. `match` names the policy
whose realised total those policies get that take a total and are not given one: on the same counts
all of a grid's policies then spend the same. A list of `match` is one more list to combine, and
the policy 'match' stands for the matched one itself, as does `augment.steps_as = "match"`. Grids of
one name are shown as one.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from fedeas._internal.files import read_toml
from fedeas._internal.settings import Name, Settings, read_settings
from fedeas._internal.specs import parse
from fedeas.counts.label_counts import LabelCounts
from fedeas.errors import InputError
from fedeas.lab.config import Config, Data, PartitionConfig
from fedeas.lab.resolve import local_steps, partition_data, plan_config
from fedeas.lab.results import SweepEntry, flat_settings, settings_hash
from fedeas.partition import site_column
from fedeas.planning.policies import make_plan, make_policy
from fedeas.train.loop import find_optimizer
from fedeas.train.simulate import draw_cohort

Ints = NDArray[np.int64]
_MATCH = "match"
_OF_GRID = ("name", "title", _MATCH, "threshold")


class GridConfig(Settings, frozen=True):
    """One block of a sweep: what is fixed, and what varies."""

    name: Name
    title: str = ""
    match: tuple[str, ...] = ()  # policies whose total the others get; empty: nothing is matched
    # Accuracy that counts as arrived.
    threshold: Annotated[float, Meta(gt=0, lt=1)] | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # dotted names; a list varies


class SweepConfig(Settings, frozen=True, kw_only=True):
    """A base config and its grids."""

    name: Name  # a folder of runs is called by it
    title: str = ""
    base: dict[str, Any]
    grids: tuple[GridConfig, ...] = field(name="grid")


@dataclass(frozen=True)
class RunSpec:
    """A run of a sweep, before its matched total is known."""

    grid: GridConfig
    config: Config
    match: str  # empty where nothing is matched
    varied: tuple[tuple[str, Any], ...]  # the settings that vary in its grid, without the policy


@dataclass(frozen=True)
class Cell:
    """A run of a sweep, with all that it takes to run it."""

    spec: RunSpec
    config: Config  # every total written out
    name: str  # of its folder
    generated: int
    passes: int  # images that go through training, counted every time

    @property
    def entry(self) -> SweepEntry:
        """The run's place in the sweep."""
        spec = self.spec
        grid, varied = spec.grid, spec.varied
        seed, method = spec.config.seed, spec.config.federated.method
        policy = spec.config.augment.policy
        match = spec.match if policy != self.config.augment.policy else ""
        return SweepEntry(
            grid.name, grid.title, grid.threshold, match, method, policy, varied, seed, self.name
        )


def read_sweep(path: Path) -> SweepConfig:
    """Read a sweep; a wrong key is an error that names the nearest right one."""
    content = read_toml(path)
    if "grid" not in content or "base" not in content:
        raise InputError(
            f"{path} is not a sweep", allowed="a table [base] and at least one [[grid]]",
            fix="a single config is for `fedeas run`",
        )  # fmt: skip
    grids = content["grid"]
    if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
        raise InputError(f"{path}: grid is not a list of tables", fix="write [[grid]]")
    default = {"name": re.sub(r"[^\w-]", "-", path.stem)}
    read = [_grid(grid, f"{path}: grid {n}") for n, grid in enumerate(grids, start=1)]
    sweep = read_settings(SweepConfig, {**default, **content, "grid": read}, str(path))
    for _ in run_specs(sweep):  # every config is made once: what is wrong is wrong now
        pass
    return sweep


def _grid(content: Mapping[str, Any], where: str) -> GridConfig:
    """Read a grid: what is not about the grid itself is a setting of its runs."""
    about = {key: value for key, value in content.items() if key in _OF_GRID}
    if isinstance(about.get(_MATCH), str):
        about[_MATCH] = [about[_MATCH]]
    settings = {key: value for key, value in content.items() if key not in about}
    return read_settings(GridConfig, {**about, "settings": flat_settings(settings)}, where)


def run_specs(sweep: SweepConfig) -> Iterator[RunSpec]:
    """Yield the runs of all grids, in the order of the file; the last list varies fastest."""
    for grid in sweep.grids:
        lists = {k: v for k, v in grid.settings.items() if isinstance(v, list)}
        fixed = {k: v for k, v in grid.settings.items() if k not in lists}
        for empty in (k for k, v in lists.items() if not v):
            raise InputError(f"grid {grid.name}: {empty} is an empty list")
        for match in grid.match or ("",):
            for values in itertools.product(*lists.values()):
                chosen = dict(zip(lists, values, strict=True))
                config = _config(sweep, fixed | chosen, f"grid {grid.name}")
                for key in ("policy", "steps_as"):
                    if getattr(config.augment, key) == _MATCH:
                        config = _with_augment(config, **{key: _required(match, grid)})
                varied = tuple((k, v) for k, v in chosen.items() if k != "augment.policy")
                yield RunSpec(grid, config, match, varied)


def _config(sweep: SweepConfig, changed: Mapping[str, Any], where: str) -> Config:
    content = deepcopy(sweep.base)
    for dotted, value in changed.items():
        *above, last = dotted.split(".")
        table = content
        for key in above:
            if not isinstance(table.setdefault(key, {}), dict):
                raise InputError(f"{where}: {key} is not a table", got=table[key])
            table = table[key]
        table[last] = value
    config = read_settings(Config, content, where)
    find_optimizer(config.federated.local)
    return config


def _required(match: str, grid: GridConfig) -> str:
    if not match:
        raise InputError(f"grid {grid.name}: nothing to match", fix="set `match`")
    return match


def _with_augment(config: Config, **changed: str) -> Config:
    return config.replace(augment=config.augment.replace(**changed))


def make_cells(
    specs: Sequence[RunSpec], progress: Callable[[int, int], None] | None = None
) -> list[Cell]:
    """Partition the data of every run and give matched policies their totals.

    Runs that are the same in two grids are one run: they have one folder.
    """
    counts_of: dict[tuple[Data, PartitionConfig, int], LabelCounts] = {}
    cells: dict[tuple[str, str], Cell] = {}
    for done, spec in enumerate(specs, start=1):
        key = (spec.config.data, spec.config.partition, spec.config.seed)
        if key not in counts_of:
            counts_of[key] = partition_data(spec.config).counts
        counts = counts_of[key]
        total = make_plan(make_policy(spec.match), counts).total if spec.match else None
        policy = with_total(spec.config.augment.policy, total, spec.config.seed)
        config = _with_augment(spec.config, policy=policy)
        plan = plan_config(config, counts)
        passes = _passes(
            config, counts.sizes + plan.per_client, np.array(local_steps(config, counts), np.int64)
        )
        name = folder_name(config)
        cells.setdefault((spec.grid.name, name), Cell(spec, config, name, plan.total, passes))
        if progress is not None:
            progress(done, len(specs))
    return list(cells.values())


def unique(cells: Sequence[Cell]) -> list[Cell]:
    """Return every run once, in order: one may stand in several grids."""
    by_name: dict[str, Cell] = {}
    for cell in cells:
        by_name.setdefault(cell.name, cell)
    return list(by_name.values())


def _passes(config: Config, samples: Ints, steps: Ints) -> int:
    """Return the images that all rounds train on together; the cohorts are known beforehand."""
    federated, local = config.federated, config.federated.local
    cohorts = (
        draw_cohort(config.seed, number, len(samples), federated.fraction)
        for number in range(1, federated.rounds + 1)
    )
    if steps.size:
        return local.batch * sum(int(steps[cohort].sum()) for cohort in cohorts)
    if local.steps:
        return local.steps * local.batch * sum(len(cohort) for cohort in cohorts)
    return local.epochs * sum(int(samples[cohort].sum()) for cohort in cohorts)


def with_total(policy: str, total: int | None, seed: int = 0) -> str:
    """Write a matched total into a policy that takes one and names none, and so the run's seed.

    >>> with_total("uniform", 100), with_total("fedeas(beta=8)", 100), with_total("none", None)
    ('uniform(total=100)', 'fedeas(beta=8)', 'none')
    """
    name, settings = parse(policy, "policy")
    matched = make_policy(policy, **({} if total is None else {"total": total}))
    takes = getattr(matched, "__dataclass_fields__", {})
    added: dict[str, object] = {}
    if total is not None and "total" in takes and "total" not in settings:
        added["total"] = total
    if "seed" in takes and "seed" not in settings:
        added["seed"] = seed
    if not added:
        return policy
    inner = ", ".join(f"{key}={value}" for key, value in {**settings, **added}.items())
    return f"{name}({inner})"


def folder_name(config: Config) -> str:
    """Name the folder of a run: readable, and different for different runs."""
    partition = config.partition
    clients = f"k{partition.clients}-a{partition.alpha}"
    if site_column(partition.recipe):  # the sites are as many as they are
        clients = partition.recipe
    words = [
        config.data.name, config.data.split, clients,
        config.federated.method, config.augment.policy, f"s{config.seed}",
    ]  # fmt: skip
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)).strip("-")
    return f"{readable[:100]}-{settings_hash(config.identity())}"
