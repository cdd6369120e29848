"""Label counts and tables made by hypothesis.

There are empty clients, absent classes, single samples and large ones; ties, gaps and constants.
"""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedeas import LabelCounts
from fedeas.data import Column, Schema

cells = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 300), st.integers(0, 10**6))
shapes = st.tuples(st.integers(1, 7), st.integers(2, 6))
matrices = arrays(np.int64, shapes, elements=cells).filter(lambda n: n.sum() > 0)
counts = matrices.map(LabelCounts)
totals = st.one_of(st.integers(0, 50), st.integers(0, 100_000))
betas = st.floats(0.01, 200)


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
            own = draw(arrays(np.float32, size, elements=st.integers(0, levels - 1)))
        elif kind == "whole":
            columns.append(Column(str(place), whole=True))
            own = draw(arrays(np.float32, size, elements=st.integers(-50, 50)))
        else:
            columns.append(Column(str(place)))
            own = draw(arrays(np.float32, size, elements=st.floats(-1e6, 1e6, width=32)))
        gaps = draw(arrays(bool, size)) if draw(st.booleans()) else np.zeros(size, bool)
        values.append(np.where(gaps, np.nan, own))
    return Schema(tuple(columns)), np.column_stack(values).astype(np.float32)
