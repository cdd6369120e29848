"""A federation in forty lines: what `fedeas run` and the sites compute, without Flower.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data, 2017.

`simulate` is the reference: rounds on Flower give the same weights bit for bit, and add messages,
checks of what others send, and checkpoints.
"""

import math
from collections.abc import Callable, Sequence

from fedeas._internal.seeds import child_rng
from fedeas.train.loop import fit
from fedeas.train.methods.method import ClientContext, Method, RoundSummary
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings
from fedeas.train.tensors import ExactSum, Tensors, torch_seed


def simulate(
    method: Method,
    clients: Sequence[Samples],
    model: str = "cnn",
    local: Local | None = None,
    rounds: int = 40,
    fraction: float = 0.5,
    seed: int = 42,
    after_round: Callable[[int, Tensors], None] | None = None,
) -> Tensors:
    """Train a federation in this process and return the server's weights.

    Parameters
    ----------
    method : Method
        The FL method; `Method()` is FedAvg.
    clients : sequence of Samples
        What each client trains on. Its weight is N_k, the number of its real samples.
    model, local : str, Local
        The network by name, and how a client trains it.
    rounds, fraction : int, float
        Rounds of communication, and the share of clients in each.
    seed : int
        Of weights, cohorts and shuffling.
    after_round : callable, optional
        Is given the number of a round and the server's weights after it.
    """
    task, local = Task.of(clients[0].data), local or Local()
    method.check_data(task)
    network = make_model(ModelSettings(model), task, torch_seed(seed, "weights"))
    weights = {name: weight.clone() for name, weight in network.state_dict().items()}
    N = [len(client.indices) for client in clients]
    inits = [
        method.client_init(client.real, child_rng(seed, "hello", k))
        for k, client in enumerate(clients)
    ]
    state = method.server_init(network, task, inits, seed)
    client_states: list[Tensors] = [{} for _ in clients]
    for server_round in range(1, rounds + 1):
        cohort = draw_cohort(seed, server_round, len(clients), fraction)
        broadcast = method.broadcast(state, server_round, seed)
        cohort_N = sum(N[k] for k in cohort)
        trained, summed, uploads = ExactSum(cohort_N), ExactSum(cohort_N), []
        for k in cohort:
            network.load_state_dict(weights)
            method_rng, batch_rng = (
                child_rng(seed, use, server_round, k) for use in ("method", "train")
            )
            context = ClientContext(
                network, weights, broadcast, client_states[k], clients[k], local, server_round,
                method_rng,
            )  # fmt: skip
            objective = method.local_objective(context)
            steps = fit(network, clients[k], local, batch_rng, objective)
            update = method.client_update(context, steps)
            client_states[k] = update.state
            trained.add(network.state_dict(), N[k])
            summed.add(update.summed, N[k])
            uploads.append(update.upload)
        summary = RoundSummary(
            weights, trained.mean(weights), summed.total(), uploads, sum(N), server_round, seed,
            local,
        )  # fmt: skip
        weights, state = method.server_update(state, summary)
        if after_round is not None:
            after_round(server_round, weights)
    return weights


def draw_cohort(seed: int, server_round: int, clients: int, fraction: float) -> list[int]:
    """Draw the clients of a round from (seed, round) alone.

    >>> draw_cohort(42, 1, 20, 0.5) == draw_cohort(42, 1, 20, 0.5)
    True
    """
    size = max(1, math.floor(clients * fraction + 1e-9))
    cohort = child_rng(seed, "cohort", server_round).choice(clients, size, replace=False)
    return sorted(int(k) for k in cohort)
