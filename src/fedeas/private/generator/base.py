"""What all private models share: their files, and what stands out from noise of a known size.

The noise of a second moment is a symmetric matrix of independent entries, whose eigenvalues fill an
interval up to an edge (Wigner). A true eigenvalue t beyond it appears as t + (edge / 2)^2 / t, and
only a part of its direction is right. Reduced to that part, what is kept minimises the squared
error (Gavish and Donoho, 2017).
"""

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import FedeasError, InputError
from fedeas.generators.card import GeneratorCard
from fedeas.private.generator.card import FINGERPRINT, PRIVATE, WEIGHTS, training_data
from fedeas.private.queries.query import Floats
from fedeas.train.tensors import Tensors, load_tensors, save_tensors, tensors_digest


def unfinished(folder: Path) -> Path:
    """Return the folder beside that of a generator with what a simulation is not done with."""
    own = folder.resolve()
    return own.with_name(f"{own.name}.unfinished")


class PrivateModel(ABC):
    """A model made from noisy sums: its card and its weights.

    Parameters
    ----------
    card
        What it is, and what it cost.
    tensors
        Its weights.
    """

    name: ClassVar[str] = PRIVATE  # of the kind of model, in its card

    def __init__(self, card: GeneratorCard, tensors: Tensors) -> None:
        self.card, self.classes, self._tensors = card, card.classes, tensors

    @classmethod
    @abstractmethod
    def from_tensors(cls, card: GeneratorCard, tensors: Tensors) -> Self:
        """Make the model of a card and weights, which anybody may have sent."""

    def save(self, folder: Path) -> None:
        """Write the model's folder: weights, then the card."""
        folder.mkdir(parents=True, exist_ok=True)
        save_tensors(folder / WEIGHTS, self._tensors, {"method": self.card.method})
        self.card.save(folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open a model's folder."""
        card = GeneratorCard.load(folder, cls.name)
        tensors, _ = load_tensors(Path(folder) / WEIGHTS)
        try:
            return cls.from_tensors(card, tensors)
        except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, FedeasError):
            raise InputError(f"the weights in {folder} do not match its card") from None


class PrivateGenerator(PrivateModel):
    """A generator made from noisy sums.

    Parameters
    ----------
    card, tensors
        As for `PrivateModel`.
    digest
        Of what its samples depend on; of the weights and the shape by default.
    """

    def __init__(self, card: GeneratorCard, tensors: Tensors, digest: str = "") -> None:
        super().__init__(card, tensors)
        self.training_data = training_data(card)
        self.fingerprint = FINGERPRINT + (digest or tensors_digest(tensors, repr(card.shape)))

    @abstractmethod
    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """Draw one sample per label and seed."""


class Spectrum(NamedTuple):
    """The eigenvalues of a symmetric matrix with noise, upwards, and what they say of the truth."""

    vectors: Floats  # a column each
    visible: NDArray[np.bool_]  # whether a value lies beyond the noise's edge
    true: Floats  # the value without noise; 0 where it is not visible
    shrunk: Floats  # the part of it whose direction is right

    def matrix(self) -> Floats:
        """Return the part of the matrix that stands out from the noise."""
        return (self.vectors * self.shrunk) @ self.vectors.T


def noise_edge(error: float, size: int) -> float:
    """Return the largest eigenvalue of the noise of a size x size matrix.

    Parameters
    ----------
    error
        The standard error of an entry off the diagonal.
    size
        Rows of the matrix.
    """
    return 2 * error * math.sqrt(size)


def spectrum(matrix: Floats, error: float) -> Spectrum:
    """Tell the eigenvalues of a symmetric matrix from its noise.

    Parameters
    ----------
    matrix
        A symmetric matrix with noise.
    error
        The standard error of an entry off the diagonal.

    >>> spectrum(np.diag([4.0, 0.1]), 0.0).matrix()
    array([[4. , 0. ],
           [0. , 0.1]])
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    edge = noise_edge(error, len(values))
    visible = values > edge
    shrunk = np.sqrt(np.where(visible, values**2 - edge**2, 0.0))
    # t - (edge / 2)^2 / t = sqrt(value^2 - edge^2), so t is the mean of both.
    return Spectrum(vectors, visible, np.where(visible, (values + shrunk) / 2, 0.0), shrunk)


def james_stein(deviation: Floats, noise: float) -> float:
    """Return which part of a deviation to keep, given the square of its noise (James and Stein).

    >>> james_stein(np.array([3.0, 4.0]), 5.0)
    0.8
    """
    square = float(np.square(deviation).sum())
    return max(0.0, 1 - noise / square) if square > 0 else 0.0
