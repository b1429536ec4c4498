"""Run several outputs as one query."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tablestream.arguments.words import check_known
from tablestream.base.calling import user_line
from tablestream.base.data_text import data_left_out
from tablestream.connectors.marks import MarkedSink, Moment
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import Sink, checked_path
from tablestream.connectors.spark_place import check_none_came_empty, check_writable
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError, PlanChangedError, TargetError
from tablestream.planner.evolution import Facts
from tablestream.planner.explain import explained
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.runtime.drops import DropReport, DropRules, Notice, OnDrop
from tablestream.spark.births import ShardWatch
from tablestream.spark.bootstrap import written_once
from tablestream.spark.evolve import OnPlanChange, evolved, ways_out
from tablestream.spark.failures import saying_what_failed
from tablestream.spark.generations import (
    Generation,
    current,
    following,
    id_of_query,
    moment_of,
    next_moment,
)
from tablestream.spark.options import Alignment, Compat, OnError, kept_options, plan_options
from tablestream.spark.outputs import check_apart, check_identities, check_outputs, is_lone, write_outputs
from tablestream.spark.plan import diagram_of, drop_rules, lowered, numbered, query_frame, split
from tablestream.spark.processes import quieten
from tablestream.spark.reports import listen, warn_of_drops
from tablestream.spark.requests import (
    OutputRequest,
    check_requests,
    check_session,
    check_sink,
    in_one_sentence,
    keyed,
    shaped,
    types_of,
)
from tablestream.spark.session import configured, let_ctrl_c_interrupt
from tablestream.spark.sources import frame_of_source
from tablestream.spark.staging import Staged
from tablestream.spark.state_reader import stored_output
from tablestream.spark.stored_plan import check_plan, store_facts, store_plan, store_steps, stored_facts
from tablestream.topology.nodes import Source

if TYPE_CHECKING:
    from tablestream.metrics.query_metrics import QueryMetrics
    from tablestream.pictures.diagram import Diagram

_log = logging.getLogger(__name__)
#: Whether Spark stops the run of a query that is active when the query starts again. Its default is true.
_RESTARTS = "spark.sql.streaming.stopActiveRunOnRestart"
_TRIGGER = 'Write it as {"availableNow": True} or {"processingTime": "10 seconds"}.'


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
    evolvable: bool | None = None,
    on_plan_change: OnPlanChange = "refuse",
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
        Options of the plan; see `Table.changes`. Default of `shards`: as the checkpoint has it, 16 in a new one.
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
    evolvable
        Whether the state keeps every table of the sources whole, so that a later plan can go on from it (`evolve`).
        Each table that no operator keeps whole then takes one more copy of its rows. It is part of the plan. Default:
        as the checkpoint has it, false in a new one.
    on_plan_change
        What to do if another plan made the checkpoint: ``"refuse"`` it, or ``"evolve"`` as `evolve` does.

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
    check_session(outputs, name)
    check_known("on_plan_change", on_plan_change, get_args(OnPlanChange))
    options, rules = plan_options(compat, shards, align, on_error), drop_rules(on_drop, redact=redact)
    place, facts = _found(spark, checkpoint)
    plan = lowered([one.output for one in outputs], kept_options(options, facts, shards, evolvable))
    trigger = _checked_trigger(plan, trigger)
    prepare_workers(spark)
    let_ctrl_c_interrupt()
    with data_left_out(rules.redact):
        if on_plan_change == "evolve":
            place = evolved(outputs, checkpoint, plan, place)
        try:
            query_id, sinks, bootstraps = _settled(spark, place, plan, outputs)
        except PlanChangedError as error:
            hint = ways_out(outputs, checkpoint, plan)
            raise PlanChangedError(error.reason, hint=hint, where=user_line()) from error
    checkpoint = place.path
    voice = _Voice.of(rules, spark, sinks.values())
    staged = replace(Staged.of(spark, plan, sinks), first=place.first)
    frame = query_frame(plan, bootstraps, voice.rules, observed=voice.observed, staged=staged)
    writer = frame.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    writer = _triggered(writer if name is None else writer.queryName(name), trigger)
    writer = writer.foreachBatch(_micro_batch_writer(plan, sinks, place, voice, staged))
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
    check_requests(outputs)
    plan = lowered([one.output for one in outputs], plan_options(compat, shards, align))
    sinks = {str(number): keyed(one) for number, one in enumerate(outputs)}  # two may have one name
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
    check_requests(outputs)
    return diagram_of([one.output for one in outputs], plan_options(compat, shards, align), metrics)


def _check_words(outputs: Sequence[Any], checkpoint: Any, trigger: Any) -> None:
    """Check the types of arguments before anything is written."""
    check_requests(outputs)
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


def _is_active(spark: SparkSession, query_id: str | None) -> bool:
    """Whether a query runs in the session, and Spark stops that run when the query starts again."""
    active = any(str(one.id) == query_id for one in spark.streams.active)
    return active and spark.conf.get(_RESTARTS, "true") == "true"


def _found(spark: SparkSession, checkpoint: str) -> tuple[Generation, Facts | None]:
    """Look for the generation in a checkpoint, and for what it says of its plan."""
    check_writable(spark, checkpoint, f"The checkpoint {checkpoint} cannot be read or written")
    with in_one_sentence(f"The checkpoint {checkpoint}", user_line()):
        place = current(spark, checkpoint)
        return place, stored_facts(spark, place.path)


def _settled(
    spark: SparkSession, place: Generation, plan: PhysicalPlan, outputs: Sequence[OutputRequest]
) -> tuple[str | None, dict[str, Sink], dict[Source, DataFrame]]:
    """Look whether the plan fits the checkpoint, then at the targets; store the plan and the bootstraps of a new query.

    Returns: the query's id, None if it is new; the outputs' names and sinks; the rows that sources start with.
    """
    outputs = [replace(one, sink=keyed(one)) for one in outputs]
    sinks = [one.sink for one in outputs]
    check_outputs([one.name for one in outputs], sinks)
    with in_one_sentence(f"The checkpoint {place.path}", user_line()):
        query_id = id_of_query(spark, place.path)
        if query_id is None:
            check_apart(place.path, sinks)
        is_stored = query_id is not None and check_plan(spark, place.path, plan)
    for one in outputs:
        check_sink(one)
    outputs = [replace(one, sink=shaped(one)) for one in outputs]
    check_identities(one.sink for one in outputs)
    _settle(place, query_id, plan, outputs)
    if not is_stored:
        store_plan(spark, place.path, plan)
    if plan.rounds:
        store_facts(spark, place.path, Facts.of(plan, {one.name: one.sink.target for one in outputs}))
        tables = {one.name: one.output.node for one in outputs if not one.output.rejected}
        store_steps(spark, place.path, plan, tables)
    bootstraps = written_once(spark, place.path, plan, started=query_id is not None)
    return query_id, {one.name: one.sink for one in outputs}, bootstraps


def _settle(
    place: Generation, query_id: str | None, plan: PhysicalPlan, outputs: Sequence[OutputRequest]
) -> None:
    """Let targets that keep marks refuse a checkpoint that they do not fit, or be settled as the user said."""
    moment = None
    for one in outputs:
        spark, sink = one.spark, one.sink
        if not isinstance(sink, MarkedSink):
            continue
        with in_one_sentence(f"The target {sink.target}", user_line()):
            moment = moment or next_moment(spark, place, query_id)
            key, value = types_of(one.output)
            columns = StructType([*key.fields, *value.fields])
            done = moment.number - 1 - place.first
            stored = partial(stored_output, spark, place.path, plan, one.output.node, done)
            try:
                sink.at(moment).settle(spark, columns, stored)
            except TargetError as error:
                raise error.at("", user_line()) from error


def _micro_batch_writer(
    plan: PhysicalPlan, sinks: Mapping[str, Sink], place: Generation, voice: _Voice, staged: Staged
) -> Callable[[DataFrame, int], None]:
    """Return the function that Spark calls with each micro-batch."""
    known: list[Moment] = []
    is_marked = any(isinstance(sink, MarkedSink) for sink in sinks.values())
    endings = plan.endings
    watch = ShardWatch.of(plan, place) if plan.rounds else None
    hear = voice.of_run()
    read = {frame_of_source(source).directory for source in plan.sources}
    directories = sorted(one for one in read if one is not None)

    def write(micro_batch: DataFrame, number: int) -> None:
        quieten()
        voice.rules.begin()
        spark = micro_batch.sparkSession
        for one in directories:
            check_none_came_empty(spark, one)
        query_id = known[-1].query_id if known else id_of_query(spark, place.path)
        assert query_id is not None  # noqa: S101 - Spark wrote it before it called this
        if not is_marked:
            moment = Moment(place.first + number, query_id)
        elif known and known[-1].number == place.first + number - 1:
            moment = following(spark, place, known[-1])
        else:
            moment = moment_of(spark, place, query_id, number)
        known[:] = [moment]
        write_outputs(
            micro_batch,
            moment,
            sinks,
            split=lambda frame, index: numbered(split(frame, endings[index]), moment.number),
            watch=watch,
            hear=hear,
            alone=voice.rules.on_drop != "fail",
            staged=staged,
        )

    return write
