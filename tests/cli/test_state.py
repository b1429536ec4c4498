"""``tablestream state``: the list of tables with their sizes, and one key's row."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T
from typer.testing import CliRunner

import tablestream as ts
from tablestream import functions as tf
from tablestream.cli import app
from tablestream.cli.exit_codes import ExitCode
from tablestream.errors import ArgumentError
from tablestream.planner.catalogue import decode
from tablestream.spark import state_reader, stored_state
from tablestream.spark.stored_key import GivenKey
from tablestream.spark.stored_state import StoredState
from tests.conftest import in_partitions
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "k string, n int, x double, at bigint"


def row(k: str, n: int, x: float | None, at: int) -> dict[str, Any]:
    return {"k": k, "n": n, "x": x, "at": START + at}


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query with several tables in its state, after two micro-batches."""
    place = tmp_path_factory.mktemp("state")
    log = ChangeLog(place / "log", SCHEMA)
    log.add(
        [row(k, n, n / 2, n) for n, k in enumerate("abcdefgh")], [row("a", 9, 4.5, 9), row("b", 1, None, 10)]
    )
    times: dict[str, Any] = {"timestamp": F.timestamp_seconds("at")}
    frame = log.read(spark)
    base = ts.table(frame, "k", name="base", apply_as_deletes="x is null", **times)
    pairs = ts.table(frame, ["k", "n"], columns=["x"], name="pairs", **times)
    versions = ts.table(frame, "k", columns=["n"], name="versions", history="1 hour", **times)
    small = ts.global_table(frame, "k", columns=["x"], name="small", **times)
    halves = ts.table(
        frame, F.expr("cast(n as double) / 2").alias("half"), columns=["k"], name="halves", **times
    )
    outputs = [
        base.group_by((F.col("n") % 2).alias("odd")).agg(n=tf.count(), name="groups"),
        base.group_by((F.col("n") % 2).alias("odd")).top(2, "n", name="best"),
        base.group_by(F.when(F.col("n") > 4, "many").alias("size")).count(name="sizes"),
        base.materialize(name="rows"),
        base.join(small, on="k", suffixes=("", "_s"), name="joined"),
        pairs.materialize(name="kept"),
        versions,
        halves.materialize(name="by_half"),
    ]
    with in_partitions(spark, 2):
        run(*(one.to(ts.to_memory(f"state {one.name}")) for one in outputs), checkpoint=place / "checkpoint")
    return place / "checkpoint"


def said(checkpoint: Path, *options: str, code: int = ExitCode.OK) -> str:
    result = CliRunner().invoke(app, ["state", str(checkpoint), *options])
    assert result.exit_code == code, result.output
    return result.stdout if code == ExitCode.OK else result.stderr


def keyed(checkpoint: Path, table: str, key: dict[str, Any], *options: str) -> list[dict[str, Any]]:
    text = said(checkpoint, table, "--key", json.dumps(key), "--json", *options)
    return [json.loads(line) for line in text.splitlines()]


def test_without_a_table_the_tables_are_listed_with_their_sizes(checkpoint: Path) -> None:
    about, *tables = map(json.loads, said(checkpoint, "--json").splitlines())
    assert (about["micro_batch"], about["oldest_micro_batch"]) == (1, 0)
    assert (about["state_format"], about["tables_format"]) == (2, 3)
    assert about["bytes_on_disk"] > 10_000
    assert "joined" in about["without_rows"]
    by_name = {one["table"]: one for one in tables}
    assert by_name["kept"]["key"] == ["k", "n"]
    assert by_name["versions"]["versioned"]
    # Replaced rows may still be stored; every shard has the 8 rows of the global table, which count once.
    assert 9 <= by_name["kept"]["rows"] <= 10
    assert 8 <= by_name["small"]["rows"] <= 10
    assert all(one["bytes"] > 0 for one in tables)
    (_, *before) = map(json.loads, said(checkpoint, "--json", "--batch-id", "0").splitlines())
    assert {one["table"]: one["rows"] for one in before}["kept"] == 8

    text = said(checkpoint)
    assert text.startswith("After micro-batch 1; the state goes back to micro-batch 0.\n")
    assert "kept" in text
    assert "k, n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_number_of_a_key_is_read_with_all_its_digits(spark: SparkSession) -> None:
    text = '{"k": 1234567890123456.7891}'
    (value,) = GivenKey({"k": 1.0}, text).literals(spark, [T.StructField("k", T.DecimalType(20, 4))])
    assert spark.range(1).select(value).collect()[0][0] == Decimal("1234567890123456.7891")


@pytest.mark.parametrize(
    "text", ["2024-01-02T09:00:00Z", "2024-01-02T09:00:00.000000Z", "2024-01-02 09:00:00"]
)
def test_a_time_of_a_key_is_read_as_the_hint_says_and_as_rows_show_it(spark: SparkSession, text: str) -> None:
    key = {"k": text}
    for given in (GivenKey(key, json.dumps(key)), GivenKey(key)):
        (value,) = given.literals(spark, [T.StructField("k", T.TimestampType())])
        assert spark.range(1).select(value.cast("string")).collect()[0][0] == "2024-01-02 09:00:00"


@pytest.mark.parametrize(
    ("kind", "fits", "others"),
    [
        (T.IntegerType(), [7, "7", None, 7.0], [7.5, "7.5", 1 << 40, b"7", object(), {"a": 1}]),
        (T.DecimalType(20, 4), [7, Decimal("1234567890123456.7891"), "0.5", 0.25], [Decimal("0.00001"), "x"]),
        (T.FloatType(), [0.1, 7, float("nan")], ["x"]),
        (T.StringType(), ["", "a"], [b"a", date(2024, 1, 2), [1]]),
        (T.DateType(), [date(2024, 1, 2), "2024-01-02"], [datetime(2024, 1, 2, 3), 7, "yesterday evening"]),
        (T.TimestampType(), [datetime(2024, 1, 2, 3), datetime(2024, 1, 2, 3, tzinfo=UTC)], ["9"]),
        (T.BinaryType(), [b"a"], [7.5]),
    ],
)
def test_a_value_of_a_key_is_refused_if_it_is_another_one_in_the_column_s_type(
    spark: SparkSession, kind: T.DataType, fits: list[Any], others: list[Any]
) -> None:
    field = T.StructField("k", kind)
    for value in fits:
        (found,) = GivenKey({"k": value}).literals(spark, [field])
        assert (spark.range(1).select(found).collect()[0][0] is None) == (value is None)
    for value in others:
        with pytest.raises(ArgumentError, match="The value of the key column k is not of its type"):
            GivenKey({"k": value}).literals(spark, [field])


@pytest.fixture
def by_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the rows of a key are looked for in all shards."""

    def everywhere(*_: object) -> None:
        pytest.fail("all partitions were opened")

    monkeypatch.setattr(state_reader, "stored_frame", everywhere)


@pytest.mark.usefixtures("by_shard")
def test_one_key_s_row(checkpoint: Path) -> None:
    (a,) = keyed(checkpoint, "rows", {"k": "a"})
    assert (a["k"], a["n"], a["x"], a["_timestamp"]) == ("a", 9, 4.5, "2023-11-14T22:13:29.000000Z")
    (before,) = keyed(checkpoint, "rows", {"k": "a"}, "--batch-id", "0")
    assert before["n"] == 0
    assert keyed(checkpoint, "rows", {"k": "b"}) == []  # deleted
    assert keyed(checkpoint, "rows", {"k": "c"}) != []
    assert "rows: 1 row\n" in said(checkpoint, "rows", "--key", '{"k": "a"}')
    assert [one["x"] for one in keyed(checkpoint, "kept", {"n": 3, "k": "d"})] == [1.5]
    assert [one["x"] for one in keyed(checkpoint, "small", {"k": "h"})] == [3.5]
    assert [one["k"] for one in keyed(checkpoint, "by_half", {"half": 4.5})] == ["a"]
    assert [one["n"] for one in keyed(checkpoint, "groups", {"odd": 1})] == [4]
    versions = keyed(checkpoint, "versions", {"k": "a"})
    assert sorted(one["n"] for one in versions) == [0, 9]
    as_of = ("--as-of", "2023-11-14 22:13:25")
    assert [one["n"] for one in keyed(checkpoint, "versions", {"k": "a"}, *as_of)] == [0]


def test_a_key_without_a_row_is_no_error(checkpoint: Path) -> None:
    """Its shard may have nothing at all: then the other partitions are looked at."""
    for key in "xyz":
        assert keyed(checkpoint, "rows", {"k": key}) == []


@pytest.mark.usefixtures("by_shard")
def test_null_is_the_key_of_a_group_and_of_no_other_table(checkpoint: Path) -> None:
    (group,) = keyed(checkpoint, "sizes", {"size": None})
    assert (group["size"], group["count"]) == (None, 3)
    assert [one["count"] for one in keyed(checkpoint, "sizes", {"size": "many"})] == [4]
    assert keyed(checkpoint, "rows", {"k": None}) == []


def test_the_state_is_opened_once_for_a_key(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int | None] = []

    def of(spark: SparkSession, place: str, wanted: int | None) -> StoredState:
        opened.append(wanted)
        return found(spark, place, wanted)

    found = StoredState.of
    monkeypatch.setattr(StoredState, "of", of)
    assert [one["n"] for one in keyed(checkpoint, "rows", {"k": "a"}, "--batch-id", "0")] == [0]
    assert opened == [0]


def test_a_key_is_found_in_a_table_that_is_kept_by_another(checkpoint: Path) -> None:
    best = [json.loads(line) for line in said(checkpoint, "best", "--json").splitlines()]
    assert len(best) == 4
    for one in best:
        key = {name: one[name] for name in ("odd", next(name for name in one if "rank" in name))}
        assert keyed(checkpoint, "best", key) == [one]


def test_programs_get_all_rows_unless_they_set_a_limit(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add([row(f"k{n:02}", n, 1.0, n) for n in range(25)])
    table = ts.table(log.read(spark), "k", timestamp=F.timestamp_seconds("at"), name="many")
    run(table.materialize(name="kept").to(ts.to_memory("many rows")), checkpoint=tmp_path / "checkpoint")
    place = tmp_path / "checkpoint"
    assert len(said(place, "kept", "--json").splitlines()) == 25
    assert said(place, "kept").startswith("kept: the first 20 rows\n")
    assert "omitted" not in said(place, "kept", "--json", "--limit", "25")
    some = CliRunner().invoke(app, ["state", str(place), "kept", "--json", "--limit", "24"])
    assert len(some.stdout.splitlines()) == 24
    assert json.loads(some.stderr) == {"event": "omitted", "table": "kept", "limit": 24}


@pytest.mark.parametrize(
    ("table", "key", "why"),
    [
        ("rows", '{"n": 1}', "The key of 'rows' has the columns k, not n."),
        ("rows", "{}", "The key of 'rows' has the columns k, not none."),
        ("kept", '{"k": "a"}', "The key of 'kept' has the columns k, n, not k."),
        ("kept", '{"k": "a", "n": "one"}', "The value of the key column n is not of its type, int."),
        ("groups", '{"odd": "one"}', "The value of the key column odd is not of its type, int."),
        ("raws", '{"k": "a"}', "The query has no table 'raws'."),
        ("joined", '{"k": "a"}', "The state does not have the rows of 'joined'"),
    ],
)
def test_a_wrong_key_is_refused(checkpoint: Path, table: str, key: str, why: str) -> None:
    error = said(checkpoint, table, "--key", key, code=ExitCode.COULD_NOT_RUN)
    assert error.startswith(f"Error TABLESTREAM_ARGUMENT: {why}")


@pytest.mark.usefixtures("spark")
def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    error = said(tmp_path, code=ExitCode.COULD_NOT_RUN)
    assert error.startswith("Error TABLESTREAM_STATE: file:")
    assert "is not the checkpoint of a query." in error


def test_a_checkpoint_of_another_version_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        stored_state, "decode", lambda text: decode(text.replace('"version":3', '"version":99'))
    )
    for options in ((), ("rows",), ("rows", "--key", '{"k": "a"}')):
        error = said(checkpoint, *options, code=ExitCode.COULD_NOT_RUN)
        assert error.startswith("Error TABLESTREAM_STATE: The state describes its tables in version 99;")
