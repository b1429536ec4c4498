"""Columns of random or numbered values, as Arrow arrays, for the generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.workload import Numbers


def texts(random: np.random.Generator, lengths: Numbers) -> pa.StringArray:
    """Texts of random letters."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    letters = random.integers(ord("a"), ord("z") + 1, ends[-1], dtype=np.uint8)
    buffers = pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(letters)
    return pa.StringArray.from_buffers(len(lengths), *buffers)


def one_of(random: np.random.Generator, values: Sequence[str], count: int) -> pa.Array:
    """Each of the values equally often."""
    return pa.array(values).take(pa.array(random.integers(0, len(values), count)))


def numbered(prefix: str, numbers: Numbers) -> pa.Array:
    """A prefix and a number of nine digits."""
    digits = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 9, "0")
    return pc.binary_join_element_wise(prefix, digits, "")


def phones(random: np.random.Generator, countries: Numbers) -> pa.Array:
    """Numbers such as 25-989-741-2988."""
    count = len(countries)
    parts = [countries, *(random.integers(100, 1000, count) for _ in range(2))]
    parts.append(random.integers(1000, 10_000, count))
    return pc.binary_join_element_wise(*(pc.cast(pa.array(one), pa.string()) for one in parts), "-")


def decimals(unscaled: Numbers, precision: int, scale: int) -> pa.Array:
    """Decimals by their integers without the point: cents for two digits after it."""
    low = np.asarray(unscaled, np.int64)
    words = np.column_stack([low, low >> 63])
    return pa.Array.from_buffers(
        pa.decimal128(precision, scale), len(low), [None, pa.py_buffer(words.tobytes())]
    )


def days(numbers: Numbers) -> pa.Array:
    """Dates by their days since 1970."""
    return pa.array(np.asarray(numbers, np.int32), pa.date32())
