"""What concerns GPUs, on a machine without one: masks, shares, timing, repeatable arithmetic."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedeas.lab import estimate, runner
from fedeas.lab import experiment as run
from fedeas.lab.config import Config, Data
from fedeas.train.loop import LocalObjective, fit, repeatable
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings
from helpers.image_sets import shapes

CONFIG = Config(Data("cifar10"), device="cuda")


def places(monkeypatch, mask: str | None, count: int, jobs: int | None = None) -> list[str]:
    """The GPU of every place of a sweep, with a mask and so many GPUs visible through it."""
    if mask is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    cell = SimpleNamespace(config=CONFIG.replace(device="auto"))
    made = runner._environments([runner.RunProgress(cell)], jobs)
    return [place.get("CUDA_VISIBLE_DEVICES", "-") for place in made.values()]


@pytest.mark.parametrize(
    ("mask", "count", "expected"),
    [
        (None, 2, ["0", "1"]),
        ("2,3", 2, ["2", "3"]),
        (" 2 , 3 ", 2, ["2", "3"]),
        ("5", 1, ["5"]),
        ("2,3,-1,1", 2, ["2", "3"]),  # CUDA stops at the first name that it does not know
        ("GPU-8932f937,GPU-d1ea5ec4", 2, ["GPU-8932f937", "GPU-d1ea5ec4"]),
        ("MIG-GPU-8932f937/1/0", 1, ["MIG-GPU-8932f937/1/0"]),
    ],
)
def test_a_sweep_uses_only_the_gpus_that_it_was_given(monkeypatch, mask, count, expected):
    assert places(monkeypatch, mask, count) == expected


def test_more_runs_than_gpus_share_them_and_one_run_takes_the_first(monkeypatch):
    assert places(monkeypatch, "2,3", 2, jobs=3) == ["2", "3", "2"]
    assert places(monkeypatch, "2,3", 2, jobs=1) == ["2"]


@pytest.mark.parametrize("mask", ["", "-1"])
def test_a_mask_that_hides_all_gpus_leaves_the_cores(monkeypatch, mask):
    assert places(monkeypatch, mask, 0, jobs=2) == ["-", "-"]


@pytest.mark.parametrize(
    ("cores", "gpus", "share"), [(2, 1, 0.5), (32, 1, 0.25), (32, 8, 0.25), (2, 4, 1.0), (1, 1, 1)]
)
def test_clients_on_ray_do_not_fill_a_gpu_with_contexts(monkeypatch, cores, gpus, share):
    monkeypatch.setattr(run, "usable_cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert run._gpus(CONFIG) == share
    assert run._gpus(CONFIG.replace(device="cpu")) == 0.0


def test_an_estimate_waits_for_the_gpu(monkeypatch, tmp_path):
    """`fit` returns while a GPU still computes: here it needs a second of a clock that stands."""
    clock = [0.0]
    monkeypatch.setattr(estimate.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(estimate, "open_data", lambda *_: shapes(tmp_path / "set"))
    monkeypatch.setattr(estimate, "_wait_for", lambda _: clock.__setitem__(0, clock[0] + 1.0))
    config = CONFIG.replace(device="cpu")
    local = config.federated.local.replace(batch=4)
    config = config.replace(federated=config.federated.replace(local=local))
    assert estimate._time_training(config) == pytest.approx(1.0 / 32)  # of 8 steps of 4 images
    waited = []
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    for device in ("cpu", "cuda:1"):
        estimate._wait_for(torch.device(device))
    assert waited == [torch.device("cuda:1")]


def test_cudnn_is_repeatable_where_training_runs_on_a_gpu(monkeypatch, tmp_path):
    cudnn = torch.backends.cudnn
    monkeypatch.setattr(cudnn, "benchmark", True)
    with repeatable(torch.device("cuda")):
        assert (cudnn.deterministic, cudnn.benchmark) == (True, False)
    assert (cudnn.deterministic, cudnn.benchmark) == (False, True)  # as it was before
    with repeatable(torch.device("cpu")):
        assert (cudnn.deterministic, cudnn.benchmark) == (False, True)

    seen = []

    class Looks(LocalObjective):
        """Notes the switches in the middle of a step."""

        def after_backward(self, model):
            seen.append((cudnn.deterministic, cudnn.benchmark))

    monkeypatch.setattr("fedeas.train.loop.repeatable", lambda _: repeatable(torch.device("cuda")))
    data = shapes(tmp_path / "set")
    model = make_model(ModelSettings(), Task.of(data), 0)
    fit(model, Samples.of(data, np.arange(8)), Local(batch=4), np.random.default_rng(0), Looks())
    assert set(seen) == {(True, False)}
