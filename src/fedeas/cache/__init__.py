"""Generated samples on disk: content-addressed, per client, safe against crashes and damage."""

from fedeas.cache.fill import Filled, check_classes, client_samples, fill
from fedeas.cache.store import Cache, ClientCache
from fedeas.cache.verify import Problem, verify

__all__ = [
    "Cache",
    "ClientCache",
    "Filled",
    "Problem",
    "check_classes",
    "client_samples",
    "fill",
    "verify",
]
