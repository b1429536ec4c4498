"""Outputs that the workers write: their logs are those that Spark writes, and nothing of a failed attempt is seen."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructType

import tablestream as ts
from tablestream.connectors import small_texts
from tablestream.connectors.delta.by_delta_rs import RsTable
from tablestream.connectors.delta.marks import DeltaMark
from tablestream.connectors.delta.sink import DeltaMode
from tablestream.connectors.delta.staged import LogStage, TableStage
from tablestream.connectors.files import batches
from tablestream.connectors.files import sink as module
from tablestream.connectors.files.sink import FileSink, ParquetStage, WriteFormat
from tablestream.connectors.marks import Moment
from tablestream.connectors.parquet_file import ParquetFile, spark_schema
from tablestream.spark import staging
from tablestream.spark.staging import Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tablestream import OutputRequest
    from tablestream.connectors.sink import Stage

NOTHING: Any = None
ITEMS = "id int, at string, price decimal(12,2), tags map<string,int>, sold timestamp, big double, raw binary"
PLACES = "name string, ids array<int>, stay interval day to second, inside struct<a: int, b: string>"


def _logs(spark: SparkSession, root: Path) -> tuple[ts.Table, ts.Table]:
    """Two logs with every kind of type, and with rows that point at nothing, change, and go."""
    first = """SELECT * FROM VALUES
        (1, 'a', 1.50, map('q', 1), timestamp '1500-01-01 00:00:00', double('NaN'), X'00ff'),
        (2, 'b', NULL, NULL, NULL, NULL, NULL),
        (3, NULL, 3, map(), timestamp '2020-01-01 00:00:00.000001', -0.0, X''),
        (4, 'nowhere', 4, NULL, timestamp '9999-12-31 23:59:59.999999', 1e300, NULL)"""
    second = """SELECT * FROM VALUES
        (1, 'b', 2.50, map('r', null), NULL, 0.0, X'01'), (2, NULL, NULL, NULL, NULL, NULL, NULL)"""
    rows = """SELECT * FROM VALUES
        ('a', array(1, NULL), interval '1 00:00:00.000003' day to second, struct(1, 'x')),
        ('b', NULL, NULL, NULL), ('c', array(), interval '0' second, struct(NULL, NULL))"""
    for log, declared, texts in (("items", ITEMS, (first, second)), ("places", PLACES, (rows,))):
        fields = spark.createDataFrame([], declared).schema
        for text in texts:
            given = spark.sql(text).toDF(*fields.names)
            frame = given.select(
                [F.col(one.name).cast(one.dataType).alias(one.name) for one in fields.fields]
            )
            frame.coalesce(1).write.mode("append").parquet(str(root / log))
    items = ts.table(ts.from_files(spark, str(root / "items"), "parquet", ITEMS), "id", name="items")
    return items, ts.table(
        ts.from_files(spark, str(root / "places"), "parquet", PLACES), "name", name="places"
    )


def _outputs(items: ts.Table, places: ts.Table) -> dict[str, ts.Table]:
    """Tables whose columns arrive as they are, also if a source computes them, and one whose columns Spark computes."""

    def both(item: ts.Row, place: ts.Row) -> list[Any]:
        return [item.price, item.tags, item.sold, item.raw, place.ids, place.stay, place.inside]

    def made(item: ts.Row, place: ts.Row) -> list[Any]:
        return [*both(item, place), (item.big + 1).alias("more")]

    return {
        "items": items,
        "left": items.join(places, on="at", how="left", select=both, name="left"),
        "made": items.join(places, on="at", how="left", select=made, name="made"),
        "groups": items.group_by("at").agg(n=ts.functions.count()),
        "some": items.filter(F.col("price") > 2).select((F.col("price") + 1).alias("price")),
    }


def _staged_by(monkeypatch: pytest.MonkeyPatch) -> list[Staged]:
    """What the next queries stage."""
    found, of = list[Staged](), Staged.of

    def noted(*given: Any) -> Staged:
        found.append(of(*given))
        return found[-1]

    monkeypatch.setattr(Staged, "of", noted)
    return found


def _content(spark: SparkSession, log: Path, form: str) -> tuple[object, list[str]]:
    """The types of a log and its changes, without the times of the run."""
    frame: DataFrame = spark.read.format(form).load(str(log))
    place = F.col("_order").dropFields("time" if form == "parquet" else "observed_time")
    return frame.schema, sorted(map(str, frame.drop("_timestamp").withColumn("_order", place).collect()))


def test_workers_write_the_logs_that_spark_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both formats, every kind of type, and with columns that Spark computes."""
    staged = _staged_by(monkeypatch)
    items, places = _logs(spark, tmp_path)
    tables = _outputs(items, places)
    written: list[tuple[str, WriteFormat]] = [*((name, "parquet") for name in tables), ("left", "json")]
    for name, options in (("workers", {}), ("spark", {"maxRecordsPerFile": 1000})):
        logs = [
            tables[of].to(
                ts.to_files(tmp_path / name / form / of, form, options=options), name=f"{of} {form}"
            )
            for of, form in written
        ]
        dropped = items.rejected().to(ts.to_files(tmp_path / name / "parquet" / "dropped", options=options))
        query = ts.start(
            *logs, dropped, checkpoint=tmp_path / name / "checkpoint", trigger={"availableNow": True}
        )
        query.awaitTermination()
    assert {name for name, one in staged[0].outputs.items() if one in staged[0].ports} == {
        f"{name} parquet" for name in tables if name != "made"
    }
    assert len(staged[0].outputs) == len(written) + 1
    assert set(staged[0].reasons.values()) == {"Spark has computed its columns", "Spark has made its lines"}
    assert not staged[1].outputs
    assert set(staged[1].reasons.values()) == {"only Spark knows the option maxrecordsperfile"}
    for of, form in (*written, ("dropped", "parquet")):
        ours, sparks = (_content(spark, tmp_path / name / form / of, form) for name in ("workers", "spark"))
        assert ours == sparks, (of, form)
    assert not list(tmp_path.glob("workers/*/*/_tablestream_tries/*"))
    plan = ts.plan_text(*logs, tables["some"].to(ts.to_memory("some"))).splitlines()
    option = "from Spark's rows, since only Spark knows the option maxrecordsperfile"
    assert plan[-2:] == [
        f"Target files {tmp_path}/spark/json/left: {option}",
        "Target memory some: from Spark's rows, since its sink takes nothing else",
    ]
    log = f"{tmp_path}/plan"
    assert ts.plan_text(tables["some"].to(ts.to_files(log))).endswith(f"Target files {log}: by the workers")
    made = ts.plan_text(tables["made"].to(ts.to_files(log)))
    assert made.endswith(f"Target files {log}: by the workers, after Spark has computed its columns")


def test_who_writes_is_known_before_the_query_starts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark writes is said with its reason; a log beside an output of Spark's gets no rows that Spark computes."""
    frame = spark.readStream.schema("id INT, other INT, n INT").parquet(str(tmp_path))
    items = ts.table(frame, "id", name="items")
    made = items.join(items.select("n"), on="other", select=lambda one, two: [(one.n + two.n).alias("n")])

    def way(*outputs: OutputRequest) -> str:
        return ts.plan_text(*outputs).splitlines()[-1].partition(": ")[2]

    def to(**how: Any) -> OutputRequest:
        return items.to(ts.to_files(tmp_path / "log", **how))

    assert way(to()) == way(to(options={"compression": "ZSTD"})) == "by the workers"
    assert (
        way(to(options={"compression": "lz4"}))
        == "from Spark's rows, since only Spark knows the compression lz4"
    )
    assert (
        way(to(options={"dateFormat": "y"}))
        == "from Spark's rows, since only Spark knows the option dateformat"
    )
    assert way(to(format="json")) == "by the workers, after Spark has made its lines"
    zipped = to(format="json", options={"compression": "gzip"})
    assert way(zipped) == "from Spark's rows, since only Spark compresses JSON"
    shown = items.to(ts.to_files(tmp_path / "log"), before=True)
    assert way(shown) == "from Spark's rows, since a change and the row before it are two rows"
    computed = made.to(ts.to_files(tmp_path / "made"))
    assert way(to(), computed) == "by the workers, after Spark has computed its columns"
    assert way(made.to(ts.to_memory("made")), to()) == "by the workers"
    beside = "it has columns that Spark computes, beside an output from Spark's rows"
    assert way(made.to(ts.to_memory("made")), computed) == f"from Spark's rows, since {beside}"
    monkeypatch.setattr(staging, "has_context", lambda _: False)
    assert way(to()).startswith("from Spark's rows, since under Spark Connect")
    monkeypatch.setattr(staging, "has_context", lambda _: True)
    monkeypatch.setattr(batches, "on_this_machine", lambda *_: None)
    assert way(to()) == "from Spark's rows, since only Spark reaches its directory"


def test_a_foreign_key_may_be_computed(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.schema("id INT, other INT, n INT").parquet(str(tmp_path))
    items = ts.table(frame, "id", name="items")
    joined = items.join(
        items.select("n"), on=F.col("other") + 1, name="joined", select=lambda one, _: [one.n]
    )
    for target in (
        ts.to_files(tmp_path / "log"),
        ts.to_delta(tmp_path / "delta", mode="changes", writer="delta-rs"),
    ):
        assert "by the workers, after" in ts.plan_text(joined.to(target))


SCHEMA, COLUMNS = pa.schema([("v", pa.int64())]), StructType().add("v", LongType())


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSink:
    """A log on this machine whose owner is known, without a session."""
    monkeypatch.setattr(batches, "on_this_machine", lambda *_: tmp_path)
    monkeypatch.setattr(small_texts, "on_this_machine", lambda _, path: Path(path))
    monkeypatch.setattr(module, "seen_by_spark", lambda _, path: path)
    return ts.to_files(tmp_path)


def _stage(log: FileSink) -> ParquetStage:
    return ParquetStage(log.path, schema=spark_schema(SCHEMA, COLUMNS), codec="snappy")


def _task(stage: Stage, micro_batch: int, *values: int) -> str:
    """Do what a task with such rows does."""
    file = stage.open(micro_batch, "q")
    for value in values:
        file.add(pa.table({"v": [value]}, SCHEMA))
    return file.close()


def _seen(log: FileSink) -> list[int]:
    """What readers see."""
    files = Path(log.path).glob("micro_batch=*/*.parquet")
    return sorted(
        value for file in files for value in pq.read_table(file, partitioning=None)["v"].to_pylist()
    )


def test_only_what_tasks_returned_is_seen_and_only_once(log: FileSink) -> None:
    """A task may fail behind its first row, or run twice. A micro-batch that is repeated has files of its own."""
    moments = [Moment(0, "q", "p0"), Moment(1, "q", "p1", "p0")]
    for run in range(2):
        stage = _stage(log)
        for moment in moments[run:]:
            stage.open(moment.number, "q").add(
                pa.table({"v": [-1]}, SCHEMA)
            )  # fails, and leaves nothing or a part
            _task(stage, moment.number, -2)  # of two attempts at a task one is taken
            written = [
                _task(stage, moment.number, moment.number * 10, moment.number * 10 + 1),
                _task(stage, moment.number, 5),
            ]
            assert _seen(log) == sorted([0, 1, 5, 10, 11, 5][: 3 * (run * 2 or moment.number)])
            log.at(moment).commit(NOTHING, stage, written, moment.number, "q")
    assert _seen(log) == [0, 1, 5, 5, 10, 11]
    assert not list(Path(log.path, "_tablestream_tries").iterdir())


def test_a_micro_batch_without_changes_has_the_columns(log: FileSink) -> None:
    log.at(Moment(0, "q", "p0")).commit(NOTHING, _stage(log), [], 0, "q")
    (file,) = Path(log.path).glob("micro_batch=0/*.parquet")
    assert pq.read_schema(file).names == ["v"]


def test_what_an_attempt_at_an_earlier_micro_batch_left_goes_with_the_next(log: FileSink) -> None:
    left = _stage(log)
    _task(left, 0, 1)
    stage = _stage(log)
    for moment in (Moment(0, "q", "p0"), Moment(1, "q", "p1", "p0")):
        log.at(moment).commit(NOTHING, stage, [_task(stage, moment.number, 7)], moment.number, "q")
    assert _seen(log) == [7, 7]
    assert not list(Path(log.path, "_tablestream_tries").iterdir())


def test_a_task_that_still_writes_behind_the_commit_is_not_seen(log: FileSink) -> None:
    stage, moment = _stage(log), Moment(0, "q", "p0")
    late = stage.open(0, "q")
    late.add(pa.table({"v": range(200_000)}, SCHEMA))  # a file is begun
    log.at(moment).commit(NOTHING, stage, [_task(stage, 0, 7)], 0, "q")
    with suppress(OSError):
        late.close()
    assert _seen(log) == [7]


def _delta_task(stage: LogStage | TableStage, micro_batch: int, rows: pa.Table) -> str:
    file = stage.open(micro_batch, "q")
    file.add(rows)
    return file.close()


def test_statistics_of_a_delta_log_are_those_of_its_columns(tmp_path: Path) -> None:
    """Names with dots, structs, lists and maps beside them, and dates and times of years that Python has not."""
    days, micros = (
        pa.array([2_932_897, -800_000], pa.int32()),
        pa.array([253_402_300_800_000_000, -(10**17)], pa.int64()),
    )
    inside = pa.struct([("b", pa.int32()), ("x.y", pa.int32())])
    rows = pa.table(
        {
            "m": pa.array([[("k", 9)], None], pa.map_(pa.string(), pa.int32())),
            "a": pa.array([{"b": 1, "x.y": 3}, {"b": 2, "x.y": 4}], inside),
            "l": pa.array([[{"q": 1}], []], pa.list_(pa.struct([("q", pa.int32())]))),
            "a.b": pa.array([100, 200], pa.int32()),
            "text": ["short", None],
            "long": ["x" * 33, "y"],
            "day": days.cast(pa.date32()),
            "at": micros.cast(pa.timestamp("us", "UTC")),
        }
    )
    columns = from_arrow_schema(rows.schema)
    stage = LogStage(str(tmp_path), {}, columns, rows.schema)
    said = json.loads(json.loads(_delta_task(stage, 0, rows))["statistics"])
    assert said["numRecords"] == 2
    assert said["minValues"] == {"a": {"b": 1, "x.y": 3}, "a.b": 100, "text": "short"}
    assert said["maxValues"] == {"a": {"b": 2, "x.y": 4}, "a.b": 200, "text": "short"}
    assert said["nullCount"] == {
        "a": {"b": 0, "x.y": 0}, "a.b": 0, "text": 1, "long": 0, "day": 0, "at": 0,
    }  # fmt: skip


def test_a_table_in_which_something_inside_cannot_be_null_is_checked_by_delta_rs(tmp_path: Path) -> None:
    inside = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    DeltaTable.create(str(tmp_path), pa.schema([("s", inside)]))
    table = RsTable(str(tmp_path), {})
    assert table.columns is not None
    assert table.why_not_files(table.columns) == "has a column in which something cannot be null"


def test_staged_changes_of_another_process_stay_unless_this_one_commits(tmp_path: Path) -> None:
    """A process that finds its micro-batch done may be behind the one that did it."""
    columns = StructType().add("k", LongType()).add("_change_type", "string")
    rows = pa.table({"k": [1], "_change_type": ["upsert"]})
    live, stale = (TableStage(str(tmp_path), {}, columns, rows.schema, key=("k",)) for _ in range(2))
    written = _delta_task(live, 1, rows)
    stale.clean(0, "q", [])
    live.commit(RsTable(str(tmp_path), {}), [written], DeltaMark("q", 1, "p1", "app"))
    assert pl.read_delta(str(tmp_path))["k"].to_list() == [1]
    _delta_task(stale, 2, rows)
    live.clean(1, "q", None)
    assert not list(tmp_path.glob("_tablestream/*/*/*/*"))


def test_many_rows_are_written_in_large_row_groups(tmp_path: Path) -> None:
    file = ParquetFile(LocalFileSystem(), str(tmp_path), spark_schema(SCHEMA, COLUMNS))
    for _ in range(50):
        file.add(pa.table({"v": range(10_000)}, SCHEMA))
    metadata = pq.read_metadata(tmp_path / file.close())
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [
        200_000,
        200_000,
        100_000,
    ]


def test_columns_that_grow_are_written_as_differences(tmp_path: Path) -> None:
    """Times and positions; a column of the user is written as usual, whatever it is called."""
    count = 10_000
    times = pa.array(range(count), pa.timestamp("us", "UTC"))
    place = {"time": times, "position": pa.array(range(count)), "hop_1": pa.array([0] * count)}
    order = pa.StructArray.from_arrays(list(place.values()), list(place))
    rows = pa.table(
        {"position": range(count), "name": ["a", "b"] * (count // 2), "_timestamp": times, "_order": order}
    )
    file = ParquetFile(LocalFileSystem(), str(tmp_path), rows.schema)
    file.add(rows)
    assert pq.read_table(tmp_path / file.close()) == rows
    group = file.metadata.row_group(0)
    columns = {one.path_in_schema: one for one in map(group.column, range(group.num_columns))}
    apart = [name for name, one in columns.items() if "DELTA_BINARY_PACKED" in one.encodings]
    assert apart == ["_timestamp", "_order.time", "_order.position"]
    assert all(columns[name].total_compressed_size < count for name in apart)
    assert all("RLE_DICTIONARY" in one.encodings for name, one in columns.items() if name not in apart)


def test_delta_logs_and_tables_are_those_of_the_changes(spark: SparkSession, tmp_path: Path) -> None:
    """In three micro-batches and a restart: rows come, change, point elsewhere, go and come again."""
    steps: list[list[dict[str, Any]]] = [
        [{"id": n, "at": "ab"[n % 2], "v": n} for n in range(6)],
        [
            {"id": 1, "at": "a", "v": 10},
            {"id": 2, "gone": True},
            {"id": 2, "at": "zz"},
            {"id": 7, "at": "b", "v": 7},
        ],
        [{"id": 3, "gone": True}, {"id": 2, "at": "b", "v": 2}, {"id": 1, "at": "b", "v": 11}],
    ]
    _write_json(
        tmp_path / "places" / "0.json", [{"name": name, "w": w} for name, w in (("a", 1.5), ("b", 2.5))]
    )
    logs: dict[str, DeltaMode] = {"log": "changes", "table": "table"}
    for number, rows in enumerate([*steps, [{"id": 9, "at": "nowhere", "v": 9}]]):
        _write_json(tmp_path / "items" / f"{number}.json", rows)
        if number in {1, 2}:
            continue  # three files for the second start
        items = ts.table(
            ts.from_files(
                spark,
                str(tmp_path / "items"),
                "json",
                "id int, at string, v int, gone boolean",
                max_files_per_trigger=1,
            ),
            "id",
            name="items",
            apply_as_deletes="gone",
            except_columns=["gone"],
        )
        places = ts.table(
            ts.from_files(spark, str(tmp_path / "places"), "json", "name string, w double"), "name"
        )
        joined = items.join(places, on="at", name="joined")
        made = joined.select((F.col("w") * F.col("v")).alias("worth"), name="made")
        outputs = [
            table.to(
                ts.to_delta(tmp_path / f"{table.name}_{what}", mode=mode, writer="delta-rs"),
                name=f"{table.name}_{what}",
            )
            for table in (joined, made)
            for what, mode in logs.items()
        ]
        ways = [line.partition(": ")[2] for line in ts.plan_text(*outputs).splitlines()[-4:]]
        workers = "by the workers"
        assert ways == [workers, workers, f"{workers}, after Spark has computed its columns", workers]
        query = ts.start(*outputs, checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True})
        query.awaitTermination()
    assert query.lastProgress is not None
    for name in ("joined", "made"):
        table, log = (pl.read_delta(str(tmp_path / f"{name}_{what}")) for what in ("table", "log"))
        last = log.sort("_order").unique("id", keep="last").filter(pl.col("_change_type") == "upsert")
        assert table.sort("id").equals(last.select(table.columns).sort("id"))
        assert sorted(table["id"]) == [0, 1, 2, 4, 5, 7]
        marks = [
            one for one in DeltaTable(str(tmp_path / f"{name}_table")).history() if "userMetadata" in one
        ]
        assert len(marks) == 4
    values = dict(pl.read_delta(str(tmp_path / "made_table")).select("id", "worth").iter_rows())
    assert values == {0: 0, 1: 27.5, 2: 5, 4: 6, 5: 12.5, 7: 17.5}
    assert not list(tmp_path.glob("*_table/_tablestream/*/*/*"))


def _write_json(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
