"""Groups of samples, such as those of a person, as the unit of privacy that a site's owner chooses.

Every group counts once in every sum, however many samples it has (proofs in docs/people.md). A sum
over samples takes up to `per_group` of a group's samples, whose weights add up to one; a question
about a histogram takes one of them. Which ones follows from the group's name, its number of samples
and a key of the owner's: other groups, the query and the server have no say in it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.files import (
    atomic_write,
    check_regular,
    locked,
    owner_only_folder,
    unreadable,
)
from fedeas._internal.spelling import one_spelling
from fedeas.counts.label_counts import distinct, names
from fedeas.errors import InputError
from fedeas.private.queries.query import WHOLE

Ints = NDArray[np.int64]
PER_GROUP = 16  # more samples of a group cost no privacy, and beyond this they add little
MOST_PER_GROUP = 64  # then rounding weighted rows towards zero takes off less than a thousandth
_KEY = "group.key"
_KEY_BYTES = 32
_MISSING = ("", "nan", "nat", "none", "null", "<na>")  # as programs write that there is no id


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group every sample is of, and which samples of a group are in a site's sums.

    Parameters
    ----------
    names : tuple of str
        The names of the groups.
    codes : array of int
        The group of every sample.
    key : bytes
        The owner's: without it nobody can tell which samples of a group are taken.
    per_group : int
        At most so many samples of a group are in a sum.

    >>> groups = Groups.of(["ann", "bob", "ann", "ann"], bytes(32), per_group=2)
    >>> len(groups), groups.weights.tolist(), groups.one_each.tolist()
    (2, [128, 256, 0, 128], [0, 1])
    """

    names: tuple[str, ...]
    codes: Ints
    key: bytes
    per_group: int = PER_GROUP

    def __post_init__(self) -> None:
        if not 1 <= self.per_group <= MOST_PER_GROUP:
            allowed = f"1 to {MOST_PER_GROUP}"
            raise InputError("per_group is out of range", got=self.per_group, allowed=allowed)
        if len(self.key) != _KEY_BYTES:
            raise InputError(
                "the key of groups has another length", got=len(self.key), allowed="32 bytes"
            )

    @classmethod
    def of(
        cls, ids: ArrayLike, key: bytes, per_group: int = PER_GROUP, *, strict: bool = True
    ) -> "Groups":
        """Group samples by their ids, one per sample in their order.

        Parameters
        ----------
        ids : sequence of str or int
            The group of every sample. Ids that differ in case or spaces alone are of one group.
        key, per_group
            As for `Groups`.
        strict
            Refuse samples without an id, and ids that differ as 12 and 12.0 or 0012 do, where both
            occur. Otherwise the first are in no sum, and the others are of one group, which costs
            accuracy and no privacy: a site that answers a server must not refuse by what its
            samples are.
        """
        values, codes = distinct(ids, "group")
        if np.ndim(codes) != 1:
            raise InputError("the ids of groups are not a list", got=np.shape(codes))
        # Written in two ways, somebody would count twice: whatever is joined here counts less.
        spelt = [one_spelling(str(value)) for value in values.tolist()]
        if strict:
            _check_ids(spelt)
        texts, joined = distinct(list(map(_as_number, spelt)), "group")
        group_names = tuple(map(str, texts.tolist()))
        if strict:
            names(group_names, len(group_names), "group")
        return cls(group_names, joined[codes].astype(np.int64), key, per_group)

    def at(self, places: Ints) -> "Groups":
        """Return the groups of some of the samples, such as those of one site of a simulation."""
        return replace(self, codes=self.codes[places])

    def __len__(self) -> int:
        return len(np.unique(self.codes[self._with_id]))

    @cached_property
    def _with_id(self) -> NDArray[np.bool_]:
        """Which samples have an id; the others are in no sum."""
        return np.array([name not in _MISSING for name in self.names], bool)[self.codes]

    @cached_property
    def weights(self) -> Ints:
        """What every sample counts in a sum over samples; those of a group add up to `WHOLE`."""
        taken = np.minimum(np.bincount(self.codes), self.per_group)[self.codes]
        # What does not divide evenly goes to the first ones.
        weights = WHOLE // np.maximum(taken, 1) + (self._places < WHOLE % np.maximum(taken, 1))
        return np.where(self._with_id & (self._places < taken), weights, 0)

    @cached_property
    def one_each(self) -> Ints:
        """Where the one sample of every group is that counts in a histogram."""
        firsts = np.flatnonzero(self._with_id & (self._places == 0))
        return firsts[np.argsort(self.codes[firsts])]

    def label_counts(self, labels: Ints, classes: int) -> Ints:
        """Return the histogram in which every group counts once, by the label of one sample."""
        return np.bincount(labels[self.one_each], minlength=classes)

    @cached_property
    def _places(self) -> Ints:
        """The place of every sample among those of its group, in an order that the key decides."""
        ranks = _ranks(self.codes, np.zeros(len(self.codes), np.uint64))
        pairs = zip(self.codes.tolist(), ranks.tolist(), strict=True)
        drawn = [
            int.from_bytes(
                blake2b(
                    f"{rank} {self.names[code]}".encode(errors="surrogatepass"),
                    key=self.key,
                    digest_size=8,
                ).digest()
            )
            for code, rank in pairs
        ]
        return _ranks(self.codes, np.array(drawn, np.uint64))


def _as_number(name: str) -> str:
    """Return an id that is a whole number as one: programs write 12 as 12.0, and people as 0012.

    >>> _as_number("12.0"), _as_number("0012"), _as_number("p12")
    ('12', '12', 'p12')
    """
    digits, _, rest = name.removeprefix("-").partition(".")
    if not digits.isdecimal() or rest.strip("0"):
        return name
    return "-" * name.startswith("-") + (digits.lstrip("0") or "0")


def _check_ids(names: Iterable[str]) -> None:
    """Refuse ids of which it is not clear whose they are."""
    as_written: dict[str, str] = {}
    for name in names:
        if name in _MISSING:
            raise InputError(
                "samples without a group", got=name, fix="leave them out, or give them an id"
            )
        other = as_written.setdefault(_as_number(name), name)
        if other != name:
            raise InputError(
                "two ids may be of one group", got=f"{other!r} and {name!r}",
                fix="write an id in the same way everywhere",
            )  # fmt: skip


def _ranks(codes: Ints, by: NDArray[np.uint64]) -> Ints:
    """Return the rank of every sample within its group; equal ones stay in their order."""
    order = np.lexsort((by, codes))
    sizes = np.bincount(codes) if len(codes) else np.zeros(0, np.int64)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - starts
    return ranks


def read_ids(path: Path) -> list[str]:
    """Read a file of ids: a line for every sample, in the order of the samples."""
    check_regular(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text", fix="write one id per line, in UTF-8") from None
    ids = [line.strip() for line in lines]
    if "" in ids:
        raise InputError(
            f"{path} has no id in line {ids.index('') + 1}", fix="give every sample an id"
        )
    return ids


def owner_key(folder: Path) -> bytes:
    """Return the key in a site's folder, which is made on first use."""
    path = folder / _KEY
    if not path.exists():
        with locked(folder, make=owner_only_folder):
            if not path.exists():  # whoever comes second takes the first one's
                with atomic_write(path) as unfinished:
                    unfinished.chmod(0o600)
                    unfinished.write_bytes(os.urandom(_KEY_BYTES))
    if (size := check_regular(path).st_size) != _KEY_BYTES:
        raise InputError(
            f"{path} is damaged",
            got=f"{size} bytes",
            allowed=f"{_KEY_BYTES}",
            fix="restore it from a backup, or remove it: other samples of people are taken then",
        )
    return path.read_bytes()
