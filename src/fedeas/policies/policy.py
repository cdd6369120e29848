"""What a policy is: `plan(counts)` for a federation, and `local(n)` for one client where it can."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.blocks import class_major, in_order, row_slices
from fedeas.counts import CountsLike, LabelCounts, whole_matrix
from fedeas.errors import InfeasibleError, InputError
from fedeas.per_name import CLIENTS, PerName, described
from fedeas.plan import Plan
from fedeas.policy_settings import quality_of, settle, settle_row, shown_settings
from fedeas.tables import LARGEST
from fedeas.tally import Tally, add_tallies, make_tally
from fedeas.targets import Target, retarget, shares_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Local = TypeVar("_Local", bound="LocalPolicy")


@runtime_checkable
class Policy(Protocol):
    """Anything that turns counts into a plan.

    A third party's policy may return an array of samples instead, clients x classes: `make_plan`
    makes it a plan.
    """

    def plan(self, counts: LabelCounts) -> Plan:
        """Return the samples to generate for every client and class."""
        ...


def make_plan(policy: Policy, counts: CountsLike) -> Plan:
    """Return what a policy plans; an array of samples that it returns is made a plan.

    Parameters
    ----------
    policy : Policy
        Plans; may return a plan or an array, clients x classes.
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    """
    table = LabelCounts.of(counts)
    made: Plan | ArrayLike = policy.plan(table)
    return made if isinstance(made, Plan) else Plan.of(table, made, policy)


class Shown:
    """A dataclass whose text leaves out optional settings that are not in use."""

    def __repr__(self) -> str:
        if not is_dataclass(self):
            return super().__repr__()
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown_settings(self))
        return f"{type(self).__name__}({shown})"


class LocalPolicy(Shown, ABC):
    """A policy whose answer for a client depends on that client's counts alone.

    With a field `target` it plans for that class distribution; `shares` is what `fill` needs.
    """

    name: ClassVar[str]

    @abstractmethod
    def fill(self, n: Floats) -> Floats:
        """Return the samples to add to each row of counts (clients x classes), as whole floats."""

    def local(
        self, n: ArrayLike, classes: Sequence[str] | None = None, client: str | None = None
    ) -> Ints:
        """Return the samples to generate for one client's histogram, with nothing else known.

        Parameters
        ----------
        n : array_like
            The client's number of samples of each class.
        classes : sequence of str, optional
            The names of the classes in that order; needed where a target or qualities are by name.
        client : str, optional
            The client's name; needed where limits or costs are by name.
        """
        histogram = np.asarray(n)
        if histogram.ndim != 1 or histogram.size < 2:
            raise InputError(
                "not one client's histogram", got=histogram.shape, allowed="a count per class"
            )
        row = class_major(whole_matrix(histogram[np.newaxis], "counts"))
        if classes is not None and len(classes) != histogram.size:
            raise InputError(
                "not a class for each count", got=len(classes), allowed=f"{histogram.size} names"
            )
        rule = settle_row(self, histogram.size if classes is None else classes, client)
        samples, _ = rule.fill_and_tally(row)
        only: Ints = samples[0].astype(np.int64)
        return only

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients, each row computed from that row alone."""
        counts = LabelCounts.of(counts)
        rule = settle(self, counts)
        samples = np.empty(counts.n.shape, np.int64)

        def work(rows: slice) -> Tally:
            filled, tally = rule.for_rows(rows).fill_and_tally(class_major(counts.n[rows]))
            samples[rows] = filled
            return tally

        tally = add_tallies(in_order(work, row_slices(counts.K, counts.C)))
        samples.setflags(write=False)
        return Plan.tallied(counts, samples, rule, tally)

    def for_rows(self, rows: slice) -> Self:
        """Return the policy for some of the clients, with their costs and limits alone."""
        given = {kind: getattr(self, kind, None) for kind in CLIENTS}
        own = {
            kind: each.rows(rows, described(kind))
            for kind, each in given.items()
            if isinstance(each, PerName)
        }
        return replace(self, **own) if own else self  # type: ignore[type-var]

    def shares(self, classes: int) -> Floats | None:
        """Return the target's share of each class, None if it is uniform or there is none."""
        return shares_of(getattr(self, "target", None), classes)

    def fill_and_tally(self, n: Floats) -> tuple[Floats, Tally]:
        """Fill a block of rows and score it while it is in the cache."""
        samples = self._fill_target(n)
        target, quality = getattr(self, "target", None), quality_of(self, n.shape[-1])
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused below
            tally = make_tally(n, samples, target, quality)
        if not tally.total <= LARGEST:  # beyond, floats are no longer exact whole numbers
            raise InfeasibleError(
                f"policy {self.name!r} asks for more than 2**53 samples",
                fix="choose a smaller beta or total",
            )
        return samples, tally

    def _fill_target(self, n: Floats) -> Floats:
        """Fill the classes that the target has, as if the rows had no other columns."""
        t = self.shares(n.shape[-1])
        if t is None or t.all():
            return self.fill(n)
        samples = np.zeros_like(n)
        samples[:, t > 0] = without_absent_classes(self, n.shape[-1]).fill(n[:, t > 0])
        return samples


def without_absent_classes(policy: _Local, classes: int) -> _Local:
    """Return the policy for counts without the columns of classes with share 0."""
    t = policy.shares(classes)
    if t is None or t.all():
        return policy
    smaller = retarget(policy, Target(t[t > 0].tolist()))
    quality = getattr(policy, "quality", None)
    if quality is None:
        return smaller
    kept = quality.kept(t > 0, described("quality"))
    return replace(smaller, quality=kept)  # type: ignore[type-var]
