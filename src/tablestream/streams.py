"""Streams: records that are not upserts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame

from tablestream.arguments.kinds import flag
from tablestream.arguments.place import Place
from tablestream.arguments.words import checked_how, checked_length, checked_name
from tablestream.base.calling import user_line
from tablestream.connectors.sink import Sink
from tablestream.connectors.source import lost_deletes
from tablestream.errors import ArgumentError, GraceExceedsHistoryError, NotVersionedError
from tablestream.grouped import GroupedStream
from tablestream.handles.joining import KEY, Joining, On, SelectFunction, Suffixes
from tablestream.handles.relation import Relation, checked_log, versioned
from tablestream.handles.values import check_names
from tablestream.planner.physical_plan import Output
from tablestream.spark.analysis import folding
from tablestream.spark.columns import spark_type
from tablestream.spark.given_columns import ColumnLike
from tablestream.spark.options import Alignment, Compat, OnError, plan_options
from tablestream.spark.plan import changes_of, diagram_of, plan_of
from tablestream.spark.requests import OutputRequest, request
from tablestream.spark.sources import SourceFrame
from tablestream.tables import GlobalTable, Table
from tablestream.topology.graph import base_of, history_of, shown_name
from tablestream.topology.nodes import Field, Fields, Named, Node, Source
from tablestream.topology.streams import Grace, Merge, SelectKey, StreamJoin, ToTable

if TYPE_CHECKING:
    from tablestream.metrics.query_metrics import QueryMetrics
    from tablestream.pictures.diagram import Diagram

#: Identifies the records of a corrected join.
RECORD_ID = Field("record_id", json.dumps("long"))


class Stream(Relation):
    """Records that stand for themselves: events, not the state of a key.

    Created by `stream` and by `Table.to_stream`. A record has a key, which may be null, a value or none, and a
    time. A method returns another stream and starts nothing.
    """

    def select_key(self, *keys: ColumnLike, name: str | None = None) -> Stream:
        """Give the records another key. The value stays, without the columns that are now in the key.

        Parameters
        ----------
        *keys
            Names or Columns over the record; an expression needs an alias.
        name
            The result's name.

        Raises
        ------
        ArgumentError
            No key is given, or an expression has no name.
        UnsupportedTypeError
            The type of a key has no equality.

        References
        ----------
        Kafka Streams ``KStream.selectKey``.
        """
        where = user_line()
        key = self._chosen_key(keys, where, "select_key")
        fold = folding(self._spark)
        taken = {fold(one.name) for one in key}
        node = SelectKey(
            name=checked_name(name) or f"{self.name}_select_key",
            where=where,
            key=tuple(one.field for one in key),
            value=tuple(one for one in self._node.value if fold(one.name) not in taken),
            parent=self._node,
            columns=tuple(Named(one.name, one.expression) for one in key),
        )
        return Stream(node, self._spark)

    def flat_map(self, elements: ColumnLike, name: str | None = None) -> Stream:
        """Replace each record by one record per element of an array, with its key and time.

        Parameters
        ----------
        elements
            A Column or a string that returns an array: ``F.split("text", " ")``, ``"transform(lines, x -> ...)"``.
            If the elements are structs, their fields become the value's columns; otherwise there is one column,
            named by the expression's alias. A null element becomes a record without a value; a null or empty array
            emits nothing.
        name
            The result's name.

        Notes
        -----
        It takes a round. If the array comes from a DataFrame, you can also use ``F.explode`` there, before `stream`
        reads it.

        References
        ----------
        Kafka Streams ``KStream.flatMapValues``.
        """
        shown = checked_name(name) or f"{self.name}_flat_map"
        return Stream(self._flat_mapped(elements, (), shown, user_line()), self._spark)

    def merge(self, other: Stream, name: str | None = None) -> Stream:
        """Combine the records of this stream and another one.

        Parameters
        ----------
        other
            A stream with the same key and value columns, in any order.
        name
            The result's name.

        Raises
        ------
        ArgumentError
            The columns differ.

        Notes
        -----
        Records come in the order of the plan, whichever stream they belong to: by time, then in the order in which
        the sources were declared.

        References
        ----------
        Kafka Streams ``KStream.merge``.
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_merge"
        at = Place(shown, where)
        right = self._node_of(other, Stream, where)
        sides = (self._node, right)
        keys, values = ([_typed(node.key) for node in sides], [sorted(_typed(node.value)) for node in sides])
        if keys[0] != keys[1] or values[0] != values[1]:
            raise at.error(
                ArgumentError,
                f"The streams have different columns: {self!r} and {other!r}.",
                "Give them the same columns with select and select_key.",
            )
        names = [one.name for one in self._node.value]
        if [one.name for one in right.value] != names:
            right = self._node_of(other.select(*names), Stream, where)
        node = Merge(
            name=shown,
            where=where,
            key=self._node.key,
            value=self._node.value,
            left=self._node,
            right=right,
        )
        return Stream(node, self._spark)

    def join(
        self,
        table: Table,
        on: On | None = None,
        how: Literal["inner", "left"] = "inner",
        select: SelectFunction | None = None,
        suffixes: Suffixes = None,
        grace: str | timedelta | None = None,
        wall_clock: str | timedelta | None = None,
        table_advances: bool = False,
        name: str | None = None,
    ) -> Stream:
        """Look up the row of a table for each record.

        With a versioned table this is the version that was valid at the record's time; otherwise the row at the
        record's place in the order. Changes of the table emit nothing.

        Parameters
        ----------
        table
            A table or a `global_table`.
        on
            None: the row with the record's key. Otherwise the foreign key over the record, as in `Table.join`. A
            global table needs it.
        how
            ``inner``, or ``left``: unmatched records are kept.
        select, suffixes, name
            As in `Table.join`; the first row is the record.
        grace
            How long records wait for late versions: until the shard has seen a record that is later by this much.
            They are emitted in the order of (time, key, arrival). A record that is itself later than that is joined
            at once, and counted (``late``).
        wall_clock
            The longest time that a record waits by the wall clock, as in `Table.suppress`.
        table_advances
            Whether the times of the table's versions release records, too, so that a silent stream does not wait.

        Returns
        -------
        Stream
            With the records' keys and times.

        Raises
        ------
        ArgumentError
            An argument is invalid.
        NotVersionedError
            `grace` is given, and the table has no history.
        GraceExceedsHistoryError
            `grace` is longer than the table's history.

        Notes
        -----
        A record without a value is dropped and counted, so it deletes nothing from a table made of the result: to
        join changes that delete, use `Table.join` with `as_of`. So is an unmatched record if its foreign key is null
        and `how` is ``inner``. The key may be null. If one input record causes both changes of the table and records,
        the changes come first.

        References
        ----------
        Kafka Streams ``KStream.join``, ``leftJoin`` with ``KTable`` and ``GlobalKTable``; KIP-955 (by foreign key);
        KIP-914, KIP-923 (versions, grace); KIP-962.
        """
        waiting = (grace, wall_clock, table_advances)
        return Stream(self._joined(table, on, how, select, suffixes, waiting, name), self._spark)

    def join_as_table(
        self,
        table: Table,
        on: On | None = None,
        how: Literal["inner", "left"] = "inner",
        select: SelectFunction | None = None,
        suffixes: Suffixes = None,
        grace: str | timedelta | None = None,
        wall_clock: str | timedelta | None = None,
        table_advances: bool = False,
        name: str | None = None,
    ) -> Table:
        """Look up as `join` does, and let late versions of the table correct the results.

        Each record becomes a row of the result. A version that arrives after records of its time updates or deletes
        their rows, at the records' times. Records are remembered as long as the table's history.

        Parameters
        ----------
        table
            A versioned table or `global_table`.
        on, how, select, suffixes, grace, wall_clock, table_advances, name
            As in `join`.

        Returns
        -------
        Table
            Keyed by the record's key and ``record_id`` (bigint), which identifies the record within this join.

        Raises
        ------
        ArgumentError, GraceExceedsHistoryError
            As in `join`.
        NotVersionedError
            The table has no history.
        ColumnCollisionError
            A column is called ``record_id``.
        """
        waiting = (grace, wall_clock, table_advances)
        node = self._joined(table, on, how, select, suffixes, waiting, name, corrections=True)
        return Table(node, self._spark)

    def _joined(
        self,
        table: Table,
        on: On | None,
        how: Literal["inner", "left"],
        select: SelectFunction | None,
        suffixes: Suffixes,
        waiting: tuple[str | timedelta | None, str | timedelta | None, bool],
        name: str | None,
        *,
        corrections: bool = False,
    ) -> StreamJoin:
        where = user_line()
        right = self._node_of(table, Table, where)
        shown = checked_name(name) or f"{self.name}_{table.name}_join"
        at = Place(shown, where)
        how = checked_how(how, ("inner", "left"), at)
        waits = _grace(right, *waiting, at)
        copied = isinstance(table, GlobalTable)
        by_key = on is None or on is KEY
        if (on is None and copied) or (by_key and not self.key_columns):
            raise at.error(
                ArgumentError,
                f"A join {'with a global table' if copied else 'of a stream without a key'} needs on=.",
                "Say which columns of a record hold the table's key.",
            )
        joining = Joining(self._node, right, self._spark, at)
        foreign, expressions = joining.pointing(KEY if on is None else on)
        keys, key = joining.key_columns(self._node.key, same=by_key), self._node.key
        if corrections:
            _check_history(right, "join_as_table()", at)
            check_names(self._spark, self.key_columns, (RECORD_ID,), at)
            key, keys = (*key, RECORD_ID), {**keys, RECORD_ID.name: ()}
        value, columns, gone = joining.value(select, suffixes, keys)
        return StreamJoin(
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
            grace=waits,
            corrections=corrections,
        )

    def group_by(self, *keys: ColumnLike, value: Sequence[ColumnLike] | None = None) -> GroupedStream:
        """Group the records.

        Parameters
        ----------
        *keys
            The group: Columns or strings over the record; an expression needs an alias. Without keys all records are
            one group with the key ``all_rows = true``.
        value
            The columns that `GroupedStream.aggregate` and ``reduce`` get. Default: the columns that are not keys.

        References
        ----------
        Kafka Streams ``KStream.groupBy``.
        """
        return GroupedStream(self._grouping(keys, value, user_line()), lambda node: Table(node, self._spark))

    def group_by_key(self, *, value: Sequence[ColumnLike] | None = None) -> GroupedStream:
        """Group the records by their key.

        Parameters
        ----------
        value
            As in `group_by`.

        References
        ----------
        Kafka Streams ``KStream.groupByKey``.
        """
        where = user_line()
        self._check_keyed("group_by_key")
        return GroupedStream(
            self._grouping(self.key_columns, value, where), lambda node: Table(node, self._spark)
        )

    def to_table(
        self,
        history: str | timedelta | None = None,
        name: str | None = None,
        *,
        keep: str | timedelta | None = None,
    ) -> Table:
        """Read the records as a table: the last record of a key is its row, and a record without a value deletes it.

        Parameters
        ----------
        history
            Makes the table versioned, as in `tablestream.table`.
        name
            The table's name.
        keep
            Only rows of this length of time before stream time, as in `tablestream.table`.

        Notes
        -----
        A record with a null in its key is dropped and counted. Joins of a stream drop records without a value. So if
        the stream was given ``apply_as_deletes`` and joined before, the plan is refused with `PlanError`, except in
        compat mode; use `Table.join` with `as_of`.

        References
        ----------
        Kafka Streams ``KStream.toTable``.
        """
        where = user_line()
        self._check_keyed("to_table")
        shown = checked_name(name) or f"{self.name}_table"
        base = base_of(self._node)
        frame = base.frame if isinstance(base, Source) and base.key == self._node.key else None
        if isinstance(frame, SourceFrame) and frame.value_key:
            raise lost_deletes(frame.value_key, shown, where)
        table = ToTable(
            name=shown, where=where, key=self._node.key, value=self._node.value, parent=self._node
        )
        made = Table(versioned(table, history), self._spark)
        return made if keep is None else made.keep(keep)

    def _check_keyed(self, method: str) -> None:
        if not self.key_columns:
            raise ArgumentError(
                f"{method}() needs a key, and the records have none.",
                hint="Give stream(...) a key=, or call select_key first.",
                operator=self.name,
            )

    # Results

    def changes(
        self,
        compat: Compat = None,
        *,
        shards: int | None = None,
        align: Alignment = False,
        on_error: OnError = "fail",
    ) -> DataFrame:
        """Return the records as a streaming DataFrame.

        Parameters
        ----------
        compat, shards, align, on_error
            As for `Table.changes`.

        Returns
        -------
        DataFrame
            As `Table.changes` returns it: ``_change_type`` is ``upsert``, or ``delete`` for a record without a
            value.
        """
        return changes_of(Output(self._node), self._spark, plan_options(compat, shards, align, on_error))

    def to(self, sink: Sink, *, name: str | None = None) -> OutputRequest:
        """Describe an output of a query, for `tablestream.start`.

        Parameters
        ----------
        sink
            Where the records are written. It must keep a log, not a table with one row per key.
        name
            As for `Table.to`.

        Raises
        ------
        ArgumentError
            The sink maintains a table.
        """
        shown = checked_name(name) or self.name
        sink = checked_log(sink, "A stream has no rows by key", shown, ", or use to_table()")
        return request(self._node, self._spark, sink, shown)

    def explain(self, *, compat: Compat = None, shards: int | None = None, align: Alignment = False) -> None:
        """Print the plan, as `Table.explain` does.

        Parameters
        ----------
        compat, shards, align
            As for `changes`.
        """
        options = plan_options(compat, shards, align)
        print(plan_of([Output(self._node)], options))  # noqa: T201 - as Spark's explain does

    def diagram(
        self,
        *,
        compat: Compat = None,
        shards: int | None = None,
        align: Alignment = False,
        metrics: QueryMetrics | Iterable[QueryMetrics] | None = None,
    ) -> Diagram:
        """Return the plan as a picture, as `Table.diagram` does.

        Parameters
        ----------
        compat, shards, align
            As for `changes`.
        metrics
            As for `tablestream.diagram`.
        """
        return diagram_of([Output(self._node)], plan_options(compat, shards, align), metrics)


def _typed(fields: Fields) -> list[tuple[str, str]]:
    """Names and types, without nullability."""
    return [(one.name, spark_type(one).simpleString()) for one in fields]


def _grace(
    table: Node,
    grace: str | timedelta | None,
    wall_clock: str | timedelta | None,
    table_advances: bool,
    at: Place,
) -> Grace | None:
    """How records wait for versions of a table. Raises if the table's history is too short."""
    period_us = checked_length(grace, "grace", at)
    wall_clock_us = checked_length(wall_clock, "wall_clock", at)
    table_advances = flag(table_advances, "table_advances")
    if period_us is None:
        if wall_clock_us is not None or table_advances:
            raise at.error(
                ArgumentError,
                "wall_clock= and table_advances= control how records wait, and without grace= they do not wait.",
                "Give grace= as well.",
            )
        return None
    history_us = _check_history(table, "grace=", at)
    if period_us > history_us:
        raise at.error(
            GraceExceedsHistoryError,
            f"Records would wait for {grace}, and '{table.name}' keeps its versions for a shorter time.",
            "Give the table a history that is at least as long.",
        )
    return Grace(period_us, table_advances, wall_clock_us)


def _check_history(table: Node, user: str, at: Place) -> int:
    """Return the table's history, which `user` needs. Raises if it has none."""
    history_us = history_of(table)
    if history_us is None:
        raise at.error(
            NotVersionedError,
            f"{user} needs a versioned table, and '{shown_name(table)}' has no history.",
            'Give the table one, as in history="10 minutes".',
        )
    return history_us
