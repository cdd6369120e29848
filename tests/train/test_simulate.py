"""The reference loop and Flower's rounds give the same weights, bit for bit, for all methods."""

from pathlib import Path

import pytest
import torch

from fedeas import InputError
from fedeas.train.flower.simulated import open_simulated
from fedeas.train.methods import METHODS, make_method
from fedeas.train.samples import Samples
from fedeas.train.settings import Federated, Local, ModelSettings
from fedeas.train.simulate import simulate
from helpers.small_federations import CLIENTS, Federation, federation, run

LOCAL = Local(epochs=1, batch=16, learning_rate=0.05)
ROUNDS, FRACTION = 3, 0.67
MODELS = {"moon": "cnn(projection=16)"}


class _Context:
    def __init__(self, number: int) -> None:
        self.node_config = {"partition-id": number}


def samples_of(made: Federation) -> list[Samples]:
    """What each client of a federation trains on, synthetic samples included."""
    sites = [open_simulated(made.simulation, _Context(k)) for k in range(CLIENTS)]
    return [site.samples("") for site in sites]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> tuple[Path, Federation, list[Samples]]:
    folder = tmp_path_factory.mktemp("federation")
    made = federation(folder, policy="fedeas(beta=2)")
    return folder, made, samples_of(made)


@pytest.mark.parametrize("method", METHODS.names())
def test_rounds_on_flower_are_the_reference_loop(small, method):
    folder, made, clients = small
    assert any(len(client) > len(client.indices) for client in clients)
    model = MODELS.get(method, "cnn")
    torch.set_num_threads(1)
    lines = []
    weights = simulate(
        make_method(method), clients, model, LOCAL, ROUNDS, FRACTION,
        after_round=lambda number, _: lines.append(number),
    )  # fmt: skip
    federated = Federated(
        rounds=ROUNDS, fraction=FRACTION, method=method, model=ModelSettings(model), local=LOCAL
    )
    on_flower = run(made, folder, federated).weights
    assert weights.keys() == on_flower.keys()
    assert all(torch.equal(weights[name], on_flower[name]) for name in weights)
    assert lines == [1, 2, 3]


def test_a_method_of_ones_own_can_be_debugged_in_it(small):
    class Broken(type(make_method("fedavg"))):
        def local_objective(self, context):
            raise InputError("mine", got=context.round)

    with pytest.raises(InputError, match="mine; got 1"):
        simulate(Broken(), small[2], local=LOCAL, rounds=1)
