"""Attacks on what the documents promise. Each fails to read, write or exhaust anything.

Here a server and its sites attack each other. Attacks on caches are in `test_attacks_cache.py`, and
attacks by files in `test_attacks_files.py`: `pytest tests/*/test_attacks*.py` runs them all.

Every attack comes with its control: on the behaviour of version 0.1.0, of which just enough is kept
here, it succeeds.
"""

import math
import os
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedeas import FedEAS, InputError, LabelCounts
from fedeas._internal.settings import read_settings
from fedeas.cache import Cache
from fedeas.cache.shards import SHARD
from fedeas.cache.store import caches
from fedeas.planning import skew
from fedeas.private.flower.deployed import client_app, open_site
from fedeas.private.flower.site_config import SiteConfig
from fedeas.private.secure_sum.client import Client
from fedeas.private.secure_sum.memory import FileStore
from fedeas.train.flower import client as client_module
from fedeas.train.flower import records
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.deployed import REFUSAL, RefusalLog, row_policy
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings
from helpers.hostile_replies import equal
from helpers.image_sets import encoded
from helpers.secure_sums import Cohort, vectors_of

CLASSES = 10


# What a dropped client leaves on its disk.


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    elsewhere, link, shared = (tmp_path / name for name in ("elsewhere", "link", "shared"))
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    shared.mkdir()
    shared.chmod(0o777)
    for folder, why in ((link, "not a folder owned by this user"), (shared, "others can write")):
        folder_was_taken = folder.is_dir() and os.access(folder, os.W_OK)
        assert folder_was_taken  # 0.1.0 looked no further
        with pytest.raises(InputError, match=why):
            FileStore(folder)
    assert not list(elsewhere.iterdir())
    readable = tmp_path / "readable"
    readable.mkdir(mode=0o755)
    FileStore(readable)
    assert stat.S_IMODE(readable.stat().st_mode) == 0o700


def test_a_damaged_record_of_a_sum_is_noticed(tmp_path):
    pairs = Cohort(vectors_of(3)).reach("shares").pairs[10]
    client = Client("a sum", 0, pairs, FileStore(tmp_path))
    client.shares(lambda: np.arange(3, dtype=np.uint64))
    whole = (tmp_path / "shares").read_bytes()
    for content in (b"", whole[:10], whole[:-1], whole[:50] + b"\0" + whole[51:], whole + b"\0"):
        (tmp_path / "shares").write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            Client("a sum", 0, pairs, FileStore(tmp_path)).shares(lambda: np.zeros(3, np.uint64))


# What a hostile server asks of a site.

COUNTS = (37, 0, 120, 5, 61, 0, 2, 88, 14, 1)
NAMES = ", ".join(f"c{c}" for c in range(CLASSES))
TASK = {"classes": CLASSES, "shape": [8, 8, 1], "mean": [0.5], "std": [0.5]}


@dataclass
class Attacked:
    """A real site behind a real ClientApp, and the server that asks it."""

    app: ClientApp
    context: Context

    def ask(self, kind: str = "train", weights: dict | None = None, **changed: object) -> Message:
        """Send a message as `run_rounds` does, with some settings changed; return the reply."""
        local = {"epochs": 1, "batch": 64, "learning_rate": 0.02, "momentum": 0.0,
                 "weight_decay": 0.0, "precision": "float32", "compile": False,
                 "optimizer": "sgd"}  # fmt: skip
        model = {"name": "cnn", "norm": "batch", "stem": "cifar", "projection": 0, "weights": ""}
        asked = {"seed": 1, "method": "fedavg", "model": model, "local": local, "task": TASK,
                 "threads": 1, "experiment": "x", "policy": "none", "round": 1,
                 "last": 0}  # fmt: skip
        for name, value in changed.items():
            inner = next((part for part in (local, model) if name in part), asked)
            inner[name] = value
        grid = InlineGrid(self.app, 1)
        grid._contexts = {2: self.context}
        arrays = {"weights": weights or fresh_weights()} if kind == "train" else {}
        message = Message(records.pack(arrays, asked), 2, kind)
        (name,) = grid.push_messages([message])
        (reply,) = grid.pull_messages([name])
        return reply

    def refuses(self, **changed: object) -> bool:
        """Whether a request is refused, with the one constant line."""
        reply = self.ask(**changed)
        if reply.has_error():
            assert reply.error.reason == REFUSAL
        return reply.has_error()


def fresh_weights() -> dict[str, torch.Tensor]:
    task = Task(CLASSES, (8, 8, 1), (0.5,), (0.5,))
    return make_model(ModelSettings(), task, 0).state_dict()


@pytest.fixture
def site(tmp_path) -> Attacked:
    """A site with images of eight of ten classes, and no generator."""
    rng = np.random.default_rng(0)
    for c, count in enumerate(COUNTS):
        for i in range(count):
            path = tmp_path / "data" / f"c{c}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(rng.integers(0, 255, (8, 8, 1)).astype(np.uint8)))
    node = {"partition-id": 0, "classes": NAMES, "data": str(tmp_path / "data"),
            "state": str(tmp_path / "state"), "device": "cpu"}  # fmt: skip
    context = Context(1, 2, node, RecordDict(), {"classes": NAMES})
    return Attacked(client_app(), context)


def unguarded(site: Attacked, monkeypatch: pytest.MonkeyPatch) -> Attacked:
    """The same site as 0.1.0 would have opened it: without limits, and of settings of any type."""

    def unchecked(kind: type, given: dict[str, object], where: str) -> object:
        if kind is not Local:
            return read_settings(kind, given, where)
        return SimpleNamespace(**{**Local().to_dict(), **given})

    monkeypatch.setattr(client_module, "read_settings", unchecked)
    config = read_settings(SiteConfig, site.context.node_config)
    monkeypatch.setattr(client_module, "check_task", lambda task, samples: None)
    app = make_client_app(lambda context: replace(open_site(config), limits=None, methods=None))
    return Attacked(app, site.context)


def counts_told(reply: Message, rate: float) -> list[int]:
    """What the last bias says after steps of a model that started from zero."""
    bias = records.tensors(reply.content, "weights")["fc.bias"].double().numpy()
    return np.rint((bias / rate + 1 / CLASSES) * sum(COUNTS)).astype(int).tolist()


def test_the_limits_of_a_batch_do_not_hide_a_histogram(site, monkeypatch):
    """What limits cannot prevent, and docs/security.md says: plain training tells the counts.

    Zero weights and one step over all data: the last bias is the label shares. A site refuses so
    large a batch. But with steps as small as one likes, an epoch of small batches is one step: its
    gradients add up, and the last bias is the same.
    """
    zero = {name: torch.zeros_like(weight) for name, weight in fresh_weights().items()}
    step = {"weights": zero, "batch": 10**9, "learning_rate": 1.0}
    with monkeypatch.context() as patch:
        reply = unguarded(site, patch).ask(**step)
    assert counts_told(reply, 1.0) == list(COUNTS)
    assert site.refuses(**step)
    small = sum(COUNTS) // 8
    reply = site.ask(weights=zero, batch=small, learning_rate=1e-6)
    steps = sum(COUNTS) / small
    assert counts_told(reply, steps * 1e-6) == list(COUNTS)
    site.context.node_config |= {"allow": "class-totals"}
    assert site.refuses(weights=zero, batch=small, learning_rate=1e-6)  # what helps


def test_an_update_still_shows_label_shares(site):
    """What limits cannot prevent, and docs/security.md says: an ordinary round tells the shares."""
    before = fresh_weights()
    reply = site.ask(weights=before, epochs=2)
    moved = records.tensors(reply.content, "weights")["fc.bias"] - before["fc.bias"]
    assert np.corrcoef(moved.numpy(), COUNTS)[0, 1] > 0.9


HUGE = {
    "threads": {"threads": 20_000},
    "shape": {"task": {**TASK, "shape": [9000, 9000, 1]}},
    "classes": {"task": {**TASK, "classes": 10**8}},
    "projection": {"projection": 10**9},
    "epochs": {"epochs": 10**9},
    "batch": {"batch": 10**9},
    "learning rate": {"learning_rate": 900.0},
    "compile": {"compile": True},
    "method": {"method": "fedprox(mu=1e308)"},
    "model by its name": {"name": "mlp(width=100000)"},
    "optimizer": {"optimizer": "sgd(momentum=0.9, dampening=-1000000)"},
    "weight decay": {"weight_decay": 30.0},
    "truth": {"epochs": True},
}


class WorkBeganError(Exception):
    """A site was about to act on what it was asked."""


@pytest.mark.parametrize("kind", HUGE)
def test_a_server_cannot_exhaust_a_site(site, kind, monkeypatch):
    """Whatever would take all memory, all cores or for ever is refused before any work."""
    asked = []

    def note(*arguments: object) -> None:
        asked.append(repr(arguments))

    def begin(*arguments: object) -> None:
        note(*arguments)
        if any(text in asked[-1] for text in huge):
            raise WorkBeganError

    (wanted,) = HUGE[kind].values()
    inner = wanted if isinstance(wanted, dict) else {"value": wanted}
    huge = [
        repr(v if not isinstance(v, list) else tuple(v))
        for v in inner.values()
        if v not in TASK.values()
    ]
    make_model, make_method = client_module.make_model, client_module.make_method
    monkeypatch.setattr(client_module, "use_threads", begin)
    monkeypatch.setattr(
        client_module, "make_method", lambda spec: (begin(spec), make_method(spec))[1]
    )
    monkeypatch.setattr(
        client_module,
        "make_model",
        lambda *a, **b: (begin(*a), make_model(*a, **b))[1],
    )
    monkeypatch.setattr(client_module, "fit", lambda model, samples, local, *a: begin(local))
    with monkeypatch.context() as patch:
        assert "WorkBegan" in unguarded(site, patch).ask(**HUGE[kind]).error.reason
    asked.clear()
    assert site.refuses(**HUGE[kind])
    assert not any(text in said for said in asked for text in huge)


def test_a_model_is_made_without_memory_before_it_is_looked_at(site, monkeypatch):
    """Widths within the bounds make gigabytes together: only a model like the message's is made."""
    devices, make = [], client_module.make_model

    def noted(*arguments: object, **named: object) -> object:
        devices.append(torch.empty(0).device.type)
        return make(*arguments, **named)

    monkeypatch.setattr(client_module, "make_model", noted)
    assert site.refuses(name="mlp(width=4096)")  # with the weights of a small network
    assert devices == ["meta"]
    assert not site.refuses()
    assert devices == ["meta", "meta", "cpu"]
    site.context.node_config |= {"max-model-mb": 0}
    assert site.refuses()


@pytest.mark.parametrize(
    "weights",
    [{"fc.bias": torch.full((CLASSES,), 3e38)}, {"fc.bias": torch.zeros(CLASSES).double()},
     {"fc.bias": torch.zeros(CLASSES, 1)}, {"other": torch.zeros(1)}],
)  # fmt: skip
def test_only_weights_of_the_model_are_taken(site, weights):
    assert site.refuses(weights={**fresh_weights(), **weights})


def test_new_experiments_do_not_fill_a_sites_disk(site, tmp_path):
    """MOON keeps a model for every experiment, and the server names experiments."""
    from fedeas.train.flower.client import ClientStateStore

    def kept(limit: int) -> int:
        folder = tmp_path / f"kept-{limit}"
        for number in range(8):
            own = ClientStateStore(folder / str(number))
            own.make_room(1, 0, 1_000_200, limit)
            own.save(1, 0, {"w": torch.zeros(250_000)})  # a megabyte
        return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))

    assert kept(10**12) > 8_000_000  # as if there were no limit
    assert kept(3_000_000) <= 3_000_000
    with pytest.raises(InputError, match="state is too large"):
        kept(500_000)


def test_a_state_that_has_no_room_is_not_written(site, tmp_path):
    """MOON keeps a model for every round, until the server says that a later one counted."""
    site.context.node_config |= {"max-state-mb": 1}

    def size() -> int:
        return sum(p.stat().st_size for p in (tmp_path / "state" / "kept").rglob("*.safetensors"))

    asked = {"method": "moon", "steps": 1}
    refused = [site.refuses(round=number, **asked) for number in range(1, 7)]
    assert refused == sorted(refused)  # from some round on
    assert refused[-1]
    assert 500_000 < size() <= 1_000_000
    assert site.refuses(round=-1, **asked)
    assert site.refuses(round=10**300, last=10**300, **asked)
    assert site.refuses(round=1, last=-1, **asked)
    assert not site.refuses(round=3, last=3, **asked)  # what is needed no more makes room
    assert size() < 500_000


def test_new_targets_do_not_fill_a_sites_disk(site, tmp_path):
    """Every target asks for other classes, and nothing that was generated is removed."""
    node = {**site.context.node_config, "generator": f"{__name__}:Squares", "max-samples": 10_000,
            "batch": 5000}  # fmt: skip

    def filled(**limits: object) -> tuple[int, list[int]]:
        state = tmp_path / f"state-{len(limits)}"
        opened = open_site(read_settings(SiteConfig, {**node, **limits, "state": str(state)}))
        drawn = []
        for wanted in (0, 1, 3):
            shares = ["1" if c == wanted else "0.001" for c in range(CLASSES)]
            samples = opened.samples(f"full-balance(target={':'.join(shares)})")
            drawn.append(len(samples.synthetic_labels))
        return sum(p.stat().st_size for p in state.rglob(f"*{SHARD}")), drawn

    size, drawn = filled()
    assert size > 1_500_000
    assert min(drawn[:2]) > 9_000
    size, drawn = filled(**{"max-cache-mb": 1})
    assert size <= 1_000_000
    assert drawn[0] > 9_000
    assert 0 in drawn  # trained on real samples alone, and nobody was told


# Refusals as an oracle.


def test_refusals_do_not_tell_which_classes_a_site_has(site):
    """Leave one class after the other out of the run, and see whether the site minds."""
    absent = {c for c, count in enumerate(COUNTS) if not count}

    def minds(c: int, refuses: Callable[[set[str]], bool]) -> bool:
        return refuses({f"c{i}" for i in range(CLASSES)} - {f"c{c}"} | {"other"})

    held = {f"c{c}" for c, count in enumerate(COUNTS) if count}
    assert {c for c in range(CLASSES) if not minds(c, lambda named: bool(held - named))} == absent

    def refused_now(named: set[str]) -> bool:
        site.context.run_config = {"classes": ", ".join(sorted(named))}
        return site.refuses(kind="query.hello")

    assert all(minds(c, refused_now) for c in range(CLASSES))


def test_refusals_do_not_tell_whether_anything_is_wanted(site):
    """Bisect beta to where the first sample is wanted: 1 over the client's size and skew."""
    first = 1 / (math.sqrt(sum(COUNTS) / CLASSES) * float(skew.skewness(LabelCounts([COUNTS]))[0]))

    def bisect(wanted: Callable[[str], bool]) -> float:
        low, high = 1e-3, 1e3
        for _ in range(50):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if wanted(f"fedeas(beta={middle!r})") else (middle, high)
        return low

    old = bisect(lambda spec: bool(row_policy(spec).local(COUNTS).any()))
    assert 0 in COUNTS
    assert old == pytest.approx(first, rel=1e-9)
    # At a site without a generator every policy but `none` is refused, wanted or not.
    betas = (first / 2, first * 0.99, first * 1.01, 12.0)
    assert [bool(FedEAS(b).local(COUNTS).any()) for b in betas] == [False, False, True, True]
    assert all(site.refuses(policy=f"fedeas(beta={b!r})") for b in betas)


class Squares:
    """Draws squares of the size of the site's images."""

    fingerprint = "squares-1"

    def sample(self, labels, seeds):
        return np.broadcast_to(labels[:, None, None, None], (len(labels), 8, 8, 1)).astype(np.uint8)


def test_too_large_a_plan_is_cut_rather_than_refused(site, tmp_path):
    """A bound on samples that refuses tells the server that the labels ask for more."""
    site.context.node_config |= {"generator": f"{__name__}:Squares", "max-samples": 100}
    opened = open_site(read_settings(SiteConfig, site.context.node_config))
    wanted = FedEAS(beta=12).local(COUNTS)
    assert wanted.sum() > 100
    opened.samples("fedeas(beta=12)")
    made = np.zeros(CLASSES, int)
    (folder,) = caches(next(tmp_path.rglob("cache")))
    for entry in Cache.at(folder).all_entries():
        np.add.at(made, entry.segments.labels, entry.segments.sizes)
    assert made.tolist() == (wanted * 100 // wanted.sum()).tolist()
    assert 80 < made.sum() <= 100


class Failing(Squares):
    """Fails as a GPU does."""

    fingerprint = "failing-1"

    def sample(self, labels, seeds):
        raise RuntimeError("out of memory")


def test_what_fails_once_labels_are_known_is_no_refusal(site, caplog, monkeypatch):
    """Whether anything is generated follows from the labels, and so would a refusal."""
    site.context.node_config |= {"generator": f"{__name__}:Failing"}
    alone = records.tensors(site.ask(policy="none").content, "weights")
    reply = site.ask(policy="full-balance", experiment="y")
    assert equal(records.tensors(reply.content, "weights"), alone)
    assert "out of memory" in caplog.text  # the owner reads why
    fit = client_module.fit

    def failing(model: object, samples: Samples, *others: object) -> int:
        if isinstance(samples.data.samples, np.memmap):
            raise RuntimeError("no such kernel")
        return fit(model, samples, *others)

    monkeypatch.setattr(client_module, "fit", failing)
    for number, method in enumerate(("fedavg", "moon", "scaffold"), 1):
        reply = site.ask(method=method, experiment=method)
        assert equal(records.tensors(reply.content, "weights"), fresh_weights()), number
    assert "no such kernel" in caplog.text
    monkeypatch.setattr(client_module, "fit", lambda *a: 1 / 0)  # on blank samples too
    assert site.refuses()


def test_a_refusal_is_always_the_same_and_soon_the_only_answer(site, caplog):
    reasons = ({"method": "fedgen"}, {"policy": "os:system"}, {"epochs": 99}, {"round": "../x"})
    said = {site.ask(**wrong).error.reason for wrong in reasons}
    assert said == {REFUSAL}
    assert "does not take part in this method" in caplog.text  # the owner reads why
    assert not site.refuses()
    for _ in range(20):
        assert site.refuses(method="fedgen")
    assert site.refuses()  # the run asked for too much: nothing of it is looked at any more
    site.context.run_id = 7
    assert not site.refuses()  # another one is


def test_refusals_are_counted_over_runs_too(tmp_path):
    log = RefusalLog(tmp_path / "refusals", per_run=5, per_day=12)
    for run in range(11):
        log.add(run)
        assert not log.exhausted(run)
    log.add(11)
    assert log.exhausted(99)
    (tmp_path / "refusals").write_text("0 1\n" * 50)  # long ago
    assert not log.exhausted(1)
    (tmp_path / "refusals").write_text("rubbish")
    assert not log.exhausted(1)


def test_damage_and_clocks_do_not_open_or_close_the_log_of_refusals(tmp_path):
    path = tmp_path / "refusals"
    log = RefusalLog(path, per_run=5)
    for _ in range(5):
        log.add(1)
    assert log.exhausted(1)
    whole = path.read_bytes()
    for damaged in (
        whole[:-1] + b" x\n",
        whole[:-3],
        b"\xff" + whole,
        whole.replace(b" 1", b"", 1),
    ):
        path.write_bytes(damaged)
        assert log.exhausted(1), damaged
        log.add(2)  # on a line of its own
        assert not log.exhausted(3), damaged
    path.write_text(f"{time.time() + 10 * 86400:.0f} 7\n" * 200)
    assert not log.exhausted(7)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="refusals"):
        log.exhausted(1)  # what cannot be read at all refuses everything


def test_refusals_at_once_are_all_counted(tmp_path):
    path = tmp_path / "refusals"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: RefusalLog(path).add(1), range(200)))
    assert len(path.read_text().split()) == 2 * 200


def test_an_experiment_has_one_policy(site):
    assert not site.refuses(policy="none")
    assert site.refuses(policy="full-balance")
    assert not site.refuses(policy="none")


def test_a_sites_own_files_are_its_own(site, tmp_path):
    """Its decoded images and labels were readable by every user of the machine."""
    before = os.umask(0o022)
    try:
        site.ask()
    finally:
        os.umask(before)
    labels = next((tmp_path / "state").rglob("labels.npy"))
    assert stat.S_IMODE(labels.stat().st_mode) & 0o044  # the file alone is not protected
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700  # what it lies in is
