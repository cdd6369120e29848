"""Models by name: ours, those of installed packages, or a factory at a dotted path."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedeas.data.kinds import find_kind
from fedeas.errors import InputError
from fedeas.settings.training import ModelSettings
from fedeas.specs import Registry, parse
from fedeas.tensors import fresh_weights
from fedeas.training.models.classifier import Classifier, Wrapped
from fedeas.training.models.cnn import SmallCNN
from fedeas.training.models.mlp import MLP
from fedeas.training.models.resnet import ResNet18
from fedeas.training.models.unet import Denoiser
from fedeas.training.task import Task

MODELS = Registry(
    "model",
    "fedeas.models",
    {"cnn": SmallCNN, "resnet18": ResNet18, "mlp": MLP, "unet": Denoiser},
)


def make_model(
    settings: ModelSettings, task: Task, seed: int, *, installed: bool = False
) -> Classifier:
    """Make a model with fresh weights that depend on the seed alone, or with those of a file.

    `installed` refuses dotted paths: a client makes the model that a server names, and a path would
    let it run any code there.
    """
    spec = settings.name or find_kind(task.kind).model
    name = parse(spec, "model")[0]
    if installed and ":" in name:
        raise InputError("a model by dotted path", got=spec, allowed="an installed model's name")
    with fresh_weights(seed):
        made = MODELS.make(spec, {"task": task, **_chosen(settings, name)})
        if not isinstance(made, nn.Module):
            raise InputError(
                f"{spec!r} is not a model", got=type(made).__name__, allowed="an nn.Module"
            )
        model = made if isinstance(made, Classifier) else Wrapped(task, made)
    if settings.weights:
        load_weights(model, Path(settings.weights))
    if model.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _chosen(settings: ModelSettings, name: str) -> dict[str, object]:
    """Return the settings of a model that are not the defaults; all of them have to be its own."""
    plain = ModelSettings().to_dict()
    chosen = {
        key: value
        for key, value in settings.to_dict().items()
        if key not in ("name", "weights") and value != plain[key]
    }
    known = MODELS.parameters(name)
    for key in chosen.keys() - known:
        raise InputError(
            f"model {name!r} has no setting {key!r}",
            allowed=", ".join(sorted(known - {"task"})) or "no settings",
        )
    return chosen


def load_weights(model: Classifier, path: Path) -> None:
    """Load a safetensors file with the same names; a last layer of other classes stays fresh."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}", allowed="a safetensors file") from None
    own = model.state_dict()
    fitting = {k: v for k, v in found.items() if k in own and own[k].shape == v.shape}
    # torchvision's files from before BatchNorm counted batches lack its counters.
    missing = {k for k in own if k not in fitting and not k.startswith("fc.")}
    missing = {k for k in missing if not k.endswith("num_batches_tracked")}
    if missing:
        raise InputError(
            f"{path} holds other weights than the model needs",
            got=sorted(missing)[0],
            fix="check `stem` and `norm`",
        )
    model.load_state_dict(fitting, strict=False)
