"""A server that cheats at training under the secure sum: hostile weights, and noise left out.

Every attack is also run against a client as it was before, where it succeeds.
"""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Message
from hypothesis import given, settings, strategies
from hypothesis.extra.numpy import arrays
from scipy import stats

from fedeas import InfeasibleError
from fedeas.flower import client as client_module
from fedeas.flower import records
from fedeas.flower.aggregation import clip_update
from fedeas.flower.backends import InlineGrid
from fedeas.flower.deployed import agreed_config
from fedeas.flower.exchange import exchange
from fedeas.training.loop import fit
from fedeas.training.methods import make_method
from fedeas.training.models import make_model
from fedeas.training.samples import Samples, Task
from fedeas.training.settings import Local, ModelSettings
from fedeas_private.accounting import DELTA, rho_for
from fedeas_private.flower import queries as queries_module
from fedeas_private.flower import secure_client as secure_client_module
from fedeas_private.flower import secure_round as secure_round_module
from fedeas_private.flower import secure_sum as secure_sum_module
from fedeas_private.flower.deployed import client_app, open_site
from fedeas_private.flower.queries import ask, encode_question
from fedeas_private.flower.secure_round import Layout, content_digest, whole_update
from fedeas_private.flower.secure_sum import (
    Sums,
    finish_sum,
    new_server,
    new_session,
    read_replies,
    shared_run,
)
from fedeas_private.flower.settings import RoundSum, SiteConfig
from fedeas_private.ledger import Ledger
from fedeas_private.noise import SumNoise
from fedeas_private.queries import encode_query
from fedeas_private.queries.query import ClassTotals
from fedeas_private.secure_sum.client import Client
from fedeas_private.secure_sum.identity import Members, make_identity
from fedeas_private.secure_sum.keys import identity_of
from pictures import CLASSES, draw_shapes, encoded

SITES, UNITS = 4, 2**24
NAMES = ", ".join(CLASSES)
IMAGES, LABELS = draw_shapes(120)
TASK = Task(len(CLASSES), IMAGES.shape[1:], (0.5,) * IMAGES.shape[-1], (0.5,) * IMAGES.shape[-1])
HELD = 100  # images of sites; the others are of nobody


def old_words(self, after, added, samples, trained_on, steps):
    """Words under noise as they once were: clipped through the model's number format."""
    (part,) = self._parts
    after = clip_update(self._before, after, self._question.clip)
    scale = UNITS / self._question.clip
    with np.errstate(invalid="ignore"):
        flat = [
            ((after[k].double() - part[k].double()) * scale).round().reshape(-1).to(torch.int64)
            for k in sorted(part)
        ]
    return np.concatenate([*(f.numpy() for f in flat), [0, 0]]).astype(np.int64).view("u8")


# How far words can be moved


def layout_of(before, clip: float, rho: float = 0.02, model: str = "mlp") -> Layout:
    question = RoundSum("x", 1, content_digest(before, {}, {}), 100, clip=clip, rho=rho)
    own = make_model(ModelSettings(model), TASK, 0)
    return Layout(question, before, make_method("fedavg"), own)


def moved_words(words, clip: float, before, *ends) -> float:
    """Return how far apart the words of two ends of training are, in units of the sensitivity."""
    layout = layout_of(before, clip)
    one, other = (words(layout, end, {}, 10, 0, 0).view(np.int64).astype(float) for end in ends)
    return float(np.linalg.norm(one - other)) / layout.sensitivity


def everywhere(value: float, dtype=torch.float32) -> dict[str, torch.Tensor]:
    like = make_model(ModelSettings("mlp"), TASK, 0).state_dict()
    return {k: torch.full(v.shape, value, dtype=dtype) for k, v in like.items()}


def with_one(value: float) -> dict[str, torch.Tensor]:
    found = everywhere(0.001)
    next(iter(found.values())).view(-1)[0] = value
    return found


NUMBERS = sum(v.numel() for v in everywhere(0.0).values())
ULP = 2.0**-22  # of float32 from 2 to 4
CASES = {
    # Every number is moved by just more than half an ulp, which rounds to a whole one.
    "half an ulp": (0.5001 * ULP * math.sqrt(NUMBERS), everywhere(3.0), everywhere(3.0 + 8 * ULP),
                    everywhere(3.0 - 8 * ULP), 1.9),
    # Weights of a server between two float32 numbers.
    "float64": (1e-3, everywhere(4095 + 2.0**-13, torch.float64), everywhere(4095.5),
                everywhere(4094.5), 15),
    "nan": (1.0, everywhere(0.0), everywhere(0.001), with_one(math.nan), 1e9),
    "inf": (1.0, everywhere(0.0), everywhere(0.001), with_one(math.inf), 1e9),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_no_weights_and_no_end_of_training_move_words_beyond_the_sensitivity(case):
    clip, before, one, other, once = CASES[case]
    assert moved_words(old_words, clip, before, one, other) > once
    assert moved_words(Layout.words, clip, before, one, other) <= 1


@settings(deadline=None, max_examples=200)
@given(
    arrays(np.float64, strategies.integers(0, 40), elements=strategies.floats(width=64)),
    strategies.floats(5e-324, 1e9),
)
def test_the_norm_of_an_update_in_whole_numbers_is_bounded_for_every_input(moved, clip):
    found = whole_update(moved, clip)
    assert sum(int(w) ** 2 for w in found) <= UNITS**2
    if not np.isfinite(moved).all():
        assert not found.any()


def test_long_updates_have_the_same_bound_and_lose_next_to_nothing():
    """A million numbers, near and beyond the norm; rounding towards zero loses under one each."""
    rng = np.random.default_rng(0)
    moved = rng.normal(size=10**6)
    norm = float(np.linalg.norm(moved))
    for clip in (norm / 10, norm * (1 - 1e-15), norm, norm * 2):
        found = whole_update(moved, clip)
        assert sum(int(np.square(block).sum()) for block in np.split(found, 100)) <= UNITS**2
        exact = moved * UNITS / max(clip, norm)
        assert np.abs(found - exact).max() <= 1
        assert (np.abs(found) <= np.abs(exact) + 1e-6).all()


def test_an_update_that_floating_point_left_too_long_is_scaled_down(monkeypatch):
    monkeypatch.setattr(np.linalg, "norm", lambda moved: 0.9 * math.sqrt((moved**2).sum()))
    for size in (1, 2, 1000):
        found = whole_update(np.full(size, 3.0), 1.0)
        assert 0.99 * UNITS**2 < sum(int(w) ** 2 for w in found) <= UNITS**2


# Real sites


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Four sites with 25 images each."""
    folder = tmp_path_factory.mktemp("trained")
    for k, part in enumerate(np.array_split(np.arange(HELD), SITES)):
        for i in part:
            image = folder / f"data{k}" / CLASSES[LABELS[i]] / f"{i:04}.png"
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(encoded(IMAGES[i]))
    keys = {f"site-{k}": identity_of(make_identity(folder / f"{k}.key")) for k in range(SITES)}
    (folder / "members.toml").write_text(Members.of(keys).to_toml())
    return folder


class Cheating:
    """A server that sends what it likes to four real sites, and reads the sum as it is."""

    def __init__(self, place: Path, state: Path, **changed: object) -> None:
        self.members, self.state = Members.load(place / "members.toml"), state
        self.grid = InlineGrid(client_app(), SITES)
        self.nodes = list(self.grid.get_node_ids())
        for k, context in enumerate(self.grid._contexts.values()):
            context.node_config = {
                "partition-id": k, "classes": NAMES, "data": str(place / f"data{k}"),
                "state": str(state / str(k)), "device": "cpu",
                "identity-key": str(place / f"{k}.key"), "members": str(place / "members.toml"),
                **changed,
            }  # fmt: skip
            context.run_config = {"classes": NAMES}

    def round(
        self, weights, nodes=(), rho: float = 0.0, clip: float = 1.0, rates=None, **changed
    ) -> Sums:
        """Ask for a round; `rates` are other learning rates of some nodes than 0.05."""
        asked = {
            "seed": 1, "method": "fedavg", "model": ModelSettings("mlp").to_dict(),
            "local": {"epochs": 1, "batch": 64, "learning_rate": 0.05}, "task": TASK.to_dict(),
            "threads": 1, "experiment": "x", "policy": "none", "round": 1, "last": 0,
        }  # fmt: skip
        question = RoundSum(
            "x",
            1,
            content_digest(weights, {}, asked),
            10**4,
            clip=clip if rho else 0.0,
            rho=rho,
            **changed,
        )
        model = make_model(ModelSettings("mlp"), TASK, 0)
        self.layout = Layout(question, weights, make_method("fedavg"), model)
        nodes = list(nodes) or self.nodes
        run = shared_run(self.grid, nodes, self.members, 600.0)
        session = new_session(encode_question(question), self.layout.length, run)
        messages = []
        for node in nodes:
            local = {**asked["local"], "learning_rate": (rates or {}).get(node, 0.05)}
            own = {**asked, "local": local, "secure": session}
            content = records.pack({"weights": weights, "method": {}}, own)
            messages.append(Message(content, node, "train"))
        server = new_server(session, run)
        replies = exchange(self.grid, messages, 16, 600.0)
        begun = read_replies("training", replies, nodes, server.left_out)
        return finish_sum(self.grid, session, server, begun, 600.0)

    def entries(self, k: int) -> list[str]:
        ledger = Ledger.open(self.state / str(k) / "ledger")
        return [entry.query for entry in ledger.entries]


def looking_for(
    image: np.ndarray, big: float = 1e30, model: str = "mlp"
) -> dict[str, torch.Tensor]:
    """Return weights whose training overflows if, and only if, this image is there."""
    model = make_model(ModelSettings(model), TASK, 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        seen = []
        hook = model.hidden1.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        model.eval()(torch.from_numpy(image[None]))
        hook.remove()
        found = seen[0][0].double()
        along = np.random.default_rng(5).normal(size=len(found)) / math.sqrt(len(found))
        along, near = torch.from_numpy(along), 1e-3
        for i, shift in enumerate((near, 0.0, -near)):  # a bump at the image's own value
            model.hidden1.weight[i] = along.float()
            model.hidden1.bias[i] = float(shift - along @ found)
        model.hidden2.weight[0, :3] = torch.tensor([big, -2 * big, big])
        model.hidden2.bias[0] = -0.5 * near * big
        model.fc.weight[0, 0] = big
    return dict(model.state_dict())


TARGETS = {"of a site": (3, True), "of nobody": (HELD + 10, False)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("client", ["now", "now, if it took any weights", "as it was"])
def test_weights_that_overflow_at_one_image_do_not_tell_whether_it_is_there(
    place, tmp_path, monkeypatch, client, target
):
    number, there = TARGETS[target]
    if client != "now":
        monkeypatch.setattr(client_module, "check_values", lambda *_, **__: None)
    if client == "as it was":
        monkeypatch.setattr(Layout, "words", old_words)
    server = Cheating(place, tmp_path)
    rho = rho_for(0.1)
    if client == "now":  # before samples are opened, so whatever they are
        with pytest.raises(InfeasibleError, match="too few clients"):
            server.round(looking_for(IMAGES[number]), rho=rho)
        assert server.entries(0) == []
        return
    found = server.round(looking_for(IMAGES[number]), rho=rho)
    assert len(found.nodes) == SITES
    largest = float(np.abs(found.words.view(np.int64).astype(float)).max())
    # All sites' parts of the noise, and all that updates can add.
    noise = server.layout.noise(server.members).part_sigma * math.sqrt(SITES)
    in_sight = largest > 8 * noise + SITES * UNITS
    assert in_sight == (client == "as it was" and there)
    assert server.entries(0) == ["train"]


@pytest.mark.parametrize("client", ["now", "as it was"])
def test_training_that_overflows_is_no_refusal_without_noise_either(
    place, tmp_path, monkeypatch, client
):
    """A site that refused, and the others not, would tell the server whose the image is."""
    if client == "as it was":
        monkeypatch.setattr(Layout, "_sound", lambda self, after, added: (after, added))
    server = Cheating(place, tmp_path, allow="train exact")
    fit = client_module.fit

    def train(model, samples, *others):
        steps = fit(model, samples, *others)
        images, _ = samples.take(np.arange(len(samples)))
        if any(np.array_equal(image, IMAGES[3]) for image in images):
            with torch.no_grad():
                model.fc.bias.fill_(math.nan)
        return steps

    monkeypatch.setattr(client_module, "fit", train)
    found = server.round(everywhere(0.01))
    assert (server.nodes[0] in found.nodes) == (client == "now")
    assert set(server.nodes[1:]) <= set(found.nodes)


# SumNoise is the owner's


def stolen_histogram(server: Cheating, k: int) -> np.ndarray:
    """Return a site's label counts from two sums without noise, one of them without the site.

    From weights of zero only the last bias moves: towards every label by its share.
    """
    start = {name: torch.zeros_like(value) for name, value in everywhere(0.0).items()}
    totals = []
    for nodes in (server.nodes, [n for i, n in enumerate(server.nodes) if i != k]):
        found = server.round(start, nodes)
        samples = (HELD // SITES) * len(found.nodes)
        totals.append(server.layout.read(found.words, samples).weights.total()["fc.bias"])
    moved = (totals[0] - totals[1]).numpy() / 0.05
    return np.rint(moved + HELD / SITES / len(CLASSES)).astype(int)


@pytest.mark.parametrize("allow", [None, "train", "class-totals beta price", "exact beta"])
def test_a_server_cannot_leave_the_noise_out(place, tmp_path, allow):
    """By default, or with a budget, no sum without noise leaves a site: `exact` allows it."""
    server = Cheating(place, tmp_path, **({"allow": allow} if allow else {}))
    with pytest.raises(InfeasibleError, match="too few clients"):
        server.round(everywhere(0.01))
    if allow == "class-totals beta price":
        with pytest.raises(InfeasibleError, match="too few clients"):
            server.round(everywhere(0.01), rho=0.01)


@pytest.mark.parametrize("client", ["allowing it", "as it was"])
def test_two_exact_sums_are_one_sites_labels(place, tmp_path, monkeypatch, client):
    """What the switch is for; once the noise was the server's choice, whatever the owner said."""
    if client == "as it was":
        for module in (secure_client_module, queries_module):
            monkeypatch.setattr(module, "training_cost", lambda question, *_: question.rho)
    allow = "class-totals beta price" if client == "as it was" else "train exact"
    server = Cheating(place, tmp_path, allow=allow)
    own = np.bincount(LABELS[HELD // 2 : 3 * HELD // 4], minlength=len(CLASSES))
    assert stolen_histogram(server, 2).tolist() == own.tolist()
    assert all(server.entries(k) == [] for k in range(SITES))


@pytest.mark.parametrize("client", ["now", "as it was"])
def test_no_site_trains_alone_in_a_sum(place, tmp_path, monkeypatch, client):
    """All but one with a learning rate of next to nothing: once, the sum was that one's update."""
    if client == "as it was":
        whole_digest = content_digest

        def of_tensors(weights, method, _settings):
            return whole_digest(weights, method, {})

        monkeypatch.setattr(secure_round_module, "content_digest", of_tensors)
        monkeypatch.setitem(globals(), "content_digest", of_tensors)
    server = Cheating(place, tmp_path, allow="train exact")
    rates = dict.fromkeys(server.nodes[1:], 1e-12)
    if client == "now":
        with pytest.raises(InfeasibleError, match="too few clients"):
            server.round(everywhere(0.0), rates=rates)
        return
    total = server.round(everywhere(0.0), rates=rates)
    assert len(total.nodes) == SITES


def test_the_directions_of_updates_do_not_leave_a_site(place, tmp_path):
    server = Cheating(place, tmp_path, allow="train exact")
    with pytest.raises(InfeasibleError, match="too few clients"):
        server.round(everywhere(0.01), drift=True)


# The ledger


def test_a_site_short_of_budget_refuses_before_the_others_pay(place, tmp_path, caplog):
    server = Cheating(place, tmp_path, epsilon=1.0)
    first = next(iter(server.grid._contexts.values()))
    first.node_config["epsilon"] = 0.4
    other = list(server.grid._contexts.values())[1]
    other.node_config["epsilon"] = 0.4
    rho = rho_for(0.5)
    for asked in range(2):
        with pytest.raises(
            InfeasibleError, match="too few clients for a secure sum at shares"
        ) as no:
            server.round(everywhere(0.01), rho=rho)
        assert "wait longer" not in no.value.fix, asked
        assert all(name in str(no.value) for name in ("site-0", "site-1"))
    assert all(server.entries(k) == [] for k in range(SITES))
    # The server is told nothing of it; the site's own log says what was asked, and what is left.
    assert f"rho {rho:.4g} for train" in caplog.text
    assert "0.4" not in str(no.value)


def test_a_query_that_one_site_cannot_pay_for_costs_nobody(place, tmp_path, caplog):
    server = Cheating(place, tmp_path, epsilon=1.0)
    for context in list(server.grid._contexts.values())[:2]:
        context.node_config["epsilon"] = 0.4
    with pytest.raises(InfeasibleError, match="at shares"):
        ask(server.grid, server.nodes, ClassTotals(3), server.members, epsilon=0.5)
    assert all(server.entries(k) == [] for k in range(SITES))
    assert "privacy budget of epsilon 0.4" in caplog.text


def test_a_site_without_its_key_says_so_in_its_own_log(place, tmp_path, caplog):
    server = Cheating(place, tmp_path)
    for context in list(server.grid._contexts.values())[:2]:
        context.node_config["identity-key"] = str(place / "lost.key")
    with pytest.raises(InfeasibleError, match="at keys") as failure:
        ask(server.grid, server.nodes, ClassTotals(3), server.members)
    assert "lost.key" in caplog.text
    assert "lost.key" not in str(failure.value)


@pytest.mark.parametrize("client", ["now", "as it was"])
def test_a_sum_whose_record_is_lost_is_paid_for_again(place, tmp_path, monkeypatch, client):
    """The same session gets new noise then, and the average of many answers is exact.

    Sites have an older copy of their keys back, and nothing of the sum.
    """
    if client == "as it was":  # the session was the key
        masked = Client.masked
        monkeypatch.setattr(
            Client, "masked",
            lambda self, request, release: masked(self, request, lambda _: release(self._session)),
        )  # fmt: skip
    server = Cheating(place, tmp_path)
    query = ClassTotals(3)
    run = shared_run(server.grid, server.nodes, server.members, 600.0)
    session = new_session({**encode_query(query), "rho": 0.001}, query.length, run)
    for k in range(SITES):
        shutil.copytree(tmp_path / str(k) / "sums", tmp_path / f"copy-{k}")
    answers = []
    for _ in range(3):
        monkeypatch.setattr(secure_sum_module, "new_session", lambda *_: session)
        found = secure_sum_module.secure_sum(
            server.grid, server.nodes, {}, query.length, server.members, 600.0
        )
        answers.append(found.words.tobytes())
        # Answered again it is not.
        with pytest.raises(InfeasibleError, match="at shares"):
            secure_sum_module.secure_sum(
                server.grid, server.nodes, {}, query.length, server.members, 600.0
            )
        for k in range(SITES):
            shutil.rmtree(tmp_path / str(k) / "sums")
            shutil.copytree(tmp_path / f"copy-{k}", tmp_path / str(k) / "sums")
            (tmp_path / str(k) / "refusals").unlink(missing_ok=True)
    assert len(set(answers)) == 3
    paid = 3 if client == "now" else 1
    assert all(server.entries(k) == ["class-totals"] * paid for k in range(SITES))


# An audit with a canary


TINY = "mlp(width=4)"  # 295 numbers


def tiny(value: float, dtype=torch.float32) -> dict[str, torch.Tensor]:
    like = make_model(ModelSettings(TINY), TASK, 0).state_dict()
    return {k: torch.full(v.shape, value, dtype=dtype) for k, v in like.items()}


def trained(site, weights, canary: bool, rate: float) -> dict[str, torch.Tensor]:
    """Return where a site's training ends, with the first of its images or without it."""
    model = make_model(ModelSettings(TINY), TASK, 0)
    model.load_state_dict(weights)
    samples = Samples.of(site.real.data, np.arange(0 if canary else 1, len(site.real)))
    local = Local(epochs=1, batch=64, learning_rate=rate)
    fit(model, samples, local, np.random.default_rng(0))
    return dict(model.state_dict())


def proven(words, before, ends, epsilon: float = 1.0, strength: float = 1.0, trials=1000) -> float:
    """Return the epsilon that sums with and without a canary prove, with 95 % confidence.

    All other sites collude but one. The server knows both words, and looks along the line between
    them, which is the best test there is. Thresholds are fixed beforehand.
    """
    layout = layout_of(before, 1.0, rho_for(epsilon, DELTA), TINY)
    without, there = (words(layout, end, {}, 10, 0, 0).view(np.int64).astype(float) for end in ends)
    moved = float(np.linalg.norm(there - without))
    if not moved:
        return 0.0
    promised = layout.noise(MEMBERS)
    noise = SumNoise(strength * promised.sigma, promised.honest)
    bytes_of = np.random.default_rng(1).bytes
    sums = np.zeros((2 * trials, layout.length))
    for _ in range(noise.honest):
        sums += noise.part(sums.size, bytes_of).reshape(sums.shape)
    along = sums @ (there - without) / moved + np.repeat([0.0, moved], trials)
    best, level = 0.0, 0.05 / 6
    for threshold in (moved / 2, moved, moved + noise.sigma):
        false, true = (int((part > threshold).sum()) for part in np.split(along, 2))
        most_false = stats.beta.ppf(1 - level, false + 1, trials - false)
        least_true = stats.beta.ppf(level, true, trials - true + 1) if true else 0.0
        if least_true > DELTA:
            best = max(best, math.log((least_true - DELTA) / most_false))
    return best


MEMBERS = Members.of({str(k): k.to_bytes(32) for k in range(SITES)})
WEIGHTS = {"ordinary": 0.0, "overflowing": 1e30, "as large as may be sent": 4000.0}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_an_audit_of_training_proves_no_more_than_is_claimed(place, tmp_path, weights):
    context = next(iter(Cheating(place, tmp_path).grid._contexts.values()))
    site = open_site(agreed_config(SiteConfig, context))
    first = site.real.take(np.arange(1))[0][0]
    before = dict(make_model(ModelSettings(TINY), TASK, 0).state_dict())
    if weights != "ordinary":
        before = looking_for(first, WEIGHTS[weights], TINY)
    rate = 1.0 if weights == "as large as may be sent" else 0.05
    ends = [trained(site, before, canary, rate) for canary in (False, True)]
    assert proven(Layout.words, before, ends) <= 1
    if weights == "overflowing":  # as it was, the canary is seen whenever it is there
        assert not all(t.isfinite().all() for t in ends[1].values())
        assert all(t.isfinite().all() for t in ends[0].values())
        assert proven(old_words, before, ends) > 1


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_the_audit_of_training_catches_a_tenth_of_the_noise(epsilon):
    """Of the two ends of training that are furthest apart."""
    before, ends = tiny(0.0), (tiny(-1.0), tiny(1.0))
    assert 0 < proven(Layout.words, before, ends, epsilon) <= epsilon
    assert proven(Layout.words, before, ends, epsilon, strength=0.1) > epsilon


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_the_audit_of_training_finds_nothing_in_numbers_that_are_not_finite(odd):
    lost = tiny(0.0)
    next(iter(lost.values())).view(-1)[0] = odd
    ends = (tiny(0.001), lost)
    assert proven(Layout.words, tiny(0.0), ends) <= 1
    assert proven(old_words, tiny(0.0), ends) > 1
