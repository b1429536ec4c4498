"""Whether a change feed fits the table: its preimages are the table's rows, and no two rows have one key.

Of each row that a feed with preimages says was there before a version, in the order of versions (`check_preimages`):

=============================================  ============================================================
the table, after the versions before it        effect
=============================================  ============================================================
has the same row under the key                 nothing
has another row under the key, or none         the query ends; of several in a shard, the first is named
=============================================  ============================================================

`check_unique` ends the query as well. Otherwise the delete of one of several rows with a key would delete the key:

=========================================================  ==========================================================
of one key, a version has                                  then the key has several rows
=========================================================  ==========================================================
several rows that it leaves, or several that it found      they are rows of one moment
an ``insert``, and no row that it found                    if the table has a row after the versions before it
=========================================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tablestream.base.data_text import cut_text, data_text
from tablestream.errors import CaptureError
from tablestream.operators.arrangement import Arrangement, TableRows
from tablestream.operators.captured.capture import CAPTURE, DELETE, PREIMAGE, UPSERT
from tablestream.operators.captured.captured_rows import AT
from tablestream.operators.cells import cells
from tablestream.operators.events import bools, existing, ints, pick
from tablestream.state.changes import KEY_HASH, LIVE, SEQ
from tablestream.state.positions import Bools, Ints, gather
from tablestream.state.trace import Trace

_SAID = pl.col(CAPTURE).struct
_OP, _POSITION = _SAID.field("op"), _SAID.field("position")


def check_preimages(changes: pl.DataFrame, columns: Sequence[str], trace: Trace) -> pl.DataFrame:
    """Hold the preimages among some changes to the table; return the other changes.

    `changes`: ``_seq``, ``_kh``, key, ``_live``, ``_capture``, ``v``. The preimages of a version come before its other
    changes. `columns`: the names of the value's columns. `trace`: the rows of the table.
    """
    is_preimage = changes.select((_OP == PREIMAGE).fill_null(value=False)).to_series()
    if not is_preimage.any():
        return changes
    keys = trace.spec.key
    shown = changes.select(
        SEQ, KEY_HASH, *keys, LIVE, "v", _POSITION.alias(AT), is_preimage.alias("preimage")
    )
    table = TableRows.of(trace, _of_keys(shown, shown.filter("preimage"), keys))
    rows, arranged = table.rows, Arrangement.of(table.key, ints(table.rows[SEQ]))
    said = bools(rows["preimage"].fill_null(value=False))
    before = existing(arranged.by_row(arranged.latest(~said[arranged.row])), bools(rows[LIVE]))
    at = np.arange(len(said))
    equal = [_same(column, at, before) for column in rows["v"].struct.unnest()]
    wrong = np.flatnonzero(said & ((before < 0) | ~np.logical_and.reduce([at >= 0, *equal])))
    if len(wrong):
        first = int(wrong[np.argmin(ints(rows[SEQ])[wrong])])
        differ = [name for name, same in zip(columns, equal, strict=True) if not same[first]]
        raise _differs(rows, first, int(before[first]), keys, columns, differ)
    return changes.filter(~is_preimage)


def check_unique(changes: pl.DataFrame, trace: Trace) -> None:
    """Raise if a key has several rows.

    `changes`: ``_seq``, ``_kh``, key, ``_capture``; of a feed. `trace`: the rows of the table.
    """
    keys = trace.spec.key
    versions = changes.group_by(KEY_HASH, *keys, _POSITION.alias(AT)).agg(
        pl.col(SEQ).min(),
        (_OP == UPSERT).sum().alias("left"),
        (_OP == DELETE).sum().alias("found"),
        (_SAID.field("number") == 0).any().fill_null(value=False).alias("inserted"),
    )
    _refuse(versions.filter((pl.col("left") > 1) | (pl.col("found") > 1)), keys)
    alone = pl.col("inserted") & (pl.col("found") == 0)
    versions = versions.with_columns((pl.col("left") > 0).alias(LIVE), alone.alias("alone"))
    table = TableRows.of(trace, _of_keys(versions, versions.filter("alone"), keys))
    arranged = Arrangement.of(table.key, ints(table.rows[SEQ]))
    before = arranged.by_row(arranged.before)
    was = pick(bools(table.rows[LIVE]), before, False)
    again = bools(gather(table.rows[AT], before).eq(table.rows[AT]).fill_null(value=False))
    wrong = bools(table.rows["alone"].fill_null(value=False)) & was & ~again
    _refuse(table.rows.filter(pl.Series(wrong)), keys)


def _of_keys(rows: pl.DataFrame, some: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The rows that have the keys of some."""
    columns = [KEY_HASH, *keys]
    return rows.join(some.select(columns).unique(), on=columns, how="semi", nulls_equal=True)


def _refuse(wrong: pl.DataFrame, keys: Sequence[str]) -> None:
    """Raise for the first of some versions of keys, if there is one."""
    if wrong.is_empty():
        return
    first = wrong.sort(SEQ).head(1)
    key = ", ".join(data_text(_cell(first[name], 0)) for name in keys)
    raise CaptureError(
        f"The feed has several rows with the key {key} in version {_version(first[AT][0])}: key= does not identify a"
        " row.",
        hint="Give key= the columns that identify a row; or remove the duplicates from the table, and start with a new"
        " checkpoint.",
    )


def _version(position: str) -> int:
    """The version of the feed that a position is in."""
    return int(position.partition(":")[0])


def _same(values: pl.Series, one: Ints, other: Ints) -> Bools:
    """Whether the values at some positions are equal."""
    return bools(gather(values, one).eq_missing(gather(values, other)))


def _cell(values: pl.Series, place: int) -> object:
    """The value at a position, in a form that always exists."""
    return cells(values[place : place + 1])[0]


def _differs(
    rows: pl.DataFrame,
    at: int,
    before: int,
    keys: Sequence[str],
    columns: Sequence[str],
    differ: Sequence[str],
) -> CaptureError:
    """The error for a preimage that is not the row of the table, which is at `before`; `differ`: in which columns."""
    what = "the table has no row with this key"
    if before >= 0:
        values = dict(zip(columns, rows["v"].struct.unnest(), strict=True))
        what = "; ".join(
            f"{name} was {data_text(_cell(values[name], at))} in the feed and is"
            f" {data_text(_cell(values[name], before))} in the table"
            for name in differ
        )
    key = ", ".join(str(_cell(rows[name], at)) for name in keys)
    return CaptureError(
        f"Version {_version(rows[AT][at])} of the feed changed or deleted the row with the key {cut_text(key)}, and its"
        f" preimage is not the row of the table: {what}.",
        hint="Was the feed read from the table's first version, and is the key unique? If so, changes are missing or"
        " came twice: start with a new checkpoint. Without check_preimages= the query goes on.",
    )
