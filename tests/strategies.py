"""Label counts made by hypothesis: empty clients, absent classes, single samples and large ones."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedeas import LabelCounts

cells = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 300), st.integers(0, 10**6))
shapes = st.tuples(st.integers(1, 7), st.integers(2, 6))
matrices = arrays(np.int64, shapes, elements=cells).filter(lambda n: n.sum() > 0)
counts = matrices.map(LabelCounts)
totals = st.one_of(st.integers(0, 50), st.integers(0, 100_000))
betas = st.floats(0.01, 200)
