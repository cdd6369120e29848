r"""Plans for samples with several labels: which label sets each client generates.

A policy says how many positives of each label a client should add, from the counts of positives; a
sample without a label counts as one of `no label`. Samples that hold several of these labels at
once make them with the least samples. Where every sample has one label, the counts of positives are
the label counts and a sample makes one positive: any policy, and FedEAS with its beta, then gives
the plan that it gives for label counts.

Why the budget is the policy's, not the federation's prevalence: a client that is to reach a
prevalence outright pays full balance, which FedEAS exists to avoid. `target="federation"` aims at
the federation's prevalence, and `FullBalance(target="federation")` goes all the way.

A label set is used if it holds no label but those that are wanted and, where it has several, if the
federation holds six samples of it: the least samples are always of sets with many labels, and of
fewer there is nothing to learn from. A wanted label that occurs in no such set is made by the sets
that hold it with the fewest others, and the plan says which others it raises.

The score of a label is sum_k (N_k / N) (pi_k - tau)^2: pi_k is its prevalence at client k, tau that
of the target, the share of the label times the federation's labels per sample. With one label per
sample, the scores of all labels add up to the imbalance score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import content_hash, read_json, write_json
from fedeas._internal.frames import html_lines
from fedeas._internal.names import choice
from fedeas._internal.scalars import integer
from fedeas.counts.files import PLAN_HEADING
from fedeas.counts.label_counts import whole_matrix
from fedeas.counts.label_set_files import split_labels, write_label_sets
from fedeas.counts.label_sets import LabelSetCounts
from fedeas.errors import InputError
from fedeas.planning.covering import least_cover
from fedeas.planning.diagnosis import FEW
from fedeas.planning.plan import Plan, reduction
from fedeas.planning.planner import plan
from fedeas.planning.policies import Policy
from fedeas.planning.targets import TargetLike, aim_shares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
FEDERATION, CLIENT = "federation", "client"
_FORMAT = "label-set-plan/2"


@dataclass(frozen=True)
class Obstacle:
    """A label that a client cannot have more of without raising others.

    Parameters
    ----------
    client, label : str
        Who is to generate samples of which label.
    wanted : int
        How many.
    raised : mapping of str to int
        The positives of labels that the plan adds beyond what is wanted, in the label sets that it
        uses for this one. Empty if the label occurs in no label set: none of it is generated.
    """

    client: str
    label: str
    wanted: int
    raised: Mapping[str, int]

    def __str__(self) -> str:
        what = f"{self.client}: {self.wanted:,} {self.label}"
        if not self.raised:
            return f"{what} cannot be made: the label occurs in no label set"
        others = ", ".join(f"{name} by {number:,}" for name, number in self.raised.items())
        return f"{what} also raises {others}"


@dataclass(frozen=True, eq=False, repr=False)
class LabelSetPlan:
    """Clients x label sets: the samples to generate, what they are for, and what they change.

    Parameters
    ----------
    counts : LabelSetCounts
        What the clients hold.
    samples : array of int
        Clients x label sets, the samples to generate.
    wanted : Plan
        The positives of each label that the policy asks for.
    obstacles : tuple of Obstacle
        What cannot be reached, or not without raising other labels.

    >>> counts = LabelSetCounts([[1, 0, 0], [0, 1, 0], [0, 1, 1]], [[90, 0, 0], [30, 40, 30]])
    >>> from fedeas import FedEAS
    >>> plan_label_sets(counts, FedEAS(beta=4))
    LabelSetPlan(fedeas: 21 samples for 1 of 2 clients, imbalance -52.1 %, synthetic share 10.0 %)
    """

    counts: LabelSetCounts
    samples: Ints
    wanted: Plan
    obstacles: tuple[Obstacle, ...] = ()

    @cached_property
    def per_client(self) -> Ints:
        """The number of samples that each client generates."""
        sums: Ints = self.samples.sum(axis=1)
        return sums

    @property
    def total(self) -> int:
        """The number of samples of all clients together."""
        return int(self.samples.sum())

    @cached_property
    def added(self) -> Ints:
        """The positives of each label that each client adds; columns as in `counts.positives`."""
        positives: Ints = self.samples @ self.counts.holds.T.astype(np.int64)
        return positives

    @property
    def excess(self) -> Ints:
        """The positives that are added beyond what is wanted."""
        beyond: Ints = np.maximum(self.added - self.wanted.samples, 0)
        return beyond

    @property
    def synthetic_share(self) -> float:
        """The synthetic share of all samples, real and generated."""
        return self.total / (self.total + self.counts.total)

    @cached_property
    def target_prevalence(self) -> Floats:
        """The prevalence of each label that clients are measured against."""
        return target_prevalence(self.counts, self.wanted.target)

    @cached_property
    def prevalence_after(self) -> Floats:
        """The prevalence of each label at each client, with the samples of the plan."""
        held = self.counts.positives.n + self.added
        sizes = np.maximum(self.counts.sizes + self.per_client, 1)
        prevalence: Floats = held / sizes[:, np.newaxis]
        return prevalence

    @property
    def score_before(self) -> float:
        """The score of the real samples."""
        return float(label_scores(self.counts, self.wanted.target).sum())

    @property
    def score_after(self) -> float:
        """The same with the plan's samples."""
        return float(label_scores(self.counts, self.wanted.target, self.samples).sum())

    @property
    def reduction(self) -> float:
        """The share of the score that the plan removes."""
        return reduction(self.score_before, self.score_after)

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON, or its samples as a table of label sets, CSV or TSV."""
        path, counts = Path(path), self.counts
        if path.suffix.lower() != ".json":
            used = np.flatnonzero(self.samples.any(axis=0))
            used = used if used.size else np.array([0])  # a plan of nothing is a table, too
            names = counts.client_names, counts.label_names
            samples = {"samples": self.samples[:, used]}
            write_label_sets(path, *names, counts.sets[used], samples, PLAN_HEADING)
            return
        people = None if counts.people is None else counts.people.tolist()
        wanted: dict[str, Any] = {"samples": self.wanted.samples.tolist(), **self.wanted.facts()}
        write_json(
            path,
            {
                "format": _FORMAT,
                "counts": {
                    "sets": counts.sets.astype(int).tolist(), "n": counts.n.tolist(),
                    "clients": counts.clients, "labels": counts.labels, "people": people,
                },
                "samples": self.samples.tolist(),
                "wanted": wanted,
                "rows": content_hash(self.rows()),
                "obstacles": [vars(each) for each in self.obstacles],
            },
        )  # fmt: skip

    @classmethod
    def load(cls, path: Path | str) -> "LabelSetPlan":
        """Read a plan that `save` wrote as JSON."""
        if Path(path).suffix.lower() != ".json":
            raise InputError(f"{path} holds at most the samples of a plan", allowed="plan.json")
        facts = read_json(Path(path))
        try:
            if facts["format"] != _FORMAT:
                raise ValueError("not a plan of label sets")
            counts = LabelSetCounts(**facts["counts"])
            wanted = facts["wanted"]
            plan = cls(
                counts,
                _read_samples(facts["samples"], counts),
                Plan.from_facts(
                    wanted["samples"], counts.positives.clients, counts.positives.classes, wanted
                ),
                tuple(Obstacle(**each) for each in facts["obstacles"]),
            )
            if content_hash(plan.rows()) != facts["rows"]:
                raise ValueError("other samples")
        except (TypeError, KeyError, ValueError, AttributeError):
            raise InputError(
                f"{path} is not an unchanged plan of label sets", fix="make the plan again"
            ) from None
        return plan

    def for_classes(self, classes: Sequence[str]) -> Plan:
        """Return the samples as a plan of classes, each a label set: what generators are asked for.

        Parameters
        ----------
        classes : sequence of str
            The names of label sets in the order of the data, `Dataset.classes`.
        """
        place = {frozenset(split_labels(name)): c for c, name in enumerate(classes)}
        columns = [frozenset(split_labels(name)) for name in self.counts.set_names]
        samples = np.zeros((self.counts.K, len(classes)), np.int64)
        for s in np.flatnonzero(self.samples.any(axis=0)):
            if columns[s] not in place:
                raise InputError(
                    "the plan has a label set that is not a class",
                    got=self.counts.set_names[s],
                    allowed=", ".join(classes[:20]),
                )
            samples[:, place[columns[s]]] = self.samples[:, s]
        settings = {k: v for k, v in self.wanted.settings.items() if k != "target"}  # of labels
        return Plan(
            samples, self.wanted.policy, settings, self.counts.fingerprint, self.counts.total,
            self.score_before, self.score_after, 0, self.counts.clients, tuple(classes),
        )  # fmt: skip

    def rows(self) -> list[tuple[str, str, int]]:
        """Return a row per client and label set to generate: their names and the samples."""
        clients = enumerate(self.counts.client_names)
        return [(name, *each) for k, name in clients for each in self.sets_of(k).items()]

    def sets_of(self, client: int) -> dict[str, int]:
        """Return the samples of each label set that a client, given by its place, generates."""
        row = self.samples[client]
        order = np.argsort(-row, kind="stable")[: int((row > 0).sum())]
        return {self.counts.set_names[s]: int(row[s]) for s in order}

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        counts, after = self.counts, self.prevalence_after
        scores = [label_scores(counts, self.wanted.target, g) for g in (None, self.samples)]
        return {
            "policy": self.wanted.policy,
            "settings": dict(self.wanted.settings),
            "target": self.wanted.target_name,
            "total": self.total,
            "wanted": self.wanted.total,
            "reduction": self.reduction,
            "synthetic_share": self.synthetic_share,
            "score_before": self.score_before,
            "score_after": self.score_after,
            "counts_hash": counts.fingerprint,
            "labels": [
                {
                    "label": name,
                    "target_prevalence": float(self.target_prevalence[c]),
                    "score_before": float(scores[0][c]),
                    "score_after": float(scores[1][c]),
                }
                for c, name in enumerate(counts.positives.class_names)
            ],
            "obstacles": [vars(each) for each in self.obstacles],
            "clients": [
                {
                    "client": counts.client_names[k],
                    "real": int(counts.sizes[k]),
                    "generate": int(self.per_client[k]),
                    "prevalence": counts.prevalence[k].tolist(),
                    "prevalence_after": after[k].tolist(),
                    "wanted": self.wanted.samples[k].tolist(),
                    "excess": self.excess[k].tolist(),
                    "sets": self.sets_of(k),
                }
                for k in range(counts.K)
            ],
        }

    def _repr_html_(self) -> str:
        rows = [(client, labels, f"{number:,}") for client, labels, number in self.rows()]
        return html_lines(repr(self), rows, ["client", "labels", "samples"])

    def __str__(self) -> str:
        return "\n".join([repr(self), *(f"{k}  {s}  {m:,}" for k, s, m in self.rows())])

    def __repr__(self) -> str:
        busy = int((self.per_client > 0).sum())
        return (
            f"LabelSetPlan({self.wanted.policy}: {self.total:,} samples for {busy:,} of "
            f"{self.counts.K:,} clients, imbalance {-self.reduction:+.1%}, "
            f"synthetic share {self.synthetic_share:.1%})"
        ).replace("%", " %")


def plan_label_sets(
    counts: LabelSetCounts,
    policy: str | Policy | None = None,
    target: TargetLike = None,
    total: int | None = None,
    sets: str = FEDERATION,
    min_samples: int = FEW,
) -> LabelSetPlan:
    """Plan which label sets each client generates, with the least samples.

    Parameters
    ----------
    counts : LabelSetCounts
        What the clients hold.
    policy : str or Policy, optional
        How many positives of each label are wanted; FedEAS with a beta for the counts by default,
        see `fedeas.plan`.
    target : Target, str, path, mapping or sequence, optional
        The shares of labels to aim at, among all labels that samples have; uniform by default.
        'federation' is the federation's prevalence.
    total : int, optional
        The most positives to ask for; there are no more samples than that.
    sets : str
        'federation': label sets that are listed for any client; 'client': those that the client
        holds itself.
    min_samples : int
        A set of several labels is used only if the federation holds this many samples of it.

    """
    if not isinstance(counts, LabelSetCounts):
        raise InputError(
            "not counts of label sets",
            got=type(counts).__name__,
            fix="use LabelSetCounts, or fedeas.plan for one label per sample",
        )
    choice(sets, "sets", (FEDERATION, CLIENT))
    integer(min_samples, "not a number of samples", "a whole number from 0", low=0)
    wanted = plan(counts.positives, policy, target, total)
    # The most frequent sets come first: of equally good ones these are taken.
    order = np.argsort(-counts.n.sum(axis=0), kind="stable")
    holds = counts.holds[:, order]
    frequent = (counts.n.sum(axis=0)[order] >= min_samples) | (holds.sum(axis=0) < 2)
    samples = np.zeros_like(counts.n)
    obstacles: list[Obstacle] = []
    for k in np.flatnonzero(wanted.per_client):
        known = np.ones(len(order), bool) if sets == FEDERATION else counts.n[k, order] > 0
        demand = wanted.samples[k].copy()
        usable, alone = _usable(holds & known, demand, frequent)
        demand[~usable.any(axis=1)] = 0
        chosen = _without_excess(usable, demand, least_cover(usable, demand))
        samples[k, order] = chosen
        obstacles += _obstacles(counts, int(k), wanted.samples[k], holds, chosen, alone)
    samples.setflags(write=False)
    return LabelSetPlan(counts, samples, wanted, tuple(obstacles))


def _read_samples(samples: Sequence[Sequence[int]], counts: LabelSetCounts) -> Ints:
    """Return the samples of a file, one number for each of the counts."""
    matrix = whole_matrix(samples, "samples")
    if matrix.shape != counts.n.shape:
        raise ValueError("samples of other counts")
    return matrix


def _usable(holds: Bools, demand: Ints, frequent: Bools) -> tuple[Bools, Bools]:
    """Return the sets that may be used, others being empty, and which labels do not raise others.

    A set may be used if it is frequent and holds wanted labels only, or if it holds a label that
    occurs in no such set, with as few others as there are.
    """
    wanted = demand > 0
    others = holds[~wanted].sum(axis=0)
    only = frequent & holds.any(axis=0) & (others == 0)
    alone = (holds & only).any(axis=1)
    for label in np.flatnonzero(wanted & ~alone & holds.any(axis=1)):
        only = only | (holds[label] & (others == others[holds[label]].min()))
    return holds & only, alone


def _without_excess(holds: Bools, demand: Ints, samples: Ints) -> Ints:
    """Exchange sets for parts of them, as long as no label falls short: the total stays."""
    samples = samples.copy()
    excess = holds @ samples - demand
    for s in np.flatnonzero(samples):
        while samples[s]:
            extra = holds[:, s] & (excess > 0)
            # Sets with all that is needed of this one, and nothing else; the smallest is best.
            fits = ~(holds & ~holds[:, [s]]).any(axis=0) & holds.any(axis=0)
            fits &= ~(holds[:, [s]] & ~extra[:, np.newaxis] & ~holds).any(axis=0)
            sizes = np.where(fits, holds.sum(axis=0), len(holds) + 1)
            part = int(np.argmin(sizes))
            if sizes[part] >= holds[:, s].sum():
                break
            less = holds[:, s] & ~holds[:, part]
            number = min(int(samples[s]), int(excess[less].min()))
            samples[s] -= number
            samples[part] += number
            excess[less] -= number
    return samples


def _obstacles(
    counts: LabelSetCounts, k: int, demand: Ints, holds: Bools, samples: Ints, alone: Bools
) -> list[Obstacle]:
    """Return which wanted labels of a client cannot be made, or not without raising others."""
    columns = counts.positives.class_names
    excess = np.maximum(holds @ samples - demand, 0)
    obstacles = []
    for c in np.flatnonzero(demand):
        made = holds[c] & (samples > 0)
        raised = holds[:, made].any(axis=1) & (excess > 0) & (np.arange(len(demand)) != c)
        if alone[c] and not raised[demand > 0].any():
            continue
        others = {columns[i]: int(excess[i]) for i in np.flatnonzero(raised)}
        if others or not made.any():
            obstacles.append(Obstacle(counts.client_names[k], columns[c], int(demand[c]), others))
    return obstacles


def target_prevalence(counts: LabelSetCounts, target: TargetLike = None) -> Floats:
    """Return the prevalence of each label that a target stands for; columns as in `positives`.

    >>> counts = LabelSetCounts([[0, 0], [1, 0], [1, 1]], [[50, 30, 20]])
    >>> target_prevalence(counts, "federation")
    array([0.5, 0.2, 0.5])
    """
    shares = aim_shares(target, counts.positives)
    kept = shares > 0
    positives = float(counts.positives.n[:, kept].sum())
    return shares * (positives / float(_sizes(counts, kept, counts.n).sum()))


def label_scores(
    counts: LabelSetCounts, target: TargetLike = None, samples: Ints | None = None
) -> Floats:
    """Return sum_k (N_k / N) (pi_k - tau)^2 of each label: how far prevalences are from the target.

    Parameters
    ----------
    counts : LabelSetCounts
        What the clients hold; the weights are always those of the real samples.
    target : Target, str, path, mapping or sequence, optional
        The shares of labels to aim at, uniform by default; a label with share 0 scores 0.
    samples : array of int, optional
        Samples to add, clients x label sets.

    """
    tau = target_prevalence(counts, target)
    kept = tau > 0
    n = counts.n if samples is None else counts.n + samples
    sizes = _sizes(counts, kept, n)
    prevalence = (n @ counts.holds.T.astype(np.int64)) / np.maximum(sizes, 1)[:, np.newaxis]
    real = _sizes(counts, kept, counts.n)
    scores: Floats = (real / real.sum()) @ (prevalence - tau) ** 2
    return np.where(kept, scores, 0.0)


def _sizes(counts: LabelSetCounts, kept: Bools, n: Ints) -> Ints:
    """Return each client's number of samples that have a label which the target has."""
    sizes: Ints = n @ counts.holds[kept].any(axis=0).astype(np.int64)
    return sizes
