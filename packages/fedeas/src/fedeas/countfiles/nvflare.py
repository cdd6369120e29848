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

from fedeas.countfiles.read import as_count
from fedeas.countfiles.table import Doubt, Table, TableError, listed, names_labels, shown
from fedeas.errors import InputError

_GLOBAL = "Global"
_TRAIN = "train"
_FIX = 'for labels 0 to C - 1, give the histogram "bins": C and "range": [-0.5, C - 0.5]'
Histogram = dict[tuple[float, float], int]  # the ends of a bin, and how many


def is_statistics(content: object) -> bool:
    """Tell whether the content of a JSON file is NVFlare's statistics with a histogram."""
    return isinstance(content, dict) and any(
        isinstance(of, dict) and isinstance(of.get("histogram"), dict) for of in content.values()
    )


def read_statistics(path: Path, content: Mapping[str, Any], label: str | None) -> Table:
    """Return the counts of every site, from the histograms of the feature `label`."""
    if _GLOBAL in content:
        raise InputError(
            f"{path} holds NVFlare's hierarchical statistics",
            allowed="statistics by site, as FedStatsRecipe writes them",
        )
    features = [name for name, of in content.items() if is_statistics({name: of})]
    if label is None and len(features) > 1:
        likely = next(filter(names_labels, features), features[0])
        raise TableError(
            f"{path}: several features, and none is named as the label",
            ({"label": likely}, "for example"),
            allowed=listed(features),
        )
    feature = features[0] if label is None else label
    if feature not in features:
        raise InputError(f"{path} has no histogram of it", got=feature, allowed=listed(features))
    where = f"{path}, feature {shown(feature)}"
    by_site, dataset = _of_dataset(where, content[feature]["histogram"])
    histograms = {site: _histogram(where, site, bins) for site, bins in by_site.items()}
    total = histograms.pop(_GLOBAL, None)
    sites = sorted(histograms)
    if not sites:
        raise InputError(f"{where}: no site has a histogram", got=listed(by_site))
    ends = list(histograms[sites[0]])
    classes = _classes(where, ends)
    for site in sites:
        if list(histograms[site]) != ends:
            raise InputError(
                f"{where}: sites have different bins",
                got=f"{shown(sites[0])} and {shown(site)}",
                fix='give the histogram a "range" in NVFlare\'s configuration',
            )
    values = np.array([list(histograms[site].values()) for site in sites], np.int64)
    sums_of_bins = dict(zip(ends, values.sum(axis=0).tolist(), strict=True))
    if total is not None and total != sums_of_bins:
        raise InputError(
            f"{where}: {_GLOBAL!r} is not the sum of the sites",
            got=list(total.values()),
            allowed=str(values.sum(axis=0).tolist()),
            fix="run the statistics again: the file was changed",
        )
    sums = dict(zip(sites, values.sum(axis=1).tolist(), strict=True))
    doubts = [*_closed_end(ends, classes), *_missing(content[feature], dataset, sums)]
    description = f"NVFlare's histograms of {feature!r}, data set {dataset!r}"
    return Table(values, tuple(sites), classes, None, description, tuple(doubts))


def _of_dataset(where: str, by_site: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the bins of every site in one data set: the only one, or the one named train."""
    if strange := [site for site, of in by_site.items() if not isinstance(of, dict)]:
        raise InputError(f"{where}: no data sets at a site", got=listed(strange))
    names = list(dict.fromkeys(name for of in by_site.values() for name in of))
    if len(names) != 1 and _TRAIN not in names:
        raise InputError(f"{where}: no data set {_TRAIN!r}", got=listed(names))
    dataset = names[0] if len(names) == 1 else _TRAIN
    return {site: of[dataset] for site, of in by_site.items() if dataset in of}, dataset


def _histogram(where: str, site: str, bins: Any) -> Histogram:
    """Return the bins of a site, each by its ends."""
    name = f"{where} at {shown(site)}"
    if not isinstance(bins, list) or not bins or not all(map(_is_bin, bins)):
        raise InputError(f"{name}: not a histogram", got=bins, allowed="[[low, high, count], ...]")
    histogram = {(low, high): as_count(count, name) for low, high, count in bins}
    if len(histogram) < len(bins):
        raise InputError(f"{name}: a bin appears twice", got=bins)
    return histogram


def _is_bin(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 3:
        return False
    numbers = all(isinstance(cell, int | float) for cell in row)
    return numbers and math.isfinite(row[0]) and math.isfinite(row[1])


def _classes(where: str, ends: list[tuple[float, float]]) -> tuple[str, ...]:
    """Return the label in each bin; refuse bins that hold none or several."""
    labels = []
    for low, high in ends:
        inside = list(range(math.ceil(low), math.ceil(high))[:2])
        if not inside and (low, high) == ends[-1] and high == math.ceil(high):
            inside = [int(high)]  # the upper end of the last bin is counted too
        if len(inside) != 1:
            raise InputError(
                f"{where}: a bin that is not one class",
                got=f"{low:g} to {high:g}",
                allowed="one integer label per bin",
                fix=_FIX,
            )
        labels.append(str(inside[0]))
    return tuple(labels)


def _closed_end(ends: list[tuple[float, float]], classes: tuple[str, ...]) -> Iterator[Doubt]:
    """Doubt a last bin from 2 to 3: it holds the labels 2 and 3."""
    low, high = ends[-1]
    if high == int(classes[-1]) + 1:
        what = f"the last bin, {low:g} to {high:g}, counts label {high:g} as {classes[-1]}"
        yield Doubt(what, fix=_FIX)


def _missing(feature: Mapping[str, Any], dataset: str, sums: Mapping[str, int]) -> Iterator[Doubt]:
    """Doubt samples that are counted and in no bin, and sites without a histogram."""
    by_site = feature.get("count")
    listed_sites = set(feature["histogram"]) - {_GLOBAL}
    counts = {
        site: of[dataset]
        for site, of in (by_site.items() if isinstance(by_site, dict) else ())
        if site != _GLOBAL and isinstance(of, dict) and isinstance(of.get(dataset), int | float)
    }
    if hidden := sorted((set(counts) | listed_sites) - set(sums)):
        yield Doubt(
            f"no histogram of {listed(hidden)}: NVFlare's privacy filter may have removed it",
            fix="let these sites allow more bins (max_bins_percent), or fewer samples (min_count)",
        )
    for site in sorted(set(counts) & set(sums)):
        if counts[site] != sums[site]:
            yield Doubt(
                f"{shown(site)} has {counts[site]:,} samples, and {sums[site]:,} in its histogram",
                fix='widen the "range" of the histogram to all labels',
            )
