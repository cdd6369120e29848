"""SD-turbo's real loading code, on a tiny pipeline of the same classes made on disk."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedeas import InputError
from fedeas.generators import Generator, open_generator
from fedeas.lab.config import Config
from fedeas.lab.resolve import generator_settings, table_options
from fedeas.lab.results import read_result
from fedeas.lab.runner import FINISHED, run_cells
from fedeas.lab.sweep import make_cells, read_sweep, run_specs
from fedeas.train.diffusion.turbo import Turbo, reduce_images
from helpers.small_federations import write_shapes

ROOT = Path(__file__).parents[2]
CLASSES = ("air_plane", "cat")


def test_images_follow_from_prompt_and_seed(pipeline):
    made = Turbo(pipeline, CLASSES, (5, 5, 3), device="cpu")
    assert isinstance(made, Generator)
    labels, seeds = np.array([0, 1, 0]), np.array([3, 3, 2**64 - 1], np.uint64)
    together = made.sample(labels, seeds)
    assert (together.shape, together.dtype) == ((3, 5, 5, 3), np.uint8)
    assert len({image.tobytes() for image in together}) == 3
    alone = made.sample(labels[2:], seeds[2:])[0]
    assert np.abs(alone.astype(int) - together[2].astype(int)).max() <= 1


def test_what_images_depend_on_is_in_the_fingerprint(pipeline):
    settings = [{}, {"prompt": "a drawing of a {}"}, {"steps": 2}]
    made = [Turbo(pipeline, CLASSES, (5, 5, 3), device="cpu", **s) for s in settings]
    made.append(Turbo(pipeline, ("bird", "cat"), (5, 5, 3), device="cpu"))
    made.append(Turbo(pipeline, CLASSES, (6, 6, 3), device="cpu"))
    assert len({one.fingerprint for one in made}) == len(made)
    assert "photo of a air plane" in made[0]._prompts[0]


def test_reduction_is_anti_aliased_and_grey_where_the_data_are():
    stripes = torch.zeros(1, 3, 64, 64)
    stripes[..., ::2] = 1.0
    small = reduce_images(stripes, (8, 8, 3))
    # Without anti-aliasing every eighth column would be hit: all white or all black.
    assert abs(int(small[0, 4, 4, 0]) - 128) <= 2
    red = torch.zeros(1, 3, 16, 16)
    red[:, 0] = 1.0
    assert reduce_images(red, (4, 4, 1)).ravel().tolist() == [76] * 16


def test_bad_settings_are_named(pipeline, tmp_path):
    for settings, message in (
        ({"prompt": "a photo"}, "not a prompt"),
        ({"steps": 0}, "not a number of steps"),
        ({"device": "cuda"}, "cannot use the device"),
    ):
        with pytest.raises(InputError, match=message):
            Turbo(pipeline, CLASSES, (5, 5, 3), **settings)
    with pytest.raises(InputError, match="no model"):
        Turbo("nobody/nothing-of-this-name", CLASSES, (5, 5, 3))
    (tmp_path / "model_index.json").write_text('{"unet": ["os", "system"]}')
    with pytest.raises(InputError, match="foreign library"):
        Turbo(tmp_path, CLASSES, (5, 5, 3))


def turbo_runs() -> list[Config]:
    """The runs of the paper's grid with SD-turbo."""
    sweep = read_sweep(ROOT / "reproduction" / "configs" / "paper" / "cifar10.toml")
    return [run.config for run in run_specs(sweep) if run.grid.name == "turbo"]


def test_the_papers_grid_names_a_model_that_opens(pipeline, tmp_path, monkeypatch):
    """With the hub's name, of which a small pipeline takes the place here."""
    write_shapes(tmp_path / "set")
    asked = []
    monkeypatch.setattr(
        "fedeas.train.diffusion.turbo.fetch_from_hub",
        lambda name, *_: asked.append(name) or pipeline,
    )
    configs = turbo_runs()
    assert {config.augment.policy for config in configs} == {"fedeas(beta=12)", "uniform"}
    for config in configs:
        data = config.data.replace(name="shapes", folder=str(tmp_path / "set"))
        config = config.replace(data=data, device="cpu")  # noqa: PLW2901
        offered = generator_settings(config, table_options(config))
        made = open_generator(config.augment.generator, offered)
        assert made.sample(np.array([0, 2]), np.array([1, 2], np.uint64)).shape == (2, 8, 8, 1)
    assert set(asked) == {"stabilityai/sd-turbo"}


@pytest.mark.slow
def test_a_sweep_with_turbo_starts_in_its_workers(pipeline, tmp_path):
    write_shapes(tmp_path / "set")
    spec = turbo_runs()[0].augment.generator.replace("stabilityai/sd-turbo", str(pipeline))
    path = tmp_path / "turbo.toml"
    path.write_text(f"""
[base]
device = "cpu"
[base.data]
name = "shapes"
folder = "{tmp_path / "set"}"
[base.partition]
recipe = "dirichlet"
clients = 3
alpha = 0.1
[base.augment]
cache = "{tmp_path / "cache"}"
[base.federated]
rounds = 1
[[grid]]
name = "turbo"
augment.generator = "{spec}"
augment.batch = 16
augment.policy = ["fedeas(beta=3)"]
""")
    (run,) = run_cells(make_cells(list(run_specs(read_sweep(path)))), tmp_path / "runs", jobs=1)
    assert run.state == FINISHED, run.wrong
    result = read_result(tmp_path / "runs" / run.cell.name / "result.json")
    assert result["generated"] > 0
    assert result["generation"]["made"] == result["generated"]
    assert result["generator_hash"].startswith("turbo-")
