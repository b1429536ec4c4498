"""How keys become numbers."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.state.changes import number_keys

NAN = float("nan")


@given(
    parts=st.lists(
        st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, NAN, 0.0, 1.0, 2.0]))),
        min_size=1,
        max_size=3,
    )
)
def test_rows_of_one_key_have_one_number_and_others_have_others(
    parts: list[list[tuple[int | None, float | None]]],
) -> None:
    """Also if keys share a hash, if the hash is null, and if the key is null or NaN."""
    frames = [pl.DataFrame(part, {"_kh": pl.Int64, "_k0": pl.Float64}, orient="row") for part in parts]
    # Equal keys have equal hashes: the hash of a key is that of its first row.
    first: dict[str, int | None] = {}
    for part in parts:
        for hashed, key in part:
            first.setdefault(str(key), hashed)
    frames = [
        frame.with_columns(pl.Series("_kh", [first[str(key)] for key in frame["_k0"]], dtype=pl.Int64))
        for frame in frames
    ]
    numbers = [number for part in number_keys("_kh", ["_k0"], frames) for number in part.tolist()]
    names = [str(key) for frame in frames for key in frame["_k0"]]
    assert len(set(zip(names, numbers, strict=True))) == len(set(names)) == len(set(numbers))
    assert set(numbers) <= set(range(len(set(names))))


@pytest.mark.parametrize("keys", [(1.0, NAN), (NAN, 1.0), (None, NAN)])
def test_nan_is_found_among_keys_that_share_a_hash(keys: tuple[float | None, float]) -> None:
    frames = [pl.DataFrame({"_kh": [0], "_k0": [key]}, {"_kh": pl.Int64, "_k0": pl.Float64}) for key in keys]
    assert [part.tolist() for part in number_keys("_kh", ["_k0"], frames)] == [[0], [1]]
