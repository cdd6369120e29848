"""Tensors in files and on devices: safetensors with a checksum, never pickle."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedeas.errors import InputError
from fedeas.files import atomic_write, check_regular, unreadable

Tensors = dict[str, torch.Tensor]
NUMBER_FORMATS = {"float32", "float64", "int64", "float16", "uint8"}  # of tensors in messages
LARGEST = 2.0**12  # of a weight of a model; beyond it, training has diverged
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_CPU = torch.device("cpu")


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], about: object) -> None:
    """Write tensors and a JSON value about them atomically, with a checksum of both."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about, sort_keys=True)
    with atomic_write(path) as temporary:
        save_file(held, temporary, {"about": text, "sha256": tensors_digest(held, text)})


def load_tensors(path: Path) -> tuple[Tensors, Any]:
    """Read what `save_tensors` wrote; refuse a modified file."""
    check_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            head = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if head.get("sha256") != tensors_digest(tensors, head.get("about", "")):
            raise ValueError("another content")
        return tensors, json.loads(head["about"])
    except OSError as error:
        raise unreadable(path, error) from None
    except (SafetensorError, ValueError, KeyError, RecursionError):
        raise InputError(
            f"{path} is damaged or was not written by fedeas",
            fix="restore it from a copy, or remove it to start again",
        ) from None


def choose_device(name: str = "auto") -> torch.device:
    """Return a device by name; 'auto' is the first GPU where there is one, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"this machine cannot use the device {name!r}: {str(error).splitlines()[0]}",
            allowed="auto, cpu, cuda, cuda:0, ...",
        ) from None
    return device


def precision(name: str) -> torch.dtype:
    """Return the number format of forward passes by name."""
    if name not in PRECISIONS:
        raise InputError("unknown precision", got=name, allowed=" or ".join(PRECISIONS))
    return PRECISIONS[name]


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Compute what follows in another number format; float32 changes nothing."""
    return torch.autocast(device.type, dtype, enabled=dtype is not torch.float32)


@contextmanager
def seeded(seed: int, device: torch.device = _CPU) -> Iterator[None]:
    """Make what PyTorch draws from its global random state here depend on the seed alone.

    Initial weights and dropout have no other source. The state is restored afterwards.
    """
    on_cpu = device.type == "cpu"
    with torch.random.fork_rng(devices=[] if on_cpu else None):
        # `torch.manual_seed` leaves notes for devices that are not there, a millisecond a time.
        (torch.default_generator.manual_seed if on_cpu else torch.manual_seed)(seed)
        yield


fresh_weights = seeded  # of a model that is created inside


def check_values(tensors: Mapping[str, torch.Tensor], most: float = LARGEST) -> None:
    """Refuse tensors from another party that are not finite, or with floats larger than `most`."""
    for name, tensor in tensors.items():
        bound = most if tensor.is_floating_point() else 2.0**53
        largest = float(tensor.detach().double().abs().max()) if tensor.numel() else 0.0
        # A comparison with NaN is false.
        if not (largest <= bound and math.isfinite(largest)):
            raise InputError(f"the values of {name!r} are not finite, or absurdly large")


def tensors_digest(tensors: Mapping[str, torch.Tensor], about: str = "") -> str:
    """Return the hash of tensors' names, formats, shapes and values."""
    found = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
