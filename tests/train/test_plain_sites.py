"""Real sites without the private wing: plain training, and what is refused by naming the wing."""

import subprocess
import sys

import pytest
from flwr.app import Context, Message, RecordDict

from fedeas import InfeasibleError, InputError
from fedeas._internal.settings import read_settings
from fedeas.private.flower import run_server as run_private
from fedeas.private.flower import site_config as private
from fedeas.train.flower import client_app, run_server
from fedeas.train.flower import deployment as settings
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.deployed import REFUSAL, RefusalLog, open_site
from helpers.deployed_sites import NAMES, app_of
from helpers.deployed_sites import settings as run_settings
from helpers.hostile_replies import equal

WITHOUT_WINGS = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(("fedeas.private", "fedeas.lab")))
import fedeas.train.flower
for module in pkgutil.iter_modules(fedeas.train.flower.__path__):
    importlib.import_module(f"fedeas.train.flower.{module.name}")
fedeas.train.flower.client_app()
"""


def plain_settings(sites, out, **changed):
    given = run_settings(sites, out, **changed)
    return {name: value for name, value in given.items() if name not in settings.PRIVATE_KEYS}


def plain_config(sites, state, k, **changed):
    data, folder = str(sites / str(k) / "data"), str(state / str(k))
    return settings.SiteConfig(
        k, NAMES, data, folder, "helpers.small_federations:Shapes", device="cpu"
    ).replace(**changed)  # fmt: skip


def test_the_core_needs_no_wing():
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT_WINGS], check=True)


def test_a_plain_federation_ends_with_the_model_of_one_that_could_have_added_up(sites, tmp_path):
    app = make_client_app(
        lambda context: open_site(
            plain_config(sites, tmp_path / "p", context.node_config["partition-id"])
        )
    )
    plain = run_server(InlineGrid(app, 4), plain_settings(sites, tmp_path / "a"))
    grid = InlineGrid(app_of(sites, tmp_path / "s"), 4)
    assert equal(plain.weights, run_private(grid, run_settings(sites, tmp_path / "b")).weights)


def added(kind: type, base: type) -> set[str]:
    names = set(kind.__struct_fields__) - set(base.__struct_fields__)
    return {name.replace("_", "-") for name in names}


def test_the_core_knows_which_settings_are_the_wings():
    of_run = added(private.RunConfig, settings.RunConfig)
    assert of_run | added(private.SiteConfig, settings.SiteConfig) == set(settings.PRIVATE_KEYS)


@pytest.mark.parametrize("key", sorted(settings.PRIVATE_KEYS))
def test_settings_of_the_wing_are_refused_by_its_name(sites, tmp_path, key):
    with pytest.raises(InputError, match=rf"{key}.*fedeas\[private\]"):
        run_server(InlineGrid(client_app(), 1), {**plain_settings(sites, tmp_path), key: ""})
    node = {**plain_config(sites, tmp_path, 0).to_dict(), key: ""}
    with pytest.raises(InputError, match=rf"{key}.*fedeas\[private\]"):
        read_settings(settings.SiteConfig, node, "a site")


def test_a_plain_site_that_says_what_it_allows_trains_for_nobody(sites, tmp_path, caplog):
    """An owner who means to let only sums leave must not be misunderstood."""
    grid = InlineGrid(client_app(), 4)
    for k, context in enumerate(grid._contexts.values()):
        node = {**plain_config(sites, tmp_path, k).to_dict(), "allow": ""}
        grid._contexts[context.node_id] = Context(
            1, context.node_id, node, RecordDict(), {"classes": NAMES}
        )
    with pytest.raises(InfeasibleError, match=REFUSAL):
        run_server(grid, plain_settings(sites, tmp_path / "run"))
    assert "fedeas[private]" in caplog.text


@pytest.mark.parametrize("kind", ["query.nobody", "evaluate", "train.other"])
def test_a_message_that_nobody_handles_is_refused_in_the_same_words(sites, tmp_path, kind):
    grid = InlineGrid(client_app(), 1)
    (node,) = grid.get_node_ids()
    config = plain_config(sites, tmp_path, 0)
    grid._contexts[node] = Context(1, node, config.to_dict(), RecordDict(), {"classes": NAMES})
    (reply,) = grid.send_and_receive([Message(RecordDict(), node, kind)])
    assert reply.error.reason == REFUSAL
    assert len(RefusalLog(tmp_path / "0" / "refusals")._recent()) == 1


@pytest.mark.parametrize("key", ["epsilon", "secure"])
def test_a_run_that_asks_for_private_training_is_refused(sites, tmp_path, key):
    given = {**run_settings(sites, tmp_path), key: 1.0}
    with pytest.raises(InputError, match=key):
        run_private(InlineGrid(client_app(), 1), given)
