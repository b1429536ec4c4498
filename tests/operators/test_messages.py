"""What an input's columns say of how they are filled."""

from __future__ import annotations

import pickle

import polars as pl

from tablestream.operators.operator import Filled, Messages, filled_of, keyed_rows
from tablestream.state.changes import LIVE

SEQUENCE = Filled(pl.Int64(), "__sequence")
LIVE_ROWS = Filled(pl.Boolean(), "CASE WHEN __op = 'read' THEN {there} END")


def test_a_column_carries_its_dtype_and_the_sql_that_fills_it() -> None:
    schema = keyed_rows(pl.Schema({"_k0": pl.String()}), {LIVE: LIVE_ROWS, "_sq": SEQUENCE, "v": pl.Int8()})
    assert dict(schema.items()) == {
        "_kh": pl.Int64(), "_k0": pl.String(), "_ts": pl.Int64(), "_live": pl.Boolean(), "_sq": pl.Int64(),
        "v": pl.Int8(),
    }  # fmt: skip
    assert filled_of(schema) == {LIVE: LIVE_ROWS, "_sq": SEQUENCE}


def test_other_columns_have_their_usual_content() -> None:
    assert filled_of(pl.Schema({"_k0": pl.String()})) == {}
    assert filled_of(keyed_rows(pl.Schema(), {"v": pl.Int8()})) == {}


def test_a_pickled_schema_is_the_same() -> None:
    schema = Messages({"_sq": SEQUENCE, "v": pl.Int8()})
    again = pickle.loads(pickle.dumps(schema))  # noqa: S301 - its own
    assert again == schema
    assert filled_of(again) == filled_of(schema)
