"""Methods whose loss knows the client's label counts: by hand, and FedAvg where they equal it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fedeas import InputError
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.deployment import SiteConfig
from fedeas.train.methods import make_method
from fedeas.train.methods.logit_adjustment import ClassWeights, FedLC
from fedeas.train.methods.method import ClientContext, Method
from fedeas.train.settings import Local
from helpers.small_federations import (
    federation,
    run,
    same_as_on_ray,
    settings,
    train_on_ray,
    trained,
)

METHODS = ("class-weights", "fedlc")
COUNTS = (9, 1, 0, 0)  # of a client's training samples
LOGITS = ((1.0, 0.5, -1.0, 0.2), (0.3, 2.0, 0.0, 0.7), (-0.5, 0.1, 0.4, 1.5))
LABELS = (0, 1, 0)
SERVER = ((0.0, 0.0, 1.0, -1.0), (0.0, 0.0, 0.5, 0.5), (0.0, 0.0, -2.0, 1.0))


class Fixed(nn.Module):
    """A model whose weights are its logits, whatever the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(LOGITS))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.w


def loss_of(method: Method, counts=COUNTS, labels=LABELS) -> tuple[float, torch.Tensor]:
    """The loss of a batch with these labels, and its slope along every logit."""
    model = Fixed()
    samples = SimpleNamespace(counts=lambda: np.array(counts))
    server = {"w": torch.tensor(SERVER)}
    here = ClientContext(model, server, {}, {}, samples, Local(), 1, np.random.default_rng(0))
    loss = method.local_objective(here).loss(model, torch.zeros(3, 1), torch.tensor(labels))
    loss.backward()
    return loss.item(), model.w.grad


def cross_entropy(rows, label_of=LABELS) -> list[float]:
    return [
        math.log(sum(map(math.exp, row))) - row[label]
        for row, label in zip(rows, label_of, strict=True)
    ]


def test_the_balanced_softmax_by_hand():
    """log(9 e^z0 + e^z1) - z_y - log n_y; classes without samples have no part in it."""
    losses = [
        math.log(9 * math.exp(1) + math.exp(0.5)) - 1 - math.log(9),
        math.log(9 * math.exp(0.3) + math.exp(2)) - 2,
        math.log(9 * math.exp(-0.5) + math.exp(0.1)) + 0.5 - math.log(9),
    ]
    found, slope = loss_of(ClassWeights())
    assert found == pytest.approx(sum(losses) / 3, rel=1e-5)
    assert not slope[:, 2:].any()
    assert slope[:, :2].all()


def test_fedlcs_loss_by_hand():
    """Logits minus tau n^(-1/4): 16 samples give half of tau, 1 gives tau, none an infinity."""
    calibrated = [(a - 0.4, b - 0.8, c - 0.8) for a, b, c, _ in LOGITS]
    expected = sum(cross_entropy(calibrated)) / 3
    found, slope = loss_of(FedLC(tau=0.8), counts=(16, 1, 1, 0))
    assert found == pytest.approx(expected, rel=1e-5)
    assert not slope[:, 3].any()


@pytest.fixture(scope="module")
def fedavg(tmp_path_factory):
    """FedAvg's weights, trained once."""
    return trained(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    "method",
    [
        "class-weights(strength=0)",
        "fedlc(tau=0)",
    ],
)
def test_without_its_term_a_method_is_fedavg_bit_for_bit(method, tmp_path, fedavg):
    other = trained(tmp_path, method=method)
    assert all(torch.equal(weight, other[name]) for name, weight in fedavg.items())


def test_with_it_every_method_is_another(tmp_path):
    """Every client of this federation lacks a class."""
    weights = {m: trained(tmp_path / str(i), method=m) for i, m in enumerate(("fedavg", *METHODS))}
    assert all(torch.isfinite(w).all() for own in weights.values() for w in own.values())
    assert len({float(own["conv1.bias"].sum()) for own in weights.values()}) == 1 + len(METHODS)


@pytest.mark.parametrize(
    "method", ["fedlc", *(pytest.param(m, marks=pytest.mark.slow) for m in METHODS[:-1])]
)
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(method, tmp_path):
    made = federation(tmp_path, policy="fedeas(beta=12)")
    whole = run(made, tmp_path, settings(method)).weights
    (tmp_path / "cut").mkdir()
    run(made, tmp_path / "cut", settings(method).replace(rounds=2))
    grid = InlineGrid(make_client_app(made.simulation.opener()), made.clients)
    rest = run(made, tmp_path / "cut", settings(method), grid)
    assert all(torch.equal(weight, rest.weights[name]) for name, weight in whole.items())


@pytest.mark.slow
def test_they_end_with_the_same_bits_on_ray(tmp_path):
    """Without synthetic samples: every client lacks a class."""
    made = federation(tmp_path)
    inline = {m: run(made, tmp_path, settings(m)).weights for m in METHODS}
    train_on_ray(tmp_path, [(m, 0) for m in METHODS], policy="none")
    assert same_as_on_ray(tmp_path, inline)


def test_sites_take_part_in_them_by_default_since_they_send_weights_alone():
    allowed = SiteConfig(0, "a, b", "data", "state").methods.split()
    for spec in METHODS:
        method = make_method(spec)
        assert method.name in allowed
        assert not method.stateful
        assert (method.upload_spec(None), method.summed_spec(None)) == ({}, {})


@pytest.mark.parametrize(
    "spec",
    [
        "class-weights(strength=-1)",
        "class-weights(strength=inf)",
        "class-weights(loss=focal)",
        "fedlc(tau=-1)",
    ],
)
def test_bad_settings_are_refused(spec):
    with pytest.raises(InputError):
        make_method(spec)
