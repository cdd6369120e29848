import hashlib
import json
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import (
    IID,
    Dirichlet,
    FLBench,
    InfeasibleError,
    InputError,
    LabelCounts,
    Partition,
    Shards,
)
from fedeas.data.labels import balanced_labels, read_labels
from fedeas.partition import IndexLists, make_partition

flower = pytest.mark.skipif(not find_spec("flwr_datasets"), reason="needs fedeas[flower]")
labels = balanced_labels(5, 200)
recipes = st.one_of(
    st.builds(
        FLBench, clients=st.integers(1, 8), alpha=st.floats(0.3, 50), seed=st.integers(0, 99)
    ),
    st.builds(
        Dirichlet, clients=st.integers(1, 30), alpha=st.floats(0.2, 50), seed=st.integers(0, 99)
    ),
    st.builds(IID, clients=st.integers(1, 30), seed=st.integers(0, 99)),
    st.builds(Shards, clients=st.integers(1, 30), shards_per_client=st.integers(1, 5)),
)


@given(recipes)
@settings(max_examples=50)
def test_every_recipe_is_disjoint_complete_and_repeatable(recipe):
    made = recipe.partition(labels)
    parts = [made.train.indices] + ([made.test.indices] if made.test else [])
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert made == recipe.partition(labels)
    assert made.counts(labels).total == len(made.train.indices)


@given(recipe=recipes)
@settings(max_examples=20)
def test_saving_and_loading_changes_nothing(recipe, tmp_path_factory):
    made = recipe.partition(labels)
    path = tmp_path_factory.mktemp("partition") / "partition.npz"
    made.save(path)
    assert Partition.load(path) == made


def test_the_papers_partition_of_real_cifar10(data, paper):
    """Index for index on the official labels: training set first, then test set."""
    files = [str(next((data / "cifar10").glob(f"{part}-*.parquet"))) for part in ("train", "test")]
    real = read_labels(files).codes
    assert np.bincount(real).tolist() == [6000] * 10
    made = FLBench(clients=20, alpha=0.1).partition(real)
    assert made.counts(real) == paper
    assert made.test is not None
    assert len(made.test.indices) == 14_993
    assert len(made.train.indices) == 45_007


def test_counts_without_labels_are_the_counts_with_labels(paper):
    recipe = FLBench(clients=20, alpha=0.1)
    assert recipe.counts([6000] * 10) == paper
    y = np.random.default_rng(0).permutation(balanced_labels(10, 6000))
    assert recipe.partition(y).counts(y) == paper


@pytest.mark.slow
def test_the_waypoint_is_where_ten_thousand_tries_lead():
    """Walks the whole search of the paper's hardest partition (some 15 s)."""
    recipe = FLBench(clients=100, alpha=0.05)
    assert recipe.counts([6000] * 10, walk=True) == recipe.counts([6000] * 10)


@pytest.mark.parametrize(
    ("recipe", "digest"),
    [
        (FLBench(clients=8, alpha=0.3), "5aee4bf693421e6c"),
        (Dirichlet(clients=8, alpha=0.3), "f9649cd584d9eac9"),
        (IID(clients=8), "0f8c8620c771b968"),
        (Shards(clients=8), "39ae97fb1f8f7cdd"),
    ],
)
def test_a_versioned_recipe_never_changes(recipe, digest):
    """If this fails, a release would silently change everybody's splits: make a new version."""
    made = recipe.partition(labels)
    parts = made.train.indices.astype("<i8").tobytes() + made.train.offsets.astype("<i8").tobytes()
    assert hashlib.sha256(parts).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (FLBench(clients=200, alpha=0.1), "at most 100 clients"),
        (Dirichlet(clients=2000, alpha=0.1), "at most 1,000 clients"),
        (Dirichlet(clients=100, alpha=0.01, min_samples=5), "raise alpha"),
        (FLBench(clients=90, alpha=0.01), "raise alpha"),
        (FLBench(clients=5, alpha=1e-12, min_samples=0), "raise alpha"),
        (IID(clients=1001), "at most 1,000"),
        (Shards(clients=600), "at most 500 clients"),
    ],
)
def test_an_infeasible_request_fails_at_once_and_says_what_to_change(recipe, message):
    with pytest.raises(InfeasibleError, match=message):
        recipe.partition(labels)


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        (IID, {"clients": 0}),
        (IID, {"clients": 2.0}),
        (IID, {"clients": True}),
        (IID, {"clients": "2"}),
        (IID, {"clients": 2, "seed": -1}),
        (IID, {"clients": 2, "seed": 2**63}),
        (Dirichlet, {"clients": 0, "alpha": 0.1}),
        (Dirichlet, {"clients": 5, "alpha": 0}),
        (Dirichlet, {"clients": 5, "alpha": float("nan")}),
        (Dirichlet, {"clients": 5, "alpha": "0.1"}),
        (Dirichlet, {"clients": 5, "alpha": 1, "seed": -1}),
        (Dirichlet, {"clients": 5, "alpha": 1, "min_samples": -1}),
        (FLBench, {"clients": 5, "alpha": 1, "seed": 2**32}),
        (FLBench, {"clients": 5, "alpha": 1, "test_ratio": 1.0}),
        (FLBench, {"clients": 5, "alpha": 1, "min_samples": 0.5}),
        (Shards, {"clients": 5, "shards_per_client": 0}),
        (Shards, {"clients": np.True_}),
    ],
)
def test_nonsense_is_refused_when_a_recipe_is_made(recipe, settings):
    with pytest.raises(InputError):
        recipe(**settings)


def test_numbers_of_numpy_are_numbers(tmp_path):
    few, alpha, seed = np.int64(4), np.float32(0.5), np.uint8(7)
    for numpy, plain in (
        (IID(clients=few, seed=seed), IID(clients=4, seed=7)),
        (Shards(clients=few, seed=seed), Shards(clients=4, seed=7)),
        (Dirichlet(clients=few, alpha=alpha, seed=seed), Dirichlet(clients=4, alpha=0.5, seed=7)),
        (FLBench(clients=few, alpha=alpha, seed=seed), FLBench(clients=4, alpha=0.5, seed=7)),
    ):
        assert numpy == plain
        assert repr(numpy) == repr(plain)
        made = numpy.partition(labels)
        assert made == plain.partition(labels)
        made.save(tmp_path / "partition.npz")  # settings that JSON can hold
        assert Partition.load(tmp_path / "partition.npz") == made
    assert type(Dirichlet(clients=5, alpha=1).alpha) is int  # as it was given


def test_lists_are_indexed_as_lists_are():
    lists = IndexLists.of([[4, 1], [], [0]])
    for place in (-1, 2, np.int64(-1)):
        assert lists[place].tolist() == [0]
    assert lists[-3].tolist() == [4, 1]
    for place in (3, -4):
        with pytest.raises(IndexError):
            lists[place]
    with pytest.raises(TypeError):
        lists[1.0]


@pytest.mark.parametrize("y", [[], [0, 0], [0, -1], [0.5, 1.0], [[0, 1]], [0, 10**9], ["a", "b"]])
def test_bad_labels_are_refused(y):
    with pytest.raises(InputError, match="label"):
        IID(clients=1).partition(y)


@given(st.floats(1e-6, 0.05), st.integers(1, 40), st.integers(0, 50))
@settings(max_examples=50)
def test_tiny_alphas_never_give_nonsense(alpha, clients, seed):
    made = Dirichlet(clients=clients, alpha=alpha, seed=seed, min_samples=0).partition(labels)
    assert len(made.train.indices) == len(labels)


def test_a_partition_checks_itself():
    good = IID(clients=2).partition([0, 1, 0, 1])
    for lists, message in [
        ([[0, 1], [1, 2]], "twice"),
        ([[0], [4]], "outside"),
        ([[0], [-1]], "outside"),
    ]:
        with pytest.raises(InputError, match=message):
            Partition(IndexLists.of(lists), good.labels_hash, 4, 2, "mine@1", {})
    with pytest.raises(InputError, match="do not fit"):
        Partition(
            IndexLists(np.arange(3), np.array([0, 2, 1, 3])), good.labels_hash, 4, 2, "m@1", {}
        )
    with pytest.raises(InputError, match="not the labels"):
        good.counts([1, 0, 1, 0])
    with pytest.raises(InputError, match="no test part"):
        good.counts([0, 1, 0, 1], test=True)


def test_a_hostile_partition_file_is_refused(tmp_path):
    good = tmp_path / "good.npz"
    IID(clients=2).partition([0, 1, 0, 1]).save(good)
    content = dict(np.load(good))
    attacks = {
        "pickle": {"head": np.array([{"a": 1}], dtype=object)},
        "floats": {"train": np.array([0.5, 1.0])},
        "twice": {"train": np.array([0, 0, 1, 2])},
        "cut": {"train_offsets": np.array([0, 9, 4])},
        "head": {"head": np.frombuffer(b"{}", np.uint8)},
        "key": {
            "head": np.frombuffer(json.dumps({"format": "partition/1", "x": 1}).encode(), np.uint8)
        },
    }
    for name, change in attacks.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, **(content | change))
        with pytest.raises(InputError):
            Partition.load(path)
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04junk")
    (tmp_path / "empty.npz").touch()
    for name in ("junk", "empty", "absent"):
        with pytest.raises(InputError):
            Partition.load(tmp_path / f"{name}.npz")


def test_recipes_by_name_and_version():
    assert make_partition("flbench@1", clients=20, alpha=0.1) == FLBench(clients=20, alpha=0.1)
    with pytest.raises(InputError, match="flbench@1, dirichlet@1"):
        make_partition("flbench@7", clients=20, alpha=0.1)
    with pytest.raises(InputError, match="needs 'alpha'"):
        make_partition("dirichlet", clients=20)


@flower
def test_flwr_datasets_partitioners_become_partitions():
    from datasets import Dataset
    from flwr_datasets.partitioner import (
        DirichletPartitioner,
        IidPartitioner,
        PathologicalPartitioner,
    )

    y = np.random.default_rng(0).permutation(labels)
    dataset = Dataset.from_dict({"label": y, "text": [str(i) for i in range(len(y))]})
    for partitioner in (
        IidPartitioner(num_partitions=7),
        DirichletPartitioner(num_partitions=5, partition_by="label", alpha=0.5, seed=1),
        PathologicalPartitioner(
            num_partitions=5,
            partition_by="label",
            num_classes_per_partition=2,
            class_assignment_mode="deterministic",
        ),
    ):
        made = Partition.from_flwr(partitioner, dataset)
        counts = made.counts(y)
        assert counts.total == len(y)
        assert made.recipe.startswith(f"flwr-datasets/{type(partitioner).__name__}@")
        own = partitioner.load_partition(2)
        assert own["text"] == [str(i) for i in made.train[2]]
        with pytest.raises(InputError, match="fresh partitioner"):
            Partition.from_flwr(partitioner, dataset)
    with pytest.raises(InputError, match="no such column"):
        Partition.from_flwr(IidPartitioner(num_partitions=2), dataset, label="fine_label")
    with pytest.raises(InputError, match="not a partitioner"):
        Partition.from_flwr(object(), dataset)


def numbered_set(y):
    from datasets import Dataset

    return Dataset.from_dict({"label": y, "place": np.arange(len(y))})


@flower
@given(recipe=recipes)
@settings(max_examples=max(1, settings.default.max_examples // 3))
def test_a_partition_goes_to_flower_and_comes_back(recipe):
    try:
        partition = recipe.partition(labels)
    except InfeasibleError:
        return
    dataset = numbered_set(labels)
    made = partition.to_flwr()
    made.dataset = dataset
    parts = [list(made.load_partition(k)["place"]) for k in range(made.num_partitions)]
    assert parts == [own.tolist() for own in partition.train]
    again = Partition.from_flwr(partition.to_flwr(), dataset)
    assert [own.tolist() for own in again.train] == parts
    if partition.test is not None:
        tested = Partition.from_flwr(partition.to_flwr(test=True), dataset)
        assert [own.tolist() for own in tested.train] == [own.tolist() for own in partition.test]


@flower
def test_a_partitioner_of_flower_comes_and_goes_back():
    from flwr_datasets.partitioner import DirichletPartitioner

    y = np.random.default_rng(0).permutation(labels)
    theirs = DirichletPartitioner(num_partitions=5, partition_by="label", alpha=0.5, seed=1)
    ours = Partition.from_flwr(theirs, numbered_set(y)).to_flwr()
    ours.dataset = numbered_set(y)
    assert ours.num_partitions == 5
    for k in range(5):
        assert list(ours.load_partition(k)["place"]) == list(theirs.load_partition(k)["place"])


@flower
def test_another_data_set_or_order_is_refused():
    partition = IID(clients=4).partition(labels)
    for dataset, said in (
        (numbered_set(labels).shuffle(seed=1), r"FederatedDataset\(\.\.\., shuffle=False\)"),
        (numbered_set(labels[:-1]), "not the data set that was partitioned"),
        (numbered_set(labels).rename_column("label", "kind"), "no such column; got 'label'"),
    ):
        made = partition.to_flwr()
        made.dataset = dataset
        with pytest.raises(InputError, match=said):
            made.load_partition(0)
    named = partition.to_flwr("kind")
    named.dataset = numbered_set(labels).rename_column("label", "kind")
    assert len(named.load_partition(0)) == 250
    with pytest.raises(InputError, match="iid@1 has no test part"):
        partition.to_flwr(test=True)


def test_read_labels(tmp_path):
    np.save(tmp_path / "a.npy", np.array([0, 1, 2]))
    (tmp_path / "b.csv").write_text("label,x\n2,5\n0,6\n")
    (tmp_path / "c.csv").write_text("x,label\n7,1\n")
    assert read_labels([str(tmp_path / "a.npy")]).codes.tolist() == [0, 1, 2]
    assert read_labels(["balanced:2x1"]).codes.tolist() == [0, 1]
    joined = read_labels([str(tmp_path / "b.csv"), str(tmp_path / "c.csv")])
    assert (joined.codes.tolist(), joined.classes) == ([2, 0, 1], None)
    (tmp_path / "words.csv").write_text("clinic,result\nb,pos\na,neg\nb,neg\n")
    words = read_labels([str(tmp_path / "words.csv")], "result", "clinic")
    assert (words.codes.tolist(), words.classes) == ([1, 0, 0], ("neg", "pos"))
    assert words.sites == ["b", "a", "b"]


def test_bad_sources_of_labels(tmp_path, paper_csv):
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "gap.csv").write_text("label,x\ncat,1\n,2\ndog,3\n")
    (tmp_path / "bare.csv").write_text("0\n1\n2\n")
    LabelCounts.load(paper_csv).save(tmp_path / "counts.parquet")
    names = "pickle.npy text.npy gap.csv bare.csv absent.npy absent.csv counts.parquet a.txt"
    for source in [*names.split(), "absent.parquet"]:
        with pytest.raises(InputError):
            read_labels([str(tmp_path / source)])
    for source in ["balanced:1x5", "balanced:10", "balanced:2x0"]:
        with pytest.raises(InputError):
            read_labels([source])
