"""Run several outputs as one query."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, StructType

from tablestream.arguments.words import checked_name
from tablestream.base.calling import user_line
from tablestream.base.data_text import data_left_out
from tablestream.connectors.marks import MarkedSink, Moment
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import RecordSink, Sink, TypedSink, checked_path
from tablestream.connectors.small_texts import documents
from tablestream.connectors.spark_place import check_none_came_empty, check_writable
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError, MixedPlanError, TablestreamError, TargetError
from tablestream.planner.explain import explained
from tablestream.planner.physical_plan import Output, PhysicalPlan
from tablestream.runtime.drops import DropReport, DropRules, Notice, OnDrop
from tablestream.spark.births import ShardWatch
from tablestream.spark.bootstrap import written_once
from tablestream.spark.columns import schema_of
from tablestream.spark.failures import saying_what_failed
from tablestream.spark.interrupts import let_ctrl_c_interrupt
from tablestream.spark.moments import following, moment_of, next_moment
from tablestream.spark.options import Alignment, Compat, Emit, OnError, Tombstones, output_of, plan_options
from tablestream.spark.outputs import check_apart, check_identities, check_outputs, is_lone, write_outputs
from tablestream.spark.plan import diagram_of, drop_rules, lowered, numbered, query_frame, split
from tablestream.spark.quiet import quieten
from tablestream.spark.reports import listen, warn_of_drops
from tablestream.spark.session import configured
from tablestream.spark.sources import SourceFrame
from tablestream.spark.staging import REJECTED_COLUMNS, Staged
from tablestream.spark.stored_output import stored_output
from tablestream.spark.stored_plan import check_plan, store_plan
from tablestream.topology.graph import history_of
from tablestream.topology.nodes import Node, Source
from tablestream.topology.nulls import nullable_key

if TYPE_CHECKING:
    from tablestream.metrics.query_metrics import QueryMetrics
    from tablestream.pictures.diagram import Diagram

_log = logging.getLogger(__name__)
#: Whether Spark stops the run of a query that is active when the query starts again. Its default is true.
_RESTARTS = "spark.sql.streaming.stopActiveRunOnRestart"
_TRIGGER = 'Write it as {"availableNow": True} or {"processingTime": "10 seconds"}.'


@dataclass(frozen=True, repr=False)
class OutputRequest:
    """An output of a query: what it emits, its sink and its name; see `Table.to`."""

    output: Output
    spark: SparkSession
    sink: Sink
    name: str

    def __repr__(self) -> str:
        return f"Output '{self.name}' to {self.sink.target}"


def start(
    *outputs: OutputRequest,
    checkpoint: str | os.PathLike[str],
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    compat: Compat = None,
    shards: int | None = None,
    align: Alignment = False,
    on_error: OnError = "fail",
    on_drop: OnDrop = "warn",
    redact: bool = False,
) -> StreamingQuery:
    """Start one query for several outputs.

    Parameters
    ----------
    outputs
        Made by `Table.to`. Their tables become one plan: each source is read once.
    checkpoint
        The directory of the query's checkpoint. A restarted query continues where it stopped. If the query runs in the
        session, that run is stopped, and a warning is logged.
    trigger
        As for ``DataStreamWriter.trigger``, such as ``{"availableNow": True}`` or ``{"processingTime": "10
        seconds"}``. Default: as soon as there is something to do; every second if the plan uses the wall clock.
    name
        The query's name.
    compat, shards, align
        Options of the plan; see `Table.changes`.
    on_error
        What becomes of a row for which an expression fails, such as ``cast(text as int)`` of ``'abc'``. ``fail``: the
        query ends with an `ExpressionError` that names the row. ``null``: the expression is null for the row.
        ``reject``: the row leaves its table as by a tombstone, and is in `Table.rejected`. ``null`` and ``reject``
        count it, as ``failed-expression``. Or a mapping from tables' names to these; other tables fail. It may be
        another one whenever the query starts again.
    on_drop
        What to do about dropped records. ``"warn"`` logs the first of each table or operator and reason, with an
        example, and then each time their number reaches a power of ten; also if a source loses every record of a
        micro-batch. ``"fail"`` also ends the query before a micro-batch that loses input is written to any target.
        ``"ignore"`` only counts. ``docs/semantics/dropped-records.md`` lists the reasons, and which of them mean lost
        input.
    redact
        Whether warnings and errors leave out keys and values of records, and only say where they are.

    Returns
    -------
    StreamingQuery
        Spark's own: ``awaitTermination``, ``stop``, ``lastProgress``. If it fails, ``exception()`` and
        ``awaitTermination()`` give a `QueryFailedError`, whose text begins with what failed.

    Raises
    ------
    ArgumentError
        There is no output, or two have the same name or target; an argument has the wrong type; ``availableNow`` is
        used with a wall clock; `on_error` names no table of the plan; a query of this name runs already; the checkpoint
        or the directory of an output cannot be read or written; the checkpoint is in the directory of an output.
    MixedPlanError
        The tables belong to different sessions.
    SessionSettingError
        The Python of Spark's workers is not the driver's, and lacks what the plan needs. Or the checkpoint was started
        with another ``spark.sql.session.timeZone`` or ``spark.sql.ansi.enabled``: both decide what expressions give.
    TargetError
        A target holds what is not this query's, or does not fit the checkpoint: one of them was restored from a backup.
        The sink's ``on_mismatch=`` says how to go on.
    PlanChangedError
        Another plan made the checkpoint. Nothing was written; the message shows the difference.
    CheckpointMovedError
        The checkpoint was moved or copied; `relocate_checkpoint` makes it usable.

    Notes
    -----
    Files and tables have every micro-batch once, whatever fails and is repeated: these sinks know which ones they have,
    and prove that they belong to this checkpoint.
    A Kafka topic may have some changes twice (`to_kafka`), and the console shows a repeated micro-batch again.

    The session needs no settings. The query gets what it needs, as `configure` sets it, and the session is restored
    afterwards. While the query starts, other threads see these settings in the session, and another `start` waits. A
    checkpoint keeps the number of partitions that it was started with.

    Examples
    --------
    The last row of each order, from two files, and every change of it as files:

    >>> import tempfile, tablestream as ts
    >>> place = tempfile.mkdtemp()
    >>> for number, rows in enumerate(["(1, 10), (2, 5)", "(1, 12)"]):
    ...     log = spark.sql(f"SELECT * FROM VALUES {rows} AS log(id, amount)")
    ...     log.coalesce(1).write.mode("append").parquet(f"{place}/orders")
    >>> frame = ts.from_files(spark, f"{place}/orders", "parquet", "id int, amount int")
    >>> orders = ts.table(frame, "id", name="orders")
    >>> query = ts.start(
    ...     orders.to(ts.to_files(f"{place}/changes")),
    ...     checkpoint=f"{place}/checkpoint",
    ...     trigger={"availableNow": True},
    ... )
    >>> query.awaitTermination()
    >>> spark.read.parquet(f"{place}/changes").select("id", "amount", "_change_type").orderBy("_order").show()
    +---+------+------------+
    | id|amount|_change_type|
    +---+------+------------+
    |  1|    10|      upsert|
    |  2|     5|      upsert|
    |  1|    12|      upsert|
    +---+------+------------+
    <BLANKLINE>
    """
    _check_words(outputs, checkpoint, trigger)
    spark, checkpoint = outputs[0].spark, checked_path(checkpoint, "the checkpoint")
    _check_session(outputs, name)
    options, rules = plan_options(compat, shards, align, on_error), drop_rules(on_drop, redact=redact)
    plan = lowered([one.output for one in outputs], options)
    trigger = _checked_trigger(plan, trigger)
    prepare_workers(spark)
    let_ctrl_c_interrupt()
    with data_left_out(rules.redact):
        query_id, sinks, bootstraps = _settled(spark, checkpoint, plan, outputs)
    voice = _Voice.of(rules, spark, sinks.values())
    staged = Staged.of(spark, plan, sinks)
    frame = query_frame(plan, bootstraps, voice.rules, observed=voice.observed, staged=staged)
    writer = frame.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    writer = _triggered(writer if name is None else writer.queryName(name), trigger)
    writer = writer.foreachBatch(_micro_batch_writer(plan, sinks, checkpoint, voice, staged))
    replaces = _is_active(spark, query_id)
    if voice.listens:
        listen(spark)
    with configured(spark, plan.options.shards, staged.columns):
        query = writer.start()
    if replaces:
        _log.warning(
            "A run of the query was active on the checkpoint %s, and was stopped: the new run goes on from there.",
            checkpoint,
        )
    return saying_what_failed(query)


@dataclass(frozen=True)
class _Voice:
    """How a query tells of drops: in ``foreachBatch``, or by a listener where a sink gets rows while they are computed.

    Under Spark Connect the server runs ``foreachBatch``, and has what is told there in its log.
    """

    rules: DropRules
    listens: bool
    observed: bool

    @classmethod
    def of(cls, rules: DropRules, spark: SparkSession, sinks: Iterable[Sink]) -> _Voice:
        """`observed`: the query's progress has examples, for a listener or for the client of a server."""
        listens = rules.on_drop == "warn" and is_lone(sinks)
        told = rules.on_drop != "ignore" and (listens or not has_context(spark))
        return cls(rules, listens, told)

    def of_run(self) -> Callable[[int, list[Notice]], None] | None:
        """Return what hears the drops of a run in ``foreachBatch``."""
        return (
            None if self.listens or self.rules.on_drop == "ignore" else partial(warn_of_drops, DropReport())
        )


def plan_text(
    *outputs: OutputRequest,
    compat: Compat = None,
    shards: int | None = None,
    align: Alignment = False,
) -> str:
    """Return the plan of one query as text, as `Table.explain` prints it.

    Parameters
    ----------
    outputs
        Made by `Table.to`, as for `start`.
    compat, shards, align
        As for `start`.

    Returns
    -------
    str
        The sources, the rounds with their operators and what each remembers, the shuffles, the outputs; and of each
        target who writes it, the workers or Spark.

    Raises
    ------
    ArgumentError
        There is no output, or an argument has the wrong type.
    """
    _check_requests(outputs)
    plan = lowered([one.output for one in outputs], plan_options(compat, shards, align))
    sinks = {str(number): _keyed(one) for number, one in enumerate(outputs)}  # two may have one name
    staged = Staged.of(outputs[0].spark, plan, sinks)
    ways = (f"Target {sink.target}: {staged.way(name)}" for name, sink in sinks.items())
    return "\n".join((explained(plan), *ways))


def diagram(
    *outputs: OutputRequest,
    compat: Compat = None,
    shards: int | None = None,
    align: Alignment = False,
    metrics: QueryMetrics | Iterable[QueryMetrics] | None = None,
) -> Diagram:
    """Return the plan of one query as a picture, as `Table.diagram` does for one table.

    Parameters
    ----------
    outputs
        Made by `Table.to`, as for `start`.
    compat, shards, align
        As for `start`.
    metrics
        What a `MetricsListener` collected of the query: the `QueryMetrics` of a micro-batch, or of several. The picture
        then also has the rows, the dropped records and the size of the state of each operator, and the time that the
        micro-batches took.

    Returns
    -------
    Diagram
        Shown by notebooks; has the Mermaid and the SVG text.

    Raises
    ------
    ArgumentError
        There is no output, an argument has the wrong type, or the metrics are those of another plan.

    Examples
    --------
    >>> import tablestream as ts
    >>> heard = []
    >>> spark.streams.addListener(ts.MetricsListener(heard.append))  # doctest: +SKIP
    >>> query = ts.start(*outputs, checkpoint="out/checkpoint")  # doctest: +SKIP
    >>> ts.diagram(*outputs, metrics=heard).save("plan.svg")  # doctest: +SKIP
    """
    _check_requests(outputs)
    return diagram_of([one.output for one in outputs], plan_options(compat, shards, align), metrics)


def request(
    node: Node,
    spark: SparkSession,
    sink: Sink,
    name: str,
    *,
    emit: Emit | None = None,
    before: bool = False,
    tombstones: Tombstones = "all",
) -> OutputRequest:
    """Describe an output. A sink that needs only final changes gets only those.

    Raises
    ------
    ArgumentError
        A sink that keeps one row per key would also get the late changes of a versioned table.
    """
    if emit == "every" and sink.needs_final and history_of(node) is not None:
        raise ArgumentError(
            f"{sink.target} keeps one row per key, and any change of a versioned table may be late.",
            hint='Omit emit=: emit="final" emits the latest.',
            operator=name,
            where=user_line(),
        )
    chosen: Emit = emit or ("final" if sink.needs_final else "every")
    is_numbered = isinstance(sink, RecordSink)
    output = output_of(node, chosen, before, tombstones, latest_only=sink.needs_final, numbered=is_numbered)
    return OutputRequest(output, spark, sink, name)


def _check_requests(outputs: Sequence[Any]) -> None:
    """Raise unless there is at least one output and nothing else."""
    others = [one for one in outputs if not isinstance(one, OutputRequest)]
    if others or not outputs:
        raise ArgumentError(
            f"A {type(others[0]).__name__} is not an output." if others else "A query needs an output.",
            hint='Pass what table.to(sink) returns, such as table.to(ts.to_files("out")).',
            where=user_line(),
        )


def _check_words(outputs: Sequence[Any], checkpoint: Any, trigger: Any) -> None:
    """Check the types of arguments before anything is written."""
    _check_requests(outputs)
    if not isinstance(checkpoint, str | os.PathLike) or not os.fspath(checkpoint):
        raise ArgumentError(
            f"checkpoint={checkpoint!r} is not a directory.",
            hint="Give the path of a directory that only this query uses.",
            where=user_line(),
        )
    if trigger is None:
        return
    known = set(signature(DataStreamWriter.trigger).parameters) - {"self"}
    if not isinstance(trigger, Mapping) or not known.issuperset(trigger):
        what = "a mapping" if not isinstance(trigger, Mapping) else f"made of {', '.join(sorted(known))}"
        raise ArgumentError(f"trigger={trigger!r} is not {what}.", hint=_TRIGGER, where=user_line())


def _checked_trigger(plan: PhysicalPlan, trigger: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return when micro-batches start. With a wall clock there is one every second."""
    clocked = any(work.needs_clock for work in plan.rounds)
    if clocked and {"availableNow", "once"} & set(trigger or {}):
        raise ArgumentError(
            "A plan with a wall clock cannot run with availableNow: it would never end.",
            hint='Give trigger={"processingTime": "10 seconds"}, or omit wall_clock=.',
            where=user_line(),
        )
    return trigger or {"processingTime": "1 second" if clocked else "0 seconds"}


def _triggered(writer: DataStreamWriter, trigger: Mapping[str, Any]) -> DataStreamWriter:
    """Set when micro-batches start."""
    try:
        return writer.trigger(**trigger)
    except (PySparkException, ValueError) as error:
        said = str(error).split("\n")[0]
        raise ArgumentError(
            f"trigger={dict(trigger)!r} is refused by Spark: {said}", hint=_TRIGGER, where=user_line()
        ) from error


def _check_session(outputs: Sequence[OutputRequest], name: str | None) -> None:
    """Refuse outputs of several sessions, what is no name, and the name of a query that runs in the session."""
    spark = outputs[0].spark
    if any(output.spark is not spark for output in outputs):
        raise MixedPlanError(
            "The tables of one query belong to different Spark sessions.",
            hint="Create all of them from frames of one session.",
            where=user_line(),
        )
    if checked_name(name) is not None and any(one.name == name for one in spark.streams.active):
        raise ArgumentError(
            f"A query of the name {name!r} runs in this session.",
            hint="Stop it first, or give another name=.",
            where=user_line(),
        )


def _is_active(spark: SparkSession, query_id: str | None) -> bool:
    """Whether a query runs in the session, and Spark stops that run when the query starts again."""
    active = any(str(one.id) == query_id for one in spark.streams.active)
    return active and spark.conf.get(_RESTARTS, "true") == "true"


def _settled(
    spark: SparkSession, checkpoint: str, plan: PhysicalPlan, outputs: Sequence[OutputRequest]
) -> tuple[str | None, dict[str, Sink], dict[Source, DataFrame]]:
    """Look at the checkpoint, then at the targets; store the plan and the bootstraps of a new query.

    Returns
    -------
    tuple of str or None, dict, and dict
        The query's id, None if it is new; the outputs' names and sinks; the rows that sources start with.
    """
    outputs = [replace(one, sink=_keyed(one)) for one in outputs]
    sinks = [one.sink for one in outputs]
    check_outputs([one.name for one in outputs], sinks)
    query_id, is_stored = _checked_start(spark, checkpoint, plan, sinks)
    for one in outputs:
        _check_sink(one)
    outputs = [replace(one, sink=_shaped(one)) for one in outputs]
    check_identities(one.sink for one in outputs)
    _settle(checkpoint, query_id, plan, outputs)
    if not is_stored:
        store_plan(spark, checkpoint, plan)
    bootstraps = written_once(spark, checkpoint, plan, started=query_id is not None)
    return query_id, {one.name: one.sink for one in outputs}, bootstraps


def _checked_start(
    spark: SparkSession, checkpoint: str, plan: PhysicalPlan, sinks: Sequence[Sink]
) -> tuple[str | None, bool]:
    """Check that the plan fits the checkpoint, before anything is asked of targets.

    Returns
    -------
    tuple of str or None, and bool
        The query's id, None if no query was started there; and whether the checkpoint has a plan.
    """
    check_writable(spark, checkpoint, f"The checkpoint {checkpoint} cannot be read or written")
    with _in_one_sentence(f"The checkpoint {checkpoint}", user_line()):
        query_id = _query_id(spark, checkpoint)
        if query_id is None:
            check_apart(checkpoint, sinks)
        return query_id, query_id is not None and check_plan(spark, checkpoint, plan)


def _settle(
    checkpoint: str, query_id: str | None, plan: PhysicalPlan, outputs: Sequence[OutputRequest]
) -> None:
    """Let targets that keep marks refuse a checkpoint that they do not fit, or be settled as the user said."""
    moment = None
    for one in outputs:
        spark, sink = one.spark, one.sink
        if not isinstance(sink, MarkedSink):
            continue
        with _in_one_sentence(f"The target {sink.target}", user_line()):
            moment = moment or next_moment(spark, checkpoint, query_id)
            key, value = _types(one.output)
            columns = StructType([*key.fields, *value.fields])
            stored = partial(stored_output, spark, checkpoint, plan, one.output.node, moment.number - 1)
            try:
                sink.at(moment).settle(spark, columns, stored)
            except TargetError as error:
                raise error.at("", user_line()) from error


@contextmanager
def _in_one_sentence(place: str, where: str) -> Iterator[None]:
    """Make one sentence of Spark's error for a place that it cannot read or write: PySpark passes on what Java says."""
    try:
        yield
    except TablestreamError:
        raise
    except (PySparkException, Py4JJavaError, OSError) as error:
        lines = [line.strip(" :") for line in str(error).split("\n") if line.strip()]
        said = next(
            (line for line in lines if not line.startswith("An error occurred")), type(error).__name__
        )
        raise ArgumentError(
            f"{place} cannot be read or written: {said}",
            hint="Give a directory that Spark can write. Another file system needs its jar and settings in Spark.",
            where=where,
        ) from error


def _check_sink(one: OutputRequest) -> None:
    """Let a sink refuse the session and the columns."""
    key, value = _types(one.output)
    one.sink.check(one.spark, [*key.names, *value.names])
    if isinstance(one.sink, TypedSink):
        one.sink.check_types(one.spark, StructType([*key.fields, *value.fields]))


def _types(output: Output) -> tuple[StructType, StructType]:
    """The key and value columns of an output's changes, without those that the library adds."""
    if output.rejected:
        return StructType(), REJECTED_COLUMNS
    key = StructType(
        [
            StructField(one.name, one.dataType, can_be_null)
            for one, can_be_null in zip(schema_of(output.node.key), nullable_key(output.node), strict=True)
        ]
    )
    return key, schema_of(output.node.value)


def _keyed(one: OutputRequest) -> Sink:
    """The sink with the key of its changes. Rejected records have none."""
    key = [column.name for column in one.output.node.key]
    return one.sink if one.output.rejected else one.sink.keyed_by(key)


def _shaped(one: OutputRequest) -> Sink:
    """The sink with the columns of its changes, if it makes records."""
    if not isinstance(one.sink, RecordSink):
        return one.sink
    key, value = _types(one.output)
    return one.sink.shaped(key, value, records=one.output.rejected or one.output.node.is_stream)


def _micro_batch_writer(
    plan: PhysicalPlan, sinks: Mapping[str, Sink], checkpoint: str, voice: _Voice, staged: Staged
) -> Callable[[DataFrame, int], None]:
    """Return the function that Spark calls with each micro-batch."""
    known: list[Moment] = []
    is_marked = any(isinstance(sink, MarkedSink) for sink in sinks.values())
    endings = plan.endings
    watch = ShardWatch.of(plan, checkpoint) if plan.rounds else None
    hear = voice.of_run()
    directories = _parquet_directories(plan)

    def write(micro_batch: DataFrame, number: int) -> None:
        quieten()
        voice.rules.begin()
        spark = micro_batch.sparkSession
        for one in directories:
            check_none_came_empty(spark, one)
        query_id = known[-1].query_id if known else _query_id(spark, checkpoint)
        assert query_id is not None  # noqa: S101 - Spark wrote it before it called this
        if not is_marked:
            moment = Moment(number, query_id)
        elif known and known[-1].number == number - 1:
            moment = following(spark, checkpoint, known[-1])
        else:
            moment = moment_of(spark, checkpoint, query_id, number)
        known[:] = [moment]
        write_outputs(
            micro_batch,
            moment,
            sinks,
            split=lambda frame, index: numbered(split(frame, endings[index]), number),
            watch=watch,
            hear=hear,
            alone=voice.rules.on_drop != "fail",
            staged=staged,
        )

    return write


def _parquet_directories(plan: PhysicalPlan) -> list[str]:
    """Where the Parquet files are that a plan reads."""
    frames = [source.frame for source in plan.sources]
    return sorted(
        {one.directory for one in frames if isinstance(one, SourceFrame) and one.directory is not None}
    )


def _query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """Read the query's id, which lives as long as its checkpoint. None if no query was started yet."""
    return next((str(one["id"]) for one in documents(spark, checkpoint, "metadata")), None)
