"""`local-gaussian`: `gaussian` fitted to a client's own rows; nothing is shared.

It makes what the client has, if only one row of it. Of classes that the client lacks, only a
generator that was fitted to other clients' rows too knows anything.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators.gaussian import Gaussian
from fedeas.generators.own_samples import Ints, OwnSamples, Seeds, refuse_without_own
from fedeas.policies import copyable


@dataclass(frozen=True)
class LocalGaussian:
    """Rows from the mean and covariance that their class has at the client."""

    lacks: ClassVar[str] = "a sample to learn from"
    fingerprint: ClassVar[str] = "local-gaussian-1"

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known whose rows to learn from."""
        raise refuse_without_own("local-gaussian")

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that is of classes which the clients have."""
        return copyable(samples, n)

    def sample_from(self, own: OwnSamples, labels: Ints, seeds: Seeds) -> Array:
        """Return one row per label, as the client's own rows of that class are distributed."""
        held = np.asarray(own.labels)
        rows, _ = own.take(np.arange(len(held)))
        if rows.ndim != 2 or rows.dtype.kind != "f":
            raise InputError("local-gaussian is for tables", got=f"samples of {rows.shape[1:]}")
        classes = [str(label) for label in range(int(max(held.max(), labels.max())) + 1)]
        return Gaussian.fit(rows, held, classes, own.schema).sample(labels, seeds)
