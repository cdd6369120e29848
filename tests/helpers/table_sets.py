"""Small tables for tests that train: numbers, whole numbers, categories and gaps."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedeas.data import Column, Dataset, Schema

CLASSES = ("high", "low", "middle")  # in the order of their labels
HOMES = ("own", "rent", "with family")
SCHEMA = Schema((Column("age", whole=True), Column("income"), Column("home", HOMES)))


def draw_rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of three classes, as a data set holds them; labels count 0, 1, 2, 0, ..."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    age = np.round(rng.normal(30 + 15 * labels, 6))
    income = rng.normal(1000 * (1 + (labels == 1)), 200)
    income[rng.random(count) < 0.2] = np.nan
    home = np.where(rng.random(count) < 0.8, labels, rng.integers(0, 3, count)).astype(float)
    home[rng.random(count) < 0.1] = np.nan
    return np.stack([age, income, home], axis=1).astype(np.float32), labels


def to_table(rows: np.ndarray, labels: np.ndarray) -> pa.Table:
    """Write rows as people have them: names for codes, nothing for gaps."""
    age, income, home = rows.astype(float).T
    columns = {
        "age": age.astype(int),
        "income": pa.array(income, from_pandas=True),
        "home": [None if np.isnan(code) else HOMES[int(code)] for code in home],
        "label": [CLASSES[label] for label in labels],
    }
    return pa.table(columns)


def write_rows(folder: Path, train: int, test: int) -> Path:
    """Write a table as two Parquet files, one for testing."""
    if not folder.exists():
        folder.mkdir(parents=True)
        rows, labels = draw_rows(train + test)
        for part, chosen in (("train", slice(train)), ("test", slice(train, None))):
            path = folder / f"{part}-00000-of-00001.parquet"
            pq.write_table(to_table(rows[chosen], labels[chosen]), path)
    return folder


def data_of(folder: Path, size: int = 4000) -> Dataset:
    """Write a decoded data set of rows without a test part."""
    rows, labels = draw_rows(size)
    return Dataset.write(
        folder, "people", CLASSES, (size, 0), iter([(rows, labels)]), "", "table", SCHEMA
    )
