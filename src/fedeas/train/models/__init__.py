"""Models by name: ours, or a factory at a dotted path.

Classifiers turn samples into a logit per class; `unet` draws images.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedeas._internal.specs import Registry, parse
from fedeas.data.kinds import find_kind
from fedeas.errors import InputError
from fedeas.train.models.classifiers import MLP, Classifier, ResNet18, SmallCNN, Wrapped
from fedeas.train.models.unet import Denoiser
from fedeas.train.samples import Task
from fedeas.train.settings import ModelSettings
from fedeas.train.tensors import seeded

__all__ = ["MODELS", "Classifier", "Denoiser", "Wrapped", "load_weights", "make_model"]

MODELS = Registry(
    "model",
    fixed={"cnn": SmallCNN, "resnet18": ResNet18, "mlp": MLP, "unet": Denoiser},
)


def make_model(
    settings: ModelSettings, task: Task, seed: int, *, by_owner: bool = True
) -> Classifier:
    """Make a model with fresh weights that depend on the seed alone, or with those of a file.

    Unless the owner of this process wrote the settings, a dotted path is refused.
    """
    spec = settings.name or find_kind(task.kind).model
    name = parse(spec, "model")[0]
    with seeded(seed):
        defaults = {"task": task, **_model_settings(settings, name, by_owner)}
        network = MODELS.make(spec, defaults, by_owner=by_owner)
        if not isinstance(network, nn.Module):
            raise InputError(
                f"{spec!r} is not a model", got=type(network).__name__, allowed="an nn.Module"
            )
        model = network if isinstance(network, Classifier) else Wrapped(task, network)
    if settings.weights:
        load_weights(model, Path(settings.weights))
    if model.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _model_settings(settings: ModelSettings, name: str, by_owner: bool) -> dict[str, object]:
    """Return the settings of a model that are not the defaults; all of them have to be its own."""
    defaults = ModelSettings().to_dict()
    changed = {
        key: value
        for key, value in settings.to_dict().items()
        if key not in ("name", "weights") and value != defaults[key]
    }
    parameters = MODELS.parameters(name, by_owner=by_owner)
    for key in changed.keys() - parameters:
        raise InputError(
            f"model {name!r} has no setting {key!r}",
            allowed=", ".join(sorted(parameters - {"task"})) or "no settings",
        )
    return changed


def load_weights(model: Classifier, path: Path) -> None:
    """Load a safetensors file with the same names; a last layer of other classes stays fresh."""
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}", allowed="a safetensors file") from None
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    fitting = {k: v for k, v in weights.items() if shapes.get(k) == v.shape}
    # torchvision's files from before BatchNorm counted batches lack its counters.
    missing = {k for k in shapes if k not in fitting and not k.startswith("fc.")}
    missing = {k for k in missing if not k.endswith("num_batches_tracked")}
    if missing:
        raise InputError(
            f"{path} holds other weights than the model needs",
            got=sorted(missing)[0],
            fix="check `stem` and `norm`",
        )
    model.load_state_dict(fitting, strict=False)
