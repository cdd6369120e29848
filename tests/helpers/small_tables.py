"""Small tables for tests."""

import numpy as np

from fedeas.data import Column, Schema

SCHEMA = Schema((
    Column("age", whole=True), Column("home", ("own", "rent", "other")), Column("income"),
    Column("late", whole=True), Column("term", ("36", "60")),
))  # fmt: skip


def draw_table(size: int, seed: int = 0, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows of SCHEMA whose columns depend on the class and on each other; incomes have gaps."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, size)
    age = rng.poisson(30 + 8 * labels)
    home = rng.random(size) < 0.2 + 0.2 * labels
    income = np.exp(rng.normal(8 + 0.4 * labels + 0.02 * age, 0.5))
    income[rng.random(size) < 0.05 + 0.1 * labels + 0.2 * home] = np.nan
    late = rng.poisson(0.5 + 0.5 * labels)
    term = np.where(rng.random(size) < 0.1 * labels, np.nan, rng.random(size) < 0.5)
    rows = np.column_stack([age, home + (rng.random(size) < 0.1), income, late, term])
    return rows.astype(np.float32), labels
