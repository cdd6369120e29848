"""The card of a generator from noisy sums: what it is, what it cost, and what it is good for."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedeas.errors import InputError
from fedeas.files import atomic_write, read_text
from fedeas.privacy.accounting import UNIT

CARD = "generator.json"
WEIGHTS = "weights.safetensors"
FORMAT = "own/1"
GOOD_FOR = (
    "further training samples of classes that a site lacks; it may be given to anybody who may "
    "know the classes and about how many samples the federation has"
)
NOT_FOR = (
    "looking at single samples, judging a model, or drawing conclusions about anybody: samples "
    "show what is common in a class, blurred by the noise, and rare cases not at all"
)
LICENCE = (
    "made of noise and sums over the sites' samples: whatever the sites agreed on for their data; "
    "the code is Apache-2.0"
)


@dataclass(frozen=True)
class Card:
    """What comes with the weights.

    Parameters
    ----------
    way : str
        How it was made: 'embedding' or 'moments'.
    classes, shape
        The names of the classes, and the shape of a sample.
    epsilon, delta : float
        What the sum cost one sample of a site; `unit` says so. An infinite epsilon is no guarantee.
    sites : int
        How many sites are in the sum.
    counts, quality : tuple of float
        Per class: how many samples the sum says there are, and the quality from 0 to 1.
    settings : dict
        Of the query and of the network.
    """

    way: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    epsilon: float
    delta: float
    sites: int
    counts: tuple[float, ...]
    quality: tuple[float, ...]
    settings: Mapping[str, Any]

    def write(self, folder: Path) -> None:
        """Write the card; it comes last: a folder without one is not a generator."""
        body: dict[str, Any] = {"format": FORMAT, **asdict(self), "unit": UNIT}
        # JSON has no infinity.
        body["epsilon"] = None if math.isinf(self.epsilon) else self.epsilon
        body |= {"good_for": GOOD_FOR, "not_for": NOT_FOR, "licence": LICENCE}
        if math.isinf(self.epsilon):
            body["warning"] = "made without noise: no guarantee of privacy"
        with atomic_write(folder / CARD) as temporary:
            temporary.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Card":
        """Read the card of a generator's folder."""
        path = folder / CARD
        text = read_text(path)
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise ValueError("another format")
            return cls(
                str(body["way"]),
                tuple(map(str, body["classes"])),
                tuple(map(int, body["shape"])),
                math.inf if body["epsilon"] is None else float(body["epsilon"]),
                float(body["delta"]),
                int(body["sites"]),
                tuple(map(float, body["counts"])),
                tuple(map(float, body["quality"])),
                dict(body["settings"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(
                f"{path} is not the card of a generator from sums",
                fix="pass a folder of `own`",
            ) from None
