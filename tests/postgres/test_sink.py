"""PostgreSQL as a target: the table follows the changes, and a replayed micro-batch changes nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.errors import PythonException
from pyspark.sql import types as T

import tablestream as ts
from tablestream.connectors.marks import Mark
from tablestream.connectors.postgres import sink as module
from tablestream.connectors.postgres.marks import Marks
from tablestream.connectors.sink import CHANGE_COLUMNS
from tablestream.errors import ArgumentError, DatabaseError, PlanError
from tests.connectors.changes import KEY, START, changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.broker.postgres_server import PostgresServer
    from tests.postgres.database import Database

TABLE = 'CREATE TABLE out (k1 int, "k.2" text, v text, UNIQUE NULLS NOT DISTINCT (k1, "k.2"))'
#: By the driver, and through a staging table of each task.
WAYS = pytest.mark.parametrize("inline_bytes", [1 << 17, 0], ids=["inline", "staged"])


class Target:
    """A sink with what a test does to it."""

    def __init__(self, database: Database, frame: DataFrame, inline_bytes: int, **options: Any) -> None:
        self.database = database
        fields = [one for one in frame.schema.fields if one.name not in CHANGE_COLUMNS]
        key, value = ([one for one in fields if (one.name in KEY) is is_key] for is_key in (True, False))
        sink = ts.to_postgres("out", database.conninfo, **options).keyed_by([one.name for one in key])
        shaped = sink.shaped(T.StructType(key), T.StructType(value), records=False)
        self.sink = replace(shaped, inline_bytes=inline_bytes)

    def write(self, frame: DataFrame, number: int, query: str = "q") -> None:
        """Write a frame, all of it in one task, as a key's changes are."""
        self.sink.write(frame.coalesce(1), number, query, "out")

    def rows(self) -> list[tuple[Any, ...]]:
        return self.database.rows("TABLE out")

    def marks(self) -> list[tuple[Any, ...]]:
        return self.database.rows("SELECT query, target, micro_batch FROM tablestream_marks")


@pytest.fixture
def target(spark: SparkSession, database: Database) -> Target:
    database.run(TABLE)
    return Target(database, changes(spark, 0), 0)


@WAYS
def test_a_table_follows_the_changes(spark: SparkSession, database: Database, inline_bytes: int) -> None:
    """The last change of a key counts, null is a key like any other, and images before a change are passed over."""
    database.run(TABLE)
    target = Target(database, changes(spark, 0), inline_bytes)
    target.write(
        changes(spark, 0, (1, "a", "x"), (2, "b", "y"), (3, "c", None), (None, "d", "n"), (2, None, "m")), 0
    )
    assert target.rows() == [(1, "a", "x"), (2, "b", "y"), (2, None, "m"), (None, "d", "n")]
    more = (
        (1, "a", "2"),
        (2, "b", "z"),
        (2, "b", None),
        (None, "d", None),
        (2, None, "m2"),
        (4, "e", None),
        (4, "e", "f"),
    )
    target.write(changes(spark, 1, *more), 1)
    assert target.rows() == [(1, "a", "2"), (2, None, "m2"), (4, "e", "f")]
    kinds = "update_preimage update_postimage delete"
    target.write(changes(spark, 2, (1, "a", "2"), (1, "a", "3"), (4, "e", "f"), kinds=kinds), 2)
    assert target.rows() == [(1, "a", "3"), (2, None, "m2")]
    assert target.marks() == [("q", '"public"."out"', 2)]
    assert database.stages() == []


@WAYS
def test_a_micro_batch_counts_once_per_query(
    spark: SparkSession, database: Database, inline_bytes: int
) -> None:
    """Neither a repeated one nor an older one changes a row; the same number of another query does."""
    database.run(TABLE)
    target = Target(database, changes(spark, 0), inline_bytes)
    for number, value in ((0, "x"), (1, "y"), (1, "not again"), (0, "nor older")):
        target.write(changes(spark, number, (1, "a", value)), number)
    assert target.rows() == [(1, "a", "y")]
    assert database.stages() == []
    target.write(changes(spark, 0, (1, "a", "other")), 0, query="other")
    assert target.rows() == [(1, "a", "other")]


def test_what_others_write_stays_until_its_key_changes(
    spark: SparkSession, database: Database, target: Target
) -> None:
    target.write(changes(spark, 0, (1, "a", "x"), (2, "b", "y")), 0)
    database.run("DELETE FROM out WHERE k1 = 2")
    database.run("UPDATE out SET v = 'by hand'")
    target.write(changes(spark, 1, (3, "c", "z")), 1)
    assert target.rows() == [(1, "a", "by hand"), (3, "c", "z")]
    target.write(changes(spark, 2, (1, "a", "x"), (2, "b", "y")), 2)
    assert target.rows() == [(1, "a", "x"), (2, "b", "y"), (3, "c", "z")]


@WAYS
def test_a_table_that_was_dropped_is_not_created_anew(
    spark: SparkSession, database: Database, inline_bytes: int
) -> None:
    """Neither by the query nor after a restart. Created empty, it gets the changes from there on."""
    target = Target(database, changes(spark, 0), inline_bytes, create=True)
    target.write(changes(spark, 7, (0, "a", "x")), 7)  # of an output that was added at a restart
    database.run("DROP TABLE out")
    with pytest.raises(
        PlanError, match=r"public\.out, to which this query has written, is not there"
    ) as gone:
        target.write(changes(spark, 8, (1, "a", "x")), 8)
    assert database.rows("SELECT 1 FROM pg_tables WHERE tablename = 'out'") == []
    database.run(gone.value.hint.partition("create it empty: ")[2])
    target.write(changes(spark, 8, (1, "a", "x")), 8)
    assert target.rows() == [(1, "a", "x")]


def test_what_failed_attempts_left_is_dropped(spark: SparkSession, target: Target) -> None:
    """Those of the same query and table; the staging tables of others stay."""
    assert target.sink.statements is not None
    left = f"{target.sink.statements.stage_prefix('q')}0123456789abcdef"
    target.database.run(f"CREATE UNLOGGED TABLE {left} (c0 int)", "CREATE TABLE tablestream_stage_other ()")
    target.write(changes(spark, 0, (1, "a", "x")), 0)
    assert target.rows() == [(1, "a", "x")]
    assert target.database.stages() == ["tablestream_stage_other"]


@pytest.mark.parametrize("place", ["_upsert_part", "_drop"])
def test_a_merge_that_fails_leaves_nothing(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Before and after the table is written: the mark goes with it, and the next attempt writes all."""
    spark_changes = changes(spark, 0, (1, "a", "x"))
    with monkeypatch.context() as planted:
        real = getattr(module, place)

        def failing(*arguments: Any) -> None:
            real(*arguments)
            raise ConnectionError("the driver is gone")

        planted.setattr(module, place, failing)
        with pytest.raises(ConnectionError):
            target.write(spark_changes, 0)
    assert target.rows() == []
    assert len(target.database.stages()) == 1
    target.write(spark_changes, 0)
    assert target.rows() == [(1, "a", "x")]
    assert target.database.stages() == []


def test_an_old_driver_waits_for_the_mark_and_then_writes_nothing(
    target: Target, spark: SparkSession
) -> None:
    """It has staged its rows already when a newer driver holds the mark."""
    target.write(changes(spark, 0, (1, "a", "x")), 0)
    assert target.sink.statements is not None
    with psycopg.connect(target.database.conninfo) as newer:
        marks = Marks(newer, target.sink.statements, "q")
        marks.lock()
        marks.set(Mark(2), whole=False)
        newer.execute("UPDATE out SET v = 'newer'")
        old = threading.Thread(target=target.write, args=(changes(spark, 1, (1, "a", "old")), 1))
        old.start()
        waiting = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while not target.database.rows(waiting):
            assert old.is_alive()
        newer.commit()
        old.join()
    assert target.rows() == [(1, "a", "newer")]
    assert target.database.stages() == []


def test_rows_that_a_crash_of_the_server_takes_are_missed(
    target: Target, spark: SparkSession, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staging tables are unlogged: after a crash they are empty."""
    real = module._stage

    def crashing(*arguments: Any) -> Any:
        parts = real(*arguments)
        postgres.crash()
        return parts

    frame = changes(spark, 0, (1, "a", "x"))
    with monkeypatch.context() as planted:
        planted.setattr(module, "_stage", crashing)
        with pytest.raises(DatabaseError, match=r"lost rows: 0 of 1 are there\..*Start the query again"):
            target.write(frame, 0)
    assert target.rows() == []
    target.write(frame, 0)
    assert target.rows() == [(1, "a", "x")]


def test_a_delete_sets_a_column(spark: SparkSession, database: Database) -> None:
    """To its time or to true; the row keeps its values, and a key that comes back is there again."""
    for kind, gone, live in (("timestamptz", START, None), ("boolean NOT NULL", True, False)):
        database.run(
            "DROP TABLE IF EXISTS out, tablestream_marks", TABLE, f'ALTER TABLE out ADD "gone" {kind}'
        )
        target = Target(database, changes(spark, 0), 0, soft_delete="gone")
        target.write(changes(spark, 0, (1, "a", "x"), (2, "b", "y"), (3, "c", None)), 0)
        target.write(changes(spark, 1, (1, "a", None)), 1)
        assert target.rows() == [(1, "a", "x", gone), (2, "b", "y", live)]
        target.write(changes(spark, 2, (1, "a", "z"), (2, "b", None)), 2)
        assert target.rows() == [(1, "a", "z", live), (2, "b", "y", gone)]


def test_a_table_is_created_on_demand_by_the_first_micro_batch(
    spark: SparkSession, database: Database
) -> None:
    """Also by an empty one; not by `shaped`, which touches nothing."""
    target = Target(database, changes(spark, 0), 0, create=True, soft_delete="gone")
    assert database.rows("SELECT relname FROM pg_class WHERE relname = 'out'") == []
    target.write(changes(spark, 0), 0, query="creates")
    assert target.rows() == []
    target.write(changes(spark, 1, (1, "a", "x"), (2, "b", None)), 1, query="creates")
    assert target.rows() == [(1, "a", "x", None)]
    again = Target(database, changes(spark, 0), 0, create=True, soft_delete="gone")
    again.write(changes(spark, 2, (1, "a", None)), 2, query="creates")
    assert target.rows() == [(1, "a", "x", START)]


@WAYS
def test_a_created_table_has_one_row_for_a_key_with_nulls(
    spark: SparkSession, database: Database, inline_bytes: int
) -> None:
    target = Target(database, changes(spark, 0), inline_bytes, create=True)
    target.write(changes(spark, 0, (None, "a", "x"), (None, None, "y"), (1, "a", "z")), 0, query="nulls")
    target.write(changes(spark, 1, (None, "a", "x2"), (None, None, None), (1, None, "new")), 1, query="nulls")
    assert target.rows() == [(1, "a", "z"), (1, None, "new"), (None, "a", "x2")]
    again = Target(database, changes(spark, 0), inline_bytes, create=True)
    again.write(changes(spark, 2, (None, "a", None), (1, None, "newer")), 2, query="nulls")
    assert target.rows() == [(1, "a", "z"), (1, None, "newer")]


def test_a_created_table_may_have_no_columns_besides_its_key(spark: SparkSession, database: Database) -> None:
    target = Target(database, changes(spark, 0).drop("v"), 0, create=True)
    target.write(
        changes(spark, 0, (None, "a", "x"), (2, None, "x"), (3, "c", "x")).drop("v"), 0, query="keys"
    )
    target.write(changes(spark, 1, (None, "a", "x"), (2, None, None)).drop("v"), 1, query="keys")
    assert target.rows() == [(3, "c"), (None, "a")]


def test_a_table_without_values_besides_its_key(spark: SparkSession, database: Database) -> None:
    database.run('CREATE TABLE out (k1 int, "k.2" text, extra text DEFAULT \'e\', PRIMARY KEY ("k.2", k1))')
    target = Target(database, changes(spark, 0).drop("v"), 0)
    target.write(changes(spark, 0, (1, "a", "x"), (2, "b", "x")).drop("v"), 0)
    target.write(changes(spark, 1, (1, "a", "x"), (2, "b", None)).drop("v"), 1)
    assert target.rows() == [(1, "a", "e")]
    with pytest.raises(DatabaseError, match='null value in column "k1"'):
        target.write(changes(spark, 2, (None, "a", "x")).drop("v"), 2)
    assert target.rows() == [(1, "a", "e")]


def test_a_row_takes_the_place_of_a_deleted_one_in_another_unique_index(
    target: Target, spark: SparkSession
) -> None:
    target.database.run("CREATE UNIQUE INDEX ON out (v)")
    target.write(changes(spark, 0, (1, "a", "only")), 0)
    target.write(changes(spark, 1, (2, "b", "only"), (1, "a", None)), 1)
    assert target.rows() == [(2, "b", "only")]


def test_a_value_that_cannot_be_stored_is_named(target: Target, spark: SparkSession) -> None:
    with pytest.raises(
        PythonException, match=r"TABLESTREAM_RECORD_ENCODING.*'v'.*\(k1=2, k\.2='b'\).*U\+0000"
    ):
        target.write(changes(spark, 0, (1, "a", "x"), (2, "b", "a\0b")), 0)
    assert target.rows() == []
    assert target.database.stages() == []


def test_a_table_that_was_changed_meanwhile_is_refused(target: Target, spark: SparkSession) -> None:
    target.database.run("ALTER TABLE out ALTER v TYPE varchar(1)")
    with pytest.raises(PlanError, match="changed since the query started"):
        target.write(changes(spark, 0, (1, "a", "x")), 0)
    target.database.run("DROP TABLE out")
    with pytest.raises(PlanError, match=r"no table public\.out"):
        target.write(changes(spark, 0, (1, "a", "x")), 0)


def test_records_without_a_key_are_refused(database: Database) -> None:
    sink = ts.to_postgres("out", database.conninfo)
    with pytest.raises(ArgumentError, match="one row per key"):
        sink.shaped(T.StructType(), T.StructType().add("v", "string"), records=True)
