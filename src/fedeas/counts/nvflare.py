"""NVFlare's federated statistics (JSON): the histogram of a label at every site, as counts.

The file holds, for each feature, statistics by site and data set, and over all sites as 'Global':

    {"diagnosis": {"count": {"site-1": {"train": 124}, ...},
                   "histogram": {"site-1": {"train": [[-0.5, 0.5, 120], [0.5, 1.5, 4]]}, ...}}}

NVFlare counts the upper end of the last bin too, leaves out labels outside the range without a
word, and its privacy filters remove whole histograms: each of these would be a wrong count.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedeas._internal.scalars import LARGEST
from fedeas.counts.files import Table
from fedeas.errors import InputError

_GLOBAL = "Global"
_TRAIN = "train"
_FIX = 'for labels 0 to C - 1, give the histogram "bins": C and "range": [-0.5, C - 0.5]'
Histogram = dict[tuple[float, float], int]  # the ends of a bin, and how many


def features_of(content: object) -> list[str]:
    """Return the features that have a histogram; none where the file is no statistics."""
    if not isinstance(content, dict):
        return []
    return [
        name
        for name, of in content.items()
        if isinstance(of, dict) and isinstance(of.get("histogram"), dict)
    ]


def read_statistics(
    path: Path, content: Mapping[str, Any], feature: str
) -> tuple[Table, list[str]]:
    """Return the counts of every site, and what in the file makes them doubtful."""
    if _GLOBAL in content:
        raise InputError(f"{path} holds hierarchical statistics", allowed="statistics by site")
    where = f"{path}, feature {feature!r}"
    by_site, dataset = _of_dataset(where, content[feature]["histogram"])
    histograms = {site: _histogram(f"{where} at {site!r}", of) for site, of in by_site.items()}
    total = histograms.pop(_GLOBAL, None)
    sites = sorted(histograms)
    if not sites:
        raise InputError(f"{where}: no site has a histogram", got=list(by_site))
    bins = list(histograms[sites[0]])
    labels = [_label(where, low, high, (low, high) == bins[-1]) for low, high in bins]
    for site in sites:
        if list(histograms[site]) != bins:
            raise InputError(f"{where}: sites have different bins", got=(sites[0], site), fix=_FIX)
    values = np.array([list(histograms[site].values()) for site in sites], np.int64)
    if total is not None and total != dict(zip(bins, values.sum(axis=0).tolist(), strict=True)):
        raise InputError(f"{where}: {_GLOBAL!r} is not the sum of the sites", got=total)
    sums = dict(zip(sites, values.sum(axis=1).tolist(), strict=True))
    doubts = list(_missing(content[feature], dataset, sums))
    if bins[-1][1] == int(labels[-1]) + 1:
        doubts.append(f"the last bin counts label {bins[-1][1]:g} as {labels[-1]}; {_FIX}")
    return Table(values, tuple(sites), tuple(labels)), doubts


def _of_dataset(where: str, by_site: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the bins of every site in one data set: the only one, or the one named train."""
    if strange := [site for site, of in by_site.items() if not isinstance(of, dict)]:
        raise InputError(f"{where}: no data sets at a site", got=strange[0])
    names = list(dict.fromkeys(name for of in by_site.values() for name in of))
    if len(names) != 1 and _TRAIN not in names:
        raise InputError(f"{where}: no data set {_TRAIN!r}", got=", ".join(names))
    dataset = names[0] if len(names) == 1 else _TRAIN
    return {site: of[dataset] for site, of in by_site.items() if dataset in of}, dataset


def _histogram(where: str, bins: Any) -> Histogram:
    """Return the bins of a site, each by its ends."""
    if not isinstance(bins, list) or not bins or not all(map(_is_bin, bins)):
        raise InputError(f"{where}: not a histogram", got=bins, allowed="[[low, high, count], ...]")
    histogram = {(low, high): int(count) for low, high, count in bins}
    if len(histogram) < len(bins):
        raise InputError(f"{where}: a bin appears twice", got=bins)
    return histogram


def _is_bin(row: object) -> bool:
    """Tell whether a row is [low, high, count] with a whole count."""
    if not isinstance(row, list) or len(row) != 3:
        return False
    if any(isinstance(cell, bool) or not isinstance(cell, int | float) for cell in row):
        return False
    low, high, count = row
    return all(math.isfinite(x) and abs(x) <= LARGEST for x in row) and (
        low <= high and count >= 0 and count == int(count)
    )


def _label(where: str, low: float, high: float, last: bool) -> str:
    """Return the one label in a bin; the upper end of the last bin is counted too."""
    inside = list(range(math.ceil(low), math.ceil(high))[:2])
    if not inside and last and high == math.ceil(high):
        inside = [int(high)]
    if len(inside) != 1:
        raise InputError(f"{where}: a bin is not one class", got=f"{low:g} to {high:g}", fix=_FIX)
    return str(inside[0])


def _missing(feature: Mapping[str, Any], dataset: str, sums: Mapping[str, int]) -> Iterator[str]:
    """Name sites whose samples are in no bin, and those without a histogram."""
    by_site = feature.get("count")
    counts = {
        site: of.get(dataset)
        for site, of in (by_site.items() if isinstance(by_site, dict) else ())
        if site != _GLOBAL and isinstance(of, dict) and dataset in of
    }
    for site in sorted((set(counts) | set(feature["histogram"])) - {_GLOBAL} - set(sums)):
        yield f"no histogram of {site!r}: NVFlare's privacy filter may have removed it"
    for site, count in counts.items():
        if site in sums and count != sums[site]:
            yield f"{site!r} has {count} samples, and {sums[site]} in its histogram"
