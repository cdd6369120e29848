"""`augment` and the mod are ordinary Flower parts: they work under any of Flower's strategies."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi

from fedeas import augment, report_real_num_examples
from fedeas.train.flower.backends import run_on_backend

CLIENTS, CLASSES, SIDE = 3, 3, 4
STRATEGIES = (FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad)


class Levels:
    """Draws a grey level for every class, with some noise."""

    fingerprint, classes = "levels-1", ("dark", "grey", "bright")

    def sample(self, labels, seeds):
        return np.stack([level(int(label), int(seed)) for label, seed in zip(labels, seeds)])  # noqa: B905


def level(label: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 30, (SIDE, SIDE, 1))
    return (30 + 80 * label + noise).astype(np.uint8)


def real_labels(client: int) -> np.ndarray:
    """Most samples are of one class; clients have different numbers of them."""
    return np.repeat(np.arange(CLASSES), np.where(np.arange(CLASSES) == client, 20 + client, 2))


def predict(images, weights):
    """Return the features of images and their class probabilities."""
    features = np.concatenate([images.reshape(len(images), -1) / 255, np.ones((len(images), 1))], 1)
    logits = features @ weights
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return features, exponentials / exponentials.sum(1, keepdims=True)


def client_app(cache) -> ClientApp:
    """Softmax regression on a client's real samples and its synthetic ones."""
    app = ClientApp(mods=[report_real_num_examples])

    @app.train()
    def train(message, context):
        client = int(context.node_config["partition-id"])
        labels = real_labels(client)
        images = np.stack([level(label, 1000 * client + i) for i, label in enumerate(labels)])
        images, labels = augment(
            images, labels=labels, generator=Levels(), client=str(client), beta=4, cache=cache
        )
        weights = message.content["arrays"]["w"].numpy()
        for _ in range(20):
            features, p = predict(images, weights)
            weights = weights - features.T @ (p - np.eye(CLASSES)[labels]) / len(labels)
        content = {
            "arrays": ArrayRecord({"w": Array(weights)}),
            "metrics": MetricRecord({"num-examples": len(labels), "trained-on": len(labels)}),
        }
        return Message(RecordDict(content), reply_to=message)

    return app


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.__name__)
def test_augment_and_the_mod_work_with_any_strategy(kind, tmp_path):
    weights_seen, trained_on = [], []

    class Spy(kind):
        def aggregate_train(self, server_round, replies):
            replies = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
            assert not [reply.error.reason for reply in replies if reply.has_error()]
            metrics = [reply.content["metrics"] for reply in replies]
            weights_seen.append([m["num-examples"] for m in metrics])
            trained_on.append([m["trained-on"] for m in metrics])
            return super().aggregate_train(server_round, replies)

    def main(grid):
        strategy = Spy(fraction_train=1.0, fraction_evaluate=0.0)
        first = ArrayRecord({"w": Array(np.zeros((SIDE * SIDE + 1, CLASSES)))})
        return strategy.start(grid=grid, initial_arrays=first, num_rounds=4)

    result = run_on_backend("inline", client_app(tmp_path), CLIENTS, 1, main)
    real = [len(real_labels(client)) for client in range(CLIENTS)]
    assert weights_seen == [real] * 4
    assert all(n > N for n, N in zip(trained_on[0], real, strict=True))
    weights = result.arrays["w"].numpy()
    assert np.isfinite(weights).all()
    assert weights.any()
