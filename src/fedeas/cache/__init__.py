"""Generated samples on disk: known by what they come from, safe against crashes and damage."""

from fedeas.cache.client_samples import ClientSamples, Planned
from fedeas.cache.fill import Filled, client_samples, fill
from fedeas.cache.store import Cache
from fedeas.cache.verify import Problem, verify

__all__ = [
    "Cache",
    "ClientSamples",
    "Filled",
    "Planned",
    "Problem",
    "client_samples",
    "fill",
    "verify",
]
