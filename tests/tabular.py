"""Small tables for tests, and hypothesis strategies for them."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

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


@st.composite
def tables(draw) -> tuple[Schema, np.ndarray]:
    """A schema and rows of it: any numbers, ties, gaps, columns of one value."""
    size = draw(st.integers(1, 60))
    columns, values = [], []
    for place in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["number", "whole", "category"]))
        if kind == "category":
            levels = draw(st.integers(1, 4))
            columns.append(Column(str(place), tuple("abcd"[:levels])))
            own = draw(arrays.arrays(np.float32, size, elements=st.integers(0, levels - 1)))
        elif kind == "whole":
            columns.append(Column(str(place), whole=True))
            own = draw(arrays.arrays(np.float32, size, elements=st.integers(-50, 50)))
        else:
            columns.append(Column(str(place)))
            own = draw(arrays.arrays(np.float32, size, elements=st.floats(-1e6, 1e6, width=32)))
        gaps = draw(arrays.arrays(bool, size)) if draw(st.booleans()) else np.zeros(size, bool)
        values.append(np.where(gaps, np.nan, own))
    return Schema(tuple(columns)), np.column_stack(values).astype(np.float32)
