"""Streams and star joins: what is refused when the plan is built, and the columns that come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import (
    ArgumentError,
    ColumnCollisionError,
    GraceExceedsHistoryError,
    KeyMismatchError,
    NotVersionedError,
    PlanError,
    ReservedNameError,
    UnsupportedTypeError,
)
from tests.test_table import refused

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id bigint, plane string, seats int, words array<string>, legs array<struct<a: int, b: string>>, at timestamp"


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "log").mkdir()
    return ts.from_files(spark, tmp_path / "log", "json", COLUMNS)


@pytest.fixture
def flights(log: DataFrame) -> ts.Stream:
    return ts.stream(log, key="id", timestamp="at", name="flights")


@pytest.fixture
def planes(log: DataFrame) -> ts.Table:
    return ts.table(log, key="plane", columns=["seats"], timestamp="at", name="planes")


# Columns


def test_a_stream_tells_what_it_is(flights: ts.Stream) -> None:
    assert flights.columns == ["id", "plane", "seats", "words", "legs", "at"]
    assert repr(flights).startswith("Stream 'flights' [key id: bigint] [plane: string, seats: int")


def test_a_stream_needs_no_key(log: DataFrame) -> None:
    assert ts.stream(log, timestamp="at").key_columns == []


def test_a_key_chosen_anew_is_no_part_of_the_value(flights: ts.Stream) -> None:
    by_plane = flights.select("plane", "seats").select_key("plane")
    assert (by_plane.key_columns, by_plane.columns) == (["plane"], ["plane", "seats"])
    upper = flights.select("plane", "seats").select_key(F.upper("plane").alias("PLANE"), "seats")
    assert upper.columns == ["PLANE", "seats"]


def test_elements_become_columns(flights: ts.Stream) -> None:
    assert flights.flat_map("legs").columns == ["id", "a", "b"]
    assert flights.flat_map(F.col("words").alias("word")).columns == ["id", "word"]
    assert flights.flat_map("transform(words, x -> upper(x))").columns == ["id", "element"]
    assert flights.flat_map(F.split("plane", "-")).columns == ["id", "element"]


def test_a_stream_joined_has_its_own_key(flights: ts.Stream, planes: ts.Table) -> None:
    joined = flights.select("plane").join(planes, on="plane", how="left")
    assert isinstance(joined, ts.Stream)
    assert joined.columns == ["id", "plane", "seats"]


def test_groups_of_records_are_a_table(flights: ts.Stream) -> None:
    table = flights.group_by("plane").agg(
        n=ts.functions.count(),
        seats=ts.functions.max("seats"),
        some=ts.functions.approx_percentile("seats", 0.5),
    )
    assert isinstance(table, ts.Table)
    assert [(one.name, one.dataType.simpleString()) for one in table.schema] == [
        ("plane", "string"),
        ("n", "bigint"),
        ("seats", "int"),
        ("some", "double"),
    ]
    assert flights.group_by_key().count().columns == ["id", "count"]


# What is refused


def test_what_is_no_stream(spark: SparkSession) -> None:
    refused(
        lambda: ts.stream(spark.range(3)),
        ArgumentError,
        "A stream needs a streaming DataFrame",
        operator="stream",
    )


def test_records_without_a_key_are_no_table(log: DataFrame) -> None:
    records = ts.stream(log, timestamp="at", name="r")
    refused(lambda: records.to_table("t"), ArgumentError, "need", "key", operator="r")
    refused(lambda: records.group_by_key(value=None), ArgumentError, "need", "key", operator="r")


def test_a_new_key_needs_a_name_and_an_equality(flights: ts.Stream) -> None:
    refused(lambda: flights.select_key(name="k"), ArgumentError, "select_key() has no key")
    twice = F.upper("plane").alias("SEATS")
    refused(lambda: flights.select_key("seats", twice), ColumnCollisionError, "'SEATS'", operator="flights")
    hidden = F.col("plane").alias("_order")
    refused(lambda: flights.group_by(hidden), ReservedNameError, "'_order'", "reserved", operator="flights")
    refused(lambda: flights.select_key(F.upper("plane")), ArgumentError, "no name")
    refused(
        lambda: flights.select_key(F.create_map("plane", "id").alias("m")),
        UnsupportedTypeError,
        operator="flights",
    )


def test_flat_map_takes_arrays(flights: ts.Stream) -> None:
    refused(lambda: flights.flat_map("plane"), ArgumentError, "string", "array", operator="flights_flat_map")
    elements = F.array(F.struct(F.col("id"))).alias("e")
    refused(lambda: flights.flat_map(elements), ColumnCollisionError, "'id'", operator="flights_flat_map")
    hidden = F.array(F.struct(F.col("id").alias("__x"))).alias("e")
    refused(
        lambda: flights.flat_map(hidden), ReservedNameError, "'__x'", "reserved", operator="flights_flat_map"
    )


def test_streams_that_differ_are_not_merged(flights: ts.Stream, planes: ts.Table) -> None:
    other = flights.select("plane")
    refused(lambda: flights.merge(other), ArgumentError, "different columns", operator="flights_merge")
    refused(lambda: flights.merge(planes), ArgumentError, "stream", operator="flights")  # type: ignore[arg-type]
    assert flights.select("plane", "seats").merge(flights.select("seats", "plane")).columns == [
        "id",
        "plane",
        "seats",
    ]


def test_joins_of_streams(flights: ts.Stream, planes: ts.Table, log: DataFrame) -> None:
    everywhere = ts.global_table(log, key="plane", columns=["seats"], timestamp="at", name="all")
    few = flights.select("plane")
    refused(lambda: few.join(everywhere), ArgumentError, "needs on=", operator="flights_select_all_join")
    refused(lambda: few.join(planes), KeyMismatchError, operator="flights_select_planes_join")
    how: Any = "outer"
    refused(
        lambda: few.join(planes, on="plane", how=how),
        ArgumentError,
        "outer",
        operator="flights_select_planes_join",
    )
    refused(lambda: few.join(few, on="id"), ArgumentError, "table", operator="flights_select")  # type: ignore[arg-type]
    keyless = ts.stream(log, columns=["seats"], timestamp="at", name="r")
    refused(lambda: keyless.join(planes), ArgumentError, "without a key", operator="r_planes_join")


def test_a_stream_keeps_no_row_per_key(flights: ts.Stream, tmp_path: Path) -> None:
    sink = ts.to_delta(str(tmp_path / "table"))
    refused(lambda: flights.to(sink), ArgumentError, "Append", operator="flights")


def test_estimates_are_of_streams(flights: ts.Stream, planes: ts.Table) -> None:
    refused(
        lambda: planes.group_by("seats").agg(n=ts.functions.approx_count_distinct("plane")),
        ArgumentError, "sketch", operator="planes_agg",
    )  # fmt: skip
    refused(lambda: ts.functions.approx_count_distinct("plane", 0), ArgumentError, "rsd=0")
    refused(lambda: ts.functions.approx_percentile("seats", 2), ArgumentError, "percentage=2")
    refused(
        lambda: flights.group_by("id").agg(p=ts.functions.approx_percentile("plane", 0.5)), UnsupportedTypeError,
        operator="flights_agg",
    )  # fmt: skip


def test_estimates_of_distinct_texts_refuse_collations(flights: ts.Stream) -> None:
    estimate = ts.functions.approx_count_distinct("plane collate UTF8_LCASE")
    refused(
        lambda: flights.group_by("id").agg(n=estimate),
        UnsupportedTypeError,
        "collate",
        operator="flights_agg",
    )


def test_reserved_names(flights: ts.Stream) -> None:
    refused(lambda: flights.select(F.lit(1).alias("_timestamp")), ReservedNameError, operator="flights")


# Versions


@pytest.fixture
def versions(log: DataFrame) -> ts.Table:
    return ts.table(
        log, key="plane", columns=["seats"], timestamp="at", history="10 minutes", name="versions"
    )


def test_a_versioned_table_keeps_its_name(versions: ts.Table) -> None:
    assert versions.name == "versions"
    assert versions.select("seats").name == "versions_select"


def test_names_that_are_made_of_a_table_s_are_its_own(versions: ts.Table, log: DataFrame) -> None:
    ordered = ts.table(log, "plane", columns=["id"], timestamp="at", reorder="1 minute", name="ordered")
    pairs = versions.one_to_many(ordered, on="plane")
    assert pairs.key_columns == ["versions_plane", "ordered_plane"]
    assert ordered.group_by("id").count().name == "ordered_agg"


def test_a_table_with_a_row_per_key_gets_the_latest(versions: ts.Table, tmp_path: Path) -> None:
    sink = ts.to_delta(str(tmp_path / "table"))
    refused(lambda: versions.to(sink, emit="every"), ArgumentError, "late", operator="versions")


def test_a_sequence_goes_with_no_history(log: DataFrame) -> None:
    table = ts.table(log, "plane", timestamp="at", sequence_by="id", tombstone_retention=None, name="a")
    assert table.name == "a"
    refused(
        lambda: ts.table(log, "plane", timestamp="at", sequence_by="id", history="1 minute", name="a"),
        ArgumentError, "sequence_by=", operator="a",
    )  # fmt: skip


def test_grace_needs_versions_that_are_kept_as_long(
    flights: ts.Stream, planes: ts.Table, versions: ts.Table
) -> None:
    few, name = flights.select("plane"), "flights_select_versions_join"
    assert few.join(versions, on="plane", grace="10 minutes").columns == ["id", "plane", "seats"]
    assert few.join(versions.filter("seats > 1"), on="plane", grace="1 minute").columns[-1] == "seats"
    refused(
        lambda: few.join(planes, on="plane", grace="1 second"), NotVersionedError, "no history",
        operator="flights_select_planes_join",
    )  # fmt: skip
    flat = versions.materialize(name="flat")
    refused(
        lambda: few.join(flat, on="plane", grace="1 second"), NotVersionedError,
        operator="flights_select_flat_join",
    )  # fmt: skip
    refused(
        lambda: few.join(versions, on="plane", grace="11 minutes"), GraceExceedsHistoryError, "11 minutes",
        operator=name,
    )  # fmt: skip
    refused(lambda: few.join(versions, on="plane", grace="-1 second"), ArgumentError, "grace=", operator=name)
    refused(
        lambda: few.join(versions, on="plane", wall_clock="1 second"), ArgumentError, "grace=", operator=name
    )


def test_corrections_make_a_table_with_a_row_for_each_record(
    flights: ts.Stream, planes: ts.Table, versions: ts.Table
) -> None:
    few = flights.select("plane")
    corrected = few.join_as_table(versions, on="plane")
    assert isinstance(corrected, ts.Table)
    assert corrected.key_columns == ["id", "record_id"]
    assert corrected.columns == ["id", "record_id", "plane", "seats"]
    refused(
        lambda: few.join_as_table(planes, on="plane"), NotVersionedError, "join_as_table()",
        operator="flights_select_planes_join",
    )  # fmt: skip
    named = flights.select("plane", F.lit(1).alias("record_id"))
    refused(
        lambda: named.join_as_table(versions, on="plane"), ColumnCollisionError, "'record_id'",
        operator="flights_select_versions_join",
    )  # fmt: skip


def test_histories_are_joined_where_both_tables_have_one(
    log: DataFrame, planes: ts.Table, versions: ts.Table
) -> None:
    complete: Any = {"complete_history": True, "suffixes": ("_left", "_right")}
    joined = versions.join(versions.filter("seats > 1"), **complete)
    assert joined.columns == ["plane", "seats_left", "seats_right"]
    assert joined.select("seats_left").join(versions, **complete).columns[0] == "plane"
    refused(
        lambda: joined.suppress("1 minute"), PlanError, "versioned table", operator=f"{joined.name}_suppress"
    )
    refused(
        lambda: versions.join(planes, **complete), NotVersionedError, "'planes'",
        operator="versions_planes_join",
    )  # fmt: skip
    refused(
        lambda: versions.join(versions, on="plane", how="outer", **complete), ArgumentError, "outer",
        operator="versions_versions_join",
    )  # fmt: skip
    everywhere = ts.global_table(
        log, "plane", columns=["seats"], timestamp="at", history="1 minute", name="all"
    )
    refused(
        lambda: versions.join(everywhere, on="plane", **complete), ArgumentError, "global table",
        operator="versions_all_join",
    )  # fmt: skip


def test_suppress_is_for_tables_without_a_history(versions: ts.Table) -> None:
    refused(lambda: versions.suppress("1 minute"), PlanError, "versioned table", operator="versions_suppress")
    refused(
        lambda: versions.filter("seats > 1").suppress("1 minute"), PlanError, "versioned table",
        operator="versions_filter_suppress",
    )  # fmt: skip
    assert versions.materialize().suppress("1 minute").columns == ["plane", "seats"]


@pytest.mark.parametrize("history", ["soon", -1, "-1 second", "10", "10 ns"])
def test_a_history_is_a_length_of_time(
    log: DataFrame, flights: ts.Stream, planes: ts.Table, history: Any
) -> None:
    words = ArgumentError, "history="
    refused(lambda: ts.table(log, "id", timestamp="at", history=history, name="a"), *words, operator="a")
    refused(
        lambda: ts.global_table(log, "id", timestamp="at", history=history, name="a"), *words, operator="a"
    )
    refused(lambda: planes.materialize(history), *words, operator="planes_materialized")
    refused(lambda: flights.to_table(history), *words, operator="flights_table")


# Star joins


def test_a_star_join_names_its_columns(planes: ts.Table, log: DataFrame) -> None:
    flights = ts.table(log, key="id", columns=["plane"], timestamp="at", name="flights")
    owners = ts.table(log, key="plane", columns=["at"], timestamp="at", name="owners")
    joined = flights.join_many(
        ts.lookup(planes, on="plane", how="left"), ts.lookup(owners, on=lambda row: F.upper(row.plane))
    )
    assert joined.columns == ["id", "plane", "seats", "at"]
    chosen = flights.join_many(
        ts.lookup(planes, on="plane", how="left", select=lambda _, p: [p.plane.alias("found"), p.seats])
    )
    assert chosen.columns == ["id", "found", "seats"]


def test_what_is_no_star_join(planes: ts.Table, log: DataFrame) -> None:
    flights = ts.table(log, key="id", columns=["plane"], timestamp="at", name="flights")
    star = "flights_join_many"
    refused(lambda: flights.join_many(), ArgumentError, "given no table", operator=star)  # noqa: PLW0108 - the line is asked for
    refused(lambda: flights.join_many(planes), ArgumentError, "given a Table", operator=star)  # type: ignore[arg-type]
    other: Any = {"how": "outer"}
    refused(
        lambda: flights.join_many(ts.lookup(planes, on="plane", **other)),
        ArgumentError,
        "outer",
        operator=star,
    )
    named: Any = "planes"
    refused(
        lambda: flights.join_many(ts.lookup(named, on="plane")), ArgumentError, "table", operator="flights"
    )
    refused(
        lambda: flights.join_many(ts.lookup(planes, on="plane"), ts.lookup(planes, on="plane")),
        ColumnCollisionError,
        "'seats'",
        operator=star,
    )
