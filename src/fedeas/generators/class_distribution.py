"""`ClassDistribution`: rows of one class, drawn from its mean and covariance.

Choices come first, one after the other: the chances of a level are linear in what was chosen
before, cut off at zero, and scaled so that every level is as frequent as in the class. Numbers then
are normal, with a mean that is linear in the choices. This is the general location model (Olkin and
Tate, 1961) without interactions, and needs no more than first and second moments.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedeas.generators.quantiles import Floats
from fedeas.generators.row_space import Choice, RowSpace
from fedeas.generators.streams import uniforms

Ints = NDArray[np.int64]
Singles = NDArray[np.float32]
_Real = TypeVar("_Real", np.float64, np.float32)
FULL = 64  # numbers up to which a covariance is kept whole; of more, RANK factors and a diagonal
RANK = 32
_TRIED = 2048  # rows drawn to find the scales of levels
_ROUNDS = 30  # of finding them
_FLOOR = 1e-3  # of its share is left to a level that is cut off


@dataclass(frozen=True, eq=False)
class _Levels:
    """How the level of one choice is drawn."""

    choice: Choice
    mean: Floats  # of its coordinates
    before: Floats  # weights of all coordinates before them, whitened
    inverse: Floats  # whitens its own coordinates
    shares: Floats  # of its levels
    scales: Floats  # of their chances

    def chances(self, white: Floats) -> tuple[Floats, Floats]:
        """Return the expected coordinates, and the chance of every level up to a factor."""
        expected = self.mean[:, np.newaxis] + product(self.before, white[: self.choice.start])
        chances = np.concatenate([1 - expected.sum(axis=0, keepdims=True), expected])
        return expected, _cut(chances, self.shares) * self.scales[:, np.newaxis]

    def draw(self, white: Floats, chance: Floats) -> Ints:
        """Draw levels, and write their whitened coordinates after those of earlier choices."""
        expected, chances = self.chances(white)
        below = np.cumsum(chances, axis=0)
        level: Ints = (chance * below[-1] >= below[:-1]).sum(axis=0)
        apart = (np.arange(1, self.choice.levels)[:, np.newaxis] == level) - expected
        white[self.choice.coordinates] = product(self.inverse, apart)
        return level


class ClassDistribution:
    """Rows of one class: from uniform and standard normal numbers to levels and numbers."""

    def __init__(self, space: RowSpace, mean: Floats, covariance: Floats) -> None:
        self._first = space.first_number
        root = np.asarray(np.linalg.cholesky(covariance[: self._first, : self._first]), np.float64)
        self._choices: list[_Levels] = []
        white = np.zeros((self._first, _TRIED))
        seeds = np.arange(_TRIED, dtype=np.uint64)
        for place, choice in enumerate(space.choices):
            made = _scaled(_levels(choice, mean, root), white)
            made.draw(white, uniforms(seeds, place, 1)[0])
            self._choices.append(made)
        across = covariance[self._first :, : self._first]
        weights = np.asarray(np.linalg.solve(root, across.T).T, np.float64)
        loadings, noise = factors(covariance[self._first :, self._first :] - weights @ weights.T)
        # Single precision is more than a sample needs.
        self._mean = mean[self._first :, np.newaxis].astype(np.float32)
        self._weights, self._factors = weights.astype(np.float32), loadings.astype(np.float32)
        self._noise = None if noise is None else noise[:, np.newaxis].astype(np.float32)

    def draw(self, chance: Floats, normal: Singles) -> tuple[Ints, Singles]:
        """Return the levels of all choices and the coordinates of all numbers, by column.

        Parameters
        ----------
        chance : array
            Uniform numbers, a row per choice and a column per sample.
        normal : array
            Standard normal numbers, `needed(numbers)` rows and a column per sample.
        """
        white = np.empty((self._first, chance.shape[1]))
        levels = np.empty(chance.shape, np.int64)
        for place, choice in enumerate(self._choices):
            levels[place] = choice.draw(white, chance[place])
        rank = self._factors.shape[1]
        numbers = self._mean + product(self._factors, normal[:rank])
        if self._first:
            numbers += product(self._weights, white.astype(np.float32))
        if self._noise is not None:
            numbers += self._noise * normal[rank:]
        return levels, numbers


def needed(numbers: int) -> int:
    """Return how many standard normal numbers a row takes."""
    return numbers if numbers <= FULL else RANK + numbers


def factors(covariance: Floats) -> tuple[Floats, Floats | None]:
    """Split a covariance into F F' and, if it is large, a diagonal: return F and its root."""
    size = len(covariance)
    spread = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    values, vectors = np.linalg.eigh(covariance / np.outer(spread, spread))
    kept = np.argsort(values)[::-1][: size if size <= FULL else RANK]
    loadings: Floats = spread[:, np.newaxis] * vectors[:, kept] * np.sqrt(values[kept].clip(0))
    if size <= FULL:
        return loadings, None
    left = np.diag(covariance) - (loadings**2).sum(axis=1)
    return loadings, np.sqrt(left.clip(0))


def product(matrix: NDArray[_Real], columns: NDArray[_Real]) -> NDArray[_Real]:
    """Multiply a matrix with every column; a column's result does not depend on the others.

    BLAS rounds differently for other numbers of columns.
    """
    found: NDArray[_Real] = np.einsum("rk,kn->rn", matrix, columns)
    return found


def _levels(choice: Choice, mean: Floats, root: Floats) -> _Levels:
    own = choice.coordinates
    shares = np.concatenate([[1 - mean[own].sum()], mean[own]]).clip(0)
    return _Levels(
        choice,
        mean[own],
        np.ascontiguousarray(root[own, : choice.start]),
        np.asarray(np.linalg.inv(root[own, own]), np.float64),
        shares / shares.sum(),
        np.ones(choice.levels),
    )


def _scaled(levels: _Levels, white: Floats) -> _Levels:
    """Find the scales with which every level is as frequent as in the class."""
    _, chances = levels.chances(white)
    scales = np.ones_like(levels.shares)
    there = levels.shares > 0
    for _ in range(_ROUNDS):
        scaled = chances * scales[:, np.newaxis]
        found = (scaled / scaled.sum(axis=0)).mean(axis=1)
        scales[there] *= levels.shares[there] / found[there]
    return replace(levels, scales=scales)


def _cut(chances: Floats, shares: Floats) -> Floats:
    """Return chances that are not negative; a level that the class lacks has none."""
    floor = _FLOOR * shares[:, np.newaxis]
    return np.where(shares[:, np.newaxis] > 0, np.maximum(chances, floor), 0.0)
