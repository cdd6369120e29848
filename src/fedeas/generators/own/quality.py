"""How much of a class the noise leaves in a generator of rows, from the sums alone.

What a second draw of the same noise would change is about what the first one changed. So a
generator is made once more, from moments with noise of the same size added, and compared with the
first. It costs no privacy, since nothing but the sums is used.
"""

import numpy as np

from fedeas.generators.own.denoise import clean_moments, positive
from fedeas.generators.quantiles import Floats
from fedeas.generators.row_space import RowSpace
from fedeas.privacy.queries.moments import Moments
from fedeas.seeds import child_rng

_TIMES = 3  # draws of the noise


def row_quality(space: RowSpace, found: Moments, radius: float) -> tuple[float, ...]:
    """Return D / (D + E) for every class: 1 without noise, 0 if nothing tells it from another.

    D is the Kullback-Leibler divergence from the class that is nearest, E that which further noise
    brings about.

    Parameters
    ----------
    space, found, radius
        The space of rows, and the noisy moments in it, as for `clean_moments`.
    """
    rng = child_rng(0, "quality")
    first = _normals(space, found, radius)
    between = np.stack([_divergences(first, mean, root) for mean, root in zip(*first, strict=True)])
    np.fill_diagonal(between, np.inf)
    apart = between.min(axis=0)
    missed = np.zeros(len(apart))
    for _ in range(_TIMES):
        again = _normals(space, _noised(found, rng), radius)
        for c, (mean, root) in enumerate(zip(*first, strict=True)):
            missed[c] += _divergences((again[0][c : c + 1], again[1][c : c + 1]), mean, root)[0]
    quality = apart / np.maximum(apart + missed / _TIMES, 1e-12)
    return tuple(np.clip(quality, 0.0, 1.0).round(3).tolist())


def _normals(space: RowSpace, found: Moments, radius: float) -> tuple[Floats, Floats]:
    """Return the mean and the root of the covariance of every class, without noise."""
    clean = clean_moments(space, found, radius)
    means = clean.sums / clean.counts[:, np.newaxis]
    seconds = clean.squares / clean.counts[:, np.newaxis, np.newaxis]
    covariances = seconds - np.einsum("ci,cj->cij", means, means)
    return means, np.linalg.cholesky(np.stack([positive(one) for one in covariances]))


def _noised(found: Moments, rng: np.random.Generator) -> Moments:
    """Add the noise once more, where there is any."""
    means = found.means + rng.standard_normal(found.means.shape) * found.mean_errors[:, np.newaxis]
    drawn = rng.standard_normal(found.seconds.shape) / np.sqrt(2)
    # Of a symmetric matrix, so that entries off the diagonal have 1 / sqrt(2) of its error.
    noise = (drawn + drawn.swapaxes(1, 2)) / np.sqrt(2)
    seconds = found.seconds + noise * found.second_errors[:, np.newaxis, np.newaxis]
    return found._replace(means=means, seconds=seconds)


def _divergences(normals: tuple[Floats, Floats], mean: Floats, root: Floats) -> Floats:
    """Return the Kullback-Leibler divergence of each of some normal distributions from one."""
    means, roots = normals
    inverse = np.linalg.inv(root)
    white = inverse @ roots
    sizes = np.log(np.diag(root)).sum() - np.log(np.einsum("cii->ci", roots)).sum(axis=1)
    far = np.square((means - mean) @ inverse.T).sum(axis=1)
    found: Floats = (np.square(white).sum(axis=(1, 2)) + far - len(mean)) / 2 + sizes
    return np.maximum(found, 0.0)
