"""What a policy is: `plan(counts)` for a federation, and `local(n)` for one client where it can."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.blocks import class_major, in_order, row_slices
from fedeas._internal.scalars import LARGEST, integer, set_frozen
from fedeas.counts.label_counts import CountsLike, LabelCounts, whole_matrix
from fedeas.errors import InfeasibleError, InputError
from fedeas.planning.named_values import CLASSES, CLIENTS, NamedValues, make_named_values
from fedeas.planning.plan import Plan, Tally, add_tallies, make_tally
from fedeas.planning.resolve import quality_of, resolve, resolve_client, shown_settings
from fedeas.planning.targets import Target, make_target, retarget, shares_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Local = TypeVar("_Local", bound="LocalPolicy")


@runtime_checkable
class Policy(Protocol):
    """Anything that turns counts into a plan.

    A third party's policy may return an array of samples instead, clients x classes:
    `fedeas.plan(counts, policy)` makes it a plan.
    """

    def plan(self, counts: LabelCounts) -> Plan:
        """Return the samples to generate for every client and class."""
        ...


def make_plan(policy: Policy, counts: CountsLike) -> Plan:
    """Return what a policy plans; an array of samples that it returns is made a plan."""
    table = LabelCounts.of(counts)
    answer: Plan | ArrayLike = policy.plan(table)
    return answer if isinstance(answer, Plan) else Plan.of(table, answer, policy)


def check_total(total: int) -> int:
    """Return a total that is a whole number of samples, or refuse it."""
    return integer(total, "not a total", "a whole number from 0 to 2**53", low=0, high=LARGEST)


class BasePolicy:
    """What our policies share: they are dataclasses, and fit themselves to counts."""

    def __post_init__(self) -> None:
        """Read a target, limits, costs and qualities, for the policies that have them."""
        if hasattr(self, "target"):
            set_frozen(self, target=make_target(self.target))
        for kind in (*CLIENTS, *CLASSES):
            if hasattr(self, kind):
                set_frozen(self, **{kind: make_named_values(getattr(self, kind), kind)})

    def resolve(self, counts: CountsLike) -> Self:
        """Return the policy with target, limits, quality and costs in the order of the counts."""
        return resolve(self, LabelCounts.of(counts))

    def __repr__(self) -> str:
        if not is_dataclass(self):
            return super().__repr__()
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown_settings(self))
        return f"{type(self).__name__}({shown})"


class LocalPolicy(BasePolicy, ABC):
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
        rule = resolve_client(self, histogram.size if classes is None else classes, client)
        samples, _ = rule.fill_and_tally(row)
        only: Ints = samples[0].astype(np.int64)
        return only

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients, each row computed from that row alone."""
        counts = LabelCounts.of(counts)
        rule = self.resolve(counts)
        samples = np.empty(counts.n.shape, np.int64)

        def work(rows: slice) -> Tally:
            clients = counts.clients and counts.clients[rows]
            part = rule.for_rows(rows, clients)
            filled, tally = part.fill_and_tally(class_major(counts.n[rows]))
            samples[rows] = filled
            return tally

        tally = add_tallies(in_order(work, row_slices(counts.K, counts.C)))
        samples.setflags(write=False)
        return Plan.tallied(counts, samples, rule, tally)

    def for_rows(self, rows: slice, clients: Sequence[str] | None = None) -> Self:
        """Return the policy for some of the clients, with their costs and limits alone.

        Their names, where they have any, are for a policy that draws something by name.
        """
        values = {kind: getattr(self, kind, None) for kind in CLIENTS}
        part = {k: each.part(rows) for k, each in values.items() if isinstance(each, NamedValues)}
        return replace(self, **part) if part else self  # type: ignore[type-var]

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
    return replace(smaller, quality=quality.part(t > 0))  # type: ignore[type-var]
