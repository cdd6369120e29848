"""`Target`: the class distribution that clients should come closer to.

By default it is uniform, as in the paper. With the federation's own distribution a plan removes
only what lies between clients: a class that is rare everywhere stays rare.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.names import did_you_mean
from fedeas.counts.label_counts import CountsLike, LabelCounts, names
from fedeas.errors import InputError
from fedeas.planning.named_values import match_names

UNIFORM, FEDERATION = "uniform", "federation"
_ALLOWED = "uniform, federation, a file, or a share per class"
_P = TypeVar("_P")


@dataclass(frozen=True)
class Target:
    """A share per class, or the federation's own shares once its counts are known.

    Shares are scaled to a sum of one, so counts may be given as well. A class with share 0 is left
    out, as if the counts had no such column, and is never generated.

    Parameters
    ----------
    shares : sequence of float, optional
        A share per class, or a count; None for the federation's own.
    classes : sequence of str, optional
        The names of the classes; a plan puts the shares in the order of its counts.
    name : str
        What it is called in a plan.

    >>> Target([3, 1]).shares
    (0.75, 0.25)
    >>> Target.federation([[90, 10, 0], [30, 40, 30]]).shares
    (0.6, 0.25, 0.15)
    """

    shares: Sequence[float] | None = None
    classes: Sequence[str] | None = None
    name: str = "given"

    def __post_init__(self) -> None:
        if self.shares is None:
            object.__setattr__(self, "name", FEDERATION)
            return
        try:
            given = np.asarray(self.shares, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("not a target", got=self.shares, allowed=_ALLOWED) from None
        total = float(given.sum()) if given.ndim == 1 else math.nan
        if not (given.size >= 2 and math.isfinite(total) and (given >= 0).all()):
            raise InputError("not a target", got=self.shares, allowed="two or more numbers from 0")
        if (given > 0).sum() < 2:
            raise InputError(
                "a target of a single class", got=self.shares, allowed="shares for two or more"
            )
        object.__setattr__(self, "shares", tuple((given / total).tolist()))
        if self.classes is not None:
            names(self.classes, given.size, "class")
            object.__setattr__(self, "classes", tuple(map(str, self.classes)))

    @classmethod
    def load(cls, path: Path | str) -> "Target":
        """Read a share or a count per class: CSV or TSV of two columns, or a JSON object."""
        from fedeas.counts.named import read_numbers

        shares = read_numbers(path, "share")
        return cls(list(shares.values()), list(shares), Path(path).name)

    @classmethod
    def federation(cls, counts: CountsLike) -> "Target":
        """Return the class distribution of all clients together."""
        table = LabelCounts.of(counts)
        return cls(table.n.sum(axis=0).tolist(), table.classes, FEDERATION)

    @cached_property
    def array(self) -> NDArray[np.float64]:
        """The shares as an array."""
        if self.shares is None:
            raise InputError(
                "the federation's distribution is not known here",
                fix="pass its shares, one per class",
            )
        shares = np.array(self.shares)
        shares.setflags(write=False)
        return shares

    @cached_property
    def uniform(self) -> bool:
        """Whether all classes have the same share."""
        return self.shares is not None and bool(self.array.max() == self.array.min())

    def for_counts(self, counts: LabelCounts) -> "Target":
        """Return the target with a share for each class of the counts, in their order."""
        if self.shares is None:
            return Target.federation(counts).for_classes(counts.class_names)
        target = self.for_classes(counts.class_names)
        if not counts.n[:, target.array > 0].any():
            raise InputError(
                "no client has samples of the target's classes", fix="choose another target"
            )
        return target

    def for_classes(self, classes: Sequence[str] | int) -> "Target":
        """Return the target with its shares in the order of these classes, and without names.

        If only the number of classes is known, shares by name are refused.
        """
        if self.classes is not None and self.shares is not None:
            if isinstance(classes, int):
                raise InputError(
                    "the target names its classes, and the data has none",
                    got=", ".join(self.classes[:5]),
                    fix="name the classes, or give shares in the order of the labels",
                )
            shares = dict(zip(self.classes, self.shares, strict=True))
            return Target(match_names(shares, classes, "share of class"), None, self.name)
        expected = classes if isinstance(classes, int) else len(classes)
        if len(self.array) != expected:
            raise InputError(
                "the target does not fit the counts",
                got=f"{len(self.array)} shares",
                allowed=f"one for each of {expected} classes",
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return its name and shares as plain values."""
        return {"name": self.name, "shares": None if self.shares is None else list(self.shares)}


TargetLike: TypeAlias = Target | str | Path | Mapping[str, float] | Sequence[float] | None


def make_target(given: TargetLike) -> Target | None:
    """Return a target from what a caller gives, None for the uniform one.

    Parameters
    ----------
    given : Target, str, path, mapping or sequence, optional
        'uniform', 'federation', a file of a share per class, shares by class, or shares in order,
        also as text: '0.6:0.3:0.1'.

    >>> make_target("uniform") is None
    True
    >>> make_target({"cat": 2, "dog": 1, "bird": 1}).shares
    (0.5, 0.25, 0.25)
    """
    if given is None or isinstance(given, Target):
        return given
    if isinstance(given, str | Path):
        if str(given) in (UNIFORM, FEDERATION):
            return None if str(given) == UNIFORM else Target()
        return inline_target(str(given)) or _from_file(given)
    if isinstance(given, Mapping):
        return Target(list(given.values()), list(given))
    if isinstance(given, list | tuple | np.ndarray):
        return Target(given)
    raise InputError("not a target", got=given, allowed=_ALLOWED)


def inline_target(text: str) -> Target | None:
    """Return the target that is written as '0.6:0.3:0.1', None if it is not written so."""
    try:
        shares = [float(part) for part in text.split(":")]
    except ValueError:
        return None
    return Target(shares) if len(shares) > 1 else None


def _from_file(path: str | Path) -> Target:
    if not Path(path).exists():
        raise InputError(
            "no such file" if Path(path).suffix else "unknown target",
            got=str(path),
            allowed="uniform, federation, shares such as 0.6:0.3:0.1, or a file of them",
            fix=did_you_mean(str(path), (UNIFORM, FEDERATION)),
        )
    return Target.load(path)


def least_share(classes: int) -> float:
    """Return the smallest share of a class in a target that sites take, other than none.

    With a smaller one, what a site would have to generate could be more than it can count.
    """
    return 1e-4 * min(1.0, 100 / classes)


def inline_shares(shares: Sequence[float]) -> str:
    """Write shares in one word, as `make_target` reads them.

    >>> inline_shares((0.5, 0.25, 0.25))
    '0.5:0.25:0.25'
    """
    return ":".join(map(repr, shares))


def shares_of(target: TargetLike, classes: int) -> NDArray[np.float64] | None:
    """Return the shares of a target in the order of the classes, None for the uniform one."""
    aim = make_target(target)
    if aim is None:
        return None
    aim = aim.for_classes(classes)
    return None if aim.uniform else aim.array


def aim_shares(target: TargetLike, counts: LabelCounts) -> NDArray[np.float64]:
    """Return the share of each class of the counts, also for the uniform target."""
    aim = make_target(target)
    return np.full(counts.C, 1 / counts.C) if aim is None else aim.for_counts(counts).array


def aim_at_classes(policy: _P, classes: Sequence[str] | int) -> _P:
    """Return a policy whose target, if it has one, is in the order of these classes."""
    target = make_target(getattr(policy, "target", None))
    if target is None or target.shares is None:
        return policy
    return retarget(policy, target.for_classes(classes))


def retarget(policy: _P, target: Target | None) -> _P:
    """Return the same policy with another target."""
    if not is_dataclass(policy) or isinstance(policy, type):
        raise InputError("this policy takes no other target", got=policy)
    return replace(policy, target=target)


def target_name(target: TargetLike) -> str:
    """Return what a target is called: uniform, federation, or the name of its file."""
    aim = make_target(target)
    return UNIFORM if aim is None or aim.uniform else aim.name
