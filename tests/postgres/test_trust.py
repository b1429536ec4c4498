"""Tables of marks that somebody else made, and one table under two names of its server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

import tablestream as ts
from tablestream.connectors.marks import Mark, Moment
from tablestream.connectors.postgres.marks import Marks, check_plain
from tablestream.errors import ArgumentError, DatabaseError
from tablestream.spark.outputs import check_identities

if TYPE_CHECKING:
    from tablestream.connectors.postgres.sink import PostgresSink
    from tests.postgres.database import Database

OLDER = (
    "CREATE TABLE tablestream_marks (query text, target text, micro_batch bigint NOT NULL,"
    " written timestamp with time zone NOT NULL, PRIMARY KEY (query, target))"
)
FUNCTION = (
    "CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS"
    " $$BEGIN INSERT INTO ran VALUES (current_user); RETURN NEW; END$$"
)
TRIGGER = (
    "CREATE TRIGGER evil BEFORE INSERT OR UPDATE ON tablestream_marks FOR EACH ROW EXECUTE FUNCTION evil()"
)


def shaped(conninfo: str, **options: Any) -> PostgresSink:
    key, value = T.StructType().add("id", "integer"), T.StructType().add("n", "long")
    sink = ts.to_postgres("out", conninfo, create=True, **options).keyed_by(["id"])
    return sink.shaped(key, value, records=False)


def prepare(database: Database) -> Marks:
    """Do what a micro-batch does before it writes."""
    sink = shaped(database.conninfo)
    with sink.server.transaction("prepare") as connection:
        marks = Marks(connection, sink._statements, "q")
        sink._prepare(connection, marks)
        marks.lock()
        marks.set(Mark(0, "p"), whole=False)
    return marks


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ((OLDER, "ALTER TABLE tablestream_marks OWNER TO mallory"), "the owner 'mallory'"),
        ((OLDER, FUNCTION, TRIGGER), "a trigger"),
        (("CREATE VIEW tablestream_marks AS SELECT 1 AS query",), "another kind than a table's"),
        ((OLDER, "ALTER TABLE tablestream_marks ALTER micro_batch SET DEFAULT 1"), "a default"),
        ((OLDER, "ALTER TABLE tablestream_marks ENABLE ROW LEVEL SECURITY"), "row security"),
        ((OLDER, "ALTER TABLE tablestream_marks ADD CHECK (micro_batch > -9)"), "a constraint"),
        ((OLDER, "CREATE RULE r AS ON INSERT TO tablestream_marks DO INSTEAD NOTHING"), "a rule"),
        ((OLDER, "CREATE INDEX ON tablestream_marks ((upper(query)))"), "an index"),
        ((OLDER, "CREATE TABLE child () INHERITS (tablestream_marks)"), "a parent or a child"),
        (("CREATE TABLE tablestream_marks (query int)",), "other columns than marks have: query integer"),
    ],
)
def test_marks_that_could_run_the_code_of_others_are_refused(
    database: Database, planted: tuple[str, ...], said: str
) -> None:
    """By a start and by each micro-batch; nothing of theirs runs."""
    database.run(
        "CREATE TABLE ran (by_role text)", "DROP ROLE IF EXISTS mallory", "CREATE ROLE mallory", *planted
    )
    with pytest.raises(DatabaseError, match=said):
        prepare(database)
    if "other columns" not in said:
        with pytest.raises(DatabaseError, match=said):
            shaped(database.conninfo).at(Moment(0, "q")).settle(None, None, None)  # type: ignore[arg-type]
    assert database.rows("TABLE ran") == []
    database.run("DROP OWNED BY mallory", "DROP ROLE mallory")


def test_a_staging_table_that_somebody_else_made_is_refused(database: Database) -> None:
    database.run("DROP ROLE IF EXISTS mallory", "CREATE ROLE mallory", "CREATE TABLE s (c0 int)")
    database.run("ALTER TABLE s OWNER TO mallory")
    with (
        pytest.raises(DatabaseError, match=r"public\.s has the owner 'mallory'"),
        shaped(database.conninfo).server.transaction("look") as connection,
    ):
        check_plain(connection, "public", "s")
    database.run("DROP OWNED BY mallory", "DROP ROLE mallory")


def test_marks_of_an_older_version_go_on_and_get_proofs(database: Database) -> None:
    """The first micro-batch of a new version goes by the number. A checkpoint that is older is refused."""
    database.run(OLDER, "CREATE TABLE out (id int PRIMARY KEY, n bigint)", "INSERT INTO out VALUES (1, 1)")
    database.run("""INSERT INTO tablestream_marks VALUES ('q', '"public"."out"', 5, now())""")
    sink = shaped(database.conninfo)
    none: Any = None
    for number, proof in ((5, "planned"), (6, ""), (9, "")):  # empty micro-batches left no mark
        sink.at(Moment(number, "q", proof, "before")).settle(none, none, none)
    for number in (4, 5):
        with pytest.raises(ts.errors.TargetError, match="has the micro-batches up to 5"):
            sink.at(Moment(number, "q")).settle(none, none, none)
    prepare(database)
    assert database.rows("SELECT micro_batch, proof FROM tablestream_marks") == [(0, "p")]


def test_functions_of_others_do_not_take_the_place_of_built_in_ones(database: Database) -> None:
    """Whatever search path the database has. What follows pg_catalog stays for triggers of the user's table."""
    (name,) = database.rows("SELECT current_database()")[0]
    database.run(
        "CREATE TABLE ran (by_role text)",
        "CREATE FUNCTION set_config(text, text, boolean) RETURNS text LANGUAGE sql AS"
        " $$INSERT INTO public.ran VALUES (current_user); SELECT $2$$",
        f"ALTER DATABASE {name} SET search_path = public, pg_catalog",
    )
    sink = shaped(database.conninfo)
    with sink.server.transaction("look") as connection:
        path = connection.execute("SHOW search_path").fetchone()
    assert path == ("pg_catalog, public, pg_catalog",)
    assert database.rows("TABLE public.ran") == []


def test_one_table_under_two_names_of_its_server_is_one_target(database: Database) -> None:
    host = database.conninfo.partition("host=")[2].split()[0]
    other = database.conninfo.replace(host, f"{host}/../{host.rpartition('/')[2]}")
    one, two = shaped(database.conninfo), shaped(other)
    assert one.target != two.target
    with pytest.raises(ArgumentError, match="Two outputs have the same table"):
        check_identities([one, two])
    elsewhere = replace(two, identity=f"{two.identity} elsewhere")
    check_identities([one, elsewhere])
