"""What one client has, wherever it is: its real samples, its synthetic ones, a folder of its own.

Does not import torch: in a deployment every message starts a new process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context

from fedeas.cache import ClientSamples
from fedeas.privacy.secure_sum.identity import Identity
from fedeas.settings.deployment import SiteConfig
from fedeas.training.samples import Samples


@dataclass(frozen=True)
class Site:
    """What one client has: its number, its real samples, a folder of its own."""

    partition: int
    real: Samples  # N_k of them: its weight, whatever is generated
    # Real and generated samples; takes the policy that the server of a deployed site names.
    samples: Callable[[str], Samples]
    folder: Path
    device: str = "auto"
    methods: tuple[str, ...] | None = None  # that it takes part in; None: in all
    hide_sample_counts: bool = False  # whether it does not tell how much it generated
    limits: SiteConfig | None = None  # of what a server may ask for; None in a simulation
    # Its key and the members of the federation, for secure sums; None where it has no key.
    identity: Callable[[], Identity | None] = lambda: None
    sums: Path | None = None  # folder of what it keeps during a secure sum


OpenSite = Callable[[Context], Site]


def with_synthetic(real: Samples, synthetic: ClientSamples) -> Samples:
    """Return a client's real samples and its synthetic ones, generated on first use."""
    made = synthetic.draw(real.counts(), real.data.classes, real.data.samples, real)
    return Samples.of(real.data, real.indices, *made)
