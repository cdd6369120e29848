"""Drift over what is trained, and over everything that a reply holds."""

import itertools

import numpy as np
import pytest
import torch
from flwr.app import Message

from fedeas.cli.result_tables import rich_table
from fedeas.lab.report.page import table_sections
from fedeas.lab.results import FinishedRun, SweepEntry, curves, summarise
from fedeas.lab.tables import make_tables
from fedeas.train.flower import records
from fedeas.train.flower.aggregation import RoundAggregator, Weights
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.roster import Node
from fedeas.train.methods.method import FedAvg

SIZES = (10, 30, 60)
STEPS = (20, 40, 80)
ENDS = ([1.0, 0.0], [0.0, 2.0], [3.0, 0.0])


class Small(torch.nn.Module):
    """Two weights, a counter and two running statistics."""

    def __init__(self, buffers: bool) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2))
        if buffers:
            self.register_buffer("seen", torch.tensor(0))
            self.register_buffer("running", torch.zeros(2))


def line(order: tuple[int, ...], buffers: bool = True) -> dict:
    InlineGrid(None, 1)  # messages need a run
    model = Small(buffers)
    nodes = {k: Node(k, k, n) for k, n in enumerate(SIZES)}
    weights_of = Weights(nodes, None)
    added = RoundAggregator(dict(model.state_dict()), model, FedAvg(), sum(SIZES), weights_of)
    for k in order:
        weights = {"w": torch.tensor(ENDS[k])}
        if buffers:
            weights |= {"seen": torch.tensor(STEPS[k]), "running": torch.tensor([0.5, 4.0])}
        numbers = {"num-examples": SIZES[k], "partition": k, "steps": 1, "trained-on": 1}
        asked = Message(records.pack({}, {}), k, "train")
        content = records.pack({"weights": weights}, numbers=numbers)
        added.take(Message(content, reply_to=asked), nodes, k)
    return added.numbers()


def by_hand(updates: list[list[float]]) -> float:
    share = np.array(SIZES) / sum(SIZES)
    directions = np.array([np.array(d) / np.linalg.norm(d) for d in updates])
    return float(1 - ((share @ directions) ** 2).sum())


def test_drift_with_buffers_is_that_of_all_entries():
    found = line((0, 1, 2))
    everything = [[*w, steps, 0.5, 4.0] for w, steps in zip(ENDS, STEPS, strict=True)]
    assert found["drift_all"] == pytest.approx(by_hand(everything), abs=1e-9)
    assert found["drift"] == pytest.approx(by_hand([list(w) for w in ENDS]), abs=1e-9)
    # Counters point the same way: they hide that the weights do not.
    assert found["drift_all"] < 0.05 < 0.4 < found["drift"]


def test_it_does_not_depend_on_who_answers_first():
    found = {line(order)["drift_all"] for order in itertools.permutations(range(3))}
    assert len(found) == 1


def test_a_model_without_buffers_has_one_drift():
    assert "drift_all" not in line((0, 1, 2), buffers=False)


def run(policy: str, drift_all: float | None) -> FinishedRun:
    history = [
        {"accuracy": 0.5, "drift": 0.8, "seconds": 1.0, "trained_on": 9, "per_class": [0.5]}
        | ({} if drift_all is None else {"drift_all": drift_all * n})
        for n in (1, 2, 3)
    ]
    model = {"name": "cnn"}
    settings = {"augment": {}, "federated": {"method": "fedavg", "model": model, "rounds": 3,
                "fraction": 1.0, "local": {"epochs": 1, "learning_rate": 0.1}},
                "data": {"name": "x", "protocol": "clean"},
                "partition": {"clients": 3, "alpha": 0.1}, "seed": 1}  # fmt: skip
    result = {
        "experiment": policy, "settings": settings, "method": "fedavg", "policy": policy,
        "generated": 0, "seed": 1,
        "generator": "", "generator_hash": "", "counts_hash": "c", "versions": "h", "data": "x",
        "classes": ["a"], "generation": {"made": 0, "seconds": 0.0},
        "on": {"machine": "m", "device": "cpu", "threads": 1, "torch": "2"},
        "curves": curves(history),
    }  # fmt: skip
    return FinishedRun(SweepEntry("grid", "", None, "", "fedavg", policy, (), 1, policy), result)


def test_both_are_kept_and_shown_where_they_differ():
    runs = [run("none", 0.001), run("uniform", None)]
    assert summarise(runs[0].result["curves"])["drift_all_median"] == pytest.approx(0.002)
    assert "drift_all_median" not in summarise(runs[1].result["curves"])
    (table,) = make_tables(runs)
    heads = [str(column.header) for column in rich_table(table).columns]
    assert heads[heads.index("drift") + 1] == "with buffers"
    section, *_ = table_sections("x", runs, [table])
    assert "drift with buffers" in section.parts[0].head
    assert "0.002" in section.parts[0].rows[0]
    (plain,) = make_tables(runs[1:])
    assert "with buffers" not in [str(column.header) for column in rich_table(plain).columns]
