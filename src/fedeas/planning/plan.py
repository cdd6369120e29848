"""`Plan`: how many samples of each class each client generates, and what that buys."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.blocks import class_major, in_order, outer_sum, row_slices
from fedeas._internal.files import check_regular
from fedeas._internal.frames import data_frame, html_table
from fedeas._internal.names import choice
from fedeas._internal.scalars import LARGEST, plain
from fedeas.counts.label_counts import LabelCounts, names, whole_matrix
from fedeas.errors import InputError
from fedeas.planning.cost import Cost
from fedeas.planning.named_values import NamedValuesLike, make_named_values
from fedeas.planning.resolve import policy_name, quality_of, resolve, settings_of
from fedeas.planning.skew import ABOVE, Floats, divisor, resolve_target, supported
from fedeas.planning.targets import UNIFORM, Target, TargetLike, make_target

_FORMAT = "plan/1"
_FACTS = ("policy", "settings", "real", "score_before", "score_after")
_NEGATIVE_GAIN = "harmful"  # what files of plans call it


class Tally(NamedTuple):
    """Sums over clients from which all figures of a plan follow; tallies of parts add up."""

    clients: int
    empty: int
    real: float
    total: float
    before: float  # sum_k N_k ||q_k - t||^2, so that I = before / real
    after: float  # the same with the plan's samples
    negative_gain: float
    held: float  # as `real`, with the classes that the target leaves out


def make_tally(
    n: Floats, added: Floats, target: TargetLike = None, quality: Floats | None = None
) -> Tally:
    """Count and score a block of clients in one go; see `deviation` and `gain` for the formulas.

    >>> make_tally(np.array([[10.0, 0.0]]), np.array([[0.0, 10.0]])).after
    0.0
    """
    full = n
    aim = resolve_target(full, target)
    n, t = supported(full, aim)
    added = supported(added, aim)[0]
    if quality is not None:
        quality = supported(quality, aim)[0]
    N = n.sum(axis=-1)
    filled = n + (added if quality is None else added * quality)
    M = filled.sum(axis=-1)
    near = None if t is None else (n @ t, filled @ t)
    filled *= filled
    after = filled.sum(axis=-1) / divisor(M) ** 2
    np.multiply(n, n, out=filled)
    level = filled.sum(axis=-1) / divisor(N)
    if t is None or near is None:
        before, after = level - N / n.shape[-1], after - 1.0 / n.shape[-1]
        misplaced = n > (level * ABOVE)[..., np.newaxis]
    else:
        square = float(t @ t)
        before = level - 2.0 * near[0] + N * square
        after += square - 2.0 * near[1] / divisor(M)
        level -= near[0]  # a class is too large where n - N t is above it
        misplaced = n > outer_sum(N, t, level + N * (ABOVE - 1))
    misplaced &= added > 0
    total = M.sum() - N.sum() if quality is None else added.sum()
    return Tally(
        len(N),
        int((N == 0).sum()),
        float(N.sum()),
        float(total),
        float(np.maximum(before, 0.0).sum()),
        float(N @ np.maximum(np.where(N > 0, after, 0.0), 0.0)),
        float(added[misplaced].sum()) if misplaced.any() else 0.0,
        float(N.sum() if n is full else full.sum()),
    )


def add_tallies(parts: Iterable[Tally]) -> Tally:
    """Return the tally of all parts together."""
    clients, empty, *sums = zip(*parts, strict=True)
    return Tally(sum(clients), sum(empty), *map(math.fsum, sums))


@dataclass(frozen=True)
class Overfill:
    """Clients that are given more of a scarce class than they hold of any, and the worst of them.

    Filling every class up to the largest one balances a client; what goes beyond unbalances it
    again. For a target, `largest` is what would match it in the class that goes furthest beyond.
    """

    clients: int  # how many there are
    client: str  # the one that goes furthest beyond full balance, and its numbers:
    largest: int  # samples of its largest class
    filled_to: int  # samples of a class after generation
    samples: int  # that it generates
    full: int  # that full balance would generate


@dataclass(frozen=True)
class ClientPlan:
    """What one client generates of every class, whatever its own counts are."""

    samples: NDArray[np.int64]
    classes: tuple[str, ...] | None = None

    @classmethod
    def load(cls, path: Path | str, client: str) -> "ClientPlan":
        """Read a client's row from the file of a plan, of any format that `Plan.save` writes."""
        rows = PlanRows.load(path).only(client)
        return cls(rows.samples[0], rows.classes)

    def for_classes(self, classes: Sequence[str] | int) -> NDArray[np.int64]:
        """Return the samples in the order of a data set's classes; refuse other classes."""
        count = classes if isinstance(classes, int) else len(classes)
        if self.classes is None or isinstance(classes, int):
            if count != len(self.samples):
                raise InputError(
                    "the plan has another number of classes than the data",
                    got=len(self.samples),
                    allowed=str(count),
                )
            return self.samples
        if set(self.classes) != set(classes):
            missing = sorted(set(self.classes) ^ set(classes))
            raise InputError(
                "the plan and the data have different classes", got=", ".join(missing[:5])
            )
        return self.samples[[self.classes.index(name) for name in classes]]


@dataclass(frozen=True)
class PlanRows:
    """The numbers of a plan alone: what clients generate, and nothing of their real samples."""

    samples: NDArray[np.int64]
    client_names: tuple[str, ...]
    classes: tuple[str, ...] | None = None
    cost: Cost | None = None  # of a sample, where the file says so

    @classmethod
    def load(cls, path: Path | str) -> "PlanRows":
        """Read them from the file of a plan, of any format that `Plan.save` writes."""
        from fedeas.counts import files

        table = files.read(path)
        if table.meta is None:
            raise InputError(
                f"{path} holds label counts, not a plan", fix=f"fedeas plan {path} --out plan.csv"
            )
        clients = table.clients or tuple(map(str, range(len(table.values))))
        try:
            facts = table.meta.get("cost")
            cost = _read_cost(facts, len(clients)) if facts else None
        except (TypeError, KeyError, AttributeError, InputError):
            raise InputError(f"{path} is a damaged plan", fix="make it again") from None
        return cls(table.values, clients, table.classes, cost)

    @property
    def total(self) -> int:
        """How many samples there are."""
        return int(self.samples.sum())

    def only(self, client: str) -> "PlanRows":
        """Return the row of one client."""
        row = self.client_names.index(choice(client, "client", self.client_names))
        cost = self.cost
        if cost is not None and isinstance(cost.per_sample, tuple):
            cost = Cost(cost.per_sample[row], cost.unit)
        return PlanRows(self.samples[row : row + 1], (client,), self.classes, cost)

    def first(self, total: int) -> "PlanRows":
        """Return at most so many of these samples, over clients and classes alike."""
        flat = self.samples.reshape(-1)
        taken = np.diff(np.floor(np.cumsum(flat) * min(1.0, total / max(1, self.total))), prepend=0)
        samples = taken.astype(np.int64).reshape(self.samples.shape)
        return replace(self, samples=samples) if samples.any() else self


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A K x C matrix of samples to generate, with its origin and its effect.

    >>> from fedeas import FedEAS
    >>> plan = FedEAS(beta=12).plan(LabelCounts([[90, 10, 0], [30, 40, 30]]))
    >>> plan
    Plan(fedeas: 86 samples for 1 of 2 clients, imbalance -91.8 %, synthetic share 30.1 %)
    """

    samples: NDArray[np.int64]
    policy: str
    settings: Mapping[str, Any]
    _source: LabelCounts | str  # hashed on demand: a million clients take a while
    real: int  # samples that the clients hold
    score_before: float  # imbalance I of the real counts
    score_after: float  # the same with the plan's samples
    negative_gain: int  # samples that raise the score, to first order
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    cost: Cost | None = field(default=None)
    # How many samples the policy asks for, where what they are worth leaves fewer: a quality cut.
    asked: int | None = field(default=None)

    @classmethod
    def of(cls, counts: LabelCounts, samples: ArrayLike, policy: object) -> "Plan":
        """Make a plan from the samples that `policy` chose for `counts`, and score it.

        `policy` is anything with a `name`; the fields of a dataclass are kept as its settings. If
        it has a `target` or a `quality`, the plan is scored with them.
        """
        policy = resolve(policy, counts)
        name = policy_name(policy)
        matrix = whole_matrix(samples, f"samples of policy {name!r}")
        if matrix.shape != counts.n.shape:
            raise InputError(
                f"policy {name!r} does not fit the counts",
                got=matrix.shape,
                allowed=f"{counts.n.shape}",
            )

        target, quality = make_target(getattr(policy, "target", None)), quality_of(policy, counts.C)

        def score(rows: slice) -> Tally:
            real, added = class_major(counts.n[rows]), class_major(matrix[rows])
            return make_tally(real, added, target, quality)

        parts = in_order(score, row_slices(counts.K, counts.C))
        return cls.tallied(counts, matrix, policy, add_tallies(parts))

    @classmethod
    def tallied(
        cls, counts: LabelCounts, samples: NDArray[np.int64], policy: object, tally: Tally
    ) -> "Plan":
        """Make a plan whose samples are checked and scored already."""
        if not tally.real:
            raise InputError(
                "no client has samples of the target's classes", fix="choose another target"
            )
        return cls(
            samples,
            policy_name(policy),
            settings_of(policy),
            counts,
            int(tally.held),
            tally.before / tally.real,
            tally.after / tally.real,
            int(tally.negative_gain),
            counts.clients,
            counts.classes,
        )

    def with_cost(self, cost: Cost) -> "Plan":
        """Return the same plan with the cost of a sample attached, one for all or one each."""
        return replace(self, cost=cost)

    def scored_for(
        self, counts: LabelCounts, target: TargetLike, quality: NamedValuesLike = None
    ) -> "Plan":
        """Return the same samples, scored against another target or with other qualities.

        Parameters
        ----------
        counts : LabelCounts
            The counts that the plan was made from.
        target : Target, str, path, mapping or sequence, optional
            The class distribution to measure against; None for uniform.
        quality : number, sequence, mapping, str or path, optional
            What a synthetic sample of each class is worth in real ones.
        """
        self._held(counts, "pass counts")
        aim = make_target(target)
        aim = aim.for_counts(counts) if aim else None
        rho = make_named_values(quality, "quality")
        rho = rho.ordered(counts.class_names) if rho else None
        settings = {k: v for k, v in self.settings.items() if k not in ("target", "quality")}
        if aim and not aim.uniform:
            settings["target"] = aim.to_dict()
        if rho:
            settings["quality"] = list(rho.values)
        if settings == self.settings:
            return self
        each = rho.array(counts.C) if rho else None
        tally = make_tally(class_major(counts.n), class_major(self.samples), aim, each)
        before, after = tally.before / tally.real, tally.after / tally.real
        return replace(
            self, settings=settings, score_before=before, score_after=after,
            negative_gain=int(tally.negative_gain),
        )  # fmt: skip

    @cached_property
    def per_client(self) -> NDArray[np.int64]:
        """The number of samples that each client generates."""
        sums: NDArray[np.int64] = self.samples.sum(axis=1)
        sums.setflags(write=False)
        return sums

    @property
    def total(self) -> int:
        """The number of samples of all clients together."""
        return int(self.per_client.sum())

    @property
    def counts_hash(self) -> str:
        """The fingerprint of the counts that the plan was made from."""
        return self._source if isinstance(self._source, str) else self._source.fingerprint

    @property
    def reduction(self) -> float:
        """1 - I(B) / I(0), the share of the imbalance that the plan removes."""
        return reduction(self.score_before, self.score_after)

    @property
    def synthetic_share(self) -> float:
        """The synthetic share of all samples, real and generated."""
        return self.total / (self.total + self.real)

    @property
    def target(self) -> Target | None:
        """The class distribution that the plan aims at; None for the uniform one."""
        given = self.settings.get("target")
        return Target(given["shares"], None, given["name"]) if given else None

    @property
    def target_name(self) -> str:
        """What the target is called: uniform, federation, given, or the name of its file."""
        return self.target.name if self.target else UNIFORM

    @property
    def client_names(self) -> tuple[str, ...]:
        """The name of every client."""
        return self.clients or tuple(map(str, range(self.samples.shape[0])))

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of every class."""
        return self.classes or tuple(map(str, range(self.samples.shape[1])))

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON or Parquet, or its samples as a plain table, CSV or TSV.

        `load` reads JSON and Parquet, which also hold the policy, the score and which counts the
        plan is from.
        """
        from fedeas.counts import files

        files.write(path, files.Table(self.samples, self.clients, self.classes, self.facts()))

    @classmethod
    def load(cls, path: Path | str) -> "Plan":
        """Read a plan that `save` wrote as JSON or Parquet."""
        from fedeas.counts import files

        check_regular(Path(path))
        if Path(path).suffix.lower() not in (".json", ".parquet"):
            name = Path(path).with_suffix(".json").name
            raise InputError(
                f"{path} is not a whole plan: text has no room for its policy and classes",
                allowed="a plan in .json or .parquet",
                fix=f"make it with `fedeas plan COUNTS --out {name}`",
            )
        table = files.read(path)
        facts = dict(table.meta or {})
        written = facts.pop("format", None)
        if written != _FORMAT:
            raise InputError(
                f"{path} is not a plan of this version",
                got=written,
                allowed=f"{_FORMAT}, as `fedeas plan --out plan.json` writes it",
                fix="make the plan again",
            )
        try:
            return cls.from_facts(table.values, table.clients, table.classes, facts)
        except (TypeError, KeyError, AttributeError, InputError):
            raise InputError(f"{path} is a damaged plan", fix="make it again") from None

    @property
    def rows(self) -> "PlanRows":
        """The numbers alone."""
        return PlanRows(self.samples, self.client_names, self.classes, self.cost)

    def row(self, client: str | int) -> "ClientPlan":
        """Return what one client generates.

        Parameters
        ----------
        client : str or int
            Its name or its place.
        """
        return ClientPlan(self.samples[self._row(client)], self.classes)

    @classmethod
    def from_facts(
        cls,
        samples: ArrayLike,
        clients: Sequence[str] | None,
        classes: Sequence[str] | None,
        facts: Mapping[str, Any],
    ) -> "Plan":
        """Make the plan of a file, from its table and what it says beside; wrong facts raise."""
        # A newer version may say more of a plan: what is not known here is left out.
        matrix, cost = whole_matrix(samples, "samples"), facts["cost"]
        plan = cls(
            matrix,
            _source=facts["counts_hash"],
            clients=names(clients, len(matrix), "client"),
            classes=names(classes, matrix.shape[1], "class"),
            cost=_read_cost(cost, len(matrix)) if cost else None,
            negative_gain=facts[_NEGATIVE_GAIN],
            asked=facts.get("asked"),
            **{key: facts[key] for key in _FACTS},
        )
        if not _well_formed(plan):
            raise TypeError
        return plan

    def sampling_strategy(
        self, client: str | int, counts: LabelCounts | None = None
    ) -> dict[str | int, int]:
        """Return how many samples of a class a client shall have, as imbalanced-learn takes it.

        Parameters
        ----------
        client : str or int
            Its name or its place.
        counts : LabelCounts, optional
            The counts that the plan was made from; needed for a plan loaded from a file.

        """
        row = self._row(client)
        names: tuple[str | int, ...] = self.classes or tuple(range(self.samples.shape[1]))
        total = self._held(counts, "pass counts=").n[row] + self.samples[row]
        return {names[c]: int(total[c]) for c in np.flatnonzero(self.samples[row]).tolist()}

    def to_pandas(self) -> Any:
        """Return the samples as a pandas data frame, a row per client and a column per class."""
        return data_frame(self.samples, self.client_names, self.class_names)

    def plot(self, counts: LabelCounts | None = None) -> Any:
        """Return a heat map of the counts before and after the plan, as a matplotlib figure.

        Parameters
        ----------
        counts : LabelCounts, optional
            The counts that the plan was made from; needed for a plan loaded from a file.

        """
        from fedeas.plots.heatmap import label_heatmap

        return label_heatmap(self._held(counts, "use plan.plot(counts)"), self)

    def _row(self, client: str | int) -> int:
        """Return the place of a client, by its name or as it is given."""
        clients = self.client_names
        if client in clients:
            return clients.index(client)
        place = plain(client)
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(clients):
            shown = ", ".join(clients[:10]) + (", ..." if len(clients) > 10 else "")
            raise InputError("unknown client", got=client, allowed=f"{shown}, or its place")
        return place

    def _held(self, counts: LabelCounts | None, fix: str) -> LabelCounts:
        """Return the counts that the plan was made from."""
        held = self._source if counts is None else counts
        if isinstance(held, str):
            raise InputError("a loaded plan does not include its counts", fix=fix)
        if held is not self._source and held.fingerprint != self.counts_hash:
            raise InputError("the plan was made from other counts", got=counts)
        return held

    def facts(self) -> dict[str, Any]:
        """Return what a file says of the plan beside its samples."""
        return plan_facts(
            policy=self.policy,
            settings=dict(self.settings),
            counts_hash=self.counts_hash,
            real=self.real,
            score_before=self.score_before,
            score_after=self.score_after,
            negative_gain=self.negative_gain,
            cost=self.cost,
            **({} if self.asked is None else {"asked": self.asked}),
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy is read-only too; what is derived from the samples is computed again.
        vars(self).update({key: value for key, value in state.items() if key != "per_client"})
        self.samples.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Plan)
            and (self.clients, self.classes, self.facts())
            == (other.clients, other.classes, other.facts())
            and np.array_equal(self.samples, other.samples)
        )

    def __hash__(self) -> int:
        return hash((self.policy, self.total, self.score_after))

    def _repr_html_(self) -> str:
        return html_table(repr(self), self.samples, self.client_names, self.class_names)

    @cached_property
    def overfilled(self) -> Overfill | None:
        """Where a scarce class ends above the client's largest one; None also for a loaded plan."""
        return None if isinstance(self._source, str) else overfilled(self._source, self)

    @property
    def _cut(self) -> str:
        return "" if self.asked is None else f", a quality cut from {self.asked:,}"

    def __repr__(self) -> str:
        busy = int((self.per_client > 0).sum())
        beyond = "" if self.overfilled is None else f"; {self.overfilled.clients:,} overfilled"
        return (
            f"Plan({self.policy}: {self.total:,} samples for {busy:,} of {len(self.samples):,} "
            f"clients{self._cut}{beyond}, imbalance {-self.reduction:+.1%}, "
            f"synthetic share {self.synthetic_share:.1%})"
        ).replace("%", " %")


def plan_facts(negative_gain: int, cost: Cost | None, **facts: object) -> dict[str, Any]:
    """Return a saved plan's metadata."""
    return {
        "format": _FORMAT,
        **facts,
        _NEGATIVE_GAIN: negative_gain,
        "cost": vars(cost) if cost else None,
    }


def reduction(before: float, after: float) -> float:
    """Return 1 - I(B) / I(0), or 0 if there was no imbalance to remove."""
    part = 1.0 - after / before if before > 0 else 0.0
    return part if abs(part) > 1e-15 else 0.0


def _read_cost(facts: dict[str, Any], clients: int) -> Cost:
    """Read the cost of a sample, one for all clients or one each."""
    if not isinstance(facts["per_sample"], list):
        return Cost(**facts)
    each = tuple(map(float, facts["per_sample"]))
    if len(each) != clients:
        raise KeyError("per_sample")
    return Cost(each, str(facts["unit"]))


def _well_formed(plan: Plan) -> bool:
    """Tell whether a file's facts are those of a plan; a target that cannot be one raises."""
    numbers = (plan.real, plan.score_before, plan.score_after, plan.negative_gain)
    texts = (plan.policy, plan.target_name, plan._source)
    return (
        isinstance(plan.settings, dict)
        and all(isinstance(text, str) and text.isprintable() for text in texts)
        and all(isinstance(x, int | float) and 0 <= x < math.inf for x in numbers)
    )


def overfilled(counts: LabelCounts, plan: "Plan") -> Overfill | None:
    """Return where a plan fills a scarce class beyond the client's largest one.

    >>> from fedeas import FedEAS
    >>> c = LabelCounts([[10, 2, 0], [40, 40, 30]], ["small", "large"])
    >>> overfilled(c, FedEAS(beta=12).plan(c))
    Overfill(clients=1, client='small', largest=10, filled_to=14, samples=26, full=18)
    """
    t = np.full(counts.C, 1 / counts.C) if plan.target is None else plan.target.array
    n, g, t = counts.n[:, t > 0].astype(np.float64), plan.samples[:, t > 0], t[t > 0]
    # The smallest counts that are not below `n` and match the target.
    full = np.rint((n / t).max(axis=1, keepdims=True) * t)
    scarce = (g > 0) & (n < n.sum(axis=1, keepdims=True) * t)
    excess = np.where(scarce, n + g - full, 0.0)
    if not (beyond := excess.max(axis=1) > 0).any():
        return None
    needed = np.maximum(full - n, 0.0).sum(axis=1)
    k = int(np.argmax(np.where(beyond, plan.per_client - needed, -LARGEST)))
    c = int(np.argmax(excess[k]))
    return Overfill(
        int(beyond.sum()),
        counts.client_names[k],
        int(full[k, c]),
        int(n[k, c] + g[k, c]),
        int(plan.per_client[k]),
        int(needed[k]),
    )
