"""A streaming frame of a table's changes: the columns of the table, and what the feed says of each change.

======================================  ============================================================================
``_change_type``                        it is
======================================  ============================================================================
``insert``, ``update_postimage``        the row that the version leaves
``delete``, ``update_preimage``         a row that was there before the version; it is first of its key in the version
any other                               an error
======================================  ============================================================================

The last change of a key in a version counts. So a preimage is a delete only of a key that the update took away.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tablestream.connectors.capture_column import capture_column
from tablestream.connectors.files import with_note
from tablestream.connectors.sink import quoted
from tablestream.operators.captured.capture import DELETE, UPSERT

CHANGE_FEED = "_change_feed"
TYPE, VERSION, TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_NEW, _OLD = ("insert", "update_postimage"), ("delete", "update_preimage")
_DIGITS = 20


def of_feed(feed: DataFrame) -> DataFrame:
    """Put what the feed says of each change into one column.

    Parameters
    ----------
    feed
        The columns of the table, ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

    Returns
    -------
    DataFrame
        The columns of the table, and ``_change_feed``.
    """
    columns = [name for name in feed.columns if name not in {TYPE, VERSION, TIMESTAMP}]
    frame = feed.select(*(F.col(quoted(name)) for name in columns), _said().alias(CHANGE_FEED))
    return with_note(frame, CHANGE_FEED, CHANGE_FEED, note=True)


def _said() -> Column:
    """What the feed says of a change."""
    kind = F.col(TYPE)
    version = F.lpad(F.col(VERSION).cast("string"), _DIGITS, "0")
    capture = capture_column(
        op=F.when(kind.isin(*_NEW), F.lit(UPSERT)).when(kind.isin(*_OLD), F.lit(DELETE)),
        position=F.concat_ws(":", version, F.lit("0" * _DIGITS)),
        partition=F.lit(0),
        added=F.lit(False),
    )
    unknown = ~kind.isin(*_NEW, *_OLD) | kind.isNull() | F.col(VERSION).isNull()
    problem = F.concat_ws(
        " ", F.lit("_change_type:"), kind, F.lit("_commit_version:"), F.col(VERSION).cast("string")
    )
    return F.struct(
        F.concat_ws(":", version, F.when(kind.isin(*_NEW), "1").otherwise("0")).alias("order"),
        F.col(TIMESTAMP).cast("timestamp").alias("timestamp"),
        F.when(unknown, problem).alias("unknown"),
        capture.alias("capture"),
    )
