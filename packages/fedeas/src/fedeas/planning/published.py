"""What of a table of counts may be shown to everybody: small counts are withheld, or all are noisy.

A count from 1 to threshold - 1 is withheld; a zero is shown. Nobody should find a withheld count by
subtraction: all that is shown together leaves each of them anywhere from 1 to threshold - 1.

- Of a class, m counts are withheld that add up to S. One of them can be 1 if the others can be
  S - 1, which is at most (m - 1)(threshold - 1); it can be threshold - 1 if the others can be the
  rest, which is at least m - 1. Where S allows both it is shown. The smaller sums are shown as one
  range, up to the first that allows threshold - 1, and so are the larger ones, from the last that
  allows 1. With m < 3 there is only the range of all sums. Which range S is in does not depend on
  anything else, so a range says no more than it seems to.
- The total of a site is the range that its cells imply, which says nothing new. So classes do not
  constrain each other, and the first rule is enough.

`PublishedCounts` knows nothing else about the counts. What is computed from it alone, such as what
all its `tables` have in common, cannot tell more than it does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedeas._util.files import parse_json, read_json, read_text
from fedeas._util.scalars import LARGEST, integer
from fedeas.errors import InputError
from fedeas.planning.counts import CountsLike, LabelCounts

THRESHOLD = 10
Ints = NDArray[np.int64]
Range = tuple[int, int]
Rows: TypeAlias = Ints | slice
_ALL = slice(None)
_DEVIATIONS = 1.96  # of normal noise, on either side: 95 %


@dataclass(frozen=True, eq=False)
class PublishedCounts:
    """Counts of which the small ones are withheld.

    Parameters
    ----------
    n : array
        Sites x classes; 0 where the count is withheld.
    withheld : array of bool
        Which counts are withheld: each is from 1 to threshold - 1.
    sums : array
        Classes x 2: the least and the most that the withheld counts of each class add up to.
    threshold : int
        The smallest count that is shown.
    clients, classes : tuple of str
        Their names.
    unit : str
        What is counted: 'sample', or 'person'.

    >>> published = publish([[90, 4, 0], [80, 7, 30], [70, 9, 60]])
    >>> published.class_range(0), published.class_range(1), published.range_of([0])
    ((240, 240), (19, 27), (91, 99))
    """

    n: Ints
    withheld: NDArray[np.bool_]
    sums: Ints
    threshold: int
    clients: tuple[str, ...]
    classes: tuple[str, ...]
    unit: str = "sample"

    def range_of(self, rows: Rows, columns: Rows = _ALL) -> Range:
        """Return the fewest and the most units that a part of the table can have."""
        visible, withheld = (
            int(self.n[rows, columns].sum()),
            int(self.withheld[rows, columns].sum()),
        )
        return visible + withheld, visible + withheld * (self.threshold - 1)

    def class_range(self, column: int) -> Range:
        """Return the same for a class at all sites."""
        visible = int(self.n[:, column].sum())
        low, high = self.sums[column].tolist()
        return visible + low, visible + high

    @property
    def total_range(self) -> Range:
        """The same for the whole table."""
        ranges = [self.class_range(column) for column in range(len(self.classes))]
        return sum(low for low, _ in ranges), sum(high for _, high in ranges)

    def tables(self, number: int) -> Iterator[LabelCounts]:
        """Draw tables that agree with all that is shown; one if there is only one.

        Parameters
        ----------
        number : int
            How many.
        """
        rng = np.random.default_rng(0)
        for _ in range(number if self.withheld.any() else 1):
            n = self.n.copy()
            for column in np.flatnonzero(self.withheld.any(axis=0)):
                rows = np.flatnonzero(self.withheld[:, column])
                low, high = self.sums[column]
                total = int(rng.integers(low, high, endpoint=True))
                n[rows, column] = self._draw(rng, len(rows), total)
            yield LabelCounts(n, self.clients, self.classes)

    def _draw(self, rng: np.random.Generator, size: int, total: int) -> Ints:
        """Draw withheld counts with this sum."""
        counts, most = np.ones(size, np.int64), self.threshold - 1
        while rest := total - int(counts.sum()):
            free = counts < most
            counts = np.minimum(counts + rng.multinomial(rest, free / free.sum()), most)
        return counts


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Counts under the noise of a private sum, which may be shown as they are.

    Parameters
    ----------
    raw : array
        Sites x classes, as released: whole numbers or not, and below zero by chance.
    std : float
        The standard deviation of the noise of each.
    epsilon, delta : float
        What they cost one unit of a site.
    sites : int
        How many sites are in them; a row may be the sum of several.
    clients, classes : tuple of str
        Names of the rows and columns.
    unit : str
        What is counted, and whose privacy epsilon is: 'sample', or 'group', such as a person.
    """

    raw: NDArray[np.float64]
    std: float
    epsilon: float
    delta: float
    sites: int
    clients: tuple[str, ...]
    classes: tuple[str, ...]
    unit: str = "sample"
    threshold = 1  # noise is the protection

    @classmethod
    def load(cls, path: Path | str) -> "NoisyCounts":
        """Read a JSON file of noisy counts, such as the `policy.json` of a private federation.

        `{"noisy_counts": {"all sites": {"flu": 812.4, "cold": -3.1}}, "std": 11.2, "epsilon": 1.0,
        "delta": 1e-06, "sites": 5}`; it may have other entries.

        Parameters
        ----------
        path : path or str
            The file.
        """
        content = _content(Path(path))
        try:
            rows: dict[str, dict[str, float]] = content["noisy_counts"]
            classes = tuple(next(iter(rows.values())))
            raw = np.array([[float(row[name]) for name in classes] for row in rows.values()])
            std, epsilon, delta = (float(content[key]) for key in ("std", "epsilon", "delta"))
            unit = str(content.get("unit", "sample"))
            sites = int(content["sites"])
            counts = cls(raw, std, epsilon, delta, sites, tuple(rows), classes, unit)
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration, OverflowError):
            raise InputError(
                f"{path} has no noisy counts", allowed="noisy_counts, std, epsilon, delta, sites"
            ) from None
        sound = np.isfinite(raw).all() and (np.abs(raw) < LARGEST).all() and 0 < std < LARGEST
        if not (sound and all(len(row) == len(classes) >= 2 for row in rows.values())):
            raise InputError(
                f"{path} has no noisy counts", allowed="a finite number per class, and std above 0"
            )
        if unit not in ("sample", "group"):
            raise InputError(f"{path}: unknown unit", got=unit, allowed="sample or group")
        if epsilon <= 0 or not 0 <= delta < 1 or counts.sites < len(rows):
            raise InputError(
                f"{path}: epsilon, delta or sites out of range", got=(epsilon, delta, counts.sites)
            )
        if not counts.n.any():
            raise InputError(f"{path}: no count is above the noise", got=raw.tolist())
        return counts

    @property
    def n(self) -> Ints:
        """The counts to show: whole, and not below zero."""
        return np.maximum(np.rint(self.raw), 0).astype(np.int64)

    @property
    def withheld(self) -> NDArray[np.bool_]:
        """None is withheld."""
        return np.zeros(self.raw.shape, np.bool_)

    @property
    def margin(self) -> int:
        """How far a single count may be off, 95 times in 100."""
        return math.ceil(_DEVIATIONS * self.std)

    def range_of(self, rows: Rows, columns: Rows = _ALL) -> Range:
        """Return between which numbers a part of the table lies, 95 times in 100."""
        part = self.raw[rows, columns]
        total, margin = float(part.sum()), _DEVIATIONS * self.std * math.sqrt(part.size)
        return max(0, math.floor(total - margin)), max(0, math.ceil(total + margin))

    def class_range(self, column: int) -> Range:
        """Return the same for a class at all sites."""
        return self.range_of(_ALL, slice(column, column + 1))

    @property
    def total_range(self) -> Range:
        """The same for the whole table."""
        return self.range_of(_ALL)

    def tables(self, number: int) -> Iterator[LabelCounts]:
        """Draw tables that the noise may hide.

        Parameters
        ----------
        number : int
            How many.
        """
        rng = np.random.default_rng(0)
        for _ in range(number):
            n = np.maximum(np.rint(rng.normal(self.raw, self.std)), 0).astype(np.int64)
            yield LabelCounts(n if n.any() else self.n, self.clients, self.classes)


def has_noisy_counts(path: Path) -> bool:
    """Tell whether a file is one for `NoisyCounts.load`."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    content = _content(path)
    return isinstance(content, dict) and "noisy_counts" in content


def _content(path: Path) -> Any:
    """Return the content of a JSON file, with or without the hash that fedeas adds."""
    content = parse_json(read_text(path), str(path))
    ours = isinstance(content, dict) and content.keys() == {"sha256", "body"}
    return read_json(path) if ours else content


def publish(counts: CountsLike, threshold: int = THRESHOLD) -> PublishedCounts:
    """Withhold the small counts of a table, and the totals that would give them away.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, sites x classes.
    threshold : int
        The smallest count that is shown; 1 shows all.
    """
    allowed = "1 to show every count, or from 3 to 1,000,000"
    integer(threshold, "not a threshold", allowed, 1, 10**6)
    if threshold == 2:
        raise InputError("what a threshold of 2 withholds can only be 1", got=2, allowed=allowed)
    table = LabelCounts.of(counts)
    withheld = (table.n > 0) & (table.n < threshold)
    number, sums = withheld.sum(axis=0), np.where(withheld, table.n, 0).sum(axis=0)
    return PublishedCounts(
        np.where(withheld, 0, table.n),
        withheld,
        sum_ranges(number, sums, threshold),
        threshold,
        table.client_names,
        table.class_names,
    )


def sum_ranges(number: Ints, sums: Ints, threshold: int) -> Ints:
    """Return what may be shown of sums of so many withheld counts: the least and the most of each.

    >>> sum_ranges(np.array([0, 1, 3, 3, 3]), np.array([0, 4, 7, 15, 25]), threshold=10).tolist()
    [[0, 0], [1, 9], [3, 11], [15, 15], [19, 27]]
    """
    most = threshold - 1
    low_end, high_start = number - 1 + most, 1 + (number - 1) * most
    all_sums, few = (number, number * most), number < 3
    low = np.where(sums <= low_end, number, np.where(sums >= high_start, high_start, sums))
    high = np.where(sums <= low_end, low_end, np.where(sums >= high_start, number * most, sums))
    return np.stack([np.where(few, all_sums[0], low), np.where(few, all_sums[1], high)], axis=1)
