"""Tables from the change feeds of Delta tables, and of others that Spark reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tablestream.arguments.kinds import flag
from tablestream.connectors.delta.source import CHANGE_FEED, TIMESTAMP, TYPE, VERSION, of_feed
from tablestream.errors import ArgumentError
from tablestream.handles.relation import versioned
from tablestream.sources import source_of
from tablestream.spark.given_columns import ColumnLike
from tablestream.tables import Table
from tablestream.topology.graph import CAPTURED, shown_name
from tablestream.topology.nodes import Captured


def from_change_feed(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike],
    *,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    history: str | timedelta | None = None,
    name: str | None = None,
    check_preimages: bool = False,
) -> Table:
    """Read a table from its change feed: Delta's change data feed, or Spark's ``readStream.changes``.

    The table has the rows of the last version that was read. A version that leaves a row as it was emits nothing for
    it, also if it deleted and inserted the row.

    Parameters
    ----------
    df
        The streaming feed: the columns of the table, ``_change_type``, ``_commit_version`` and
        ``_commit_timestamp``. Read it from the table's first version, or without a starting version; otherwise only
        rows that change later are known.
    key
        The column or columns that identify a row.
    columns, except_columns, history, name
        As for `tablestream.table`.
    check_preimages
        Whether to hold each row that the feed says was there before a version (``delete``, ``update_preimage``) to the
        row of the table, and to end the query with `CaptureError` if they differ. It is for finding a fault: such
        rows are sent, and counted, twice. A restart may add it or omit it. `columns` must then be columns of the
        table: what changes between two readings of a row never fits.

    Returns
    -------
    Table
        The rows. The time of a row is that of the commit.

    Raises
    ------
    ArgumentError
        The frame is no change feed, or another argument is invalid.
    UnsupportedTypeError, ColumnCollisionError, ReservedNameError
        As for `tablestream.table`.

    Notes
    -----
    A feed has no order inside a version. The rows that a version leaves (``insert``, ``update_postimage``) replace
    those that it found (``delete``, ``update_preimage``). If an update changes the key, the row under the old key goes.
    Two rows with one key end the query with `CaptureError`, where the feed shows them: in one version, or as an
    ``insert`` of a row whose key is there.

    Examples
    --------
    >>> import tablestream as ts
    >>> feed = spark.readStream.option("readChangeFeed", "true").table("orders")  # doctest: +SKIP
    >>> orders = ts.from_change_feed(feed, key="id")  # doctest: +SKIP
    """
    given: Any = df
    names = given.columns if isinstance(given, DataFrame) else []
    missing = [one for one in (TYPE, VERSION, TIMESTAMP) if one not in names]
    if missing:
        raise ArgumentError(
            f"The frame is no change feed: it has no column {', '.join(missing)}.",
            hint="Read a Delta table with spark.readStream.option('readChangeFeed', 'true').",
            operator=name or "change feed",
        )
    order = F.col(CHANGE_FEED)["order"]
    frame = of_feed(df, check_preimages=flag(check_preimages, "check_preimages"))
    node, _ = source_of(frame, key, name=name, columns=columns, except_columns=except_columns, order_by=order)
    table = Captured(
        name=f"{shown_name(node)}{CAPTURED}",
        where=node.where,
        key=node.key,
        value=node.value,
        parent=node,
        follows_moves=False,
        truncates="drop",
        table=shown_name(node),
        commits=True,
    )
    return Table(versioned(table, history), df.sparkSession)
