"""Nothing is ever unpickled: a malicious pickle in every place where a file is read."""

import ast
import io
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fedeas import IID, FedEAS, FedeasError, LabelCounts, Partition, Plan
from fedeas.cache import Cache, verify
from fedeas.cache.fill import fill
from fedeas.data import Dataset, load_images
from fedeas.data.labels import read_labels
from fedeas.train.diffusion.judge import Judge
from fedeas.train.diffusion.sample import Diffusion
from fedeas.train.diffusion.train import Training, train
from fedeas.train.diffusion.turbo import Turbo
from fedeas.train.models.unet import UNetConfig
from fedeas.train.tensors import load_tensors
from helpers.image_sets import shapes
from helpers.noted_generators import Counting

SOURCE = Path(__file__).parents[2] / "src"
SMALL = Training(
    UNetConfig((8, 8), 1, (False, False), timesteps=10),
    steps=1, batch=2, learning_rate=1e-3, warmup=0, decay=False, average=0.9, drop=0.0,
)  # fmt: skip


def test_loaders_are_told_not_to_unpickle():
    """Modules that unpickle are banned by the linter; these calls depend on an argument."""
    looked_at = 0
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            given = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if called == "np.load":
                looked_at += 1
                assert given.get("allow_pickle") == "False", path
            if called.endswith(".from_pretrained"):
                looked_at += 1
                assert given.get("use_safetensors") == "True", path
            assert given.get("trust_remote_code", "False") == "False", path
    assert looked_at >= 2


class Malicious:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path) -> Path:
    return tmp_path / "unpickled"


def payloads(mark: Path) -> dict[str, bytes]:
    """A pickle in the forms in which libraries like to load one."""
    plain = pickle.dumps(Malicious(mark))
    archive, array, arrays = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save({"weight": Malicious(mark)}, archive)
    objects = np.array([Malicious(mark)], dtype=object)
    np.save(array, objects, allow_pickle=True)
    np.savez(arrays, head=objects, indices=objects, labels=objects, images=objects)
    return {
        "pickle": plain,
        "torch": archive.getvalue(),
        "npy": array.getvalue(),
        "npz": arrays.getvalue(),
        "line": plain + b"\n",
    }


def test_the_payload_works(tmp_path, mark):
    """What the tests below feed does leave its mark in the hands of pickle."""
    content = payloads(mark)
    pickle.loads(content["pickle"])
    assert mark.exists()
    for name in ("npy", "npz"):
        mark.unlink()
        loaded = np.load(io.BytesIO(content[name]), allow_pickle=True)
        _ = loaded["head"] if name == "npz" else loaded
        assert mark.exists()
    mark.unlink()
    torch.load(io.BytesIO(content["torch"]), weights_only=False)
    assert mark.exists()


def places(tmp_path):
    """Every file that is read: where it lies, and what reads it."""
    counts = LabelCounts([[9, 0], [1, 8]])
    for suffix in ("csv", "tsv", "json", "parquet"):
        path = tmp_path / f"counts.{suffix}"
        yield path, lambda path=path: LabelCounts.load(path)
        plan = tmp_path / f"plan.{suffix}"
        yield plan, lambda plan=plan: Plan.load(plan)
    yield tmp_path / "partition.npz", lambda: Partition.load(tmp_path / "partition.npz")
    for suffix in ("npy", "csv"):
        path = tmp_path / f"labels.{suffix}"
        yield path, lambda path=path: read_labels([str(path)])

    folder = tmp_path / "set"
    folder.mkdir()
    yield from (
        (folder / f"{part}-0.parquet", lambda: load_images("set", folder, tmp_path / "store"))
        for part in ("train", "test")
    )
    decoded = tmp_path / "shapes"
    data = shapes(decoded)
    for name in ("meta.json", "samples.npy", "labels.npy"):
        yield decoded / name, lambda: Dataset.open(decoded)

    plan = FedEAS(beta=12).plan(counts)
    cache = Cache(tmp_path / "cache", Counting(), plan.samples.shape[1])
    fill(plan, Counting(), cache, 3)

    def use_cache() -> None:
        assert list(verify(cache.storage))
        fill(plan, Counting(), cache, 3)
        raise FedeasError("found by verify, and mended")

    (shard,) = cache.folder.glob("*.parquet")
    (entry,) = cache.folder.glob(".fedeas/entries/*")
    yield from ((path, use_cache) for path in (shard, entry))

    out = tmp_path / "training"
    model = train(data, out, SMALL, device="cpu")
    for path in (
        model / "generator.json",
        model / "unet" / "diffusion_pytorch_model.safetensors",
    ):
        yield path, lambda: Diffusion.load(model)
    yield out / "checkpoint.safetensors", lambda: train(data, out, SMALL, device="cpu")
    tensors = tmp_path / "any.safetensors"
    yield tensors, lambda: load_tensors(tensors)
    yield tensors, lambda: Judge.load(tensors)
    turbo = tmp_path / "turbo"
    turbo.mkdir()
    yield turbo / "model_index.json", lambda: Turbo(turbo, ["a"], (4, 4, 1))


def test_a_malicious_pickle_is_refused_everywhere(tmp_path, mark):
    tried = 0
    for path, read in places(tmp_path):
        before = path.read_bytes() if path.exists() else None
        for form, content in payloads(mark).items():
            path.write_bytes(content)
            with pytest.raises(FedeasError):
                read()
            assert not mark.exists(), f"{path} was unpickled ({form})"
            tried += 1
        if before is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(before)
    assert tried > 100


@pytest.mark.parametrize("folder", ["diffusion", "turbo"])
def test_weights_in_a_pickle_are_not_even_opened(tmp_path, mark, folder):
    """A folder with a `.bin` beside nothing else, as older models have."""
    content = payloads(mark)
    if folder == "diffusion":
        model = train(shapes(tmp_path / "shapes"), tmp_path / "out", SMALL, device="cpu")
        (model / "unet" / "diffusion_pytorch_model.safetensors").unlink()
        (model / "unet" / "diffusion_pytorch_model.bin").write_bytes(content["torch"])
        with pytest.raises(FedeasError):
            Diffusion.load(model)
    else:
        index = {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DModel"]}
        (tmp_path / "model_index.json").write_text(json.dumps(index))
        (tmp_path / "unet").mkdir()
        (tmp_path / "unet" / "config.json").write_text('{"_class_name": "UNet2DModel"}')
        (tmp_path / "unet" / "diffusion_pytorch_model.bin").write_bytes(content["torch"])
        with pytest.raises(FedeasError):
            Turbo(tmp_path, ["a"], (4, 4, 1), device="cpu")
    assert not mark.exists()
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_a_hostile_cost_file_is_refused(fedeas, tmp_path, mark, paper_csv):
    for content in payloads(mark).values():
        (tmp_path / "cost.json").write_bytes(content)
        assert fedeas("plan", paper_csv, "--cost", tmp_path / "cost.json").code == 2
        assert not mark.exists()


def test_iid_partition_survives_its_own_file(tmp_path):
    made = IID(clients=2, seed=1).partition(np.array([0, 1, 0, 1]))
    made.save(tmp_path / "partition.npz")
    assert Partition.load(tmp_path / "partition.npz").counts(np.array([0, 1, 0, 1])).K == 2
