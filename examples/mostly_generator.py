"""Rows from MOSTLY AI's engine (`pip install mostlyai-engine`), as a generator of fedeas.

The engine trains an autoregressive network on a table, in minutes instead of milliseconds, and
learns what means and covariances do not say. It does not draw the same rows from the same seeds
again: what is in a cache stays, and what is missing is drawn anew. Train it where you use it: its
files are pickles.

    generator = Mostly.fit(data, minutes=5)
    fedeas.fill(plan, generator, fedeas.Cache("cache", generator, data.classes))
"""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data import Dataset, Schema

LABEL = "fedeas label"


class Mostly:
    """Draws rows of the requested class from a trained TabularARGN."""

    least_batch = 4096  # of rows: a call takes seconds, however few they are

    def __init__(self, model: Any, schema: Schema, classes: tuple[str, ...], folder: Path) -> None:
        self._model, self.schema, self.classes = model, schema, classes
        weights = (folder / "ModelStore" / "model-data" / "model-weights.pt").read_bytes()
        self.fingerprint = f"mostly-{hashlib.sha256(weights).hexdigest()[:32]}"

    @classmethod
    def fit(cls, data: Dataset, minutes: float = 5.0, seed: int = 0) -> "Mostly":
        """Train it on the training rows of a table."""
        import pandas as pd
        from mostlyai.engine import TabularARGN

        schema = data.schema
        if schema is None:
            raise ValueError("not a table")
        rows = np.asarray(data.samples[: data.train_size])
        frame = pd.DataFrame({c.name: _values(rows[:, i], c) for i, c in enumerate(schema.columns)})
        frame[LABEL] = np.array(data.classes)[np.asarray(data.train_labels)]
        folder = Path(tempfile.mkdtemp())
        model = TabularARGN(
            max_training_time=minutes, device="cpu", random_state=seed, workspace_dir=folder
        )
        return cls(model.fit(frame), schema, data.classes, folder)

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Return a row for every label."""
        import pandas as pd

        digest = hashlib.sha256(np.ascontiguousarray(seeds).tobytes()).digest()
        self._model.random_state = int.from_bytes(digest[:4], "little") >> 1
        wanted = pd.DataFrame({LABEL: np.array(self.classes)[labels]})
        made = self._model.sample(seed_data=wanted, rare_category_replacement_method="sample")
        rows = np.empty((len(labels), len(self.schema)), np.float32)
        for at, column in enumerate(self.schema.columns):
            values = made[column.name]
            if column.categories:
                known = pd.Categorical(values.astype("object"), categories=column.categories)
                rows[:, at] = np.where(known.codes < 0, np.nan, known.codes)
            else:
                numbers = pd.to_numeric(values).to_numpy(np.float64, na_value=np.nan)
                rows[:, at] = np.rint(numbers) if column.whole else numbers
        return rows


def _values(column: NDArray[np.float32], about: Any) -> Any:
    """Return a column as a frame holds it: numbers, or texts and None."""
    if not about.categories:
        return column.astype(np.float64)
    return [None if np.isnan(code) else about.categories[int(code)] for code in column.tolist()]
