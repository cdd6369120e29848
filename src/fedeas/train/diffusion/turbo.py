"""`turbo`: Stable Diffusion turbo through diffusers, prompted with the names of classes.

    Sauer, Lorenz, Blattmann, Rombach: Adversarial Diffusion Distillation, 2023.

Nothing is trained: an off-the-shelf model draws large images in one step, which are reduced to the
size of the data with anti-aliasing.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from numpy.typing import NDArray
from torch.nn import functional

from fedeas._internal.files import fetch_from_hub, read_text
from fedeas.errors import InputError, first_line
from fedeas.generators.card import TrainingData
from fedeas.train.tensors import choose_device, precision

_GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601
_LIBRARIES = {"diffusers", "transformers", "stable_diffusion", None}


class Turbo:
    """Draws images of a class from a prompt; each image's noise comes from its own seed."""

    def __init__(
        self,
        model: Path | str,
        classes: Sequence[str],
        shape: Sequence[int],
        prompt: str = "a photo of a {}",
        steps: int = 1,
        precision_name: str = "float32",
        device: str = "auto",
    ) -> None:
        if prompt.count("{}") != 1:
            raise InputError("not a prompt", got=prompt, allowed="a text with one {}")
        if not 1 <= steps <= 50:
            raise InputError("not a number of steps", got=steps, allowed="1 to 50")
        folder = Path(model)
        if not folder.is_dir():
            folder = fetch_from_hub(str(model), "model", ["*.json", "*.txt", "*.safetensors"])
        self.classes, self._shape, self._steps = tuple(classes), tuple(shape), steps
        self._prompts = [prompt.format(name.replace("_", " ")) for name in classes]
        place = choose_device(device)
        self._pipeline = _open(folder).to(place, precision(precision_name))
        self._pipeline.set_progress_bar_config(disable=True)
        settings = [_digest(folder), self._prompts, self._shape, steps, precision_name]
        self.training_data = TrainingData("the data of an off-the-shelf model, not known here")
        self.fingerprint = f"turbo-{hashlib.sha256(json.dumps(settings).encode()).hexdigest()}"

    @torch.inference_mode()
    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label, all of a batch together."""
        drawn = self._pipeline(
            prompt=[self._prompts[label] for label in labels],
            num_inference_steps=self._steps,
            guidance_scale=0.0,  # the model is distilled to need none
            generator=[torch.Generator().manual_seed(int(seed)) for seed in seeds],
            output_type="pt",
        ).images.float()
        return reduce_images(drawn, self._shape)


def reduce_images(images: torch.Tensor, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Reduce images (N x 3 x height x width, 0 to 1) with anti-aliasing; grey if the data is."""
    height, width, colours = shape
    small = functional.interpolate(
        images, (height, width), mode="bicubic", align_corners=False, antialias=True
    )
    if colours == 1:
        weights = torch.tensor(_GREY, device=small.device).view(1, 3, 1, 1)
        small = (small * weights).sum(1, keepdim=True)
    pixels = (small.clamp(0, 1) * 255).round().to(torch.uint8)
    return pixels.permute(0, 2, 3, 1).cpu().numpy()


def _open(folder: Path) -> Any:
    _check_index(folder / "model_index.json")
    try:
        return StableDiffusionPipeline.from_pretrained(
            folder,
            use_safetensors=True,
            safety_checker=None,
            requires_safety_checker=False,
            local_files_only=True,
        )
    except Exception as error:  # libraries can raise anything on a hostile folder
        raise InputError(f"the pipeline in {folder} cannot be used: {first_line(error)}") from None


def _check_index(path: Path) -> None:
    """Refuse an index that names parts outside diffusers and transformers: it could run code."""
    text = read_text(path)
    try:
        index = json.loads(text)
        parts = {k: v for k, v in index.items() if not k.startswith("_") and isinstance(v, list)}
        foreign = [k for k, v in parts.items() if v[0] not in _LIBRARIES]
    except (ValueError, AttributeError, IndexError, TypeError, RecursionError):
        raise InputError(f"{path} is not a pipeline") from None
    if foreign:
        raise InputError(
            f"{path} names a foreign library for {foreign[0]!r}", got=parts[foreign[0]][0]
        )


def _digest(folder: Path) -> str:
    """Identify a model by the contents of its files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in {".json", ".txt", ".safetensors"}:
            digest.update(path.relative_to(folder).as_posix().encode() + b"\n")
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
