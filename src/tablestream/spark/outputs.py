"""The body of a ``foreachBatch``: the changes of several outputs, computed once, written one by one."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.storagelevel import StorageLevel

from tablestream.base.calling import user_line
from tablestream.connectors.marks import PlacedSink
from tablestream.connectors.place import Place
from tablestream.connectors.sink import DirectorySink, NamedSink, RecordSink, SharedSink, StagedSink
from tablestream.errors import ArgumentError
from tablestream.spark.reports import Reports
from tablestream.spark.staging import NOTHING_STAGED, Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import PurePath

    from pyspark.sql import DataFrame

    from tablestream.connectors.marks import Moment
    from tablestream.connectors.sink import Sink
    from tablestream.runtime.drops import Notice
    from tablestream.spark.births import ShardWatch


def check_outputs(names: Sequence[str], sinks: Iterable[Sink]) -> None:
    """Refuse outputs that share a name or a target, by which a replay is recognised. They may share the console."""
    targets = [sink.target for sink in sinks if not isinstance(sink, SharedSink)]
    for what, values, keys in (("name", names, names), ("target", targets, list(map(_place, targets)))):
        twice = sorted({value for value, key in zip(values, keys, strict=True) if keys.count(key) > 1})
        if twice:
            raise ArgumentError(
                f"Two outputs have the {what} {twice[0]!r}.",
                hint=f"Give each its own {what}.",
                where=user_line(),
            )


def check_identities(sinks: Iterable[Sink]) -> None:
    """Refuse two outputs into one target, under whichever names."""
    found: dict[str, str] = {}
    for sink in sinks:
        if isinstance(sink, NamedSink):
            known = found.setdefault(sink.identity, sink.target)
            if known != sink.target:
                raise ArgumentError(
                    f"Two outputs have the same table: '{known}' is '{sink.target}'.",
                    hint="Give each its own table.",
                    where=user_line(),
                )


def check_apart(checkpoint: str, sinks: Iterable[Sink]) -> None:
    """Refuse a new query whose checkpoint, or another output, is in the directory of an output.

    Readers of files would find those files, too, and Delta's VACUUM would delete them. Both pass over what is below a
    name that begins with ``_`` or a dot.
    """
    inside = [sink for sink in sinks if isinstance(sink, DirectorySink)]
    directories = [(f"The checkpoint {checkpoint}", checkpoint)]
    directories += [(f"The output '{sink.target}'", sink.path) for sink in inside]
    for at, (what, path) in enumerate(directories):
        for number, sink in enumerate(inside, start=1):
            if number != at and _is_seen(Place.of(path).below(Place.of(sink.path))):
                raise ArgumentError(
                    f"{what} is in the directory of the output '{sink.target}': {sink.harm} these files.",
                    hint="Give each a directory of its own.",
                    where=user_line(),
                )


def _is_seen(inside: PurePath | None) -> bool:
    """Whether readers of a directory look at a path in it, None if it is elsewhere."""
    return inside is not None and not any(part.startswith(("_", ".")) for part in inside.parts)


def _place(target: str) -> str:
    """A target with its local path in full, so that two ways to write one place are equal."""
    kind, _, where = target.partition(" ")
    place = Place.of(where)
    return target if place.local_path is None else f"{kind} {place.identity}"


def is_lone(sinks: Iterable[Sink]) -> bool:
    """Whether the only sink makes records, so that it can get rows while they are computed."""
    return [isinstance(sink, RecordSink) for sink in sinks] == [True]


def write_outputs(
    micro_batch: DataFrame,
    moment: Moment,
    sinks: Mapping[str, Sink],
    *,
    split: Callable[[DataFrame, int], DataFrame],
    watch: ShardWatch | None = None,
    hear: Callable[[int, list[Notice]], None] | None = None,
    alone: bool = True,
    staged: Staged = NOTHING_STAGED,
    evolving: Mapping[str, Moment] = MappingProxyType({}),
) -> None:
    """Write all outputs of one micro-batch.

    If the workers write all of them, one job computes the micro-batch, and no row comes to Spark.

    If the only sink makes records, it gets the rows while they are computed, once `watch` is settled. Otherwise the
    rows are persisted and all computed before any sink gets them. Without persisting, each sink's actions would run
    every stateful operator again. Without computing all, a sink that reads only some rows would leave partitions
    uncomputed, and Spark fails a micro-batch whose state was not committed everywhere. This also holds for an empty
    micro-batch, so sinks are called even then and can create their target.

    Parameters
    ----------
    micro_batch
        The frame that ``foreachBatch`` passes, with the changes of all outputs.
    moment
        The micro-batch, with the number that it passes.
    sinks
        The outputs' names and sinks, which are written in this order. Under Spark Connect they are sent to the server.
    split
        Returns one output's changes, from the frame and the number of the output. Must keep partitions and their
        order: no shuffle.
    watch
        Looks at the shards of the micro-batch, if it has any; raises, before any sink is written, if the state of
        one is gone.
    hear
        Called with the number of the micro-batch and what was dropped, before any sink is written; not with a sink
        that gets the rows while they are computed.
    alone
        Whether a sink that makes records may get the rows while they are computed.
    staged
        The outputs that the workers write. They are committed in the order of all outputs.
    evolving
        If the query evolves, the moment as the target of each output sees it.

    Notes
    -----
    If a sink fails, the query fails, and Spark repeats the whole micro-batch after a restart: sinks that had been
    written get it twice and must count it once.
    """

    def write(written: Mapping[int, list[str]] = MappingProxyType({})) -> None:
        for index, (name, sink) in enumerate(sinks.items()):
            target = sink.at(evolving.get(name, moment)) if isinstance(sink, PlacedSink) else sink
            if name in staged.outputs:
                assert isinstance(target, StagedSink)  # noqa: S101 - or it would not be staged
                spark, output = micro_batch.sparkSession, staged.outputs[name]
                tasks = written.get(output.number, [])
                target.commit(spark, output.stage, tasks, moment.number, moment.query_id)
            else:
                target.write(split(micro_batch, index), moment.number, moment.query_id, name)

    if alone and not staged.outputs and is_lone(sinks.values()) and (watch is None or watch.is_settled):
        write()
        return
    is_kept = len(staged.outputs) < len(sinks)
    if is_kept:
        micro_batch.persist(StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        if watch is None and hear is None and not staged.outputs:
            micro_batch.count()
            write()
            return
        reports = Reports.of(micro_batch)
        if watch is not None:
            watch.look(micro_batch.sparkSession, moment.number, moment.query_id, reports.ports)
        if hear is not None:
            hear(moment.number, reports.notices)
        write(reports.written)
    finally:
        if is_kept:
            micro_batch.unpersist()
