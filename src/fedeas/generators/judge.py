"""`Judge`: a classifier trained on real images that labels generated ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.seeds import child_rng
from fedeas.settings.training import Local, ModelSettings
from fedeas.tensors import load_tensors, save_tensors, tensors_digest
from fedeas.training.loop import fit, predict
from fedeas.training.models import Classifier, make_model
from fedeas.training.samples import Samples
from fedeas.training.task import Task

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
_FORMAT = "judge/1"


class Judge:
    """Classifies images, and turns them into features for a Fréchet distance."""

    def __init__(self, model: Classifier, about: dict[str, Any]) -> None:
        self.model, self.about = model.eval(), about

    @classmethod
    def train(
        cls,
        data: Dataset,
        epochs: int = 6,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> "Judge":
        """Train on the official training images; its accuracy on the test images is stored."""
        task = Task.of(data)
        shape, mean, spread = task.shape, task.mean, task.spread
        about: dict[str, Any] = {
            "format": _FORMAT, "model": "cnn", "classes": list(data.classes), "shape": list(shape),
            "mean": list(mean), "spread": list(spread), "data": data.fingerprint, "seed": seed,
        }  # fmt: skip
        model = _model(about)
        local = Local(epochs=epochs, batch=64, learning_rate=0.03, momentum=0.9)
        rng = child_rng(seed, "judge")
        fit(model, Samples.of(data, np.arange(data.train_size)), local, rng, progress=progress)
        found = predict(model, data.samples[data.train_size :])
        right = found == np.asarray(data.labels[data.train_size :])
        return cls(model, {**about, "accuracy": float(right.mean())})

    def save(self, path: Path) -> None:
        """Write the judge as one safetensors file."""
        save_tensors(path, self.model.state_dict(), self.about)

    @classmethod
    def load(cls, path: Path) -> "Judge":
        """Read a judge that `save` wrote."""
        tensors, about = load_tensors(path)
        try:
            if about["format"] != _FORMAT:
                raise ValueError("another format")
            model = _model(about)
            model.load_state_dict(tensors)
        except (ValueError, KeyError, TypeError, RuntimeError):
            raise InputError(
                f"{path} is not a judge", fix="a file from `fedeas generator judge`"
            ) from None
        return cls(model, about)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes."""
        return tuple(self.about["classes"])

    @property
    def accuracy(self) -> float:
        """Its accuracy on real test images, which limits what agreement can mean."""
        return float(self.about["accuracy"])

    @property
    def fingerprint(self) -> str:
        """Identify the judge by its weights."""
        return f"judge-{tensors_digest(self.model.state_dict())}"

    def __call__(self, images: Bytes) -> Ints:
        """Predict the class of every image."""
        if list(images.shape[1:]) != self.about["shape"]:
            raise InputError(
                "the judge was trained on images of another size",
                got=images.shape[1:],
                allowed=str(self.about["shape"]),
            )
        return predict(self.model, images)


class Features(torch.nn.Module):
    """A judge's features in the form that torchmetrics needs: uint8, N x colours x h x w."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.model, self.num_features = judge.model, judge.model.fc.in_features

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per image."""
        return self.model.features(images.permute(0, 2, 3, 1))


def _model(about: dict[str, Any]) -> Classifier:
    height, width, colours = map(int, about["shape"])
    shape = (height, width, colours)
    task = Task(len(about["classes"]), shape, tuple(about["mean"]), tuple(about["spread"]))
    return make_model(ModelSettings(about["model"]), task, about["seed"])
