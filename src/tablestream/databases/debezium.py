"""Tables of a database, from the topics of its Debezium connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import (
    check_installed,
    check_string,
    check_text,
    columns_of,
    flag,
    is_flag,
    is_session,
    listed,
)
from tablestream.arguments.place import Place
from tablestream.arguments.words import check_known, checked_length
from tablestream.base.calling import warn
from tablestream.connectors.avro.format import confluent_avro
from tablestream.connectors.debezium.frame import decoded, transaction_ends
from tablestream.connectors.kafka.options import checked_servers
from tablestream.connectors.kafka.source import Offsets, OnError, checked_offsets, first_records, raw_records
from tablestream.connectors.source import Option
from tablestream.connectors.workers import use_driver_python
from tablestream.errors import ArgumentError
from tablestream.handles.relation import versioned
from tablestream.sources import source_of
from tablestream.tables import Table
from tablestream.topology.graph import CAPTURED
from tablestream.topology.nodes import Captured, Transactions

if TYPE_CHECKING:
    from tablestream.connectors.debezium.columns import Columns

Truncates = Literal["auto", "apply", "fail", "drop"]
Snapshots = Literal["complete", "partial"]
_RECORDS = ("key", "value", "topic", "partition", "offset")
#: Types whose values a database may keep apart from the row, and leave out of a change.
_LARGE = (T.StringType, T.BinaryType, T.ArrayType, T.MapType)


def from_debezium(
    source: SparkSession | DataFrame,
    prefix: str,
    *,
    bootstrap_servers: str | None = None,
    starting_offsets: Offsets = "earliest",
    on_error: OnError = "fail",
    transactions: bool | str = False,
    transaction_timeout: str | timedelta | None = "10 minutes",
    registry: str | Mapping[str, Any] | None = None,
    schema_number_bytes: Literal[4, 8] = 4,
    decimals: str = "precise",
    times: str | Mapping[str, str] = "microseconds",
    binary: str = "bytes",
    placeholder: str = "__debezium_unavailable_value",
    field_prefix: str = "__",
    options: Mapping[str, Option] | None = None,
) -> Debezium:
    """Read the tables of a database from the topics of its Debezium connector.

    Parameters
    ----------
    source
        The session, to read the topics from Kafka. Or a streaming DataFrame that has the records: ``key`` and
        ``value`` (binary or string), ``topic`` (string), ``partition`` (int), ``offset`` (bigint), and if possible
        ``timestamp`` and ``headers``, as Spark's Kafka source has them. Without ``timestamp`` a record that has no
        time of its own has that of its micro-batch.
    prefix
        The connector's ``topic.prefix``: the topic of a table is ``<prefix>.<schema>.<table>``.
    bootstrap_servers
        Kafka's addresses, such as ``"host:9092"``; only with a session.
    starting_offsets
        As for `from_kafka`. A topic that given offsets do not name is read from its beginning;
        with `transactions` they have to name the topic of the transactions.
    on_error
        How to handle a record that cannot be decoded: ``"fail"`` ends the query with `MalformedRecordError`,
        ``"drop"`` drops it, counts it (``malformed``), and makes it available in ``Table.rejected()``.
    transactions
        Whether changes wait for the others of their transaction: then no result shows a part of a transaction, and
        each transaction is one change of a row. The connector needs ``provide.transaction.metadata=true``. Give the
        topic's name if it is not ``<prefix>.transaction``.
    transaction_timeout
        How long the first of the transactions that have ended may lack events before it goes on without them,
        counted as ``incomplete-transaction``. None: for ever.
    registry
        For records in Avro: the URL of the schema registry, or settings, as for `confluent_avro`.
    schema_number_bytes
        How many bytes a schema's number has in records of Avro: 8 as Apicurio's own converter writes it.
    decimals, times, binary
        The connector's ``decimal.handling.mode``; the unit of dates and times, or a unit for each column that is
        named; and its ``binary.handling.mode``. Needed only for records without a schema.
    placeholder
        The connector's ``unavailable.value.placeholder``.
    field_prefix
        For flattened records: the ``add.fields.prefix`` of ``ExtractNewRecordState``.
    options
        As for `from_kafka`.

    Returns
    -------
    Debezium
        `Debezium.table` reads one table.

    Raises
    ------
    ArgumentError
        An argument is invalid, or the extra ``debezium`` is not installed.
    SessionSettingError
        The session has no Kafka connector.

    Notes
    -----
    Records may have the full envelope or be flattened by ``ExtractNewRecordState``, in JSON with or without schemas.
    The form is recognised record by record. Records in Avro need `registry`. ``docs/databases/`` says what each
    operation does.

    Examples
    --------
    >>> import tablestream as ts
    >>> shop = ts.from_debezium(spark, "shop", bootstrap_servers="localhost:9092")  # doctest: +SKIP
    >>> orders = shop.table("public.orders", key="id", columns="id bigint, total decimal(12,2)")  # doctest: +SKIP
    """
    _check_source(source, bootstrap_servers)
    _check_words(prefix, "prefix", "the connector's topic.prefix")
    starting_offsets = checked_offsets(starting_offsets)
    check_known("on_error", on_error, get_args(OnError))
    check_known("schema_number_bytes", schema_number_bytes, (4, 8))
    check_installed("msgspec", "debezium", "from_debezium")
    from tablestream.connectors.debezium.avro import AvroReader

    settings: dict[str, Any] = {
        "avro": None
        if registry is None
        else AvroReader(confluent_avro(registry).registry, schema_number_bytes),
        "decimals": decimals,
        "times": times,
        "binary": binary,
        "placeholder": placeholder,
        "prefix": field_prefix,
        "headers_known": not isinstance(source, DataFrame) or "headers" in source.columns,
    }
    topics = Debezium(source, prefix, bootstrap_servers, starting_offsets, on_error, settings, options)
    topic = _transaction_topic(transactions, prefix)
    if topic is None:
        return topics
    if on_error == "drop" and transaction_timeout is None:
        raise ArgumentError(
            "A record that is dropped is missing from its transaction, which would be waited for for ever.",
            hint="Give transaction_timeout= a time, or on_error='fail'.",
        )
    if isinstance(starting_offsets, Mapping) and topic not in starting_offsets:
        raise ArgumentError(
            f"starting_offsets= does not name '{topic}': the ends of transactions before the tables' offsets would be"
            " waited for.",
            hint="Give the offsets of the transaction topic, too.",
        )
    return replace(topics, _transactions=topics._ends(topic, transaction_timeout))  # noqa: SLF001


@dataclass(frozen=True)
class Debezium:
    """The topics of a Debezium connector; `from_debezium` makes it."""

    _source: SparkSession | DataFrame
    _prefix: str
    _servers: str | None
    _offsets: Offsets
    _on_error: OnError
    _settings: Mapping[str, Any]
    _options: Mapping[str, Option] | None
    _transactions: Transactions | None = None

    def table(
        self,
        name: str,
        key: str | Sequence[str] | None = None,
        columns: str | T.StructType | None = None,
        *,
        except_columns: str | Sequence[str] = (),
        unchanged: str | Sequence[str] = (),
        source: str | Sequence[str] = (),
        truncates: Truncates = "auto",
        snapshots: Snapshots = "complete",
        follow_moves: bool | None = None,
        history: str | timedelta | None = None,
        topic: str | None = None,
    ) -> Table:
        """Read a table of the database.

        Parameters
        ----------
        name
            The table, as in ``"public.orders"``.
        key
            The names of the columns of its primary key.
        columns
            All columns with their types, as a DDL string or a struct. If key and columns are omitted, they are those
            of the first record in the topic that has a schema: the topic is read for it when the plan is built. A
            column that the records have and the table has not is ignored, counted (``added-column``), and named in a
            worker's log. A record cannot be decoded if its schema says that such a column cannot be null, or if it also
            lacks a column of the table that is not `unchanged`.
        except_columns
            Columns of the database's table to leave out: such a column is neither counted nor refused. A name that no
            record has is named in a warning, or in a worker's log.
        unchanged
            Columns whose null means "as before", for records with partial rows.
        source
            Fields of ``source`` to have as columns, such as ``["lsn", "txId"]``: ``source_lsn``, ``source_txId``.
        truncates
            What a truncate of the table does: ``"apply"`` deletes all rows, ``"fail"`` ends the query, ``"drop"``
            ignores it. ``"auto"`` applies it with whole transactions, or if the topic has one partition, and
            fails otherwise: between partitions its order is not known.
        snapshots
            Whether the connector's snapshots name every row. ``"complete"``: when a snapshot ends, older rows that it
            did not name are deleted. ``"partial"``: they stay. Give it if snapshots are filtered, by
            ``snapshot.select.statement.overrides`` or ``additional-conditions``.
        follow_moves
            Whether a row that was moved to another key takes the values that its record does not have from the row
            under the old key. It takes a round. Default: if the table has a column whose values can be missing,
            such as text.
        history
            As for `tablestream.table`.
        topic
            The topic. Default: ``<prefix>.<name>``.

        Returns
        -------
        Table
            The rows of the table.

        Raises
        ------
        ArgumentError
            The key is not among the columns, no record in the topic has a schema, or another argument is invalid.
        UnsupportedTypeError
            A column has a type that records of Debezium cannot have.
        """
        from tablestream.connectors.debezium.decoder import DebeziumDecoder

        _check_words(name, "name", "the name of a table")
        if topic:
            _check_words(topic, "topic", "the name of a topic")
        topic = topic or f"{self._prefix}.{name}"
        check_known("truncates", truncates, get_args(Truncates), name)
        check_known("snapshots", snapshots, get_args(Snapshots), name)
        left_out = _names(except_columns, "except_columns")
        if key is None and columns is None:
            found = self._inferred(name, topic, left_out)
        else:
            found = _columns(name, key or (), columns or "")
        decoder = DebeziumDecoder(
            found,
            **self._settings,
            unchanged=_names(unchanged, "unchanged"),
            source=_names(source, "source"),
            except_columns=left_out,
        )
        frame = decoded(self._records(topic), decoder, self._on_error, name)
        node, _ = source_of(frame, list(decoder.columns.key.names), name=name)
        if follow_moves is None:
            follow_moves = any(isinstance(one.dataType, _LARGE) for one in decoder.columns.value)
        follow_moves = flag(follow_moves, "follow_moves")
        table = Captured(
            name=f"{name}{CAPTURED}",
            where=node.where,
            key=node.key,
            value=node.value,
            parent=node,
            follows_moves=follow_moves,
            truncates=truncates,
            table=name,
            transactions=self._transactions,
            snapshots=snapshots,
        )
        return Table(versioned(table, history), frame.sparkSession)

    def _inferred(self, name: str, topic: str, left_out: tuple[str, ...]) -> Columns:
        """The columns of the first record of a topic that has a schema."""
        from tablestream.connectors.debezium.added import absent
        from tablestream.connectors.debezium.columns import infer

        if isinstance(self._source, DataFrame):
            raise ArgumentError(
                "A DataFrame's records cannot be looked at before the query runs.",
                hint="Give key= and columns=.",
                operator=name,
            )
        first = first_records(self._source, topic, str(self._servers), self._options, "from_debezium")
        for record in first:
            try:
                found = infer([record], prefix=self._settings["prefix"], avro=self._settings["avro"])
            except ArgumentError:
                continue
            fields = [*found.key.names, *found.value.names]
            for missing in (one for one in left_out if one not in fields):
                warn(absent(name, missing, fields))
            value = [one for one in found.value if one.name not in left_out]
            return replace(found, value=T.StructType(value))
        raise ArgumentError(
            f"None of the first {len(first)} records of topic '{topic}' has a key and a row with their schemas.",
            hint="Give key= and columns=, or let the converter write schemas (schemas.enable=true, or Avro).",
            operator=name,
        )

    def _ends(self, topic: str, timeout: str | timedelta | None) -> Transactions:
        """The transactions of the database: their ends, with the numbers of events by table."""
        from tablestream.connectors.debezium.ends import EndDecoder
        from tablestream.connectors.debezium.records import Reader

        decoder = EndDecoder(Reader(self._settings["prefix"], self._settings["avro"]))
        frame = transaction_ends(self._records(topic), decoder, self._on_error)
        ends, _ = source_of(frame, [], name=topic, records=True, columns=["transaction", "tables", "events"])
        length = checked_length(timeout, "transaction_timeout", Place(topic, ends.where))
        return Transactions(
            name=f"{topic}/whole", where=ends.where, key=(), value=(), parent=ends, timeout_us=length
        )

    def _records(self, topic: str) -> DataFrame:
        if not isinstance(self._source, DataFrame):
            servers, offsets = str(self._servers), self._offsets
            if not isinstance(offsets, str):  # Spark refuses offsets of topics that a source does not read
                offsets = {topic: offsets[topic]} if topic in offsets else "earliest"
            # The connector makes a topic with its first record: that of a table without rows is not there.
            return raw_records(
                self._source,
                [topic],
                servers,
                offsets,
                self._options,
                "from_debezium",
                made_later=True,
            )
        use_driver_python(self._source.sparkSession)  # the decoder is a Python function
        frame = self._source.where(F.col("topic") == topic)
        frame = frame.withColumns({part: F.col(part).cast("binary") for part in ("key", "value")})
        headers = "array<struct<key:string,value:binary>>"
        further = {"headers": F.lit(None).cast(headers), "timestamp": F.current_timestamp()}
        missing = {name: column for name, column in further.items() if name not in frame.columns}
        return frame.withColumns(missing) if missing else frame


def _check_source(source: Any, servers: str | None) -> None:
    """Refuse what is neither a session with servers nor a frame of records."""
    if isinstance(source, DataFrame):
        missing = [name for name in _RECORDS if name not in source.columns]
        if missing:
            raise ArgumentError(
                f"The frame has no column {', '.join(missing)}.",
                hint="Give the columns of Spark's Kafka source: key, value, topic, partition, offset.",
            )
        if servers is not None:
            raise ArgumentError(
                "bootstrap_servers= is for a session, and a DataFrame was given.", hint="Omit it."
            )
    elif not is_session(source):
        raise ArgumentError(
            f"source={source!r} is neither a session nor a DataFrame.",
            hint="Give the session, to read the topics from Kafka, or a streaming DataFrame that has their records.",
        )
    elif servers is None:
        raise ArgumentError(
            "bootstrap_servers= is missing.", hint="Give Kafka's addresses, such as 'host:9092'."
        )
    else:
        checked_servers(servers)


def _columns(name: str, key: str | Sequence[str], columns: str | T.StructType) -> Columns:
    from tablestream.connectors.debezium.columns import Columns

    schema = columns_of(columns)
    if schema is None:
        raise ArgumentError(
            f"columns={columns!r} are no columns with types.",
            hint="Write them as in 'id bigint, name string'.",
            operator=name,
        )
    keys = [str(one) for one in listed(key)]
    if not keys:
        raise ArgumentError(
            "key= is missing: without a key no change belongs to a row.",
            hint="Give key= the columns of the table's primary key. For a table without one, name unique"
            " columns in the connector's message.key.columns, set its REPLICA IDENTITY to FULL, and give them here.",
            operator=name,
        )
    missing = [one for one in keys if one not in schema.names]
    if missing:
        raise ArgumentError(
            f"The key {', '.join(missing)} is not among the columns {', '.join(schema.names)}.",
            hint="Give key= the columns of the table's primary key, and columns= all columns.",
            operator=name,
        )
    value = [one for one in schema if one.name not in keys]
    return Columns(T.StructType([schema[one] for one in keys]), T.StructType(value))


def _names(given: Any, argument: str) -> tuple[str, ...]:
    names = () if given is None else listed(given)
    for one in names:
        if not isinstance(one, str):
            raise ArgumentError(
                f"{argument}= takes names, and {one!r} is not a name.", hint="Give the names as strings."
            )
    return tuple(names)


def _check_words(given: Any, argument: str, wanted: str) -> None:
    """Refuse what cannot be a part of a topic's name."""
    check_string(given, argument, wanted)
    check_text(given, f"{argument}=")


def _transaction_topic(transactions: Any, prefix: str) -> str | None:
    """The topic with the ends of transactions; None if changes do not wait for them."""
    if is_flag(transactions):
        return f"{prefix}.transaction" if transactions else None
    _check_words(transactions, "transactions", "True, False or the name of a topic")
    return str(transactions)
