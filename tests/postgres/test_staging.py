"""What tasks stage, without Spark: few changes go to the driver, many into a table of each attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import types as T

import tablestream as ts
from tablestream.connectors.marks import Mark
from tablestream.connectors.postgres import sink as module
from tablestream.connectors.postgres.marks import Marks
from tablestream.connectors.postgres.server import Server
from tablestream.connectors.postgres.staging import PostgresStage, StagedPart, Task, parts_of, staged
from tablestream.connectors.sink import CHANGE_TYPE, NUMBER, ORDER, TIMESTAMP
from tablestream.errors import DatabaseError, RecordEncodingError
from tablestream.spark.unpacking import TaskFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.postgres.database import Database

SCHEMA = pa.schema(
    [("c0", pa.int64()), ("c1", pa.string()), ("gone", pa.bool_()), ("at", pa.timestamp("us", "UTC")),
     ("n", pa.int64())]
)  # fmt: skip


def batch(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    """Changes, one a key; a delete has no text."""
    full = [dict(zip(SCHEMA.names, (key, text, text is None, 0, 0), strict=True)) for key, text in rows]
    return pa.RecordBatch.from_pylist(full, SCHEMA)


def task(database: Database, inline_bytes: int = 0, soft_delete: str | None = None) -> Task:
    """The task of a table that is there."""
    database.run("CREATE TABLE IF NOT EXISTS t (id bigint PRIMARY KEY, name text)")
    key, value = T.StructType().add("id", T.LongType()), T.StructType().add("name", T.StringType())
    sink = ts.to_postgres("t", database.conninfo, soft_delete=soft_delete).keyed_by(["id"])
    sink = sink.shaped(key, value, records=False)
    assert sink.statements is not None
    database.run(sink.statements.create_marks())
    return Task(sink.server, sink.statements, sink.statements.stage_prefix("q"), inline_bytes)


def results(batches: Iterable[pa.RecordBatch], what: Task) -> list[StagedPart]:
    """What a task reports."""
    return parts_of(said for part in staged(batches, what) for said in part["said"].to_pylist())


def merge(what: Task, parts: list[StagedPart], number: int = 0) -> None:
    """What the driver does with the parts of a micro-batch."""
    with what.server.transaction("test") as connection:
        marks = Marks(connection, what.statements, "q")
        found = marks.lock()
        if found is not None and found.micro_batch >= number:
            module._drop(connection, what.statements, {part.stage for part in parts if part.stage})
            return
        module._merge(connection, what, parts, whole=False)
        marks.set(Mark(number), whole=False)


def test_up_to_a_limit_the_text_goes_to_the_driver(database: Database) -> None:
    """Beyond it all of it goes into the table, also what came before."""
    one = [batch((1, "a")), batch(), batch((2, None))]
    text = results(one, task(database, 1000))[0].lines
    assert results(one, task(database, len(text)))[0].lines == text
    assert results([batch()], task(database)) == []
    assert database.stages() == []
    (staged_part,) = results(one, task(database, len(text) - 1))
    assert (staged_part.rows, staged_part.deletes, staged_part.repeated, staged_part.text) == (
        2,
        1,
        False,
        None,
    )
    assert database.rows(f"SELECT c0, c1, gone, n FROM {staged_part.stage}") == [
        (1, "a", False, 0),
        (2, None, True, 1),
    ]


def test_columns_that_the_output_lacks_keep_their_values_and_have_their_defaults_in_new_rows(
    database: Database,
) -> None:
    database.run("CREATE TABLE t (id bigint PRIMARY KEY, name text, extra text DEFAULT 'new')")
    what = task(database)
    merge(what, results([batch((1, "a"))], what))
    database.run("UPDATE t SET extra = 'mine'")
    merge(what, results([batch((1, "b"), (2, "c"))], what), 1)
    assert database.rows("TABLE t") == [(1, "b", "mine"), (2, "c", "new")]


def test_a_task_that_runs_twice_counts_once(database: Database) -> None:
    """At the same time: the driver merges what Spark reports, and drops the table of the other attempt."""
    what = task(database)

    def interrupted() -> Iterator[pa.RecordBatch]:
        yield batch((1, "a"))
        parts.extend(results([batch((1, "a"), (2, "b"))], what))
        yield batch((2, "b"))

    parts: list[StagedPart] = []
    (loser,) = results(interrupted(), what)
    assert loser.stage != parts[0].stage
    assert len(database.stages()) == 2
    merge(what, parts)
    assert database.rows("TABLE t") == [(1, "a"), (2, "b")]
    assert database.stages() == []


ORDERS = pa.array([{NUMBER: 0}, {NUMBER: 1}], pa.struct([(NUMBER, pa.int64())]))
#: A row that comes and goes, as a worker has them.
COMES_AND_GOES = pa.table(
    {"id": [1, 1], "name": ["a", None], CHANGE_TYPE: ["upsert", "delete"],
     TIMESTAMP: pa.array([0, 0], pa.timestamp("us", "UTC")), ORDER: ORDERS}
)  # fmt: skip


def test_what_the_database_refuses_a_worker_is_said_as_everywhere(database: Database) -> None:
    what = task(database)
    stage = PostgresStage(what.server, replace(what.statements, marks_schema="nowhere"), inline_bytes=0)

    def failing() -> None:
        with TaskFiles(1) as files:
            files.of(7, stage).add(COMES_AND_GOES)

    with pytest.raises(DatabaseError, match=r"Cannot stage the changes of a task .*nowhere.*SQLSTATE 3F000"):
        failing()


def test_what_a_failed_task_has_open_is_rolled_back(database: Database) -> None:
    """Its worker lives on: an open COPY must not keep it, nor leave a table."""
    what, rows = task(database), COMES_AND_GOES
    stage = PostgresStage(what.server, what.statements, inline_bytes=0)
    file = stage.open(0, "q")
    file.add(rows)
    merge(what, parts_of([file.close()]))
    assert (database.rows("TABLE t"), database.stages()) == ([], [])

    def failing() -> None:
        with TaskFiles(1) as files:
            files.of(7, stage).add(rows)
            raise ConnectionError("another output of the task")

    with pytest.raises(ConnectionError):
        failing()
    assert database.rows("SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'") == []
    assert database.stages() == []


def test_a_task_that_fails_leaves_no_table(database: Database) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch((1, "a"))
        raise ConnectionError("the worker is gone")

    what = task(database)
    with pytest.raises(ConnectionError):
        results(failing(), what)
    with pytest.raises(
        RecordEncodingError, match=r"column 'name' in the row with the key \(id=2\).*\(postgres public\.t\)"
    ):
        results([batch((1, "a"), (2, "\0"))], what)
    assert database.stages() == []


def test_an_old_driver_does_not_drop_what_a_newer_one_has_staged(database: Database) -> None:
    what = task(database)
    old = results([batch((1, "old"))], what)
    merge(what, results([batch((1, "newer"))], what), 1)
    newest = results([batch((1, "newest"))], what)
    merge(what, old)
    assert database.stages() == [newest[0].stage]
    merge(what, newest, 2)
    assert database.rows("TABLE t") == [(1, "newest")]


def test_a_staging_table_that_is_gone_fails_the_micro_batch(database: Database) -> None:
    """Dropped by hand: the mark is not written."""
    what = task(database)
    parts = results([batch((1, "a"))], what)
    database.run(f"DROP TABLE {parts[0].stage}")
    with pytest.raises(DatabaseError, match=r"does not exist.*SQLSTATE 42P01"):
        merge(what, parts)
    assert database.rows("TABLE tablestream_marks") == []


def test_a_connection_that_is_lost_in_the_merge_is_a_clear_error(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = task(database)
    parts = results([batch((1, "a"))], what)
    real = module._upsert_part

    def cut(connection: psycopg.Connection, *others: Any) -> None:
        real(connection, *others)
        database.rows(f"SELECT pg_terminate_backend({connection.info.backend_pid})")

    with monkeypatch.context() as planted:
        planted.setattr(module, "_upsert_part", cut)
        with pytest.raises(DatabaseError, match="Cannot test in PostgreSQL at /tmp"):
            merge(what, parts)
    assert database.rows("TABLE t") == []
    merge(what, parts)
    assert database.rows("TABLE t") == [(1, "a")]


def test_rows_that_a_policy_hides_are_an_error(database: Database) -> None:
    """And not rows that are passed over: a delete would leave them there."""
    role = f"limited_{database.conninfo.partition('dbname=')[2].split()[0]}"
    what = task(database)
    database.run(
        f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON SCHEMA public TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}", "INSERT INTO t VALUES (1, 'hidden')",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON t USING (id > 1)",
    )  # fmt: skip
    limited = replace(what, server=Server.of(database.conninfo.replace("user=tester", f"user={role}")))
    parts = results([batch((1, None))], limited)
    with pytest.raises(DatabaseError, match="row-level security policy"):
        merge(limited, parts)


def test_a_transaction_is_set_up_whatever_the_defaults_are(database: Database) -> None:
    """It waits for a mark and then sees it, survives a crash, and is ended where its driver stands still."""
    name = database.conninfo.partition("dbname=")[2].split()[0]
    for setting in ("default_transaction_isolation = 'serializable'", "synchronous_commit = off"):
        with psycopg.connect(database.conninfo, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET {setting}")
    with Server.of(database.conninfo).transaction("test") as connection:
        shown = [
            connection.execute(f"SHOW {setting}").fetchone()
            for setting in (
                "transaction_isolation",
                "synchronous_commit",
                "idle_in_transaction_session_timeout",
            )
        ]
    assert shown == [("read committed",), ("on",), ("1min",)]


@pytest.mark.parametrize("inline", [False, True])
def test_a_row_takes_the_unique_value_of_one_that_another_part_deletes(
    database: Database, inline: bool
) -> None:
    """The deletes of all parts come before the upserts of all parts, of staged ones and of those by the driver."""
    what = task(database)
    database.run("ALTER TABLE t ADD UNIQUE (name)")
    merge(what, results([batch((2, "x@y"))], what), 0)
    small = replace(what, inline_bytes=1 << 17) if inline else what
    parts = [*results([batch((1, "x@y"))], what), *results([batch((2, None))], small)]
    merge(what, parts, 1)
    assert database.rows("TABLE t") == [(1, "x@y")]


@pytest.mark.parametrize("deferrable", [False, True])
def test_rows_that_swap_a_unique_value_need_a_deferrable_constraint(
    database: Database, deferrable: bool
) -> None:
    what = task(database)
    database.run(f"ALTER TABLE t ADD UNIQUE (name) {'DEFERRABLE INITIALLY DEFERRED' if deferrable else ''}")
    merge(what, results([batch((1, "x"), (2, "y"))], what), 0)
    parts = results([batch((1, "y"), (2, "x"))], what)
    if deferrable:
        merge(what, parts, 1)
        assert database.rows("SELECT * FROM t ORDER BY 1") == [(1, "y"), (2, "x")]
    else:
        with pytest.raises(DatabaseError, match="SQLSTATE 23505"):
            merge(what, parts, 1)


@pytest.mark.parametrize("soft_delete", [None, "gone"])
def test_a_table_that_is_brought_over_whole_has_no_other_rows(
    database: Database, soft_delete: str | None
) -> None:
    """By way of the driver and by staging tables alike; columns of its own stay in the rows that stay."""
    database.run("CREATE TABLE t (id bigint PRIMARY KEY, name text, gone boolean, own int)")
    gone = soft_delete is not None
    database.run(f"INSERT INTO t VALUES (1, 'a', false, 7), (2, 'other', false, 8), (3, 'b', {gone}, 9)")
    what = task(database, 1000, soft_delete=soft_delete)
    parts = results([batch((1, "kept"), (5, None))], replace(what, inline_bytes=0))
    parts += results([batch((3, "back"))], what)
    assert [bool(part.stage) for part in parts] == [True, False]
    with what.server.transaction("test") as connection:
        module._merge(connection, what, parts, whole=True)
    alive = "SELECT id, name, own FROM t WHERE gone IS NOT TRUE"
    assert database.rows(alive) == [(1, "kept", 7), (3, "back", 9)]
    assert len(database.rows("TABLE t")) == (2 if soft_delete is None else 3)
    with what.server.transaction("test") as connection:
        module._merge(connection, what, [], whole=True)
    assert database.rows(alive) == []
