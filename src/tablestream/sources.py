"""Sources: a change log becomes a table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from tablestream.arguments import ColumnLike, as_column, as_condition, checked_name, listed, names, sql_text
from tablestream.calling import user_line
from tablestream.errors import ArgumentError
from tablestream.spark.sources import Description, describe
from tablestream.table import GlobalTable, Table
from tablestream.topology.nodes import Source


def table(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike],
    *,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    order_by: ColumnLike | None = None,
    name: str | None = None,
) -> Table:
    """Read a change log as a table: the last record of a key is its row.

    Parameters
    ----------
    df
        A streaming DataFrame: files, Kafka, Delta, or any other source.
    key
        The column or columns that identify a row. An expression needs an alias. A record with a null in its key
        is dropped and counted.
    timestamp
        When the change happened, of type timestamp. Default: Kafka's ``timestamp`` column, else the time of the
        micro-batch. A record without a time is dropped and counted.
    apply_as_deletes
        Says which records are tombstones: the row of their key is gone. A SQL string or a Column.
    columns, except_columns
        The columns of the value, or those to leave out; a single one or a list. Default: all but the key's.
    order_by
        An expression (a log sequence number, an offset) that puts the records in order, in place of their time.
        All tables of a plan give one, of one type, or none does.
    name
        For `Table.explain`, metrics and errors, and part of what makes a restarted plan the same plan.

    Returns
    -------
    Table

    Raises
    ------
    ArgumentError
        The frame does not stream, a timestamp has another type, a part of the key is an expression without an
        alias, an argument is of another kind.
    PlanError
        A column is not there.
    ColumnCollisionError
        Two columns of the key, or two of the value, have one name.
    UnsupportedTypeError
        A column has a type that cannot be carried unchanged (variant, year-month interval), or cannot be a key
        (map). The message names the column.
    ReservedNameError
        A column is called ``_change_type``, ``_timestamp``, ``_order`` or ``_is_latest``.

    Notes
    -----
    Records of one micro-batch are ordered by (running maximum of the time within their source partition, source,
    source partition, position). A source partition is a topic partition or a file. See ``docs/semantics.md``.

    Examples
    --------
    >>> import tablestream as ts
    >>> clicks = spark.readStream.format("rate").load()  # doctest: +SKIP
    >>> latest = ts.table(clicks, key="value", timestamp="timestamp", name="clicks")  # doctest: +SKIP
    """
    where, shown = user_line(), checked_name(name) or "table"
    if not isinstance(df, DataFrame):
        raise ArgumentError(
            f"A table is made from a streaming DataFrame, not from a {type(df).__name__}.",
            hint="Read one with spark.readStream, or with tablestream.read_files.",
            operator=shown,
            where=where,
        )
    keys = tuple(as_column(one) for one in listed(key))
    if not keys:
        raise ArgumentError(
            "A table needs a key.", hint="Give key= at least one column.", operator=shown, where=where
        )
    if columns is not None and except_columns is not None:
        raise ArgumentError(
            "columns= and except_columns= are both given.", hint="Give one.", operator=shown, where=where
        )
    described = describe(
        df,
        Description(
            name=shown,
            where=where,
            key=keys,
            timestamp=None if timestamp is None else as_column(timestamp),
            deletes=None if apply_as_deletes is None else as_condition(apply_as_deletes),
            deletes_sql=sql_text(apply_as_deletes),
            columns=None if columns is None else tuple(as_column(one) for one in listed(columns)),
            except_columns=names([] if except_columns is None else except_columns, shown, where),
            order_by=None if order_by is None else as_column(order_by),
        ),
    )
    node = Source(
        name=shown,
        where=where,
        key=described.key,
        value=described.value,
        frame=described.frame,
        text=described.text,
        ordered_by=described.ordered_by,
    )
    return Table(node, df.sparkSession)


def global_table(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike],
    *,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    order_by: ColumnLike | None = None,
    name: str | None = None,
) -> GlobalTable:
    """Read a change log as a table that is copied to every shard.

    For small tables that many rows point at. Its state is kept once per shard, so `shards` times in all, and each of
    its changes goes to every shard. ``left.join(it, on=...)`` reacts to changes of both sides, which Kafka Streams'
    tables cannot (KIP-314); the word that makes the same join a distributed one is `table`.

    Parameters
    ----------
    df, key, timestamp, apply_as_deletes, columns, except_columns, order_by, name
        As for `table`.

    Returns
    -------
    GlobalTable
        The right side of `Table.join`.
    """
    made = table(
        df,
        key,
        timestamp=timestamp,
        apply_as_deletes=apply_as_deletes,
        columns=columns,
        except_columns=except_columns,
        order_by=order_by,
        name=name,
    )
    return GlobalTable(made._node, made._spark)  # noqa: SLF001 - a handle of the same node
