"""Settings: declared once, and strict however they are made."""

import json
from pathlib import Path

import msgspec
import pytest

from fedeas import InputError
from fedeas._internal.settings import Settings, fields_of, read_settings
from fedeas.lab.config import Config, Data
from fedeas.lab.sweep import GridConfig
from fedeas.private.flower.site_config import RunConfig, SiteConfig
from fedeas.train.flower.deployment import Deployment
from fedeas.train.settings import Federated, Local, ModelSettings

ROOT = Path(__file__).parents[2]


FLAT = {"out": "a", "test-data": "b", "classes": "cat, dog", "sites": 3}


# What a run is known by


def test_where_and_how_fast_is_no_part_of_a_name():
    def others(kind: type[Settings]) -> set[str]:
        named = set(kind(**least[kind]).identity())
        return {f.name for f in fields_of(kind) if f.name not in named}

    least = {Config: {"data": Data("x")}, Data: {"name": "x"}, Federated: {}, Local: {}}
    least[RunConfig] = {key.replace("-", "_"): value for key, value in FLAT.items()}
    assert others(Config) == {"backend", "device"}
    assert others(Data) == {"folder", "schema"}
    assert others(Federated) == {"timeout", "max_in_flight"}
    assert others(Local) == set()
    # A deployed run goes on with more rounds, and with fewer sites than it began with.
    assert others(RunConfig) == {
        "out", "test_data", "policy", "rounds", "min_reply_fraction", "timeout",
        "max_in_flight", "device", "members", "schema", "label", "prior_epsilon",
        "generator_epsilon", "generator_classifier",
    }  # fmt: skip


# Declared once


@pytest.mark.parametrize("kind", [Federated, Local])
def test_a_deployed_run_declares_what_a_simulated_one_does(kind):
    """Names, types, ranges and defaults; by default a deployment asks all of its sites."""
    own, other = ({f.name: f for f in fields_of(k)} for k in (RunConfig, kind))
    shared = own.keys() & other.keys() - {"model"}
    assert len(shared) >= 3
    for name in shared - {"rounds"}:  # a deployed run may have none
        assert ranges(own[name].type) == ranges(other[name].type)
        assert own[name].default == other[name].default or name in (
            "fraction",
            "min_reply_fraction",
        )
    assert RunConfig(**{k.replace("-", "_"): v for k, v in FLAT.items()}).federated() == Federated(
        fraction=1.0, min_reply_fraction=0.5
    )


def ranges(hint: object) -> tuple[object, ...]:
    held = (m for m in getattr(hint, "__metadata__", ()) if m.extra is None)
    return (getattr(hint, "__origin__", hint), *held)


# What is wrong


GOOD = {"data": {"name": "cifar10"}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"federated": {"local": {"epochs": 0}}}, "c.toml: federated.local.epochs is out of range; "
         "got 0; allowed: a whole number from 1"),
        ({"federated": {"local": {"epoch": 1}}}, "c.toml: federated.local has no setting 'epoch'; "
         "allowed: epochs, batch, learning_rate, momentum, weight_decay, precision, compile, "
         "optimizer, steps; did you mean 'epochs'?"),
        ({"federated": {"fraction": "all"}}, "c.toml: federated.fraction has the wrong type; "
         "got 'all'; allowed: a number above 0, up to 1"),
        ({"federated": {"local": {"precision": "bfloat"}}}, "c.toml: federated.local.precision is "
         "not valid; got 'bfloat'; allowed: float32 or bfloat16; did you mean 'bfloat16'?"),
        ({"federated": {"method": "moon", "local": {"compile": True}}}, "c.toml: federated: only a "
         "plain loss can be compiled; got 'moon'; allowed: fedavg, fedprox, scaffold"),
        ({"partition": {"alpha": float("nan")}}, "c.toml: partition.alpha is out of range; "
         "got nan; allowed: a number above 0"),
        ({"partition": {"clients": 2.5}}, "c.toml: partition.clients has the wrong type; got 2.5; "
         "allowed: a whole number from 1"),
        ({"seed": True}, "c.toml: seed has the wrong type; got True; allowed: a whole number"),
        ({"federated": 3}, "c.toml: federated is not a table; got 3"),
        ({"data": {}}, "c.toml: data lacks 'name'; allowed: name, folder, split, pool_per_class"),
        ({"federated": {"timeout": 10**400}}, "c.toml: federated.timeout has the wrong type"),
        ({3: 3}, "c.toml has no setting 3"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_and_what_is_allowed(given, message):
    with pytest.raises(InputError) as caught:
        read_settings(Config, GOOD | given, "c.toml")
    assert str(caught.value).startswith(message)
    assert "Expected" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Federated, {"rounds": 0}, "rounds is out of range; got 0"),
        (Local, {"batch": 1}, "batch is out of range; got 1; allowed: a whole number from 2"),
        (Data, {"name": 3}, "name has the wrong type; got 3; allowed: text"),
        (ModelSettings, {"projection": -1}, "projection is out of range"),
        (Deployment, {"sites": 2, "policy": "none", "max_weight_ratio": 0.5}, "max-weight-ratio"),
        (Deployment, {"sites": 0, "policy": "none"}, "sites is out of range"),
        (GridConfig, {"name": "../up"}, "name is not valid; got '../up'; allowed: letters, digits"),
        (GridConfig, {"name": "a\n"}, "name is not valid"),
    ],
)
def test_settings_made_in_python_are_checked_too(kind, given, message):
    with pytest.raises(InputError, match=f"^{message}"):
        kind(**given)


def test_changed_settings_are_checked_and_whole_numbers_become_floats_as_in_a_file():
    config = Config(Data("cifar10"))
    with pytest.raises(InputError, match="rounds has the wrong type"):
        config.federated.replace(rounds="many")
    once = config.replace(federated=Federated(fraction=1))
    same = read_settings(Config, GOOD | {"federated": {"fraction": 1}})
    assert once == same
    assert json.dumps(once.identity()) == json.dumps(same.identity())
    assert json.dumps(once.identity()["federated"]["fraction"]) == "1.0"


def test_a_file_holds_what_settings_say(tmp_path):
    config = Config(Data("cifar10"), federated=Federated(rounds=3))
    assert read_settings(Config, json.loads(json.dumps(config.to_dict()))) == config
    path = tmp_path / "site.toml"
    path.write_text('partition-id = 1\nclasses = "a, b"\ndata = "d"\nstate = "s"\n')
    assert read_settings(SiteConfig, path) == SiteConfig(1, "a, b", "d", "s")
    path.write_text("partition_id = 1")
    with pytest.raises(InputError, match=r"site.toml has no setting 'partition_id'.*partition-id"):
        read_settings(SiteConfig, path)


def test_all_settings_are_frozen_and_strict():
    kinds = [Settings]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 10
    for kind in kinds:
        assert kind.__struct_config__.frozen
        assert kind.__struct_config__.forbid_unknown_fields
    with pytest.raises((AttributeError, msgspec.ValidationError)):
        Federated().rounds = 3  # type: ignore[misc]
