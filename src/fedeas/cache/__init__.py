"""Generated samples on disk: known by what they come from, safe against crashes and damage."""

from fedeas.cache.client_samples import ClientSamples
from fedeas.cache.fill import Filled
from fedeas.cache.store import Cache, verify

__all__ = [
    "Cache",
    "ClientSamples",
    "Filled",
    "verify",
]
