"""`Plan`: how many samples of each class each client generates, and what that buys."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas import plotting, tables
from fedeas.blocks import class_major, in_order, row_slices
from fedeas.cost import Cost, SiteCosts
from fedeas.counts import LabelCounts, names, whole_matrix
from fedeas.errors import InputError
from fedeas.notebook import data_frame, html_table, polars_frame
from fedeas.overfill import Overfill, overfilled
from fedeas.per_name import PerNameLike, described, make_per_name
from fedeas.policy_settings import policy_name, quality_of, settings_of, settle
from fedeas.scalars import plain
from fedeas.tally import Tally, add_tallies, make_tally
from fedeas.targets import UNIFORM, Target, TargetLike, make_target

_FORMAT = "plan/1"
_FACTS = ("policy", "settings", "real", "score_before", "score_after", "harmful")


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
    harmful: int  # samples at a negative first-order gain
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    cost: Cost | SiteCosts | None = field(default=None)

    @classmethod
    def of(cls, counts: LabelCounts, samples: ArrayLike, policy: object) -> "Plan":
        """Make a plan from the samples that `policy` chose for `counts`, and score it.

        `policy` is anything with a `name`; the fields of a dataclass are kept as its settings. If
        it has a `target` or a `quality`, the plan is scored with them.
        """
        policy = settle(policy, counts)
        name = policy_name(policy)
        chosen = whole_matrix(samples, f"samples of policy {name!r}")
        if chosen.shape != counts.n.shape:
            raise InputError(
                f"policy {name!r} does not fit the counts",
                got=chosen.shape,
                allowed=f"{counts.n.shape}",
            )

        target, quality = make_target(getattr(policy, "target", None)), quality_of(policy, counts.C)

        def score(rows: slice) -> Tally:
            real, added = class_major(counts.n[rows]), class_major(chosen[rows])
            return make_tally(real, added, target, quality)

        parts = in_order(score, row_slices(counts.K, counts.C))
        return cls.tallied(counts, chosen, policy, add_tallies(parts))

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
            int(tally.harmful),
            counts.clients,
            counts.classes,
        )

    def with_cost(self, cost: Cost | SiteCosts) -> "Plan":
        """Return the same plan with the cost of a sample attached, one for all or one each."""
        return replace(self, cost=cost)

    def scored_for(
        self, counts: LabelCounts, target: TargetLike, quality: PerNameLike = None
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
        made = make_target(target)
        settled = made.for_counts(counts) if made else None
        worth = make_per_name(quality, "quality")
        rho = worth.ordered(counts.class_names, described("quality"), 1.0) if worth else None
        settings = {k: v for k, v in self.settings.items() if k not in ("target", "quality")}
        if settled and not settled.uniform:
            settings["target"] = settled.to_dict()
        if rho:
            settings["quality"] = list(rho.values)
        if settings == self.settings:
            return self
        each = rho.array(counts.C, described("quality")) if rho else None
        tally = make_tally(class_major(counts.n), class_major(self.samples), settled, each)
        before, after = tally.before / tally.real, tally.after / tally.real
        return replace(
            self, settings=settings, score_before=before, score_after=after,
            harmful=int(tally.harmful),
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
    def source(self) -> str:
        """The same as `counts_hash`, for new and for loaded plans."""
        return self.counts_hash

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
        """Write the plan as CSV, TSV, JSON or Parquet.

        JSON and Parquet include the plan's metadata. A text table such as `plan.csv` holds the
        samples only; its metadata goes to `plan.csv.json`.
        """
        tables.write(path, tables.Table(self.samples, self.clients, self.classes, self._facts()))

    @classmethod
    def load(cls, path: Path | str) -> "Plan":
        """Read a plan that `save` wrote."""
        table = tables.read(path, tables.Options(layout=tables.WIDE))
        facts = dict(table.meta or {})
        written = facts.pop("format", None)
        if written != _FORMAT:
            if isinstance(written, str) and written.startswith("plan/"):
                raise InputError(
                    f"{path} is a plan of another version of fedeas",
                    got=written,
                    allowed=_FORMAT,
                    fix="read it with a newer fedeas, or make it again",
                )
            if not facts and Path(path).suffix.lower() in (".csv", ".tsv"):
                beside = tables.facts_file(Path(path)).name
                raise InputError(
                    f"{path} is not a plan: {beside} is missing",
                    fix=f"put {beside} there too, or make the plan again with `fedeas plan --out`",
                )
            raise InputError(
                f"{path} is not a plan", allowed="a file that `fedeas plan --out` wrote"
            )
        try:
            # A newer version may say more of a plan: what is not known here is left out.
            cost, known = facts["cost"], {key: facts[key] for key in _FACTS}
            plan = cls(
                whole_matrix(table.values, "samples"),
                _source=facts["counts_hash"],
                clients=names(table.clients, len(table.values), "client"),
                classes=names(table.classes, table.values.shape[1], "class"),
                cost=_read_cost(cost, len(table.values)) if cost else None,
                **known,
            )
        except (TypeError, KeyError):
            raise InputError(f"{path} is a damaged plan", fix="make it again") from None
        if not _well_formed(plan):
            raise InputError(f"{path} is a damaged plan", fix="make it again")
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

    def to_polars(self) -> Any:
        """Return the samples as a polars data frame: a column of clients, a column per class."""
        return polars_frame(self.samples, self.client_names, self.class_names)

    def plot(self, counts: LabelCounts | None = None) -> Any:
        """Return the matplotlib figure that `fedeas plan --plot` saves.

        Parameters
        ----------
        counts : LabelCounts, optional
            The counts that the plan was made from; needed for a plan loaded from a file.

        """
        return plotting.figure(self, self._held(counts, "use plan.plot(counts)"))

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

    def _facts(self) -> dict[str, Any]:
        return plan_facts(
            policy=self.policy,
            settings=dict(self.settings),
            counts_hash=self.counts_hash,
            real=self.real,
            score_before=self.score_before,
            score_after=self.score_after,
            harmful=self.harmful,
            cost=vars(self.cost) if self.cost else None,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy is read-only too; what is derived from the samples is computed again.
        vars(self).update({key: value for key, value in state.items() if key != "per_client"})
        self.samples.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Plan)
            and (self.clients, self.classes, self._facts())
            == (other.clients, other.classes, other._facts())
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

    def __repr__(self) -> str:
        busy = int((self.per_client > 0).sum())
        beyond = "" if self.overfilled is None else f"; {self.overfilled.clients:,} overfilled"
        return (
            f"Plan({self.policy}: {self.total:,} samples for {busy:,} of {len(self.samples):,} "
            f"clients{beyond}, imbalance {-self.reduction:+.1%}, "
            f"synthetic share {self.synthetic_share:.1%})"
        ).replace("%", " %")


def plan_facts(**facts: object) -> dict[str, Any]:
    """Return a saved plan's metadata."""
    return {"format": _FORMAT, **facts}


def reduction(before: float, after: float) -> float:
    """Return 1 - I(B) / I(0), or 0 if there was no imbalance to remove."""
    part = 1.0 - after / before if before > 0 else 0.0
    return part if abs(part) > 1e-15 else 0.0


def _read_cost(facts: dict[str, Any], clients: int) -> Cost | SiteCosts:
    """Read the cost of a sample, one for all clients or one each."""
    if not isinstance(facts["per_sample"], list):
        return Cost(**facts)
    each = tuple(map(float, facts["per_sample"]))
    if len(each) != clients:
        raise KeyError("per_sample")
    return SiteCosts(each, str(facts["unit"]))


def _well_formed(plan: Plan) -> bool:
    numbers = (plan.real, plan.score_before, plan.score_after, plan.harmful)
    return (
        isinstance(plan.policy, str)
        and plan.policy.isprintable()
        and isinstance(plan.settings, dict)
        and _well_formed_target(plan.settings.get("target"))
        and isinstance(plan._source, str)
        and all(isinstance(x, int | float) and 0 <= x < float("inf") for x in numbers)
    )


def _well_formed_target(given: object) -> bool:
    """Tell whether a file's target can be one: None, or a name and shares."""
    if given is None:
        return True
    try:
        Target(given["shares"], None, given["name"])  # type: ignore[index]
    except (TypeError, KeyError, InputError):
        return False
    return isinstance(given["name"], str) and given["name"].isprintable()  # type: ignore[index]
