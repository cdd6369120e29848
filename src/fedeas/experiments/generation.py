"""The cost of generation, from the results of runs and the caches that they share.

Runs share their samples: one may find all of its own in a cache that other runs, or a command,
filled before. A result therefore also holds what all samples of its cache took.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fedeas.experiments.results import Result

_Cache = tuple[str, ...]


@dataclass(frozen=True)
class Generation:
    """Samples of one generator, each counted once, and the seconds that they took."""

    generator: str
    made: int
    seconds: float
    by_runs: int  # of these, made while the runs ran


def generations(results: Iterable[Result]) -> Iterator[Generation]:
    """Yield what was generated for some runs, cache by cache; a copy of a run counts once."""
    by_cache: dict[_Cache, list[Result]] = {}
    for result in {result["experiment"]: result for result in results}.values():
        if result["generated"]:
            seed = str(result["settings"]["augment"].get("seed", 0))
            # Results of an earlier version do not name their cache: every federation had its own.
            cache = result["generation"].get("cache") or result["counts_hash"]
            key = (result["generator"], result["generator_hash"], str(cache), seed)
            by_cache.setdefault(key, []).append(result)
    for (generator, *_), runs in by_cache.items():
        by_runs = sum(result["generation"]["made"] for result in runs)
        own = (by_runs, sum(result["generation"]["seconds"] for result in runs))
        # A cache grows: the result with the most samples is the latest.
        known = [*(_in_cache(result) for result in runs), own]
        made, seconds = max(known, key=lambda pair: pair[0])
        yield Generation(generator, made, seconds, min(made, by_runs))


def seconds_per_sample(results: Iterable[Result]) -> dict[str, float]:
    """Return the seconds per sample of every generator that was timed."""
    sums: dict[str, tuple[int, float]] = {}
    for one in generations(results):
        made, seconds = sums.get(one.generator, (0, 0.0))
        sums[one.generator] = made + one.made, seconds + one.seconds
    return {name: seconds / made for name, (made, seconds) in sums.items() if made}


def _in_cache(result: Result) -> tuple[int, float]:
    known: Any = result["generation"].get("in_cache")
    try:
        return int(known["made"]), float(known["seconds"])
    except (KeyError, TypeError, ValueError):
        return 0, 0.0  # a result of an earlier version
