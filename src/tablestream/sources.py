"""Sources: a changelog becomes a table, a log of records a stream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame

from tablestream.arguments.kinds import listed
from tablestream.arguments.place import Place
from tablestream.arguments.words import checked_length, checked_name
from tablestream.base.calling import user_line, warn
from tablestream.connectors.source import lost_deletes, own_columns
from tablestream.connectors.workers import use_driver_python
from tablestream.errors import ArgumentError
from tablestream.handles.relation import versioned
from tablestream.spark.analysis import Analysed
from tablestream.spark.given_columns import ColumnLike, as_columns, sql_text
from tablestream.spark.row import Plain
from tablestream.spark.sources import SourceFrame, SourceSpec, frame_of_source, source_of_frame
from tablestream.streams import Stream
from tablestream.tables import GlobalTable, Table
from tablestream.topology.graph import DEDUPLICATED, REORDERED, SEQUENCED, shown_name
from tablestream.topology.nodes import Deduplicate, Node, Reorder, SequenceBy, Source


def table(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike],
    *,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    history: str | timedelta | None = None,
    reorder: str | timedelta | None = None,
    sequence_by: ColumnLike | None = None,
    tombstone_retention: str | timedelta | None = "2 days",
    order_by: ColumnLike | None = None,
    name: str | None = None,
    bootstrap: DataFrame | None = None,
    keep: str | timedelta | None = None,
) -> Table:
    """Read a changelog as a table: the last record of a key is its row.

    Parameters
    ----------
    df
        A streaming DataFrame: files, Kafka, Delta, or any other source.
    key
        The column or columns that identify a row: Columns or strings. A string is the column of that name, if there
        is one, and otherwise a SQL expression; this holds for all arguments. An expression needs an alias. A record
        with a null in its key is dropped and counted.
    timestamp
        When the change happened, of type timestamp. Default: Kafka's ``timestamp`` column, else the time of the
        micro-batch. A row without a time is dropped and counted. A delete needs none, nor what `order_by` and
        `sequence_by` read: it deletes what came before it.
    apply_as_deletes
        The condition for tombstones, which delete the row of their key. A Column or a string.
    columns, except_columns
        The columns of the value, or the columns to exclude; one or a list. Default: all but the key's.
    history
        Makes the table versioned: keeps versions of its rows for this long (``"10 minutes"``) before stream time,
        the largest time that the shard has seen, so that a stream's record can be joined with the version of its
        time. A change older than that is dropped and counted. A change that is late but within the history becomes
        a version between others, not the latest: joins and groups ignore it.
    reorder
        Buffers records for this long (``"30 seconds"`` of event time) and sorts them by (time, key, arrival), in
        each shard, so that each key is in order afterwards. Records later than that are passed on at once and
        counted (``late``).
    sequence_by
        The row with the highest value of this expression wins, in whatever order records arrive; of equal ones the
        last. A change below its row's value is dropped and counted (``superseded``), and so is one without a value
        (``null-sequence``). A delete without a value deletes what there is. Cannot be combined with `history` or
        `reorder`.
    tombstone_retention
        How long the sequence of a deleted row is remembered, in event time; None: for ever.
    order_by
        An expression that orders the records instead of their time, such as a log sequence number or an offset. All
        tables of a plan have one, with the same type, or none has.
    name
        Used in `Table.explain`, metrics and errors. It also identifies the table when a plan is restarted.
    bootstrap
        A batch DataFrame with the rows that the table starts with, one row of each key. It has the columns of the
        key and the value, and what `sequence_by` reads; also those of `timestamp` and `apply_as_deletes` if it has
        them: without them a row exists, and its time is 1970. `start` evaluates it once and keeps the rows in the
        checkpoint until they are part of the state. The rows of all bootstraps of a query are one step, before
        every record: no result shows a part of them. Let the log begin where the rows were read, or earlier.
    keep
        Only rows of this length of time (``"30 days"``) before stream time, as `Table.keep` does, which
        has more options. Cannot be combined with `history`.

    Returns
    -------
    Table

    Raises
    ------
    ArgumentError
        The frame is not streaming; its rows were shuffled or sorted after they were read and no `order_by` is
        given; the timestamp has another type; a key expression has no alias; an argument has the wrong type;
        `bootstrap` is streaming, or its columns have other types.
    PlanError
        A column does not exist.
    ColumnCollisionError
        Two columns of the key, or two of the value, have the same name.
    UnsupportedTypeError
        The type of a column is not supported (variant, year-month interval), or not as a key (map). The message
        names the column.
    ReservedNameError
        A column is called ``_change_type``, ``_timestamp``, ``_order`` or ``_is_latest``.

    Notes
    -----
    Records of one micro-batch are ordered by (running maximum of the time within their source partition, source,
    source partition, position). A source partition is a topic partition or a file. See
    ``docs/semantics/order-and-time.md``.

    Examples
    --------
    A log whose column ``op`` says what deletes a row:

    >>> import tablestream as ts
    >>> log = ts.testing.frame(spark, "id int, op string, name string")
    >>> users = ts.table(log, "id", apply_as_deletes="op = 'delete'", except_columns="op", name="users")
    >>> users
    Table 'users' [key id: int] [name: string]
    >>> driver = ts.testing.Driver(users)
    >>> driver.pipe("users", [{"id": 1, "op": "insert", "name": "Ada"}, {"id": 1, "op": "delete"}])
    >>> print(driver.run())
    id | name | _change_type | _timestamp
    1  | Ada  | upsert       | 1970-01-01 00:00:00
    1  | null | delete       | 1970-01-01 00:00:00

    A table that starts with rows which a database has, and then follows its log:

    >>> log = ts.from_kafka(spark, "users", key="id int", value="name string",
    ...                     bootstrap_servers="localhost:9092")  # doctest: +SKIP
    >>> rows = spark.read.jdbc("jdbc:postgresql:shop", "users")  # doctest: +SKIP
    >>> users = ts.table(log, "id", name="users", bootstrap=rows)  # doctest: +SKIP
    """
    _check_bootstrap(bootstrap, reorder, name)
    if sequence_by is not None and (history is not None or reorder is not None):
        raise ArgumentError(
            "sequence_by= cannot be combined with history= or reorder=, which go by time.",
            hint="Use one of them.",
            operator=checked_name(name) or "table",
        )
    source, sequence = source_of(
        df,
        key,
        name=name,
        timestamp=timestamp,
        apply_as_deletes=apply_as_deletes,
        columns=columns,
        except_columns=except_columns,
        order_by=order_by,
        sequence_by=sequence_by,
        bootstrap=bootstrap,
    )
    if sequence is not None:
        made = Table(_sequenced(source, sequence, tombstone_retention), df.sparkSession)
    else:
        _warn_of_arrival(source, history, reorder)
        made = Table(versioned(_reordered(source, reorder), history), df.sparkSession)
    return made if keep is None else made.keep(keep)


def global_table(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike],
    *,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    history: str | timedelta | None = None,
    reorder: str | timedelta | None = None,
    order_by: ColumnLike | None = None,
    name: str | None = None,
    bootstrap: DataFrame | None = None,
) -> GlobalTable:
    """Read a changelog as a table with a copy in every shard.

    For small tables that many rows refer to. Its state is kept once per shard, so `shards` times in total, and each
    change goes to every shard. ``left.join(it, on=...)`` reacts to changes of both sides; Kafka Streams does not
    join tables with global tables (KIP-314). Use `table` instead to get the same join, distributed.

    Parameters
    ----------
    df, key, timestamp, apply_as_deletes, columns, except_columns, history, reorder, order_by, name, bootstrap
        As for `table`; Kafka Streams' global tables have no history.

    Returns
    -------
    GlobalTable
        The right side of `Table.join` and `Stream.join`.
    """
    _check_bootstrap(bootstrap, reorder, name)
    source, _ = source_of(
        df,
        key,
        name=name,
        timestamp=timestamp,
        apply_as_deletes=apply_as_deletes,
        columns=columns,
        except_columns=except_columns,
        order_by=order_by,
        bootstrap=bootstrap,
    )
    _warn_of_arrival(source, history, reorder)
    return GlobalTable(versioned(_reordered(source, reorder), history), df.sparkSession)


def stream(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike] | None = None,
    *,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    reorder: str | timedelta | None = None,
    order_by: ColumnLike | None = None,
    name: str | None = None,
) -> Stream:
    """Read a streaming DataFrame as records that stand for themselves, not as upserts.

    Parameters
    ----------
    df
        As for `table`.
    key
        The column or columns of the records' key. It may be null, and you may omit it.
    apply_as_deletes
        The condition for records without a value, which `Stream.to_table` reads as tombstones. A Column or a
        string.
    timestamp, columns, except_columns, reorder, order_by, name
        As for `table`.

    Returns
    -------
    Stream

    Raises
    ------
    ArgumentError, PlanError, ColumnCollisionError, UnsupportedTypeError, ReservedNameError
        As for `table`.

    References
    ----------
    Kafka Streams ``StreamsBuilder.stream``.
    """
    source, _ = source_of(
        df,
        key,
        name=name,
        timestamp=timestamp,
        apply_as_deletes=apply_as_deletes,
        columns=columns,
        except_columns=except_columns,
        order_by=order_by,
        records=True,
    )
    _warn_of_arrival(source, reorder)
    return Stream(_reordered(source, reorder), df.sparkSession)


def _check_bootstrap(bootstrap: DataFrame | None, reorder: str | timedelta | None, name: str | None) -> None:
    """Refuse a bootstrap whose rows would wait for their time."""
    if bootstrap is not None and reorder is not None:
        raise ArgumentError(
            "bootstrap= cannot be combined with reorder=, which would hold its rows back.",
            hint="Omit one of them; history= keeps versions in the order of their times without reorder=.",
            operator=checked_name(name) or "table",
        )


def _warn_of_arrival(source: Node, *lengths: str | timedelta | None) -> None:
    """Warn if `history` or `reorder` uses event time, but the records only have the time of their arrival."""
    frame = source.frame if isinstance(source, Source) else None
    if isinstance(frame, SourceFrame) and frame.arrival and any(length is not None for length in lengths):
        warn(
            f"'{source.name}' ({source.where}) has no timestamp=: its records get the time of their micro-batch, and"
            " history= and reorder= use it. Give timestamp= a column with the time at which they happened."
        )


def _sequenced(source: Node, sequence: Analysed, retention: str | timedelta | None) -> SequenceBy:
    """The source, in which the row with the highest sequence wins."""
    if isinstance(source, Deduplicate):
        raise ArgumentError(
            "sequence_by= cannot be combined with from_kafka(..., deduplicate=True).",
            hint="Omit deduplicate=: a duplicate has the same sequence as its row.",
            operator=shown_name(source),
            where=source.where,
        )
    retention_us = checked_length(retention, "tombstone_retention", Place(source.name, source.where))
    return SequenceBy(
        name=f"{source.name}{SEQUENCED}",
        where=source.where,
        key=source.key,
        value=source.value,
        parent=source,
        sequence=sequence.field,
        text=sequence.text,
        retention_us=retention_us,
    )


def _deduplicated(source: Source) -> Deduplicate:
    """The source without duplicates of its writer. They are recognised in the order of offsets."""
    if source.ordered_by is not None:
        raise ArgumentError(
            "order_by= cannot be combined with from_kafka(..., deduplicate=True).",
            hint="Omit order_by=: the records of a key are in the order of their offsets.",
            operator=source.name,
            where=source.where,
        )
    return Deduplicate(
        name=f"{source.name}{DEDUPLICATED}",
        where=source.where,
        key=source.key,
        value=source.value,
        parent=source,
    )


def _reordered(source: Node, bound: str | timedelta | None) -> Node:
    """The source, sorted by time if `bound` is given."""
    bound_us = checked_length(bound, "reorder", Place(source.name, source.where))
    if bound_us is None:
        return source
    if not source.key:
        raise ArgumentError(
            "reorder= needs a key, and the records have none.",
            hint="Give stream(...) a key=.",
            operator=source.name,
            where=source.where,
        )
    return Reorder(
        name=f"{shown_name(source)}{REORDERED}",
        where=source.where,
        key=source.key,
        value=source.value,
        parent=source,
        bound_us=bound_us,
    )


def source_of(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike] | None,
    *,
    name: str | None,
    records: bool = False,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    order_by: ColumnLike | None = None,
    sequence_by: ColumnLike | None = None,
    bootstrap: DataFrame | None = None,
) -> tuple[Node, Analysed | None]:
    """Create the node of a table or a stream, and the expression that sequences its rows."""
    kind = "stream" if records else "table"
    where, shown = user_line(), checked_name(name) or kind
    if not isinstance(df, DataFrame):
        raise ArgumentError(
            f"A {kind} needs a streaming DataFrame, not a {type(df).__name__}.",
            hint="Read one with spark.readStream, or with tablestream.from_files.",
            operator=shown,
        )

    def chosen(given: ColumnLike | Sequence[ColumnLike]) -> tuple[Column | Plain, ...]:
        return tuple(as_columns(listed(given), df.columns, own_columns(df)))

    def column(given: ColumnLike | None) -> Column | Plain | None:
        return None if given is None else as_columns([given], df.columns, own_columns(df))[0]

    use_driver_python(df.sparkSession)
    keys = chosen([] if key is None else key)
    if not (keys or records):
        raise ArgumentError("A table needs a key.", hint="Give key= at least one column.", operator=shown)
    if columns is not None and except_columns is not None:
        raise ArgumentError(
            "columns= and except_columns= exclude each other.", hint="Give only one.", operator=shown
        )
    spec = SourceSpec(
        name=shown,
        where=where,
        key=keys,
        timestamp=column(timestamp),
        deletes=column(apply_as_deletes),
        deletes_sql=sql_text(apply_as_deletes),
        columns=None if columns is None else chosen(columns),
        except_columns=_names([] if except_columns is None else except_columns, shown),
        order_by=column(order_by),
        records=records,
        sequence_by=column(sequence_by),
        bootstrap=bootstrap,
    )
    source, sequence = source_of_frame(df, spec)
    given = frame_of_source(source)
    if given.value_key and not records:
        raise lost_deletes(given.value_key, shown, where)
    return _deduplicated(source) if given.deduplicates else source, sequence


def _names(given: str | Sequence[str], operator: str) -> tuple[str, ...]:
    """One name or several."""
    given_names = listed(given)
    for one in given_names:
        if not isinstance(one, str):
            raise ArgumentError(
                f"except_columns takes column names, and {one!r} is not a name.",
                hint="Give the names as strings.",
                operator=operator,
            )
    return tuple(given_names)
