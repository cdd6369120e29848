"""Adding up a round's replies: each is checked, weighted, and added as it comes, in any order.

None is kept, except where updates are bounded by the median norm of their round, which is known
when all replies are there.

A site's weight bounds how much its update counts, not how long it is: one that sends
before + 5 (X - before) with a fifth of the weight makes the model X. So updates are scaled down to
a norm: a fixed one, or a multiple of the round's median.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from flwr.app import Message

from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.train.flower import records
from fedeas.train.flower.deployment import Deployment
from fedeas.train.flower.exchange import reason
from fedeas.train.flower.roster import Node, read_size
from fedeas.train.methods.method import Method
from fedeas.train.models import Classifier
from fedeas.train.tensors import (
    ExactSum,
    Tensors,
    check_like,
    check_values,
    direction,
)

Line = dict[str, Any]  # the results of a round


class Weights:
    """Client weights: N_k, up to a bound if sites may lie about it."""

    def __init__(self, nodes: Mapping[int, Node], cap: int | None) -> None:
        self._nodes, self.cap = nodes, cap

    def __getitem__(self, partition: int) -> int:
        real = self._nodes[partition].real
        return real if self.cap is None else min(real, self.cap)

    def capped(self, partitions: Sequence[int]) -> list[int]:
        """Return the clients whose weight is below the number of samples they report."""
        return sorted(p for p in partitions if self[p] < self._nodes[p].real)


@dataclass(frozen=True)
class _Reply:
    """A valid reply: the weights, what the method adds and shows, two counts."""

    partition: int
    after: Tensors
    extra: Tensors
    shown: Tensors
    steps: int
    trained_on: int


class RoundAggregator:
    """Adds up the replies of a round; an invalid one is noted and left out."""

    def __init__(
        self,
        before: Tensors,
        model: Classifier,
        method: Method,
        samples: int,
        weights_of: Weights,
        deployment: Deployment | None = None,
        wrong: Sequence[str] = (),
    ) -> None:
        self._before, self._model, self._method = before, model, method
        self._trained = {name for name, _ in model.named_parameters()}
        self._weights_of = weights_of
        self._clip = 0.0 if deployment is None else deployment.clip_norm
        # A norm that was chosen beforehand needs no median, unless a method adds something else.
        self._ratio = 0.0
        if deployment is not None and (not self._clip or method.summed_spec(model)):
            self._ratio = deployment.max_norm_ratio
        self._held: list[_Reply] = []  # until the round's median norm is known
        self._norm_cap: float | None = None
        self._clipped: list[int] = []
        self.weights, self._directions, self._extra = (ExactSum(samples) for _ in range(3))
        # Of all entries of a reply, where some are not trained: statistics and counters.
        self._with_buffers = ExactSum(samples) if before.keys() - self._trained else None
        self.shown: dict[int, Tensors] = {}
        self.good: list[int] = []
        self._wrong = list(wrong)
        self._steps = self._samples = 0

    def take(self, reply: Message, by_node: Mapping[int, Node], asked: int) -> None:
        """Add a reply if all of it is valid, or note why not; `asked` is the node it comes from."""
        node = by_node.get(asked)
        if node is None or node.partition in self.good:
            return
        try:
            if reply.has_error():
                raise InputError(reason(reply))
            content = reply.content
            if (size := read_size(reply)) != node.real:
                raise InputError("a changed size", got=size)
            after = records.tensors(content, "weights")
            check_like(after, self._before, "weights")
            extra = records.tensors(content, "added")
            check_like(extra, self._method.summed_spec(self._model), "sums")
            shown = records.tensors(content, "shown")
            check_like(shown, self._method.upload_spec(self._model), "what is shown")
            steps = records.whole(content, "steps")
            trained_on = records.whole(content, "trained-on")
            for tensors in (after, extra):
                check_values(tensors)
            self._method.validate_upload(shown, node.real)
            if self._clip:
                after = clip_update(self._before, after, self._clip)
        except FedeasError as error:
            self._wrong.append(f"client {node.partition}: {error}")
            return
        except Exception as error:  # bytes from another party can raise anything
            self._wrong.append(f"client {node.partition}: {type(error).__name__}")
            return
        self.good.append(node.partition)
        valid = _Reply(node.partition, after, extra, shown, steps, trained_on)
        if self._ratio:
            self._held.append(valid)
        else:
            self._add(valid)

    def close(self) -> None:
        """Add the replies that waited for the others, none longer than a multiple of the median.

        What is trained, running statistics, and what the method adds have each a median of their
        own: a site could otherwise hide a long update of one in the usual length of another. Sites
        that send no update, as those of one class may, do not count: that would stop all others.
        """
        held, self._held = self._held, []
        groups = [self._groups(reply) for reply in held]
        norms = [[_norm(_moved(*group)) for group in own] for own in groups]
        caps = [
            self._ratio * statistics.median_low(moved)
            if (moved := [n for n in column if n])
            else 0.0
            for column in zip(*norms, strict=True)
        ]
        if caps:
            self._norm_cap = caps[0]
        for reply, own, lengths in zip(held, groups, norms, strict=True):
            if any(length > cap for length, cap in zip(lengths, caps, strict=True)):
                self._clipped.append(reply.partition)
                trained, others, extra = (
                    clip_update(*group, cap) for group, cap in zip(own, caps, strict=True)
                )
                bounded = {**trained, **others}
                after = {name: bounded[name] for name in reply.after}  # in the model's order
                self._add(replace(reply, after=after, extra=extra))
            else:
                self._add(reply)

    def _groups(self, reply: _Reply) -> list[tuple[Tensors, Tensors]]:
        """Return what is trained, the other weights, and what the method adds: before and after."""
        trained = {k: v for k, v in reply.after.items() if k in self._trained}
        others = {k: v for k, v in reply.after.items() if k not in self._trained}
        nothing = {k: torch.zeros_like(v) for k, v in reply.extra.items()}
        return [(self._before, trained), (self._before, others), (nothing, reply.extra)]

    def _add(self, reply: _Reply) -> None:
        weight = self._weights_of[reply.partition]
        self.weights.add(reply.after, weight)
        if moved := direction(self._before, reply.after, self._trained):
            self._directions.add(moved, weight)
        if self._with_buffers is not None and (
            everything := direction(self._before, reply.after, reply.after)
        ):
            self._with_buffers.add(everything, weight)
        if reply.extra:
            self._extra.add(reply.extra, weight)
        if reply.shown:
            self.shown[reply.partition] = reply.shown
        self._steps += reply.steps
        self._samples += reply.trained_on

    def check(self, number: int, cohort: Sequence[int], minimum: float) -> None:
        """Refuse a round with too few good replies; says who is missing and why."""
        if len(self.good) >= max(1, minimum * len(cohort)):
            return
        named = {wrong.partition(":")[0] for wrong in self._wrong}
        late = [p for p in cohort if p not in self.good and f"client {p}" not in named]
        said = [*self._wrong, *(f"client {p}: no reply in time" for p in late)]
        raise InfeasibleError(
            f"round {number}: {len(self.good)} of {len(cohort)} clients gave a valid reply",
            fix="; ".join(said),
        )

    def sums(self) -> Tensors:
        """Return the sums of N_k times what the method adds."""
        return self._extra.total()

    def numbers(self) -> Line:
        """Return the round's line of the log.

        `drift` is the directional dissimilarity of the updates d_k, 1 - ||sum_k w_k d_k/||d_k||||^2
        with w_k = N_k / N: 0 where all point the same way. Only what is trained counts: running
        statistics are not updates. `drift_all` is the same over all entries of a reply, statistics
        and counters of batches too, if a model has them.
        """
        line: Line = {
            "clients": len(self.good),
            "samples": self.weights.weight,
            "trained_on": self._samples,
            "steps": self._steps,
            "drift": self._dissimilarity(self._directions),
            "refused": self._wrong,
        }
        if self._with_buffers is not None:
            line["drift_all"] = self._dissimilarity(self._with_buffers)
        if self._weights_of.cap is not None:
            line["weight_cap"] = self._weights_of.cap
            line["capped"] = self._weights_of.capped(self.good)
        if self._norm_cap is not None:
            line["norm_cap"] = self._norm_cap
            line["clipped"] = sorted(self._clipped)
        return line

    def _dissimilarity(self, directions: ExactSum) -> float:
        squared = sum(
            float((total / self.weights.weight).square().sum())
            for total in directions.total().values()
        )
        return 1.0 - squared


def clip_update(before: Mapping[str, torch.Tensor], after: Tensors, most: float) -> Tensors:
    """Scale an update down to a norm of at most `most`, over all floating-point tensors.

    >>> clipped = clip_update({"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])}, 1.0)
    >>> clipped["w"]
    tensor([0.6000, 0.8000])
    """
    moved = _moved(before, after)
    norm = _norm(moved)
    if not norm > most:
        return after
    scale = most / norm
    clipped = {k: (before[k].double() + d * scale).to(after[k].dtype) for k, d in moved.items()}
    return {**after, **clipped}


def _moved(before: Mapping[str, torch.Tensor], after: Tensors) -> Tensors:
    return {k: v.double() - before[k].double() for k, v in after.items() if v.is_floating_point()}


def _norm(moved: Tensors) -> float:
    return math.sqrt(sum(float(d.square().sum()) for d in moved.values()))
