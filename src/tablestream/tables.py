"""Tables, as users hold them. Each method creates one node of the logical plan and starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NoReturn

from pyspark.sql import DataFrame

from tablestream.arguments.kinds import checked_count, flag
from tablestream.arguments.place import Place
from tablestream.arguments.words import check_how, checked_how, checked_length, checked_name
from tablestream.base.calling import user_line
from tablestream.connectors.sink import Sink
from tablestream.errors import ArgumentError, PlanError
from tablestream.grouped import GroupedTable
from tablestream.handles.as_of_time import AsOfTime, checked_as_of
from tablestream.handles.joining import KEY, Joining, On, SelectFunction, Suffixes
from tablestream.handles.rekeying import Rekeyed
from tablestream.handles.relation import Relation, checked_sink
from tablestream.handles.star import Lookup, check_lookups, star_join
from tablestream.spark.given_columns import ColumnLike
from tablestream.spark.options import Alignment, Compat, Emit, OnError, Tombstones, output_of, plan_options
from tablestream.spark.plan import changes_of, diagram_of, plan_of
from tablestream.spark.runner import OutputRequest, request
from tablestream.topology.graph import history_of
from tablestream.topology.nodes import ForeignKeyJoin, How, Materialize, Node, OneToMany, Suppress
from tablestream.topology.streams import ToStream

if TYPE_CHECKING:
    from tablestream.metrics.query_metrics import QueryMetrics
    from tablestream.pictures.diagram import Diagram
    from tablestream.streams import Stream


class Table(Rekeyed):
    """A maintained table: one row per key, changing over time. Every change can be read.

    Created by `table` and by the methods here. A method returns another table and starts nothing. `changes` returns
    a streaming DataFrame, and `tablestream.start` runs several outputs as one query.
    """

    # Joins

    def join(
        self,
        other: Table,
        on: On | None = None,
        how: How = "inner",
        select: SelectFunction | None = None,
        suffixes: Suffixes = None,
        complete_history: bool = False,
        name: str | None = None,
        spread: int | None = None,
        as_of: ColumnLike | AsOfTime | None = None,
    ) -> Table:
        """Join with another table, on the key or by a foreign key.

        Parameters
        ----------
        other
            The right table, or a `global_table` (with `on`, and only ``inner`` or ``left``).
        on
            `KEY`: join on the key, which both tables share. None: the same, with a warning if the keys have different
            names or another column could point at `other`. Otherwise the foreign key, the columns of this table that
            hold the key of `other`: a name, a Column, a list of them, or a function of the row (or of row and key)
            that returns them; expressions are allowed. A null foreign key has no match. If `on` is the whole key of
            this table, ``inner`` and ``left`` are planned as the join on the key, except in compat mode.
        how
            ``inner``, ``left``, ``right`` or ``outer``; Spark's ``full``, ``left_outer`` too. By foreign key, right and
            outer also keep unmatched right rows, and the result is keyed by (this key, other key).
        select
            A function of the two rows (see `Row`) that returns the result's Columns, or one struct Column without a
            name, as in `select`: where it is null there is no row. Default: all columns of both, the right key
            once.
        suffixes
            Suffixes for columns that both tables have.
        complete_history
            Join the rows that were valid at the same time, instead of the latest ones. Both tables need a history.
            A late change of either side emits every older result that it changes again, in increasing order of
            time; a result that no longer holds is corrected, or deleted by a tombstone. The result is versioned
            with the shorter history. By foreign key only for ``inner`` and ``left``, and not with a global table.
        name
            The result's name.
        spread
            For a foreign key that many rows share: over how many shards these rows are spread, 2 to 4096, each with a
            copy of the right row. For ``inner`` and ``left`` with `on`, not with a global table, `complete_history` or
            compat mode. It is part of the plan. Default: they share one shard.
        as_of
            Join each row with the version of `other`, which needs a history, that was valid at this time: a timestamp
            of this table's row. `tablestream.as_of` has other choices. Changes of this table and late or corrected
            versions of `other` change the result. For ``inner`` and ``left``, and not with a global table.

        Returns
        -------
        Table
            Keyed like this table; by (this key, other key) for a foreign-key right or outer join.

        Raises
        ------
        ArgumentError
            `other` is not a table, or another argument has the wrong type.
        NotVersionedError
            A table has no history, and `complete_history` or `as_of` is set.
        MixedPlanError
            The tables belong to different sessions.
        KeyMismatchError
            The compared columns have no common type.
        ColumnCollisionError
            Two columns would have the same name, and neither `select` nor `suffixes` resolves it.

        Notes
        -----
        Without `complete_history`, each change emits what Kafka Streams emits, with the same timestamps (KIP-213);
        see ``docs/semantics/foreign-key-join.md``. Several joins on one key become one operator. A foreign-key join
        takes two rounds, with `complete_history` three.

        References
        ----------
        Kafka Streams ``KTable.join``, ``leftJoin``, ``outerJoin``; KIP-213; KIP-1104 (key in the extractor);
        KIP-914, "Attempt 2", for `complete_history`.
        """
        where = user_line()
        right = self._table_node(other, where)
        shown = checked_name(name) or f"{self.name}_{other.name}_join"
        at = Place(shown, where)
        how = checked_how(how, ("inner", "left", "right", "outer"), at)
        joining = Joining(self._node, right, self._spark, at)
        copied = isinstance(other, GlobalTable)
        joining.check_on(on, copied=copied)
        complete_history = flag(complete_history, "complete_history")
        if complete_history:
            joining.check_histories(copied=copied)
        if spread is not None:
            spread = joining.checked_spread(spread, on=on, complete_history=complete_history, copied=copied)
        time = None
        if as_of is not None:
            time = checked_as_of(
                joining, as_of, complete_history=complete_history, spread=spread, copied=copied
            )
        if on is None:
            joining.ask_for_on()
            on = KEY
        if on is KEY and time is None and not copied:
            return self._table(joining.key_join(how, select, suffixes, complete_history))
        foreign, expressions = joining.pointing(on)
        is_by_left_key = how in {"inner", "left"}
        if complete_history or spread is not None or copied or time is not None:
            check_how(how, ("inner", "left"), at)
        key = self._node.key if is_by_left_key else joining.joint_key()
        value, columns, gone = joining.value(select, suffixes, joining.key_columns(key, same=False))
        on_key = is_by_left_key and not copied and time is None and joining.is_on_key(foreign, expressions)
        node = ForeignKeyJoin(
            name=shown,
            where=where,
            key=key,
            value=value,
            left=self._node,
            right=right,
            how=how,
            select=columns,
            delete_when=gone,
            on=expressions,
            foreign=foreign,
            copied=copied,
            on_key=on_key,
            complete_history=complete_history,
            spread=None if on_key else spread,
            as_of=time,
        )
        return self._table(node)

    def join_many(self, *lookups: Lookup, name: str | None = None) -> Table:
        """Join with several tables, each by its own foreign key: a star join.

        The rows are those of the chain ``self.join(one, ...).join(another, ...)``, in one round more than a single
        join, however many tables there are. A change of this table emits one change of the result, with all right
        rows at that moment; the chain emits one per join.

        Parameters
        ----------
        *lookups
            Made by `tablestream.lookup`: a table, and the foreign key in a row of **this** table.
        name
            The result's name.

        Returns
        -------
        Table
            Keyed like this table. A change of this table has the largest time of its row and of the right rows
            found. A change of a right table has its own time.

        Raises
        ------
        ArgumentError
            There is no lookup, or an argument has the wrong type.
        ColumnCollisionError
            Two columns would have the same name, and no `select` resolves it.

        Examples
        --------
        ``flights.join_many(ts.lookup(planes, on="tailnum", how="left"), ts.lookup(airlines, on="carrier"))``
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_join_many"
        at = Place(shown, where)
        check_lookups(lookups, at)
        node = self._node
        for number, one in enumerate(lookups, 1):
            right = self._table_node(one.table, where)
            how = checked_how(one.how, ("inner", "left"), at)
            step = shown if number == len(lookups) else f"{shown}[{number}]"
            joining = Joining(node, right, self._spark, Place(step, where))
            pointing = Joining(self._node, right, self._spark, at).pointing(one.on)
            copied = isinstance(one.table, GlobalTable)
            node = star_join(self._node, joining, pointing, how, one, copied=copied)
        return self._table(node)

    def one_to_many(
        self,
        many: Table,
        on: On,
        how: Literal["inner", "left"] = "inner",
        select: SelectFunction | None = None,
        suffixes: Suffixes = None,
        name: str | None = None,
    ) -> Table:
        """Join every row with each row of another table whose foreign key refers to it.

        Parameters
        ----------
        many
            The table that holds the foreign key.
        on
            The columns of `many` that hold this table's key, as in `join`.
        how
            ``inner``, or ``left``: unmatched rows of this table are kept, with a null key of `many`.
        select, suffixes, name
            As in `join`; the first row is this table's.

        Returns
        -------
        Table
            Keyed by (this key, the key of `many`).

        References
        ----------
        KIP-213, first proposal: ``oneToManyJoin``.
        """
        where = user_line()
        right = self._table_node(many, where)
        shown = checked_name(name) or f"{self.name}_{many.name}_one_to_many"
        at = Place(shown, where)
        how = checked_how(how, ("inner", "left"), at)
        foreign, expressions = Joining(right, self._node, self._spark, at).pointing(on)
        joining = Joining(self._node, right, self._spark, at)
        key = joining.joint_key()
        value, columns, gone = joining.value(select, suffixes, joining.key_columns(key, same=False))
        node = OneToMany(
            name=shown,
            where=where,
            key=key,
            value=value,
            left=self._node,
            right=right,
            how=how,
            select=columns,
            delete_when=gone,
            on=expressions,
            foreign=foreign,
        )
        return self._table(node)

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

        def refuse(message: str, hint: str) -> NoReturn:
            raise at.error(ArgumentError, message, hint)

        if history_of(self._node) is not None:
            raise at.error(
                PlanError,
                "suppress() cannot be used on a versioned table.",
                "Call materialize() before it: the result is not versioned.",
            )
        until_us = checked_length(until, "until", at)
        if until_us is None:
            refuse("until=None is not a duration.", "Write it as '5 minutes'.")
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

        Notes
        -----
        Kafka Streams' ``Materialized``. With ``compat="kafka-streams"`` a filter on a materialized table knows the
        previous rows, and does not repeat tombstones.
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_materialized"
        at = Place(shown, where)
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
            The number of parts into which the state is divided; fixed for a checkpoint. Default 16.
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
