"""Label counts from the JSON file of NVFlare's federated statistics.

Its writer (`JsonStatsFileWriter`) saves `{feature: {"count": {site: {data set: n}}, "histogram":
{site: {data set: [[low, high, n], ...]}}}}`, where a site called Global is the sum of the others.
The histogram of a label that is a whole number from 0 on has the label counts, if each bin has one
whole number in it. A bin has its lower edge, and only the last one its upper edge.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedeas.countfiles.table import Options, Table, TableError, listed
from fedeas.errors import InputError

_GLOBAL = "Global"
_BINS = "with bins = C and range = [0, C - 1] each of C labels has a bin of its own"


def is_statistics(content: object) -> bool:
    """Tell whether the content of a file is NVFlare's federated statistics."""
    return isinstance(content, dict) and any(
        isinstance(feature, dict) and isinstance(feature.get("histogram"), dict)
        for feature in content.values()
    )


def read_statistics(path: object, content: Mapping[str, Any], options: Options) -> Table:
    """Read the histogram of the label; `label` names the feature, `sheet` the data set."""
    features = [name for name, value in content.items() if is_statistics({"": value})]
    label = _chosen(path, "feature is the label", "label", options.label, features)
    histogram = content[label]["histogram"]
    sites = [site for site in histogram if site != _GLOBAL]
    if not sites or not all(isinstance(histogram[site], dict) for site in histogram):
        raise InputError(f"{path}: the histogram of {label!r} has no sites")
    data_sets = list(dict.fromkeys(name for site in sites for name in histogram[site]))
    data_set = _chosen(path, "data set is meant", "sheet", options.sheet, data_sets)
    sites = [site for site in sites if data_set in histogram[site]]
    counts = content[label].get("count", {})
    rows = []
    for site in sites:
        row = _by_label(f"{path}: {label} at {site}", histogram[site][data_set])
        stated = counts.get(site, {}).get(data_set) if isinstance(counts, dict) else None
        if stated is not None and stated != sum(row.values()):
            raise InputError(
                f"{path}: {site} has labels outside of its histogram",
                got=f"{stated} samples, {sum(row.values())} in the bins",
                fix=_BINS,
            )
        rows.append(row)
    labels = sorted(set().union(*rows))
    values = np.array([[row.get(label, 0) for label in labels] for row in rows], np.int64)
    whole = histogram.get(_GLOBAL, {}).get(data_set)
    if whole is not None:
        sums = _by_label(f"{path}: {label} of all sites", whole)
        if [sums.get(value, 0) for value in labels] != values.sum(axis=0).tolist():
            raise InputError(f"{path}: the sites do not add up to {_GLOBAL!r}, so one is not there")
    description = f"federated statistics of NVFlare, the histogram of {label!r} in {data_set!r}"
    names = tuple(str(value) for value in labels)
    # Labels 0, 1, 2 are classes here, whatever else a heading of numbers may be.
    return Table(values, tuple(sites), names, description=description, saved=True)


def _chosen(path: object, what: str, option: str, chosen: str | None, names: list[str]) -> str:
    """Return the name that is given, or the only one that there is."""
    if chosen in names or (chosen is None and len(names) == 1):
        return chosen or names[0]
    raise TableError(
        f"{path}: which {what}?",
        ({option: names[0]}, "for example"),
        got=chosen,
        allowed=listed(names),
    )


def _by_label(where: str, bins: object) -> dict[int, int]:
    """Return the count of every label; each bin that is not empty must hold one whole number."""
    counts: dict[int, int] = {}
    edges = bins if isinstance(bins, list) else []
    for place, edge in enumerate(edges):
        try:
            low, high, n = edge
            last = place == len(edges) - 1
            inside = range(math.ceil(low), math.floor(high) + 1 if last else math.ceil(high))
            if n != int(n) or n < 0:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{where}: not a bin of a histogram", got=edge) from None
        if len(inside) > 1 or (n and (len(inside) != 1 or inside[0] < 0)):
            raise InputError(
                f"{where}: the bin from {low:g} to {high:g} can be of {len(inside)} labels",
                allowed="one whole number from 0 on in each bin",
                fix=_BINS,
            )
        if inside and inside[0] >= 0:
            counts[inside[0]] = int(n)
    if not counts:
        raise InputError(f"{where}: the histogram has no bins")
    return counts
