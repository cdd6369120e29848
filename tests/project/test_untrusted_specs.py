"""What was read from a file, a message or a record runs no code: only its owner's text may.

A spec can be a dotted path with settings, that is, a call of any function. Every record that is
read here gets one in the place of each of its strings, one after the other.
"""

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import fedeas
from fedeas import FedEAS, FedeasError, FullBalance, LabelCounts, Plan
from fedeas._internal.files import content_hash, read_json
from fedeas._internal.files import write_json as write_sealed
from fedeas._internal.specs import Registry
from fedeas.cache import Cache
from fedeas.cache.fill import fill
from fedeas.data import Dataset
from fedeas.generators import find_resampler, make_generator
from fedeas.generators import protocol as generators
from fedeas.generators.card import GeneratorCard
from fedeas.lab.config import Config
from fedeas.lab.experiment import run
from fedeas.lab.report.samples import folder_sections, run_samples
from fedeas.lab.resolve import open_data
from fedeas.lab.results import find_runs
from fedeas.planning import policies
from fedeas.private.generator.make import open_private
from fedeas.private.queries import read_query
from fedeas.train.diffusion.judge import Judge
from fedeas.train.diffusion.sample import Diffusion
from fedeas.train.flower.deployed import row_policy
from fedeas.train.flower.deployment import SiteConfig
from fedeas.train.flower.site import check_method
from fedeas.train.loop import find_optimizer
from fedeas.train.methods import METHODS, make_method
from fedeas.train.models import MODELS, make_model
from fedeas.train.models.unet import UNetConfig
from fedeas.train.samples import Task
from fedeas.train.settings import Local, ModelSettings
from fedeas.train.tensors import load_tensors, save_tensors
from helpers.image_sets import shapes
from helpers.noted_generators import Counting
from helpers.table_runs import loans_config

SOURCES = Path(__file__).parents[2] / "src"
REGISTRIES = (policies._REGISTRY, generators._REGISTRY, METHODS, MODELS)
OBEYING = (
    "make_policy", "make_generator", "open_generator", "find_resampler", "make_model",
    "import_object",
)  # fmt: skip


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    return loans_config(tmp_path)


@pytest.fixture
def mark(tmp_path) -> Path:
    return tmp_path / "code-ran"


@pytest.fixture
def spec(mark) -> str:
    return f'subprocess:getoutput(cmd="touch {mark}")'


def with_each_string_replaced(value: object, spec: str) -> Iterator[object]:
    """Yield a JSON value once for each string in it, which is a spec instead."""
    if isinstance(value, str):
        yield spec
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: other} for other in with_each_string_replaced(part, spec))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            for other in with_each_string_replaced(part, spec):
                yield [*value[:place], other, *value[place + 1 :]]


def attempts(
    path: Path, spec: str, read: Callable[[], object], write: Callable[[Path, object], object]
) -> Iterator[str]:
    """Write a JSON file with a spec in every place, and read it; yield what came of it."""
    before = path.read_bytes()
    body = read_json(path) if write is write_sealed else json.loads(before)
    for changed in with_each_string_replaced(body, spec):
        write(path, changed)
        try:
            read()
        except FedeasError as error:
            yield str(error)
        else:
            yield "read"
    path.write_bytes(before)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_card(path: Path, body: dict) -> None:
    """Write a card with a true checksum."""
    content = {name: part for name, part in body.items() if name != "sha256"}
    write_json(path, {**content, "sha256": content_hash(content)})


def test_the_spec_runs_code_where_its_owner_wrote_it(mark, spec):
    """The control: what everything below is given does leave its mark."""
    with pytest.raises(FedeasError, match="is not a policy"):
        fedeas.make_policy(spec)
    assert mark.exists()


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda each: each.kind)
def test_a_registry_obeys_a_dotted_path_of_the_owner_alone(registry, mark, spec):
    with pytest.raises(FedeasError, match="dotted path"):
        registry.make(spec, {}, by_owner=False)
    with pytest.raises(FedeasError, match="dotted path"):
        registry.parameters("subprocess:getoutput", by_owner=False)
    assert not mark.exists()
    registry.make(spec, {}, by_owner=True)
    assert mark.exists()


def test_no_registry_is_forgotten():
    written = sum(path.read_text().count(" Registry(") for path in SOURCES.rglob("*.py"))
    assert written == len(REGISTRIES)
    assert all(isinstance(each, Registry) for each in REGISTRIES)


def obeying_calls() -> Iterator[str]:
    """Yield the functions, as module:name, that call what obeys a dotted path without refusing."""
    for path in SOURCES.rglob("*.py"):
        module = "/".join(path.relative_to(SOURCES).parts).removesuffix(".py")
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Call):
                    continue
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                asked = {k.arg: ast.unparse(k.value) for k in node.keywords}
                if called in OBEYING and asked.get("by_owner") != "False":
                    yield f"{module}:{function.name}"


def test_whoever_obeys_a_dotted_path_is_listed():
    """A new caller says `by_owner=False`, or is looked at and listed: whose text does it take?"""
    assert set(obeying_calls()) == {
        # the registries themselves
        "fedeas/_internal/specs:_import", "fedeas/generators/protocol:open_generator",
        # the command line
        "fedeas/cli/fill:fill", "fedeas/cli/generator_sample:open",
        # arguments of public functions
        "fedeas/augmentation/sampler:_fit_resample",
        "fedeas/augmentation/tables:augment_table", "fedeas/cache/client_samples:_generator",
        "fedeas/cache/client_samples:draw", "fedeas/cache/client_samples:open_cache",
        "fedeas/cache/client_samples:known_classes",
        "fedeas/cache/fill:_writer", "fedeas/cache/workers:open",
        "fedeas/train/diffusion/sample:save_federated_model",
        "fedeas/planning/planner:choose_policy",
        "fedeas/planning/comparison:_make", "fedeas/train/simulate:simulate",
        "fedeas/private/generator/start:write",
        # a config of one's own: of a run, a sweep, a simulation, a server, a site
        "fedeas/train/flower/deployed:_augmented", "fedeas/train/flower/rounds:__post_init__",
        "fedeas/train/flower/server:_measure", "fedeas/train/flower/simulated:generator",
        "fedeas/train/flower/site_check:try_generator", "fedeas/lab/estimate:_time_evaluation",
        "fedeas/lab/estimate:_time_training", "fedeas/lab/resolve:_open_generator",
        "fedeas/lab/resolve:local_steps", "fedeas/lab/resolve:plan_config",
        "fedeas/lab/resolve:resolve", "fedeas/lab/sweep:make_cells", "fedeas/lab/sweep:with_total",
        # a turn at a client: by_owner is whether it is simulated
        "fedeas/train/flower/client:_model",
        # the default model of a kind of data, by its name
        "fedeas/train/diffusion/judge:accuracy_on_real",
    }  # fmt: skip


# What a file says


def test_a_judges_file_runs_nothing(tmp_path, mark, spec):
    data, store = shapes(tmp_path / "shapes"), tmp_path / "store"
    judge = Judge.of(data, store)
    (path,) = (store / "judges").iterdir()
    tensors, about = load_tensors(path)
    for changed in with_each_string_replaced(about, spec):
        save_tensors(path, tensors, changed)
        with pytest.raises(FedeasError):  # or a judge that another spelling of a class makes none
            assert Judge.load(path).about == changed
            raise FedeasError("read, and nothing was run")
        assert not mark.exists()
    for model in (spec, "subprocess:getoutput", "resnet18(weights=/etc/passwd)"):
        save_tensors(path, tensors, {**about, "model": model})
        with pytest.raises(FedeasError, match="is not a judge"):
            Judge.load(path)
        # A store in which somebody else can write: the judge is trained anew.
        again = Judge.of(data, store)
        assert again.about["model"] == judge.about["model"]
        assert not mark.exists()


def test_a_judges_file_that_claims_a_huge_model_takes_no_memory(tmp_path, monkeypatch):
    data = shapes(tmp_path / "shapes")
    judge, path = Judge.train(data, epochs=1), tmp_path / "judge.safetensors"
    made_on = []

    def noted(*arguments: object, **more: object) -> object:
        made_on.append(torch.get_default_device().type)
        return make_model(*arguments, **more)

    monkeypatch.setattr("fedeas.train.diffusion.judge.make_model", noted)
    save_tensors(path, judge.model.state_dict(), {**judge.about, "shape": [2**10, 2**10, 1]})
    with pytest.raises(FedeasError, match="is not a judge"):
        Judge.load(path)
    assert made_on == ["meta"]
    judge.save(path)
    assert Judge.load(path).classes == judge.classes


@pytest.mark.parametrize("changed", [
    {"seed": float("inf")}, {"shape": [8, 8]}, {"mean": []}, {"std": [1.0, 1.0]}, {"kind": "table"},
    {"classes": 3}, {"classes": []},
])  # fmt: skip
def test_a_damaged_judge_is_trained_anew(tmp_path, changed):
    data, store = shapes(tmp_path / "shapes"), tmp_path / "store"
    judge = Judge.of(data, store)
    (path,) = (store / "judges").iterdir()
    save_tensors(path, judge.model.state_dict(), {**judge.about, **changed})
    with pytest.raises(FedeasError, match="is not a judge"):
        Judge.load(path)
    assert Judge.of(data, store).about == judge.about


@pytest.mark.parametrize("design", [
    {"channels": [65536, 65536], "layers": 4, "attention": [False, False]},
    {"channels": [8, 8], "layers": 10**9, "attention": [False, False]},
    {"channels": [8] * 10**4, "layers": 1, "attention": [False] * 10**4},
    {"channels": [8, 8], "layers": 1, "attention": [False, False], "patch": 10**6},
    {"channels": [8, 8], "layers": 1, "attention": [False, False], "timesteps": 10**12},
    {"channels": [8, 8], "layers": 1, "attention": [False, False], "prediction": None},
    {"channels": [8, 8], "layers": 1, "attention": [False, False], "schedule": None},
    {"channels": [1024] * 6, "layers": 8, "attention": [True] * 6},
])  # fmt: skip
def test_a_card_that_claims_a_huge_network_takes_no_memory(tmp_path, monkeypatch, design):
    """The last one is within the bounds; the file of weights has to be as large as it claims."""
    GeneratorCard("diffusion", ("a", "b"), (8, 8, 1), {"design": design}).save(tmp_path)
    (tmp_path / "unet").mkdir()
    weights = tmp_path / "unet" / "diffusion_pytorch_model.safetensors"
    save_tensors(weights, {"conv_in.weight": torch.zeros(8, 1, 3, 3)}, {})
    made_on, network = [], UNetConfig.network

    def noted(*arguments: object) -> object:
        made_on.append(torch.get_default_device().type)
        return network(*arguments)

    monkeypatch.setattr(UNetConfig, "network", noted)
    with pytest.raises(FedeasError):
        Diffusion.load(tmp_path)
    assert set(made_on) <= {"meta"}


def test_cards_and_records_run_nothing(tmp_path, mark, spec):
    made, said = 0, []
    counts = LabelCounts([[9, 0], [1, 8]], ("north", "south"), ("cat", "dog"))
    counts.save(tmp_path / "counts.json")
    FedEAS(beta=12).plan(counts).save(tmp_path / "plan.json")
    data = shapes(tmp_path / "shapes")
    card = GeneratorCard("private", data.classes, (8, 8, 1), {"design": {}, "model": spec}, spec)
    card.save(tmp_path)
    readers = (
        (tmp_path / "counts.json", lambda: LabelCounts.load(tmp_path / "counts.json"), write_json),
        (tmp_path / "plan.json", lambda: Plan.load(tmp_path / "plan.json"), write_json),
        (tmp_path / "shapes" / "meta.json", lambda: Dataset.open(tmp_path / "shapes"), write_json),
        (tmp_path / "generator.json", lambda: open_private(str(tmp_path)), write_card),
        (tmp_path / "generator.json", lambda: Diffusion.load(tmp_path), write_card),
        (tmp_path / "generator.json", lambda: make_generator(f"private(model={tmp_path})"),
         write_card),
    )  # fmt: skip
    for path, read, write in readers:
        for outcome in attempts(path, spec, read, write):
            said.append(outcome)
            made += 1
            assert not mark.exists(), (path, outcome)
    assert made > 40
    assert not any("cannot import" in outcome for outcome in said)


def test_tables_and_caches_with_specs_as_names_run_nothing(tmp_path, mark, spec):
    quoted = spec.replace('"', '""')
    path = tmp_path / "counts.csv"
    path.write_text(f'client,"{quoted}",b\n"{quoted}",3,4\nsubprocess:getoutput,5,6\n')
    counts = LabelCounts.load(path)
    plan = FullBalance().plan(counts)
    for name in ("plan.json", "plan.parquet"):
        plan.save(tmp_path / name)
        assert Plan.load(tmp_path / name).class_names[0] == spec
    generator = Counting()
    generator.fingerprint = spec
    cache = Cache(tmp_path / "cache", generator, counts.class_names)
    fill(plan, generator, cache, 3)
    assert Cache.at(cache.folder).origin["generator"] == spec
    assert not mark.exists()


def test_a_runs_folder_runs_nothing(config, tmp_path, monkeypatch, mark, spec):
    """Its config names a generator of the clients' own rows, which a report makes again."""
    folder = tmp_path / "run"
    run(config.replace(augment=config.augment.replace(generator="copies")), folder)
    known = run_samples(folder)

    def read() -> None:
        assert run_samples(folder).drawn.labels.size == known.drawn.labels.size

    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass X:\n    pass\n")
    for text in (spec, "evil:X"):
        outcomes = list(attempts(folder / "config.json", text, read, write_sealed))
        assert any("dotted path" in outcome for outcome in outcomes)
        outcomes += attempts(folder / "result.json", text, read, write_sealed)
        for name in ("plan.json", "schema.json"):
            outcomes += attempts(folder / name, text, read, write_json)
        assert len(outcomes) > 50
        assert not mark.exists()
        record = read_json(folder / "config.json")
        record["config"]["augment"]["generator"] = text
        write_sealed(folder / "config.json", record)
        name, runs, _ = find_runs(folder)
        assert list(folder_sections(name, runs))
        assert not mark.exists()
    with pytest.raises(FedeasError, match="dotted path"):
        find_resampler("evil:X", by_owner=False)


def test_a_run_with_an_own_generator_is_measured_from_its_cache(config, tmp_path, monkeypatch):
    """The path is not imported again: its samples are in the cache."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_rows.py").write_text(
        "import numpy as np\n\nclass Zeros:\n    fingerprint = 'zeros'\n\n"
        "    def sample(self, labels, seeds):\n"
        f"        return np.zeros((len(labels), {len(open_data(config).schema)}), np.float32)\n"
    )
    own = config.replace(augment=config.augment.replace(generator="own_rows:Zeros"))
    run(own, tmp_path / "run")
    (tmp_path / "own_rows.py").write_text("raise SystemExit('imported again')\n")
    assert not run_samples(tmp_path / "run").drawn.samples.any()


# What a message says


def test_a_target_that_a_server_names_opens_no_file(tmp_path):
    """What a client refuses goes back to the server, with the value that was wrong."""
    secret = tmp_path / "wards.csv"
    secret.write_text("patient,finding\n4711,HIV positive\n")
    images, labels = np.zeros((100, 8, 8), np.uint8), np.repeat([0, 1], [90, 10])

    def refusal(target: object) -> str:
        with pytest.raises(FedeasError) as refused:
            fedeas.augment(
                images, labels=labels, generator="copies", classes=("cat", "dog"), client="n",
                cache=tmp_path / "cache", beta=8, target=target,
            )  # fmt: skip
        return str(refused.value)

    assert "HIV" not in refusal(str(secret))
    assert refusal(str(secret)).replace(str(secret), "") == refusal(f"{secret}.gone").replace(
        f"{secret}.gone", ""
    )
    assert "HIV" in refusal(secret)  # the control: the owner's own code names a file


def test_a_site_runs_nothing_that_a_server_names(mark, spec):
    site = SiteConfig(partition_id=0, classes="a,b", data="x", state="y")
    task = Task(2, (8, 8, 1), (0.0,), (1.0,))
    asked: tuple[Callable[[str], object], ...] = (
        row_policy,
        make_method,
        lambda text: check_method(text, site.methods.split()),
        lambda text: make_model(ModelSettings(text), task, 0, by_owner=False),
        lambda text: find_optimizer(Local(optimizer=text)),
        lambda text: read_query({"query": text, "classes": 2}),
    )
    for text in (spec, "subprocess:getoutput", f"{spec} ", "os:system", "evil.mod:Name"):
        for ask in asked:
            with pytest.raises(FedeasError):
                ask(text)
            assert not mark.exists()
