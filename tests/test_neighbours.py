"""What a site refuses is the same whatever its samples are.

Four real sites hold data sets that differ by one sample: one added, one removed, one replaced. A
hostile server sends each of them the same message. Whether it is refused, in which words, before or
after samples are looked at, what the ledger says and which files are left must be the same.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from hypothesis import example, given
from hypothesis import strategies as st

from fedeas import FedeasError, FullBalance, InfeasibleError
from fedeas.cache.verify import caches
from fedeas.flower import records
from fedeas.flower.deployed import make_deployed_app, row_policy
from fedeas.flower.grids import InlineGrid
from fedeas.flower.limits import REFUSAL
from fedeas.flower.own_generator import RECORD as GENERATOR
from fedeas.flower.queries import ask
from fedeas.flower.secure_round import Layout, content_digest, encode_question
from fedeas.flower.secure_sum import new_session
from fedeas.generators.own import refined
from fedeas.generators.own.card import CARD, WEIGHTS, Card
from fedeas.methods.registry import make_method
from fedeas.per_name import planned_quality
from fedeas.policies.registry import make_policy
from fedeas.policy_settings import with_quality
from fedeas.privacy.ledger import Ledger
from fedeas.privacy.queries.class_totals import ClassTotals
from fedeas.privacy.queries.image_moments import ImageMoments
from fedeas.privacy.queries.registry import QUERIES, read_query
from fedeas.privacy.secure_sum.identity import Members, make_identity
from fedeas.privacy.secure_sum.keys import identity_of
from fedeas.settings.deployment import RoundSum
from fedeas.settings.training import ModelSettings
from fedeas.targets import aim_at_classes
from fedeas.tensors import save_tensors
from fedeas.training.models import make_model
from fedeas.training.samples import Samples
from fedeas.training.task import Task
from pictures import encoded

CLASSES = ("a", "b", "c", "d")
SHAPE = (8, 8, 1)
# A class with a single sample, and one without any. N is even, so that one sample more or less
# changes the last batch.
SITES = {
    "base": (9, 1, 0, 6),
    "added": (9, 1, 1, 6),  # a class that the base has not
    "removed": (9, 0, 0, 6),  # the only one of its class
    "replaced": (8, 1, 1, 6),
}
TASK = Task(len(CLASSES), SHAPE, (0.5,), (0.5,))


class Site:
    """A deployed site with some samples, and all that can be seen of how it answers."""

    def __init__(self, folder: Path, name: str, number: int) -> None:
        rng = np.random.default_rng(0)
        for label, count in zip(CLASSES, SITES[name], strict=True):
            for k in range(count):
                path = folder / name / label / f"{k}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(encoded(rng.integers(0, 255, SHAPE).astype(np.uint8)))
        self.state = folder / f"state-{name}"
        node = {
            "partition-id": 0, "classes": ", ".join(CLASSES), "data": str(folder / name),
            "state": str(self.state), "device": "cpu", "generator": "own", "max-samples": 30,
            "identity-key": str(folder / f"{number}.key"),
            "members": str(folder / "members.toml"), "max-steps": 20,
            "max-epochs": 3, "max-batch": 64, "allow": " ".join((*QUERIES, "train", "exact")),
        }  # fmt: skip
        self.context = Context(1, 2, node, RecordDict(), {"classes": ", ".join(CLASSES)})
        self._grid = InlineGrid(make_deployed_app(), 1)
        self._grid._contexts = {2: self.context}

    def send(self, content: RecordDict, kind: str) -> Message:
        (name,) = self._grid.push_messages([Message(content, 2, kind)])
        (reply,) = self._grid.pull_messages([name])
        return reply

    def forget(self) -> None:
        """Remove what earlier messages left; the data and the generator stay."""
        for name in ("refusals", "ledger", "sums", "kept", "cache"):
            path = self.state / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def seen(self, content: RecordDict, kind: str) -> tuple[object, ...]:
        """Return all that may not depend on the samples."""
        self.forget()
        TOUCHED.clear()
        reply = self.send(content, kind)
        return (
            reply.error.reason if reply.has_error() else None,
            bool(TOUCHED) if reply.has_error() else None,
            *self.left(),
        )

    def left(self) -> tuple[list[object], dict[str, int]]:
        """Return what is in the ledger, and the names and sizes of files."""
        ledger = Ledger.open(self.state / "ledger", 3.0, 1e-6)
        files = {
            str(path.relative_to(self.state)): path.stat().st_size
            for path in self.state.rglob("*")
            if path.is_file() and path.relative_to(self.state).parts[0] not in ("cache", "store")
        }
        return [(entry.query, entry.rho) for entry in ledger.entries], files


TOUCHED: list[str] = []  # what was looked at of a site's own samples


@pytest.fixture(autouse=True)
def watched(monkeypatch):
    """Note every look at real labels or samples: those of a site are memory-mapped."""
    take, labels = Samples.take, Samples.labels.fget

    def note(samples: Samples) -> None:
        if isinstance(samples.data.samples, np.memmap):
            TOUCHED.append("samples")

    monkeypatch.setattr(Samples, "take", lambda self, at: (note(self), take(self, at))[1])
    monkeypatch.setattr(Samples, "labels", property(lambda self: (note(self), labels(self))[1]))


@pytest.fixture(scope="module")
def sites(tmp_path_factory) -> list[Site]:
    folder = tmp_path_factory.mktemp("neighbours")
    keys = {f"s{k}": identity_of(make_identity(folder / f"{k}.key")) for k in range(4)}
    (folder / "members.toml").write_text(Members.of(keys).to_toml())
    made = [Site(folder, name, number) for number, name in enumerate(SITES)]
    first = generator(folder)
    for site in made:
        assert not site.send(first, "query.own_generator").has_error()
    return made


def generator(
    folder: Path, quality: float = 1.0, classes=CLASSES, shape=SHAPE, seed: int = 0
) -> RecordDict:
    """A message with a generator that the server made up."""
    place = folder / "given"
    place.mkdir(exist_ok=True)
    drawn = np.random.default_rng(seed).integers(0, 255, (len(classes), 2, *shape), dtype=np.uint8)
    save_tensors(place / WEIGHTS, {"images": torch.from_numpy(drawn)}, {"way": refined.WAY})
    several = len(classes)
    card = Card(
        way=refined.WAY, classes=classes, shape=shape, epsilon=1.0, delta=1e-6, sites=3,
        counts=(100.0,) * several, quality=(quality,) * several, settings={},
    )  # fmt: skip
    card.write(place)
    content = {name: (place / name).read_bytes() for name in (CARD, WEIGHTS)}
    return RecordDict({GENERATOR: ConfigRecord(content)})


def weights(name: str = "cnn") -> dict[str, torch.Tensor]:
    return dict(make_model(ModelSettings(name), TASK, 0).state_dict())


def training(sent: dict[str, torch.Tensor] | None = None, **changed: Any) -> RecordDict:
    """A message as a server's round sends it, with some settings changed."""
    asked: dict[str, Any] = {
        "seed": 1, "method": "fedavg", "threads": 1, "experiment": "x", "policy": "none",
        "round": 1, "last": 0, "model": ModelSettings().to_dict(), "task": TASK.to_dict(),
        "local": {"epochs": 1, "batch": 4, "learning_rate": 0.02},
    }  # fmt: skip
    arrays: dict[str, Any] = {"weights": weights() if sent is None else sent}
    for name, value in changed.items():
        if name == "received":
            arrays["method"] = value
        elif name in ("name", "norm", "projection"):
            asked["model"][name] = value
        elif name in ("classes", "shape", "mean", "spread"):
            asked["task"][name] = value
        elif name in ("epochs", "batch", "learning_rate", "optimizer", "steps", "weight_decay"):
            asked["local"][name] = value
        else:
            asked[name] = value
    return records.pack(arrays, asked)


def digest_of(content: RecordDict) -> str:
    """The hash of what a message sends."""
    arrays = (records.tensors(content, group) for group in ("weights", "method"))
    return content_digest(*arrays, records.settings(content))


def session_of(question: RoundSum) -> str:
    """The name of a round's sum."""
    model = make_model(ModelSettings(), TASK, 0)
    length = Layout(question, weights(), make_method("fedavg"), model).length
    return new_session(encode_question(question), length)


def equal(sites: list[Site], content: RecordDict, kind: str = "train") -> bool:
    """Send a message to all sites; return whether they refuse it, all in the same way."""
    first, *others = [site.seen(content, kind) for site in sites]
    assert others == [first] * len(others)
    assert first[0] in (None, REFUSAL)
    assert not first[1]  # refused before any sample was looked at
    return first[0] is not None


# The messages of a hostile server.

ODD = (0, -1, 1, 2, 3, 4, 5, 7, 16, 10**9, 2**70, 0.5, 1e-300, 5e-324, 1e308, "x", "", True, None)
odd = st.sampled_from(ODD)
numbers = st.sampled_from((0, 1, 12, 1e4, -1, 1e-300, 5e-324, 0.5, 1e-9, 1e-3, 9999.0, 3))
shares = st.lists(
    st.sampled_from((0, 1, 0.5, 1e-300, 1e300, 5e-324, 0.25, 1e-9, 3, 1e-4)), min_size=3, max_size=5
).map(lambda drawn: ":".join(map(str, drawn)))
POLICIES = {
    "fedeas": ("beta", "size_exponent", "entropy", "below_mean", "quality", "target", "limits"),
    "waterfill": ("price", "total", "quality", "target", "costs"),
    "fill-to-mean": ("target", "quality"),
    "full-balance": ("target",),
    "none": ("target",),
}


@st.composite
def policies(draw) -> str:
    name = draw(st.sampled_from(sorted(POLICIES)))
    keys = draw(st.lists(st.sampled_from(POLICIES[name]), unique=True))
    given = [f"{key}={draw(shares if key == 'target' else numbers)}" for key in keys]
    return f"{name}({', '.join(given)})" if given else name


METHODS = (
    "fedavg", "fedprox(mu=1e5)", "moon", "moon(mu=1e5, tau=1e-5)", "scaffold", "class-weights",
    "class-weights(strength=1e5)", "class-weights(loss=weighted, strength=1e5)", "fedlc(tau=1e5)",
    "fedrs(alpha=0)", "fedvls(calibration=1e5, suppression=1e5)", "fedgen", "os:system",
)  # fmt: skip
OPTIMIZERS = (
    "sgd", "adam", "sgd(momentum=0.9, dampening=-1e6)", "sgd(momentum=1)", "adam(eps=0)", "muon",
    "sparseadam", "adam(capturable=true)", "rprop", "adagrad(initial_accumulator_value=1e30)",
)  # fmt: skip
MODELS = ("cnn", "mlp(width=16)", "cnn(projection=8)", "mlp(width=1e9)", "resnet18", "os:system")


def spoilt(kind: str) -> dict[str, torch.Tensor]:
    """Weights that no honest server sends."""
    found = weights()
    match kind:
        case "zero":
            found = {name: torch.zeros_like(w) for name, w in found.items()}
        case "largest":  # within the bound: training overflows
            found = {name: torch.full_like(w, 4096.0) for name, w in found.items()}
        case "huge":
            found["fc.bias"] = torch.full_like(found["fc.bias"], 3e38)
        case "nan":
            found["fc.bias"][0] = torch.nan
        case "wide":
            found["fc.bias"] = found["fc.bias"].double()
        case "longer":
            found["fc.bias"] = torch.zeros(7)
        case "fewer":
            del found["fc.bias"]
    return found


WEIGHTS_SENT = ("fresh", "zero", "largest", "huge", "nan", "wide", "longer", "fewer")


@st.composite
def turns(draw) -> tuple[str, dict[str, Any]]:
    """The weights and settings of a training message: most of it sound, some of it hostile."""
    changed: dict[str, Any] = {"policy": draw(policies() | st.just("none"))}
    choices: dict[str, st.SearchStrategy[Any]] = {
        "method": st.sampled_from(METHODS),
        "optimizer": st.sampled_from(OPTIMIZERS),
        "name": st.sampled_from(MODELS),
        "received": st.sampled_from(("fc.bias", "x")).map(lambda name: {name: torch.zeros(3)}),
        "shape": st.sampled_from(([8, 8, 1], [8, 8, 3], [64], [])),
        "classes": odd, "batch": odd, "epochs": odd, "steps": odd, "learning_rate": odd,
        "weight_decay": odd, "round": odd, "last": odd, "seed": odd, "threads": odd,
        "experiment": odd, "projection": odd,
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(choices)), unique=True, max_size=3)):
        changed[name] = draw(choices[name])
    return draw(st.sampled_from(WEIGHTS_SENT)), changed


@given(turn=turns())
@example(turn=("fresh", {"policy": "full-balance"}))
@example(turn=("largest", {"policy": "fedeas(beta=12)", "learning_rate": 1.0}))
@example(turn=("zero", {"policy": "none", "method": "fedvls(suppression=1e5)"}))
def test_training_is_refused_alike(sites, turn):
    equal(sites, training(spoilt(turn[0]), **turn[1]))


def test_sound_training_is_not_refused(sites):
    """The control: the sites do train, so that equal refusals are not refusals of everything."""
    for policy in ("none", "full-balance", "fedeas(beta=12)", "waterfill(price=0.01)"):
        assert not equal(sites, training(policy=policy))
    for method in ("moon", "scaffold", "class-weights", "fedlc", "fedrs", "fedvls"):
        assert not equal(sites, training(method=method, policy="full-balance"))
    for rho in (0.0, 1e-3):
        question = RoundSum("x", 1, digest_of(training()), 99, clip=1.0, rho=rho)
        assert not equal(sites, training(secure=session_of(question)))


@given(
    turn=turns(),
    drift=st.booleans(),
    rho=st.sampled_from((0.0, 1e-3, 1e-300, 9e5)),
    clip=st.sampled_from((0.0, 1.0, 1e-300, 1e8)),
    most=st.sampled_from((1, 16, 10**6)),
)
@example(turn=("fresh", {}), drift=False, rho=0.0, clip=0.0, most=100)
@example(turn=("largest", {"learning_rate": 1.0}), drift=False, rho=0.0, clip=0.0, most=99)
@example(turn=("largest", {"learning_rate": 1.0}), drift=False, rho=1e-3, clip=1.0, most=9)
def test_training_in_secure_sums_is_refused_alike(sites, turn, drift, rho, clip, most):
    sent, changed = spoilt(turn[0]), {k: v for k, v in turn[1].items() if k != "received"}
    try:
        digest = digest_of(training(sent, **changed))
        question = RoundSum("x", 1, digest, most, 0, drift, clip, rho)
    except FedeasError:
        return
    refused = equal(sites, training(sent, **{**changed, "secure": session_of(question)}))
    assert refused or not drift


@st.composite
def queries(draw) -> tuple[dict[str, Any], int]:
    """A question about counts or samples, with any settings, and how long its answer shall be."""
    name = draw(st.sampled_from(sorted(QUERIES)))
    asked: dict[str, Any] = {"query": name, "classes": draw(st.just(4) | odd), "rho": 1e-3}
    if name not in ("class-totals", "beta", "price"):
        asked["shape"] = draw(st.sampled_from(([8, 8, 1], [8, 8, 3], [16, 16, 1], [64], [2])))
    for key, values in {
        "frequencies": st.sampled_from((1, 2, 4, 8, 16, 28, 10**6)),
        "features": st.sampled_from((2, 8, 2**16, 2**30)),
        "edges": st.sampled_from((0, 1, 7)),
        "centre": st.just([[0] * 512] * 4), "scale": st.just([1] * 512), "layers": st.just([1]),
        "cuts": st.just([[0.0], [1.0]]), "levels": st.just([0, 0]), "gaps": st.just([True, False]),
        "places": st.just([[0.0, 1e6]] * 2), "variances": st.just([[0.0, 1e6]] * 2),
        "radius": st.sampled_from((1.0, 1e-5, 1e5)),
        "rho": st.sampled_from((0.0, 1e-3, 0.1, 1e-300, 9e5, -1.0)),
    }.items():  # fmt: skip
        if key in QUERIES[name].__dataclass_fields__ or key == "rho":
            asked[key] = draw(values)
    try:
        length = read_query({k: v for k, v in asked.items() if k != "rho"}).length
    except FedeasError:
        length = 4
    return asked, draw(st.sampled_from((length, length, length, 4)))


def keys(asked: object, words: int) -> RecordDict:
    session = json.dumps({"asked": asked, "words": words, "sum": "1"}, sort_keys=True)
    return RecordDict({"secure-sum": ConfigRecord({"session": session, "content": b""})})


@given(question=queries())
@example(question=({"query": "class-totals", "classes": 4, "rho": 1e-3}, 4))
@example(question=({"query": "class-totals", "classes": 3, "rho": 1e-3}, 3))
def test_queries_are_refused_alike(sites, question):
    content = keys(*question)
    sound = question[0]["classes"] == 4 and type(question[0]["classes"]) is int
    # The number of words is compared with the answer's: only a sound question gets that far.
    first, *others = [site.seen(content, "query.secure_keys") for site in sites]
    assert others == [first] * len(others)
    assert sound or first[:2] == (REFUSAL, False)


def test_a_whole_sum_leaves_the_same_at_all_sites(sites):
    """They are the members of one federation here, and go through all five stages."""
    grid = InlineGrid(make_deployed_app(), len(sites))
    nodes = list(grid.get_node_ids())
    for node, site in zip(nodes, sites, strict=True):
        site.forget()
        grid._contexts[node] = site.context
    members = Members.load(sites[0].context.node_config["members"])
    for query in (ClassTotals(4), ImageMoments(4, SHAPE, 2)):
        assert len(ask(grid, nodes, query, members, epsilon=1.0).nodes) == len(sites)
        assert len({repr(site.left()) for site in sites}) == 1
    with pytest.raises(FedeasError, match=REFUSAL):  # there is not so much left
        ask(grid, nodes, ClassTotals(4), members, epsilon=2.9)
    left = [site.left() for site in sites]
    assert left == [left[0]] * len(left)
    assert [name for name, _ in left[0][0]] == ["class-totals", "image-moments"]


@given(stage=st.sampled_from(("shares", "masked", "agree", "unmask")), content=st.binary())
def test_later_stages_of_a_sum_are_refused_alike(sites, stage, content):
    asked = {"query": "class-totals", "classes": 4, "rho": 1e-3}
    message = keys(asked, 4)
    message["secure-sum"]["content"] = content
    assert equal(sites, message, f"query.secure_{stage}")


@given(method=st.sampled_from(METHODS), seed=odd)
def test_introductions_are_answered_alike(sites, method, seed):
    equal(sites, records.pack({}, {"method": method, "seed": seed}), "query.hello")


@given(
    quality=st.sampled_from((1.0, 0.0, 1e-300, 2.0)),
    classes=st.sampled_from((CLASSES, ("a", "b"))),
    shape=st.sampled_from((SHAPE, (8, 8, 3))),
)
def test_generators_are_taken_alike(sites, tmp_path_factory, quality, classes, shape):
    folder = tmp_path_factory.mktemp("given")
    refused = equal(sites, generator(folder, quality, classes, shape), "query.own_generator")
    assert refused == (quality > 1 or classes != CLASSES or shape != SHAPE)
    if not refused:
        assert not equal(sites, training(policy="fedeas(beta=9999)"))


def test_samples_of_earlier_generators_are_removed(sites, tmp_path):
    """Every generator that a server gives has samples of its own, of up to `max-samples`."""
    site = sites[0]
    site.forget()
    for seed in range(3):
        given = generator(tmp_path, seed=seed)
        for each in sites:  # all of them have the same one afterwards
            assert not each.send(given, "query.own_generator").has_error()
        reply = site.send(training(policy="full-balance", experiment=str(seed)), "train")
        assert not reply.has_error()
        assert len(caches(site.state / "cache")) == 1


# The attacks that this ends, and how they succeeded.


def test_the_number_of_classes_of_a_query_tells_no_label(sites):
    """Ask a sum over samples for fewer and fewer classes, until the site's labels do not fit."""

    def question(classes: int) -> RecordDict:
        asked = {"query": "image-moments", "classes": classes, "shape": [8, 8, 1],
                 "frequencies": 2, "rho": 1e-3}  # fmt: skip
        return keys(asked, classes * (1 + 4 + 10))

    def oracle(refuses: Callable[[tuple[int, ...], int], bool]) -> list[list[bool]]:
        return [[refuses(counts, classes) for classes in (4, 3, 2)] for counts in SITES.values()]

    def refused_before(counts: tuple[int, ...], classes: int) -> bool:
        labels = np.repeat(np.arange(4), counts)
        return bool(labels.max() >= classes)

    lacking = [(5, 2, 0, 0), (5, 2, 1, 0)]  # neighbours
    before = [[refused_before(counts, classes) for classes in (4, 3, 2)] for counts in lacking]
    assert before == [[False, False, False], [False, False, True]]
    by_counts = dict(zip(SITES.values(), sites, strict=True))

    def refused_now(counts: tuple[int, ...], classes: int) -> bool:
        return equal([by_counts[counts]], question(classes), "query.secure_keys")

    assert oracle(refused_now) == [[False, True, True]] * len(SITES)


def test_no_target_tells_a_count_by_a_refusal(sites):
    """A share s for a class makes a plan of n / s samples: impossible if n is above s * 2**53."""

    def spec(label: int, s: float) -> str:
        return ":".join(repr(s) if c == label else "1" for c in range(4))

    def refused_before(counts: tuple[int, ...], label: int, s: float) -> bool:
        try:
            FullBalance(target=spec(label, s)).local(counts)
        except InfeasibleError:
            return True
        return False

    def read(counts: tuple[int, ...], refused: Callable[[tuple[int, ...], int, float], bool]):
        found = []
        for label in range(4):
            low, high = -1, sum(counts)
            while high - low > 1:
                middle = (low + high) // 2
                above = refused(counts, label, (middle + 0.5) * 3 / 2**53)
                low, high = (middle, high) if above else (low, middle)
            found.append(high)
        return tuple(found)

    with np.errstate(all="ignore"):
        assert all(read(counts, refused_before) == counts for counts in SITES.values())
    for label in range(4):
        for s in (1e-300, 3e-16, 3e-15, 1e-5, 1e-3):
            policy = f"full-balance(target={spec(label, s)})"
            assert equal(sites, training(policy=policy)) == (s < 1e-4)


HISTOGRAMS = [(100, 0, 0, 0), (25, 25, 25, 25), (97, 1, 1, 1), (50, 50, 0, 0), (1, 0, 0, 99),
              (99, 1, 0, 0), (100, 1, 0, 0), (0, 1, 99, 0)]  # fmt: skip


def planned(make: Callable[[str], Any], spec: str, quality: list[float] | None) -> list[bool]:
    """Whether a policy plans for each of the histograms."""
    found = []
    for counts in HISTOGRAMS:
        try:
            policy = aim_at_classes(make(spec), CLASSES)
            if quality is not None:
                policy = with_quality(policy, planned_quality(quality))
            policy.local(counts)
            found.append(True)
        except (FedeasError, TypeError, ValueError):
            found.append(False)
    return found


@given(spec=policies(), quality=st.none() | st.lists(
    st.sampled_from((0, 1, 0.5, 1e-300, 1e-9)), min_size=4, max_size=4))  # fmt: skip
def test_a_policy_plans_for_all_counts_or_for_none(spec, quality):
    with np.errstate(all="ignore"):
        assert len(set(planned(row_policy, spec, quality))) == 1


def test_policies_without_bounds_plan_for_some_counts_only():
    """The control of the property above."""
    with np.errstate(all="ignore"):
        found = planned(make_policy, "full-balance(target=1e-14:1:1:1)", None)
    assert 0 < sum(found) < len(found)
