"""`ExactSum`: a weighted sum of tensors that does not depend on the order of its terms.

Floating-point addition is not associative, so a mean of replies would depend on who answers first.
Here every term is rounded once to a multiple of a power of two and added as a whole number. So
replies are added as they arrive, none is kept, and every grid ends with the same bits.
"""

import math

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
        if not 0 < weight <= self._most - self.weight:
            raise InputError("not a weight", got=weight, allowed=f"1 to {self._most - self.weight}")
        whole = {name: self._whole(name, tensor, weight) for name, tensor in tensors.items()}
        for name, term in whole.items():
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


def whole_or_float(mean: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a mean in a dtype; counters are rounded down."""
    return (mean if dtype.is_floating_point else (mean + 1e-9).floor()).to(dtype)
