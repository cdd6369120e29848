"""The card of a generator from noisy sums: what it is, what it cost, and what it is good for."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedeas.errors import InputError
from fedeas.files import atomic_write, read_text
from fedeas.generators.training_data import TrainingData
from fedeas.privacy.accounting import UNIT, UNIT_REPLACED, replace_one_epsilon, rho_for

CARD = "generator.json"
WEIGHTS = "weights.safetensors"
FORMAT = "own/1"
GOOD_FOR = "further training samples of classes that a site lacks"
MAY_SEE = "anybody who may know the classes and about how many samples the federation has"
NOBODY = (
    "no guarantee of privacy: the sums had no noise, or noise from a seed, which anybody can draw "
    "again and subtract; give it to nobody who may not see the samples"
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
        How it was made: 'moments', 'features' or 'embedding'.
    classes, shape
        The names of the classes, and the shape of a sample.
    epsilon, delta : float
        What the sums cost one sample of a site, added or removed. An infinite epsilon is no
        guarantee: the sums had no noise, or noise that can be drawn again.
    sites : int
        How many sites are in the sum.
    counts, quality : tuple of float
        Per class: how many samples the sum says there are, and the quality from 0 to 1.
    settings : dict
        Of the query and of the network.
    checked : str
        What the sums were compared with before they were used.
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
    checked: str = ""

    @property
    def epsilon_replaced(self) -> float:
        """What the sums cost one sample that is replaced by any other, at most."""
        if math.isinf(self.epsilon):
            return math.inf
        return replace_one_epsilon(rho_for(self.epsilon, self.delta), self.delta)

    @property
    def training_data(self) -> TrainingData:
        """What it was made of, as far as the sums tell."""
        about = f"sums over about {sum(self.counts):,.0f} samples of {self.sites:,} sites"
        noise = "sums without a guarantee" if math.isinf(self.epsilon) else "noisy sums"
        return TrainingData(about.replace("sums", noise, 1))

    @property
    def cost(self) -> str:
        """The guarantee in words, in both units."""
        if math.isinf(self.epsilon):
            return "no guarantee"
        return (
            f"epsilon {self.epsilon:.3g}, delta {self.delta:g} for one sample of a site, added or "
            f"removed; epsilon {self.epsilon_replaced:.3g} for one that is replaced by another"
        )

    def write(self, folder: Path) -> None:
        """Write the card; it comes last: a folder without one is not a generator."""
        body: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        if math.isinf(self.epsilon):
            body |= {"epsilon": None, "warning": NOBODY}  # JSON has no infinity
        else:
            replaced = round(self.epsilon_replaced, 4)
            body |= {"unit": UNIT, "epsilon_replaced": replaced, "unit_replaced": UNIT_REPLACED}
            body["may_be_given_to"] = MAY_SEE
        body |= {"good_for": GOOD_FOR, "not_for": NOT_FOR, "licence": LICENCE}
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
                str(body.get("checked", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(
                f"{path} is not the card of a generator from sums",
                fix="pass a folder of `own`",
            ) from None
