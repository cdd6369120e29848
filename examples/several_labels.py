"""A federation whose samples have several labels: from counts to a trained model."""

import numpy as np
import pandas as pd

import fedeas
from fedeas.counts.label_sets import name_label_sets
from fedeas.data import federate, open_dataset
from fedeas.generators.gaussian import gaussian_of_dataset
from fedeas.train.loop import scores
from fedeas.train.methods import make_method
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings
from fedeas.train.simulate import simulate

rng = np.random.default_rng(0)
held = rng.integers(0, 2, (900, 2))  # a column per label
table = pd.DataFrame(held + rng.normal(0, 0.7, (900, 2)), columns=["fever", "sound"])
table["label"] = name_label_sets(held, ["flu", "cough"])
table.to_csv("rows.csv", index=False)

data = open_dataset("rows", "rows.csv")
federation = federate(data, fedeas.Dirichlet(clients=5, alpha=0.1))
counts = fedeas.LabelSetCounts.from_counts(federation.counts)
plan = fedeas.plan_label_sets(counts).for_classes(data.classes)
generator = gaussian_of_dataset(data)  # has seen all training rows
clients = []
for part, row in zip(federation.partition.train, plan.samples, strict=True):
    labels = np.repeat(np.arange(len(row)), row)
    drawn = generator.sample(labels, np.arange(len(labels), dtype=np.uint64))
    clients.append(Samples.of(data, part, drawn, labels))
weights = simulate(make_method("fedavg"), clients, "mlp", Local(learning_rate=0.1), rounds=10)
model = make_model(ModelSettings("mlp"), Task.of(data), 0)
model.load_state_dict(weights)
print(scores(model, Samples.of(data, federation.test)))
