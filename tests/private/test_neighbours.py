"""What a site refuses is the same whatever its samples are.

Four real sites hold data sets that differ by one sample: one added, one removed, one replaced. Four
others hold tables that differ by one row. A hostile server sends each of them the same messages.
Whether one is refused, in which words, before or after samples are looked at, of which form the
reply is, what the ledger says and which files are left must be the same.

A message that fails the first check tells little, so most of each is sound: the tests called
`..._mostly_sound` count that.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from fedeas import FedeasError, FullBalance, InfeasibleError
from fedeas.cache.store import caches
from fedeas.data import Dataset
from fedeas.generators.card import CARD, GeneratorCard, PrivacyGuarantee, TrainingRecord
from fedeas.planning.named_values import planned_quality
from fedeas.planning.policies import make_policy
from fedeas.planning.resolve import with_quality
from fedeas.planning.targets import aim_at_classes
from fedeas.private.flower.deployed import client_app
from fedeas.private.flower.handover import RECORD as GENERATOR
from fedeas.private.flower.queries import ask
from fedeas.private.generator import images
from fedeas.private.generator.card import PRIVATE, WEIGHTS
from fedeas.private.generator.make import make_private
from fedeas.private.queries import QUERIES
from fedeas.private.queries.features import feature_count
from fedeas.private.queries.moments import ImageMoments
from fedeas.private.queries.query import ClassTotals
from fedeas.private.secure_sum.identity import Members
from fedeas.train.flower import records
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.deployed import REFUSAL, row_policy
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import ModelSettings
from fedeas.train.tensors import load_tensors, save_tensors
from helpers.image_sets import encoded
from helpers.neighbouring_sites import CLASSES, TOUCHED, Site, keys, length_of, members
from helpers.table_sets import CLASSES as LEVELS
from helpers.table_sets import SCHEMA, draw_rows, to_table

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
# Rows of a table: the base has none of the class "middle".
ODD_ROW = ((2e9, 3e38, np.nan), 2)
GAPS = ((0, np.nan, 2), 2)
TABLES = {
    "base": (24, ()),
    "added": (24, (ODD_ROW,)),
    "removed": (23, ()),
    "replaced": (23, (GAPS,)),
}
TABLE_TASK = Task(
    len(LEVELS), (3,), (30.0, 1000.0, 0.0), (10.0, 500.0, 1.0), kind="table", schema=SCHEMA
)
# A turn takes time at four sites. Every night there are ten times as many examples.
FEW = settings(max_examples=max(1, settings.default.max_examples // 3))
FEWER = settings(max_examples=max(1, settings.default.max_examples // 6))


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
    """Sites with images."""
    folder = members(tmp_path_factory.mktemp("neighbours"))
    made = []
    for number, (name, counts) in enumerate(SITES.items()):
        for label, count in enumerate(counts):
            for k in range(count):
                rng = np.random.default_rng((label, k))  # the others stay what they are
                path = folder / name / CLASSES[label] / f"{k}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(encoded(rng.integers(0, 255, SHAPE).astype(np.uint8)))
        made.append(Site(folder, name, number, folder / name))
    return with_generator(made, generator(folder))


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> list[Site]:
    """Sites with tables."""
    folder = members(tmp_path_factory.mktemp("tables"))
    SCHEMA.save(folder / "schema.json")
    drawn, labels = draw_rows(24)
    labels[labels == 2] = 0
    made = []
    for number, (name, (count, more)) in enumerate(TABLES.items()):
        rows = np.array([*drawn[:count], *(row for row, _ in more)], np.float32)
        own = [*labels[:count], *(label for _, label in more)]
        pq.write_table(to_table(rows, np.array(own)), folder / f"{name}.parquet")
        schema = str(folder / "schema.json")
        data = folder / f"{name}.parquet"
        made.append(Site(folder, name, number, data, LEVELS, schema=schema))
    return with_generator(made, table_generator(folder))


@pytest.fixture(scope="module")
def kinds(sites, tables) -> dict[str, list[Site]]:
    return {"image": sites, "table": tables}


def with_generator(made: list[Site], first: RecordDict) -> list[Site]:
    for site in made:
        assert not site.send(first, "query.private_generator").has_error()
    return made


def table_generator(folder: Path) -> RecordDict:
    """A message with a generator of rows, made of other rows than any site has."""
    rows, labels = draw_rows(60, seed=9)
    data = Dataset(rows, labels, "x", LEVELS, len(rows), "x", kind="table", schema=SCHEMA)
    make_private(data, [np.arange(60)], epsilon=1e5, out=folder / "given")
    content = {name: (folder / "given" / name).read_bytes() for name in (CARD, WEIGHTS)}
    return RecordDict({GENERATOR: ConfigRecord(content)})


def generator(
    folder: Path, quality: float = 1.0, classes=CLASSES, shape=SHAPE, seed: int = 0
) -> RecordDict:
    """A message with a generator that the server made up."""
    place = folder / "given"
    place.mkdir(exist_ok=True)
    several, size, rng = len(classes), 4 * shape[2], np.random.default_rng(seed)
    tensors = {
        "means": torch.from_numpy(rng.uniform(-0.2, 0.2, (several, size))),
        "roots": torch.from_numpy(rng.uniform(-0.1, 0.1, (several, size, size))),
    }
    save_tensors(place / WEIGHTS, tensors, {"method": images.METHOD})
    card = GeneratorCard(
        PRIVATE, classes, shape, {"frequencies": 2}, images.METHOD, (100.0,) * several,
        (quality,) * several,
        TrainingRecord(sites=3), PrivacyGuarantee(1.0, 1e-6, "one sample"),
    )  # fmt: skip
    card.save(place)
    content = {name: (place / name).read_bytes() for name in (CARD, WEIGHTS)}
    return RecordDict({GENERATOR: ConfigRecord(content)})


KIND = {"image": (TASK, "cnn"), "table": (TABLE_TASK, "mlp(width=16)")}


def model_of(kind: str = "image", name: str = "", **more: Any) -> Any:
    task, usual = KIND[kind]
    return make_model(ModelSettings(name or usual, **more), task, 0)


def training(
    sent: dict[str, torch.Tensor] | None = None, kind: str = "image", **changed: Any
) -> RecordDict:
    """A message as a server's round sends it, with some settings changed."""
    task, model = KIND[kind]
    asked: dict[str, Any] = {
        "seed": 1, "method": "fedavg", "threads": 1, "experiment": "x", "policy": "none",
        "round": 1, "last": 0, "model": ModelSettings(model).to_dict(), "task": task.to_dict(),
        "local": {"epochs": 1, "batch": 4, "learning_rate": 0.02},
    }  # fmt: skip
    arrays: dict[str, Any] = {"weights": model_of(kind).state_dict() if sent is None else sent}
    for name, value in changed.items():
        if name == "received":
            arrays["method"] = value
        elif name in ("name", "norm", "projection"):
            asked["model"][name] = value
        elif name in ("classes", "shape", "mean", "std"):
            asked["task"][name] = value
        elif name in LOCAL:
            asked["local"][name] = value
        else:
            asked[name] = value
    return records.pack(arrays, asked)


LOCAL = (
    "epochs", "batch", "learning_rate", "optimizer", "steps", "weight_decay", "precision",
)  # fmt: skip


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
    "class-weights(strength=1e5)", "fedlc(tau=1e5)",
    "class-weights(strength=1e5)", "fedlc(tau=1e5)",
)  # fmt: skip
MODELS = {"image": ("cnn", "mlp(width=16)"), "table": ("mlp(width=16)", "mlp(width=2)")}
RATES = (0.02, 1.0, 1e-12)

# What a site takes, up to its limits: training may overflow.
SOUND: dict[str, tuple[Any, ...]] = {
    "method": METHODS,
    "optimizer": ("sgd", "adam(eps=0)", "sgd(momentum=1)", "rprop", "adam", "rmsprop(alpha=0)"),
    "policy": (
        "none", "full-balance", "fedeas(beta=12)", "fedeas(beta=9999)",
        "fedeas(beta=1e4, quality=0.01)",
    ),
    "batch": (2, 3, 16, 64), "epochs": (1, 3), "steps": (1, 20), "learning_rate": RATES,
    "weight_decay": (1e-300, 1.0), "round": (1, 2**31), "seed": (0, 2**62),
    "precision": ("bfloat16",), "experiment": ("", "x/../y"), "projection": (1, 8),
}  # fmt: skip
USUAL = ("method", "policy", "learning_rate")  # are always drawn
SENT = ("fresh", "zero", "largest", "peak 0", "peak 2")
# What no honest server sends; some of it is only unusual, and taken.
HOSTILE: dict[str, st.SearchStrategy[Any]] = {
    "policy": policies(),
    "method": st.sampled_from(
        ("fedgen", "os:system", "moon(mu=1e6)", "moon(tau=0)", "fedmix", "scaffold(server_rate=0)")
    ),
    "optimizer": st.sampled_from((
        "sgd(momentum=0.9, dampening=-1e6)", "muon", "sparseadam", "adam(capturable=true)",
        "adagrad(initial_accumulator_value=1e30)", "os:system",
    )),
    "name": st.sampled_from(("mlp(width=1e9)", "resnet18", "os:system")),
    "received": st.sampled_from(("fc.bias", "x")).map(lambda name: {name: torch.zeros(3)}),
    "shape": st.sampled_from(([8, 8, 3], [64], [3], [])),
    "std": st.sampled_from(([0.0], [1e-300], [1e-300] * 3, [float("nan")] * 3)),
    "classes": odd, "batch": odd, "epochs": odd, "steps": odd, "learning_rate": odd,
    "weight_decay": odd, "round": odd, "last": odd, "seed": odd, "threads": odd,
    "experiment": odd, "projection": odd, "precision": odd,
    "sent": st.sampled_from(("huge", "nan", "wide", "longer", "fewer")),
}  # fmt: skip


class Turn:
    """A training message: what it is, and how it is sent."""

    def __init__(self, kind: str = "image", sent: str = "fresh", **changed: Any) -> None:
        self.kind, self.sent, self.changed = kind, sent, changed

    def __repr__(self) -> str:
        return f"Turn({self.kind!r}, {self.sent!r}, **{self.changed})"

    @property
    def model(self) -> Any:
        """The model that the message is about, if there is such a one."""
        named = {k: v for k, v in self.changed.items() if k in ("name", "projection")}
        try:
            return model_of(self.kind, **named)
        except (FedeasError, TypeError, ValueError, RuntimeError, OverflowError):
            return model_of(self.kind)

    def content(self, **more: Any) -> RecordDict:
        return training(spoilt(self.sent, self.model), self.kind, **{**self.changed, **more})


def spoilt(kind: str, model: Any) -> dict[str, torch.Tensor]:
    """Weights of a model, some as no honest server sends them."""
    found = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    last = list(found)[-1]
    match kind.split():
        case ["zero"]:
            found = {name: torch.zeros_like(w) for name, w in found.items()}
        case ["largest"]:  # within the bound: training overflows
            found = {name: torch.full_like(w, 4096) for name, w in found.items()}
        case ["peak", label]:  # one class is certain: the others have no gradients
            found = {name: torch.zeros_like(w) for name, w in found.items()}
            found[last] -= 4000
            found[last][int(label)] = 4000
        case ["huge"]:
            found[last] = torch.full_like(found[last], 3e38)
        case ["nan"]:
            found[last][0] = torch.nan
        case ["wide"]:
            found[last] = found[last].double()
        case ["longer"]:
            found[last] = torch.zeros(7)
        case ["fewer"]:
            del found[last]
    return found


@st.composite
def turns(draw, kind: str = "") -> Turn:
    """A training message with sound settings, half of the time with a hostile one among them."""
    kind = kind or draw(st.sampled_from(("image", "table")))
    some = draw(st.lists(st.sampled_from(sorted(SOUND)), unique=True, max_size=3))
    changed = {name: draw(st.sampled_from(SOUND[name])) for name in dict.fromkeys((*USUAL, *some))}
    if changed.get("method") == "scaffold":  # it is for plain SGD
        changed = {k: v for k, v in changed.items() if k not in ("optimizer", "weight_decay")}
    changed["name"] = draw(st.sampled_from(MODELS[kind]))
    changed["sent"] = draw(st.sampled_from(SENT))
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(HOSTILE)))
        changed[name] = draw(HOSTILE[name])
    return Turn(kind, **changed)


def sample(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Draw the same examples every time."""
    found: list[Any] = []

    @seed(1)
    @settings(
        max_examples=count, database=None, phases=[Phase.generate], derandomize=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def note(drawn: Any) -> None:
        found.append(drawn)

    note()
    return found


@FEW
@given(turn=turns())
@example(turn=Turn(policy="full-balance"))
@example(turn=Turn("table", policy="full-balance"))
@example(turn=Turn(sent="largest", policy="fedeas(beta=12)", learning_rate=1.0))
@example(turn=Turn(sent="zero", method="fedlc(tau=1e5)"))
@example(turn=Turn("table", std=[1e-300] * 3, learning_rate=1.0))
def test_training_is_refused_alike(kinds, turn):
    equal(kinds[turn.kind], turn.content())


@pytest.mark.parametrize("kind", ["image", pytest.param("table", marks=pytest.mark.slow)])
def test_turns_are_mostly_sound(kinds, kind):
    """At least a third of what is drawn trains, with several methods, and some of it generates."""
    site, drawn = kinds[kind][0], sample(turns(kind), 24)
    trained, generated = Counter[str](), 0
    for turn in drawn:
        site.forget()
        if not site.send(turn.content(), "train").has_error():
            trained[turn.changed["method"]] += 1
            generated += (site.state / "cache").exists()
    assert len(drawn) / 3 <= trained.total() < len(drawn)
    assert len(trained) >= 3
    assert generated >= 3


def test_sound_training_is_not_refused(sites):
    """The control: the sites do train, so that equal refusals are not refusals of everything."""
    for policy in ("none", "full-balance", "fedeas(beta=12)"):
        assert not equal(sites, training(policy=policy))
    for method in ("moon", "scaffold", "class-weights", "fedlc"):
        assert not equal(sites, training(method=method, policy="full-balance"))


def test_sound_training_on_tables_is_not_refused(tables):
    for method in ("moon", "class-weights", "fedlc"):
        assert not equal(tables, training(kind="table", method=method, policy="full-balance"))
        assert TOUCHED  # looks at rows are noted too


# Several turns: what a site keeps of one follows from its samples, and the next starts from it.


KEEPING = ("moon(mu=1e5, tau=1e-5)", "scaffold")


@st.composite
def sequences(draw, kind: str = "", method: str = "") -> list[Turn]:
    """Two or three turns of a method with state, some with rates that end in NaN.

    The server may go back to an earlier state. Half of the time one setting is hostile.
    """
    kind = kind or draw(st.sampled_from(("image", "table")))
    same = {
        "method": method or draw(st.sampled_from(KEEPING)),
        "name": draw(st.sampled_from(MODELS[kind])),
        "policy": draw(st.sampled_from(("none", "full-balance"))),
    }
    made = []
    for number in range(1, 1 + draw(st.sampled_from((2, 3)))):
        last = draw(st.sampled_from((number - 1, number - 1, max(0, number - 2))))
        rate = draw(st.sampled_from(RATES))
        turn = Turn(kind, draw(st.sampled_from(SENT)), learning_rate=rate, **same)
        turn.changed |= {"round": number, "last": last, "epochs": draw(st.sampled_from((1, 3)))}
        if same["method"] == "scaffold":
            largest = draw(st.sampled_from((0.0, 1.0, 3e38)))  # the server's variate
            turn.changed["received"] = {
                name: torch.full_like(w, largest) for name, w in turn.model.named_parameters()
            }
        made.append(turn)
    if draw(st.booleans()):
        turn = draw(st.sampled_from(made))
        name, value = draw(st.sampled_from((
            ("last", 7), ("last", -1), ("policy", "fedeas(beta=5)"), ("experiment", "y"),
            ("method", "scaffold"), ("method", "moon"), ("name", MODELS[kind][1]), ("round", 1),
            ("projection", 8), ("learning_rate", 9.0), ("method", "fedavg"),
        )))  # fmt: skip
        turn.changed[name] = value
    return made


def seen_in_turn(sites: list[Site], asked: list[Turn]) -> list[bool]:
    """Send turns to all sites; return which of them all sites refuse."""
    contents, found = [turn.content() for turn in asked], []
    for site in sites:
        site.forget()
        found.append([site.seen(content, "train", again=True) for content in contents])
    first, *others = found
    assert others == [first] * len(others)
    for reason, touched, *_ in first:
        assert reason in (None, REFUSAL)
        assert not touched
    return [reason is not None for reason, *_ in first]


def diverging(kind: str, method: str, sent: str = "largest") -> list[Turn]:
    """Two turns of which the first keeps what is not finite."""
    return [
        Turn(kind, sent if number == 1 else "fresh", method=method, learning_rate=1.0,
             policy="full-balance", epochs=3, round=number, last=number - 1)
        for number in (1, 2)
    ]  # fmt: skip


@FEWER
@given(asked=sequences())
def test_turns_with_state_are_refused_alike(kinds, asked):
    seen_in_turn(kinds[asked[0].kind], asked)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("image", KEEPING[0]),
        ("table", KEEPING[1]),
        pytest.param("table", KEEPING[0], marks=pytest.mark.slow),
        pytest.param("image", KEEPING[1], marks=pytest.mark.slow),
    ],
)
def test_a_state_that_is_not_finite_is_no_reason_to_refuse(kinds, kind, method):
    """The samples made it so, perhaps only with one of them among the others."""
    assert seen_in_turn(kinds[kind], diverging(kind, method)) == [False] * 2
    for site in kinds[kind]:
        kept = [load_tensors(path)[0] for path in (site.state / "kept").glob("*/*.safetensors")]
        assert kept
        assert not all(torch.isfinite(t).all() for each in kept for t in each.values())


def test_hostile_second_turns_are_refused_alike(sites):
    for wrong in ({"last": 7}, {"policy": "fedeas(beta=5)"}, {"learning_rate": 9.0}):
        first, second = diverging("image", "scaffold")
        second.changed |= wrong
        assert seen_in_turn(sites[:2], [first, second]) == [False, True]


@pytest.mark.slow
def test_sequences_are_mostly_sound(kinds):
    """Of turns that start from a state, at least a third are taken, of both methods and kinds."""
    later, taken = 0, Counter[tuple[str, str]]()
    for kind, method in itertools.product(kinds, KEEPING):
        site = kinds[kind][0]
        for asked in sample(sequences(kind, method), 3):
            site.forget()
            for turn in asked:
                refused = site.send(turn.content(), "train").has_error()
                if turn.changed["last"]:
                    later += 1
                    taken[kind, method] += not refused
    assert taken.total() >= later / 3
    assert all(taken[each] for each in itertools.product(kinds, KEEPING)), taken


# Questions. Those about counts are asked of both kinds of sites.

COUNTS = ("class-totals",)
ASKED = {
    "image": (*COUNTS, *(q for q in sorted(QUERIES) if q.startswith(("image", "feat")))),
    "table": (*COUNTS, "column-counts", "row-moments"),
}
cuts = st.lists(
    st.sampled_from((-3e38, -1e308, -1.0, 0.0, 5e-324, 1.0, 30.0, 1e3, 2e9, 3e38, 1e308)),
    unique=True, max_size=5,
).map(sorted)  # fmt: skip


@st.composite
def sound_questions(draw, kind: str, name: str = "") -> dict[str, Any]:
    """A question that a site answers, whatever its samples are."""
    task, name = KIND[kind][0], name or draw(st.sampled_from(ASKED[kind]))
    asked: dict[str, Any] = {"query": name, "classes": task.classes}
    asked["rho"] = draw(st.sampled_from((1e-3, 1e-2, 0.1)))
    if name not in COUNTS:
        asked["shape"] = list(task.shape)
    if name in ("image-moments", "image-products"):
        asked["frequencies"] = draw(st.sampled_from((1, 2, 8)))
    elif name.startswith("feature"):
        size = feature_count(task.shape[2])
        asked["centre"] = [[draw(st.sampled_from((0, 2**40, -(2**40))))] * size] * task.classes
        asked["scale"] = [draw(st.sampled_from((1, 2**40)))] * size
    elif name == "column-counts":
        asked["cuts"] = [draw(cuts) for _ in range(3)]
    elif name == "row-moments":
        levels = [draw(st.sampled_from((0, 0, 1, 3, 50))) for _ in range(3)]
        own = [draw(cuts) for count in levels if not count]
        places, variances = st.sampled_from((0.0, -1e6, 1e-300, 1e6)), st.sampled_from((0.0, 1e6))
        asked |= {
            "levels": levels, "gaps": [draw(st.booleans()) for _ in levels], "cuts": own,
            "places": [[draw(places) for _ in range(len(each) + 1)] for each in own],
            "variances": [[draw(variances) for _ in range(len(each) + 1)] for each in own],
            "radius": draw(st.sampled_from((1.0, 2e-6, 9e5))),
            "number_radius": draw(st.sampled_from((1.0, 2e-6, 9e5))),
        }  # fmt: skip
    return asked


@st.composite
def queries(draw) -> tuple[str, dict[str, Any], int]:
    """A kind of site, a question, and how long its answer shall be; hostile half of the time."""
    kind = draw(st.sampled_from(("image", "table")))
    asked = draw(sound_questions(kind))
    words = length_of(asked)
    if not draw(st.booleans()):
        return kind, asked, words
    name = draw(st.sampled_from((*sorted(asked), "words", "more", "less", "other")))
    match name:
        case "words":
            return kind, asked, draw(st.sampled_from((words + 1, 4, 1, 0, -1, 10**9)))
        case "more":
            asked["frequencies"] = draw(odd)
        case "less":
            del asked[draw(st.sampled_from(sorted(asked)))]
        case "other":  # about data of the other kind
            asked = draw(sound_questions({"image": "table", "table": "image"}[kind]))
        case "query":
            asked["query"] = draw(st.sampled_from((*sorted(QUERIES), "train", "os:system")))
        case "rho":
            asked["rho"] = draw(st.sampled_from((0.0, 1e-300, 9e5, -1.0, 1, True, "x")))
        case "shape":
            others = ([8, 8, 3], [16, 16, 1], [64], [2], [3, 1], [0], [], [2**30] * 3)
            asked["shape"] = draw(st.sampled_from(others))
        case _ if isinstance(asked[name], list):
            nan = float("nan")
            some = (asked[name][:-1], [*asked[name], *asked[name][:1]], [], [nan], [[nan]] * 3)
            asked[name] = draw(st.sampled_from(some))
        case _:
            asked[name] = draw(odd)
    return kind, asked, length_of(asked)


@given(question=queries())
@example(question=("image", {"query": "class-totals", "classes": 4, "rho": 1e-3}, 4))
@example(question=("image", {"query": "class-totals", "classes": 3, "rho": 1e-3}, 3))
def test_queries_are_refused_alike(kinds, question):
    kind, asked, words = question
    content = keys(asked, words)
    first, *others = [site.seen(content, "query.secure_shares") for site in kinds[kind]]
    assert others == [first] * len(others)
    assert first[0] in (None, REFUSAL)
    # The number of words is compared with the answer's: only a sound question gets that far.
    assert not first[1] or words != length_of(asked)


@pytest.mark.parametrize("kind", ["image", "table"])
def test_sound_queries_are_answered_by_all_sites(kinds, kind):
    """The control: every query, with what settings it takes."""
    for name in ASKED[kind]:
        for asked in sample(sound_questions(kind, name), 3):
            content = keys(asked, length_of(asked))
            assert not equal(kinds[kind], content, "query.secure_shares"), asked
            assert TOUCHED


def test_queries_are_mostly_sound(kinds):
    """At least a third of what is drawn is answered, and of those of tables too."""
    drawn, answered, refused = sample(queries(), 150), Counter[str](), 0
    for kind, asked, words in drawn:
        site = kinds[kind][0]
        site.forget()
        if site.send(keys(asked, words), "query.secure_shares").has_error():
            refused += 1
        else:
            answered[asked["query"]] += 1
    assert answered.total() >= len(drawn) / 3
    assert refused >= len(drawn) / 10
    assert min(answered["column-counts"], answered["row-moments"]) >= 5
    assert len(answered) >= len(QUERIES) - 2


def test_a_whole_sum_leaves_the_same_at_all_sites(sites):
    """They are the members of one federation here, and go through all stages."""
    grid = InlineGrid(client_app(), len(sites))
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


@given(stage=st.sampled_from(("meet", "masked", "agree", "unmask")), content=st.binary())
def test_later_stages_of_a_sum_are_refused_alike(sites, stage, content):
    asked = {"query": "class-totals", "classes": 4, "rho": 1e-3}
    message = keys(asked, 4)
    message["secure-sum"]["content"] = content
    assert equal(sites, message, f"query.secure_{stage}")


@given(method=st.sampled_from((*METHODS, "fedgen", "os:system")), number=odd)
def test_introductions_are_answered_alike(sites, method, number):
    equal(sites, records.pack({}, {"method": method, "seed": number}), "query.hello")


@given(
    quality=st.sampled_from((1.0, 0.0, 1e-300, 2.0)),
    classes=st.sampled_from((CLASSES, ("a", "b"))),
    shape=st.sampled_from((SHAPE, (8, 8, 3))),
)
def test_generators_are_taken_alike(sites, tmp_path_factory, quality, classes, shape):
    folder = tmp_path_factory.mktemp("given")
    refused = equal(sites, generator(folder, quality, classes, shape), "query.private_generator")
    assert refused == (quality > 1 or classes != CLASSES or shape != SHAPE)
    if not refused:
        assert not equal(sites, training(policy="fedeas(beta=9999)"))


def test_samples_of_earlier_generators_are_removed(sites, tmp_path):
    """Every generator that a server gives has samples of its own, of up to `max-samples`."""
    site = sites[0]
    site.forget()
    for number in range(3):
        given = generator(tmp_path, seed=number)
        for each in sites:  # all of them have the same one afterwards
            assert not each.send(given, "query.private_generator").has_error()
        reply = site.send(training(policy="full-balance", experiment=str(number)), "train")
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
        return equal([by_counts[counts]], question(classes), "query.secure_shares")

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
    for label, some in enumerate([(1e-300, 3e-16, 3e-15, 1e-5, 1e-3), *[(3e-16, 1e-3)] * 3]):
        for s in some:
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
