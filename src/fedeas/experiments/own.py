"""`generator = "own(epsilon=1)"`: a run's generator, made from the run's own clients.

It is made once per data, partition, settings and seed, and kept with what fedeas can recreate; runs
that differ in anything else share it. Its noise comes from the operating system, so that another
machine makes another generator; `own(epsilon=1, seeded_noise=true)` makes the same one everywhere,
without any guarantee.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedeas.data import Federation
from fedeas.errors import InputError
from fedeas.files import content_hash, store_folder
from fedeas.generators.generator import heavy
from fedeas.generators.own.card import CARD
from fedeas.generators.own.request import VERSION, simulated_request
from fedeas.locks import locked
from fedeas.privacy.accounting import DELTA
from fedeas.progress import progress
from fedeas.specs import parse, quoted

_SETTINGS = ("epsilon", "delta", "way", "steps", "seeded_noise")


def made_spec(spec: str, federation: Federation, seed: int) -> str:
    """Return a generator's name that every process can open; `own` without a model is made first.

    Parameters
    ----------
    spec : str
        A generator by name, with its settings.
    federation : Federation
        The run's clients.
    seed : int
        Of training, and of the noise if it is seeded.
    """
    name, settings = parse(spec, "generator")
    if name != "own" or "model" in settings:
        return spec
    if unknown := [key for key in settings if key not in _SETTINGS]:
        raise InputError(
            f"generator 'own' has no setting {unknown[0]!r}",
            allowed=", ".join((*_SETTINGS, "or model alone")),
        )
    made = heavy("fedeas.generators.own.make", "the generator 'own'", "train")
    chosen = _chosen(settings, made.check_way(str(settings.get("way", "")), federation.data.kind))
    sites = [np.asarray(site) for site in federation.partition.train]
    request = simulated_request(federation.data, sites, seed=seed, **chosen)
    folder = store_folder() / "own" / content_hash({"version": VERSION, **request})[:16]
    if not (folder / CARD).exists():
        with locked(folder):
            if not (folder / CARD).exists():  # another run may have made it meanwhile
                training = made.training_of(chosen.pop("steps"))
                with progress("making the generator") as update:
                    made.make_own(
                        federation.data, sites, seed=seed, training=training, out=folder,
                        report=update, **chosen,
                    )  # fmt: skip
    return f"own(model={quoted(str(folder))})"


def own_epsilon(spec: str) -> float | None:
    """Return the epsilon of a run's own generator; None for any other generator.

    None for seeded noise too: whoever knows the seed can take it off, so nothing is guaranteed.

    >>> own_epsilon("own(epsilon=3)"), own_epsilon("own"), own_epsilon("copies")
    (3.0, 1.0, None)
    """
    name, settings = parse(spec, "generator")
    if name != "own" or "model" in settings or settings.get("seeded_noise", False) is not False:
        return None
    return float(str(settings.get("epsilon", 1.0)))


def _chosen(settings: Mapping[str, Any], way: str) -> dict[str, Any]:
    """Return all settings: one that is left out is the same as its default."""
    seeded = settings.get("seeded_noise", False)
    if not isinstance(seeded, bool):
        raise InputError("seeded_noise is true or false", got=seeded)
    try:
        epsilon, delta = (
            float(str(settings.get(name, default)))
            for name, default in (("epsilon", 1.0), ("delta", DELTA))
        )
        steps = None if settings.get("steps") is None else int(settings["steps"])
    except (TypeError, ValueError):
        raise InputError("a setting of 'own' is not a number", got=dict(settings)) from None
    return {
        "epsilon": epsilon, "delta": delta, "way": way, "steps": steps, "seeded_noise": seeded,
    }  # fmt: skip
