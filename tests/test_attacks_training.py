"""A server that cheats at training under the secure sum: hostile weights, and noise left out.

Every attack is also run against a client as it was before, where it succeeds.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Message
from hypothesis import given, settings, strategies
from hypothesis.extra.numpy import arrays

from fedeas import InfeasibleError
from fedeas.flower import client as client_module
from fedeas.flower import records
from fedeas.flower.deployed import make_deployed_app
from fedeas.flower.exchange import exchange
from fedeas.flower.grids import InlineGrid
from fedeas.flower.robust import clip_update
from fedeas.flower.secure_round import Layout, content_digest, encode_question, whole_update
from fedeas.flower.secure_sum import Sums, finish_sum, new_session, read_replies
from fedeas.methods.registry import make_method
from fedeas.privacy.accounting import rho_for
from fedeas.privacy.ledger import Ledger
from fedeas.privacy.secure_sum.identity import Members, make_identity
from fedeas.privacy.secure_sum.keys import identity_of
from fedeas.privacy.secure_sum.server import Server
from fedeas.settings.deployment import RoundSum
from fedeas.settings.training import ModelSettings
from fedeas.training.models import make_model
from fedeas.training.task import Task
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
    question = RoundSum("x", 1, content_digest(before, {}), 100, clip=clip, rho=rho)
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
        self.grid = InlineGrid(make_deployed_app(), SITES)
        self.nodes = list(self.grid.get_node_ids())
        for k, context in enumerate(self.grid._contexts.values()):
            context.node_config = {
                "partition-id": k, "classes": NAMES, "data": str(place / f"data{k}"),
                "state": str(state / str(k)), "device": "cpu", "secure": True,
                "identity-key": str(place / f"{k}.key"), "members": str(place / "members.toml"),
                **changed,
            }  # fmt: skip
            context.run_config = {"classes": NAMES}

    def round(self, weights, nodes=(), rho: float = 0.0, clip: float = 1.0, **changed) -> Sums:
        question = RoundSum(
            "x",
            1,
            content_digest(weights, {}),
            10**4,
            clip=clip if rho else 0.0,
            rho=rho,
            **changed,
        )
        model = make_model(ModelSettings("mlp"), TASK, 0)
        self.layout = Layout(question, weights, make_method("fedavg"), model)
        session = new_session(encode_question(question), self.layout.length)
        asked = {
            "seed": 1, "method": "fedavg", "model": ModelSettings("mlp").to_dict(),
            "local": {"epochs": 1, "batch": 64, "learning_rate": 0.05}, "task": TASK.to_dict(),
            "threads": 1, "experiment": "x", "policy": "none", "round": 1, "last": 0,
            "secure": session,
        }  # fmt: skip
        nodes = list(nodes) or self.nodes
        content = records.pack({"weights": weights, "method": {}}, asked)
        messages = [Message(content, node, "train") for node in nodes]
        server = Server(session, self.layout.length, self.members)
        replies = exchange(self.grid, messages, 16, 600.0)
        begun = read_replies("training", replies, nodes, server.left_out)
        return finish_sum(self.grid, session, server, begun, 600.0)

    def entries(self, k: int) -> list[str]:
        ledger = Ledger.open(self.state / str(k) / "ledger")
        return [entry.query for entry in ledger.entries]


def looking_for(image: np.ndarray, big: float = 1e30) -> dict[str, torch.Tensor]:
    """Return weights whose training overflows if, and only if, this image is there."""
    model = make_model(ModelSettings("mlp"), TASK, 0)
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
        monkeypatch.setattr(client_module, "check_values", lambda tensors: None)
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
