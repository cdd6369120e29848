"""Columns that name a row: no synthetic row has a real one's name, wherever it is made."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedeas import FedEASSampler, InputError, augment, load_table
from fedeas.generators import Gaussian

REAL, RNG = 200, np.random.default_rng(0)
LABELS = np.repeat(["neg", "pos"], [185, 15])
AGES = RNG.poisson(50, REAL)
NAMES = [f"P{number:05d}" for number in range(REAL)]
NUMBERS = RNG.permutation(REAL) + 5000  # follow each other, in any order
SPARSE = RNG.permutation(REAL) * 7 + 11  # told by the column's name alone
GENERATORS = ("gaussian", "smote", "copies")


def sampled(data, generator):
    return FedEASSampler(beta=12, random_state=0, generator=generator).fit_resample(data, LABELS)[0]


@pytest.fixture(params=["sampler", "augment"])
def made(request, tmp_path):
    """Return the data with synthetic rows at its end."""
    if request.param == "sampler":
        return sampled
    return lambda data, generator: augment(
        data,
        labels=LABELS,
        generator=generator,
        beta=12,
        cache=tmp_path,
        progress=False,
        client="client",
    )[0]


def frame(ids, name="patient"):
    return pd.DataFrame({"age": AGES, name: ids, "sex": np.resize(["f", "m"], REAL)})


HOLDERS = {
    "texts": frame(NAMES),
    "categories": frame(pd.Categorical(NAMES)),
    "polars": pl.DataFrame({"age": AGES, "patient": NAMES}),
    "objects": frame(NAMES).to_numpy(object),
    "numbers": frame(pd.array(NUMBERS, dtype="Int64"), "visit"),
    "floats": frame(SPARSE.astype(float), "patient_id"),
    "several rows of a person": frame([f"P{number // 2:05d}" for number in range(REAL)], "code"),
    "many rows of a person": frame([f"P{number // 6:05d}" for number in range(REAL)]),
    "whole numbers": frame(SPARSE.astype(np.int64), "patientId"),
    "numbers of persons": frame(
        pd.array(np.arange(REAL) // 6 * 7 + 9, dtype="Int64"), "patient_id"
    ),
    "array": np.column_stack([AGES, NUMBERS]).astype(float),
}


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("kind", HOLDERS)
def test_a_column_that_names_rows_is_refused(kind, generator, made):
    data = HOLDERS[kind]
    name = "1" if isinstance(data, np.ndarray) else data.columns[1]
    with pytest.raises(InputError, match=f"column '{name}' names its rows.*drop the column"):
        made(data, generator)


def test_a_number_that_happens_to_be_different_in_every_row_is_a_number(made):
    data = frame(SPARSE.astype(np.int64), "income")
    assert made(data, "gaussian")["income"][REAL:].notna().all()


def test_a_generator_of_a_federation_does_not_know_names(made, tmp_path):
    """It was fitted to a table without them, and the client's frame has them."""
    fitted = load_table(frame(NAMES).assign(label=LABELS), store=tmp_path / "store")
    assert fitted.schema.names == ("age", "sex")
    generator = Gaussian.fit(
        fitted.samples, np.asarray(fitted.labels), fitted.classes, fitted.schema
    )
    with pytest.raises(InputError, match="'patient' names its rows"):
        made(frame(NAMES), generator)
    more = made(frame(NAMES).drop(columns="patient"), generator)
    assert more["sex"][REAL:].notna().all()


@pytest.mark.parametrize(("ids", "name"), [(NAMES, "p"), (NUMBERS, "visit"), (SPARSE, "mrn")])
def test_a_table_is_learnt_without_them(ids, name, tmp_path):
    """So no generator of a run and no private one, `own`, ever sees them."""
    table = frame(ids, name).assign(label=LABELS)
    data = load_table(table, store=tmp_path / "store")
    assert data.schema.names == ("age", "sex")
    assert any(note.startswith(f"{name} is left out") for note in data.notes)


def test_names_are_no_categories_even_if_asked_for(tmp_path):
    table = frame(NAMES).assign(label=LABELS)
    with pytest.raises(InputError, match="'patient'"):
        load_table(table, categories=["patient"], store=tmp_path / "store")
    agreed = tmp_path / "agreed.json"
    listed = ", ".join(f'"{name}"' for name in NAMES)
    agreed.write_text(f'[{{"name": "patient", "categories": [{listed}], "whole": false}}]')
    with pytest.raises(InputError, match="'patient'"):
        load_table(table, schema=agreed, store=tmp_path / "store")


def test_a_gaussian_is_not_fitted_to_numbers_of_rows():
    rows, labels = np.column_stack([AGES, NUMBERS]).astype(np.float32), np.arange(REAL) % 2
    with pytest.raises(InputError) as refused:
        Gaussian.fit(rows, labels, ("a", "b"))
    assert refused.value.got == "column 1"
    Gaussian.fit(rows[:, :1], labels, ("a", "b"))
