"""Methods against what is known of them: closed forms, and FedAvg where they must equal it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedeas import InputError
from fedeas.flower.client import make_client_app
from fedeas.methods.fedgen import FedGen
from fedeas.methods.fedmix import FedMix
from fedeas.methods.fedprox import FedProx
from fedeas.methods.method import Round, Turn
from fedeas.methods.moon import Moon
from fedeas.methods.registry import make_method
from fedeas.methods.scaffold import Scaffold
from fedeas.training.loop import Correction, Local
from fedeas.training.models import ModelSettings, Task, make_model
from federations import ROUNDS, federation, trained
from pictures import draw_shapes

RATE, STEPS = 0.05, 7


class Quadratic(nn.Module):
    """A model of one number with loss a/2 (w - b)^2."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def descend(self, a: float, b: float, correction: Correction, steps: int) -> None:
        for _ in range(steps):
            self.w.grad = a * (self.w.detach() - b)
            correction.after_backward(self)
            with torch.no_grad():
                self.w -= RATE * self.w.grad


def turn(model: Quadratic, before, received, kept) -> Turn:
    local = Local(learning_rate=RATE)
    return Turn(model, before, received, kept, None, local, 1, np.random.default_rng(0))


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
            here = turn(model, dict(weights), method.send(state, number, 0), kept[k])
            model.descend(a[k], b[k], method.correction(here), steps[k])
            done = method.finish(here, steps[k])
            kept[k] = done.kept
            sums += sizes[k] * done.added["w"]
            mean += share[k] * model.w.detach()
        done = Round(weights, {"w": mean}, {"w": sums}, [], int(sizes.sum()), number, 0)
        weights, state = method.update(state, done)
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
    assert Scaffold().finish(here, 0).kept == here.kept
    local = Local(momentum=0.9)
    with pytest.raises(InputError, match="plain SGD"):
        Scaffold().correction(Turn(model, here.before, {}, {}, None, local, 1, here.rng))


def test_the_servers_rate_is_a_step_along_the_mean_update():
    before, mean = {"w": torch.tensor(1.0)}, {"w": torch.tensor(3.0)}
    done = Round(
        {**before, "running": torch.tensor(1.0)},
        {**mean, "running": torch.tensor(0.4)},
        {"w": torch.tensor(0.5, dtype=torch.float64)},
        [], 5, 1, 0,
    )  # fmt: skip
    weights, state = Scaffold(server_rate=2.0).update({}, done)
    assert (float(weights["w"]), float(state["w"])) == (5.0, pytest.approx(0.1))
    assert float(weights["running"]) == pytest.approx(0.4)  # a statistic, not a parameter


def test_fedprox_pulls_towards_the_server():
    model = Quadratic()
    anchor = {"w": torch.tensor(2.0, dtype=torch.float64)}
    correction = FedProx(mu=0.5).correction(turn(model, anchor, {}, {}))
    model.descend(1.0, 0.0, correction, 4000)
    assert model.w.item() == pytest.approx(0.5 * 2 / (1 + 0.5))


@pytest.mark.parametrize(
    ("method", "projection"),
    [("fedprox(mu=0)", 0), ("moon(mu=0)", 16), ("fedmix(share=0)", 0), ("fedgen(weight=0)", 0)],
)
def test_a_method_without_its_term_is_fedavg_bit_for_bit(method, projection, tmp_path):
    plain = trained(tmp_path / "plain", projection=projection)
    other = trained(tmp_path / "other", method=method, projection=projection)
    assert plain.keys() == other.keys()
    for name, weight in plain.items():
        assert torch.equal(weight, other[name]), name


@pytest.mark.parametrize(
    ("method", "projection"),
    [("fedprox", 0), ("scaffold", 0), ("moon", 16), ("fedmix", 0), ("fedgen", 0)],
)
def test_a_method_with_its_term_is_not(method, projection, tmp_path):
    plain = trained(tmp_path / "plain", projection=projection)
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


def test_moons_loss_is_the_papers():
    model, server, last = (make_model(ModelSettings(projection=16), TASK, s) for s in (1, 2, 3))
    before, kept = dict(server.state_dict()), dict(last.state_dict())
    here = Turn(model, before, {}, kept, None, Local(), 2, np.random.default_rng(0))
    images, labels = batch()
    found = Moon(mu=3.0, tau=0.7).correction(here).loss(model, images, labels)
    z, near, far = (m.fc[:-1](m.features(images)) for m in (model, server, last))
    pull, push = (torch.exp(functional.cosine_similarity(z, o) / 0.7) for o in (near, far))
    contrast = -torch.log(pull / (pull + push)).mean()
    plain = functional.cross_entropy(model(images), labels)
    assert found.item() == pytest.approx((plain + 3.0 * contrast).item(), rel=1e-5)


def test_fedmixs_loss_is_the_papers():
    model = make_model(ModelSettings(), TASK, 1)
    images, labels = batch()
    share = 0.2
    mashed = {"images": torch.rand(1, 8, 8, 1) * 255, "labels": torch.tensor([[0.2, 0.3, 0.5]])}
    here = Turn(model, {}, mashed, {}, None, Local(), 2, np.random.default_rng(0))
    found = FedMix(share=share).correction(here).loss(model, images, labels)
    x, other = model.normalise(images), model.normalise(mashed["images"])

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


def test_fedgens_server_learns_features_that_the_last_layers_know():
    method, model = FedGen(steps=400, rate=3e-3), make_model(ModelSettings(), TASK, 1)
    state = method.start(model, TASK, [], 0)
    rng = torch.Generator().manual_seed(0)
    shown = []
    for k in range(3):  # each client knows one class well, and holds it alone
        weight = torch.randn(3, 128, generator=rng)
        counts = torch.tensor([50.0 if c == k else 0.0 for c in range(3)])
        shown.append({"weight": weight, "bias": torch.zeros(3), "counts": counts})
    done = Round({}, {}, {}, shown, 150, 1, 0)

    def recognised(state: dict[str, torch.Tensor]) -> float:
        received = {**state, "counts": torch.ones(3)}
        here = Turn(model, {}, received, {}, None, Local(), 2, np.random.default_rng(0))
        labels = torch.arange(3).repeat(40)
        drawn = method.correction(here)._draw(labels)
        named = torch.stack([
            (d @ shown[y]["weight"].T).argmax() for d, y in zip(drawn, labels.tolist(), strict=True)
        ])  # fmt: skip
        return (named == labels).float().mean().item()

    _, after = method.update(state, done)
    assert recognised(state) < 0.7
    assert recognised(after) > 0.95
    assert after["counts"].tolist() == [50.0] * 3


@pytest.mark.parametrize(
    "spec",
    [
        "fedprox(mu=-1)",
        "scaffold(server_rate=0)",
        "moon(tau=0)",
        "fedmix(share=1)",
        "fedmix(mash=2)",
        "fedgn",
    ],
)
def test_bad_settings_are_refused(spec):
    with pytest.raises(InputError):
        make_method(spec)


@pytest.mark.parametrize(("method", "projection"), [("moon", 0), ("fedgen", 16)])
def test_a_model_that_does_not_fit_the_method_is_refused(method, projection, tmp_path):
    with pytest.raises(Exception, match="projection"):
        trained(tmp_path, method=method, projection=projection)


def test_the_handlers_are_thin(tmp_path):
    """The ClientApp travels with every message."""
    import ray.cloudpickle as cloudpickle

    app = make_client_app(federation(tmp_path).simulation.opener())
    assert len(cloudpickle.dumps(app)) < 20_000
    assert ROUNDS >= 2
