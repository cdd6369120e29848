"""The sweeps that come along: what makes their comparisons fair, and the paper's settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedeas import InputError
from fedeas._internal.settings import read_settings
from fedeas._internal.specs import parse
from fedeas.lab.config import Config
from fedeas.lab.resolve import partition_data
from fedeas.lab.sweep import RunSpec, read_sweep, run_specs
from helpers.checkout import load_tool, sweep_files

CONFIGS = Path(__file__).parents[2] / "reproduction" / "configs"
PAPER = [CONFIGS / "paper" / name for name in ("cifar10.toml", "cifar100.toml")]


def runs(path: Path, grid: str = "") -> list[RunSpec]:
    return [run for run in run_specs(read_sweep(path)) if grid in ("", run.grid.name)]


@pytest.mark.parametrize("path", sweep_files(), ids=lambda p: p.stem)
def test_all_rows_beside_moon_have_its_architecture(path):
    found = runs(path)
    for grid in {r.grid.name for r in found if r.config.federated.method.startswith("moon")}:
        models = {r.config.federated.model for r in found if r.grid.name == grid}
        assert len(models) == 1, grid


def test_moon_has_its_head_on_cpus_and_fl_benchs_features_in_the_papers_sweeps():
    methods = runs(CONFIGS / "cpu" / "cifar10.toml", "methods")
    assert {r.config.federated.model.projection for r in methods} == {256}
    assert len({r.config.federated.method.split("(")[0] for r in methods}) == 6
    for path in PAPER:
        assert {r.config.federated.model.projection for r in runs(path)} == {0}


@pytest.mark.parametrize("path", PAPER, ids=lambda p: p.stem)
def test_the_papers_sweeps_suit_a_gpu_and_its_methods(path):
    for run in runs(path):
        name, settings = parse(run.config.augment.generator)
        assert settings["precision"] == "bfloat16"
        assert settings["model"]
        assert run.config.augment.batch == (16 if name == "turbo" else 512)
        # The command that trains the model puts it into a folder `model`.
        assert name == "turbo" or settings["model"] == f"generators/{path.stem}/model"
        method, given = parse(run.config.federated.method)
        assert method != "fedmix" or given["mash"] == 0
        assert method != "fedgen" or given["steps"] == 10
        if path.stem == "cifar10" and run.grid.name.startswith("table-1"):
            assert run.grid.threshold == 0.7


@pytest.mark.parametrize("path", PAPER, ids=lambda p: p.stem)
def test_every_cell_of_the_papers_sweeps_has_its_seed_and_others(path):
    """One seed settles nothing; the paper's partition is always among them."""
    seeds: dict[object, set[int]] = {}
    for run in runs(path):
        cut, federated = run.config.partition, run.config.federated
        key = (run.grid.name, run.match, run.config.data.split, cut.clients, cut.alpha,
               federated.method, run.config.augment.policy)  # fmt: skip
        seeds.setdefault(key, set()).add(run.config.seed)
    assert all(42 in found and len(found) >= 2 for found in seeds.values())
    by_column: dict[object, set[frozenset[int]]] = {}
    for (grid, _, *column, _, _), found in seeds.items():
        by_column.setdefault((grid, *column), set()).add(frozenset(found))
    assert all(len(found) == 1 for found in by_column.values())  # a column's rows share seeds


def test_what_costs_nothing_is_compared_on_the_federation_of_the_policies():
    """FedAvg without samples, Uniform, FedEAS and water-filling are the very runs that it has."""
    ours = runs(CONFIGS / "cpu" / "free.toml")
    found = {(r.config.augment.generator, r.config.federated.method, r.config.augment.policy)
             for r in ours}  # fmt: skip
    asked = "fedeas(beta=8)"
    assert found == {
        *(("pool", "fedavg", policy) for policy in ("none", "uniform", asked, "waterfill")),
        *(("pool", method, "none") for method in ("class-weights", "fedlc")),
        ("pool", "class-weights", asked),
        ("copies", "fedavg", "copies"), ("copies", "fedavg", asked), ("noise", "fedavg", asked),
    }  # fmt: skip
    policies = [r.config for r in runs(CONFIGS / "cpu" / "cifar10.toml", "policies")]
    assert all(r.config in policies for r in ours[:4])


def test_the_ablation_runs_on_cpus_with_scaled_constants():
    """What goes with sqrt(N_k) by sqrt(20,000 / 45,007), what goes with N_k not at all."""
    ours = runs(CONFIGS / "cpu" / "cifar10.toml", "ablation")
    assert {r.config.seed for r in ours} == {42, 43, 44}
    scale = (20_000 / 45_007) ** 0.5
    given = [parse(r.config.augment.policy)[1] for r in ours if r.config.seed == 42]
    paper = [
        parse(r.config.augment.policy)[1]
        for r in runs(PAPER[0], "ablation")
        if r.config.seed == 42 and r.config.data.split == "merged"
    ]
    for own, other in zip(given, paper, strict=True):
        assert own.keys() == other.keys()
        linear = "size_exponent" in own
        assert own["beta"] == pytest.approx(other["beta"] * (1 if linear else scale), abs=0.05)


@pytest.mark.slow
def test_the_hours_of_the_gpu_page_are_computed():
    """The fit gives back the two runs that the paper times; the page's table is what it gives."""
    hours = load_tool("gpu_hours")
    fixed, image = hours.fit()
    for generated, minutes in ((13_437, 187), (226_783, 696)):
        passes = 200 * 10 * 0.5 * (45_007 + generated)
        seconds = fixed + image * passes + generated * hours.DIFFUSION
        assert seconds == pytest.approx(60 * minutes)
    assert hours.main(check=True) == 0


def test_an_image_is_generated_once_whatever_takes_part():
    """Participation and rounds change training alone; policies share a client's images."""
    hours = load_tool("gpu_hours")
    column = [
        r for r in runs(PAPER[0], "table-1-k20")
        if r.config.seed == 42
        and r.config.data.split == "merged" and r.config.partition.alpha == 0.1
    ]  # fmt: skip
    plain = hours.cost(column)
    assert plain.images < 226_783 + 13_437  # Full-Balance's, and a few that it has not
    assert plain.images >= 226_783
    fewer = [_with(r, fraction=0.1) for r in column]
    assert hours.cost(fewer).images == plain.images
    assert hours.cost(fewer).generation == plain.generation
    assert hours.cost(fewer).training < plain.training


def _with(run: RunSpec, **changed: float) -> RunSpec:
    federated = run.config.federated.replace(**changed)
    return replace(run, config=run.config.replace(federated=federated))


@pytest.mark.parametrize(
    "recipe", [{"recipe": "iid"}, {"recipe": "shards", "shards_per_client": 2}]
)
def test_a_config_may_name_a_recipe_without_alpha(recipe):
    content = {"data": {"name": "tables/letter"}, "partition": recipe | {"clients": 5}}
    assert partition_data(read_settings(Config, content)).counts.K == 5
    content["partition"]["alpha"] = 0.5
    with pytest.raises(InputError, match="alpha"):
        partition_data(read_settings(Config, content))
