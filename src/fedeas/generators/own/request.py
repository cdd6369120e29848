"""What a generator was asked for, written beside it: a folder is of one request for good."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.files import make_folder, read_json, write_json
from fedeas.generators.own.card import CARD
from fedeas.privacy.queries.query import Ints

REQUEST = "request.json"
VERSION = 2  # of how generators are made: those of others are not used


def claim_folder(folder: Path, request: Mapping[str, Any]) -> None:
    """Write a request into a folder, before anything is paid for, or see that it is the same.

    Parameters
    ----------
    folder : Path
        The generator's folder.
    request : mapping
        All that the sums and the generator depend on, as values of JSON.
    """
    request = {"version": VERSION, **request}
    path = folder / REQUEST
    if not path.exists() and not (folder / CARD).exists():
        make_folder(folder)
        write_json(path, request)
        return
    other = read_json(path) if path.exists() else {}
    known = other if isinstance(other, dict) else {}
    if differ := [key for key in request if known.get(key) != request[key]]:
        raise InputError(
            f"{folder} holds a generator that was made for another request",
            got=", ".join(f"{key} {_short(request[key])}" for key in differ),
            allowed=", ".join(f"{key} {_short(known.get(key))}" for key in differ),
            fix="choose another folder: another request is paid for once more",
        )


def simulated_request(
    data: Dataset,
    sites: Sequence[Ints],
    epsilon: float,
    delta: float,
    way: str,
    seed: int,
    steps: int | None,
    seeded_noise: bool,
) -> dict[str, Any]:
    """Return all that a generator of a simulation depends on.

    Parameters
    ----------
    data, sites
        The samples, and where each site's are.
    epsilon, delta, way, seed, steps, seeded_noise
        How it is made.
    """
    places = hashlib.sha256()
    for own in sites:
        places.update(len(own).to_bytes(8, "little"))
        places.update(np.ascontiguousarray(own, dtype="<i8").data)
    return {
        "epsilon": float(epsilon), "delta": float(delta), "way": way, "seed": seed,
        "steps": steps, "seeded_noise": seeded_noise, "data": data.fingerprint,
        "sites": len(sites), "samples": places.hexdigest(),
    }  # fmt: skip


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
