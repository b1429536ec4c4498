"""How changes leave: every one or the final ones, with the row before, without idle tombstones; to every sink.

One query has all of these outputs, of one join and of one table; what is expected of them follows from the model's
changes by the words of the documentation.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tests.conftest import JARS, in_partitions
from tests.plans.catalogue import has_a
from tests.plans.engine import Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.model import Model
from tests.plans.tables import Change, foreign_key_join, source
from tests.plans.tables import filtered as filtered_node
from tests.spark.change_logs import ALL, ChangeLog, run
from tests.spark.test_plans import SCHEMA, line
from tests.spark.translating import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from tablestream.connectors.memory.sink import MemorySink
    from tablestream.spark.options import Emit

MICRO_BATCHES = 3


class Shown(NamedTuple):
    """A change as a sink sees it."""

    micro_batch: int
    kind: str
    key: tuple[Any, ...]
    value: str | None
    ts: int


@dataclass(frozen=True)
class Written:
    """What the query wrote, and the model's changes by micro-batch."""

    joined: list[list[Change]]
    filtered: list[list[Change]]
    sinks: dict[str, MemorySink]
    tables: dict[str, ts.Table]
    folder: Path

    def shown(self, name: str, *, as_written: bool = False) -> list[Shown]:
        """An output's changes as its memory sink holds them."""
        table = self.tables.get(name, self.tables["every"])
        return [show(row, table) for row in self.sinks[name].rows(as_written=as_written)]


def show(row: Row, table: ts.Table) -> Shown:
    return Shown(
        row["_order"]["micro_batch"],
        row["_change_type"],
        tuple(row[name] for name in table.key_columns),
        row["v"],
        int(row["_timestamp"].timestamp()),
    )


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("changes")
    a, b = source("A"), source("B")
    nodes = [foreign_key_join(a, b, "inner"), filtered_node(a, has_a)]
    records = random_log([a, b], seed=3, size=500, worlds=6)
    model = Model([Output(node) for node in nodes])
    pieces = random_cuts(list(enumerate(records, 1)), 2, MICRO_BATCHES)
    answers = [model.steps([record for _, record in piece]) for piece in pieces]

    log = ChangeLog(folder / "log", SCHEMA)
    log.add(*([line(record, number) for number, record in piece] for piece in pieces))
    joined, filtered = translated(nodes, log.read(spark))
    sinks = {name: ts.to_memory(f"changes {name}") for name in OPTIONS}
    outputs = [joined.to(sinks[name], name=name, **options) for name, options in OPTIONS.items()]
    sinks["filtered"] = ts.to_memory("changes filtered")
    outputs.append(filtered.to(sinks["filtered"], name="filtered"))
    outputs += [joined.to(ts.to_files(folder / kind, kind), name=kind) for kind in ("parquet", "json")]
    if JARS:
        outputs += [joined.to(ts.to_delta(folder / emit), name=f"delta {emit}", emit=emit) for emit in EMITS]
    with in_partitions(spark, 2):
        run(*outputs, checkpoint=folder / "checkpoint", shards=16)
    tables = {"every": joined, "filtered": filtered}
    yield Written(by_micro_batch(answers, 0), by_micro_batch(answers, 1), sinks, tables, folder)
    for sink in sinks.values():
        sink.clear()


#: What a maintained table gets: by default the last change per key, or all, of which it finds the last itself.
EMITS: tuple[Emit, ...] = ("final", "every")
#: The outputs of the join: their names, and how each is asked for.
OPTIONS: dict[str, dict[str, Any]] = {
    "every": {},
    "minimal": {"tombstones": "minimal"},
    "final": {"emit": "final"},
    "before": {"before": True},
    "final before": {"emit": "final", "before": True},
}


def by_micro_batch(answers: Sequence[Sequence[Sequence[Step]]], place: int) -> list[list[Change]]:
    return [[step.change for step in outputs[place]] for outputs in answers]


def told(changes: Sequence[Sequence[Change]], *, final: bool, before: bool, minimal: bool) -> list[Shown]:
    """Say by the documentation what an output gives for every change.

    With the row before, and with minimal tombstones, one for an absent row is no change: the final change is the
    last of the others. With the row before, neither is an equal row.
    """
    rows: dict[Any, str] = {}
    found = []
    for number, made in enumerate(changes):
        start, kept = dict(rows), []
        for change in made:
            if change.value is not None or change.key in rows or not (before or minimal):
                kept.append((change, rows.pop(change.key, None)))
            if change.value is not None:
                rows[change.key] = change.value
        if final:
            last = {change.key: change for change, _ in kept}
            kept = [(change, start.get(key)) for key, change in last.items() if key in start or key in rows]
        for (key, value, time), old in kept:
            if before and old == value:
                continue
            kinds = _with_images(old, value) if before else [("delete" if value is None else "upsert", value)]
            found += [Shown(number, kind, key, image, time) for kind, image in kinds]
    return found


def _with_images(old: str | None, new: str | None) -> list[tuple[str, str | None]]:
    if new is None:
        return [("delete", old)]
    return [("insert", new)] if old is None else [("update_preimage", old), ("update_postimage", new)]


@pytest.mark.parametrize("name", OPTIONS)
def test_changes_leave_as_asked_for(written: Written, name: str) -> None:
    options = OPTIONS[name]
    wanted = told(
        written.joined,
        final=options.get("emit") == "final",
        before="before" in options,
        minimal="tombstones" in options,
    )
    assert sorted(written.shown(name), key=repr) == sorted(wanted, key=repr)
    assert per_key(written.shown(name)) == per_key(wanted)


def test_options_make_a_difference_here(written: Written) -> None:
    lengths = {name: len(written.shown(name)) for name in OPTIONS}
    assert lengths["every"] > lengths["minimal"] > lengths["final"]
    assert lengths["before"] > lengths["final before"] > lengths["final"]


def test_a_filtered_source_deletes_only_what_it_has_shown(written: Written) -> None:
    wanted = told(written.filtered, final=False, before=False, minimal=True)
    assert per_key(written.shown("filtered")) == per_key(wanted)
    assert {"upsert", "delete"} == {change.kind for change in wanted}


def per_key(changes: Sequence[Shown]) -> dict[Any, list[Shown]]:
    found = defaultdict(list)
    for change in changes:
        found[change.key].append(change)
    return dict(found)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_sink_never_sees_a_keys_older_change_after_a_newer_one(written: Written, name: str) -> None:
    """Law 3, with 16 shards in two partitions: as written, so before anybody sorts by ``_order``."""
    rows = written.sinks[name].rows(as_written=True)
    assert per_key(written.shown(name, as_written=True)) == per_key(written.shown(name))
    orders = defaultdict(list)
    for row in rows:
        orders[row["k0"]].append(row["_order"])
    assert all(older < newer for found in orders.values() for older, newer in pairwise(found))
    assert len(rows) >= 20


@pytest.mark.parametrize("name", OPTIONS)
def test_order_begins_with_the_micro_batch_and_is_never_the_same(written: Written, name: str) -> None:
    orders = [row["_order"] for row in written.sinks[name].rows()]
    assert all(earlier < later for earlier, later in pairwise(orders))
    assert all(order[0] == order["micro_batch"] for order in orders)
    assert {order["micro_batch"] for order in orders} == set(range(MICRO_BATCHES))


def test_files_hold_the_same_changes(spark: SparkSession, written: Written) -> None:
    table = written.tables["every"]
    wanted = sorted(written.shown("every"), key=repr)
    schema = table.changes().schema
    for kind in ("parquet", "json"):
        found = spark.read.schema(schema).format(kind).load(str(written.folder / kind))
        assert sorted((show(row, table) for row in found.collect()), key=repr) == wanted


@pytest.mark.parametrize("emit", EMITS)
def test_delta_table_is_the_final_table(delta_spark: SparkSession, written: Written, emit: str) -> None:
    final = {change.key: change.value for changes in written.joined for change in changes}
    found = delta_spark.read.format("delta").load(str(written.folder / emit))
    assert found.columns == ["k0", "v"]
    assert {(row.k0,): row.v for row in found.collect()} == {k: v for k, v in final.items() if v is not None}


# The streaming DataFrame itself


@pytest.fixture
def prices(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path / "log", "ticker string, price decimal(10,2), at timestamp, gone boolean")


def latest(frame: DataFrame) -> ts.Table:
    return ts.table(
        frame, "ticker", timestamp="at", apply_as_deletes="gone", except_columns=["gone", "at"], name="prices"
    )


@pytest.mark.parametrize("options", [{}, {"before": True}, {"emit": "final"}], ids=str)
def test_changes_are_a_frame_of_known_columns(
    spark: SparkSession, prices: ChangeLog, options: dict[str, Any]
) -> None:
    frame = latest(prices.read(spark)).changes(**options)
    assert frame.isStreaming
    names = [one.name for one in frame.schema]
    assert names == ["ticker", "price", "_change_type", "_timestamp", "_order"]
    kinds = [one.dataType.simpleString() for one in frame.schema]
    assert kinds[:4] == ["string", "decimal(10,2)", "string", "timestamp"]
    assert kinds[4].startswith("struct<micro_batch:bigint,")


def test_changes_go_to_sparks_own_sinks_also_when_there_are_none(
    spark: SparkSession, prices: ChangeLog, tmp_path: Path
) -> None:
    """A micro-batch of no record, one of records that change nothing, and one that does."""
    row = {"ticker": "A", "price": 1.5, "at": "2024-01-01T00:00:00.000001Z", "gone": False}
    nothing = {**row, "ticker": "B", "gone": True}
    prices.add([], [nothing], [row, {**row, "gone": True}])
    changes = latest(prices.read(spark)).filter("price > 1").changes()
    for sink in ("noop", "parquet", "memory"):
        writer = changes.writeStream.format(sink).option(
            "checkpointLocation", str(tmp_path / f"{sink} checkpoint")
        )
        named = writer.queryName("prices_changes").option("path", str(tmp_path / sink))
        query = named.trigger(**ALL).start()
        query.awaitTermination()
        counts = [progress.observedMetrics["tablestream"]["changes"] for progress in query.recentProgress]
        assert counts == [0, 0, 2], sink
    for found in (spark.table("prices_changes"), spark.read.parquet(str(tmp_path / "parquet"))):
        rows = found.orderBy("_order").select("ticker", "price", "_change_type", F.unix_micros("_timestamp"))
        assert [tuple(map(str, one)) for one in rows.collect()] == [
            ("A", "1.50", "upsert", "1704067200000001"),
            ("A", "None", "delete", "1704067200000001"),
        ]


def test_changes_of_a_key_in_a_micro_batch_stand_in_one_file_in_their_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    a, b = source("A"), source("B")
    records = random_log([a, b], seed=4, size=300, worlds=6)
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add([line(record, number) for number, record in enumerate(records, 1)])
    (joined,) = translated([foreign_key_join(a, b, "inner")], log.read(spark))
    with in_partitions(spark, 4):
        run(
            joined.to(ts.to_files(tmp_path / "out", "parquet")), checkpoint=tmp_path / "checkpoint", shards=16
        )
    told = spark.read.parquet(f"{tmp_path}/out").select("*", "_metadata.file_name").collect()
    places: dict[Any, list[tuple[str, Any]]] = defaultdict(list)
    for row in told:
        places[tuple(row[name] for name in joined.key_columns)].append((row["file_name"], row["_order"]))
    assert len({row["file_name"] for row in told}) > 1
    assert len(told) > len(places) > 10
    for found in places.values():
        assert len({file for file, _ in found}) == 1
        assert found == sorted(found)
