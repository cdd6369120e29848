"""What a cache holds, for tests that compare caches or damage them."""

import hashlib
from pathlib import Path

import numpy as np

from fedeas import Plan
from fedeas.cache import Cache
from fedeas.cache.shards import read_shard
from fedeas.cache.store import read_about


def rows_of(cache: Cache) -> list[tuple[str, int, int, int, str]]:
    """Every row of every shard, those that stand twice too: of whom, which, and its bytes' hash."""
    return sorted(
        (name, label, index, seed, hashlib.sha256(sample.tobytes()).hexdigest())
        for entry in cache.all_entries()
        for name, rows in read_shard(entry, read_about(entry.storage).form)
        for label, index, seed, sample in zip(
            rows.labels.tolist(), rows.indices.tolist(), rows.seeds.tolist(), rows.samples,
            strict=True,
        )
    )  # fmt: skip


def samples_of(cache: Cache, plan: Plan) -> str:
    """The hash of all samples of a plan, as clients read them."""
    digest = hashlib.sha256()
    for name, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
        samples, labels = cache.samples(name, wanted)
        assert (np.bincount(labels, minlength=len(wanted)) == wanted).all()
        digest.update(np.ascontiguousarray(samples).tobytes())
    return digest.hexdigest()


def shards(folder: Path) -> list[Path]:
    """The shards of a cache."""
    return sorted(folder.rglob("*.parquet"))


def flip_samples(folder: Path) -> Path:
    """Flip a bit in the middle of a shard, where its samples are; return the shard."""
    path = shards(folder)[-1]
    flip(path, path.stat().st_size // 2)
    return path


def flip(path: Path, at: int, mask: int = 0x10) -> None:
    """Flip bits of one byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)
