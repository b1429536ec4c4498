"""Tables, as users hold them. Each method creates one node of the logical plan and starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import checked_count
from tablestream.arguments.place import Place
from tablestream.arguments.words import check_how, checked_length, checked_name
from tablestream.base.calling import user_line
from tablestream.connectors.sink import Sink
from tablestream.errors import ArgumentError, PlanError
from tablestream.grouped import GroupedTable
from tablestream.handles.joined import Joined
from tablestream.handles.relation import Relation, checked_sink
from tablestream.operators.calendar import DAY_US, FIRST_US, LAST_US
from tablestream.spark.columns import SparkExpression
from tablestream.spark.given_columns import ColumnLike, as_column, sql_text
from tablestream.spark.options import Alignment, Compat, Emit, OnError, Tombstones, output_of, plan_options
from tablestream.spark.plan import changes_of, diagram_of, plan_of
from tablestream.spark.requests import OutputRequest, request
from tablestream.topology.graph import ancestors, history_of
from tablestream.topology.nodes import Keep, Materialize, Node, Suppress
from tablestream.topology.streams import ToStream

if TYPE_CHECKING:
    from tablestream.metrics.query_metrics import QueryMetrics
    from tablestream.pictures.diagram import Diagram
    from tablestream.streams import Stream


class Table(Joined):
    """A maintained table: one row per key, changing over time. Every change can be read.

    Created by `table` and by the methods here. A method returns another table and starts nothing. `changes` returns
    a streaming DataFrame, and `tablestream.start` runs several outputs as one query.
    """

    def group_by(self, *keys: ColumnLike, value: Sequence[ColumnLike] | None = None) -> GroupedTable:
        """Group the rows.

        Parameters
        ----------
        *keys
            The group: Columns or strings over the row; an expression needs an alias. A null is a group of its own
            (with ``compat="kafka-streams"``, a row with a null in its group counts in no group). Without keys all rows
            are one group with the key ``all_rows = true``. From the first row on it stays, as with ``keep_empty=True``.
        value
            The columns that `GroupedTable.aggregate` and ``reduce`` get. Default: the columns that are not keys.

        Returns
        -------
        GroupedTable
            For `GroupedTable.agg`, ``count``, ``aggregate`` and ``reduce``.

        Raises
        ------
        UnsupportedTypeError
            The type of a key has no equality.

        References
        ----------
        KIP-904; ``KTable.groupBy``.
        """
        return GroupedTable(self._grouping(keys, value, user_line()), self._table)

    def suppress(
        self,
        until: str | timedelta,
        max_records: int | None = None,
        max_bytes: int | None = None,
        on_full: Literal["emit", "fail"] = "emit",
        wall_clock: str | timedelta | None = None,
        name: str | None = None,
    ) -> Table:
        """Buffer changes and emit only the last one of each key.

        A key waits from the time of its first change until the shard has seen a change that is `until` later. Then
        its last change is emitted, also if it is a tombstone. Time is stream time: without new records nothing is
        emitted, unless `wall_clock` is set.

        Parameters
        ----------
        until
            How long a key waits, as a string such as ``"5 minutes"`` or a timedelta.
        max_records, max_bytes
            How much a shard may hold; the size of a row is that of its key and value as JSON. Default: no limit.
        on_full
            ``"emit"`` emits the keys that have waited longest until the rest fits; ``"fail"`` ends the query.
        wall_clock
            The longest time that a key waits by the wall clock, so that an idle input still emits what is held.
            Spark then runs a micro-batch at every trigger. It cannot be combined with ``availableNow``, which would
            never end. When such a change is emitted depends on the clock, so a replay may order it differently.
        name
            The result's name.

        Raises
        ------
        ArgumentError
            A duration is missing or negative, or a limit is not a whole number of at least one.
        PlanError
            The table has a history.

        References
        ----------
        Kafka Streams ``KTable.suppress(untilTimeLimit)``.
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_suppress"
        at = Place(shown, where)
        self._check_unversioned("suppress", at)
        until_us = checked_length(until, "until", at)
        if until_us is None:
            raise at.error(ArgumentError, "until=None is not a duration.", "Write it as '5 minutes'.")
        check_how(on_full, ("emit", "fail"), at, "on_full")
        node = Suppress(
            name=shown,
            where=where,
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
            until_us=until_us,
            max_records=checked_count(max_records, "max_records"),
            max_bytes=checked_count(max_bytes, "max_bytes"),
            fail_when_full=on_full == "fail",
            wall_clock_us=checked_length(wall_clock, "wall_clock", at),
        )
        return self._table(node)

    def keep(
        self,
        length: str | timedelta,
        by: ColumnLike | None = None,
        wall_clock: str | timedelta | None = None,
        name: str | None = None,
    ) -> Table:
        """Keep only the rows of a length of time: older ones are deleted, also from joins, groups and outputs.

        A row is deleted once its shard has seen a row whose time is later by more than `length`. A change with a row
        that is as old when it comes is dropped and counted (``expired``), and deletes the row of its key. Time is
        stream time: without new rows nothing is deleted, unless `wall_clock` is set.

        Parameters
        ----------
        length
            How much older than the newest row a row may be, as a string such as ``"30 days"`` or a timedelta.
        by
            A row's time: a column, or an expression over the row, that is a timestamp or a date. A row in which it is
            null stays, unless `wall_clock` has passed. Default: the timestamp of the row's last change.
        wall_clock
            The longest time that a row stays unchanged by the wall clock, whatever `length` says, so that an idle input
            is forgotten, too: at least `length`, if that is to count. See `suppress`.
        name
            The result's name.

        Raises
        ------
        ArgumentError
            A duration is missing or negative, or `by` is neither a timestamp nor a date.
        PlanError
            The table has a history; or, when the plan is built, ``compat="kafka-streams"`` is set.

        Examples
        --------
        ``orders.keep("30 days", by="ordered_at").group_by("city").count()`` counts the orders of the last 30 days.
        """
        at = Place(checked_name(name) or f"{self.name}_keep", user_line())
        kept = self._kept("keep", length, by, at)
        return self._table(replace(kept, wall_clock_us=checked_length(wall_clock, "wall_clock", at)))

    def freeze(self, length: str | timedelta, by: ColumnLike, name: str | None = None) -> Table:
        """Leave rows as they are once they are older than a length of time: corrections of them are dropped.

        A row is frozen once its shard has seen a row whose time is later by more than `length`. After that the result
        has it as it was last, whatever becomes of it: a change of another table that it was joined with no longer
        changes it, and no tombstone deletes it. Only a row with a time that is not as old, or without one, takes its
        place.

        Parameters
        ----------
        length
            How much older than the newest row a row is that is frozen, as for `keep`.
        by
            A row's time: a column, or an expression over the row, that is a timestamp or a date. A row in which it is
            null is never frozen.
        name
            The result's name.

        Raises
        ------
        ArgumentError
            The duration is missing or negative, or `by` is neither a timestamp nor a date.
        PlanError
            The table has a history; or, when the plan is built, ``compat="kafka-streams"`` is set.

        Examples
        --------
        ``orders.join(customers, on="customer").freeze("30 days", by="ordered_at")``: an order of more than 30 days ago
        keeps the customer as it was then.
        """
        at = Place(checked_name(name) or f"{self.name}_freeze", user_line())
        if by is None:
            raise at.error(
                ArgumentError, "by=None is not a time of a row.", "Name a column, as in by='ordered_at'."
            )
        return self._table(replace(self._kept("freeze", length, by, at), freezes=True))

    def _kept(self, method: str, length: str | timedelta, by: ColumnLike | None, at: Place) -> Keep:
        """The node of `keep` and `freeze`."""
        self._check_unversioned(method, at)
        keep_us = checked_length(length, "length", at)
        if keep_us is None:
            raise at.error(ArgumentError, "length=None is not a duration.", "Write it as '30 days'.")
        return Keep(
            name=at.operator,
            where=at.where,
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
            keep_us=keep_us,
            by=None if by is None else self._time_of_rows(by, at),
        )

    def _time_of_rows(self, by: ColumnLike, at: Place) -> SparkExpression:
        """A time of a row in microseconds, null outside all years. A date is its first moment in UTC."""
        (time,) = self._analysed([as_column(by, self.columns)], at.where, at.operator)
        if isinstance(time.type, T.DateType):
            days = F.unix_date(time.column)
            micros = F.when(days.between(FIRST_US // DAY_US, LAST_US // DAY_US), days.cast("long") * DAY_US)
        elif isinstance(time.type, T.TimestampType | T.TimestampNTZType):
            since = F.unix_micros(time.column.cast(T.TimestampType()))
            micros = F.when(since.between(FIRST_US, LAST_US), since)
        else:
            raise at.error(
                ArgumentError,
                f"by= is of type {time.type.simpleString()}, and neither a timestamp nor a date.",
                'Cast it, as in by="CAST(ordered_at AS timestamp)".',
            )
        (known,) = self._analysed([micros], at.where, at.operator)
        return replace(known.expression, text=sql_text(by) or time.text)

    def _check_unversioned(self, method: str, at: Place) -> None:
        if history_of(self._node) is not None:
            raise at.error(
                PlanError,
                f"{method}() cannot be used on a versioned table.",
                "Call materialize() before it: the result is not versioned.",
            )

    def materialize(self, history: str | timedelta | None = None, name: str | None = None) -> Table:
        """Store the table under its own name, so that everything upstream is computed once.

        Several readers of a filtered or selected table then share its rows, and `tablestream.read_state` finds them
        in the query's state. Otherwise nothing changes.

        Parameters
        ----------
        history
            How far back versions of the rows are kept, as for `tablestream.table`. None: the result is not
            versioned, even if this table is; late changes of its rows then count as the latest.
        name
            The result's name.

        Raises
        ------
        ArgumentError
            The history is not a duration.
        PlanError
            There is a history, and `keep` or `freeze` before it.

        Notes
        -----
        Kafka Streams' ``Materialized``. With ``compat="kafka-streams"`` a filter on a materialized table knows the
        previous rows, and does not repeat tombstones.
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_materialized"
        at = Place(shown, where)
        if history is not None and any(isinstance(one, Keep) for one in ancestors(self._node)):
            raise at.error(
                PlanError,
                "A table behind keep() or freeze() has no history: it forgets rows at the times of other rows.",
                "Keep a table that materialize() follows without history=, or the history of a table without keep().",
            )
        node = Materialize(
            name=shown,
            where=where,
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
            history_us=checked_length(history, "history", at),
        )
        return self._table(node)

    def to_stream(self, name: str | None = None) -> Stream:
        """Turn the changes into records that stand for themselves. A tombstone becomes a record without a value.

        Parameters
        ----------
        name
            The stream's name.

        References
        ----------
        Kafka Streams ``KTable.toStream``.
        """
        node = ToStream(
            name=checked_name(name) or f"{self.name}_stream",
            where=user_line(),
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
        )
        return self._stream(node)

    def _table(self, node: Node) -> Table:
        return Table(node, self._spark)

    def _is_copied(self, other: Table) -> bool:
        return isinstance(other, GlobalTable)

    def _stream(self, node: Node) -> Stream:
        from tablestream.streams import Stream

        return Stream(node, self._spark)

    def _table_node(self, other: Relation, where: str) -> Node:
        return self._node_of(other, Table, where)

    # Results

    def changes(
        self,
        before: bool = False,
        emit: Emit = "every",
        compat: Compat = None,
        *,
        tombstones: Tombstones = "all",
        shards: int | None = None,
        align: Alignment = False,
        on_error: OnError = "fail",
    ) -> DataFrame:
        """Return the changes of the table as a streaming DataFrame.

        Parameters
        ----------
        before
            Whether to add the previous row to each change, as in Delta's change data feed.
        emit
            ``every`` change, or the ``final`` one per key and micro-batch.
        compat
            ``"kafka-streams"``: exactly its outputs, including its defects; see ``docs/semantics/compat.md``.
        tombstones
            ``all``, or ``minimal``: none for a key that has no row in the output.
        shards
            The number of parts into which the state is divided; fixed for a checkpoint until `evolve`. Default 16.
        align
            Whether records wait until every source partition has reached a later time. Their order, and so every
            output, then does not depend on how the input is cut into micro-batches. The last records stay in the
            state. A partition that falls silent holds back everything, unless you give a duration such as ``"5
            minutes"``: a partition that was silent for that long is no longer waited for.
        on_error
            What becomes of a row for which an expression fails: see `start`.

        Returns
        -------
        DataFrame
            The key and value columns, ``_change_type`` (``upsert`` or ``delete``; with `before` ``insert``,
            ``update_preimage``, ``update_postimage``, ``delete``), ``_timestamp`` and ``_order`` (a sortable struct,
            which begins with the micro-batch), in order per key. A ``delete`` has null values, or the deleted ones.

        Raises
        ------
        SessionSettingError
            The session does not keep streaming state in RocksDB, which stateful Python needs; or the Python of
            Spark's workers is not the driver's, and lacks what the plan needs.

        Notes
        -----
        The query that writes the frame has the settings of its session: call `tablestream.configure` first. Nothing
        runs until the frame is written. Its progress counts dropped records: ``observedMetrics["tablestream"]``.
        """
        output = output_of(self._node, emit, before, tombstones)
        return changes_of(output, self._spark, plan_options(compat, shards, align, on_error))

    def to(
        self,
        sink: Sink,
        *,
        emit: Emit | None = None,
        before: bool = False,
        tombstones: Tombstones = "all",
        name: str | None = None,
    ) -> OutputRequest:
        """Describe an output of a query, for `tablestream.start`.

        Parameters
        ----------
        sink
            Where the changes are written: `tablestream.to_delta`, `to_postgres`, `to_files`, `to_kafka` or `to_memory`.
        emit, before, tombstones
            As for `changes`. A maintained table gets the final changes unless `emit` says otherwise.
        name
            Identifies the output within the query; default the table's name. From this name and the number of the
            micro-batch, a sink knows what it already has.

        Notes
        -----
        Kafka Streams' ``to``. Nothing starts yet.
        """
        return request(
            self._node,
            self._spark,
            checked_sink(sink),
            checked_name(name) or self.name,
            emit=emit,
            before=before,
            tombstones=tombstones,
        )

    def explain(
        self,
        *,
        before: bool = False,
        emit: Emit = "every",
        compat: Compat = None,
        tombstones: Tombstones = "all",
        shards: int | None = None,
        align: Alignment = False,
    ) -> None:
        """Print the plan: its rounds and operators, what each operator remembers, and the shuffles.

        `tablestream.plan_text` returns the same as a string, also for several outputs.

        Parameters
        ----------
        before, emit, compat, tombstones, shards, align
            As for `changes`.

        Raises
        ------
        ArgumentError
            An option is unknown.
        """
        output = output_of(self._node, emit, before, tombstones)
        options = plan_options(compat, shards, align)
        print(plan_of([output], options))  # noqa: T201 - as Spark's explain does

    def diagram(
        self,
        *,
        before: bool = False,
        emit: Emit = "every",
        compat: Compat = None,
        tombstones: Tombstones = "all",
        shards: int | None = None,
        align: Alignment = False,
        metrics: QueryMetrics | Iterable[QueryMetrics] | None = None,
    ) -> Diagram:
        """Return the plan as a picture, in Mermaid and SVG. Notebooks show it.

        Parameters
        ----------
        before, emit, compat, tombstones, shards, align
            As for `changes`.
        metrics
            As for `tablestream.diagram`, which also draws the plan of several outputs.

        Raises
        ------
        ArgumentError
            An option is unknown, or the metrics are those of another plan.
        """
        output = output_of(self._node, emit, before, tombstones)
        return diagram_of([output], plan_options(compat, shards, align), metrics)


class GlobalTable(Table):
    """A table with a copy in every shard, made by `global_table`. It can only be the right side of a join.

    The join takes one round, and does not shuffle the other table's rows by the foreign key. The changes are those
    of the same join with a `table`.
    """

    def __repr__(self) -> str:
        return f"Global{super().__repr__()}"
