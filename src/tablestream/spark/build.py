"""Build one streaming DataFrame from the physical plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Generic

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors import sink
from tablestream.connectors.source import marks_of
from tablestream.operators.operator import filled_of
from tablestream.operators.upsert import OLD
from tablestream.planner.physical_plan import Between, Ending, Inputs, PhysicalPlan, Reader
from tablestream.planner.result import Pointer, Result
from tablestream.runtime.drops import ONLY_COUNTED, DropRules
from tablestream.spark import blobs
from tablestream.spark.columns import (
    Scope,
    TableColumns,
    filled,
    guarded,
    internal,
    kept,
    key_of,
    opened_name,
    spark_type,
    sql_type,
    typed,
)
from tablestream.spark.exchange import Blobs, Exchange
from tablestream.spark.failed_rows import FAILED_KEY, FAILED_RECORD, SAYING, FailedRecords, FailedRows
from tablestream.spark.failing import Failed, place_sql
from tablestream.spark.layout import Layout
from tablestream.spark.packing import ChangePacker, Consumer, SourcePacker
from tablestream.spark.reports import observations
from tablestream.spark.source_risks import watched
from tablestream.spark.sources import SourceFrame, frame_of_source, key_fields, value_fields
from tablestream.spark.unpacking import NOTE, ORDER, ChangeUnpacker, OutputUnpacker, StagedPort
from tablestream.spark.watching import PlanWatch, usable
from tablestream.state.changes import (
    AS_OF,
    FOREIGN_HASH,
    KEY_HASH,
    LATEST,
    LIVE,
    PARTITION,
    POSITION,
    ROW_TS,
    STEP_HOPS,
    TIME,
    TS,
    foreign_columns,
    hop_columns,
)
from tablestream.topology.nodes import Field, Named, Node, Source


class Builder(Generic[Blobs]):
    """Builds the DataFrame of one plan.

    Parameters
    ----------
    plan
        The physical plan.
    exchange
        Runs its stages, and moves data between them.
    bootstraps
        Of every bootstrapped source, the rows that it starts with; see `tablestream.spark.bootstrap`.
    records
        The frames of the sources that have records; others are left out. Default: each source's own frame.
    rules
        What the query does about dropped records.
    staged
        The outputs that the workers write, instead of giving their rows to Spark.
    first
        The number that targets give to the first micro-batch of the checkpoint.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        exchange: Exchange[Blobs],
        *,
        bootstraps: Mapping[Source, DataFrame] | None = None,
        records: Mapping[Source, DataFrame] | None = None,
        rules: DropRules = ONLY_COUNTED,
        staged: Collection[StagedPort] = (),
        first: int = 0,
    ) -> None:
        self._plan, self._exchange, self._rules = plan, exchange, rules
        self._bootstraps = bootstraps or {}
        self._records = records
        self._first = first
        self._shards = plan.options.shards
        self._failing = dict[str, None]()
        self._last = len(plan.rounds)
        ports = {ending.port.number for ending in plan.endings}
        self._staged = {one.number: one for one in staged}
        ports -= self._staged.keys()
        opened = [ports, *({one.port.number for one in self._behind(work.number)} for work in plan.rounds)]
        self._nested = {port for together in opened if len(together) > 1 for port in together}
        # Sources are ordered by their declaration.
        self._number = {
            source: n for n, source in enumerate(sorted(plan.sources, key=lambda one: one.serial))
        }

    def build(self) -> DataFrame:
        """Return a DataFrame with ``__port`` and the unpacked messages of the outputs.

        `result` gives the columns of each output.
        """
        streams: list[Blobs] = []
        entering = self._entering()
        for work in self._plan.rounds:
            streams += [self._packed(one) for one in entering if one.round == work.number]
            entering = [one for one in entering if one.round != work.number]
            stream = self._exchange.run_round(self._exchange.union(streams), work, self._shards, self._rules)
            behind = self._behind(work.number)
            streams = [self._between(stream, behind, work.number) if behind else stream]
        streams += [self._packed(one) for one in entering]
        return self._opened(self._exchange.union(streams))

    # Stages

    def _behind(self, number: int) -> tuple[Between, ...]:
        """The ports whose messages are opened behind a round."""
        return tuple(between for between in self._plan.between if between.after == number)

    def _entering(self) -> list[_Entering]:
        """The frames of all sources: their records, and the rows that they start with."""
        found = []
        for source, readers in self._plan.sources.items():
            given = frame_of_source(source)
            if self._records is None or source in self._records:
                rows = given.given if self._records is None else self._records[source]
                found.append(_Entering(source, readers, self._described(source, given, rows)))
            if source in self._bootstraps:
                first = self._plan.bootstrap_readers(source)
                found.append(_Entering(source, first, self._bootstraps[source], is_bootstrap=True))
        return found

    def _described(self, source: Source, given: SourceFrame, rows: DataFrame) -> DataFrame:
        """The columns of a source, over rows of the user's frame."""
        watch = self._watched
        now = F.expr(self._exchange.now)
        if watch is None or not given.risks:
            return given.frame if rows is given.given else given.described(rows, now)
        owner = watch.of(source)
        if owner.mode != "fail":
            watch.refuse_python(given.given, list(given.risks.values()), owner)
        return watched(given, rows, now, owner.mode, source)

    def _packed(self, entering: _Entering) -> Blobs:
        """Pack a source's records, or the rows that it starts with."""
        source, given = entering.source, frame_of_source(entering.source)
        scope = Scope(entering.frame, exact=True, watch=self._watched)
        scope.tables[source] = TableColumns(
            there="__live",
            parts=tuple(key_fields(source)),
            names=tuple(value_fields(source)),
        )
        consumers, read = self._consumers(scope, entering.readers, {})
        rejecting, first = self._plan.rejecting(source), entering.is_bootstrap
        # In compat a tombstone without a time is dropped.
        time = ("__time", "__timeless", "__ts", *(() if self._plan.options.compat else ("__own",)))
        place = (*time, "__null_key", "__malformed", *marks_of(given.origin), "__position", "__row")
        order = [name for name in place if name in entering.frame.columns]
        order += ["__key_json", "__record"] if rejecting else []
        order += [name for name in (*SAYING, FAILED_KEY, FAILED_RECORD) if name in entering.frame.columns]
        failed, said = self._failed(scope)
        packer = SourcePacker(
            name=self._plan.names[source],
            number=self._number[source],
            origin=given.origin,
            ordered=source.ordered_by is not None,
            consumers=tuple(consumers),
            shards=self._shards,
            rejecting=rejecting,
            refuse_negative_time=self._plan.options.compat,
            progress=None if first else self._plan.progress,
            bootstrap=first,
            rules=self._rules,
            failed=failed,
            failed_records=self._of_source(source, entering.frame),
        )
        now = [f"unix_micros({self._exchange.now}) AS __now"] if packer.progress is not None else []
        return self._exchange.pack(scope.frame.selectExpr(*order, *_read(read | said), *now), packer)

    def _between(self, stream: Blobs, behind: tuple[Between, ...], number: int) -> Blobs:
        """Evaluate what later rounds read from the changes that a round made."""
        steps = [T.StructField(name, T.LongType()) for name in self._step_hops]
        place = [*self._order_fields(number + 1), *steps, T.StructField(ROW_TS, T.LongType())]
        layouts = {one.port.number: self._layout(one.port.number, one.result, place) for one in behind}
        unpacker = ChangeUnpacker(tuple(layout.opened(port) for port, layout in layouts.items()))
        columns = [one for port, layout in layouts.items() for one in layout.in_frame(port)]
        frame = self._exchange.unpack(stream, unpacker, T.StructType([*blobs.FIELDS, *columns]))
        consumers, read = list[Consumer](), dict[str, str]()
        failed = list[tuple[FailedRows, str]]()
        for between in behind:
            port = between.port.number
            scope = Scope(frame, port=port, watch=self._watched)
            self._lay_out(scope, between.result, port)
            order = [TIME, PARTITION, POSITION, *hop_columns(number + 1), *self._step_hops, TS]
            carried = {name: self._name(port, name) for name in order}
            here = f"{self._name(port, LIVE)} IS NOT NULL"
            latest = self._name(port, LATEST) if between.result.latest else None
            made, columns_of = self._consumers(
                scope, between.readers, carried, here, self._name(port, ROW_TS), latest
            )
            found, said = self._failed(scope)
            failed += [] if found is None else [(found, made[0].prefix)]
            consumers += made
            read |= columns_of | said
            frame = scope.frame
        packer = ChangePacker(tuple(consumers), self._shards, number, self._rules, tuple(failed))
        return self._exchange.pack(frame.selectExpr(*blobs.COLUMNS, *_read(read)), packer)

    def _opened(self, stream: Blobs) -> DataFrame:
        """Count the output messages, add the last shuffle if it is needed, and unpack what arrives."""
        endings = {one.port.number: one for one in self._plan.endings}
        layouts = {port: self.ending_layout(endings[port]) for port in endings if port not in self._staged}
        unpacker = OutputUnpacker(
            tuple(layout.opened(port) for port, layout in layouts.items()),
            self._last + 1,
            noted=self._exchange.reads_notices,
            staged=tuple(self._staged.values()),
            first=self._first,
        )
        schema = T.StructType(
            [
                T.StructField("__port", T.IntegerType()),
                *([T.StructField(NOTE, T.StringType())] if self._exchange.reads_notices else []),
                *(one for port, layout in layouts.items() for one in layout.in_frame(port)),
            ]
        )
        return self._exchange.finish(
            stream,
            unpacker,
            schema,
            partial(observations, self._plan, tuple(self._failing), told=self._exchange.observes_drops),
            in_place=self._plan.ends_in_place,
        )

    # Rows for which expressions fail

    @cached_property
    def _watched(self) -> PlanWatch | None:
        """What watches expressions, if Spark can say which fail."""
        source = next(iter(self._plan.sources))
        return usable(self._plan, frame_of_source(source).given, redact=self._rules.redact)

    def _failed(self, scope: Scope) -> tuple[FailedRows | None, dict[str, str]]:
        """What handles the rows of a frame for which expressions fail, and the column that says which these are."""
        watch = self._watched
        if watch is None or not scope.failed:
            return None, {}
        name = f"__failed{'' if scope.port is None else scope.port}"
        owners = tuple(one.owner for one in scope.failed)
        self._failing |= {one.operator: None for one in owners if one.mode != "fail"}
        return FailedRows(name, owners), {name: watch.said(scope.failed)}

    def _of_source(self, source: Source, frame: DataFrame) -> FailedRecords | None:
        """What handles the records for which the source's own expressions fail, if any can."""
        if self._watched is None or not set(SAYING) & {*frame.columns}:
            return None
        owner = self._watched.of(source)
        self._failing |= {} if owner.mode == "fail" else {owner.operator: None}
        return FailedRecords(owner, source.records)

    # Expressions

    def _consumers(
        self,
        scope: Scope,
        readers: tuple[Reader, ...],
        carried: dict[str, str],
        here: str | None = None,
        row_ts: str | None = None,
        latest: str | None = None,
    ) -> tuple[list[Consumer], dict[str, str]]:
        """The readers of a table, and the columns that they read, as SQL by name.

        ``_live`` is null in rows that are not `here`. `latest`: for a versioned table, which changes are those of the
        newest version.
        """
        consumers, columns = list[Consumer](), dict[str, str]()
        for reader in readers:
            table = scope.table(reader.node)
            further = {name: one for name, one in ((ROW_TS, row_ts), (LATEST, latest)) if one is not None}
            failed = self._reader_failed(scope, reader, table)
            message = carried | self._message(scope, reader, table, further, failed)
            if reader.is_silent:
                message[LIVE] = "CAST(NULL AS BOOLEAN)"
            elif failed is not None and failed.rejects:
                message[LIVE] = kept(reader.node, message[LIVE], failed)
            if not reader.key:  # there is no key whose rows must stay together
                message[KEY_HASH] = f"xxhash64({carried.get(TS, _TIMESTAMP)})"
            value = {} if reader.is_silent else self._carried_value(scope, reader, table, failed)
            rejecting, is_output = reader.rejecting, reader.port.number in self._plan.leaving
            consumer = Consumer(
                reader.port,
                tuple(message),
                tuple(value),
                reader.counted_by,
                rejecting,
                reader.shown,
                is_output,
                tuple(name for name, one in filled_of(reader.schema).items() if one.of_each),
            )
            seen = here
            if here is not None and latest is not None and reader.latest_only:
                seen = here if rejecting else f"{here} AND {latest}"
                if consumer.counted_by is not None:
                    columns[consumer.late] = f"{here} AND NOT {latest}"
            if seen is not None:
                message[LIVE] = guarded(seen, message[LIVE])
            columns |= {consumer.prefix + name: column for name, column in message.items()} | value
            consumers.append(consumer)
        return consumers, columns

    def _reader_failed(self, scope: Scope, reader: Reader, table: TableColumns) -> Failed | None:
        """Add the column that says which expressions of a reader's own fail: a foreign key, a group, its inputs."""
        given = list[tuple[Named, Field]]()
        if reader.pointer is not None:
            given += zip(_pointed(reader.pointer), reader.pointer.key, strict=True)
            given += [] if reader.pointer.as_of is None else [_as_of(reader.pointer)]
        if reader.inputs is not None:
            given += zip(_inputs(reader.inputs), reader.inputs.fields, strict=True)
        view = scope.view_of(reader.owner, reader.node)
        return scope.checked(f"__failed_{reader.port.rank}", view, internal(table.there), given)

    def _carried_value(
        self, scope: Scope, reader: Reader, table: TableColumns, failed: Failed | None
    ) -> dict[str, str]:
        """The columns of a message's value, by name: those of the row, or the inputs of an aggregate."""
        if reader.inputs is None:
            # The packer leaves out the values of rows that are none.
            named = ((scope.name(reader.node, number), one) for number, one in enumerate(table.unguarded))
            return {one if one.isidentifier() else name: one for name, one in named}
        visible = scope.visible(reader.node)
        names = (f"__input{reader.port.rank}_{number}" for number in range(len(reader.inputs.expressions)))
        return {
            name: scope.computed(name, table.there, one, kind, visible, failed)
            for name, one, kind in zip(names, _inputs(reader.inputs), reader.inputs.fields, strict=True)
        }

    def _message(
        self,
        scope: Scope,
        reader: Reader,
        table: TableColumns,
        further: dict[str, str],
        failed: Failed | None,
    ) -> dict[str, str]:
        """The columns of a message without its value: those that the port's operator declares.

        `further`: columns that arrive beside the table's, for readers that need them.
        """
        hashed = FOREIGN_HASH if reader.is_pointed_at else KEY_HASH
        parts = [typed(part, spark_type(one)) for part, one in zip(table.parts, reader.key, strict=True)]
        message = key_of(parts, reader.key_columns, hashed)
        if reader.pointer is not None:
            message |= self._foreign_key(scope, reader, reader.pointer, table, failed)
        message[LIVE] = table.there
        message |= {name: column for name, column in further.items() if name in reader.schema}
        message |= filled(reader.schema, table)
        reader.check({*message, TS, "v"})
        return message

    def _foreign_key(
        self, scope: Scope, reader: Reader, pointer: Pointer, table: TableColumns, failed: Failed | None
    ) -> dict[str, str]:
        """The columns of a foreign key or a group; all null if there is no row, or it points at nothing."""
        parts = self._pointing(scope, reader.node, pointer, f"__on{reader.port.rank}", failed)
        columns = key_of(parts, foreign_columns(len(parts)), FOREIGN_HASH)
        if pointer.as_of is not None:
            name, visible, as_of = f"__as_of{reader.port.rank}", scope.visible(reader.node), _as_of(pointer)
            columns[AS_OF] = scope.computed(name, table.there, *as_of, visible, failed)
            parts = [*parts, columns[AS_OF]]
        whole = [] if pointer.null_parts else [f"{part} IS NOT NULL" for part in parts]
        there = " AND ".join([table.there, *whole])
        return {name: guarded(there, column) for name, column in columns.items()}

    def _pointing(
        self, scope: Scope, node: Node, pointer: Pointer, name: str, failed: Failed | None = None
    ) -> list[str]:
        """What a row points at, in the types that are compared, as SQL; null if there is no row."""
        there, visible = scope.table(node).there, scope.visible(node)
        return [
            typed(scope.computed(f"{name}_{number}", there, part, kind, visible, failed), spark_type(kind))
            for number, (part, kind) in enumerate(zip(_pointed(pointer), pointer.key, strict=True))
        ]

    def _lay_out(self, scope: Scope, result: Result, port: int) -> None:
        """Register the columns of a result as tables and keys."""
        scope.exact = result.has_own_types
        scope.keys[result.node] = tuple(self._name(port, name) for name in result.key)
        before: tuple[Node, TableColumns] | None = None
        for row in result.rows:
            key = tuple(self._name(port, name) for name in row.key)
            if row.pointer is not None and before is not None:
                inner = type(scope)(scope.frame, {before[0]: before[1]})
                name = f"__pointed{result.node.serial}"
                # Where it failed, the row that points was rejected, or points at nothing.
                inner.catching = self._plan.options.on_error.of(self._plan.names[result.node]) != "fail"
                pointed = self._pointing(inner, before[0], row.pointer, name)
                scope.base = inner.frame
                both = zip(key, pointed, strict=True)
                key = tuple(f"coalesce({mine}, {part})" for mine, part in both) if key else tuple(pointed)
            table = self._carried(port, row.column, key, row.table)
            if row.side is None:
                scope.tables[row.table] = table
            else:
                scope.sides[row.side] = table
            before = row.table, table

    def result(self, frame: DataFrame, ending: Ending) -> tuple[DataFrame, dict[str, str]]:
        """Compute the columns of one output from the unpacked messages: those of `columns_in`, in the users' types."""
        port, watch = ending.port.number, self._watched
        place = place_sql(f"{self._name(port, ORDER)}.partition", f"{self._name(port, ORDER)}.position")
        scope = Scope(frame, watch=None if watch is None else replace(watch, place=place))
        columns = self.columns_in(scope, ending)
        for one in ending.node.key:
            columns[one.name] = f"CAST({columns[one.name]} AS {sql_type(spark_type(one))})"
        columns[sink.TIMESTAMP] = f"timestamp_micros({columns[sink.TIMESTAMP]})"
        return scope.frame, columns

    def columns_in(self, scope: Scope, ending: Ending) -> dict[str, str]:
        """The columns of one output over the unpacked messages, as SQL by name; ``__old``, if it has the row before.

        The key may have a wider type than the node's, and the time is in microseconds.
        """
        node, port = ending.node, ending.port.number
        assert ending.result is not None  # noqa: S101 - rejected records have `rejected`
        self._lay_out(scope, ending.result, port)
        table = scope.table(node)
        names = [one.name for one in (*node.key, *node.value)]
        columns = dict(zip(names, (*table.parts, *table.names), strict=True))
        columns[sink.CHANGE_TYPE] = f"CASE WHEN {table.there} THEN 'upsert' ELSE 'delete' END"
        columns[sink.TIMESTAMP] = self._name(port, TS)
        columns |= {sink.LATEST: self._name(port, LATEST)} if ending.tells_latest else {}
        columns[sink.ORDER] = self._name(port, ORDER)
        if ending.before:
            old = self._carried(port, OLD, table.parts, node)
            fields = {one.name: column for one, column in zip(node.value, old.names, strict=True)}
            columns["__old"] = guarded(old.there, sink.struct_of(sink.aliased(fields)))
        return columns

    def rejected(self, ending: Ending) -> dict[str, str]:
        """The columns of an output of rejected records, as SQL."""
        port = ending.port.number
        said, texts = (
            {name[1:]: self._name(port, name) for name in names}
            for names in (("_operator", "_reason", "_source"), ("_key", "_record"))
        )
        time = {"timestamp": f"timestamp_micros({self._name(port, TS)})"}
        return said | time | texts | {sink.ORDER: self._name(port, ORDER)}

    # Unpacked messages

    def _name(self, port: int, *parts: str) -> str:
        """The name of an unpacked column."""
        return opened_name(port, *parts, nested=port in self._nested)

    def _carried(self, port: int, name: str, key: tuple[str, ...], node: Node) -> TableColumns:
        """The columns of a table whose value arrives with the messages of a port."""
        names = tuple(self._name(port, name, f"c{number}") for number in range(len(node.value)))
        return TableColumns(f"coalesce({self._name(port, name)}, false)", key, names)

    # Types

    @property
    def _step_hops(self) -> list[str]:
        """Extra order column for plans in which an operator splits steps."""
        split = any(placed.operator.splits_steps for work in self._plan.rounds for placed in work.operators)
        return [STEP_HOPS] if split else []

    def _order_fields(self, hops: int) -> list[T.StructField]:
        ordered = next((source.ordered_by for source in self._plan.sources if source.ordered_by), None)
        time = spark_type(Field(TIME, ordered)) if ordered else T.LongType()
        place = [
            T.StructField(TIME, time),
            T.StructField(PARTITION, T.StringType()),
            T.StructField(POSITION, T.LongType()),
        ]
        return [*place, *(T.StructField(hop, T.LongType()) for hop in hop_columns(hops))]

    def _order_struct(self, *, numbered: bool = False) -> T.StructField:
        """The place of an output's change in the total order, as `Table.changes` shows it."""
        names = ["time", "partition", "position", *(f"hop_{number}" for number in range(self._last + 1))]
        fields = [
            T.StructField(name, one.dataType)
            for name, one in zip(names, self._order_fields(self._last + 1), strict=True)
        ]
        number = [T.StructField(sink.NUMBER, T.LongType())] if numbered else []
        return T.StructField(
            ORDER, T.StructType([T.StructField("micro_batch", T.LongType()), *fields, *number])
        )

    def _layout(self, port: int, result: Result, place: Sequence[T.StructField]) -> Layout:
        """The columns of a result, with their `place` in the order."""
        latest = [T.StructField(LATEST, T.BooleanType())] if result.latest else []
        keys = [T.StructField(name, spark_type(one)) for name, one in result.columns.items()]
        values = {row.column: row.table.value for row in result.rows}
        return Layout([*place, *_CHANGE, *latest, *keys], values, nested=port in self._nested)

    def ending_layout(self, ending: Ending) -> Layout:
        """The columns of the messages to an output."""
        port = ending.port.number
        if ending.result is None:
            return Layout([self._order_struct(), *REJECTED], {}, nested=port in self._nested)
        numbered = ending.numbered and bool(ending.node.key)
        layout = self._layout(port, ending.result, [self._order_struct(numbered=numbered)])
        old = {OLD: ending.node.value} if ending.before else {}
        return replace(layout, values=layout.values | old, numbered=numbered)


@dataclass(frozen=True)
class _Entering:
    """A frame whose rows enter the plan: a source's records, or the rows that it starts with."""

    source: Source
    readers: tuple[Reader, ...]
    frame: DataFrame
    is_bootstrap: bool = False

    @property
    def round(self) -> int:
        """The round that it joins. A source without readers has only rejected records, which go to outputs."""
        return min((reader.port.round for reader in self.readers), default=0)


_CHANGE = [T.StructField(TS, T.LongType()), T.StructField(LIVE, T.BooleanType())]
#: The columns that source packers add to a rejected record, beside its place.
REJECTED = [
    T.StructField(TS, T.LongType()),
    *(T.StructField(name, T.StringType()) for name in ("_operator", "_reason", "_source", "_key", "_record")),
]
#: The time column of sources.
_TIMESTAMP = "__ts"


def _pointed(pointer: Pointer) -> list[Named]:
    """The expressions of a foreign key or a group, as errors call them."""
    return [Named(one.name, part) for part, one in zip(pointer.on, pointer.key, strict=True)]


def _as_of(pointer: Pointer) -> tuple[Named, Field]:
    """The time as of which a row points at another one."""
    assert pointer.as_of is not None  # noqa: S101 - who asks knows
    return Named("as_of", pointer.as_of), Field("as_of", '"long"')


def _inputs(inputs: Inputs) -> list[Named]:
    """The expressions that an aggregate reads."""
    return [Named("a value", part) for part in inputs.expressions]


def _read(columns: Mapping[str, str]) -> list[str]:
    """The columns that ports read, as SQL."""
    return [name if name == text else f"{text} AS {name}" for name, text in columns.items()]
