"""The card of a generator that a federation trained: who trained it, and what it may reveal."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fedeas.files import atomic_write

_FILE = "card.json"


@dataclass(frozen=True)
class Card:
    """How a federation trained a generator; it is kept in the generator's folder.

    Parameters
    ----------
    sites : int
        The sites of the federation.
    rounds : int
        The rounds of training.
    secure : bool
        Whether updates left the sites in secure sums only.
    epsilon, delta : float or None
        Differential privacy of one sample of a site in the whole training; None: no guarantee.
    samples : int or None
        The samples of all sites; None if the sites do not tell.
    """

    sites: int
    rounds: int
    secure: bool
    epsilon: float | None = None
    delta: float | None = None
    samples: int | None = None

    @property
    def guarantee(self) -> str:
        """The guarantee in words."""
        if self.epsilon is None:
            return (
                "none: samples can resemble training images; measure memorisation before you "
                "share them"
            )
        return (
            "differential privacy of one sample of a site, added, removed or replaced by another, "
            f"epsilon = {self.epsilon:g}, delta = {self.delta:g}, over all rounds"
        )

    def save(self, folder: Path) -> None:
        """Write the card into a generator's folder."""
        trained = f"by {self.sites} sites in {self.rounds} rounds of federated training"
        said = {"trained": trained, "guarantee": self.guarantee, **asdict(self)}
        with atomic_write(folder / _FILE) as temporary:
            temporary.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
