"""Many configs from one file: a base, and grids of what varies; matched budgets between them.

A sweep is a TOML file. `[base]` is a config as `fedeas run` takes it. Every `[[grid]]` names
settings of it; a list stands for one run per value, and lists combine. `match` names the policy
whose realised total those policies get that take a total and are not given one: on the same counts
all of a grid's policies then spend the same. A list of `match` is one more list to combine, and
the policy 'match' stands for the matched one itself. Grids of one name are shown as one.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import LabelCounts
from fedeas.errors import InputError
from fedeas.experiments.planning import plan_run
from fedeas.experiments.results import known_by
from fedeas.experiments.runs import Entry, flat_settings
from fedeas.experiments.sharing import share_out
from fedeas.files import read_toml
from fedeas.flower.rounds import draw_cohort
from fedeas.partition import site_column
from fedeas.policies import make_plan, make_policy
from fedeas.settings.config import Config, Data, PartitionConfig
from fedeas.settings.reading import read_settings
from fedeas.settings.sweep import Grid, Sweep
from fedeas.settings.training import Federated
from fedeas.specs import parse
from fedeas.training.optimizers import find_optimizer

Ints = NDArray[np.int64]
_MATCH = "match"
_OF_GRID = ("name", "title", _MATCH, "threshold")


@dataclass(frozen=True)
class Planned:
    """A run of a sweep, before its matched total is known."""

    grid: Grid
    config: Config
    match: str  # empty where nothing is matched
    varied: tuple[tuple[str, Any], ...]  # the settings that vary in its grid, without the policy


@dataclass(frozen=True)
class Cell:
    """A run of a sweep, with all that it takes to run it."""

    planned: Planned
    config: Config  # every total written out
    name: str  # of its folder
    generated: int
    passes: int  # images that go through training, counted every time

    @property
    def entry(self) -> Entry:
        """The run's place in the sweep."""
        planned = self.planned
        grid, varied = planned.grid, planned.varied
        seed, method = planned.config.seed, planned.config.federated.method
        policy = planned.config.augment.policy
        match = planned.match if policy != self.config.augment.policy else ""
        return Entry(
            grid.name, grid.title, grid.threshold, match, method, policy, varied, seed, self.name
        )


def read_sweep(path: Path) -> Sweep:
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
    named = {"name": re.sub(r"[^\w-]", "-", path.stem), **content}
    made = [_grid(grid, f"{path}: grid {n}") for n, grid in enumerate(grids, start=1)]
    sweep = read_settings(Sweep, {**named, "grid": made}, str(path))
    for _ in plan_runs(sweep):  # every config is made once: what is wrong is wrong now
        pass
    return sweep


def _grid(content: Mapping[str, Any], where: str) -> Grid:
    """Read a grid: what is not about the grid itself is a setting of its runs."""
    own = {key: value for key, value in content.items() if key in _OF_GRID}
    if isinstance(own.get(_MATCH), str):
        own[_MATCH] = [own[_MATCH]]
    rest = {key: value for key, value in content.items() if key not in own}
    return read_settings(Grid, {**own, "settings": flat_settings(rest)}, where)


def plan_runs(sweep: Sweep) -> Iterator[Planned]:
    """Yield the runs of all grids, in the order of the file; the last list varies fastest."""
    for grid in sweep.grids:
        lists = {k: v for k, v in grid.settings.items() if isinstance(v, list)}
        fixed = {k: v for k, v in grid.settings.items() if k not in lists}
        for empty in (k for k, v in lists.items() if not v):
            raise InputError(f"grid {grid.name}: {empty} is an empty list")
        for match in grid.match or ("",):
            for values in itertools.product(*lists.values()):
                own = dict(zip(lists, values, strict=True))
                config = _config(sweep, fixed | own, f"grid {grid.name}")
                if config.augment.policy == _MATCH:
                    if not match:
                        raise InputError(f"grid {grid.name}: nothing to match", fix="set `match`")
                    config = _with_policy(config, match)
                varied = tuple((k, v) for k, v in own.items() if k != "augment.policy")
                yield Planned(grid, config, match, varied)


def _config(sweep: Sweep, changed: Mapping[str, Any], where: str) -> Config:
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


def _with_policy(config: Config, policy: str) -> Config:
    return config.replace(augment=config.augment.replace(policy=policy))


def fill_in(
    planned: Sequence[Planned], progress: Callable[[int, int], None] | None = None
) -> list[Cell]:
    """Share out the data of every run and give matched policies their totals.

    Runs that are the same in two grids are one run: they have one folder.
    """
    shared = _Shared()
    cells: dict[tuple[str, str], Cell] = {}
    for done, run in enumerate(planned, start=1):
        counts = shared.counts(run.config)
        total = make_plan(make_policy(run.match), counts).total if run.match else None
        spec = with_total(run.config.augment.policy, total)
        config = _with_policy(run.config, spec)
        plan = plan_run(config, counts)
        passes = _passes(config.federated, config.seed, counts.sizes + plan.per_client)
        name = folder_name(config)
        cells.setdefault((run.grid.name, name), Cell(run, config, name, plan.total, passes))
        if progress is not None:
            progress(done, len(planned))
    return list(cells.values())


def unique(cells: Sequence[Cell]) -> list[Cell]:
    """Return every run once, in order: one may stand in several grids."""
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(cell.name, cell)
    return list(found.values())


def _passes(federated: Federated, seed: int, samples: Ints) -> int:
    """Return the images that all rounds train on together; the cohorts are known beforehand."""
    cohorts = (
        draw_cohort(seed, number, len(samples), federated.fraction)
        for number in range(1, federated.rounds + 1)
    )
    return federated.local.epochs * sum(int(samples[cohort].sum()) for cohort in cohorts)


class _Shared:
    """The counts of federations, each shared out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Data, PartitionConfig, int], LabelCounts] = {}

    def counts(self, config: Config) -> LabelCounts:
        key = (config.data, config.partition, config.seed)
        if key not in self._known:
            self._known[key] = share_out(config).counts
        return self._known[key]


def with_total(policy: str, total: int | None) -> str:
    """Write a matched total into a policy that takes one and names none.

    >>> with_total("uniform", 100), with_total("fedeas(beta=8)", 100), with_total("none", None)
    ('uniform(total=100)', 'fedeas(beta=8)', 'none')
    """
    name, settings = parse(policy, "policy")
    made = make_policy(policy, **({} if total is None else {"total": total}))
    takes = "total" in getattr(made, "__dataclass_fields__", {})
    if total is None or not takes or settings.keys() & {"total", "price"}:
        return policy
    inner = ", ".join([*(f"{k}={v}" for k, v in settings.items()), f"total={total}"])
    return f"{name}({inner})"


def folder_name(config: Config) -> str:
    """Name the folder of a run: readable, and different for different runs."""
    cut = config.partition
    shared = f"k{cut.clients}-a{cut.alpha}"
    if site_column(cut.recipe):  # the sites are as many as they are
        shared = cut.recipe
    words = [
        config.data.name, config.data.protocol, shared,
        config.federated.method, config.augment.policy, f"s{config.seed}",
    ]  # fmt: skip
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)).strip("-")
    return f"{readable[:100]}-{known_by(config.identity())}"
