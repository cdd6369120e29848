"""A group of samples, such as a person's, as the unit of privacy that a site's owner chooses."""

import csv
import itertools
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given
from hypothesis import strategies as st

from fedeas import InfeasibleError, InputError
from fedeas._internal.settings import read_settings
from fedeas.data import Dataset
from fedeas.generators.card import CARD
from fedeas.planning.policies import FedEAS
from fedeas.private.accounting import ADDED, DELTA, REPLACED, epsilon_of, rho_for, sigma_for
from fedeas.private.flower import run_server
from fedeas.private.flower.deployed import open_site, site_groups
from fedeas.private.flower.queries import (
    QueryContext,
    _answer,
    answer_queries,
    ask,
)
from fedeas.private.flower.site_config import RunConfig, SiteConfig
from fedeas.private.generator.make import make_private
from fedeas.private.groups import MOST_PER_GROUP, Groups, owner_key, read_ids
from fedeas.private.ledger import Ledger
from fedeas.private.noise import SumNoise
from fedeas.private.queries import QUERIES
from fedeas.private.queries.features import FeatureMeans, FeatureProducts, feature_count
from fedeas.private.queries.moments import ImageMoments, ImageProducts
from fedeas.private.queries.query import WHOLE, ClassTotals, Query
from fedeas.private.queries.table import ColumnCounts, RowMoments
from fedeas.private.sums import SimulatedSums, answer_labels, check_sums
from fedeas.train.flower import records
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import HELLO
from fedeas.train.flower.deployed import REFUSAL
from helpers.deployed_sites import COUNTS as IMAGES_OF
from helpers.deployed_sites import config, settings
from helpers.neighbouring_sites import Site, keys, length_of, members
from helpers.private_sites import GIVEN, RealSites
from helpers.secure_sums import identities
from helpers.site_files import NOISY, site_toml, written, wrong
from helpers.table_sets import CLASSES as LEVELS
from helpers.table_sets import SCHEMA, draw_rows, to_table

ROOT = Path(__file__).parents[2]
KEY = bytes(range(32))
SHAPE = (8, 8, 1)
WIDTH = feature_count()
# Sixteen features that are cut off at the largest entry: the longest row that products can have.
SHARP = (((0,) * WIDTH,) * 3, (1,) * 16 + (2**40,) * (WIDTH - 16))
IMAGES = [
    ImageMoments(3, SHAPE, frequencies=4),
    ImageProducts(3, SHAPE, frequencies=4),
    FeatureMeans(3, SHAPE, *SHARP),
    FeatureProducts(3, SHAPE, *SHARP),
]
CUTS = ((0.0, 1.0), (5.0,))
TABLE = [
    ColumnCounts(3, (2,), CUTS),
    RowMoments(3, (2,), (0, 0), (False, False), CUTS, ((-9.0, 0.0, 9.0), (-1.0, 1.0)),
               ((0.0, 0.0, 0.0), (0.0, 1.0)), number_radius=1.0),
]  # fmt: skip
COUNTS = [ClassTotals(3)]
WHO = identities(3)[0]


def holding(samples, labels, ids, per_group=16, **more) -> QueryContext:
    """What a site with these samples of these people answers with."""
    counts, labels = np.bincount(labels, minlength=3), np.asarray(labels, np.int64)
    groups = Groups.of(list(ids), KEY, per_group) if len(ids) else None
    given = {"classes": 3, "samples": lambda: (samples, labels), "shape": lambda: SHAPE}
    return QueryContext(
        counts, Path(), WHO, None, tuple(QUERIES), **given,
        groups=None if groups is None else lambda: groups, **more,
    )  # fmt: skip


# Which samples of a group are taken


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=60), st.integers(1, MOST_PER_GROUP))
def test_the_weights_of_a_group_add_up_to_one_sample(ids, per_group):
    groups = Groups.of(ids, KEY, per_group)
    assert len(groups) == len(set(ids)) == len(groups.one_each)
    for name in set(ids):
        own = groups.weights[np.array(ids) == name]
        assert own.sum() == WHOLE
        assert (own > 0).sum() == min(len(own), per_group)
        assert own[own > 0].max() - own[own > 0].min() <= 1
    assert (groups.weights[groups.one_each] > 0).all()
    assert {ids[place] for place in groups.one_each} == set(ids)


@given(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=40), st.integers(1, 5))
def test_other_groups_have_no_say_in_which_samples_are_taken(ids, per_group):
    """Or one person more or less would move the contributions of all others."""
    everybody, others = np.array(ids), np.flatnonzero(np.array(ids) != ids[0])
    both, rest = (Groups.of(own, KEY, per_group) for own in (everybody, everybody[others]))
    assert (both.weights[others] == rest.weights).all()
    alike = set(both.one_each.tolist()) - set(np.flatnonzero(everybody == ids[0]).tolist())
    assert alike == set(others[rest.one_each].tolist())


def test_the_key_decides_and_stays():
    ids = ["ann"] * 40
    chosen = [
        np.flatnonzero(Groups.of(ids, key, 4).weights).tolist() for key in (KEY, KEY, bytes(32))
    ]
    assert chosen[0] == chosen[1] != chosen[2]
    taken = [np.flatnonzero(Groups.of(ids, k.to_bytes(32), 1).weights)[0] for k in range(400)]
    assert len(set(taken)) == 40  # every sample has its chance


def test_a_sites_key_is_made_once_and_is_its_own(tmp_path):
    folder = tmp_path / "state"
    key = owner_key(folder)
    assert len(key) == 32 and owner_key(folder) == key
    assert {path.name for path in folder.iterdir()} - {"lock"} == {"group.key"}
    assert (folder / "group.key").stat().st_mode & 0o777 == 0o600
    assert owner_key(tmp_path / "other") != key


def test_processes_that_make_a_key_at_once_have_the_same(tmp_path, monkeypatch):
    """Also on disks without hard links, such as those of many containers."""

    def unlinked(*args, **kwargs):
        raise PermissionError("no hard links here")

    monkeypatch.setattr("os.link", unlinked)
    with ThreadPoolExecutor(8) as pool:
        keys_ = set(pool.map(lambda _: owner_key(tmp_path / "state"), range(16)))
    assert len(keys_) == 1


@pytest.mark.parametrize("size", [0, 31, 33, 65, 4096])
def test_a_key_of_another_length_is_refused(tmp_path, size):
    (tmp_path / "group.key").write_bytes(bytes(size))
    with pytest.raises(InputError, match=r"group\.key is damaged"):
        owner_key(tmp_path)
    with pytest.raises(InputError, match="another length"):
        Groups.of(["a"], bytes(size))


def test_every_sum_takes_the_same_samples(monkeypatch):
    rng = np.random.default_rng(0)
    samples, labels = rng.integers(0, 256, (60, *SHAPE), np.uint8), rng.integers(0, 3, 60)
    site = holding(samples, labels, rng.integers(0, 9, 60), per_group=3)
    seen = {}
    for query in IMAGES[:3]:
        rows = type(query).rows

        def noted(self, own, of, rows=rows):
            seen.setdefault(self.name, []).extend(image.tobytes() for image in own)
            return rows(self, own, of)

        monkeypatch.setattr(type(query), "rows", noted)
        assert (_answer(query, site) == _answer(query, site)).all()
    taken = [sorted(set(own)) for own in seen.values()]
    assert taken == [taken[0]] * len(IMAGES[:3])
    assert len(taken[0]) == (site.groups().weights > 0).sum() < 30
    monkeypatch.undo()
    one_each = site.groups().one_each
    expected = ClassTotals(3).answer(np.bincount(labels[one_each], minlength=3))
    assert (_answer(ClassTotals(3), site) == expected).all()
    assert {samples[place].tobytes() for place in one_each} <= set(taken[0])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Groups.of(["a"], KEY, 0),
        lambda: Groups.of(["a"], KEY, MOST_PER_GROUP + 1),
        lambda: Groups.of(["a\x1b"], KEY),
        lambda: Groups.of(["a", None], KEY),
        lambda: Groups.of(["a", float("nan")], KEY),
        lambda: Groups.of(np.array([1.0, np.nan]), KEY),
        lambda: Groups.of(["a", " "], KEY),
        lambda: Groups.of("ab", KEY),
        lambda: Groups.of(["a", "NaN"], KEY),  # what pandas writes
        lambda: Groups.of(["12", "7", "12.0"], KEY),
        lambda: Groups.of(["0012", "12"], KEY),
        lambda: Groups.of(["a", "None"], KEY),
        lambda: _answer(ClassTotals(3), holding(np.zeros((2, *SHAPE), np.uint8), [0, 1], "aaa")),
    ],
)
def test_groups_that_cannot_be_are_refused(wrong):
    with pytest.raises(InputError):
        wrong()


@pytest.mark.parametrize(
    ("other", "groups"),
    [("12.0", 2), ("0012", 2), ("12.", 2), ("a\x1b", 3), ("nan", 2), ("None", 2), (" ", 2)],
)
def test_a_site_takes_what_its_owner_is_refused(other, groups):
    """What a site refuses must not follow from its samples.

    Ids that may be of one person are joined, and samples without an id are in no sum: whose they
    are nobody knows, and a person some of whose samples lack the id must not count twice.
    """
    ids = ["12", "7", other, "12"]
    with pytest.raises(InputError):
        Groups.of(ids, KEY)
    found = Groups.of(ids, KEY, strict=False)
    assert len(found) == len(found.one_each) == groups
    assert found.weights.sum() == 256 * groups
    assert found.label_counts(np.array([0, 1, 2, 0]), 3).sum() == groups
    in_no_sum = other.strip().lower() in ("", "nan", "none")
    assert (found.weights[2] == 0) == in_no_sum


def test_a_long_id_takes_no_time():
    Groups.of(["0" * 10**6 + "x", "1"], KEY, strict=False)


def test_ids_that_differ_in_case_or_spaces_are_one_person():
    """Who is written in two ways must not count twice, nor choose more than `per_group`."""
    groups = Groups.of(["Ann Lee", "ann  lee", " ANN LEE", "bob", "\uff41nn lee"], KEY, per_group=2)
    assert (len(groups), groups.names) == (2, ("ann lee", "bob"))
    assert groups.weights.sum() == 2 * WHOLE
    assert (groups.weights > 0).sum() == 3


def test_more_samples_of_a_person_than_there_are_change_nothing():
    few, many = (Groups.of(list("aab"), KEY, most).weights.tolist() for most in (2, MOST_PER_GROUP))
    assert few == many


# How far a person moves an answer, through the code that answers


def drawn_people(kind, rng):
    """Draw samples that move sums far, and noise."""
    if kind == "table":
        values = np.array([-1e6, -1.0, 0.5, 2.0, 9.0, 1e6, np.nan])
        return values[rng.integers(0, len(values), (rng.integers(4, 30), 2))].astype(np.float32)
    samples = rng.integers(0, 256, (rng.integers(4, 30), *SHAPE)).astype(np.uint8)
    return samples if rng.random() < 0.5 else np.full_like(samples, rng.choice([0, 255]))


def longest_moves(query, kind, trials):
    """The most that a person added, and one replaced, moves the answers of sites that are drawn."""
    rng, added, replaced = np.random.default_rng(3), 0.0, 0.0
    for _ in range(trials):
        samples = drawn_people(kind, rng)
        size, per_group = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 16, 64]))
        same = rng.random() < 0.5  # all of one class, all alike
        labels = (
            np.full(len(samples), rng.integers(3)) if same else rng.integers(0, 3, len(samples))
        )
        samples = np.repeat(samples[:1], len(samples), axis=0) if same else samples
        ids = rng.permutation(np.arange(len(samples)) % (size + 1)).astype(str)
        answers = []
        for gone in ("0", "1", None):
            rest = np.flatnonzero(ids != gone)
            site = holding(samples[rest], labels[rest], ids[rest], per_group)
            answers.append(_answer(query, site).astype(float))
        added = max(added, *(np.linalg.norm(answers[2] - own) for own in answers[:2]))
        replaced = max(replaced, np.linalg.norm(answers[0] - answers[1]))
    return added, replaced


@pytest.mark.parametrize("query", [*COUNTS, *IMAGES, *TABLE], ids=lambda q: q.name)
def test_no_person_moves_an_answer_further_than_one_sample_may(query):
    kind = "table" if query in TABLE else "image"
    trials = 12 if isinstance(query, FeatureProducts) else 40  # whose rows are long
    added, replaced = longest_moves(query, kind, trials)
    assert added <= query.sensitivity
    assert replaced <= 2 * query.sensitivity
    assert added >= 0.9 * query.sensitivity


@pytest.mark.parametrize("query", [ClassTotals(3), *IMAGES, *TABLE], ids=lambda q: q.name)
def test_ten_samples_of_a_person_do_where_the_unit_is_a_sample(query):
    """The control: what the ledger of such a site says is a tenth of what the person pays."""
    one = np.zeros((1, 2), np.float32) if query in TABLE else np.zeros((1, *SHAPE), np.uint8)
    if query.name.startswith("feature"):  # which are blind to brightness
        one = np.random.default_rng(0).integers(0, 256, (1, *SHAPE)).astype(np.uint8)
    ten, labels = np.repeat(one, 10, axis=0), np.zeros(10, np.int64)
    as_samples = np.linalg.norm(_answer(query, holding(ten, labels, "")).astype(float))
    as_person = np.linalg.norm(_answer(query, holding(ten, labels, "a" * 10)).astype(float))
    alone = np.linalg.norm(_answer(query, holding(ten[:1], labels[:1], "")).astype(float))
    assert as_samples == pytest.approx(10 * alone)
    assert as_samples > 5 * query.sensitivity
    assert 0.99 * alone < as_person <= alone


def test_every_query_is_covered():
    asked = {query.name for query in (*COUNTS, *IMAGES, *TABLE)}
    assert asked == set(QUERIES)


def advantage(person: bool, trials: int = 3000) -> float:
    """How well a server tells whether a patient is at a site, who is known with ten images.

    It knows everything else, and looks along the direction in which the patient moves the sum.
    """
    query = ImageMoments(3, SHAPE, frequencies=2)
    patient, labels = np.zeros((10, *SHAPE), np.uint8), np.zeros(10, np.int64)
    moved = _answer(query, holding(patient, labels, "p" * 10 if person else "")).astype(float)
    sigma = sigma_for(rho_for(1.0, DELTA), query.sensitivity, honest=2, words=query.length)
    noise, direction = SumNoise(sigma, 2), moved / np.linalg.norm(moved)
    parts = sum(noise.part(2 * trials * query.length) for _ in range(2)).reshape(2, trials, -1)
    with_patient, without = parts[0] + moved, parts[1]
    threshold = np.linalg.norm(moved) / 2
    seen = [float((sums @ direction > threshold).mean()) for sums in (with_patient, without)]
    return seen[0] - seen[1]


def test_ten_images_of_a_patient_are_seen_by_sample_and_hidden_by_person():
    allowed = math.tanh(1.0 / 2)  # the most that an epsilon of 1 allows, up to delta
    assert advantage(person=False) > allowed + 0.1
    assert advantage(person=True) < 0.2 < allowed


# The owner's unit, and what a server may ask


class People:
    """A grid of five sites with people of three images each, whose unit is a person or an image."""

    def __init__(self, folder, person=True):
        rng, who = np.random.default_rng(5), identities(5)
        self.members, self.folder, self.person = who[0].members, folder, person
        self.labels = [np.repeat(rng.integers(0, 3, 20), 3) for _ in range(5)]

        def hold(context):
            k = int(context.node_config["partition-id"])
            site = holding(
                np.zeros((60, *SHAPE), np.uint8), self.labels[k],
                np.repeat(np.arange(20), 3) if person else (),
            )  # fmt: skip
            return site._replace(folder=folder / str(k), identity=who[k], ledger=self.ledger(k))

        app = ClientApp()
        answer_queries(app, hold)
        self.grid = InlineGrid(app, 5)

    def ledger(self, k):
        return Ledger.open(self.folder / f"ledger-{k}", group="patient" if self.person else "")

    def ask(self, query, unit, epsilon=1.0):
        nodes = list(self.grid.get_node_ids())
        return ask(self.grid, nodes, query, self.members, epsilon=epsilon, timeout=60, unit=unit)


def test_a_sum_by_person_counts_people(tmp_path, monkeypatch):
    monkeypatch.setattr(SumNoise, "part", lambda self, words: np.zeros(words, np.int64))
    sites_ = People(tmp_path)
    totals = sites_.ask(ClassTotals(3), "group").sums / 256
    assert totals.tolist() == (np.bincount(np.concatenate(sites_.labels)) / 3).tolist()
    query = ImageMoments(3, SHAPE, frequencies=2)
    answer = sites_.ask(query, "group")
    assert query.read(answer.sums, 0.0, 5).counts == pytest.approx(totals, rel=1e-3)
    for k in range(5):
        entries = sites_.ledger(k).entries
        assert [(e.query, e.group) for e in entries] == [
            ("class-totals", "patient"), ("image-moments", "patient")
        ]  # fmt: skip


@pytest.mark.parametrize("person", [True, False])
def test_a_site_refuses_another_unit_than_its_owners(tmp_path, person):
    own, other = ("group", "sample") if person else ("sample", "group")
    sites_ = People(tmp_path, person)
    for query in (ClassTotals(3), ImageMoments(3, SHAPE, frequencies=2)):
        with pytest.raises(InfeasibleError, match="another unit"):
            sites_.ask(query, other)
    assert not any(sites_.ledger(k).exists() for k in range(5))
    assert len(sites_.ask(ClassTotals(3), own).nodes) == 5
    with pytest.raises(InputError, match="unknown unit"):
        sites_.ask(ClassTotals(3), "site")


def test_sites_plan_with_the_numbers_of_people(sites, tmp_path):
    for k, size in enumerate(IMAGES_OF.sum(axis=1)):
        ids = tmp_path / f"{k}.txt"
        ids.write_text("".join(f"p{at // 2}\n" for at in range(size)))
        own = config(sites, tmp_path, k, group=str(ids))
        site, groups = open_site(own), site_groups(own, open_site(own).real.data)
        made = site.samples("fedeas(beta=8)").counts() - site.real.counts()
        people = np.bincount(site.real.labels[groups.one_each], minlength=3)
        assert made.tolist() == FedEAS(8.0).local(people).tolist()


def test_fedgen_by_person_is_refused_before_anything_is_asked(sites, tmp_path):
    """Its server compares counts of samples with the number of people."""
    run = settings(sites, tmp_path / "run", method="fedgen") | {"unit": "group"}
    with pytest.raises(InputError, match="FedGen"):
        read_settings(RunConfig, run, "a run")
    with pytest.raises(InputError, match="FedGen"):
        config(sites, tmp_path, 0, group="./ids.txt", methods="fedavg fedgen")
    assert config(sites, tmp_path, 0, methods="fedavg fedgen").unit == "sample"


# The ledger


def entered(folder, key="a", group=""):
    ledger = Ledger.open(folder, group=group)
    ledger.enter("beta", 0.01, server="", run="7", key=key.encode())
    return ledger


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.permutations(("", "patient", "visit"), 2))
)
@pytest.mark.parametrize("lost", ["", "head.json"])
def test_a_ledger_cannot_be_talked_into_another_unit(tmp_path, before, after, lost):
    entered(tmp_path / "x", group=before)
    (tmp_path / "x" / lost).unlink() if lost else None
    files = {path: path.read_bytes() for path in (tmp_path / "x").iterdir()}
    other = Ledger.open(tmp_path / "x", epsilon=100.0, group=after)
    for use in (
        lambda: other.entries, lambda: other.spent, lambda: other.left,
        lambda: other.check("beta", 1e-6), lambda: entered(tmp_path / "x", "b", after),
        lambda: entered(tmp_path / "x", "a", after),  # not even an answer sent again
    ):  # fmt: skip
        with pytest.raises(InputError, match="another unit"):
            use()
    assert {path: path.read_bytes() for path in (tmp_path / "x").iterdir()} == files
    assert len(entered(tmp_path / "x", "b", before).entries) == 2


def test_a_ledger_by_sample_has_the_lines_that_earlier_versions_wrote(tmp_path):
    ledger = entered(tmp_path / "x")
    (line,) = (tmp_path / "x" / "entries.jsonl").read_text().splitlines()
    assert "group" not in json.loads(line)["body"]
    assert "group" not in (tmp_path / "x" / "head.json").read_text()
    assert (ledger.unit, ledger.entries[0].group) == ("sample", "")


def test_the_command_names_the_unit(fedeas, tmp_path):
    entered(tmp_path / "ledger", group="patient")
    site = tmp_path / "site.toml"
    text = f'partition-id = 0\nclasses = "a, b"\ndata = "d"\nstate = "{tmp_path}"\n'
    site.write_text(text + 'group = "patient"\n')
    for path in (site, tmp_path / "ledger"):
        shown = fedeas("ledger", path)
        assert (shown.code, ADDED["group"] in shown.out) == (0, True)
        assert REPLACED["group"] in shown.out and "same patient" in shown.out
        told = json.loads(fedeas("ledger", path, "--json").out)
        assert (told["unit"], told["group"]) == (ADDED["group"], "patient")
    site.write_text(text)
    assert "another unit" in " ".join(fedeas("ledger", site).err.split())


def test_a_refusal_names_the_unit(tmp_path):
    with pytest.raises(InputError, match=ADDED["group"]):
        Ledger.open(tmp_path, 1.0, group="patient").check("beta", 100.0)


# A site's settings, and real sites


def with_people(rows, labels, people) -> pa.Table:
    return to_table(rows, labels).append_column("patient", [[f"p{k}" for k in people]])


def table_site(folder, k, **more) -> SiteConfig:
    base = {
        "partition-id": 0, "classes": ", ".join(LEVELS), "data": str(folder / f"{k}.parquet"),
        "state": str(folder / f"state-{k}"), "schema": str(folder / "schema.json"),
        "group": "patient",
    }  # fmt: skip
    return read_settings(SiteConfig, {**base, **more}, "a site")


def test_a_column_of_a_table_names_its_people_and_is_not_learnt_from(tmp_path):
    SCHEMA.save(tmp_path / "schema.json")
    rows, labels = draw_rows(30)
    pq.write_table(with_people(rows, labels, np.arange(30) // 5), tmp_path / "0.parquet")
    site = open_site(table_site(tmp_path, 0))
    assert (site.size, len(site.real), site.real.data.samples.shape[1]) == (6, 30, 3)
    groups = site_groups(table_site(tmp_path, 0, **{"per-group": 2}), site.real.data)
    assert (groups.weights > 0).sum() == 12
    plain = open_site(table_site(tmp_path, 0, group=""))
    assert (plain.size, plain.real.data.sites) == (30, None)
    for changed in ({"group": "nobody"}, {"group": "age"}, {"per-group": 0}, {"per-group": 65}):
        with pytest.raises(InputError, match=r"nobody|age|per-group"):
            open_site(table_site(tmp_path, 0, **changed))


def test_a_file_of_ids_names_the_people_of_images(sites, tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("".join(f"p{k // 4}\n" for k in range(32)))
    own = config(sites, tmp_path, 0, group=str(ids))
    site = open_site(own)
    assert (site.size, len(site.real)) == (8, 32)
    grid = RealSites(sites, tmp_path)
    node, context = next(iter(grid._contexts.items()))
    context.node_config = {**context.node_config, "group": str(ids)}
    hello = Message(records.pack({}, {"seed": 1, "method": "fedavg"}), node, HELLO)
    (told,) = grid.pull_messages(grid.push_messages([hello]))
    assert records.whole(told.content, "num-examples") == 8  # people, not images
    assert own.open_ledger().group == "/ids.txt"
    for text in ("p1\n" * 31, "p1\n" * 31 + "\n", "p1\n" * 33):
        ids.write_text(text)
        with pytest.raises(InputError, match=r"ids|id in line"):
            open_site(own)
    with pytest.raises(InputError):
        read_ids(tmp_path / "nothing.txt")
    ids.write_bytes(b"\xef\xbb\xbfp1\r\np2\r\n")  # as a spreadsheet writes it
    assert read_ids(ids) == ["p1", "p2"]


def csv_site(folder, k, ids):
    """A site whose table is CSV, with these ids."""
    rows, labels = draw_rows(len(ids))
    table = to_table(rows, labels).append_column("patient", [ids])
    with (folder / f"{k}.csv").open("w") as file:
        file.write(",".join(table.column_names) + "\n")
        for row in table.to_pylist():
            file.write(",".join("" if x is None else str(x) for x in row.values()) + "\n")
    return table_site(folder, k, data=str(folder / f"{k}.csv"))


def test_one_persons_id_does_not_change_the_names_of_others(tmp_path):
    """By its name a group's samples are chosen: a column of 007 and A1 is read as one of 007 is."""
    SCHEMA.save(tmp_path / "schema.json")
    ids = [f"{k // 5:03}" for k in range(60)]
    answers = []
    for k, own in enumerate((ids, [*ids, *["A1"] * 5])):
        data = open_site(csv_site(tmp_path, k, own)).real.data
        groups = site_groups(table_site(tmp_path, 0), data, KEY)
        assert {*groups.names} == {*map(str, range(12)), *(["a1"] if k else [])}
        answers.append(answer_labels(ClassTotals(3), np.asarray(data.labels), groups))
    assert np.abs(answers[1] - answers[0]).sum() == 256


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_long_ids_that_differ_in_a_digit_are_two_people(tmp_path, kind):
    SCHEMA.save(tmp_path / "schema.json")
    ids = [20231118123456780 + k // 5 for k in range(30)]
    if kind == "csv":
        own = csv_site(tmp_path, 0, [str(each) for each in ids])
    else:
        table = to_table(*draw_rows(30)).append_column("patient", [ids])
        pq.write_table(table, tmp_path / "0.parquet")
        own = table_site(tmp_path, 0)
    assert open_site(own).size == 6


def test_a_ledger_by_a_column_is_not_one_by_a_file_of_that_name(tmp_path):
    column, file = (
        table_site(tmp_path, 0, group=group).open_ledger() for group in ("patient", "./patient")
    )
    column.enter("beta", 0.01, server="", run="7", key=b"a")
    with pytest.raises(InputError, match="another unit"):
        file.check("beta", 0.01)
    moved = table_site(tmp_path, 0, group=str(tmp_path / "patient")).open_ledger()
    assert moved.group == file.group


class SitesOfPatients(RealSites):
    """Four sites with tables, in which every patient has five rows."""

    def __init__(self, folder, keys_of):
        SCHEMA.save(folder / "schema.json")
        rows, labels = draw_rows(4000)
        for k, part in enumerate([*np.array_split(np.arange(4000), 4), np.arange(0, 4000, 9)]):
            table = with_people(rows[part], labels[part], np.arange(len(part)) // 5)
            pq.write_table(table, folder / f"{k}.parquet")
        self.configs = [
            config(
                keys_of, folder / "state", k, epsilon=60.0, generator="private",
                classes=",".join(LEVELS), data=str(folder / f"{k}.parquet"),
                schema=str(folder / "schema.json"), group="patient",
            )
            for k in range(4)
        ]  # fmt: skip
        self.open(self.configs)
        for context in self._contexts.values():
            context.node_config = {**context.node_config, "group": "patient"}


def test_a_federation_by_person_makes_its_generator_and_trains(sites, tmp_path):
    """All sums of a run: the class distribution, and the generator's."""
    grid = SitesOfPatients(tmp_path, sites)
    given = settings(sites, tmp_path / "run", **GIVEN | {"batch": 64}) | {
        "classes": ",".join(LEVELS), "test-data": str(tmp_path / "4.parquet"), "model": "mlp",
        "schema": str(tmp_path / "schema.json"), "unit": "group",
        "policy": "fedeas(beta=12, target=federation)",
    }  # fmt: skip
    with pytest.raises(InfeasibleError, match=REFUSAL):
        run_server(grid, given | {"unit": "sample", "out": str(tmp_path / "other")})
    assert not any(own.open_ledger().exists() for own in grid.configs)
    trained = run_server(grid, given)
    assert trained.history[0]["clients"] == 4
    card = json.loads((tmp_path / "run" / "private-generator" / CARD).read_text())
    assert card["privacy"]["unit"] == ADDED["group"]
    assert 600 < sum(card["counts"]) < 1000  # of 800 people, not of 4,000 rows
    for own in grid.configs:
        entries = own.open_ledger().entries
        assert {entry.group for entry in entries} == {"patient"}
        asked = ["class-totals", "column-counts", "column-counts", "row-moments"]
        assert [entry.query for entry in entries] == asked
    with pytest.raises(InputError, match="another unit"):
        run_server(grid, given | {"unit": "sample"})


def test_the_check_names_the_unit_and_tells_of_another(sites, tmp_path, fedeas):
    ids = tmp_path / "ids.txt"
    ids.write_text("".join(f"p{k // 4}\n" for k in range(32)))
    path = site_toml(sites, tmp_path, group=str(ids))
    run = {**settings(sites, tmp_path / "run", **NOISY), "unit": "group"}
    done = fedeas("check", path, "--run", written(tmp_path / "run.toml", run))
    assert (done.code, wrong(done.out)) == (0, {}), done.out
    assert "8 by" in done.out and "up to 4 samples" in done.out
    assert not (tmp_path / "0").exists()  # looking makes no key
    run["unit"] = "sample"
    done = fedeas("check", path, "--run", written(tmp_path / "run.toml", run))
    assert "another unit" in wrong(done.out)["run"]


# What a site refuses is the same whoever is there


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory):
    """Sites with a patient more, one less, and one replaced by another with more rows."""
    folder = members(tmp_path_factory.mktemp("people"))
    SCHEMA.save(folder / "schema.json")
    rows, labels = draw_rows(40)
    people = np.arange(40) // 5
    found = []
    for number, taken in enumerate((range(30), range(35), range(25), [*range(25), *range(30, 40)])):
        own = np.array(taken)
        table = with_people(rows[own], labels[own], np.minimum(people[own], 6))
        pq.write_table(table, folder / f"{number}.parquet")
        more = {"schema": str(folder / "schema.json"), "group": "patient"}
        found.append(
            Site(folder, str(number), number, folder / f"{number}.parquet", LEVELS, **more)
        )
    return found


def outcome(site: Site, content: RecordDict, kind: str):
    """Whether a message is refused, and what it leaves."""
    site.forget()
    reply = site.send(content, kind)
    files = sorted(
        (str(path.relative_to(site.state)), path.stat().st_size)
        for path in site.state.rglob("*")
        if path.is_file() and "store" not in path.parts
    )
    spent = Ledger.open(site.state / "ledger", group="patient").spent
    return reply.error.reason if reply.has_error() else None, files, spent


@pytest.mark.parametrize("unit", ["group", "sample", None, "", 1, ["group"], {"group": 1}])
@pytest.mark.parametrize(
    "asked",
    [
        {"query": "class-totals", "classes": 3, "rho": 1e-3},
        {"query": "class-totals", "classes": 3, "rho": 0.0},
        {"query": "column-counts", "classes": 3, "rho": 1e-3, "shape": [3], "cuts": [[0.0]] * 3},
        {"query": "column-counts", "classes": 3, "rho": 50.0, "shape": [3], "cuts": [[0.0]] * 3},
    ],
    ids=lambda asked: f"{asked['query']} {asked['rho']}",
)
def test_what_is_refused_does_not_depend_on_who_is_there(neighbours, asked, unit):
    asked = asked if unit is None else {**asked, "unit": unit}
    content = keys(asked, length_of({k: v for k, v in asked.items() if k != "unit"}))
    first, *others = [outcome(site, content, "query.secure_shares") for site in neighbours]
    assert others == [first] * len(others)
    sound = unit == "group" and asked["rho"] == 1e-3
    assert first[0] == (None if sound else REFUSAL)


# Simulations


def test_a_simulated_generator_by_person_says_so(tmp_path):
    rows, labels = draw_rows(3000)
    data = Dataset(rows, labels, "x", LEVELS, len(rows), "x", kind="table", schema=SCHEMA)
    places = np.array_split(np.arange(3000), 4)
    groups = Groups.of(np.arange(3000) // 3, KEY)
    card = make_private(data, places, epsilon=20.0, groups=groups).card
    assert card.privacy.unit == ADDED["group"]
    assert sum(card.counts) == pytest.approx(1000, abs=60)
    exact = make_private(data, places, epsilon=math.inf, groups=groups)
    assert sum(exact.card.counts) == pytest.approx(1000, abs=1)
    assert "groups" in str(exact.training_data)
    with pytest.raises(InputError, match="out"):
        make_private(data, places, groups=groups, out=tmp_path / "x")


def test_the_figures_of_the_page_are_those_of_the_record(data):
    page = (ROOT / "docs" / "people.md").read_text(encoding="utf-8")
    with (ROOT / "reproduction" / "recorded" / "person-unit.csv").open(encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    found: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        key = (run["epsilon"], run["images a person"], run["in a sum"])
        found.setdefault(key, []).append(float(run["accuracy"]))
    assert {len(each) for each in found.values()} == {3}
    for epsilon in ("1", "10"):
        cells = [f"{np.mean(v):.1f} ({min(v):.1f} to {max(v):.1f})"
                 for key, v in found.items() if key[0] == epsilon]  # fmt: skip
        assert f"| {epsilon} | {' | '.join(cells)} |" in page
    archives: dict[str, list[list[int]]] = {}
    with (data / "sites" / "xray_people.csv").open() as file:
        for row in csv.DictReader(file):
            archives.setdefault(row["site"], []).append([int(x) for x in list(row.values())[1:]])
    lines = {
        "people": lambda n: f"{n[:, 1].sum():,}",
        "images a person": lambda n: f"{n[:, 2].sum() / n[:, 1].sum():.1f}",
        "images in a sum, with `per-group = 16`": lambda n: share(
            (np.minimum(n[:, 0], 16) * n[:, 1]).sum() / n[:, 2].sum()
        ),
    }
    for name, cell in lines.items():
        assert f"| {name} | {' | '.join(cell(np.array(n)) for n in archives.values())} |" in page
    few, many = (f"{epsilon_of([k**2 * rho_for(1.0)]):.1f}" for k in (3, 20))
    assert f"with 3 images has {few}, and with 20 images {many}" in " ".join(page.split())


def share(part: float) -> str:
    return f"{100 * part:.0f} %"


def test_who_is_at_two_sites_counts_at_each():
    """Sites know nothing of each other's ids: such a person pays twice."""
    rows, labels = draw_rows(60)
    data = Dataset(rows, labels, "x", LEVELS, len(rows), "x", kind="table", schema=SCHEMA)
    places = [np.arange(30), np.arange(30, 60)]
    sums = SimulatedSums(data, places, groups=Groups.of(["a"] * 60, KEY))
    assert sums.ask(ClassTotals(3), math.inf).sums.sum() == 2 * WHOLE


def test_sums_that_count_more_people_than_there_are_are_refused():
    from fedeas.private.sums import Release

    query = ColumnCounts(3, (2,), CUTS)
    answer = _answer(query, holding(np.zeros((50, 2), np.float32), [0] * 50, np.arange(50) // 5))
    check_sums(query, Release(answer, 0.0, 1, math.inf, DELTA, 10, "group"))
    with pytest.raises(InfeasibleError, match="cannot be those"):
        check_sums(query, Release(answer, 0.0, 1, math.inf, DELTA, 9, "group"))


def test_a_third_partys_queries_need_no_proof_of_their_own():
    """A histogram has one sample per person, and weighted rows are shorter: for any query."""
    assert issubclass(ClassTotals, Query)
    rng = np.random.default_rng(0)
    samples, labels = rng.integers(0, 256, (12, *SHAPE)).astype(np.uint8), np.arange(12) % 3
    site = holding(samples, labels, np.arange(12))  # people of one sample each
    for query in (*COUNTS, *IMAGES):
        assert (_answer(query, site) == _answer(query, holding(samples, labels, ""))).all()
