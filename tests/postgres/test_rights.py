"""A role with the rights that the page names maintains a table; a right that it lacks is named when a query starts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import types as T

import tablestream as ts
from tablestream.connectors.marks import Mark, Moment
from tablestream.connectors.postgres import sink as module
from tablestream.connectors.postgres.marks import Marks
from tablestream.connectors.postgres.staging import parts_of, staged
from tablestream.errors import DatabaseError, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestream.connectors.postgres.sink import PostgresSink
    from tests.postgres.database import Database

SCHEMA = pa.schema(
    [("c0", pa.int32()), ("c1", pa.int64()), ("gone", pa.bool_()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())]
)  # fmt: skip
#: What docs/semantics/postgresql.md names, beside a password and a way to the server.
RIGHTS = (
    "GRANT CONNECT, TEMPORARY ON DATABASE {database} TO writer",
    "GRANT USAGE ON SCHEMA shop TO writer",
    "GRANT USAGE, CREATE ON SCHEMA marks TO writer",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON shop.amounts TO writer",
)


@pytest.fixture
def limited(database: Database) -> Iterator[tuple[Database, str]]:
    """A database that gives nothing to everybody, and how its role `writer` connects; the role has no rights yet."""
    (name,) = database.rows("SELECT current_database()")[0]
    database.run(
        f"REVOKE ALL ON DATABASE {name} FROM PUBLIC",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        "DROP ROLE IF EXISTS writer",
        "CREATE ROLE writer LOGIN",
        "CREATE SCHEMA shop",
        "CREATE SCHEMA marks",
        "CREATE TABLE shop.amounts (id int PRIMARY KEY, n bigint)",
    )
    with psycopg.connect(database.conninfo) as connection:
        user = connection.info.user
    yield database, database.conninfo.replace(f"user={user}", "user=writer")
    database.run("DROP OWNED BY writer", "DROP ROLE writer")


def sink_of(conninfo: str, table: str = "shop.amounts", **options: Any) -> PostgresSink:
    key, value = T.StructType().add("id", "integer", nullable=False), T.StructType().add("n", "long")
    sink = ts.to_postgres(table, conninfo, marks_schema="marks", **options).keyed_by(["id"])
    return sink.shaped(key, value, records=False)


def write(sink: PostgresSink, number: int, *rows: tuple[int, int | None]) -> None:
    """Write a micro-batch as the tasks and the driver do: one part by a staging table, one by the driver."""
    none: Any = None
    sink.at(Moment(number, "q")).settle(none, none, none)
    full = [
        {"c0": key, "c1": n, "gone": n is None, "at": 0, "n": place} for place, (key, n) in enumerate(rows)
    ]
    task = sink._task("q")
    parts = parts_of(
        said
        for some, limit in ((full[::2], 0), (full[1::2], 1000))
        for part in staged([pa.RecordBatch.from_pylist(some, SCHEMA)], replace(task, inline_bytes=limit))
        for said in part["said"].to_pylist()
    )
    assert [part.stage is None for part in parts] == [False, True]
    with sink.server.transaction("write") as connection:
        marks = Marks(connection, task.statements, "q")
        sink._prepare(connection, marks)
        marks.lock()
        module._merge(connection, task, parts, whole=False)
        marks.set(Mark(number), whole=False)


def grant(database: Database, *statements: str) -> None:
    (name,) = database.rows("SELECT current_database()")[0]
    database.run(*(one.format(database=name) for one in statements))


def test_the_least_rights_that_the_page_names_are_enough_and_each_is_needed(
    limited: tuple[Database, str],
) -> None:
    """Without CONNECT the server lets nobody in; any other right that is missing is named with its GRANT."""
    database, conninfo = limited
    (name,) = database.rows("SELECT current_database()")[0]
    with pytest.raises(DatabaseError, match="permission denied for database"):
        sink_of(conninfo)
    grant(database, *RIGHTS)
    for right, place in (
        ("TEMPORARY", 'DATABASE "{database}"'),
        ("USAGE", 'SCHEMA "shop"'),
        *((right, 'SCHEMA "marks"') for right in ("USAGE", "CREATE")),
        *((right, '"shop"."amounts"') for right in ("SELECT", "INSERT", "UPDATE", "DELETE")),
    ):
        said = f"{right} ON {place}".format(database=name)
        grant(database, f"REVOKE {said} FROM writer")
        with pytest.raises(DatabaseError) as lacking:
            sink_of(conninfo)
        assert f' GRANT {said} TO "writer"' in str(lacking.value)
        grant(database, f"GRANT {said} TO writer")
    sink = sink_of(conninfo)
    write(sink, 0, (1, 10), (2, 20), (3, 30))
    write(sink, 1, (1, 11), (2, None), (3, None))
    assert database.rows("TABLE shop.amounts") == [(1, 11)]
    assert database.rows("SELECT micro_batch FROM marks.tablestream_marks") == [(1,)]
    assert database.stages() == []


def test_a_role_that_may_not_create_the_table_is_told_what_to_grant(limited: tuple[Database, str]) -> None:
    """When the query starts, and not by the first micro-batch."""
    database, conninfo = limited
    grant(database, *RIGHTS)
    with pytest.raises(DatabaseError, match='GRANT CREATE ON SCHEMA "shop" TO "writer"'):
        sink_of(conninfo, "shop.others", create=True)
    grant(database, "GRANT CREATE ON SCHEMA shop TO writer")
    write(sink_of(conninfo, "shop.others", create=True), 0, (1, 10), (2, 20))
    assert database.rows("TABLE shop.others") == [(1, 10), (2, 20)]


def test_a_role_that_does_not_own_a_table_is_told_how_it_gets_its_columns(
    limited: tuple[Database, str],
) -> None:
    database, conninfo = limited
    grant(database, *RIGHTS)
    database.run("ALTER TABLE shop.amounts RENAME COLUMN n TO m")
    key, value = T.StructType().add("id", "integer", nullable=False), T.StructType().add("n", "long")
    moment = Moment(0, "q", evolves="brought over")
    for place, is_owner in ((conninfo, False), (database.conninfo, True)):
        sink = ts.to_postgres("shop.amounts", place, marks_schema="marks").keyed_by(["id"]).at(moment)
        with (
            nullcontext()
            if is_owner
            else pytest.raises(PlanError, match=r'ALTER TABLE .* ADD COLUMN "n" bigint')
        ):
            sink.shaped(key, value, records=False)
