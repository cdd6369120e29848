"""Generated samples in Parquet shards: known by what they come from, written by anybody at once."""

from fedeas.cache.client_samples import ClientSamples
from fedeas.cache.fill import Filled, FillStatus, fill_by_client
from fedeas.cache.store import Cache, verify

__all__ = [
    "Cache",
    "ClientSamples",
    "FillStatus",
    "Filled",
    "fill_by_client",
    "verify",
]
