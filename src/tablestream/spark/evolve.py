"""Let a query evolve: a changed plan goes on where the old one stopped, from the rows that its state keeps.

The new plan gets a generation of the checkpoint (`tablestream.spark.generations`). Its first micro-batch reads the rows
that the old state keeps of each source, as one step, and builds all state in bulk. Then the generation gets the old
query's places in its sources (`tablestream.spark.source_places`), and becomes the current one by one small file. A
failure before leaves the old one as it was. With `refill` the generation gets these places first: so its first
micro-batch reads the logs themselves, from where the old query began to where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from tablestream.arguments.kinds import flag
from tablestream.arguments.kinds import whole as whole_number
from tablestream.base.calling import user_line
from tablestream.base.data_text import data_left_out
from tablestream.connectors.marks import Evolves, LogSink, MarkedSink, MarkingSink, Moment, PlacedSink
from tablestream.connectors.place import Place
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import Sink, checked_path, quoted
from tablestream.connectors.small_texts import numbered_names
from tablestream.connectors.spark_place import UNREADABLE
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError, PlanChangedError, StateError, TablestreamError
from tablestream.planner.evolution import Facts, Fate, fates, records_wait, table_of
from tablestream.planner.physical_plan import PhysicalPlan, PlanOptions
from tablestream.runtime.drops import ONLY_COUNTED
from tablestream.spark import generations
from tablestream.spark.births import ShardWatch
from tablestream.spark.bootstrap import bootstrap_of, check_keys, check_plain, places, stream_of, write_rows
from tablestream.spark.bootstrap_frame import Bootstrap
from tablestream.spark.checkpoint_files import CheckpointFiles
from tablestream.spark.columns import spark_type
from tablestream.spark.evolution import OTHER_PLAN, Evolution, evolving, hint_of, sized
from tablestream.spark.failures import saying_what_failed
from tablestream.spark.generations import Generation, id_of_query, moment_of
from tablestream.spark.options import Alignment, Compat, OnError, kept_options, plan_options
from tablestream.spark.outputs import check_identities, check_outputs, write_outputs
from tablestream.spark.plan import lowered, numbered, query_frame, split
from tablestream.spark.processes import quieten
from tablestream.spark.relocation import check_place
from tablestream.spark.requests import (
    OutputRequest,
    check_requests,
    check_session,
    check_sink,
    in_one_sentence,
    keyed,
    shaped,
)
from tablestream.spark.session import configured
from tablestream.spark.source_places import Moves, begun_elsewhere, take_places
from tablestream.spark.sources import columns_of_records, frame_of_source, key_fields, value_fields
from tablestream.spark.staging import Staged
from tablestream.spark.state_reader import read_stored
from tablestream.spark.stored_plan import (
    check_settings,
    store_facts,
    store_plan,
    store_steps,
    stored_facts,
    stored_remains,
    stored_text,
)
from tablestream.spark.stored_state import StoredState
from tablestream.topology.nodes import Source

#: What a start does about a checkpoint that another plan made.
OnPlanChange = Literal["refuse", "evolve"]
_CHANGE = "Change what is named here, or start the new plan with a new checkpoint and new targets."


def check(
    *outputs: OutputRequest,
    checkpoint: str | os.PathLike[str],
    compat: Compat = None,
    shards: int | None = None,
    align: Alignment = False,
    on_error: OnError = "fail",
    evolvable: bool | None = None,
    refill: bool = False,
) -> Evolution:
    """Say what becomes of a query if it evolves into another plan; nothing is written.

    Parameters
    ----------
    outputs, compat, shards, align, on_error, evolvable
        The new plan, as `start` gets it.
    checkpoint
        The directory of the query's checkpoint.
    refill
        As for `evolve`.

    Returns
    -------
    Evolution
        Its text has a line for each source, operator and output; if the query cannot evolve, for those that are
        refused.

    Raises
    ------
    ArgumentError, MixedPlanError
        As by `start`.
    StateError
        The directory is no checkpoint of such a query, or its last micro-batch is not complete; or an older version
        wrote it.

    Examples
    --------
    >>> print(ts.check(orders.to(sink), checkpoint="out/checkpoint"))  # doctest: +SKIP
    """
    wanted = _Wanted(plan_options(compat, shards, align, on_error), shards, evolvable, flag(refill, "refill"))
    return _Change.of(outputs, checkpoint, wanted).evolution


def evolve(
    *outputs: OutputRequest,
    checkpoint: str | os.PathLike[str],
    compat: Compat = None,
    shards: int | None = None,
    align: Alignment = False,
    on_error: OnError = "fail",
    evolvable: bool | None = None,
    partitions: int | None = None,
    refill: bool = False,
) -> Evolution:
    """Let a query that has ended go on with another plan, from the rows that its state keeps.

    Outputs with the same meaning and target get later changes only. A new output gets its whole table. A maintained
    table whose output has changed gets the columns that it lacks, and is then brought to the new table in one
    transaction. A log of files or a topic gets all rows, and deletes of keys that are gone. Afterwards `start` the new
    plan with the same checkpoint.

    Parameters
    ----------
    outputs, compat, shards, align, on_error, evolvable
        The new plan, as `start` gets it. Another number of shards is another plan.
    checkpoint
        The directory of the query's checkpoint. The old plan's state stays in it until `drop_generations`.
    partitions
        How many partitions the state has from now on: at most as many tasks run at a time. Default: as for a new
        checkpoint.
    refill
        Read the logs of all sources once more, from where the query began to where it stopped, instead of the rows in
        the state. So a query can evolve whose state lacks rows that the new plan needs, or whose operators remember
        what rows do not say, such as windows of streams. The logs must still be there from the beginning. Nothing is
        read if the plan is the same, and `partitions` is not given.

    Returns
    -------
    Evolution
        What became of each source, operator and output.

    Raises
    ------
    PlanChangedError
        The query cannot evolve: the text names the parts and the reasons. Nothing was written.
    ArgumentError
        The query runs in this session; or as by `start`.
    StateError
        As by `check`; or the query ran in another process meanwhile.
    QueryFailedError
        A target cannot be written. One of a new output has rows that are not this query's, or belongs to the query
        under another name.
    SessionSettingError, CheckpointMovedError
        As by `start`.

    Notes
    -----
    The rows of all sources enter as one step, as those of ``bootstrap=`` do, with the times that they had. The time of
    a group or of a joined row follows from the rows that are there, so it can be earlier than it was.

    With `refill`, what was read in several micro-batches comes in one. So records of different sources can come in
    another order than before, and a new output gets every change, not only the last one of each key. This order can
    decide what a table is, so each one is brought over or told anew, also if its output is unchanged.

    Until the generation is complete, the old one is current: after a failure, call `evolve` again, or start the old
    plan. A target that was written before the failure does not fit the old plan any more; of a topic it is not known.
    Columns that a Delta table got stay in it, without values.

    Examples
    --------
    >>> ts.evolve(orders.to(sink), checkpoint="out/checkpoint", shards=64)  # doctest: +SKIP
    """
    if partitions is not None and not (whole_number(partitions) or 0) >= 1:
        raise ArgumentError(
            f"partitions={partitions!r} is not a number of partitions.",
            hint="Give 1 or more.",
            where=user_line(),
        )
    wanted = _Wanted(plan_options(compat, shards, align, on_error), shards, evolvable, flag(refill, "refill"))
    change = _Change.of(outputs, checkpoint, wanted)
    if not change.evolution.is_same or partitions is not None:
        change.check()
        change.carry_out(partitions)
    return replace(change.evolution, about_s=None)


def evolved(
    outputs: Sequence[OutputRequest], checkpoint: str, plan: PhysicalPlan, place: Generation
) -> Generation:
    """Let a query evolve if another plan made its checkpoint; return the generation with which it goes on."""
    spark = outputs[0].spark
    text, facts = stored_text(spark, place.path), stored_facts(spark, place.path)
    now = Facts.of(plan, {one.name: keyed(one).target for one in outputs})
    if text is None or (plan.is_same(text) and (facts is None or facts == now.following(facts))):
        return place
    change = _Change.of(outputs, checkpoint, _Wanted.of(plan))
    if not change.evolution.is_same:
        change.check()
        change.carry_out(None)
    return generations.current(spark, checkpoint)


def ways_out(outputs: Sequence[OutputRequest], checkpoint: str, plan: PhysicalPlan) -> str:
    """What helps a start that is refused because another plan made the checkpoint."""
    try:
        change = _Change.of(outputs, checkpoint, _Wanted.of(plan))
    except TablestreamError as error:
        return f"{OTHER_PLAN} It cannot evolve: {error.reason} {error.hint}".strip()
    except UNREADABLE:  # which `ts.check` then says; the start is refused because of its plan
        return f"{OTHER_PLAN} Or ask ts.check whether the query can evolve."
    options = {}
    if change.new.shards != change.old.shards:
        options[f"shards={change.new.shards}"] = f"--shards {change.new.shards}"
    if change.new.evolvable and not change.old.evolvable:
        options["evolvable=True"] = "--evolvable"
    return f"{OTHER_PLAN} {evolving(change.evolution, checkpoint, options)}"


def drop_generations(spark: SparkSession, checkpoint: str | os.PathLike[str]) -> int:
    """Remove the state of the plans from which a query has evolved, and what attempts left that failed.

    Parameters
    ----------
    spark
        A session.
    checkpoint
        The directory of the query's checkpoint.

    Returns
    -------
    int
        How many were removed.

    Raises
    ------
    StateError
        The directory is no checkpoint of a query.

    Examples
    --------
    >>> ts.drop_generations(spark, "out/checkpoint")  # doctest: +SKIP
    1
    """
    path = checked_path(checkpoint, "the checkpoint")
    now, files = generations.current(spark, path), CheckpointFiles.seen_by(spark, path)
    _known_query(spark, path, now)
    names = files.names(generations.GENERATIONS)
    gone = [f"{generations.GENERATIONS}/{name}" for name in names if name != now.name]
    first = [name for name in generations.FIRST if now.number and name in files.names("")]
    for name in (*gone, *first):
        files.remove(name)
    return len(gone) + bool(first)


@dataclass(frozen=True)
class _Wanted:
    """The options of the new plan; of `shards` and `evolvable` None is what the checkpoint has."""

    options: PlanOptions
    shards: int | None
    evolvable: bool | None
    refill: bool = False

    @classmethod
    def of(cls, plan: PhysicalPlan) -> _Wanted:
        """The options of a plan that is to be started."""
        return cls(plan.options, plan.options.shards, plan.options.evolvable)


@dataclass(frozen=True)
class _Change:
    """A query that is about to evolve: its place, the new plan, and what becomes of each part.

    `tables`: the table in the state that each source of the old plan is; empty: none.
    """

    spark: SparkSession
    checkpoint: str
    place: Generation
    last: Moment
    plan: PhysicalPlan
    requests: tuple[OutputRequest, ...]
    old: Facts
    new: Facts
    tables: Mapping[str, str]
    evolution: Evolution
    refill: bool

    @classmethod
    def of(
        cls, given: Sequence[OutputRequest], checkpoint: str | os.PathLike[str], wanted: _Wanted
    ) -> _Change:
        """Look at the checkpoint, and compare plans."""
        check_requests(given)
        check_session(given, None)
        spark, path = given[0].spark, checked_path(checkpoint, "the checkpoint")
        requests = tuple(replace(one, sink=keyed(one)) for one in given)
        check_outputs([one.name for one in requests], [one.sink for one in requests])
        with in_one_sentence(f"The checkpoint {path}", user_line()):
            check_plain(path)
            _check_reached(spark, path)
            place = generations.current(spark, path)
            text, old = stored_text(spark, place.path), stored_facts(spark, place.path)
            last = _last(spark, path, place)
            check_place(spark, place.path)
            check_settings(spark, place.path)
        if text is None or old is None:
            raise StateError(
                f"The checkpoint {path} does not say what its plan is made of: an older version has written it, or its"
                " plan keeps no state.",
                hint="Start the unchanged plan once with this version. A plan without state needs no evolution.",
                where=user_line(),
            )
        options = kept_options(wanted.options, old, wanted.shards, wanted.evolvable)
        plan = lowered([one.output for one in requests], options)
        new = Facts.of(plan, {one.name: one.sink.target for one in requests})
        maintained = [one.sink.target for one in requests if _is_maintained(one.sink)]
        logs = [one.sink.target for one in requests if isinstance(one.sink, LogSink) and one.sink.retells]
        is_same = plan.is_same(text)
        known: dict[str, Any] = {
            "is_same": is_same,
            "begun_elsewhere": begun_elsewhere(spark, place.path, last.number - place.first, old.positions),
            "remains": stored_remains(spark, place.path),
            "waits": records_wait(text),
        }
        kept, again = (
            fates(old, new, plan, maintained, logs, refill=refill, **known) for refill in (False, True)
        )
        is_same &= not any(one.part == "output" and one.fate not in {"silent", "removed"} for one in kept)
        parts, others = (again, kept) if wanted.refill else (kept, again)
        tables = {name: table_of(old, name, known["remains"]) for name in old.sources}
        found = Evolution(parts, last.number, is_same, hint_of(parts, others, refill=wanted.refill))
        evolution = sized(found, spark, path, tables)
        return cls(spark, path, place, last, plan, requests, old, new, tables, evolution, wanted.refill)

    def check(self) -> None:
        """Raise `PlanChangedError` if the query cannot evolve."""
        parts = self.evolution.refused
        if parts:
            listed = "\n".join(f"{one.part} {one.name}: {one.why}" for one in parts)
            raise PlanChangedError(
                f"The query cannot evolve into this plan:\n{listed}",
                hint=f"{_CHANGE} {self.evolution.hint}".strip(),
                where=user_line(),
            )

    def carry_out(self, partitions: int | None) -> None:
        """Make the new generation, and let the query go on with it."""
        spark, path = self.spark, self.checkpoint
        _check_stopped(spark, path, self.last.query_id)
        prepare_workers(spark)
        new = generations.next_generation(path, self.place, self.last, self._first)
        old_files, files = (CheckpointFiles.seen_by(spark, one.path) for one in (self.place, new))
        try:
            old_files.copy("metadata", files, "metadata")
            store_plan(spark, new.path, self.plan)
            store_facts(spark, new.path, self.new.following(self.old))
            store_steps(spark, new.path, self.plan, {one.name: one.output.node for one in self.requests})
            self._first_step(new, partitions)
            if not self.refill:
                self._take_places(new)
                self._remove_rows(files)
            self._check_unchanged()
        except BaseException:
            files.remove("")
            raise
        generations.make_current(spark, path, new)

    @property
    def _first(self) -> int:
        """The number of the first step: that of the last micro-batch; one more if a log has this and gets all rows."""
        told = {one.name for one in self.evolution.parts if one.fate == "told anew"}
        return self.last.number + any(
            one.name in told for one in self.requests if isinstance(one.sink, MarkedSink)
        )

    def _check_unchanged(self) -> None:
        """Raise if the old plan ran meanwhile, or evolved into another one."""
        now = generations.current(self.spark, self.checkpoint)
        if now != self.place or _last(self.spark, self.checkpoint, now) != self.last:
            raise StateError(
                f"The query of the checkpoint {self.checkpoint} ran, or evolved, in another process meanwhile.",
                hint="Stop it, and let it evolve again.",
                where=user_line(),
            )

    def _first_step(self, place: Generation, partitions: int | None) -> None:
        """Build the state from the rows of the sources, and write the outputs that get whole tables."""
        spark, plan = self.spark, self.plan
        outputs = [one for one in self.evolution.parts if one.part == "output" and one.fate != "removed"]
        fate_of = {one.name: one.fate for one in outputs}
        writing = [n for n, one in enumerate(self.requests) if fate_of[one.name] != "silent"]
        old = self.last
        moment = Moment(place.first, old.query_id, place.name, old.proof, frozenset(place.earlier))
        written = {self.requests[n].name: self.requests[n] for n in writing}
        evolving = {name: replace(moment, evolves=_evolves(fate_of[name])) for name in written}
        sinks = {name: _fitting(one, evolving[name]) for name, one in written.items()}
        check_identities(sinks.values())
        step = replace(plan, endings=tuple(plan.endings[number] for number in writing))
        staged = replace(Staged.of(spark, step, sinks), first=place.first)
        frame = query_frame(
            step,
            {} if self.refill else self._rows(place),
            ONLY_COUNTED,
            observed=False,
            staged=staged,
            records=None if self.refill else {},
        )
        writer = frame.writeStream.outputMode("append").option("checkpointLocation", place.path)
        writer = writer.trigger(once=True)
        writer = writer.foreachBatch(_step_writer(step, sinks, place, evolving, moment, staged))
        with configured(spark, plan.options.shards, staged.columns, partitions), data_left_out(True):
            if self.refill:
                self._take_places(place)
            query = saying_what_failed(writer.start())
        try:
            query.awaitTermination()
        finally:
            query.stop()  # also if the user interrupts it

    def _rows(self, place: Generation) -> dict[Source, DataFrame]:
        """The rows that sources start with, as streams."""
        micro_batch = self.last.number - self.place.first
        state = StoredState.of(self.spark, self.place.path, micro_batch)
        last = micro_batch if state.births.before(micro_batch + 1) else None
        found = {}
        for source, name in places(list(self.plan.sources)).items():
            path, rows = f"{place.path}/{name}", self._kept(source, last)
            write_rows(self.spark, path, rows.frame)
            if self.plan.names[source] not in self.old.sources:
                check_keys(self.spark, path, source, rows)
            found[source] = stream_of(self.spark, path, source, rows)
        return found

    def _kept(self, source: Source, micro_batch: int | None) -> Bootstrap:
        """The rows of a source in the old state; of a new source those that it starts with, or none.

        `micro_batch`: after which the state has them; None: it has no rows of any table.
        """
        name, absent = self.plan.names[source], columns_of_records(frame_of_source(source).frame)
        if name not in self.old.sources and source.bootstrapped:
            return bootstrap_of(source)
        if name not in self.old.sources or micro_batch is None:
            return Bootstrap(_no_rows(self.spark, source), absent)
        table, rows = read_stored(self.spark, self.place.path, self.tables[name], micro_batch, None)
        if table.history is not None:  # as facts of a version say that did not know
            raise StateError(
                f"The state has versions of '{name}', not its rows.",
                hint="Start the unchanged plan once with this version: ts.check then says what helps.",
            )
        fields = key_fields(source) | value_fields(source)
        frame = rows.select(
            *(F.col(quoted(one.name)).alias(column) for column, one in fields.items()),
            F.lit(True).alias("__live"),
            F.unix_micros(F.col(quoted(rows.columns[-1]))).alias("__ts"),
        )
        return Bootstrap(frame, absent)

    def _take_places(self, place: Generation) -> None:
        """Give the new generation the old one's places in its sources."""
        frames = {id(frame_of_source(one).given) for one in self.plan.sources}
        moves = Moves(self.old, self.new, one_stream_each=len(frames) == len(self.plan.sources))
        micro_batch = self.last.number - self.place.first
        take_places(self.spark, self.place.path, micro_batch, place.path, moves, read_again=self.refill)

    def _remove_rows(self, files: CheckpointFiles) -> None:
        """Remove the rows that have entered. Spark looks for the directories of those of a bootstrap."""
        for name in places(list(self.plan.sources)).values():
            files.remove(name)
        for name in places(self.plan.bootstrapped).values():
            files.system.create_dir(files.path(name))


def _known_query(spark: SparkSession, checkpoint: str, place: Generation) -> str:
    """The id of the query whose checkpoint it is; raise `StateError` if none has run there."""
    query_id = id_of_query(spark, place.path)
    if query_id is None:
        raise StateError(
            f"{checkpoint} is no checkpoint: no query has run there.",
            hint="Give the directory that ts.start had as checkpoint=.",
            where=user_line(),
        )
    return query_id


def _last(spark: SparkSession, checkpoint: str, place: Generation) -> Moment:
    """The last micro-batch of a query; raise `StateError` if there is none, or it is not complete."""
    query_id = _known_query(spark, checkpoint, place)
    planned, done = (numbered_names(spark, f"{place.path}/{one}") for one in ("offsets", "commits"))
    if not done:
        raise StateError(
            f"The checkpoint {checkpoint} has no complete micro-batch.",
            hint="Give the directory of a query that has run, as checkpoint= of ts.start.",
            where=user_line(),
        )
    if planned and planned[-1] > done[-1]:
        raise StateError(
            f"The query has begun micro-batch {place.first + planned[-1]}, and not completed it: targets may have it.",
            hint="Start the old plan once more, and stop it after processAllAvailable(): between micro-batches.",
            where=user_line(),
        )
    return moment_of(spark, place, query_id, done[-1])


def _check_stopped(spark: SparkSession, checkpoint: str, query_id: str) -> None:
    if any(str(one.id) == query_id for one in spark.streams.active):
        raise ArgumentError(
            f"The query of the checkpoint {checkpoint} runs in this session.",
            hint="Stop it first.",
            where=user_line(),
        )


def _check_reached(spark: SparkSession, checkpoint: str) -> None:
    """Refuse a path that this process and Spark do not see alike."""
    if not has_context(spark) and Place.of(checkpoint).local_path is not None:
        raise ArgumentError(
            f"Under Spark Connect, {checkpoint} may be on another machine.",
            hint="Give a path with the scheme of its file system, such as s3://bucket/checkpoint, or let the query"
            " evolve on the server.",
            where=user_line(),
        )


def _fitting(one: OutputRequest, moment: Moment) -> Sink:
    """The sink of an output at its moment, whose target fits; raises if it does not."""
    placed = replace(one, sink=one.sink.at(moment)) if isinstance(one.sink, PlacedSink) else one
    check_sink(placed)
    return shaped(placed)


def _is_maintained(sink: Sink) -> bool:
    """Whether a target has one row per key, and can be brought over."""
    return sink.needs_final and isinstance(sink, MarkingSink)


def _evolves(fate: Fate) -> Evolves:
    return fate if fate in {"brought over", "told anew"} else "new"


def _no_rows(spark: SparkSession, source: Source) -> DataFrame:
    """A table without rows, in the columns of a bootstrap."""
    fields = key_fields(source) | value_fields(source)
    schema = StructType([StructField(name, spark_type(one)) for name, one in fields.items()])
    return spark.createDataFrame([], schema.add("__live", BooleanType()).add("__ts", LongType()))


def _step_writer(
    step: PhysicalPlan,
    sinks: Mapping[str, Sink],
    place: Generation,
    evolving: Mapping[str, Moment],
    moment: Moment,
    staged: Staged,
) -> Callable[[DataFrame, int], None]:
    """Return the function that Spark calls with the first micro-batch of a generation."""
    watch = ShardWatch.of(step, place) if step.rounds else None

    def write(micro_batch: DataFrame, number: int) -> None:  # noqa: ARG001 (Spark passes it; it is the first)
        quieten()
        write_outputs(
            micro_batch,
            moment,
            sinks,
            split=lambda frame, index: numbered(split(frame, step.endings[index]), moment.number),
            watch=watch,
            alone=False,
            staged=staged,
            evolving=evolving,
        )

    return write
