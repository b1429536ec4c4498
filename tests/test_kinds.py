"""An argument of a wrong kind is refused in one sentence: which argument, what was given, and what is expected."""

from __future__ import annotations

from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tablestream as ts
from tablestream.connectors.kafka.source import checked_offsets
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "id bigint, plane string, seats int, at timestamp"
Calls = dict[str, "Callable[[Any], object]"]


@pytest.fixture
def calls(spark: SparkSession, tmp_path: Path) -> Calls:
    log = ts.from_files(spark, tmp_path, "json", SCHEMA)
    flights = ts.table(log, "id", timestamp="at", name="flights")
    planes = ts.table(log, "plane", columns=["seats"], timestamp="at", name="planes")
    left = flights.select("plane")
    stream, grouped = left.to_stream(), flights.group_by("plane")
    records = stream.group_by("plane", value=["id"])

    def files(**given: Any) -> object:
        arguments: dict[str, Any] = {"spark": spark, "path": tmp_path, "format": "json", "schema": SCHEMA}
        return ts.from_files(**(arguments | given))

    def two(*_: Any) -> None:
        """Takes what it gets."""

    return {
        "from_files spark": lambda one: files(spark=one),
        "from_files path": lambda one: files(path=one),
        "from_files schema": lambda one: files(schema=one),
        "from_files options": lambda one: files(options=one),
        "from_files max_files_per_trigger": lambda one: files(max_files_per_trigger=one),
        "from_kafka spark": lambda one: ts.from_kafka(one, "t", value="a int", bootstrap_servers="h:1"),
        "from_kafka topic": lambda one: ts.from_kafka(spark, one, value="a int", bootstrap_servers="h:1"),
        "to_files path": ts.to_files,
        "to_files options": lambda one: ts.to_files("out", options=one),
        "to_delta path": ts.to_delta,
        "to_kafka options": lambda one: ts.to_kafka("t", bootstrap_servers="h:1", options=one),
        "to_kafka topic": lambda one: ts.to_kafka(one, bootstrap_servers="h:1"),
        "table name": lambda one: ts.table(log, "id", timestamp="at", name=one),
        "select name": lambda one: flights.select("seats", name=one),
        "count name": lambda one: grouped.count(name=one),
        "aggregate name": lambda one: grouped.aggregate(int, two, two, "n int", name=one),
        "group_by value": lambda one: flights.group_by("plane", value=one),
        "join select": lambda one: left.join(planes, on="plane", select=one),
        "join on": lambda one: left.join(planes, on=one),
        "stream join select": lambda one: stream.join(planes, on="plane", select=one),
        "lookup select": lambda one: left.join_many(ts.lookup(planes, on="plane", select=one)),
        "aggregate initializer": lambda one: grouped.aggregate(one, two, two, "n int"),
        "aggregate adder": lambda one: grouped.aggregate(int, one, two, "n int"),
        "aggregate subtractor": lambda one: grouped.aggregate(int, two, one, "n int"),
        "reduce adder": lambda one: grouped.reduce(one, two),
        "reduce subtractor": lambda one: grouped.reduce(two, one),
        "records aggregate adder": lambda one: records.aggregate(int, one, "n int"),
        "records reduce adder": records.reduce,
        "from_kafka starting_offsets": lambda one: ts.from_kafka(
            spark, "t", value="a int", bootstrap_servers="h:1", starting_offsets=one
        ),
        "from_kafka deduplicate": lambda one: ts.from_kafka(
            spark, "t", value="a int", bootstrap_servers="h:1", deduplicate=one
        ),
        "from_debezium source": lambda one: ts.from_debezium(one, "shop", bootstrap_servers="h:1"),
        "from_debezium servers": lambda one: ts.from_debezium(spark, "shop", bootstrap_servers=one),
        "to_delta mode": lambda one: ts.to_delta("out", mode=one),
        "to_postgres soft_delete": lambda one: ts.to_postgres("s.t", "host=h", soft_delete=one),
        "to_postgres marks_schema": lambda one: ts.to_postgres("s.t", "host=h", marks_schema=one),
        "to_postgres conninfo": lambda one: ts.to_postgres("s.t", one),
        "confluent_avro registry": ts.confluent_avro,
        "confluent_avro subject": lambda one: ts.confluent_avro("http://h:1", subject=one),
        "configure": ts.configure,
        "read_state spark": lambda one: ts.read_state(one, tmp_path, "t"),
        "read_state checkpoint": lambda one: ts.read_state(spark, one, "t"),
        "read_state table": lambda one: ts.read_state(spark, tmp_path, one),
        "verify spark": lambda one: ts.verify(one, tmp_path),
        "verify checkpoint": lambda one: ts.verify(spark, one),
        "verify batch_id": lambda one: ts.verify(spark, tmp_path, batch_id=one),
        "lag spark": lambda one: ts.lag(one, tmp_path),
        "lag checkpoint": lambda one: ts.lag(spark, one),
        "lag delta": lambda one: ts.lag(spark, tmp_path, delta=one),
        "lag bootstrap_servers": lambda one: ts.lag(spark, tmp_path, bootstrap_servers=one),
        "read_state batch_id": lambda one: ts.read_state(spark, tmp_path, "t", batch_id=one),
        "start name": lambda one: ts.start(
            flights.to(ts.to_memory("kinds")), checkpoint=tmp_path / "checkpoint", name=one
        ),
    }


@pytest.fixture
def flags(spark: SparkSession, tmp_path: Path) -> Calls:
    """Calls with an argument that is True or False."""
    log = ts.from_files(spark, tmp_path, "json", SCHEMA)
    flights = ts.table(log, "id", timestamp="at", history="1 hour", name="flights")
    planes = ts.table(log, "plane", columns=["seats"], timestamp="at", history="1 hour", name="planes")
    left, grouped = flights.select("plane"), flights.group_by("plane", value=["seats"])
    stream = left.to_stream()
    change = "_change_type string, _commit_version bigint, _commit_timestamp timestamp"
    feed = spark.readStream.schema(f"id int, {change}").parquet(str(tmp_path))

    def two(*_: Any) -> None:
        """Takes what it gets."""

    return {
        "keep_empty of count": lambda one: grouped.count(keep_empty=one),
        "keep_empty of agg": lambda one: grouped.agg(keep_empty=one, n=ts.functions.sum("seats")),
        "keep_empty of aggregate": lambda one: grouped.aggregate(int, two, two, "n int", keep_empty=one),
        "keep_empty of reduce": lambda one: grouped.reduce(two, two, keep_empty=one),
        "descending": lambda one: grouped.top(1, "seats", descending=one),
        "complete_history": lambda one: left.join(planes, on="plane", complete_history=one),
        "table_advances": lambda one: stream.join(planes, on="plane", grace="1 minute", table_advances=one),
        "before of changes": lambda one: flights.changes(before=one),
        "before of to": lambda one: flights.to(ts.to_memory("kinds"), before=one),
        "check_preimages": lambda one: ts.from_change_feed(feed, "id", check_preimages=one),
        "create": lambda one: ts.to_postgres("s.t", "host=h", create=one),
        "register": lambda one: ts.confluent_avro("http://h:1", register=one),
        "follow_moves": lambda one: table_of(spark, follow_moves=one),
    }


def database(spark: SparkSession, **given: Any) -> ts.Debezium:
    """Tables of a database from records that never come."""
    schema = "key binary, value binary, topic string, partition int, offset bigint"
    records = (
        spark.readStream.format("rate")
        .load()
        .selectExpr(*(f"CAST(NULL AS {kind}) AS {name}" for name, kind in map(str.split, schema.split(", "))))
    )
    arguments: dict[str, Any] = {"source": records, "prefix": "shop"}
    return ts.from_debezium(**(arguments | given))


def table_of(spark: SparkSession, **given: Any) -> ts.Table:
    """One of these tables; an argument of `from_debezium` goes there."""
    arguments: dict[str, Any] = {"name": "public.t", "key": "id", "columns": "id bigint, n string"}
    first = {name: given.pop(name) for name in list(given) if name not in {*arguments, *OF_TABLE}}
    return database(spark, **first).table(**(arguments | given))


OF_TABLE = {"except_columns", "unchanged", "source", "follow_moves", "topic"}
#: By the argument of `from_debezium` or of its `table`.
BAD_OF_DATABASE: dict[str, list[Any]] = {
    "prefix": [None, 3, ["x"], b"x", " ", "a\0b"],
    "starting_offsets": [None, 3, "soon", ["earliest"], {"t": 3}, {3: {0: 1}}, {"t": {0: "x"}}],
    "transactions": [None, 3, ["x"], b"x", ""],
    "registry": [3, ["x"], {3: 1}, b"x", {"url": object()}],
    "schema_number_bytes": ["4", None, 5, 4.0, [4]],
    "decimals": [None, 3, ["x"], {}],
    "times": [None, 3, ["x"], {"id": 3}, {"id": []}],
    "binary": [None, 3, ["x"], {}],
    "placeholder": [None, 3, ["x"], b"x"],
    "field_prefix": [None, 3, ["x"], b"x", ""],
    "name": [None, 3, ["x"], "a\0b"],
    "except_columns": [3, [3]],
    "unchanged": [3, [3]],
    "source": [3, [3]],
    "topic": [3, ["x"], b"x", "a\0b"],
}


@pytest.mark.parametrize("argument", BAD_OF_DATABASE)
def test_an_argument_of_a_database_is_refused_in_one_sentence(spark: SparkSession, argument: str) -> None:
    for given in BAD_OF_DATABASE[argument]:
        with pytest.raises(ArgumentError, match=argument) as caught:
            table_of(spark, **{argument: given})
        assert caught.value.hint, (argument, given)


def test_a_word_is_not_a_flag(flags: Calls) -> None:
    """It would count as true, and so would "no"."""
    for call, with_flag in flags.items():
        bad: list[Any] = ["no", "", 2, 1.5, {}]
        for given in bad:
            with pytest.raises(ArgumentError, match=call.split()[0]):
                with_flag(given)


def test_a_flag_can_be_one_of_numpy(flags: Calls) -> None:
    """Or a number that equals True or False."""
    for call, with_flag in flags.items():
        for no in (False, np.False_, 0):
            assert with_flag(no) is not None, call
    for yes in (True, np.True_, 1):
        flags["keep_empty of count"](yes)


def test_a_whole_number_can_be_one_of_numpy(spark: SparkSession, tmp_path: Path) -> None:
    log = ts.from_files(spark, tmp_path, "json", SCHEMA, max_files_per_trigger=np.int64(2))  # type: ignore[arg-type]
    flights = ts.table(log, "id", timestamp="at", name="flights")
    planes = ts.table(log, "plane", columns=["seats"], timestamp="at", name="planes")
    four: Any = np.int32(4)
    joined = flights.select("plane").join(planes, on="plane", spread=four)
    top = flights.group_by("plane").top(four, "seats", descending=[np.True_])  # type: ignore[list-item]
    for table in (joined, top, flights.suppress("1 hour", max_records=four, max_bytes=four)):
        plan = ts.plan_text(table.to(ts.to_memory("numbers")), shards=four)
        assert ("np." in plan, "4 shards" in plan) == (False, True)
    assert "np." not in repr(ts.to_console(n_rows=four, truncate=four))
    with pytest.raises(ts.errors.StateError):
        ts.read_state(spark, tmp_path, "flights", batch_id=four)


def test_offsets_can_be_of_numpy_and_sparks_own_text() -> None:
    for given, wanted in (
        ({"t": {np.int64(0): np.int64(3), "1": -1}}, {"t": {0: 3, 1: -1}}),
        ({"t": {}}, {"t": {}}),
        ({}, {}),
        (" Latest", " Latest"),
        ('{"t": {"0": 1}}', '{"t": {"0": 1}}'),
    ):
        assert checked_offsets(given) == wanted


def test_no_error_shows_a_secret_of_the_registry() -> None:
    for given in ({"url": "http://h:1", "basic.auth.user.info": ("me:secret", object())}, ["secret"]):
        with pytest.raises(ArgumentError) as caught:
            ts.confluent_avro(given)  # type: ignore[arg-type]
        assert "secret" not in str(caught.value)


BAD: dict[str, list[Any]] = {
    "from_files spark": [None, 3, "x"],
    "from_files path": [None, 3, "a\0b", ["x"]],
    "from_files schema": [None, 3],
    "from_files options": [3, "x", ["header"], {3: True}],
    "from_files max_files_per_trigger": ["x", 0, True, 1.5],
    "from_kafka spark": [None, "x"],
    "from_kafka topic": [None, 3, "a\0b", ["a", 3], b"t"],
    "to_files path": [None, 3, "a\0b"],
    "to_files options": [3, "x", ["header"]],
    "to_delta path": [None, 3, "a\0b"],
    "to_kafka options": [3, "x", ["header"], {3: 1}],
    "to_kafka topic": [None, 3, "a\0b", ["t"]],
    "table name": [3, ["x"], " "],
    "select name": [3, ["x"]],
    "count name": [3, ["x"], " "],
    "aggregate name": [3, ["x"]],
    "group_by value": [3],
    "join select": [3, "x", dict, lambda one: one, lambda: None],
    "join on": [3, dict, lambda: None, lambda *, a: a],
    "stream join select": [3, dict, lambda one: one],
    "lookup select": [3, dict, lambda one: one],
    "aggregate initializer": [None, 3, lambda one: one],
    "aggregate adder": [None, 3, lambda one: one],
    "aggregate subtractor": [None, "x", lambda *, a: a],
    "reduce adder": [None, 3, lambda one: one],
    "reduce subtractor": [None, 3, lambda *, a: a],
    "records aggregate adder": [None, lambda one: one],
    "records reduce adder": [None, lambda one: one],
    "from_kafka starting_offsets": [None, 3, "soon", ["earliest"], {"t": 3}, {3: {0: 1}}, {"t": {0: 1.5}}],
    "from_kafka deduplicate": ["no", None, 2, []],
    "from_debezium source": [None, 3, "x"],
    "from_debezium servers": [None, 3, ["h:1"], ""],
    "to_delta mode": [None, 3, ["table"], {}],
    "to_postgres soft_delete": [3, ["x"], True, b"x", ""],
    "to_postgres marks_schema": [3, ["x"], True, b"x", ""],
    "to_postgres conninfo": [None, 3, ["x"]],
    "confluent_avro registry": [None, 3, ["x"], {3: 1}, {"url": object()}, b"x"],
    "confluent_avro subject": [3, ["x"], b"x"],
    "configure": [None, 3, "x"],
    "read_state spark": [None, 3, "x"],
    "read_state checkpoint": [None, 3, b"x", "", "a\0b"],
    "read_state table": [None, 3, ["x"]],
    "verify spark": [None, 3, "x"],
    "verify checkpoint": [None, 3, b"x", "", "a\0b"],
    "verify batch_id": ["x", True, 1.5],
    "lag spark": [None, 3, "x"],
    "lag checkpoint": [None, 3, b"x", "", "a\0b"],
    "lag delta": [None, 3, [3], b"x"],
    "lag bootstrap_servers": [3, ["x"], b"x", ""],
    "read_state batch_id": ["x", True, 1.5],
    "start name": [3, ["x"], " "],
}


@pytest.mark.parametrize("call", BAD)
def test_an_argument_of_a_wrong_kind_is_refused_in_one_sentence(calls: Calls, call: str) -> None:
    for given in BAD[call]:
        with pytest.raises(ArgumentError) as caught:
            calls[call](given)
        assert caught.value.hint, (call, given)


def test_functions_that_take_what_they_get_are_accepted(calls: Calls) -> None:
    calls["join select"](lambda left, right, more=1: [right.seats])  # noqa: ARG005
    calls["join on"](lambda row: row.plane)
    calls["join on"](lambda row, key: [row.plane])  # noqa: ARG005
    calls["reduce adder"](max)
    calls["aggregate initializer"](int)
    calls["group_by value"]("seats")


def test_a_wrapper_may_take_other_arguments_than_what_it_wraps(calls: Calls) -> None:
    def wrapped(conf: str, key: Any, row: Any, total: Any) -> Any:
        raise NotImplementedError(conf, key, row, total)

    @wraps(wrapped)
    def adder(key: Any, row: Any, total: Any) -> Any:
        return wrapped("c", key, row, total)

    @wraps(wrapped)
    def any_of_them(*given: Any) -> Any:
        return wrapped("c", *given)

    calls["aggregate adder"](adder)
    calls["aggregate adder"](any_of_them)


def test_a_function_of_the_row_gets_the_key_only_if_it_takes_it(calls: Calls) -> None:
    calls["join on"](attrgetter("plane"))
    calls["join on"](lambda row, *, more=1: row.plane)  # noqa: ARG005
    calls["join on"](lambda row, key=None: [row.plane, key][:1])
    calls["join on"](lambda *rows: rows[0].plane)


def test_topics_may_be_any_collection(spark: SparkSession) -> None:
    for given in ({"a": 1, "b": 2}.keys(), (one for one in "ab")):
        with pytest.raises(ArgumentError, match="bootstrap_servers") as caught:
            ts.from_kafka(spark, given, value="a int", bootstrap_servers=3)  # type: ignore[arg-type]
        assert "topic" not in caught.value.reason
