"""Values arrive in PostgreSQL unchanged, whatever its settings are, or are refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from tablestream.connectors.infinity import AFTER_ALL, BEFORE_ALL
from tablestream.connectors.postgres.server import Server
from tablestream.connectors.postgres.text import UnstorableError, copy_text
from tablestream.connectors.postgres.types import created_as, fits
from tablestream.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from tests.broker.postgres_server import PostgresServer
    from tests.postgres.database import Database

DAY_US = 86_400_000_000
UTC_US, LOCAL_US = pa.timestamp("us", "America/New_York"), pa.timestamp("us")
AMOUNTS = pa.struct([('a"b', pa.string()), ("at", UTC_US), ("x", pa.float64()), ("d", pa.decimal128(20, 9))])

#: Array, type, and the text of each value as the server prints it in UTC.
EXAMPLES: list[tuple[pa.Array, str, list[str | None]]] = [
    (pa.array([True, False, None]), "boolean", ["true", "false", None]),
    (pa.array([-(2**63), 2**63 - 1]), "numeric", ["-9223372036854775808", "9223372036854775807"]),
    (pa.array([0.1, 1e20, math.nan, -math.inf], pa.float32()), "real", ["0.1", "1e+20", "NaN", "-Infinity"]),
    (pa.array([0.1], pa.float32()), "double precision", ["0.10000000149011612"]),
    (pa.array([5e-324, 1.7976931348623157e308]), "double precision", ["5e-324", "1.7976931348623157e+308"]),
    (pa.array([Decimal("0.00000001"), Decimal("-91.5")], pa.decimal128(38, 8)), "numeric(38,8)",
     ["0.00000001", "-91.50000000"]),
    (pa.array(["a\tb\\n\n\r\\N", "", None, "\\."]), "text", ["a\tb\\n\n\r\\N", "", None, "\\."]),
    (pa.array([b"\x00\\\xff", b"", None]), "bytea", ["\\x005cff", "\\x", None]),
    (pa.array([0, -719_163, -719_528, -2_440_588, 2_145_042_905, None], pa.int32()).cast(pa.date32()), "date",
     ["1970-01-01", "0001-12-31 BC", "0001-01-01 BC", "4714-11-24 BC", "5874897-12-31", None]),
    (pa.array([1, -719_163 * DAY_US - 1, 2**63 - 1, None]).cast(UTC_US), "timestamp with time zone",
     ["1970-01-01 00:00:00.000001+00", "0001-12-30 23:59:59.999999+00 BC", "294247-01-10 04:00:54.775807+00", None]),
    (pa.array([-1, 253_402_300_800_000_000]).cast(LOCAL_US), "timestamp without time zone",
     ["1969-12-31 23:59:59.999999", "10000-01-01 00:00:00"]),
    (pa.array([AFTER_ALL, BEFORE_ALL, AFTER_ALL + 1, 0]).cast(UTC_US), "timestamp with time zone",
     ["infinity", "-infinity", "294247-01-10 04:00:25.200001+00", "1970-01-01 00:00:00+00"]),
    (pa.array([BEFORE_ALL, AFTER_ALL]).cast(LOCAL_US), "timestamp without time zone", ["-infinity", "infinity"]),
    (pa.array([[AFTER_ALL, None, BEFORE_ALL]], pa.list_(UTC_US)), "timestamp with time zone[]",
     ["{infinity,NULL,-infinity}"]),
    (pa.array([{"at": AFTER_ALL}, {"at": BEFORE_ALL}], pa.struct({"at": UTC_US})), "json",
     ['{"at":"infinity"}', '{"at":"-infinity"}']),
    (pa.array([['a"\\,', None, "NULL", ""], [], None]), "text[]", ['{"a\\"\\\\,",NULL,"NULL",""}', "{}", None]),
    (pa.array([[b"\\"], [None]]), "bytea[]", ['{"\\\\x5c"}', "{NULL}"]),
    (pa.array([[1.5, math.nan]]), "double precision[]", ["{1.5,NaN}"]),
    (pa.array(['{"a": 1}', None]), "jsonb", ['{"a": 1}', None]),
    (pa.array(["0a0b0c0d-0000-0000-0000-00000000000f"]), "uuid", ["0a0b0c0d-0000-0000-0000-00000000000f"]),
    (pa.array(["äö", "x"]), "character varying(2)", ["äö", "x"]),
    (pa.array([{'a"b': '\t"é', "at": 1, "x": math.nan, "d": Decimal("1.5")},
               {'a"b': None, "at": None, "x": None, "d": None},
               None], AMOUNTS),
     "json", ['{"a\\"b":"\\t\\"é","at":"1970-01-01T00:00:00.000001Z","x":"NaN","d":1.500000000}',
              '{"a\\"b":null,"at":null,"x":null,"d":null}', None]),
    (pa.array([[(1, [1, None]), (2, None)], [], None], pa.map_(pa.int32(), pa.list_(pa.int32()))), "json",
     ['{"1":[1,null],"2":null}', "{}", None]),
    (pa.array([[("k", b"\x00")]], pa.map_(pa.string(), pa.binary())), "json", ['{"k":"AA=="}']),
    (pa.array([[[1], []], None]), "json", ["[[1],[]]", None]),
    (pa.array([b"\x00a\\", b"", None], pa.large_binary()), "bytea", ["\\x00615c", "\\x", None]),
    (pa.array(["a\tb"], pa.large_string()), "text", ["a\tb"]),
    (pa.array([[b"\x00"]], pa.list_(pa.large_binary())), "json", ['["AA=="]']),
    (pa.array([{}, None], pa.struct([])), "json", ["{}", None]),
]  # fmt: skip


def through(database: Database, array: pa.Array, kind: str) -> list[Any]:
    """Copy an array into a table, and read how the server prints it in UTC."""
    server = Server.of(database.conninfo)
    with server.transaction("test") as connection:
        connection.execute(f"CREATE TEMP TABLE t (n int, v {kind})")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write(copy_text([pa.array(range(len(array))), array], ["integer", kind]))
        connection.execute("SET LOCAL timezone = 'UTC'")
        connection.execute("SET LOCAL datestyle = 'ISO'")
        found = [row[0] for row in connection.execute("SELECT v::text FROM t ORDER BY n")]
        connection.execute("DROP TABLE t")
    return found


def test_every_type_is_printed_by_the_server_as_it_was(database: Database) -> None:
    """Also parts of arrays; the database has another time zone and another order of day and month."""
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET timezone = 'America/New_York'")
        connection.execute(f"ALTER DATABASE {name} SET datestyle = 'German, DMY'")
    for array, kind, wanted in EXAMPLES:
        assert through(database, array, kind) == wanted, kind
        for start in range(1, len(array)):
            assert through(database, array.slice(start), kind) == wanted[start:], kind


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


VALUES = st.tuples(
    st.none() | TEXTS, st.none() | st.binary(), st.none() | st.lists(st.none() | TEXTS), st.floats()
)


@given(st.lists(VALUES, min_size=1))
def test_random_values_are_read_as_they_were_written(
    postgres: PostgresServer, rows: list[tuple[Any, ...]]
) -> None:
    kinds = ("text", "bytea", "text[]", "double precision")
    arrow = (pa.string(), pa.binary(), pa.list_(pa.string()), pa.float64())
    arrays = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(arrow)]
    numbers = pa.array(range(len(rows)))
    with Server.of(postgres.conninfo).transaction("test") as connection:
        connection.execute("CREATE TEMP TABLE t (n int, a text, b bytea, c text[], d double precision)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write(copy_text([numbers, *arrays], ["integer", *kinds]))
        found = connection.execute("SELECT a, b, c, d FROM t ORDER BY n").fetchall()
        connection.execute("DROP TABLE t")
    assert list(map(repr, found)) == [repr((*row[:3], row[3])) for row in rows]


INVALID = pa.array([b"ok", b"\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("array", "kind", "row", "why"),
    [
        (pa.array(["a", None, "\0"]), "text", 2, "U+0000"),
        (pa.array([["a"], [], None, ["b", "c\0"]]), "text[]", 3, "has an element that contains"),
        (pa.array([{"x": "a"}, {"x": "\0"}]), "jsonb", 1, "U+0000"),
        (INVALID, "text", 1, "UTF-8"),
        (pa.array(["abc", "abcd"]), "character varying(3)", 1, "3 characters"),
        (pa.array(["0a0b0c0d-0000-0000-0000-00000000000F"]), "uuid", 0, "UUID"),
        (pa.array([-2_440_589], pa.int32()).cast(pa.date32()), "date", 0, "4713 BC"),
        (pa.array([0, 2_145_042_906], pa.int32()).cast(pa.date32()), "date", 1, "5874897"),
        (pa.array([0, -(2**63)]).cast(UTC_US), "timestamp with time zone", 1, "4713 BC"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(array: pa.Array, kind: str, row: int, why: str) -> None:
    with pytest.raises(UnstorableError) as refused:
        copy_text([pa.array(range(len(array))), array], ["bigint", kind])
    assert (refused.value.row, refused.value.column) == (row, 1)
    assert why in refused.value.why


def test_types_that_columns_are_created_as_fit(database: Database) -> None:
    """The server prints them as they are written here; those of the examples are read."""
    kinds = {
        "b": T.BooleanType(), "i1": T.ByteType(), "i2": T.ShortType(), "i4": T.IntegerType(), "i8": T.LongType(),
        "f4": T.FloatType(), "f8": T.DoubleType(), "n": T.DecimalType(38, 18), "s": T.StringType(),
        "vc": T.VarcharType(3), "by": T.BinaryType(), "d": T.DateType(), "ts": T.TimestampType(),
        "tn": T.TimestampNTZType(), "a": T.ArrayType(T.DecimalType(5, 2)), "m": T.MapType(T.LongType(), T.DateType()),
        "st": T.StructType().add("x", T.IntegerType()), "aa": T.ArrayType(T.ArrayType(T.StringType())),
    }  # fmt: skip
    created = {name: created_as(kind, name) for name, kind in kinds.items()}
    database.run(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in created.items())})")
    printed = database.rows(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 't'::regclass AND attnum > 0"
    )
    assert dict(printed) == created
    assert all(fits(kind, created[name], name, is_key=False) for name, kind in kinds.items())


@pytest.mark.parametrize(
    ("kind", "stored", "as_value", "as_key"),
    [
        ("smallint", "integer", True, True),
        ("bigint", "integer", False, False),
        ("bigint", "numeric", True, True),
        ("bigint", "numeric(19,0)", True, True),
        ("bigint", "numeric(20,2)", False, False),
        ("bigint", "double precision", False, False),
        ("int", "double precision", True, True),
        ("smallint", "real", True, True),
        ("int", "real", False, False),
        ("decimal(9,0)", "integer", True, True),
        ("decimal(10,0)", "integer", False, False),
        ("float", "double precision", True, True),
        ("double", "real", False, False),
        ("double", "numeric", False, False),
        ("decimal(10,2)", "numeric(12,4)", True, True),
        ("decimal(10,2)", "numeric(11,4)", False, False),
        ("decimal(10,2)", "numeric(10,1)", False, False),
        ("string", "character varying(5)", True, True),
        ("string", "character(5)", False, False),
        ("string", "citext", False, False),
        ("string", "uuid", True, True),
        ("string", "jsonb", True, False),
        ("timestamp", "timestamp without time zone", False, False),
        ("timestamp", "timestamp(3) with time zone", False, False),
        ("timestamp_ntz", "timestamp without time zone", True, True),
        ("array<int>", "integer[]", True, False),
        ("array<int>", "bigint[]", False, False),
        ("array<int>", "jsonb", True, False),
        ("struct<a: int>", "jsonb", True, False),
        ("struct<a: int>", "json", True, False),
        ("int", "jsonb", False, False),
    ],
)
def test_columns_that_hold_all_values(kind: str, stored: str, *, as_value: bool, as_key: bool) -> None:
    spark_type = _parsed(kind)
    assert fits(spark_type, stored, "c", is_key=False) is as_value
    assert fits(spark_type, stored, "c", is_key=True) is as_key


def _parsed(kind: str) -> T.DataType:
    """A type by its name, without Spark."""
    made: dict[str, T.DataType] = {
        "smallint": T.ShortType(), "bigint": T.LongType(), "int": T.IntegerType(), "float": T.FloatType(),
        "double": T.DoubleType(), "decimal(10,2)": T.DecimalType(10, 2),
            "decimal(9,0)": T.DecimalType(9, 0), "decimal(10,0)": T.DecimalType(10, 0), "string": T.StringType(),
        "timestamp": T.TimestampType(), "timestamp_ntz": T.TimestampNTZType(),
        "array<int>": T.ArrayType(T.IntegerType()), "struct<a: int>": T.StructType().add("a", T.IntegerType()),
    }  # fmt: skip
    return made[kind]


@pytest.mark.parametrize(
    "kind",
    [
        T.DayTimeIntervalType(),
        T.ArrayType(T.DayTimeIntervalType()),
        T.MapType(T.StringType(), T.VariantType()),
    ],
)
def test_types_that_postgresql_does_not_have_are_refused(kind: T.DataType) -> None:
    with pytest.raises(UnsupportedTypeError, match="Column 'c"):
        created_as(kind, "c")


def test_a_moment_is_the_same_in_python(database: Database) -> None:
    moment = datetime(2024, 1, 1, 12, 0, 0, 123456, UTC)
    day = date(2024, 2, 29)
    with Server.of(database.conninfo).transaction("test") as connection:
        connection.execute("CREATE TEMP TABLE t (a timestamptz, b date)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write(
                copy_text([pa.array([moment], UTC_US), pa.array([day])], ["timestamp with time zone", "date"])
            )
        assert connection.execute("TABLE t").fetchall() == [(moment, day)]
