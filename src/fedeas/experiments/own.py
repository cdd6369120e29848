"""`generator = "own(epsilon=1)"`: a run's generator, made from the run's own clients.

It is made once per data, partition, epsilon, way and seed, and kept with what fedeas can recreate;
runs that differ in anything else share it.
"""

import hashlib
from pathlib import Path

import numpy as np

from fedeas.data import Federation
from fedeas.errors import InputError
from fedeas.files import content_hash, store_folder
from fedeas.generators.generator import heavy
from fedeas.generators.own.card import CARD
from fedeas.locks import locked
from fedeas.progress import progress
from fedeas.specs import parse, quoted

_VERSION = 1  # of how generators are made: others are not reused
_SETTINGS = ("epsilon", "delta", "way", "steps")


def made_spec(spec: str, federation: Federation, seed: int) -> str:
    """Return a generator's name that every process can open; `own` without a model is made first.

    Parameters
    ----------
    spec : str
        A generator by name, with its settings.
    federation : Federation
        The run's clients.
    seed : int
        Of the simulated noise, and of training.
    """
    name, settings = parse(spec, "generator")
    if name != "own" or "model" in settings:
        return spec
    if unknown := [key for key in settings if key not in _SETTINGS]:
        raise InputError(
            f"generator 'own' has no setting {unknown[0]!r}",
            allowed=", ".join((*_SETTINGS, "or model alone")),
        )
    folder = _folder(settings, federation, seed)
    if not (folder / CARD).exists():
        with locked(folder):
            if not (folder / CARD).exists():  # another run may have made it meanwhile
                _make(settings, federation, seed, folder)
    return f"own(model={quoted(str(folder))})"


def own_epsilon(spec: str) -> float | None:
    """Return the epsilon of a run's own generator; None for any other generator.

    >>> own_epsilon("own(epsilon=3)"), own_epsilon("own"), own_epsilon("copies")
    (3.0, 1.0, None)
    """
    name, settings = parse(spec, "generator")
    if name != "own" or "model" in settings:
        return None
    return float(str(settings.get("epsilon", 1.0)))


def _folder(settings: dict[str, object], federation: Federation, seed: int) -> Path:
    """Name a folder after everything that the generator depends on."""
    train = federation.partition.train
    sites = hashlib.sha256()
    for own in train:
        sites.update(len(own).to_bytes(8, "little"))
        sites.update(np.ascontiguousarray(own, dtype="<i8").data)
    depends = {
        "version": _VERSION, "settings": {k: str(settings[k]) for k in sorted(settings)},
        "data": federation.data.fingerprint, "sites": sites.hexdigest(), "seed": seed,
    }  # fmt: skip
    return store_folder() / "own" / content_hash(depends)[:16]


def _make(settings: dict[str, object], federation: Federation, seed: int, folder: Path) -> None:
    own = heavy("fedeas.generators.own.make", "the generator 'own'", "torch")
    chosen = dict(settings)
    training = own.training_of(chosen.pop("steps", None))
    with progress("making the generator") as update:
        own.make_own(
            federation.data,
            [np.asarray(site) for site in federation.partition.train],
            seed=seed,
            training=training,
            out=folder,
            report=update,
            **chosen,
        )
