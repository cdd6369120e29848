"""Rounds on Flower: the same bits on every grid, after every crash, with weights N_k."""

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from fedeas import InfeasibleError, InputError, Plan
from fedeas._internal.seeds import child_rng
from fedeas.cache import Cache
from fedeas.lab.config import Config, read_config
from fedeas.lab.experiment import run as run_config
from fedeas.lab.resolve import resolve
from fedeas.lab.results import read_result
from fedeas.partition import IndexLists, Partition
from fedeas.train.flower import records
from fedeas.train.flower.aggregation import RoundAggregator, Weights
from fedeas.train.flower.backends import InlineGrid, run_on_backend
from fedeas.train.flower.client import ClientStateStore, make_client_app
from fedeas.train.flower.exchange import exchange
from fedeas.train.flower.roster import Node
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.loop import accuracy, fit
from fedeas.train.methods import METHODS as REGISTRY
from fedeas.train.methods import Method, make_method
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import ModelSettings
from fedeas.train.simulate import draw_cohort
from fedeas.train.tensors import ExactSum
from helpers.image_sets import CLASSES, draw_shapes, shapes, write_set
from helpers.noted_generators import drawn
from helpers.small_federations import (
    CLIENTS,
    GENERATORS,
    KINDS,
    Shapes,
    federation,
    run,
    same_as_on_ray,
    settings,
    train_on_ray,
    write_data,
)

HELPERS = Path(__file__).parents[1] / "helpers"
METHODS = [("fedavg", 0), ("fedprox", 0), ("scaffold", 0), ("moon", 16), ("fedgen", 0),
           ("fedmix", 0)]  # fmt: skip


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@given(st.lists(st.tuples(st.floats(-4000, 4000, width=32), st.integers(1, 10**6)), min_size=1))
def test_an_exact_sum_does_not_depend_on_the_order(terms):
    def mean(order) -> torch.Tensor:
        total = ExactSum(sum(weight for _, weight in terms))
        for value, weight in order:
            total.add({"w": torch.tensor([value, -value])}, weight)
        return total.mean({"w": torch.zeros(2)})["w"]

    forwards = mean(terms)
    assert torch.equal(forwards, mean(terms[::-1]))
    plain = math.fsum(v * w for v, w in terms) / sum(w for _, w in terms)
    assert forwards[0] == pytest.approx(plain, rel=1e-6, abs=1e-4)


def test_an_exact_sum_is_as_precise_as_the_weights():
    total = ExactSum(60_000)
    rng = np.random.default_rng(0)
    terms = [(torch.from_numpy(rng.normal(size=50)).float(), int(n)) for n in (1, 17, 5000, 40_000)]
    for value, weight in terms:
        total.add({"w": value}, weight)
    exact = sum(v.double() * w for v, w in terms) / 45_018
    assert torch.equal(total.mean({"w": torch.zeros(50)})["w"], exact.float())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e9])
def test_an_exact_sum_refuses_nonsense_and_stays_as_it_was(value):
    total = ExactSum(10)
    total.add({"w": torch.ones(3)}, 4)
    with pytest.raises(InputError, match="not finite, or absurdly large"):
        total.add({"w": torch.tensor([0.0, value, 0.0])}, 4)
    for weight in (0, -1, 7):
        with pytest.raises(InputError, match="not a weight"):
            total.add({"w": torch.ones(3)}, weight)
    assert total.mean({"w": torch.zeros(3)})["w"].tolist() == [1.0] * 3


def test_counters_of_batches_stay_whole_numbers():
    total = ExactSum(10)
    for count, weight in ((7, 5), (8, 5)):
        total.add({"n": torch.tensor(count)}, weight)
    mean = total.mean({"n": torch.tensor(0)})["n"]
    assert (mean.dtype, int(mean)) == (torch.int64, 7)


def test_cohorts_follow_from_seed_and_round_alone():
    cohorts = [draw_cohort(42, r, 20, 0.5) for r in range(1, 50)]
    assert all(len(set(c)) == 10 and c == sorted(c) for c in cohorts)
    assert len({tuple(c) for c in cohorts}) > 45
    assert cohorts[7] == draw_cohort(42, 8, 20, 0.5)
    assert set(itertools.chain(*cohorts)) == set(range(20))
    assert draw_cohort(1, 1, 3, 0.01) in ([0], [1], [2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_grids_agree_bit_for_bit_for_every_method(tmp_path, kind):
    """On Ray two actors answer in any order; every method trains on what FedEAS generates."""
    made = federation(tmp_path, policy="fedeas(beta=12)", kind=kind)
    methods = METHODS
    if kind == "table":  # whose categories FedMix cannot average
        methods = [(method, p, "mlp") for method, p in METHODS if method != "fedmix"]
    inline = {given[0]: run(made, tmp_path, settings(*given)).weights for given in methods}
    train_on_ray(tmp_path, methods, kind=kind)
    assert same_as_on_ray(tmp_path, inline)
    first = "conv1.bias" if kind == "image" else "hidden1.bias"
    assert len({w[first].sum() for w in inline.values()}) == len(methods)


def test_aggregation_weights_are_the_real_samples_whatever_the_cache_adds(tmp_path):
    made = federation(tmp_path, policy="fedeas(beta=12)")
    plan, partition = (
        Plan.load(tmp_path / "plan.json"),
        Partition.load(tmp_path / "partition.npz"),
    )
    samples = plan.samples.copy()
    samples[0] += 60  # one client generates many times what it has
    unequal = replace(plan, samples=samples)
    unequal.save(tmp_path / "plan.json")
    other = replace(made.simulation, plan=str(tmp_path / "plan.json"))
    once = settings().replace(rounds=1, fraction=1.0)
    trained = run(replace(made, simulation=other), tmp_path, once)
    from fedeas.data import load_images

    data = load_images("shapes", tmp_path / "set")
    initial = make_model(once.model, made.task, int(child_rng(42, "weights").integers(2**62)))
    total = ExactSum(sum(map(len, partition.train)))
    for k in range(CLIENTS):
        model = make_model(once.model, made.task, 0)
        model.load_state_dict(initial.state_dict())
        cache = Cache(tmp_path / "cache", Shapes(), CLASSES)
        wanted = samples[k].tolist()
        own = cache.samples(unequal.client_names[k], wanted)
        mixed = Samples.of(data, partition.train[k], *own)
        assert len(mixed) == len(partition.train[k]) + sum(wanted)
        fit(model, mixed, once.local, child_rng(42, "train", 1, k))
        total.add(model.state_dict(), len(partition.train[k]))
    assert equal(trained.weights, total.mean(initial.state_dict()))
    (line,) = trained.history
    assert line["samples"] == sum(map(len, partition.train))
    assert line["trained_on"] == line["samples"] + samples.sum()


def test_images_are_generated_once_on_first_participation(tmp_path):
    made = federation(tmp_path, policy="fedeas(beta=12)")
    plan = Plan.load(tmp_path / "plan.json")
    federated = settings().replace(rounds=1, fraction=0.34)
    run(made, tmp_path, federated)
    first = draw_cohort(42, 1, CLIENTS, 0.34)
    assert len(drawn(tmp_path / "drawn")) == plan.samples[first].sum()
    (tmp_path / "again").mkdir()
    run(made, tmp_path / "again", federated.replace(rounds=6))
    seen = {p for r in range(1, 7) for p in draw_cohort(42, r, CLIENTS, 0.34)}
    assert len(drawn(tmp_path / "drawn")) == plan.samples[sorted(seen)].sum()


class Tiny(torch.nn.Module):
    """A model of four weights, with a counter and a running statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(4))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("running", torch.zeros(2))


def ends(w: torch.Tensor, **changed: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"w": w, "seen": torch.tensor(4), "running": torch.full((2,), 50.0), **changed}


def added(
    nodes: dict[int, Node], method: str = "fedavg", cap: int | None = None
) -> RoundAggregator:
    model = Tiny()
    weights_of = Weights({node.partition: node for node in nodes.values()}, cap)
    samples = sum(node.real for node in nodes.values())
    return RoundAggregator(
        dict(model.state_dict()), model, make_method(method), samples, weights_of
    )


def test_drift_is_the_dissimilarity_of_directions_of_what_is_trained():
    sizes = [10, 30, 60]
    nodes = {k: Node(k, k, n) for k, n in enumerate(sizes)}
    found = added(nodes)
    for k, end in enumerate(([1.0, 0, 0, 0], [0, 2.0, 0, 0], [3.0, 0, 0, 0])):
        found.take(reply(k, {"weights": ends(torch.tensor(end))}, sizes[k]), nodes, k)
    mean = np.array([0.7, 0.3, 0, 0])
    assert found.numbers()["drift"] == pytest.approx(1 - (mean**2).sum(), abs=1e-6)


def reply(node: int, arrays: dict, size: float, **numbers: float) -> Message:
    """A reply as a client makes it, with whatever it claims."""
    numbers = {"num-examples": size, "partition": node, "steps": 1, "trained-on": 1, **numbers}
    InlineGrid(None, 1)
    asked = Message(records.pack({}, {}), node, "train")
    return Message(records.pack(arrays, numbers=numbers), reply_to=asked)


ONES = torch.ones(4)
VARIATE = {"w": ONES}


@pytest.mark.parametrize(
    ("arrays", "numbers", "message"),
    [
        ({"weights": ends(ONES * math.nan)}, {}, "not finite"),
        ({"weights": ends(ONES * 1e20)}, {}, "absurdly large"),
        ({"weights": ends(ONES, running=torch.tensor([0.0, math.inf]))}, {}, "not finite"),
        ({"weights": ends(torch.ones(5))}, {}, "wrong shape"),
        ({"weights": ends(ONES.double())}, {}, "wrong shape or dtype"),
        ({"weights": {"v": ONES}}, {}, "differ from the model"),
        ({}, {}, "differ from the model"),
        ({"weights": ends(ONES)}, {"num-examples": -5}, "must be a whole number"),
        ({"weights": ends(ONES)}, {"num-examples": 1e15}, "not a number of samples"),
        ({"weights": ends(ONES)}, {"num-examples": 5.5}, "must be a whole number"),
        ({"weights": ends(ONES)}, {"num-examples": math.nan}, "must be a whole number"),
        ({"weights": ends(ONES)}, {"num-examples": 6}, "changed size"),
        ({"weights": ends(ONES)}, {"num-examples": 0}, "not a number of samples"),
        ({"weights": ends(ONES)}, {"steps": math.inf}, "must be a whole number"),
        ({"weights": ends(ONES)}, {"trained-on": -1}, "must be a whole number"),
        ({"weights": ends(ONES), "added": {"w": ONES * math.nan}}, {}, "not finite"),
        ({"weights": ends(ONES), "added": {"w": torch.tensor(1.0)}}, {}, "wrong shape"),
        ({"weights": ends(ONES), "added": {"w": ONES, "x": ONES}}, {}, "differ from the model"),
        (
            {"weights": ends(ONES), "added": VARIATE, "shown": {"x": ONES}},
            {},
            "differ from the model",
        ),
    ],
)
def test_a_client_that_reports_nonsense_is_named_and_left_out(arrays, numbers, message):
    nodes = {1: Node(1, 7, 5), 2: Node(2, 8, 5)}
    found = added(nodes, "scaffold")
    given = {"added": VARIATE, **arrays}
    found.take(reply(1, given, 5, **numbers), nodes, 1)
    good = {"weights": ends(ONES), "added": VARIATE}
    found.take(reply(2, good, 5), nodes, 2)
    found.take(reply(2, {**good, "weights": ends(ONES * 9)}, 5), nodes, 2)  # again: it counts once
    found.take(reply(3, good, 5), nodes, 3)  # nobody asked it
    (wrong,) = found.numbers()["refused"]
    assert wrong.startswith("client 7: ")
    assert message in wrong
    assert found.weights.mean(ends(ONES))["w"].tolist() == [1.0] * 4
    assert found.sums()["w"].tolist() == [5.0] * 4
    found.check(1, [7, 8], 0.5)
    with pytest.raises(InfeasibleError, match="client 7"):
        found.check(1, [7, 8], 1.0)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x04K\x01.", None])
def test_bytes_that_are_no_array_are_refused(content):
    nodes = {1: Node(1, 7, 5)}
    found = added(nodes)
    bad = reply(1, {"weights": ends(ONES)}, 5)
    array = bad.content.array_records["weights"]["w"]
    array.data = array.data[:-3] if content is None else content
    found.take(bad, nodes, 1)
    (wrong,) = found.numbers()["refused"]
    assert "cannot be read" in wrong or "does not match its own header" in wrong


@pytest.mark.parametrize("spec", ["os:system(command=true)", "helpers.small_federations:Shapes"])
def test_a_server_cannot_name_code_to_run(spec):
    with pytest.raises(InputError, match="dotted path"):
        make_method(spec)


def test_a_server_cannot_name_a_path(tmp_path):
    made = federation(tmp_path)
    grid = InlineGrid(make_client_app(made.simulation.opener()), made.clients)
    name = str(tmp_path / "outside")
    once = settings("scaffold").replace(rounds=1)
    run_rounds(grid, once, made.task, 42, tmp_path / "c.safetensors", name, lambda _: {})
    assert not (tmp_path / "outside").exists()
    assert list((tmp_path / "clients").rglob("1.safetensors"))


def test_a_client_without_samples_is_named(tmp_path):
    made = federation(tmp_path)
    partition = Partition.load(tmp_path / "partition.npz")
    emptied = [own if k != 2 else own[:0] for k, own in enumerate(partition.train)]
    replace(partition, train=IndexLists.of(emptied)).save(tmp_path / "empty.npz")
    empty = replace(made.simulation, partition=str(tmp_path / "empty.npz"))
    with pytest.raises(InfeasibleError, match="client 2 cannot take part"):
        run(replace(made, simulation=empty), tmp_path, settings())


def test_a_generator_of_other_classes_is_refused(tmp_path):
    made = federation(tmp_path, policy="fedeas(beta=12)")
    other = replace(made.simulation, generator="helpers.small_federations:Animals")
    with pytest.raises(InfeasibleError, match="different classes"):
        run(replace(made, simulation=other), tmp_path, settings())


def test_a_fault_of_a_clients_code_is_its_reply(tmp_path):
    made = federation(tmp_path, policy="fedeas(beta=12)")
    broken = replace(made.simulation, generator="helpers.small_federations:Broken")
    with pytest.raises(InfeasibleError, match="RuntimeError: out of memory"):
        run(replace(made, simulation=broken), tmp_path, settings())


def test_a_failing_client_stops_the_run_with_its_reason(tmp_path):
    made = federation(tmp_path, policy="fedeas(beta=12)")
    broken = replace(made.simulation, generator="helpers.small_federations:Missing")
    with pytest.raises(InfeasibleError, match="cannot import generator"):
        run(replace(made, simulation=broken), tmp_path, settings())


def test_no_more_than_a_window_is_under_way():
    class Slow:
        """Answers the oldest message, and notes how many wait."""

        def __init__(self) -> None:
            self.waiting, self.most = [], 0

        def push_messages(self, messages):
            names = [m.name for m in messages]
            self.waiting += names
            self.most = max(self.most, len(self.waiting))
            return names

        def pull_messages(self, names):
            name = self.waiting.pop(0)
            assert name in names
            return [type("Reply", (), {"metadata": type("M", (), {"reply_to_message_id": name})})]

    grid = Slow()
    messages = [
        type("Sent", (), {"name": str(i), "metadata": type("M", (), {"dst_node_id": i})})
        for i in range(100)
    ]
    assert len(list(exchange(grid, messages, window=7, timeout=60))) == 100
    assert grid.most == 7


def test_a_silent_client_costs_at_most_the_timeout():
    class Silent:
        def push_messages(self, messages):
            return [str(m) for m in messages]

        def pull_messages(self, names):
            return []

    begun = time.monotonic()
    assert list(exchange(Silent(), range(9), window=3, timeout=0.2)) == []
    assert 0.2 <= time.monotonic() - begun < 5


def test_a_client_keeps_its_state_by_round(tmp_path):
    kept = ClientStateStore(tmp_path)
    assert kept.after(0) == {}
    for number, last in ((1, 0), (4, 1), (6, 4)):
        kept.save(number, last, {"c": torch.tensor(float(number))})
    kept.save(6, 4, {"c": torch.tensor(6.5)})  # run twice
    assert [float(kept.after(r)["c"]) for r in (4, 6)] == [4.0, 6.5]
    kept.save(5, 4, {"c": torch.tensor(5.0)})  # came too late, or the server went back
    assert [float(kept.after(r)["c"]) for r in (4, 5, 6)] == [4.0, 5.0, 6.5]
    with pytest.raises(InputError, match=r"1\.safetensors is missing"):
        kept.after(1)  # nobody will ask for it again


def test_a_policy_that_cannot_be_noted_leaves_the_one_before(tmp_path):
    kept = ClientStateStore(tmp_path)
    kept.note_policy("full-balance")
    with pytest.raises(UnicodeEncodeError):
        kept.note_policy("\udc80")  # half a character
    kept.check_policy("full-balance")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


# Models


def test_resnet18_has_torchvisions_parameters(tmp_path):
    task = Task(1000, (224, 224, 3), (0.5,) * 3, (0.25,) * 3)
    model = make_model(ModelSettings("resnet18", stem="imagenet"), task, 0)
    state = model.state_dict()
    assert sum(p.numel() for p in model.parameters()) == 11_689_512
    assert len(state) == 122
    for name, shape in {
        "conv1.weight": (64, 3, 7, 7), "bn1.running_mean": (64,), "layer1.0.conv2.weight": (64,) * 2
        + (3, 3), "layer2.0.downsample.0.weight": (128, 64, 1, 1), "layer4.1.bn2.bias": (512,),
        "layer3.0.downsample.1.num_batches_tracked": (), "fc.weight": (1000, 512),
    }.items():  # fmt: skip
        assert tuple(state[name].shape) == shape
    save_file(state, tmp_path / "weights.safetensors")
    small = Task(10, (32, 32, 3), (0.5,) * 3, (0.25,) * 3)
    path = str(tmp_path / "weights.safetensors")
    loaded = make_model(ModelSettings("resnet18", stem="imagenet", weights=path), small, 1)
    assert torch.equal(loaded.state_dict()["layer4.1.conv2.weight"], state["layer4.1.conv2.weight"])
    assert loaded.state_dict()["fc.weight"].shape == (10, 512)
    with pytest.raises(InputError, match="other weights"):
        make_model(ModelSettings("resnet18", stem="cifar", weights=path), small, 1)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_resnet18_trains(tmp_path, norm, stem):
    data = shapes(tmp_path / "shapes", side=16)
    task = Task(3, (16, 16, 1), (0.2,), (0.3,))
    model = make_model(ModelSettings("resnet18", norm=norm, stem=stem), task, 0)
    samples = Samples.of(data, np.arange(16))
    assert fit(model, samples, settings().local, np.random.default_rng(0)) == 4
    overall, per_class = accuracy(model, samples)
    assert 0 <= overall <= 1
    assert per_class.shape == (3,)


def test_a_models_first_weights_follow_from_the_seed_alone():
    task = Task(3, (8, 8, 1), (0.2,), (0.3,))
    state = torch.get_rng_state()
    a, b, c = (make_model(ModelSettings(), task, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert equal(a, b)
    assert not equal(a, c)


# Whole runs


def config_file(folder: Path, kind: str = "image", **federated: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder / "set", kind)
    given = {"rounds": 6, "fraction": 0.5, "method": "scaffold", **federated}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
    path = folder / "run.toml"
    path.write_text(
        f'device = "cpu"\n[data]\nname = "shapes"\nfolder = "{folder / "set"}"\n'
        f'[partition]\nrecipe = "dirichlet"\nclients = 6\nalpha = 0.5\n'
        f'[augment]\npolicy = "fedeas(beta=12)"\ngenerator = "{GENERATORS[kind]}"\n'
        f'cache = "{folder / "cache"}"\nbatch = 8\n'
        f"[federated]\n{lines}\n[federated.local]\nepochs = 2\nbatch = 8\n"
        f'[federated.model]\nname = "{"mlp" if kind == "table" else "cnn"}"\n'
    )
    return path


def killed(config: Path, out: Path, kills: int, longest: float) -> list[int]:
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    script = [sys.executable, "-W", "ignore", HELPERS / "killed_runs.py"]
    done = subprocess.run(
        [*script, config, out, str(kills), str(longest)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def model_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint.safetensors")


@pytest.mark.parametrize(
    ("kind", "method", "times"),
    [
        ("table", "scaffold", 2),  # of images: a killed sweep, in test_sweep.py
        pytest.param("image", "scaffold", 20, marks=pytest.mark.slow),
        pytest.param("image", "moon", 20, marks=pytest.mark.slow),
        pytest.param("table", "moon", 20, marks=pytest.mark.slow),
    ],
)
def test_killed_again_and_again_it_ends_with_the_same_model(tmp_path, kind, method, times):
    rounds = 5 + 2 * times
    config = config_file(tmp_path, kind, rounds=rounds, method=method)
    if method == "moon":
        config.write_text(config.read_text() + "projection = 16\n")
    run_config(read_config(config), tmp_path / "straight")
    kills = killed(config, tmp_path / "killed", times, 0.25)
    assert len(kills) == times
    # They fell into the training, not only before it or after its end.
    assert len({done for done in kills if 0 < done < rounds}) >= times // 4 + 1
    assert equal(model_of(tmp_path / "straight"), model_of(tmp_path / "killed"))
    lines = (tmp_path / "killed" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, rounds + 1))


@pytest.mark.slow
def test_killed_on_ray_it_ends_with_the_same_model(tmp_path):
    config = config_file(tmp_path, rounds=8)
    run_config(read_config(config), tmp_path / "straight")
    on_ray = tmp_path / "ray.toml"
    on_ray.write_text('backend = "ray"\n' + config.read_text())
    kills = killed(on_ray, tmp_path / "killed", 3, 0.5)
    assert len(kills) == 3
    assert max(kills) >= 1
    assert equal(model_of(tmp_path / "straight"), model_of(tmp_path / "killed"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_runs_and_goes_on(tmp_path, fedeas, kind):
    config = config_file(tmp_path, kind, rounds=2, method="fedavg")
    first = fedeas("run", config, "--out", tmp_path / "run")
    assert first.code == 0, first.err
    assert "N = 240 training samples on 6 clients" in first.err
    assert "accuracy" in first.out
    result = read_result(tmp_path / "run" / "result.json")
    assert result["rounds"] == 2
    again = fedeas("run", config, "--out", tmp_path / "run", "--json")
    assert json.loads(again.out) == result
    text = config.read_text()
    config.write_text(text.replace("rounds = 2", "rounds = 3"))
    assert "holds another run" in fedeas("run", config, "--out", tmp_path / "run").err
    # A config that cannot run claims no folder.
    config.write_text(text.replace(f'generator = "{GENERATORS[kind]}"', ""))
    assert "name a generator" in fedeas("run", config, "--out", tmp_path / "other").err
    config.write_text(text)
    assert fedeas("run", config, "--out", tmp_path / "other").code == 0


def test_a_run_from_python_takes_a_file_or_a_config(tmp_path):
    import fedeas
    import fedeas.lab

    config = config_file(tmp_path, rounds=1, method="fedavg")
    heard = []
    result = fedeas.lab.run(str(config), out=str(tmp_path / "run"), on_round=heard.append)
    assert result == read_result(tmp_path / "run" / "result.json")
    assert [line["round"] for line in heard] == [1]
    assert fedeas.lab.run(fedeas.lab.read_config(str(config)), out=tmp_path / "run") == result
    with pytest.raises(fedeas.InputError, match="nowhere"):
        fedeas.lab.run("nowhere.toml", out=tmp_path / "other")


def test_tensorboard_can_follow_a_run(tmp_path, fedeas):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config, out = config_file(tmp_path, rounds=2, method="fedavg"), tmp_path / "run"
    done = fedeas("run", config, "--out", out, "--tensorboard")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    accuracies = [line["accuracy"] for line in lines]
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    assert [e.value for e in events.Scalars("accuracy")] == pytest.approx(accuracies)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rounds =", "round ="), "has no setting 'round'"),
        (("rounds =", "round ="), "did you mean 'rounds'?"),
        (("rounds = 6", 'rounds = "six"'), "federated.rounds has the wrong type; got 'six'"),
        (("rounds = 6", "rounds = true"), "federated.rounds has the wrong type"),
        (("rounds = 6", "rounds = 0"), "federated.rounds is out of range; got 0"),
        (("fraction = 0.5", "fraction = 2"), "fraction is out of range"),
        (("epochs = 2", "epochs = 0"), "run.toml: federated.local.epochs is out of range"),
        (("epochs = 2", "learning_rate = -1.0"), "learning_rate is out of range"),
        (("epochs = 2", "learning_rate = nan"), "learning_rate is out of range"),
        (("epochs = 2", 'precision = "int8"'), "precision is not valid; got 'int8'"),
        (("epochs = 2", 'optimizer = "adm"'), "unknown optimizer; got 'adm'"),
        (('name = "shapes"', ""), "lacks 'name'"),
        (("[data]", "[dta]"), "did you mean 'data'?"),
        (('method = "scaffold"', 'method = "scafold"'), "did you mean 'scaffold'?"),
        (('generator = "helpers.small_federations:Shapes"', ""), "name a generator"),
        (('device = "cpu"', 'device = "cuda"'), "cannot use the device"),
        (('device = "cpu"', 'backend = "moon"'), "unknown backend"),
        (('device = "cpu"', "device = "), "is not TOML"),
    ],
)
def test_a_wrong_config_is_one_line(tmp_path, fedeas, change, message):
    config = config_file(tmp_path)
    config.write_text(config.read_text().replace(*change))
    result = fedeas("run", config, "--out", tmp_path / "run")
    assert result.code == 2
    assert message in result.err.splitlines()[-1]


def test_an_experiment_is_known_by_contents_not_by_places(tmp_path):
    config = read_config(config_file(tmp_path))
    known = resolve(config).experiment
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path / "set", moved)
    elsewhere = config.replace(data=config.data.replace(folder=str(moved)), backend="ray")
    assert resolve(elsewhere).experiment == known
    assert resolve(config.replace(seed=1)).experiment != known
    images, _ = draw_shapes(300)
    shutil.rmtree(moved)
    write_set(moved, list(255 - images[:240]), list(images[240:]), CLASSES)
    assert resolve(elsewhere).experiment != known
    animals = config.augment.replace(generator="helpers.small_federations:Painter")
    assert resolve(config.replace(augment=animals)).experiment != known
    assert isinstance(config, Config)


def test_a_lost_line_of_the_log_comes_back(tmp_path):
    config = read_config(config_file(tmp_path, rounds=3))
    run_config(config, tmp_path / "run")
    log = tmp_path / "run" / "log.jsonl"
    whole = log.read_text()
    log.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    (tmp_path / "run" / "result.json").unlink()  # as it was when the process was killed
    run_config(config, tmp_path / "run")
    again = [json.loads(line) for line in log.read_text().splitlines()]
    assert again == [json.loads(line) for line in whole.splitlines()]


@dataclass(frozen=True)
class Faulty(Method):
    """A method with a bug of its own."""

    def local_objective(self, context):
        return {}["no such key"]


def test_a_clients_error_comes_back_with_its_traceback(tmp_path, monkeypatch):
    made = federation(tmp_path)
    monkeypatch.setitem(REGISTRY.fixed, "faulty", Faulty)

    def main(grid):
        return run(made, tmp_path, settings("faulty"), grid)

    app = make_client_app(made.simulation.opener())
    with pytest.raises(InfeasibleError, match=r"client \d: KeyError: 'no such key'") as failed:
        run_on_backend("inline", app, made.clients, 1, main)
    cause = failed.value.__cause__
    assert isinstance(cause, KeyError)
    trace = "".join(traceback.format_exception(cause))
    assert 'return {}["no such key"]' in trace
    assert re.search(r"raised by client \d", trace)


FAULTY_ON_RAY = """
import traceback
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from fedeas import InfeasibleError
from fedeas.train.flower.exchange import exchange, reason
from fedeas.train.flower.backends import run_on_backend

app = ClientApp()

@app.train()
def train(message, context):
    return {}["no such key"]

def main(grid):
    messages = [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]
    raise InfeasibleError("; ".join(reason(reply) for _, reply in exchange(grid, messages, 2, 300)))

if __name__ == "__main__":
    try:
        run_on_backend("ray", app, 1, 1, main)
    except InfeasibleError as error:
        print(error)
        traceback.print_exception(error.__cause__)
"""


@pytest.mark.slow
def test_a_clients_error_on_ray_comes_back_with_its_traceback(tmp_path):
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY_ON_RAY)
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.startswith("KeyError: 'no such key' (faulty.py, line 13)"), done
    assert "ClientError: client 0: Traceback" in done.stderr
    assert 'return {}["no such key"]' in done.stderr
