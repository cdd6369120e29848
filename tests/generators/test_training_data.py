"""Every generator says what data it was trained on, and how many of them the clients hold."""

import numpy as np
import pytest

from fedeas import IID, InputError, LabelCounts, augment
from fedeas.data import federate, load_images
from fedeas.generators import Gaussian, Pool, make_generator
from fedeas.generators.card import describe_training
from fedeas.generators.gaussian import gaussian_of_dataset
from fedeas.lab.config import Augment, Config, Data, PartitionConfig
from fedeas.lab.experiment import run
from fedeas.lab.resolve import describe_cut
from fedeas.planning.plan import Plan
from fedeas.train.settings import Federated
from helpers.small_federations import write_shapes
from helpers.table_sets import data_of


@pytest.fixture(scope="module")
def clothes(data):
    """Ten clients that hold 2,000 of 60,000 training images; the others are held out."""
    images = load_images("fashion_mnist", str(data / "fashion_mnist"))
    return federate(images, IID(clients=10), "official", pool_per_class=5_800)


def test_an_included_model_saw_more_than_the_clients_have(clothes, tmp_path):
    generator = make_generator("diffusion(model=fashion_mnist)", device="cpu")
    training = describe_training(generator, clothes)
    assert training == "60,000 training images, of which the clients hold 2,000"
    shapes = load_images("shapes", str(write_shapes(tmp_path / "set")), str(tmp_path / "store"))
    other = describe_training(generator, federate(shapes, IID(clients=2), "official"))
    assert other == "60,000 training images of another data set than the clients'"


def test_a_pool_and_generators_of_own_samples(clothes):
    training = describe_training(Pool(clothes.data, clothes.pool), clothes)
    assert training.startswith("58,000 real held-out samples")
    assert training.endswith("of which the clients hold 0")
    for own in ("copies", "smote", "local-gaussian"):
        assert describe_training(make_generator(own), clothes) == "each client's own samples"
    assert describe_training(make_generator("noise(shape=8x8x1)"), clothes) == "nothing"
    assert describe_training(object(), clothes) == "not stated by the generator"


def test_rows(tmp_path):
    data = data_of(tmp_path / "people", 900)
    federation = federate(data, IID(clients=3), "official", pool_per_class=100)
    made = gaussian_of_dataset(data, 100, 42)
    assert describe_training(made, federation) == (
        "600 training rows, of which the clients hold 600"
    )
    made.save(tmp_path / "gaussian")
    assert describe_training(Gaussian.load(tmp_path / "gaussian"), federation) == "600 rows"


def test_a_run_keeps_it_and_says_how_much_quality_costs(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    config = Config(
        Data("shapes", str(write_shapes(tmp_path / "set"))),
        PartitionConfig("dirichlet", clients=4, alpha=0.3),
        Augment("fedeas(beta=12)", "private(epsilon=30)", str(tmp_path / "cache")),
        Federated(rounds=1),
    )
    said = []
    result = run(config, tmp_path / "run", said.append)
    assert result["generator_trained_on"].startswith("noisy sums over about ")
    assert result["generator_trained_on"].endswith("4 sites, the run's own clients")
    (cut,) = [line for line in said if line.startswith("quality cut")]
    assert f"{result['generated']:,} of the {result['asked']:,}" in cut


def test_classes_that_are_never_made_are_named():
    counts = LabelCounts(np.array([[9, 1, 2]]), ("a",), ("cat", "dog", "owl"))
    asked, plan = (Plan.of(counts, np.array([row]), {}) for row in ([0, 8, 7], [0, 0, 3]))
    assert describe_cut(asked, asked) == ""
    line = describe_cut(asked, plan)
    assert "3 of the 15 samples" in line
    assert line.endswith("never made: dog")


def test_own_without_a_run_says_what_to_type():
    labels = np.repeat([0, 1], [9, 1])
    images = np.zeros((10, 8, 8), np.uint8)
    with pytest.raises(InputError) as refused:
        augment(images, labels=labels, generator="private(epsilon=1)", beta=8, client=0)
    assert "fedeas generator private CONFIG --out generator" in str(refused.value)
    assert "private(model=generator)" in str(refused.value)
    with pytest.raises(InputError, match="no other settings"):
        make_generator("private(model=x, epsilon=1)")
