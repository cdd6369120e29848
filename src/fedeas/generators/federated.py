"""A diffusion model that a federation trained, as a generator's folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedeas.generators.card import Card
from fedeas.generators.diffusion import ModelMetadata, save_model
from fedeas.settings.training import Federated
from fedeas.tensors import Tensors
from fedeas.training.models import Denoiser, make_model
from fedeas.training.task import Task


def save_generator(
    folder: Path,
    weights: Tensors,
    federated: Federated,
    task: Task,
    classes: Sequence[str],
    trained_on: str,
    history: Sequence[Mapping[str, Any]],
    card: Card,
) -> Path:
    """Write the federation's weights as `fedeas generator train` writes a model, with a card.

    `trained_on` names the data. Steps are those of all clients together; deployed sites do not tell
    theirs.
    """
    model = make_model(federated.model, task, 0)
    assert isinstance(model, Denoiser)  # noqa: S101 - only `is_generator` models come here
    model.load_state_dict(weights)
    height, width, colours = task.shape
    steps = sum(int(line["steps"]) for line in history)
    shape = (height, width, colours)
    head = ModelMetadata(tuple(classes), shape, trained_on, model.design, steps, card.samples or 0)
    folder.mkdir(parents=True, exist_ok=True)
    card.save(folder)
    save_model(folder, model.network, head)
    return folder
