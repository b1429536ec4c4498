"""Tables: what a user holds. A method makes one node of the logical plan and nothing happens yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NoReturn

from pyspark.sql import DataFrame

from tablestream.arguments import (
    ColumnLike,
    check_how,
    checked_length,
    checked_name,
    checked_sink,
)
from tablestream.calling import user_line
from tablestream.connectors.sink import Sink
from tablestream.errors import ArgumentError, PlanError
from tablestream.grouped import GroupedTable
from tablestream.joining import Joining, On, SelectFunction, Suffixes
from tablestream.options import Alignment, Compat, Emit, OutputSpec, Tombstones
from tablestream.relation import Relation
from tablestream.spark.plan import changes_of, plan_of
from tablestream.spark.runner import OutputRequest, request
from tablestream.star import Lookup, check_lookups, star_join
from tablestream.topology.graph import history_of
from tablestream.topology.nodes import ForeignKeyJoin, How, KeyJoin, Materialize, OneToMany, Suppress
from tablestream.topology.streams import ToStream

if TYPE_CHECKING:
    from tablestream.stream import Stream


class Table(Relation):
    """A table that stays right: keyed rows that change, and whose every change can be read.

    Made by `table` and by the methods here. A method returns another table and starts nothing; `changes` gives a
    streaming DataFrame, and `tablestream.start` runs several outputs as one query.
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
    ) -> Table:
        """Join with another table, on the common key or by a foreign key.

        Parameters
        ----------
        other
            The right table, or a `global_table` (with `on`, and only ``inner`` or ``left``).
        on
            None: both tables have the same key. Otherwise the foreign key: what of this table's row points at the
            key of `other`: a name, a Column, a list of them, or a function of the row (or of row and key) that
            returns such; an expression of it, too. A null foreign key has no match. If it is the whole key of this
            table, ``inner`` and ``left`` are planned as the join on the common key, unless in compat mode.
        how
            ``inner``, ``left``, ``right`` or ``outer``. By foreign key, right and outer also keep the right rows
            that nothing points at, and the result is keyed by (this key, other key).
        select
            A function of the two rows (see `Row`) that returns the result's Columns, or one struct Column without
            a name, as in `select`: where it is null there is no row. Default: all columns of both, the right key
            once.
        suffixes
            For columns of one name in both tables.
        complete_history
            Join what was valid at the same time, and not what is the latest: both tables need a history. A late
            change of either then gives every older result that it changes anew, at its own time, rising; one that no
            longer holds is corrected, or retracted by a tombstone. The result is versioned with the shorter history.
            By foreign key for ``inner`` and ``left``, and not with a global table.
        name
            The result's name.

        Returns
        -------
        Table
            Keyed like this table; by (this key, other key) for a foreign-key right or outer join.

        Raises
        ------
        ArgumentError
            `other` is not a table, or another argument is of another kind.
        NotVersionedError
            For `complete_history`, a table has no history.
        MixedPlanError
            The tables belong to different sessions.
        KeyMismatchError
            The compared columns have no common type.
        ColumnCollisionError
            Two columns would have one name, and neither `select` nor `suffixes` says what to do.

        Notes
        -----
        Per change, without `complete_history`, the outputs and times are those of Kafka Streams (KIP-213), see
        ``docs/semantics.md``. Several joins on one key are one operator. A foreign-key join takes two rounds, with
        `complete_history` three.

        References
        ----------
        Kafka Streams ``KTable.join``, ``leftJoin``, ``outerJoin``; KIP-213; KIP-1104 (key in the extractor); KIP-914,
        "Attempt 2", for `complete_history`.
        """
        where = user_line()
        right = self._node_of(other, Table, where)
        shown = checked_name(name) or f"{self.name}_{other.name}_join"
        check_how(how, ("inner", "left", "right", "outer"), shown, where)
        if on is None and isinstance(other, GlobalTable):
            raise ArgumentError(
                "A join with a global table needs on=.",
                hint="Say which columns of this table hold the global table's key.",
                operator=shown,
                where=where,
            )
        joining = Joining(self._node, right, self._spark, shown, where)
        if complete_history:
            joining.check_histories(copied=isinstance(other, GlobalTable))
        if on is None:
            return self._key_join(joining, how, select, suffixes, complete_history)
        foreign, expressions = joining.pointing(on)
        if complete_history or isinstance(other, GlobalTable):
            check_how(how, ("inner", "left"), shown, where)
        key = joining.joint_key() if how in {"right", "outer"} else self._node.key
        value, columns, gone = joining.value(select, suffixes, joining.key_columns(key, same=False))
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
            copied=isinstance(other, GlobalTable),
            on_key=how in {"inner", "left"}
            and not isinstance(other, GlobalTable)
            and joining.is_on_key(foreign, expressions),
            complete_history=complete_history,
        )
        return Table(node, self._spark)

    def _key_join(
        self,
        joining: Joining,
        how: How,
        select: SelectFunction | None,
        suffixes: Suffixes,
        complete_history: bool,
    ) -> Table:
        key = joining.common_key()
        value, columns, gone = joining.value(select, suffixes, joining.key_columns(key, same=True))
        node = KeyJoin(
            name=joining.operator,
            where=joining.where,
            key=key,
            value=value,
            left=joining.left,
            right=joining.right,
            how=how,
            select=columns,
            delete_when=gone,
            complete_history=complete_history,
        )
        return Table(node, self._spark)

    def join_many(self, *lookups: Lookup, name: str | None = None) -> Table:
        """Join with several tables, each by a foreign key of its own: a star join.

        The rows are those of the chain ``self.join(one, ...).join(another, ...)``. It takes one round more than a
        single join, however many the tables. A change of this table gives one change of the result, with all right
        rows as they are then; the chain gives one for each join.

        Parameters
        ----------
        *lookups
            Made by `tablestream.lookup`: a table, and which of its rows a row of **this** table points at.
        name
            The result's name.

        Returns
        -------
        Table
            Keyed like this table. A change of this table has the greatest time of its row and of the right rows found.
            A change of a right table has its own time.

        Raises
        ------
        ArgumentError
            There is no lookup, or an argument has another type.
        ColumnCollisionError
            Two columns would have one name, and no `select` says what to do.

        Examples
        --------
        ``flights.join_many(ts.lookup(planes, on="tailnum", how="left"), ts.lookup(airlines, on="carrier"))``
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_join_many"
        check_lookups(lookups, shown, where)
        node = self._node
        for number, one in enumerate(lookups, 1):
            right = self._node_of(one.table, Table, where)
            check_how(one.how, ("inner", "left"), shown, where)
            step = shown if number == len(lookups) else f"{shown}[{number}]"
            joining = Joining(node, right, self._spark, step, where)
            pointing = Joining(self._node, right, self._spark, shown, where).pointing(one.on)
            copied = isinstance(one.table, GlobalTable)
            node = star_join(self._node, joining, pointing, one.how, one.select, copied=copied)
        return Table(node, self._spark)

    def one_to_many(
        self,
        many: Table,
        on: On,
        how: Literal["inner", "left"] = "inner",
        select: SelectFunction | None = None,
        suffixes: Suffixes = None,
        name: str | None = None,
    ) -> Table:
        """Join every row with each row of another table that points at it.

        Parameters
        ----------
        many
            The table whose rows point at rows of this one.
        on
            What of a row of `many` points at this table's key, as in `join`.
        how
            ``inner``, or ``left``: rows that nothing points at are kept, with a null key of the many.
        select, suffixes, name
            As in `join`; the first row is this table's.

        Returns
        -------
        Table
            Keyed by (this key, the many's key).

        References
        ----------
        KIP-213, first proposal: ``oneToManyJoin``.
        """
        where = user_line()
        right = self._node_of(many, Table, where)
        shown = checked_name(name) or f"{self.name}_{many.name}_one_to_many"
        check_how(how, ("inner", "left"), shown, where)
        foreign, expressions = Joining(right, self._node, self._spark, shown, where).pointing(on)
        joining = Joining(self._node, right, self._spark, shown, where)
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
        return Table(node, self._spark)

    def group_by(self, *keys: ColumnLike, value: Sequence[ColumnLike] | None = None) -> GroupedTable:
        """Put the rows into groups.

        Parameters
        ----------
        *keys
            The group: Columns or strings over the row; an expression needs an alias. A null is a group of its own
            (with ``compat="kafka-streams"``, rows with a null in it count in none).
        value
            What `GroupedTable.aggregate` and ``reduce`` see of a row; default the columns that are not keys.

        Returns
        -------
        GroupedTable
            For `GroupedTable.agg`, ``count``, ``aggregate`` and ``reduce``.

        Raises
        ------
        ArgumentError
            Without a key.
        UnsupportedTypeError
            For a key without an equality.

        References
        ----------
        KIP-904; ``KTable.groupBy``.
        """
        return GroupedTable(self._grouping(keys, value, user_line()), lambda node: Table(node, self._spark))

    def suppress(
        self,
        until: str | timedelta,
        max_records: int | None = None,
        max_bytes: int | None = None,
        on_full: Literal["emit", "fail"] = "emit",
        wall_clock: str | timedelta | None = None,
        name: str | None = None,
    ) -> Table:
        """Hold changes back and let through the last one of each key.

        A key waits from the time of its first change until the shard has seen a change that is `until` later; what
        leaves then is its last change, a tombstone too. Time is that of the records: without new ones nothing leaves,
        unless `wall_clock` says so.

        Parameters
        ----------
        until
            How long, as a text such as ``"5 minutes"`` or a timedelta.
        max_records, max_bytes
            How much a shard may hold; the bytes of a row are those of its key and value as JSON. Default: any amount.
        on_full
            ``"emit"`` lets through those that have waited longest until the rest fits; ``"fail"`` ends the query.
        wall_clock
            How long a key waits at most by the clock, so that an input that falls silent still gives what is held.
            Spark then runs a micro-batch at every trigger; it does not go with ``availableNow``, which would never
            end. When such a change leaves depends on the clock, and a replay may order it differently.
        name
            Of the table.

        Raises
        ------
        ArgumentError
            For a time that is none or negative, or a limit that is no whole number from one on.
        PlanError
            The table has a history.

        References
        ----------
        Kafka Streams ``KTable.suppress(untilTimeLimit)``.
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_suppress"

        def refuse(message: str, hint: str) -> NoReturn:
            raise ArgumentError(message, hint=hint, operator=shown, where=where)

        if history_of(self._node) is not None:
            raise PlanError(
                "suppress() cannot be used on a versioned table.",
                hint="Call materialize() before it: the result is not versioned.",
                operator=shown,
                where=where,
            )
        until_us = checked_length(until, "until", shown, where)
        wall_clock_us = checked_length(wall_clock, "wall_clock", shown, where)
        if until_us is None:
            refuse("until=None is not a duration.", "Write it as '5 minutes'.")
        for limit, given in (("max_records", max_records), ("max_bytes", max_bytes)):
            if given is not None and (type(given) is not int or given < 1):
                refuse(f"{limit}={given!r} is not a limit.", "Give a whole number of at least 1, or omit it.")
        check_how(on_full, ("emit", "fail"), shown, where, "on_full")
        node = Suppress(
            name=shown,
            where=where,
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
            until_us=until_us,
            max_records=max_records,
            max_bytes=max_bytes,
            fail_when_full=on_full == "fail",
            wall_clock_us=wall_clock_us,
        )
        return Table(node, self._spark)

    def materialize(self, history: str | timedelta | None = None, name: str | None = None) -> Table:
        """Keep the table as it is, under a name of its own: what is computed on the way is computed once.

        Several readers of a filtered or selected table then share its rows, and `tablestream.read_state` finds them in
        the query's state; otherwise nothing changes.

        Parameters
        ----------
        history
            How far back versions of the rows are kept, as for `tablestream.table`. None: the result is not versioned,
            also if this table is: late changes of its rows then count as the latest.
        name
            Of the table.

        Raises
        ------
        ArgumentError
            The history is no length of time.

        Notes
        -----
        Kafka Streams' ``Materialized``. With ``compat="kafka-streams"`` a filter on a materialized table knows the
        rows before, and repeats no tombstones.
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_materialized"
        node = Materialize(
            name=shown,
            where=where,
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
            history_us=checked_length(history, "history", shown, where),
        )
        return Table(node, self._spark)

    def to_stream(self, name: str | None = None) -> Stream:
        """Take the changes as records, each for itself; a tombstone is a record without a value.

        Parameters
        ----------
        name
            Of the stream.

        References
        ----------
        Kafka Streams ``KTable.toStream``.
        """
        from tablestream.stream import Stream

        node = ToStream(
            name=checked_name(name) or f"{self.name}_stream",
            where=user_line(),
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
        )
        return Stream(node, self._spark)

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
    ) -> DataFrame:
        """Return the changes of the table as a streaming DataFrame.

        Parameters
        ----------
        before
            Whether the row before a change is given as well, as in Delta's change data feed.
        emit
            ``every`` change, or the ``final`` one of each key and micro-batch.
        compat
            ``"kafka-streams"``: exactly its outputs, defects included; see ``docs/semantics.md``.
        tombstones
            ``all``, or ``minimal``: none for a key that has no row in the output.
        shards
            Into how many parts the state is cut; fixed for a checkpoint. Default 16.
        align
            Whether records wait until every source partition has come to a later time: their order, and so every
            output, then does not depend on how the input is cut into micro-batches. The last ones wait in the state.
            A partition that falls silent holds back all, unless a length of time says after how long it is not
            waited for, such as ``"5 minutes"``.

        Returns
        -------
        DataFrame
            The key and value columns, ``_change_type`` (``upsert`` or ``delete``; with `before` ``insert``,
            ``update_preimage``, ``update_postimage``, ``delete``), ``_timestamp`` (timestamp) and ``_order`` (a
            struct that sorts; it begins with the number of the micro-batch). Per key in order. A ``delete`` has
            null value columns, or with `before` those that the row had.

        Raises
        ------
        SessionSettingError
            The session does not keep streaming state in RocksDB, which stateful Python needs; or the Python of Spark's
            workers is not the driver's, and lacks what the plan needs.

        Notes
        -----
        The query that you write the frame with has the settings of its session: call `tablestream.configure` first.
        Nothing runs until the frame is written. What was dropped is in the query's progress, under
        ``observedMetrics["tablestream"]``.
        """
        spec = OutputSpec(emit=emit, before=before, tombstones=tombstones)
        return changes_of(self._node, self._spark, spec, compat, shards, align)

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
            Where the changes go: `tablestream.to_delta`, `to_files`, `to_kafka` or `to_memory`.
        emit, before, tombstones
            As for `changes`. A maintained table gets the final changes unless `emit` says otherwise.
        name
            Tells the outputs of a query apart; default the table's name. A sink knows by it, and by the number of
            the micro-batch, what it has.

        Notes
        -----
        Kafka Streams' ``to``: it describes and starts nothing.
        """
        return request(
            self._node,
            self._spark,
            checked_sink(sink),
            emit=emit,
            before=before,
            tombstones=tombstones,
            name=checked_name(name) or self.name,
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
        """Print the plan: its rounds and operators, what each remembers, and the shuffles.

        `tablestream.plan_text` gives the same as a string, and for several outputs.

        Parameters
        ----------
        before, emit, compat, tombstones, shards, align
            As for `changes`.

        Raises
        ------
        ArgumentError
            A word is not known.
        """
        spec = OutputSpec(emit=emit, before=before, tombstones=tombstones)
        print(plan_of([(self._node, spec)], compat, shards, align))  # noqa: T201 - as Spark's explain does


class GlobalTable(Table):
    """A table of which every shard has a copy; `global_table` makes it, and it can only be joined to.

    A join with it takes one round, and does not move the other table's rows to where the foreign key lives. The
    changes are those of the same join with a `table`.
    """

    def __repr__(self) -> str:
        return f"Global{super().__repr__()}"
