"""Methods against what is known of them: closed forms, and FedAvg where they must equal it."""

import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Context, Message
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from fedeas import InputError
from fedeas.data import Dataset
from fedeas.lab.config import read_config
from fedeas.lab.experiment import run as run_config
from fedeas.train.flower import records
from fedeas.train.flower.aggregation import RoundAggregator, Weights
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.roster import Node
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.flower.site import Site
from fedeas.train.loop import LocalObjective
from fedeas.train.methods import make_method
from fedeas.train.methods.client_drift import FedProx, Moon, Scaffold
from fedeas.train.methods.fedgen import FedGen
from fedeas.train.methods.fedmix import FedMix
from fedeas.train.methods.method import ClientContext, FedAvg, RoundSummary
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Federated, Local, ModelSettings
from fedeas.train.tensors import stream
from helpers.image_sets import CLASSES, draw_shapes, shapes
from helpers.small_federations import ROUNDS, federation, run, settings, trained, write_shapes

HELPERS = Path(__file__).parents[1] / "helpers"
RATE, STEPS = 0.05, 7


class Quadratic(nn.Module):
    """A model of one number with loss a/2 (w - b)^2."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def descend(self, a: float, b: float, correction: LocalObjective, steps: int) -> None:
        for _ in range(steps):
            self.w.grad = a * (self.w.detach() - b)
            correction.after_backward(self)
            with torch.no_grad():
                self.w -= RATE * self.w.grad


def turn(model: Quadratic, before, received, kept) -> ClientContext:
    local = Local(learning_rate=RATE)
    return ClientContext(model, before, received, kept, None, local, 1, np.random.default_rng(0))


def test_scaffold_is_its_closed_form_on_quadratics():
    a, b = np.array([1.0, 3.0, 0.5]), np.array([-2.0, 1.0, 4.0])
    sizes = np.array([10, 1, 5])  # clients weigh N_k
    share = sizes / sizes.sum()
    steps = [STEPS, STEPS - 3, STEPS + 4]  # the real number of steps differs between clients
    method = Scaffold()
    weights = {"w": torch.zeros((), dtype=torch.float64)}
    state, kept = {}, [{} for _ in a]
    w, c, own = 0.0, 0.0, np.zeros(3)
    for number in range(1, 601):
        mean, sums = (torch.zeros((), dtype=torch.float64) for _ in range(2))
        for k in range(3):
            model = Quadratic()
            model.load_state_dict(weights)
            here = turn(model, dict(weights), method.broadcast(state, number, 0), kept[k])
            model.descend(a[k], b[k], method.local_objective(here), steps[k])
            done = method.client_update(here, steps[k])
            kept[k] = done.state
            sums += sizes[k] * done.summed["w"]
            mean += share[k] * model.w.detach()
        done = RoundSummary(weights, {"w": mean}, {"w": sums}, [], int(sizes.sum()), number, 0)
        weights, state = method.server_update(state, done)
        # A local step is w <- w - r (a (w - b) - c_k + c): it contracts to b + (c_k - c)/a.
        fixed = b + (own - c) / a
        after = fixed + (1 - RATE * a) ** np.array(steps) * (w - fixed)
        changed = own - c + (w - after) / (np.array(steps) * RATE)
        c += share @ (changed - own)
        own, w = changed, share @ after
        assert float(weights["w"]) == pytest.approx(w, rel=1e-10, abs=1e-12)
        assert float(state["w"]) == pytest.approx(c, rel=1e-10, abs=1e-12)
    # The optimum of the weighted objective, which drifting clients miss.
    assert w == pytest.approx((share * a * b).sum() / (share * a).sum(), abs=1e-6)


def test_scaffold_refuses_momentum_and_keeps_what_it_had_without_steps():
    model = Quadratic()
    here = turn(model, dict(model.state_dict()), {}, {"w": torch.ones((), dtype=torch.float64)})
    assert Scaffold().client_update(here, 0).state == here.state
    local = Local(momentum=0.9)
    with pytest.raises(InputError, match="plain SGD"):
        Scaffold().local_objective(
            ClientContext(model, here.server_weights, {}, {}, None, local, 1, here.rng)
        )


def test_the_servers_rate_is_a_step_along_the_mean_update():
    before, mean = {"w": torch.tensor(1.0)}, {"w": torch.tensor(3.0)}
    done = RoundSummary(
        {**before, "running": torch.tensor(1.0)},
        {**mean, "running": torch.tensor(0.4)},
        {"w": torch.tensor(0.5, dtype=torch.float64)},
        [], 5, 1, 0,
    )  # fmt: skip
    weights, state = Scaffold(server_rate=2.0).server_update({}, done)
    assert (float(weights["w"]), float(state["w"])) == (5.0, pytest.approx(0.1))
    assert float(weights["running"]) == pytest.approx(0.4)  # a statistic, not a parameter


def test_fedprox_pulls_towards_the_server():
    model = Quadratic()
    anchor = {"w": torch.tensor(2.0, dtype=torch.float64)}
    correction = FedProx(mu=0.5).local_objective(turn(model, anchor, {}, {}))
    model.descend(1.0, 0.0, correction, 4000)
    assert model.w.item() == pytest.approx(0.5 * 2 / (1 + 0.5))


@pytest.fixture(scope="module")
def fedavg(tmp_path_factory):
    """FedAvg's weights by the width of the projection, trained once."""

    @cache
    def weights(projection):
        return trained(tmp_path_factory.mktemp("plain"), projection=projection)

    return weights


@pytest.mark.parametrize(
    ("method", "projection"),
    [
        ("fedprox(mu=0)", 0),
        pytest.param("moon(mu=0)", 16, marks=pytest.mark.slow),
        ("moon(mu=0)", 0),
        ("fedmix(share=0)", 0),
        ("fedgen(weight=0)", 0),
        pytest.param("fedgen(weight=0)", 16, marks=pytest.mark.slow),
    ],
)
def test_a_method_without_its_term_is_fedavg_bit_for_bit(method, projection, tmp_path, fedavg):
    plain = fedavg(projection)
    other = trained(tmp_path / "other", method=method, projection=projection)
    assert plain.keys() == other.keys()
    for name, weight in plain.items():
        assert torch.equal(weight, other[name]), name


@pytest.mark.parametrize(
    ("method", "projection"),
    [
        ("fedprox", 0),
        ("scaffold", 0),
        ("moon", 16),
        pytest.param("moon", 0, marks=pytest.mark.slow),
        ("fedmix", 0),
        pytest.param("fedgen", 0, marks=pytest.mark.slow),
        ("fedgen", 16),
    ],
)
def test_a_method_with_its_term_is_not(method, projection, tmp_path, fedavg):
    plain = fedavg(projection)
    other = trained(tmp_path / "other", method=method, projection=projection)
    assert all(torch.isfinite(weight).all() for weight in other.values())
    assert any(not torch.equal(weight, other[name]) for name, weight in plain.items())


def test_fedeas_on_balanced_clients_is_fedavg_bit_for_bit(tmp_path):
    plain = trained(tmp_path / "plain", recipe="balanced")
    other = trained(tmp_path / "other", recipe="balanced", policy="fedeas(beta=12)")
    for name, weight in plain.items():
        assert torch.equal(weight, other[name]), name
    skewed = trained(tmp_path / "skewed", policy="fedeas(beta=12)")
    assert any(not torch.equal(w, skewed[n]) for n, w in trained(tmp_path / "skewed2").items())


TASK = Task(3, (8, 8, 1), (0.2,), (0.3,))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = draw_shapes(6)
    return torch.from_numpy(images), torch.from_numpy(labels)


@pytest.mark.parametrize("projection", [16, 0])
def test_moons_loss_is_the_papers(projection):
    """Of what leaves the projection head, as in the original, or of the features without one."""
    settings = ModelSettings(projection=projection)
    model, server, last = (make_model(settings, TASK, s) for s in (1, 2, 3))
    before, kept = dict(server.state_dict()), dict(last.state_dict())
    here = ClientContext(model, before, {}, kept, None, Local(), 2, np.random.default_rng(0))
    images, labels = batch()
    found = Moon(mu=3.0, tau=0.7).local_objective(here).loss(model, images, labels)
    z, near, far = (m.features(images) for m in (model, server, last))
    if projection:
        z, near, far = (
            m.fc[2](functional.relu(m.fc[0](x)))
            for m, x in zip((model, server, last), (z, near, far), strict=True)
        )
    pull, push = (torch.exp(functional.cosine_similarity(z, o) / 0.7) for o in (near, far))
    contrast = -torch.log(pull / (pull + push)).mean()
    plain = functional.cross_entropy(model(images), labels)
    assert found.item() == pytest.approx((plain + 3.0 * contrast).item(), rel=1e-5)


def test_fedmixs_loss_is_the_papers():
    model = make_model(ModelSettings(), TASK, 1)
    images, labels = batch()
    share = 0.2
    mashed = {"samples": torch.rand(1, 8, 8, 1) * 255, "labels": torch.tensor([[0.2, 0.3, 0.5]])}
    here = ClientContext(model, {}, mashed, {}, None, Local(), 2, np.random.default_rng(0))
    found = FedMix(share=share).local_objective(here).loss(model, images, labels)
    x, other = model.normalise(images), model.normalise(mashed["samples"])

    def first(x: torch.Tensor) -> torch.Tensor:
        logits = model.fc(model.body((1 - share) * x))
        return (1 - share) * functional.cross_entropy(logits, labels)

    # The slope along the mashed image, by a central difference in double precision.
    model.double()
    x, other, small = x.double(), other.double(), 1e-6
    slope = (first(x + small * other) - first(x - small * other)) / (2 * small)
    logits = model.fc(model.body((1 - share) * x))
    theirs = functional.cross_entropy(logits, mashed["labels"].double().expand(6, 3))
    expected = first(x) + share * theirs + share * slope
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


# FedGen, against its formulas


def known_generator(method: FedGen, width: int, seed: int = 5) -> dict[str, torch.Tensor]:
    """A generator's state with random weights; noise does not matter to what it draws."""
    rng = torch.Generator().manual_seed(seed)
    first = torch.randn(method.hidden, method.noise + 3, generator=rng)
    first[:, : method.noise] = 0
    return {
        "generator.0.weight": first,
        "generator.0.bias": torch.randn(method.hidden, generator=rng),
        "generator.1.weight": torch.rand(method.hidden, generator=rng) + 0.5,
        "generator.1.bias": torch.randn(method.hidden, generator=rng),
        "generator.1.running_mean": torch.randn(method.hidden, generator=rng),
        "generator.1.running_var": torch.rand(method.hidden, generator=rng) + 0.5,
        "generator.1.num_batches_tracked": torch.tensor(3),
        "generator.3.weight": torch.randn(width, method.hidden, generator=rng),
        "generator.3.bias": torch.randn(width, generator=rng),
    }


def drawn_features(state: dict[str, torch.Tensor], noise: int, label: int) -> torch.Tensor:
    """What such a generator draws for a label, layer by layer, in double precision."""
    s = {key.removeprefix("generator."): value.double() for key, value in state.items()}
    x = s["0.weight"][:, noise + label] + s["0.bias"]
    x = (x - s["1.running_mean"]) / (s["1.running_var"] + 1e-5).sqrt()
    x = (x * s["1.weight"] + s["1.bias"]).clamp(min=0)
    return s["3.weight"] @ x + s["3.bias"]


@pytest.mark.parametrize("projection", [0, 16])
def test_fedgens_client_loss_is_the_originals(projection):
    """CE + w (32/batch CE of drawn features + KL to the prediction for features of the label).

    With w = 10 * 0.98^(rounds before). Behind a projection head features are what leaves it.
    """
    method = FedGen(noise=4, hidden=8)
    model = make_model(ModelSettings(projection=projection), TASK, 1)
    width = projection or 128
    state = known_generator(method, width)
    received = {**state, "labels": torch.tensor([0, 1, 0])}
    here = ClientContext(
        model, {}, received, {}, None, Local(batch=64), 4, np.random.default_rng(0)
    )
    images, labels = batch()
    found = method.local_objective(here).loss(model, images, labels)

    model.double()
    last = model.fc[-1] if projection else model.fc
    assert last.in_features == width
    log_p = functional.log_softmax(model(images), 1)
    plain = -log_p[range(6), labels].mean()
    by_label = torch.stack([last(drawn_features(state, 4, label)) for label in range(3)])
    teach = -functional.log_softmax(by_label, 1)[1, 1]  # all 32 drawn labels are 1
    target = functional.softmax(by_label[labels], 1)
    pull = (target * (target.log() - log_p)).sum() / 6
    expected = plain + 10 * 0.98**3 * (32 / 64 * teach + pull)
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


def last_layers(clients: int, width: int = 6) -> list[dict[str, torch.Tensor]]:
    rng = torch.Generator().manual_seed(3)
    return [
        {"weight": torch.randn(3, width, generator=rng), "bias": torch.randn(3, generator=rng)}
        for _ in range(clients)
    ]


def test_fedgens_server_takes_adams_steps_and_keeps_the_optimiser():
    """Two rounds of two steps by hand: moments go on, the rate falls by 2 %, labels are uniform."""
    method = FedGen(noise=4, hidden=8, steps=2, rate=0.01, weight_decay=0.1, diversity=0.7)
    layers = last_layers(2)
    counts = [[30, 1, 0], [10, 3, 0]]  # nobody holds label 2
    shown = [{**own, "counts": torch.tensor(n)} for own, n in zip(layers, counts, strict=True)]
    model = SimpleNamespace(last=nn.Linear(6, 3))
    state = method.server_init(model, TASK, [], seed=7)
    by_hand = {k: v.clone() for k, v in state.items() if k.startswith("generator.")}
    names = [k for k in by_hand if k.endswith(("weight", "bias"))]
    moments = {k: (torch.zeros_like(by_hand[k]), torch.zeros_like(by_hand[k])) for k in names}
    step = 0
    for number in (1, 2):
        rng = stream(7, "generator", number)
        for _ in range(2):
            labels = torch.tensor([0, 1])[torch.randint(2, (10,), generator=rng)]
            noise = torch.randn(10, 4, generator=rng)
            step += 1
            slopes = generator_slopes(by_hand, names, noise, labels, layers, counts)
            for name, slope in slopes.items():
                g = slope + 0.1 * by_hand[name]
                m, v = moments[name]
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                size = 0.01 * 0.98 ** (number - 1)
                move = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
                by_hand[name] = by_hand[name] - size * move
        done = RoundSummary({}, {}, {}, shown, 44, number, 7, Local(batch=10))
        _, state = method.server_update(state, done)
        for name in names:
            assert torch.allclose(state[name], by_hand[name], atol=2e-5), (number, name)
    assert state["labels"].tolist() == [1, 1, 0]
    assert float(state["step"]) == 4
    assert method.broadcast(state, 3, 7).keys() == {*by_hand, "labels"}  # not the optimiser


def generator_slopes(state, names, noise, labels, layers, counts):
    """Slopes of sum_k n_k^y / sum_j n_j^y CE_k(G(noise, y), y) + 0.7 exp(-mean |dz| |dnoise|^2)."""
    w = {name: state[name].clone().requires_grad_() for name in names}
    x = torch.cat([noise, torch.eye(3)[labels]], 1) @ w["generator.0.weight"].T
    x = x + w["generator.0.bias"]
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    x = (x * w["generator.1.weight"] + w["generator.1.bias"]).clamp(min=0)
    z = x @ w["generator.3.weight"].T + w["generator.3.bias"]
    loss = torch.zeros(())
    for i, y in enumerate(labels.tolist()):
        held = counts[0][y] + counts[1][y]
        for own, layer in zip(counts, layers, strict=True):
            logits = layer["weight"] @ z[i] + layer["bias"]
            loss = loss - own[y] / held * functional.log_softmax(logits, 0)[y] / len(labels)
    apart = (z[:, None] - z[None]).abs().mean(2)
    other = (noise[:, None] - noise[None]).square().mean(2)
    loss = loss + 0.7 * torch.exp(-(apart * other).mean())
    return dict(zip(names, torch.autograd.grad(loss, list(w.values())), strict=True))


def test_fedgen_draws_labels_alike_however_many_samples_there_are(monkeypatch):
    """By the server from what the round's clients hold, by a client from what any held so far."""
    from fedeas.train.methods import fedgen

    drawn = []
    plain = fedgen._condition

    def noted(noise, labels, classes):
        drawn.extend(labels.tolist())
        return plain(noise, labels, classes)

    monkeypatch.setattr(fedgen, "_condition", noted)
    method = FedGen(noise=4, hidden=8)
    model = make_model(ModelSettings(), TASK, 1)
    (layer,) = last_layers(1, 128)
    shown = [{**layer, "counts": torch.tensor([5000, 2, 0])}]
    done = RoundSummary({}, {}, {}, shown, 5002, 1, 0, Local(batch=64))
    _, state = method.server_update(method.server_init(model, TASK, [], 0), done)
    assert len(drawn) == 50 * 64
    assert set(drawn) == {0, 1}
    assert 0.45 < drawn.count(1) / len(drawn) < 0.55
    shown = [{**layer, "counts": torch.tensor([0, 0, 7])}]  # the others are absent this round
    _, state = method.server_update(
        state, RoundSummary({}, {}, {}, shown, 7, 2, 0, Local(batch=64))
    )
    received = method.broadcast(state, 3, 0)
    assert received["labels"].tolist() == [1, 1, 1]
    here = ClientContext(
        model, {}, received, {}, None, Local(batch=64), 3, np.random.default_rng(0)
    )
    correction = method.local_objective(here)
    drawn.clear()
    images, _ = batch()
    for _ in range(100):
        correction.loss(model, images[:2], torch.tensor([0, 0]))
    teaching = [y for start in range(0, len(drawn), 34) for y in drawn[start : start + 32]]
    shares = [teaching.count(y) / len(teaching) for y in range(3)]
    assert all(0.3 < share < 0.37 for share in shares), shares


def test_fedgens_server_learns_features_that_the_last_layers_know():
    method, model = (
        FedGen(steps=400, rate=3e-3),
        make_model(ModelSettings(), TASK, 1),
    )
    state = method.server_init(model, TASK, [], 0)
    layers = last_layers(3, 128)
    # Each client knows one class well, and holds it alone.
    shown = [{**own, "counts": 50 * torch.eye(3).long()[k]} for k, own in enumerate(layers)]

    def recognised(state: dict[str, torch.Tensor]) -> float:
        received = {**method.broadcast(state, 2, 0), "labels": torch.ones(3, dtype=torch.int64)}
        here = ClientContext(model, {}, received, {}, None, Local(), 2, np.random.default_rng(0))
        labels = torch.arange(3).repeat(40)
        drawn = method.local_objective(here)._draw(labels)
        named = torch.stack([
            (layers[y]["weight"] @ d + layers[y]["bias"]).argmax()
            for d, y in zip(drawn, labels.tolist(), strict=True)
        ])  # fmt: skip
        return (named == labels).float().mean().item()

    _, after = method.server_update(state, RoundSummary({}, {}, {}, shown, 150, 1, 0))
    assert recognised(state) < 0.7
    assert recognised(after) > 0.95


def test_fedgen_cut_off_goes_on_with_the_same_bits(tmp_path):
    """Generator and optimiser are in the checkpoint."""
    made = federation(tmp_path)
    fedgen = settings("fedgen(steps=5)", 16)
    ended = {}
    for name, steps in (("straight", (4,)), ("cut", (2, 4))):
        (tmp_path / name).mkdir()
        for rounds in steps:
            run(made, tmp_path / name, fedgen.replace(rounds=rounds))
        (path,) = (tmp_path / name).glob("*.safetensors")
        ended[name] = load_file(path)
    assert float(ended["straight"]["state.step"]) == 4 * 5
    assert ended["straight"].keys() == ended["cut"].keys()
    assert all(torch.equal(value, ended["cut"][key]) for key, value in ended["straight"].items())


@pytest.mark.slow
def test_fedgen_killed_goes_on_with_the_same_bits(tmp_path):
    """Generator and optimiser are in the checkpoint: real kills do not change the outcome."""
    write_shapes(tmp_path / "set")
    config = tmp_path / "run.toml"
    config.write_text(
        f'device = "cpu"\n[data]\nname = "shapes"\nfolder = "{tmp_path / "set"}"\n'
        '[partition]\nrecipe = "dirichlet"\nclients = 4\nalpha = 0.5\n'
        '[federated]\nrounds = 12\nmethod = "fedgen(steps=5)"\n[federated.model]\nprojection = 16\n'
        "[federated.local]\nepochs = 1\nbatch = 8\n"
    )
    run_config(read_config(config), tmp_path / "straight")
    script = [sys.executable, "-W", "ignore", HELPERS / "killed_runs.py"]
    done = subprocess.run(
        [*script, config, tmp_path / "killed", "4", "0.1"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len({int(line) for line in done.stdout.split()}) >= 2  # between rounds, too
    straight, killed = (
        load_file(tmp_path / name / "checkpoint.safetensors") for name in ("straight", "killed")
    )
    assert float(straight["state.step"]) == 12 * 5
    assert straight.keys() == killed.keys()
    assert all(torch.equal(straight[name], killed[name]) for name in straight)


def test_fedgen_trains_with_five_thousand_images_of_a_class(tmp_path):
    """The paper's partition at K = 20, alpha = 0.05 has such clients."""
    many, few = 5000, 40
    labels = np.array([0] * many + [1, 2] * few)
    images = np.random.default_rng(0).integers(0, 255, (len(labels), 8, 8, 1)).astype(np.uint8)
    images[labels == 1, :4] = 0
    data = Dataset.write(
        tmp_path / "set", "grey", CLASSES, (len(labels), 0), iter([(images, labels)])
    )
    parts = [np.arange(many + 5), np.arange(many + 5, len(labels))]
    samples = [Samples.of(data, own) for own in parts]

    def open_site(context: Context) -> Site:
        k = int(context.node_config["partition-id"])
        return Site(k, samples[k], lambda _: samples[k], tmp_path / str(k))

    grid = InlineGrid(make_client_app(open_site), 2)
    local = Local(epochs=1, batch=256)
    federated = Federated(rounds=2, fraction=1.0, method="fedgen(steps=3)", local=local)
    path = tmp_path / "checkpoint.safetensors"
    done = run_rounds(grid, federated, Task.of(data), 42, path, "many", lambda _: {})
    assert [line["refused"] for line in done.history] == [[], []]
    assert load_file(path)["state.labels"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"counts": [-1, 3, 3]}, "do not add up"),
        ({"counts": [2**62, 2**62, 2**63 - 1]}, "do not add up"),
        ({"counts": [2**63 - 1, 2**63 - 1, 7]}, "do not add up"),  # overflows to a sum of 5
        ({"counts": [6, 0, 0]}, "do not add up"),
        ({"counts": [0, 0, 0]}, "do not add up"),
        ({"counts": np.array([5, 0, 0], np.float32)}, "wrong shape or dtype"),
        ({"counts": np.array([math.nan, 0, 0], np.float32)}, "wrong shape or dtype"),
        ({"counts": [5, 0]}, "wrong shape or dtype"),
        ({"weight": math.nan}, "not finite"),
        ({"bias": math.inf}, "not finite"),
        ({"weight": 1e20}, "absurdly large"),
        ({}, None),
    ],
)
def test_what_a_hostile_client_shows_fedgen_is_refused(changed, message):
    model = make_model(ModelSettings(), TASK, 1)
    shown = {**dict(model.fc.named_parameters()), "counts": torch.tensor([3, 2, 0])}
    for name, value in changed.items():
        given = torch.as_tensor(value)
        shown[name] = torch.full_like(shown[name], value) if given.dim() == 0 else given
    before = dict(model.state_dict())
    InlineGrid(None, 1)  # messages need a run
    added = RoundAggregator(before, model, FedGen(), 5, Weights({0: Node(1, 0, 5)}, None))
    numbers = {"num-examples": 5, "partition": 0, "steps": 1, "trained-on": 5}
    asked = Message(records.pack({}, {}), 1, "train")
    reply = Message(
        records.pack({"weights": before, "shown": shown}, numbers=numbers), reply_to=asked
    )
    added.take(reply, {1: Node(1, 0, 5)}, 1)
    refused = added.numbers()["refused"]
    assert (added.good == [0]) == (message is None)
    assert refused == [] if message is None else message in refused[0]


def test_a_method_that_shows_something_must_show_finite_values():
    class Loud(FedAvg):
        """Shows a number of any size."""

    Loud().validate_upload({"x": torch.tensor([1e30])}, 5)
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match="not finite"):
            Loud().validate_upload({"x": torch.tensor([value])}, 5)


# FedMix's averages


def test_fedmix_averages_groups_or_all_of_a_clients_images(tmp_path):
    data = shapes(tmp_path / "set", train=100)
    samples = Samples.of(data, np.arange(70))
    pixels, labels = samples.take(np.arange(70))
    (known,) = [FedMix(mash=0).client_init(samples, np.random.default_rng(0))]
    assert known["samples"].shape == (1, 8, 8, 1)
    assert torch.allclose(
        known["samples"][0], torch.from_numpy(pixels.astype(np.float64).mean(0)).float()
    )
    assert known["labels"][0].tolist() == pytest.approx((np.bincount(labels) / 70).tolist())
    FedMix(mash=0).validate_client_init(known, Task.of(data), 70)
    groups = FedMix(mash=20).client_init(samples, np.random.default_rng(0))
    assert len(groups["samples"]) == 3  # and ten that stay private
    few = Samples.of(data, np.arange(15))
    assert len(FedMix(mash=0).client_init(few, np.random.default_rng(0))["samples"]) == 0
    with pytest.raises(InputError, match="not averages"):
        FedMix(mash=0).validate_client_init(groups, Task.of(data), 70)


@pytest.mark.parametrize(
    ("key", "value"), [("samples", 256.0), ("samples", -1.0), ("labels", 1.5), ("labels", math.nan)]
)
def test_averages_that_no_images_have_are_refused(key, value):
    known = {"samples": torch.ones(1, 8, 8, 1), "labels": torch.tensor([[0.2, 0.3, 0.5]])}
    FedMix().validate_client_init(known, TASK, 70)
    known[key] = torch.full_like(known[key], value)
    with pytest.raises(InputError, match="out of range"):
        FedMix().validate_client_init(known, TASK, 70)


@pytest.mark.parametrize(
    "spec",
    [
        "fedprox(mu=-1)",
        "scaffold(server_rate=0)",
        "moon(tau=0)",
        "fedmix(share=1)",
        "fedmix(mash=2)",
        "fedmix(mash=-1)",
        "fedgen(decay=0)",
        "fedgen(rate=0)",
        "fedgen(steps=0)",
        "fedgen(diversity=-1)",
        "fedgn",
    ],
)
def test_bad_settings_are_refused(spec):
    with pytest.raises(InputError):
        make_method(spec)


def test_the_handlers_are_thin(tmp_path):
    """The ClientApp travels with every message."""
    import ray.cloudpickle as cloudpickle

    app = make_client_app(federation(tmp_path).simulation.opener())
    assert len(cloudpickle.dumps(app)) < 20_000
    assert ROUNDS >= 2
