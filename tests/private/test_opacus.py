"""Private samples before DP-SGD, as the page about Opacus shows it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from fedeas.data import Dataset

EXAMPLE = Path(__file__).parents[2] / "examples" / "opacus_balanced.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Opacus's own
def test_the_example_of_opacus_learns_within_both_epsilons(tmp_path):
    pytest.importorskip("opacus", reason="pip install opacus")
    spec = importlib.util.spec_from_file_location("opacus_balanced", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [900, 600, 300])
    pixels = rng.normal(40 + 80 * labels[:, None, None, None], 20, (len(labels), 12, 12, 1))
    images = pixels.clip(0, 255).astype(np.uint8)
    classes = ("dark", "grey", "light")
    data = Dataset.write(tmp_path, "blobs", classes, (len(labels), 0), iter([(images, labels)]))
    torch.manual_seed(0)
    model = example.small_cnn((12, 12, 1), 3)
    model, epsilon = example.train(data, np.arange(len(labels)), model)
    assert 2.9 < epsilon <= 3.01  # 1 for the generator, up to 2 for DP-SGD
    with torch.no_grad():
        right = [
            (model.eval()(x).argmax(1) == y).float() for x, y in example.loader_of(images, labels)
        ]
    assert torch.cat(right).mean() > 0.6  # the largest class has half of the samples
