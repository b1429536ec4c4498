"""Approximate aggregates of records: sketches, to which values are added and from which none can be removed.

==========================  =========================================================  ===============================
function                    result                                                     remembered
==========================  =========================================================  ===============================
``COUNT_DISTINCT``          about how many different values that are not null          a HyperLogLog sketch
``PERCENTILE``              about the value with a share of the values at or below it;  a t-digest
.                           null if there is none
==========================  =========================================================  ===============================

References
----------
Flajolet et al., "HyperLogLog" (2007); Dunning, Ertl, "Computing extremely accurate quantiles using t-digests"
(2019); Apache DataSketches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import datasketches
import polars as pl

from tablestream.operators.reduce.accumulated import OneByOne, Taking
from tablestream.operators.reduce.collected import hashable

#: The resolution of a t-digest. Unlike other quantile sketches it draws no random numbers, so replays agree.
_COMPRESSION = 200


class Sketch(Enum):
    """Which estimate."""

    COUNT_DISTINCT = "approx_count_distinct"
    PERCENTILE = "approx_percentile"


@dataclass(frozen=True)
class Sketched(OneByOne):
    """An approximate aggregate of a column of records."""

    sketch: Sketch
    """Which estimate."""
    column: str
    parameter: float
    """The relative standard deviation of a count, or the share of a percentile."""
    into: pl.DataType
    """The dtype of the result."""

    @property
    def result(self) -> pl.DataType:
        return self.into

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"sketch": pl.Binary()}

    def began(self, stored: bytes | None) -> Taking:
        kind = _Distinct if self.sketch is Sketch.COUNT_DISTINCT else _Percentile
        return kind(self.parameter, stored)


class _Distinct:
    """Estimates how many different values there are."""

    def __init__(self, deviation: float, stored: bytes | None) -> None:
        bits = math.ceil(2 * math.log2(1.04 / deviation))
        fresh = datasketches.hll_sketch(min(max(bits, 4), 21), datasketches.tgt_hll_type.HLL_8)
        self._sketch = fresh if stored is None else datasketches.hll_sketch.deserialize(stored)

    def take(self, value: Any) -> None:
        if value is None:
            return
        # The library ignores empty strings.
        text = f"={value}" if isinstance(value, str) else repr(hashable(value))
        self._sketch.update(value if isinstance(value, int) else text)

    def result(self) -> int:
        return round(float(self._sketch.get_estimate()))

    def stored(self) -> bytes:
        return bytes(self._sketch.serialize_compact())


class _Percentile:
    """Estimates the value at a share of all values."""

    def __init__(self, share: float, stored: bytes | None) -> None:
        self._share = share
        fresh = datasketches.tdigest_double(_COMPRESSION)
        self._sketch = fresh if stored is None else datasketches.tdigest_double.deserialize(stored)

    def take(self, value: Any) -> None:
        if value is not None and not math.isnan(value):
            self._sketch.update(float(value))

    def result(self) -> float | None:
        return None if self._sketch.is_empty() else float(self._sketch.get_quantile(self._share))

    def stored(self) -> bytes:
        return bytes(self._sketch.serialize())
