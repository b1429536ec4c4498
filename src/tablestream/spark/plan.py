"""A whole plan: from tables and their output options to streaming data frames."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tablestream.arguments.kinds import flag
from tablestream.arguments.words import check_known
from tablestream.base.calling import user_line
from tablestream.connectors import sink
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError, MixedPlanError
from tablestream.planner.explain import explained
from tablestream.planner.lower import lower
from tablestream.planner.physical_plan import Ending, OnError, Output, PhysicalPlan, PlanOptions
from tablestream.runtime.drops import DropRules, OnDrop
from tablestream.spark.build import Builder
from tablestream.spark.columns import internal, quoted
from tablestream.spark.exchange import Blobs, SparkExchange
from tablestream.spark.layout import polars_types
from tablestream.spark.reports import listen
from tablestream.spark.round_worker import Settings
from tablestream.spark.session import check_configured, let_ctrl_c_interrupt
from tablestream.spark.sources import frame_of_source
from tablestream.spark.staging import NOTHING_STAGED, Staged
from tablestream.spark.unpacking import NOTE, RowStager, by_batches, output_column
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Source

if TYPE_CHECKING:
    from tablestream.connectors.sink import Stage
    from tablestream.metrics.query_metrics import QueryMetrics
    from tablestream.pictures.diagram import Diagram

#: Names the variable of the environment that leaves data out of messages.
REDACT = "TABLESTREAM_REDACT"
_LONG = '"long"'
_CACHE_BYTES = 8 << 30


def changes_of(output: Output, spark: SparkSession, options: PlanOptions) -> DataFrame:
    """Return the changes of one table; see `Table.changes`."""
    plan = lowered([output], options)
    _check_bootstraps(plan)
    prepare_workers(spark)
    let_ctrl_c_interrupt()
    if plan.rounds:
        check_configured(spark, plan.options.shards, len(plan.rounds))
    exchange = SparkExchange(worker_settings(), observes_drops=True)
    builder, (ending,) = Builder(plan, exchange, rules=drop_rules()), plan.endings
    listen(spark)
    frame = builder.build()
    if output.rejected:
        return frame.selectExpr(*sink.aliased(builder.rejected(ending)))
    frame, columns = builder.result(frame, ending)
    rows = frame.selectExpr(*sink.aliased(columns))
    return _with_images(rows, ending) if output.before else rows


def _check_bootstraps(plan: PhysicalPlan) -> None:
    """Refuse bootstraps in a query that has no checkpoint yet, which keeps their rows."""
    for source in plan.bootstrapped:
        raise ArgumentError(
            f"'{source.name}' has bootstrap=, whose rows are kept in the checkpoint of the query.",
            hint="Start the query with ts.start(table.to(sink), checkpoint=...), instead of changes() or rejected().",
            operator=source.name,
            where=source.where,
        )


def lowered(outputs: Sequence[Output], options: PlanOptions) -> PhysicalPlan:
    """Lower the outputs of some tables to one physical plan.

    It refuses sources with different orders, a wall clock with an order that is no bigint, and unknown names in
    `on_error`.
    """
    sources = [node for node in ancestors(*(output.node for output in outputs)) if isinstance(node, Source)]
    orders = {source.ordered_by for source in sources}
    if len(orders) > 1:
        names = ", ".join(f"{source.name}: {source.ordered_by or 'none'}" for source in sources)
        raise MixedPlanError(
            f"The tables of a plan have different orders ({names}).",
            hint="Give all of them order_by= of one type, or none.",
            where=user_line(),
        )
    if options.align is not None:
        _check_alignable(sources)
    plan = lower(outputs, polars_types, options)
    _check_names(options.on_error, plan.names.values())
    if orders - {None, _LONG} and any(work.needs_clock for work in plan.rounds):
        raise ArgumentError(
            f"A plan with a wall clock is ordered by {orders.pop()}; order_by= must be a bigint.",
            hint='Cast it, as in order_by=F.col("lsn").cast("bigint").',
            where=user_line(),
        )
    return plan


def _check_names(on_error: OnError, names: Collection[str]) -> None:
    """Refuse names that no table of a plan has."""
    unknown = [name for name, _ in on_error.named if name not in names]
    if unknown:
        raise ArgumentError(
            f"on_error names {unknown[0]!r}, which is no table of the plan.",
            hint=f"Tables are: {', '.join(names)}.",
            where=user_line(),
        )


def _check_alignable(sources: Sequence[Source]) -> None:
    """Refuse alignment if a source has no positions, or its order has no largest value."""
    for source in sources:
        if not frame_of_source(source).origin.partition:
            raise ArgumentError(
                f"align= needs the position of a record in its source, and '{source.name}' has none.",
                hint="Read the records from files or from Kafka, or omit align=.",
                operator=source.name,
                where=source.where,
            )
        if (source.ordered_by or "").startswith("{"):
            raise ArgumentError(
                f"align= compares times or one number, and '{source.name}' is ordered by a {source.ordered_by}.",
                hint="Give order_by= one column of a plain type, or omit align=.",
                operator=source.name,
                where=source.where,
            )


def worker_settings() -> Settings:
    """Where workers cache runs: a directory of this user, temporary unless the environment names one."""
    directory = os.environ.get("TABLESTREAM_CACHE_DIR")
    if directory is None:
        directory = str(Path(tempfile.gettempdir()) / f"tablestream-{_user()}")
    size = os.environ.get("TABLESTREAM_CACHE_BYTES", str(_CACHE_BYTES))
    if not size.isdecimal():
        raise ArgumentError(
            f"TABLESTREAM_CACHE_BYTES is {size!r}, which is not a number of bytes.",
            hint=f"Write it in digits, such as {_CACHE_BYTES}.",
            where=user_line(),
        )
    return Settings(directory, int(size))


def _user() -> str:
    """The user's name, or number: in a container a user often has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def drop_rules(on_drop: OnDrop = "warn", *, redact: bool = False) -> DropRules:
    """What a query does about drops; ``TABLESTREAM_REDACT`` in the environment leaves data out of all messages."""
    check_known("on_drop", on_drop, get_args(OnDrop))
    given = os.environ.get(REDACT, "no")
    check_known(REDACT, given, ("yes", "no"))
    return DropRules(on_drop, flag(redact, "redact") or given == "yes")


def query_frame(
    plan: PhysicalPlan,
    bootstraps: Mapping[Source, DataFrame],
    rules: DropRules,
    *,
    observed: bool,
    staged: Staged = NOTHING_STAGED,
    records: Mapping[Source, DataFrame] | None = None,
) -> DataFrame:
    """Return one frame for all outputs of a query, see `outputs_frame`.

    It also has the reports that `tablestream.spark.reports` reads. `bootstraps`: the rows that sources start with, as
    `tablestream.spark.bootstrap` reads them. `observed`: whether the query's progress has examples of drops. `staged`:
    the outputs that the workers write; what they say about it is a report, too. `records`: as of `Builder`.
    """
    exchange = SparkExchange(worker_settings(), reporting=True, observes_drops=observed)
    builder = Builder(
        plan,
        exchange,
        bootstraps=bootstraps,
        records=records,
        rules=rules,
        staged=staged.ports,
        first=staged.first,
    )
    written = {one.number for one in staged.ports}
    endings = [one for one in plan.endings if one.port.number not in written]
    frame = outputs_frame(builder, builder.build(), endings, {one.number: one.stage for one in staged.rows})
    if staged.rows:
        frame = frame.mapInArrow(
            by_batches(RowStager(staged.rows, staged.first)), f"__port int, {NOTE} string"
        )
    return frame


def outputs_frame(
    builder: Builder[Blobs],
    frame: DataFrame,
    endings: Sequence[Ending],
    stages: Mapping[int, Stage] = MappingProxyType({}),
) -> DataFrame:
    """Return one frame for some outputs: ``__port``, and a struct ``__out<port>`` with the columns of each.

    `frame`: what the builder built. `stages`: what the workers do with the rows of ports; they may want lines.
    """
    given, texts = frame.columns, dict[str, str]()
    for ending in endings:
        port = ending.port.number
        made = frame
        if ending.rejected:
            columns = builder.rejected(ending)
        else:
            made, columns = builder.result(frame, ending)
        line = stages[port].line(columns) if port in stages else None
        shown = columns if line is None else {"line": line}
        texts[output_column(port)] = (
            f"CASE WHEN __port = {port} THEN {sink.struct_of(sink.aliased(shown))} END"
        )
        if made is not frame:
            # Drop intermediate columns: another output of the same table has columns of the same names.
            frame = made.selectExpr(*given, *(f"{text} AS {out}" for out, text in texts.items()))
            given, texts = [*given, *texts], {}
    outs = (output_column(ending.port.number) for ending in endings)
    given = [name for name in ("__port", NOTE) if name in frame.columns]
    return frame.selectExpr(*given, *(f"{texts.get(out, out)} AS {out}" for out in outs))


def split(frame: DataFrame, ending: Ending) -> DataFrame:
    """Take the rows of one output from `query_frame`."""
    port = ending.port.number
    rows = frame.where(f"__port = {port}").select(f"{output_column(port)}.*")
    return _with_images(rows, ending) if ending.before else rows


def numbered(changes: DataFrame, number: int) -> DataFrame:
    """Add the micro-batch's number to the order: under Spark Connect the workers do not get it."""
    order = internal(sink.ORDER).withField("micro_batch", internal(f"{number}L"))
    return changes.withColumn(sink.ORDER, order)


def _with_images(rows: DataFrame, ending: Ending) -> DataFrame:
    """Show each change as the rows before and after it, with the change types of Delta's change data feed."""
    names = [one.name for one in ending.node.value]
    live, old = F.col("_change_type") == "upsert", F.col("__old")
    new = internal(sink.struct_of(list(map(sink.quoted, names))))
    images = (
        F.when(live & old.isNull(), F.array(_image("insert", new)))
        .when(live, F.array(_image("update_preimage", old), _image("update_postimage", new)))
        .when(old.isNotNull(), F.array(_image("delete", old)))
    )
    shown = rows.select("*", F.posexplode(images).alias("__image", "__row"))
    key = [quoted(one.name) for one in ending.node.key]
    value = [quoted("__row", "value", name).alias(name) for name in names]
    kind = quoted("__row", "kind").alias("_change_type")
    order = F.col("_order").withField("image", F.col("__image")).alias("_order")
    latest = ["_is_latest"] if ending.tells_latest else []
    return shown.select(*key, *value, kind, "_timestamp", *latest, order)


def _image(kind: str, value: Column) -> Column:
    return F.struct(F.lit(kind).alias("kind"), value.alias("value"))


def plan_of(outputs: Sequence[Output], options: PlanOptions) -> str:
    """Return the plan of some outputs as text."""
    return explained(lowered(outputs, options))


def diagram_of(
    outputs: Sequence[Output],
    options: PlanOptions,
    metrics: QueryMetrics | Iterable[QueryMetrics] | None = None,
) -> Diagram:
    """Return the plan of some outputs as a picture."""
    from tablestream.pictures.diagram import Diagram

    return Diagram.of(lowered(outputs, options), metrics)
