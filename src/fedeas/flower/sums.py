"""`ExactSum`: a weighted sum of tensors that does not depend on the order of its terms.

Floating-point addition is not associative, so a mean of replies would depend on who answers first.
Here every term is rounded once to a multiple of a power of two and added as a whole number. So
replies are added as they arrive, none is kept, and every grid ends with the same bits.
"""

import math
from collections.abc import Collection, Mapping

import torch

from fedeas.errors import InputError
from fedeas.tensors import LARGEST, Tensors, check_values

_BITS = 62


class ExactSum:
    """The sum of weight * tensor; `most` bounds the sum of the weights."""

    def __init__(self, most: int) -> None:
        spare = _BITS - math.log2(LARGEST) - math.ceil(math.log2(max(2, most)))
        self._scale = 2.0 ** min(40, spare)
        self._most, self.weight = most, 0
        self._totals: Tensors = {}

    def add(self, tensors: Tensors, weight: int) -> None:
        """Add a term; a tensor that is not finite, or absurdly large, is refused."""
        for name, term in self.terms(tensors, weight).items():
            if name in self._totals:
                self._totals[name] += term
            else:
                self._totals[name] = term
        self.weight += weight

    def terms(self, tensors: Tensors, weight: int) -> Tensors:
        """Return the whole numbers that a term adds."""
        if not 0 < weight <= self._most - self.weight:
            raise InputError("not a weight", got=weight, allowed=f"1 to {self._most - self.weight}")
        return {name: self._whole(name, tensor, weight) for name, tensor in tensors.items()}

    def take_total(self, totals: Tensors, weight: int) -> None:
        """Take the sum of all terms, which others added up, and of their weights."""
        self._totals, self.weight = totals, weight

    def total(self) -> Tensors:
        """Return the sum, in double precision."""
        return {name: total.double() / self._scale for name, total in self._totals.items()}

    def mean(self, like: Tensors) -> Tensors:
        """Return the mean in the dtypes of `like`; counters are rounded down."""
        return {
            name: whole_or_float(total / self.weight, like[name].dtype)
            for name, total in self.total().items()
        }

    def _whole(self, name: str, tensor: torch.Tensor, weight: int) -> torch.Tensor:
        check_values({name: tensor})
        values = tensor.detach().double()
        if not tensor.is_floating_point():
            values = values.clamp(max=LARGEST)  # counters of batches saturate
        whole: torch.Tensor = (values * (weight * self._scale)).round_().to(torch.int64)
        return whole


def direction(
    before: Mapping[str, torch.Tensor], after: Tensors, names: Collection[str]
) -> Tensors:
    """Return a client's update, scaled to length one; nothing if there is none."""
    moved = {k: before[k].double() - v.double() for k, v in after.items() if k in names}
    length = math.sqrt(sum(float(d.square().sum()) for d in moved.values()))
    if not math.isfinite(length):
        raise InputError("the weights are not finite")
    return {name: d / length for name, d in moved.items()} if length else {}


def whole_or_float(mean: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a mean in a dtype; counters are rounded down."""
    return (mean if dtype.is_floating_point else (mean + 1e-9).floor()).to(dtype)
