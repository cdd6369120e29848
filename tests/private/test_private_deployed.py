"""The federation's own generator at real sites: made from their sum, given to them, paid for."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedeas import FedEAS, InfeasibleError, InputError
from fedeas._internal.files import content_hash, read_json, write_json
from fedeas.cache import verify
from fedeas.cache.store import caches
from fedeas.generators import make_generator
from fedeas.generators.card import CARD
from fedeas.planning.named_values import planned_quality
from fedeas.private.accounting import DELTA
from fedeas.private.flower import run_server
from fedeas.private.flower.deployed import open_site
from fedeas.private.flower.handover import RECORD, take_generator, taken_generator
from fedeas.private.flower.site_config import NOISY_SUMS
from fedeas.private.generator import images, make
from fedeas.private.generator.card import WEIGHTS
from fedeas.private.generator.make import CLASSIFIER_FOLDER, REQUEST
from fedeas.private.ledger import Ledger
from fedeas.private.queries.moments import ImageMoments
from fedeas.private.secure_sum.identity import Members
from fedeas.train.flower.deployed import REFUSAL
from helpers.deployed_sites import COUNTS, config, settings
from helpers.image_sets import CLASSES
from helpers.private_sites import GIVEN, RealSites, SitesWithTables
from helpers.table_sets import CLASSES as LEVELS
from helpers.table_sets import SCHEMA


@pytest.fixture(scope="module")
def made(tmp_path_factory, sites):
    """A run whose sites have no other generator than the one they make together."""
    folder = tmp_path_factory.mktemp("own")
    grid = RealSites(sites, folder, generator="private")
    run_server(grid, settings(sites, folder / "run", **GIVEN))
    return folder


def test_sites_make_a_generator_together_and_train_with_it(made, sites):
    card = json.loads((made / "run" / "private-generator" / CARD).read_text())
    privacy = card["privacy"]
    assert (privacy["epsilon"], privacy["delta"]) == (20.0, DELTA)
    assert (card["training"]["sites"], tuple(card["classes"])) == (4, CLASSES)
    assert 20 < privacy["epsilon_replaced"] < 80
    assert "samples that the sites state" in card["notes"]["checked"]
    given = make_generator(f"private(model={made / 'run' / 'private-generator'})")
    for k in range(len(COUNTS)):
        mine = config(sites, made, k, generator="private")
        own = make_generator(taken_generator(Path(mine.state) / "generator"))
        assert own.fingerprint == given.fingerprint
        # Samples are worth less than real ones, and so fewer of them are made.
        wanted = FedEAS(beta=12, quality=planned_quality(card["quality"])).local(COUNTS[k])
        made_here = list(caches(mine.cache_folder))
        assert bool(made_here) == wanted.any()
        assert not any(list(verify(cache)) for cache in made_here)
        drawn = open_site(mine).samples("fedeas(beta=12)").synthetic_labels
        assert np.bincount(drawn, minlength=3).tolist() == wanted.tolist()
        ledger = Ledger.open(mine.ledger_folder, 30.0, mine.delta)
        assert [entry.query for entry in ledger.entries] == ["image-moments", "image-products"]
        assert 15 < ledger.epsilon_spent <= 20 + 1e-9


def test_sites_that_do_not_train_make_a_generator_and_a_classifier(sites, tmp_path):
    """Noisy sums are all that leaves a site with members by default."""
    grid = RealSites(sites, tmp_path, generator="private", allow=NOISY_SUMS, epsilon=300.0)
    more = {"generator-epsilon": 200.0, "generator-classifier": True, "rounds": 0}
    given = GIVEN | more
    assert run_server(grid, settings(sites, tmp_path / "run", **given)).history == []
    own = tmp_path / "run" / "private-generator"
    assert (own / CARD).exists() and (own / CLASSIFIER_FOLDER / CARD).exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()
    given_to = config(sites, tmp_path, 0, generator="private", allow=NOISY_SUMS)
    taken = make_generator(taken_generator(Path(given_to.state) / "generator"))
    assert taken.fingerprint == make_generator(f"private(model={own})").fingerprint
    with pytest.raises(InfeasibleError, match=REFUSAL):
        run_server(grid, settings(sites, tmp_path / "run", **given | {"rounds": 1}))
    with pytest.raises(InputError, match="generator-epsilon"):
        run_server(grid, settings(sites, tmp_path / "other", rounds=0))
    for unused in ({"policy": "fedeas(beta=4, target=federation)"}, {"generator-start": True}):
        with pytest.raises(InputError, match="no use for"):  # before anything is spent
            run_server(grid, settings(sites, tmp_path / "other", **more, **unused))


def test_a_run_that_goes_on_asks_for_no_second_sum(made, sites):
    grid = RealSites(sites, made, generator="private")
    before = (made / "run" / "private-generator" / WEIGHTS).read_bytes()
    run_server(grid, settings(sites, made / "run", **GIVEN | {"rounds": 2}))
    assert (made / "run" / "private-generator" / WEIGHTS).read_bytes() == before
    mine = config(sites, made, 0, generator="private")
    assert len(Ledger.open(mine.ledger_folder, 30.0, mine.delta).entries) == 2


def test_a_server_that_is_upgraded_between_rounds_asks_for_no_second_sum(made, sites):
    """What was paid for is the same, whichever version of the code made a generator of it."""
    path = made / "run" / "private-generator" / REQUEST
    write_json(path, {"version": 1, **read_json(path)})
    grid = RealSites(sites, made, generator="private")
    run_server(grid, settings(sites, made / "run", **GIVEN | {"rounds": 3}))
    mine = config(sites, made, 0, generator="private")
    assert len(Ledger.open(mine.ledger_folder, 30.0, mine.delta).entries) == 2


@pytest.mark.parametrize("changed", [{"generator-epsilon": 10.0}, {"members": "other"}])
def test_a_folder_is_of_what_was_paid_for(made, sites, tmp_path, changed):
    """A run that asks for something else is refused, instead of stating what it did not pay."""
    folder = made / "run" / "private-generator"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if "members" in changed:  # the same sites under another name are another list
        other = tmp_path / "members.toml"
        listed = Members.load(settings(sites, made / "run")["members"])
        renamed = dataclasses.replace(listed, names=tuple(f"new {name}" for name in listed.names))
        other.write_text(renamed.to_toml(), encoding="utf-8")
        changed = {"members": str(other)}
    grid = RealSites(sites, made, generator="private")
    with pytest.raises(InputError, match="another request") as refused:
        run_server(grid, settings(sites, made / "run", **GIVEN | changed))
    if "generator-epsilon" in changed:
        assert "10.0" in str(refused.value)
        assert "20.0" in str(refused.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    mine = config(sites, made, 0, generator="private")
    assert len(Ledger.open(mine.ledger_folder, 30.0, mine.delta).entries) == 2


def test_the_card_counts_a_sum_that_a_server_lost(sites, tmp_path, monkeypatch):
    """It died after the sites had paid and before it kept the answer: they pay twice."""

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    grid = RealSites(sites, tmp_path, generator="private")
    given = settings(sites, tmp_path / "run", **GIVEN | {"generator-epsilon": 5.0})
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(make, "save_tensors", dies)
        run_server(grid, given)
    run_server(RealSites(sites, tmp_path, generator="private"), given)
    mine = config(sites, tmp_path, 0, generator="private")
    ledger = Ledger.open(mine.ledger_folder, 30.0, mine.delta)
    asked = [entry.query for entry in ledger.entries]
    assert asked == ["image-moments", "image-moments", "image-products"]
    card = json.loads((tmp_path / "run" / "private-generator" / CARD).read_text())
    epsilon = card["privacy"]["epsilon"]
    assert epsilon == pytest.approx(ledger.epsilon_spent, rel=1e-3)
    assert epsilon > 6  # not the 5 that were asked for


def test_a_site_that_sends_more_than_its_images_ends_the_run(sites, tmp_path, monkeypatch):
    """The sums are compared with what all sites say they have, and are not asked for again."""
    plain = ImageMoments.answer

    def lies(self: ImageMoments, samples: np.ndarray, labels: np.ndarray, *_: None) -> np.ndarray:
        words = plain(self, samples, labels)
        return 40 * words if len(labels) == sum(COUNTS[0]) else words

    monkeypatch.setattr(ImageMoments, "answer", lies)
    for _ in range(2):
        grid = RealSites(sites, tmp_path, generator="private")
        with pytest.raises(InfeasibleError, match="cannot be those of the sites' samples"):
            run_server(grid, settings(sites, tmp_path / "run", **GIVEN))
    assert not (tmp_path / "run" / "private-generator" / CARD).exists()
    mine = config(sites, tmp_path, 0, generator="private")
    ledger = Ledger.open(mine.ledger_folder, 30.0, mine.delta)
    assert [entry.query for entry in ledger.entries] == ["image-moments"]


def test_a_server_that_dies_before_it_has_a_generator_pays_once(sites, tmp_path, monkeypatch):
    def queries() -> list[str]:
        mine = config(sites, tmp_path, 0, generator="private")
        return [entry.query for entry in Ledger.open(mine.ledger_folder, 30.0, mine.delta).entries]

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    grid, folder = (
        RealSites(sites, tmp_path, generator="private"),
        tmp_path / "run" / "private-generator",
    )
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(images, "image_normals", dies)
        run_server(grid, settings(sites, tmp_path / "run", **GIVEN))
    asked = ["image-moments", "image-products"]
    assert queries() == asked
    assert not (folder / CARD).exists()
    run_server(grid, settings(sites, tmp_path / "run", **GIVEN))
    assert queries() == asked
    assert json.loads((folder / CARD).read_text())["privacy"]["delta"] == 1e-6
    assert sorted(path.name for path in folder.iterdir()) == sorted([CARD, WEIGHTS, REQUEST])
    mine = config(sites, tmp_path, 0, generator="private")
    assert len(open_site(mine).samples("fedeas(beta=12)").synthetic_labels)


def message(card: bytes, weights: bytes) -> Message:
    content = RecordDict({RECORD: ConfigRecord({CARD: card, WEIGHTS: weights})})
    return Message(content, dst_node_id=1, message_type="query.private_generator")


def changed(card: bytes, **values: object) -> bytes:
    body = {**json.loads(card), **values}
    del body["sha256"]  # which the server can compute
    return json.dumps({**body, "sha256": content_hash(body)}).encode()


def test_a_site_looks_at_the_generator_that_it_is_given(made, sites, tmp_path):
    """A server cannot make it hold a network of any size, or one for other data."""
    folder = made / "run" / "private-generator"
    card, weights = ((folder / name).read_bytes() for name in (CARD, WEIGHTS))
    data = open_site(config(sites, made, 0, generator="private")).real.data
    huge = json.loads(card)["settings"]
    huge = {**huge, "frequencies": 10**4}
    for wrong, why in [
        (message(changed(card, settings=huge), weights), "do not match its card"),
        (message(changed(card, classes=["a", "b", "c"]), weights), "for other data"),
        (message(changed(card, shape=[64, 64, 1]), weights), "for other data"),
        (message(changed(card, quality=[2.0, 0.1, 0.1]), weights), "quality is out of range"),
        (message(changed(card, quality=[0.1]), weights), "quality is out of range"),
        (message(card, weights[:-7]), "weights|damaged|complete"),
        (message(b"[]", weights), "not a generator's card"),
        (message(card.replace(b"0.", b"1."), weights), "damaged"),
        (message(card, b"x" * (2**26 + 1)), "too large"),
        (Message(RecordDict(), dst_node_id=1, message_type="query.x"), "not a generator"),
    ]:
        with pytest.raises(InputError, match=why):
            take_generator(wrong, data, tmp_path)
        assert not list(tmp_path.iterdir())  # nothing that was refused fills the disk
        with pytest.raises(InputError, match="has not come to this site"):
            taken_generator(tmp_path)


def test_a_site_with_a_generator_of_its_own_takes_no_other(sites, tmp_path):
    """It says so by the refusal that it gives for everything, and trains with its own."""
    grid = RealSites(sites, tmp_path)
    trained = run_server(grid, settings(sites, tmp_path / "a", **GIVEN))
    assert trained.history[0]["clients"] == len(COUNTS)
    assert not list(tmp_path.glob("*/generator"))
    with pytest.raises(InputError, match="needs the list of members"):
        run_server(grid, settings(sites, tmp_path / "b", **GIVEN | {"members": ""}))


def test_sites_with_tables_make_a_generator_together(sites, tmp_path):
    """Of three sums, whose costs the ledgers add up to what was promised."""
    grid = SitesWithTables(tmp_path, sites)
    given = settings(sites, tmp_path / "run", **GIVEN | {"batch": 64})
    tables = {
        "classes": ",".join(LEVELS), "test-data": str(tmp_path / "4.parquet"), "model": "mlp",
        "schema": str(tmp_path / "schema.json"),
    }  # fmt: skip
    trained = run_server(grid, given | tables)
    assert trained.history[0]["clients"] == 4
    card = json.loads((tmp_path / "run" / "private-generator" / CARD).read_text())
    assert (card["method"], card["training"]["sites"], card["shape"]) == ("moments", 4, [3])
    for mine in grid.configs:
        ledger = Ledger.open(mine.ledger_folder, 30.0, mine.delta)
        asked = [entry.query for entry in ledger.entries]
        assert asked == ["column-counts", "column-counts", "row-moments"]
        assert 15 < ledger.epsilon_spent <= 20 + 1e-9
    site = open_site(grid.configs[0])
    wanted = FedEAS(beta=12, quality=card["quality"]).local(site.real.counts())
    made = site.samples("fedeas(beta=12)").synthetic_labels
    assert np.bincount(made, minlength=3).tolist() == wanted.tolist()
    assert 0 < wanted.sum() < FedEAS(beta=12).local(site.real.counts()).sum()

    folder = tmp_path / "run" / "private-generator"
    weights = (folder / WEIGHTS).read_bytes()
    other = card["settings"]["space"] | {"columns": SCHEMA.to_list()[::-1]}
    for wrong in ({"settings": {"space": other}}, {"settings": {"space": 3}}, {"settings": {}}):
        told = message(changed((folder / CARD).read_bytes(), **wrong), weights)
        with pytest.raises(InputError, match="other columns"):
            take_generator(told, site.real.data, tmp_path / "taken")
