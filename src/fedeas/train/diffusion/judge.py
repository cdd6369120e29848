"""`Judge`: a classifier trained on real samples that labels generated ones."""

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas._internal.files import make_folder, store_folder
from fedeas._internal.seeds import child_rng
from fedeas.data.dataset import Dataset
from fedeas.data.kinds import Array, find_kind
from fedeas.data.schema import Schema
from fedeas.errors import InputError
from fedeas.train.loop import accuracy, fit, predict
from fedeas.train.models import Classifier, make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings
from fedeas.train.tensors import check_like, load_tensors, save_tensors, tensors_digest

Ints = NDArray[np.int64]
_FORMAT = "judge/1"
_EPOCHS = 6  # over images
_STEPS = 3000  # with rows, of which a step costs next to nothing, and with few images
_LOCAL = Local(batch=64, learning_rate=0.03, momentum=0.9)


class Judge:
    """Classifies samples."""

    def __init__(self, model: Classifier, about: dict[str, Any]) -> None:
        self.model, self.about = model.eval(), about

    @classmethod
    def train(
        cls,
        data: Dataset,
        epochs: int | None = None,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        training: Ints | None = None,
        unseen: Ints | None = None,
    ) -> "Judge":
        """Train the default model of the data's kind; its accuracy on test samples is stored.

        Parameters
        ----------
        data : Dataset
            The real samples.
        epochs : int, optional
            Passes over the training samples: 6 over images, as many as 3,000 steps take over rows.
        seed : int
            Of the weights and of the order of samples.
        progress : callable, optional
            Is given the epochs done and to be done.
        training, unseen : array of int, optional
            Places of the samples to train and to test on; the data set's own by default.
        """
        train = np.arange(data.train_size) if training is None else training
        test = np.arange(data.train_size, len(data.labels)) if unseen is None else unseen
        if epochs is None:
            batches = max(1, math.ceil(len(train) / _LOCAL.batch))
            epochs = _EPOCHS if data.kind == "image" else math.ceil(_STEPS / batches)
        task = Task.of(data).of_sets
        about: dict[str, Any] = {
            **task.to_dict(), "format": _FORMAT, "model": find_kind(data.kind).model,
            "classes": list(data.classes), "data": data.fingerprint, "seed": seed,
        }  # fmt: skip
        model = _model(about)
        samples, rng = Samples.of(data, train), child_rng(seed, "judge")
        fit(model, samples, _LOCAL.replace(epochs=epochs), rng, progress=progress)
        overall, _ = accuracy(model, Samples.of(data, test))
        return cls(model, {**about, "accuracy": overall})

    @classmethod
    def of(
        cls,
        data: Dataset,
        store: Path | str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> "Judge":
        """Open the judge of a data set, training it on first use.

        Judges are kept in `store` (FEDEAS_STORE, or .cache/fedeas in the home folder), by the
        content of the data.
        """
        path = store_folder(store) / "judges" / f"{data.fingerprint}.safetensors"
        with suppress(InputError):  # not there, or of an older format
            judge = cls.load(path)
            if (judge.about.get("data"), judge.classes) == (data.fingerprint, data.classes):
                return judge
        make_folder(path.parent)
        judge = cls.train(data, progress=progress)
        judge.save(path)
        return judge

    def save(self, path: Path) -> None:
        """Write the judge as one safetensors file."""
        save_tensors(path, self.model.state_dict(), self.about)

    @classmethod
    def load(cls, path: Path) -> "Judge":
        """Read a judge that `save` wrote."""
        tensors, about = load_tensors(path)
        try:
            task = _task(about)
            if about["format"] != _FORMAT or about["model"] != find_kind(task.kind).model:
                raise ValueError("another format")
            if not len(task.mean) == len(task.std) == task.shape[-1] or task.classes < 2:
                raise ValueError("other channels, or no classes")
            with torch.device("meta"):  # what a file claims takes no memory before it is checked
                expected = _model(about).state_dict()
            check_like(tensors, expected, "weights")
            model = _model(about)
            model.load_state_dict(tensors)
        except (InputError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError):
            raise InputError(f"{path} is not a judge") from None
        return cls(model, about)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes."""
        return tuple(self.about["classes"])

    @property
    def accuracy(self) -> float:
        """Its accuracy on real test samples, which limits what agreement can mean."""
        return float(self.about["accuracy"])

    @property
    def fingerprint(self) -> str:
        """Identify the judge by its weights."""
        return f"judge-{tensors_digest(self.model.state_dict())}"

    def __call__(self, samples: Array) -> Ints:
        """Predict the class of every sample."""
        if list(samples.shape[1:]) != list(self.about["shape"]):
            raise InputError(
                "the judge was trained on samples of another size",
                got=samples.shape[1:],
                allowed=str(self.about["shape"]),
            )
        if "schema" in self.about:
            Schema.from_list(self.about["schema"]).check(samples)
        return predict(self.model, samples)


def accuracy_on_real(
    data: Dataset, samples: Array, labels: Ints, unseen: Ints, seed: int = 0, steps: int = _STEPS
) -> float:
    """Train a classifier on generated samples alone; return its accuracy on real ones.

    Classes count as often as they were generated: a plan may ask for rare ones alone.

    Parameters
    ----------
    data : Dataset
        The real samples; of them only those that are tested on are used.
    samples, labels : array
        The generated samples and their classes. What the model is normalised by comes from them.
    unseen : array of int
        Places of the real samples to test on.
    seed : int
        Of the weights and of the order of samples.
    steps : int
        Of training.
    """
    task = Task.of(data, samples).of_sets
    model = make_model(ModelSettings(find_kind(data.kind).model), task, seed)
    drawn = Samples.of(data, np.empty(0, np.int64), samples, labels)
    fit(model, drawn, _LOCAL.replace(steps=steps), child_rng(seed, "accuracy-on-real"))
    _, by_class = accuracy(model, Samples.of(data, unseen))
    weights = np.bincount(labels, minlength=len(by_class)) * ~np.isnan(by_class)
    return float(np.nan_to_num(by_class) @ weights / max(1, weights.sum()))


def _model(about: dict[str, Any]) -> Classifier:
    """Make the default model of a task, whatever else is said about a judge."""
    return make_model(ModelSettings(""), _task(about), int(about["seed"]), by_owner=False)


def _task(about: dict[str, Any]) -> Task:
    return Task.from_dict({**about, "classes": len(about["classes"])})
