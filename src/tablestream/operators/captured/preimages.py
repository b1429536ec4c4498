"""Whether a change feed's preimages are the rows of the table: a check to find out where a feed and a table part.

Of each row that a feed says was there before a version, in the order of versions:

=============================================  ============================================================
the table, after the versions before it        effect
=============================================  ============================================================
has the same row under the key                 nothing
has another row under the key, or none         the query ends; of several in a shard, the first is named
=============================================  ============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from tablestream.data_text import cut_text, data_text
from tablestream.errors import CaptureError
from tablestream.operators.captured.capture import CAPTURE, PREIMAGE
from tablestream.operators.cells import cells
from tablestream.operators.events import bools, ints, latest, touched_keys
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, number_keys
from tablestream.state.positions import Bools, Ints, gather, starts

_IS_PREIMAGE = pl.col(CAPTURE).struct.field("op") == PREIMAGE


def checked(
    changes: pl.DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    lookup: Callable[[pl.DataFrame], pl.DataFrame],
) -> pl.DataFrame:
    """Hold the preimages among some changes to the table; return the other changes.

    Parameters
    ----------
    changes
        ``_seq``, ``_kh``, key, ``_live``, ``_capture``, ``v``. The preimages of a version come before its other
        changes.
    keys, columns
        The key columns, and the names of the value's.
    lookup
        The stored rows of some keys: ``_kh``, key, ``_live``, ``v``.

    Raises
    ------
    CaptureError
        A preimage is not the row of the table.
    """
    is_preimage = changes.select(_IS_PREIMAGE.fill_null(value=False).alias("preimage")).to_series()
    if not is_preimage.any():
        return changes
    shown = [KEY_HASH, *keys, LIVE, "v"]
    stored = lookup(touched_keys([changes.filter(is_preimage).select(KEY_HASH, *keys)])).select(shown)
    zero, no = pl.lit(0, pl.Int64).alias(SEQ), pl.lit(value=False).alias("preimage")
    position = pl.col(CAPTURE).struct.field("position").alias("position")
    rows = pl.concat(
        [
            stored.select(zero, *shown, no, pl.lit(None, pl.String).alias("position")),
            changes.select(SEQ, *shown, is_preimage, position),
        ]
    )
    (kid,) = number_keys(KEY_HASH, list(keys), [rows])
    rows = rows.with_columns(kid).sort("_kid", SEQ)
    begins = starts(ints(rows["_kid"]))
    at, said = np.arange(len(begins)), bools(rows["preimage"])
    before = latest(~said, begins)
    before = np.where((before >= 0) & bools(rows[LIVE])[before], before, -1)
    equal = [_same(column, at, before) for column in rows["v"].struct.unnest()]
    wrong = np.flatnonzero(said & ((before < 0) | ~np.logical_and.reduce([at >= 0, *equal])))
    if len(wrong):
        first = int(wrong[np.argmin(ints(rows[SEQ])[wrong])])
        there = None if before[first] < 0 else _named(rows, int(before[first]), columns)
        differ = [name for name, same in zip(columns, equal, strict=True) if not same[first]]
        key = ", ".join(str(_cell(rows[name], first)) for name in keys)
        version = int(rows["position"][first].partition(":")[0])
        raise _differs(key, version, differ, _named(rows, first, columns), there)
    return changes.filter(~is_preimage)


def _same(values: pl.Series, one: Ints, other: Ints) -> Bools:
    """Whether the values at some positions are equal."""
    return bools(gather(values, one).eq_missing(gather(values, other)))


def _named(rows: pl.DataFrame, place: int, columns: Sequence[str]) -> dict[str, object]:
    """The values of a row under the names that users know."""
    parts = rows["v"].struct.unnest()
    return {name: _cell(part, place) for name, part in zip(columns, parts, strict=True)}


def _cell(values: pl.Series, place: int) -> object:
    """The value at a position, in a form that always exists."""
    return cells(values[place : place + 1])[0]


def _differs(
    key: str,
    version: int,
    differ: Sequence[str],
    preimage: Mapping[str, object],
    row: Mapping[str, object] | None,
) -> CaptureError:
    """The error for a preimage that is not the row of the table; `differ`: in which columns."""
    what = "the table has no row with this key"
    if row is not None:
        what = "; ".join(
            f"{name} was {data_text(preimage[name])} in the feed and is {data_text(row[name])} in the table"
            for name in differ
        )
    return CaptureError(
        f"Version {version} of the feed changed or deleted the row with the key {cut_text(key)}, and its preimage is"
        f" not the row of the table: {what}.",
        hint="Was the feed read from the table's first version, and is the key unique? If so, changes are missing or"
        " came twice: start with a new checkpoint. Without check_preimages= the query goes on.",
    )
