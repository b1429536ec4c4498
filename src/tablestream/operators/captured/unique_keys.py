"""Whether the key of a change feed is one: no two rows of the table may have it.

=========================================================  ==========================================================
of one key, a version has                                  then the key has several rows
=========================================================  ==========================================================
several rows that it leaves, or several that it found      they are rows of one moment
an ``insert``, and no row that it found                    if the table has a row after the versions before it
=========================================================  ==========================================================

The query ends. Otherwise the delete of one of the rows would delete the key, whose other rows are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from tablestream.data_text import data_text
from tablestream.errors import CaptureError
from tablestream.operators.captured.capture import CAPTURE, DELETE, UPSERT
from tablestream.operators.captured.captured_rows import AT
from tablestream.operators.cells import cells
from tablestream.state.changes import KEY_HASH, LIVE, SEQ

_SAID = pl.col(CAPTURE).struct
_OP, _POSITION = _SAID.field("op"), _SAID.field("position")


def check_unique(
    changes: pl.DataFrame, keys: Sequence[str], lookup: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    """Look for a key with several rows.

    Parameters
    ----------
    changes
        ``_seq``, ``_kh``, key, ``_capture``; of a feed.
    keys
        The key columns.
    lookup
        The stored rows of some keys.

    Raises
    ------
    CaptureError
        A key has several rows.
    """
    one = [KEY_HASH, *keys]
    versions = changes.group_by(*one, _POSITION.alias(AT)).agg(
        pl.col(SEQ).min(),
        (_OP == UPSERT).sum().alias("left"),
        (_OP == DELETE).sum().alias("found"),
        (_SAID.field("number") == 0).any().fill_null(value=False).alias("inserted"),
    )
    several = versions.filter((pl.col("left") > 1) | (pl.col("found") > 1))
    _refuse(several, keys)
    alone = versions.filter(pl.col("inserted") & (pl.col("found") == 0))
    if alone.is_empty():
        return
    stored = lookup(alone.select(one).unique()).select(*one, AT, LIVE, pl.lit(0, pl.Int64).alias(SEQ))
    known = pl.concat([stored, versions.select(*one, AT, (pl.col("left") > 0).alias(LIVE), SEQ)])
    before = known.sort(SEQ).with_columns(
        pl.col(name).shift(1).over(one).alias(f"{name}_before") for name in (AT, LIVE)
    )
    again = (pl.col(f"{AT}_before") == pl.col(AT)).fill_null(value=False)
    _refuse(
        alone.join(
            before.filter(pl.col(f"{LIVE}_before").fill_null(value=False) & ~again & (pl.col(SEQ) > 0)),
            on=[*one, AT],
            how="semi",
            nulls_equal=True,
        ),
        keys,
    )


def _refuse(wrong: pl.DataFrame, keys: Sequence[str]) -> None:
    """Raise for the first of some versions of keys, if there is one."""
    if wrong.is_empty():
        return
    first = wrong.sort(SEQ).head(1)
    key = ", ".join(data_text(cells(first[name])[0]) for name in keys)
    version = int(first[AT][0].partition(":")[0])
    raise CaptureError(
        f"The feed has several rows with the key {key} in version {version}: key= does not identify a row.",
        hint="Give key= the columns that identify a row; or remove the duplicates from the table, and start with a new"
        " checkpoint.",
    )
