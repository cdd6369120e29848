"""Methods against what is known of them: closed forms, and FedAvg where they must equal it."""

import numpy as np
import pytest
import torch
from torch import nn

from fedeas import InputError
from fedeas.flower.client import make_client_app
from fedeas.methods.fedprox import FedProx
from fedeas.methods.method import Round, Turn
from fedeas.methods.registry import make_method
from fedeas.methods.scaffold import Scaffold
from fedeas.training.loop import Correction, Local
from federations import ROUNDS, federation, trained

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
    steps = [STEPS, STEPS - 3, STEPS + 4]  # the real number of steps differs between clients
    method = Scaffold()
    weights = {"w": torch.zeros((), dtype=torch.float64)}
    state, kept = {}, [{} for _ in a]
    w, c, own = 0.0, 0.0, np.zeros(3)
    for number in range(1, 301):
        ends, sums = [], {"w": torch.zeros((), dtype=torch.float64)}
        for k in range(3):
            model = Quadratic()
            model.load_state_dict(weights)
            here = turn(model, dict(weights), method.send(state, number, 0), kept[k])
            model.descend(a[k], b[k], method.correction(here), steps[k])
            done = method.finish(here, steps[k])
            kept[k] = done.kept
            sums["w"] += done.added["w"]
            ends.append(model.w.detach())
        mean = {"w": torch.stack(ends).mean()}
        weights, state = method.update(state, Round(weights, mean, sums, [], 3, number, 0))
        # A local step is w <- w - r (a (w - b) - c_k + c): it contracts to b + (c_k - c)/a.
        fixed = b + (own - c) / a
        after = fixed + (1 - RATE * a) ** np.array(steps) * (w - fixed)
        changed = own - c + (w - after) / (np.array(steps) * RATE)
        c += (changed - own).sum() / 3
        own, w = changed, after.mean()
        assert float(weights["w"]) == pytest.approx(w, rel=1e-10, abs=1e-12)
        assert float(state["w"]) == pytest.approx(c, rel=1e-10, abs=1e-12)
    # At the optimum of the sum the controlled gradients of all clients vanish.
    assert w == pytest.approx((a * b).sum() / a.sum(), abs=1e-6)


def test_scaffold_refuses_momentum_and_keeps_what_it_had_without_steps():
    model = Quadratic()
    here = turn(model, dict(model.state_dict()), {}, {"w": torch.ones((), dtype=torch.float64)})
    assert Scaffold().finish(here, 0).kept == here.kept
    local = Local(momentum=0.9)
    with pytest.raises(InputError, match="plain SGD"):
        Scaffold().correction(Turn(model, here.before, {}, {}, None, local, 1, here.rng))


def test_the_servers_rate_is_a_step_along_the_mean_update():
    before, mean = {"w": torch.tensor(1.0)}, {"w": torch.tensor(3.0)}
    done = Round(before, mean, {"w": torch.tensor(0.5)}, [], 5, 1, 0)
    weights, state = Scaffold(server_rate=0.5).update({}, done)
    assert (float(weights["w"]), float(state["w"])) == (2.0, pytest.approx(0.1))


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


@pytest.mark.parametrize(
    "spec",
    ["fedprox(mu=-1)", "scaffold(server_rate=0)", "moon(tau=0)", "fedmix(share=1)", "fedgn"],
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
