"""Tables as data sets: their schema, how they are read, split and stored."""

import json

import numpy as np
import pytest

from fedeas import InputError
from fedeas.data import Column, Dataset, Schema

SCHEMA = Schema((Column("age", whole=True), Column("home", ("own", "rent")), Column("income")))
ROWS = np.array([[30, 1, 5.5], [np.nan, 0, np.nan], [41, np.nan, -2.0]], np.float32)


def write(folder, schema=SCHEMA, rows=ROWS):
    batches = iter([(rows, np.array([0, 1, 0]))])
    return Dataset.write(folder, "t", ("a", "b"), (2, 1), batches, kind="table", schema=schema)


def test_a_schema_survives_json_and_is_stored_with_its_data_set(tmp_path):
    assert Schema.from_list(json.loads(json.dumps(SCHEMA.to_list()))) == SCHEMA
    data = write(tmp_path / "set")
    assert data.schema == Dataset.open(tmp_path / "set").schema == SCHEMA
    np.testing.assert_array_equal(data.samples, ROWS)  # gaps are NaN
    assert (SCHEMA.numbers.tolist(), SCHEMA.categorical.tolist()) == ([0, 2], [1])
    assert SCHEMA.whole.tolist() == [0]
    SCHEMA.check(ROWS)


def test_what_codes_stand_for_is_part_of_a_fingerprint(tmp_path):
    other = Schema((SCHEMA.columns[0], Column("home", ("rent", "own")), SCHEMA.columns[2]))
    found = {write(tmp_path / str(i), s).fingerprint for i, s in enumerate((SCHEMA, other, None))}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        (2, 1, "column 'home'.*got 2.0.*a code from 0 to 1"),
        (-1, 1, "a code from 0 to 1"),
        (0.5, 1, "a code from 0 to 1"),
        (30.5, 0, "column 'age'.*a whole number"),
        (np.inf, 2, "row 2, column 'income'"),
    ],
)
def test_rows_that_a_schema_does_not_describe_are_refused(value, place, words):
    rows = ROWS.copy()
    rows[2, place] = value
    with pytest.raises(InputError, match=words):
        SCHEMA.check(rows)


def test_schemas_that_make_no_sense_are_refused(tmp_path):
    for make in (
        lambda: Schema(()),
        lambda: Schema((Column("a"), Column("a"))),
        lambda: Column("a", ("x", "x")),
        lambda: Column("a", ("x\x1b[31m",)),
        lambda: Column(""),
        lambda: Column("a", ("x",), whole=True),
        lambda: Schema.from_list([{"name": "a"}]),
        lambda: Schema.from_list([{"name": "a", "categories": [], "whole": 1}]),
    ):
        with pytest.raises(InputError):
            make()
    with pytest.raises(InputError, match="does not describe"):
        write(tmp_path / "set", Schema(SCHEMA.columns[:2]))
