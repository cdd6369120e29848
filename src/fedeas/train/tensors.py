"""Tensors in files (safetensors with a checksum, never pickle), on devices, and in exact sums."""

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedeas._internal.files import atomic_write, check_regular, unreadable
from fedeas._internal.names import choice
from fedeas._internal.seeds import child_rng
from fedeas.errors import InputError

Tensors = dict[str, torch.Tensor]
NUMBER_FORMATS = {"float32", "float64", "int64", "float16", "uint8"}  # of tensors in messages
LARGEST = 2.0**12  # of a weight of a model; beyond it, training has diverged
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_CPU = torch.device("cpu")
_SUM_BITS = 62


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], about: object) -> None:
    """Write tensors and a JSON value about them atomically, with a checksum of both."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about, sort_keys=True)
    with atomic_write(path) as temporary:
        save_file(plain, temporary, {"about": text, "sha256": tensors_digest(plain, text)})


def load_tensors(path: Path) -> tuple[Tensors, Any]:
    """Read what `save_tensors` wrote; refuse a modified file."""
    check_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("sha256") != tensors_digest(tensors, metadata.get("about", "")):
            raise ValueError("another content")
        return tensors, json.loads(metadata["about"])
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
    return PRECISIONS[choice(name, "precision", PRECISIONS)]


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
        (torch.default_generator.manual_seed if on_cpu else torch.manual_seed)(seed)  # noqa: TID251
        yield


def torch_seed(seed: int, *path: str | int) -> int:
    """Return the seed for torch that a seed and a path name."""
    return int(child_rng(seed, *path).integers(2**62))


def stream(seed: int, *path: str | int) -> torch.Generator:
    """Return a torch generator named by a seed and a path."""
    return torch.Generator().manual_seed(torch_seed(seed, *path))


def check_values(tensors: Mapping[str, torch.Tensor], most: float = LARGEST) -> None:
    """Refuse tensors from another party that are not finite, or with floats larger than `most`."""
    for name, tensor in tensors.items():
        bound = most if tensor.is_floating_point() else 2.0**53
        largest = float(tensor.detach().double().abs().max()) if tensor.numel() else 0.0
        # A comparison with NaN is false.
        if not (largest <= bound and math.isfinite(largest)):
            raise InputError(f"the values of {name!r} are not finite, or absurdly large")


def check_like(found: Tensors, model: Mapping[str, torch.Tensor], what: str) -> None:
    """Refuse tensors whose names, shapes or dtypes differ from the model's."""
    if found.keys() != model.keys():
        odd = sorted(found.keys() ^ model.keys())[0]
        raise InputError(f"the names of {what} differ from the model's", got=odd)
    for name, tensor in found.items():
        if tensor.shape != model[name].shape or tensor.dtype != model[name].dtype:
            raise InputError(
                f"{what}: {name!r} has the wrong shape or dtype",
                got=(tuple(tensor.shape), str(tensor.dtype)),
                allowed=f"{tuple(model[name].shape)}, {model[name].dtype}",
            )


def tensors_digest(tensors: Mapping[str, torch.Tensor], about: str = "") -> str:
    """Return the hash of tensors' names, formats, shapes and values."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class ExactSum:
    """The sum of weight * tensor, whatever the order of its terms; `most` bounds the weights' sum.

    Floating-point addition is not associative, so a mean of replies would depend on who answers
    first. Here every term is rounded once to a multiple of a power of two and added as an integer.
    So replies are added as they arrive, none is kept, and every backend ends with the same bits.
    """

    def __init__(self, most: int) -> None:
        spare = _SUM_BITS - math.log2(LARGEST) - math.ceil(math.log2(max(2, most)))
        self._scale = 2.0 ** min(40, spare)
        self._most, self.weight = most, 0
        self._totals: Tensors = {}

    def add(self, tensors: Tensors, weight: int) -> None:
        """Add a term; a tensor that is not finite, or absurdly large, is refused."""
        if not 0 < weight <= self._most - self.weight:
            raise InputError("not a weight", got=weight, allowed=f"1 to {self._most - self.weight}")
        terms = {name: self._integers(name, tensor, weight) for name, tensor in tensors.items()}
        for name, term in terms.items():
            if name in self._totals:
                self._totals[name] += term
            else:
                self._totals[name] = term
        self.weight += weight

    def total(self) -> Tensors:
        """Return the sum, in double precision."""
        return {name: total.double() / self._scale for name, total in self._totals.items()}

    def mean(self, like: Tensors) -> Tensors:
        """Return the mean in the dtypes of `like`; counters are rounded down."""
        means = {name: total / self.weight for name, total in self.total().items()}
        return {
            name: (mean if like[name].is_floating_point() else (mean + 1e-9).floor()).to(
                like[name].dtype
            )
            for name, mean in means.items()
        }

    def _integers(self, name: str, tensor: torch.Tensor, weight: int) -> torch.Tensor:
        check_values({name: tensor})
        values = tensor.detach().double()
        if not tensor.is_floating_point():
            values = values.clamp(max=LARGEST)  # counters of batches saturate
        integers: torch.Tensor = (values * (weight * self._scale)).round_().to(torch.int64)
        return integers


def direction(
    before: Mapping[str, torch.Tensor], after: Tensors, names: Collection[str]
) -> Tensors:
    """Return a client's update, scaled to length one; nothing if there is none."""
    update = {k: before[k].double() - v.double() for k, v in after.items() if k in names}
    length = math.sqrt(sum(float(d.square().sum()) for d in update.values()))
    if not math.isfinite(length):
        raise InputError("the weights are not finite")
    return {name: d / length for name, d in update.items()} if length else {}
