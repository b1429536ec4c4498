"""An argument of a wrong kind is refused in one sentence: which argument, what was given, and what is expected."""

from __future__ import annotations

from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
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
    }


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
