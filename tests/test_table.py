"""What can be known when a plan is built is refused then: with a code, the table, the line, and what to do."""

from __future__ import annotations

import copy
import re
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkValueError
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import (
    ArgumentError,
    ColumnCollisionError,
    KeyMismatchError,
    MixedPlanError,
    NondeterministicError,
    PlanError,
    ReservedNameError,
    SessionSettingError,
    TablestreamError,
    UnsupportedTypeError,
)
from tablestream.spark import analysis
from tests.conftest import in_partitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from tablestream.functions import AggregateFunction

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
COLUMNS = "id bigint, plane string, seats int, at timestamp, tags map<string, string>, word string collate UTF8_LCASE"


def refused(
    call: Callable[[], object], kind: type[TablestreamError], *words: str, operator: str = ""
) -> TablestreamError:
    """Assert that a call is refused in the words given, naming the operator and the line of the call."""
    with pytest.raises(TablestreamError) as caught:
        call()
    error = caught.value
    assert type(error) is kind
    assert str(error).startswith(f"[{kind.code}] "), str(error)
    assert all(word in str(error) for word in words), str(error)
    assert error.operator == operator
    assert error.where == f"{Path(call.__code__.co_filename).name}:{call.__code__.co_firstlineno}"
    assert re.search(r"\S\.$", error.hint), str(error)
    return error


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "log").mkdir()
    return ts.from_files(spark, tmp_path / "log", "json", COLUMNS)


@pytest.fixture
def flights(log: DataFrame) -> ts.Table:
    return ts.table(log, key="id", timestamp="at", name="flights")


@pytest.fixture
def planes(log: DataFrame) -> ts.Table:
    return ts.table(log, key="plane", columns=["seats"], timestamp="at", name="planes")


# Sources


def test_a_frame_that_does_not_stream(spark: SparkSession) -> None:
    error = refused(lambda: ts.table(spark.range(3), key="id"), ArgumentError, "streaming", operator="table")
    assert isinstance(error, PySparkValueError)


@pytest.mark.parametrize("key", [[], None])
def test_no_key(log: DataFrame, key: Any) -> None:
    refused(lambda: ts.table(log, key=key, name="a"), ArgumentError, "needs a key", operator="a")


def test_a_key_of_which_one_column_is_none(log: DataFrame) -> None:
    given: Any = [log.columns[0], None]
    refused(lambda: ts.table(log, key=given), ArgumentError, "None is not a column")


def test_an_empty_name(log: DataFrame) -> None:
    refused(lambda: ts.table(log, key="id", name=" "), ArgumentError, "name cannot be empty")


@pytest.mark.parametrize(
    "given",
    [
        {"key": "nothing"},
        {"key": "id", "timestamp": "nothing"},
        {"key": "id", "apply_as_deletes": "nothing = 1"},
        {"key": "id", "columns": ["nothing"]},
        {"key": "id", "order_by": "nothing"},
    ],
    ids=lambda given: list(given)[-1],
)
def test_a_column_that_is_not_there(log: DataFrame, given: dict[str, Any]) -> None:
    error = refused(
        lambda: ts.table(log, **given, name="a"),
        PlanError,
        "`nothing`",
        "Columns are: id, plane",
        operator="a",
    )
    assert isinstance(error, AnalysisException)
    assert "_corrupt_record" not in error.hint


@pytest.mark.parametrize(
    ("given", "kind"), [({"columns": "1 +"}, PlanError), ({"except_columns": "x"}, ArgumentError)]
)
def test_the_columns_that_are_listed_are_those_of_the_user(
    log: DataFrame, given: dict[str, Any], kind: type[TablestreamError]
) -> None:
    with pytest.raises(kind) as caught:
        ts.table(log, "id", **given)
    assert caught.value.hint == "Columns are: id, plane, seats, at, tags, word."


def test_excepting_a_column_that_is_not_there(log: DataFrame) -> None:
    refused(
        lambda: ts.table(log, key="id", except_columns=["nothing"]),
        ArgumentError,
        "nothing",
        operator="table",
    )


def test_columns_and_except_columns(log: DataFrame) -> None:
    refused(
        lambda: ts.table(log, key="id", columns=["at"], except_columns=["at"]),
        ArgumentError,
        operator="table",
    )


def test_a_single_column_needs_no_list(log: DataFrame) -> None:
    assert ts.table(log, "id", columns="seats").columns == ["id", "seats"]
    assert ts.table(log, "id", columns=F.col("seats")).columns == ["id", "seats"]
    assert "seats" not in ts.table(log, "id", except_columns="seats").columns


def test_arguments_of_another_kind(log: DataFrame, flights: ts.Table) -> None:
    refused(lambda: ts.table("logs", "id"), ArgumentError, "not a str", operator="table")  # type: ignore[arg-type]
    refused(lambda: ts.table(log, 5), ArgumentError, "5 is not a column")  # type: ignore[arg-type]
    refused(lambda: ts.table(log, "id", name=5), ArgumentError, "name=5 is not a name")  # type: ignore[arg-type]
    refused(lambda: ts.table(log, "id", columns=[5]), ArgumentError, "5 is not a column")  # type: ignore[list-item]
    excepted: Any = F.col("at")
    refused(
        lambda: ts.table(log, "id", except_columns=excepted), ArgumentError, "is not a name", operator="table"
    )
    refused(lambda: flights.filter(True), ArgumentError, "True is not a column", "F.lit")  # type: ignore[arg-type]
    refused(lambda: flights.with_columns(a=5), ArgumentError, "5 is not a column", "F.lit")  # type: ignore[arg-type]
    refused(lambda: flights.to("out/x"), ArgumentError, "'out/x'", "files(path)")  # type: ignore[arg-type]
    refused(lambda: flights.rejected().to("out/x"), ArgumentError, "'out/x'")  # type: ignore[arg-type]
    refused(lambda: flights.changes(shards="4"), ArgumentError, "shards='4'")  # type: ignore[arg-type]


def test_a_key_that_cannot_be_named(log: DataFrame) -> None:
    double = F.col("id") + F.col("id")
    refused(lambda: ts.table(log, double), ArgumentError, "(id + id)", "alias", operator="table")
    refused(lambda: ts.table(log, ["at", F.upper("plane")]), ArgumentError, "upper(plane)", operator="table")
    assert ts.table(log, double.alias("twice")).key_columns == ["twice"]
    assert ts.table(log, [F.expr("id + 1 AS one"), F.col("ID")]).key_columns == ["one", "ID"]


@pytest.mark.parametrize("name", ["_order", "_Timestamp", "__x"])
def test_a_key_of_a_name_that_is_the_librarys(log: DataFrame, name: str) -> None:
    named = log.withColumn(name, F.lit(1))
    refused(lambda: ts.table(named, name), ReservedNameError, name, operator="table")
    refused(lambda: ts.table(log, F.col("id").alias(name)), ReservedNameError, name, operator="table")


def test_a_key_column_twice(log: DataFrame) -> None:
    refused(lambda: ts.table(log, ["id", "id"]), ColumnCollisionError, "'id'", operator="table")
    refused(lambda: ts.table(log, ["id", "ID"]), ColumnCollisionError, "'id'", operator="table")


def test_a_timestamp_of_another_type(log: DataFrame) -> None:
    refused(lambda: ts.table(log, "id", timestamp="seats"), ArgumentError, "type int", operator="table")


@pytest.mark.parametrize("name", ["_change_type", "_timestamp", "_order", "_is_latest", "_ORDER", "__ts"])
def test_a_name_that_is_the_librarys(log: DataFrame, name: str) -> None:
    named = log.withColumn(name, F.lit(1))
    error = refused(lambda: ts.table(named, key="id"), ReservedNameError, name, operator="table")
    assert "except_columns" in error.hint
    assert name not in ts.table(named, key="id", except_columns=[name]).columns


def test_a_name_in_whose_place_spark_would_put_a_setting(log: DataFrame, flights: ts.Table) -> None:
    """Spark replaces ``${env:HOME}`` in SQL, also within quotes, and would show the value."""
    name = "${env:HOME}"
    named = log.withColumn(name, F.lit(1))
    refused(lambda: ts.table(named, key="id"), ReservedNameError, name, "Spark replaces", operator="table")
    refused(
        lambda: ts.table(named, key="id", except_columns=[name]), ReservedNameError, name, operator="table"
    )
    inner = log.select("id", F.struct(F.lit(1).alias(name)).alias("part"))
    refused(lambda: ts.table(inner, key="id"), ReservedNameError, "part", "Spark replaces", operator="table")
    refused(
        lambda: flights.select(F.lit(1).alias(name)),
        ReservedNameError,
        name,
        "Spark replaces",
        operator="flights",
    )
    refused(lambda: ts.table(log, "id", name=name), ArgumentError, name, "Spark replaces")


def test_two_columns_of_one_name(log: DataFrame) -> None:
    refused(
        lambda: ts.table(log, "id", columns=["seats", F.col("at").alias("SEATS")]),
        ColumnCollisionError,
        "'seats'",
        operator="table",
    )


@pytest.mark.parametrize("second", ["seats", "SEATS"])
def test_a_frame_with_two_columns_of_one_name(log: DataFrame, second: str) -> None:
    twice = log.select("*", F.lit(1).alias(second))
    refused(
        lambda: ts.table(twice, key="id", columns=["plane"], name="a"),
        ColumnCollisionError,
        "'seats'",
        operator="a",
    )


def test_names_are_the_same_as_the_session_takes_them_for(log: DataFrame) -> None:
    table = ts.table(log, key="ID", except_columns=["TAGS", "Word"], timestamp="at")
    assert table.columns == ["ID", "plane", "seats", "at"]
    assert table.with_columns(SEATS="seats + 1").columns == ["ID", "plane", "SEATS", "at"]
    assert table.select("id", "Seats").columns == ["ID", "Seats"]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("parse_json(plane)", "variant"),
        ("interval '1' year", "interval year"),
        ("make_interval(1)", "interval"),
        ("null", "void"),
        ("named_struct('inner', array(parse_json(plane)))", "variant"),
    ],
    ids=["variant", "year-month interval", "calendar interval", "void", "inside"],
)
def test_a_type_that_cannot_be_carried(log: DataFrame, flights: ts.Table, column: str, kind: str) -> None:
    bad = F.expr(column).alias("bad")
    words = ("'bad", kind, "except_columns")
    refused(lambda: ts.table(log.select("id", bad), key="id"), UnsupportedTypeError, *words, operator="table")
    refused(
        lambda: ts.table(log.select("at", bad), key="bad"), UnsupportedTypeError, *words[:2], operator="table"
    )
    refused(lambda: flights.select(bad), UnsupportedTypeError, *words[:2], operator="flights")


def test_a_type_inside_another_is_named_by_its_path(log: DataFrame) -> None:
    bad = log.select("id", F.expr("named_struct('x', array(parse_json(plane)))").alias("bad"))
    refused(lambda: ts.table(bad, key="id"), UnsupportedTypeError, "'bad.x.element'", operator="table")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("tags", "'tags'"),
        ("word", "'word'"),
        ("struct(id, tags) AS both", "'both.tags'"),
        ("array(word) AS words", "'words.element'"),
    ],
    ids=["map", "collated", "map in struct", "collated in array"],
)
def test_a_type_that_cannot_be_a_key(log: DataFrame, key: str, shown: str) -> None:
    refused(lambda: ts.table(log, key=F.expr(key)), UnsupportedTypeError, shown, "key", operator="table")


@pytest.mark.parametrize("argument", ["order_by", "sequence_by"])
@pytest.mark.parametrize(
    ("order", "shown"),
    [
        ("tags", "'tags' of type map<string,string>"),
        ("struct(id, tags) AS o", "'o.tags' of type map<string,string>"),
        ("array(tags) AS o", "'o.element' of type map<string,string>"),
        ("word", "'word' of type string collate UTF8_LCASE"),
    ],
)
def test_what_has_no_order_cannot_order_records(
    log: DataFrame, argument: str, order: str, shown: str
) -> None:
    given: dict[str, Any] = {argument: F.expr(order)}
    refused(
        lambda: ts.table(log, "id", **given), UnsupportedTypeError, shown, f"{argument}=", operator="table"
    )


@pytest.mark.parametrize(
    ("aggregate", "takes"),
    [
        (ts.functions.median("word"), "It takes numbers."),
        (ts.functions.stddev("array(seats)"), "It takes numbers."),
        (ts.functions.bool_and("seats"), "It takes booleans."),
        (ts.functions.string_agg("seats"), "It takes strings."),
        (ts.functions.mode("array(seats)"), "It takes all types but arrays, maps and binary."),
        (
            ts.functions.max_by("seats", by="map(seats, seats)"),
            "It takes all types but arrays, maps and binary.",
        ),
    ],
)
def test_an_aggregate_says_which_types_it_takes(
    flights: ts.Table, aggregate: AggregateFunction, takes: str
) -> None:
    with pytest.raises(UnsupportedTypeError, match=takes):
        flights.group_by("plane").agg(one=aggregate)


class Own(ts.functions.Aggregator):
    state, result = "bigint", "string"

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state + value

    def finish(self, state: int) -> str:
        return str(state)


@pytest.mark.parametrize("which", ["state", "result"])
@pytest.mark.parametrize("said", ["numbr", 7, "varchar(3)"])
def test_an_aggregate_of_ones_own_says_its_types(flights: ts.Table, which: str, said: Any) -> None:
    own = type("Own", (Own,), {which: said})()
    with pytest.raises(
        ArgumentError, match=f"one = Own\\(\\): its {which} {re.escape(repr(said))} is not a type"
    ):
        flights.group_by("plane").agg(one=own.of("seats"))


def test_an_aggregate_of_ones_own_is_compared_by_its_name_version_and_types(flights: ts.Table) -> None:
    def meaning(own: Own) -> str:
        table = flights.group_by("plane").agg(one=own.of("seats"))
        return str(table._node.meaning)

    texts = {
        meaning(type("Own", (Own,), facts)())
        for facts in ({}, {"version": "2"}, {"state": "int"}, {"result": "binary"})
    }
    assert len(texts) == 4


@pytest.mark.parametrize("aggregate", ["min", "max", "count_distinct", "collect_set", "mode"])
@pytest.mark.parametrize("given", ["word", "array(word)", "named_struct('w', word)"])
def test_aggregates_that_compare_values_refuse_collations(
    flights: ts.Table, aggregate: str, given: str
) -> None:
    function = getattr(ts.functions, aggregate)(given)
    refused(
        lambda: flights.group_by("plane").agg(one=function),
        UnsupportedTypeError,
        "'one",
        "string collate UTF8_LCASE",
        f"{aggregate}()",
        "cast('string')",
        operator="flights_agg",
    )


def test_top_refuses_an_order_by_a_collation(flights: ts.Table) -> None:
    grouped = flights.group_by("plane")
    refused(
        lambda: grouped.top(1, ["seats", "word"], name="t"),
        UnsupportedTypeError,
        "'word'",
        "the order of rows",
        operator="t",
    )


def test_foreign_keys_with_a_collation_are_refused(flights: ts.Table, planes: ts.Table) -> None:
    stream = flights.to_stream(name="s")
    calls: dict[str, Callable[[], object]] = {
        "flights_planes_join": lambda: flights.join(planes, on="word"),
        "flights_join_many": lambda: flights.join_many(ts.lookup(planes, on="word")),
        "planes_flights_one_to_many": lambda: planes.one_to_many(flights, on="word"),
        "s_planes_join": lambda: stream.join(planes, on="word"),
    }
    for operator, call in calls.items():
        refused(call, UnsupportedTypeError, "'word'", "foreign key", "cast('string')", operator=operator)


def test_groups_and_new_keys_with_a_collation_are_refused(flights: ts.Table) -> None:
    refused(lambda: flights.group_by("word"), UnsupportedTypeError, "'word'", "a key", operator="flights")
    stream = flights.to_stream(name="s")
    refused(lambda: stream.select_key("word"), UnsupportedTypeError, "'word'", "a key", operator="s")


def test_collations_that_nobody_compares_are_carried(flights: ts.Table, planes: ts.Table) -> None:
    grouped, text = flights.group_by("plane"), F.lower(F.col("word").cast("string"))
    carried = {
        name: getattr(ts.functions, name)("word") for name in ("first", "last", "collect_list", "count")
    }
    assert grouped.agg(**carried, least=ts.functions.min(text)).columns == ["plane", *carried, "least"]
    assert grouped.top(1, text).columns[:2] == ["plane", "rank"]
    assert "word" in flights.filter("word = 'A'").join(planes, on="plane", suffixes=("", "_2")).columns


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("named_struct('a', id, 'a', seats)", "'s' has two fields called 'a'"),
        ("array(named_struct('a', id, 'a', seats))", "'s.element' has two fields called 'a'"),
        ("map('k', named_struct('a', id, 'a', seats))", "'s.value' has two fields called 'a'"),
    ],
)
def test_a_struct_with_two_fields_of_one_name(
    log: DataFrame, flights: ts.Table, made: str, shown: str
) -> None:
    column = F.expr(made).alias("s")
    refused(lambda: ts.table(log.select("id", column), "id"), UnsupportedTypeError, shown, operator="table")
    refused(lambda: flights.select(column), UnsupportedTypeError, shown, "alias", operator="flights")
    other = F.expr("named_struct('a', id, 'A', seats)").alias("s")
    assert flights.select(other).columns == ["id", "s"]


def test_a_source_without_positions_warns(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load()
    with pytest.warns(UserWarning, match="without positions") as caught:
        ts.table(frame, key="value", timestamp="timestamp", name="rate")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.table(frame, key="value", timestamp="timestamp", order_by="value", name="rate")


# Expressions


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.filter("nothing > 1"),
        lambda table: table.filter_not(F.col("nothing")),
        lambda table: table.select("nothing"),
        lambda table: table.select("seats", delete_when="nothing"),
        lambda table: table.with_columns(more=F.col("nothing")),
        lambda table: table.with_columns(more="nothing + 1"),
    ],
    ids=["filter", "filter_not", "select", "delete_when", "with_columns", "with SQL"],
)
def test_an_expression_of_a_column_that_is_not_there(
    flights: ts.Table, call: Callable[[ts.Table], ts.Table]
) -> None:
    with pytest.raises(PlanError, match="`nothing`") as caught:
        call(flights)
    assert caught.value.operator == "flights"
    assert caught.value.where.startswith("test_table.py:")
    assert caught.value.hint == "Columns are: id, plane, seats, at, tags, word."


def test_a_row_function_that_asks_for_a_column_that_is_not_there(flights: ts.Table, planes: ts.Table) -> None:
    refused(lambda: flights.join(planes, on=lambda f: f.tail), ArgumentError, "'tail'", "plane")
    refused(lambda: flights.join(planes, on="plane", select=lambda _, p: [p.at]), ArgumentError, "'at'")


def test_keys_with_different_names_are_warned_of(log: DataFrame) -> None:
    """A forgotten `on` would give a join without matches, and nothing would say so."""
    one = ts.table(log, key="id", columns="word", name="one")
    other = ts.table(log.withColumnRenamed("id", "number"), key="number", columns="word", name="other")
    for how in ("inner", "outer"):
        with pytest.warns(
            UserWarning, match=r"key of one table \(id\).*\(number\).*name it with on=.*on=tablestream\.KEY"
        ) as warned:
            one.join(other, how=how, select=lambda left, _: left.word)
        assert Path(warned[0].filename) == Path(__file__)


def plan_of(output: Any) -> str:
    """The plan as text, without the lines that built it."""
    return re.sub(r"test_table\.py:\d+", "", ts.plan_text(output.to(ts.to_memory("plan"))))


def test_a_forgotten_on_is_asked_for_where_another_column_could_point_at_the_other_table(
    log: DataFrame,
) -> None:
    """Both keys are called `id`, and `seats` might be the other's: only the user knows which of them is meant."""
    one = ts.table(log, key="id", columns=["seats", "word"], name="one")
    other = ts.table(log, key="ID", columns="plane", name="other")
    with pytest.warns(
        UserWarning, match=r"\(id\) with that of the other\. If another column.*such as seats, name it"
    ):
        forgotten = one.join(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = one.join(other, on=ts.KEY)
        one.join(other, on="seats")
        one.join(one.select("seats", "word").filter("seats > 1"), select=lambda left, _: left.word)
        one.select("word").join(other)
        other.join(one)
        one.join(other.with_columns(seat="1"), on=ts.KEY, how="outer")
    assert plan_of(said) == plan_of(forgotten)


def test_the_key_can_be_said_wherever_on_is_taken(log: DataFrame, flights: ts.Table) -> None:
    one = ts.table(log, key="id", columns="seats", name="one")
    everywhere = ts.global_table(log, "id", columns="word", name="everywhere")
    records = ts.stream(log, "id", columns="seats", name="records")
    pairs = (
        (one.join(everywhere, on=ts.KEY), one.join(everywhere, on="id")),
        (records.join(flights, on=ts.KEY, suffixes=("", "_2")), records.join(flights, suffixes=("", "_2"))),
        (records.join(everywhere, on=ts.KEY), records.join(everywhere, on="id")),
        (one.join_many(ts.lookup(everywhere, on=ts.KEY)), one.join_many(ts.lookup(everywhere, on="id"))),
    )
    for said, named in pairs:
        assert plan_of(said) == plan_of(named)
    assert repr(ts.KEY) == "tablestream.KEY"
    refused(
        lambda: one.join(flights, on=ts.KEY, spread=8),
        ArgumentError,
        "in a join on the key",
        operator="one_flights_join",
    )


def test_a_joiner_that_uses_columns_without_a_row(flights: ts.Table, planes: ts.Table) -> None:
    refused(
        lambda: flights.join(planes, on="plane", select=lambda f, _: [f.at, F.col("seats")], name="j"),
        PlanError,
        "`seats`",
        "left.amount",
        operator="j",
    )


@pytest.mark.parametrize(
    "column",
    ["sum(seats)", "row_number() over (order by seats)", "explode(array(seats))"],
    ids=["aggregate", "window", "generator"],
)
def test_an_expression_that_is_not_one_rows(flights: ts.Table, column: str) -> None:
    refused(
        lambda: flights.select(F.expr(column).alias("x")), PlanError, "'x'", "one row", operator="flights"
    )


def test_a_star(flights: ts.Table) -> None:
    refused(lambda: flights.select(F.col("*")), ArgumentError, "several columns", operator="flights")


@pytest.mark.parametrize(
    "expression",
    [
        lambda: F.xxhash64("*").alias("h"),
        lambda: F.to_json(F.struct("*")),
        lambda: F.expr("struct(*) AS s"),
        lambda: F.md5(F.concat_ws("|", "*")).alias("h"),
        lambda: F.udf(len, "int")(F.struct("*")),
        lambda: F.udf(len, "int")(F.struct(*[F.lit(1)] * 30, "*")),
    ],
)
def test_a_star_inside_an_expression(log: DataFrame, expression: Callable[[], Column]) -> None:
    """It is evaluated where there are more columns than those of the table."""
    given, log = expression(), log.drop("tags")
    flights = ts.table(log, "id", timestamp="at", name="flights")
    for call in (
        lambda: flights.select(given),
        lambda: flights.with_columns(x=given),
        lambda: flights.group_by(given),
        lambda: flights.filter(given.cast("string") > ""),
        lambda: ts.table(log, "id", timestamp="at", columns=[given], name="flights"),
    ):
        refused(call, PlanError, "contains *", "Name them. Columns are: ", operator="flights")
    for of_another in (
        lambda: flights.join(flights, on=given, name="j"),
        lambda: flights.join(flights, on="id", select=lambda *_: [given], name="j"),
        lambda: flights.group_by("id").agg(x=ts.functions.max(given), name="j"),
        lambda: ts.stream(log, key="id", timestamp="at").flat_map(F.array(given), name="j"),
    ):
        refused(of_another, PlanError, "contains *", "Name them.", operator="j")


@pytest.mark.parametrize(
    "text",
    ["struct(*)", "xxhash64(unresolvedstar())", "f(struct(unresolvedstar(t.*)))", "unresolvedregex(`.+`)",
     "f(columnnodeexpression(unresolvedfunction(struct,arrayseq(unresolvedstar(none"],
)  # fmt: skip
def test_a_star_is_suspected_whatever_shows_it(text: str) -> None:
    """In SQL, under Spark Connect, and inside a Python function."""
    assert analysis._may_take_all(text)
    assert not analysis._may_take_all("coalesce(amount, 0)")


def test_an_aggregate_of_a_column_called_window_is_no_time_window(flights: ts.Table) -> None:
    renamed = flights.select(F.col("seats").alias("window"), name="renamed")
    refused(
        lambda: renamed.select(F.sum("window").alias("x")),
        PlanError,
        "not an expression of one row",
        operator="renamed",
    )


def test_what_only_has_a_star_passes(flights: ts.Table) -> None:
    texts = F.concat("plane", F.lit("*")).alias("y"), F.lit("struct(*)").alias("z")
    flights.select((F.col("seats") * 2).alias("x"), *texts)


@pytest.mark.parametrize(
    "expression",
    [
        lambda: F.window("at", "10 minutes"),
        lambda: F.window("at", "10 minutes", "5 minutes")["start"].alias("start"),
        lambda: F.session_window("at", "5 minutes"),
        lambda: F.expr("WINDOW(at, '1 day').end AS end"),
    ],
)
def test_a_time_window(log: DataFrame, flights: ts.Table, expression: Callable[[], Column]) -> None:
    """Spark makes an operator of it, which drops and multiplies rows of all tables."""
    given = expression()
    for call in (
        lambda: flights.group_by(given),
        lambda: flights.select(given),
        lambda: flights.filter(given.isNotNull()),
        lambda: ts.table(log, "id", timestamp=given, name="flights"),
        lambda: ts.table(log, "id", timestamp="at", apply_as_deletes=given.isNull(), name="flights"),
    ):
        refused(call, PlanError, "time window", "date_trunc", operator="flights")


def test_a_duration_of_centuries(log: DataFrame) -> None:
    for history in (timedelta(days=200_000), "200000 days"):
        refused(
            lambda: ts.table(log, "id", timestamp="at", history=history, name="old"),  # noqa: B023
            ArgumentError, "is not a duration", "292 years", operator="old",
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["varchar(3)", "array<char(2)>", "interval day", "struct<i: interval hour>"])
def test_a_functions_result_has_no_type_that_shortens_it(flights: ts.Table, kind: str) -> None:
    grouped, kept = flights.group_by("plane"), lambda *given: given[-1]
    refused(
        lambda: grouped.aggregate(lambda: None, kept, kept, f"x {kind}"),
        ArgumentError, "shortens", "interval day to second",
    )  # fmt: skip


def test_what_is_only_called_a_window_passes(flights: ts.Table) -> None:
    def window(number: int) -> int:
        return number

    renamed = flights.select(F.col("seats").alias("window"), F.lit("window(at, '1 day')").alias("text"))
    renamed.select(F.udf(window, "int")("window").alias("x"), "text")


def test_select_gives_a_name_twice_or_one_of_the_librarys(flights: ts.Table) -> None:
    twice = ("seats", F.col("at").alias("Seats"))
    refused(lambda: flights.select(*twice), ColumnCollisionError, "'Seats'", operator="flights")
    refused(
        lambda: flights.select(F.col("at").alias("_order")), ReservedNameError, "'_order'", operator="flights"
    )


def test_a_key_column_is_never_another_one(flights: ts.Table, planes: ts.Table) -> None:
    assert flights.select("id", F.col("id").alias("ID"), "seats").columns == ["id", "seats"]
    other = F.col("seats").alias("id")
    refused(lambda: flights.select(other), ColumnCollisionError, "'id'", "key", operator="flights")
    refused(lambda: flights.with_columns(ID=other), ArgumentError, "ID", "key", operator="flights")
    refused(
        lambda: flights.join(planes, on="plane", select=lambda _, p: [p.seats.alias("id")], name="j"),
        ColumnCollisionError,
        "'id'",
        operator="j",
    )


def test_a_struct_is_taken_apart_only_where_it_is_the_one_column(flights: ts.Table) -> None:
    pair = F.when(F.col("seats") > 0, F.struct("seats", "plane"))
    assert flights.select(pair).columns == ["id", "seats", "plane"]
    assert flights.select(F.struct("seats", "plane")).columns == ["id", "seats", "plane"]
    assert flights.select(pair.alias("pair")).columns == ["id", "pair"]
    kept = flights.select(pair.alias("pair"), "at")
    assert kept.columns == ["id", "pair", "at"]
    assert kept.select("pair").columns == kept.select(F.col("pair")).columns == ["id", "pair"]
    assert kept.select("pair").with_columns(pair="pair").columns == ["id", "pair"]


@pytest.mark.parametrize(
    "argument", ["key", "timestamp", "apply_as_deletes", "columns", "order_by", "sequence_by"]
)
def test_a_column_that_is_not_there_is_said_with_its_argument(log: DataFrame, argument: str) -> None:
    given: dict[str, Any] = {"key": "id", argument: "nosuch > 1"}
    error = refused(
        lambda: ts.table(log, **given),
        PlanError,
        f"{argument}=: [UNRESOLVED_COLUMN",
        "`nosuch`",
        operator="table",
    )
    assert "SQLSTATE" not in str(error)
    assert "line 1" not in str(error)


@pytest.mark.parametrize("given", ["id, seats", "id,plane , nosuch"])
def test_several_columns_in_one_string_are_told_to_be_a_list(
    log: DataFrame, flights: ts.Table, given: str
) -> None:
    listed = str([one.strip() for one in given.split(",")])
    for call in (
        lambda: ts.table(log, "id", columns=given),
        lambda: ts.table(log, given),
        lambda: flights.group_by(given),
        lambda: flights.select(given),
    ):
        refused(call, PlanError, f"'{given}' is several columns in one string", listed)
    commas = log.withColumnRenamed("seats", "id, seats")
    assert ts.table(commas, "id", columns="id, seats").columns == ["id", "id, seats"]


def test_an_expression_of_a_join_without_an_alias_is_called_as_over_the_joined_row(
    flights: ts.Table, planes: ts.Table
) -> None:
    strange = flights.select("plane", F.col("seats").alias("how many"), F.col("seats").alias("a.b"))
    table = strange.join(
        planes,
        on="plane",
        select=lambda f, p: [f["how many"] * 2, f["how many"] + p.seats, F.abs(f["a.b"])],
        name="j",
    )
    assert table.columns == ["id", "(how many * 2)", "(how many + seats)", "abs(a.b)"]
    refused(
        lambda: flights.join(planes, on="plane", select=lambda f, p: [f.seats + 1, p.seats + 1], name="j"),
        ColumnCollisionError, "Two columns are called '(seats + 1)'", "alias", operator="j",
    )  # fmt: skip


def test_a_joins_struct_is_taken_apart_like_a_selects(flights: ts.Table) -> None:
    """An unnamed one that is all there is; where it may be null the row is gone."""
    kept = flights.select(F.struct("seats", "plane").alias("pair"), "at", name="kept")

    def joined(select: Callable[[ts.Row, ts.Row], object]) -> tuple[list[str], str]:
        table = flights.join(kept, select=select)
        return table.columns, table._node.meaning

    columns, meaning = joined(lambda one, two: F.when(two.exists, F.struct(one.seats, two.at)))
    assert columns == ["id", "seats", "at"]
    assert "delete when" in meaning
    columns, meaning = joined(lambda one, two: [F.struct(one.seats, two.at)])
    assert columns == ["id", "seats", "at"]
    assert "delete when" not in meaning
    assert joined(lambda _, two: two.pair)[0] == ["id", "pair"]
    assert joined(lambda one, two: F.struct(one.seats, two.at).alias("both"))[0] == ["id", "both"]
    assert "delete when" in flights.select(F.when(F.col("seats") > 0, F.struct("seats")))._node.meaning
    assert "delete when" not in flights.select(F.struct("seats"))._node.meaning


# What cannot be retracted


CHANGING = {
    "rand": lambda: F.rand() > 0.5,
    "uuid": lambda: F.expr("uuid() > 'a'"),
    "nested": lambda: F.expr("size(filter(array(seats), x -> x > rand())) > 1"),
    "row numbers": lambda: F.monotonically_increasing_id() > 1,
    "python": lambda: F.udf(lambda number: number, "int").asNondeterministic()("seats") > 1,
}


@pytest.mark.parametrize("make", CHANGING.values(), ids=CHANGING)
def test_what_changes_when_looked_at_again_is_refused(
    flights: ts.Table, planes: ts.Table, make: Callable[[], Column]
) -> None:
    changing = make()
    bad = changing.alias("bad")
    refused(lambda: flights.filter(bad), NondeterministicError, operator="flights")
    refused(lambda: flights.filter_not(bad), NondeterministicError, operator="flights")
    refused(lambda: flights.select(bad), NondeterministicError, "'bad'", operator="flights")
    refused(lambda: flights.select("at", delete_when=bad), NondeterministicError, operator="flights")
    refused(lambda: flights.with_columns(bad=bad), NondeterministicError, "'bad'", operator="flights")
    text = F.when(changing, F.col("plane"))
    refused(lambda: flights.join(planes, on=text, name="j"), NondeterministicError, operator="j")


def test_a_joiner_that_changes_when_looked_at_again_is_refused(flights: ts.Table, planes: ts.Table) -> None:
    refused(
        lambda: flights.join(planes, on="plane", name="j", select=lambda f, p: [f.seats, p.seats + F.rand()]),
        NondeterministicError,
        operator="j",
    )


@pytest.mark.parametrize("place", ["key", "timestamp", "apply_as_deletes", "order_by"])
def test_what_places_a_record_must_not_change(log: DataFrame, place: str) -> None:
    column = {
        "key": F.expr("uuid()").alias("k"),
        "timestamp": F.timestamp_seconds(F.rand()),
        "apply_as_deletes": F.rand() > 0.5,
        "order_by": F.monotonically_increasing_id(),
    }[place]
    refused(lambda: ts.table(log, **{"key": "id", place: column}), NondeterministicError, operator="table")  # type: ignore[arg-type]


#: What Spark calls deterministic, and which depends on the clock, the session or a query; and how an error names it.
VOLATILE: dict[str, Callable[[], Column]] = {
    "current_timestamp()": lambda: F.col("at") < F.current_timestamp(),
    "current_date()": lambda: F.expr("at < current_date"),
    "now()": lambda: F.exists(F.array("at"), lambda one: one < F.now()),
    "localtimestamp()": lambda: F.udf(lambda text: text, "int")(F.hour(F.localtimestamp())) > 1,
    "current_time()": lambda: F.expr("time '10:00:00' < current_time"),
    "current_timezone()": lambda: F.col("plane") == F.current_timezone(),
    "current_user()": lambda: F.expr("plane = current_user"),
    "session_user()": lambda: F.col("plane") == F.session_user(),
    "current_path()": lambda: F.expr("plane = current_path()"),
    "current_catalog()": lambda: F.col("plane") == F.current_catalog(),
    "current_schema()": lambda: F.col("plane") == F.current_database(),
    "version()": lambda: F.struct(*[F.lit(1)] * 30, F.version().alias("v"))["v"] == F.col("plane"),
    "aes_encrypt()": lambda: F.expr("aes_encrypt(plane, '0000111122223333')") > F.lit(b"a"),
    "aes_encrypt() ": lambda: F.expr(
        "concat(aes_encrypt(plane, '0000111122223333'), aes_encrypt(plane, '0000111122223333', 'ECB')) > 'a'"
    ),
    "aes_encrypt()  ": lambda: F.expr(
        "aes_encrypt(plane, '0000111122223333', 'GCM', 'DEFAULT', '', 'a') > 'a'"
    ),
    "aes_encrypt()   ": lambda: F.expr("aes_encrypt(concat(plane, ')'), '0000111122223333') > 'a'"),
    "'now'": lambda: F.col("at") < "now",
    "'tomorrow'": lambda: F.expr("at < 'tomorrow nowhere'"),  # which the optimizer cannot read
    "'today'": lambda: F.datediff(F.lit("Today"), F.col("at")) > 1,
    "'yesterday'": lambda: F.expr("at < timestamp 'yesterday'"),
    "a constant text": lambda: F.expr("cast(concat('to', 'day') as date) > at"),
    "a constant text ": lambda: F.col("at") > F.reverse(F.lit("yadot")),  # a cast that Spark adds
    "a constant text  ": lambda: F.year(F.to_timestamp(F.concat(F.char(F.lit(110)), F.lit("ow")))) == 2024,
    "a constant text   ": lambda: F.expr("date_add(cast(X'746F6D6F72726F77' as string), seats) > at"),
    "a subquery": lambda: F.expr("id in (select id from range(5))"),
}


@pytest.mark.parametrize(("part", "make"), VOLATILE.items(), ids=VOLATILE)
def test_what_depends_on_more_than_the_row_is_refused(
    flights: ts.Table, part: str, make: Callable[[], Column]
) -> None:
    refused(lambda: flights.filter(make()), NondeterministicError, part.strip(), operator="flights")


def test_every_expression_of_a_plan_depends_on_its_row_alone(
    log: DataFrame, flights: ts.Table, planes: ts.Table
) -> None:
    now, sql = F.current_timestamp(), "at > current_timestamp()"
    stream = ts.stream(log, key="id", timestamp="at", name="flights")
    of_flights: list[Callable[[], object]] = [
        lambda: flights.filter_not(sql),
        lambda: flights.select(now.alias("now")),
        lambda: flights.select("at", delete_when=sql),
        lambda: flights.with_columns(now=now),
        lambda: flights.group_by(now.alias("now")),
        lambda: flights.group_by("plane", value=[now.alias("now")]),
        lambda: stream.select_key(now.alias("now")),
    ]
    for call in of_flights:
        refused(call, NondeterministicError, "current_timestamp()", operator="flights")
    of_others: list[Callable[[], object]] = [
        lambda: flights.join(planes, on=now.cast("string"), name="j"),
        lambda: flights.join(
            planes, on="plane", select=lambda one, _: [one.seats, now.alias("now")], name="j"
        ),
        lambda: planes.one_to_many(flights, on=now.cast("string"), name="j"),
        lambda: flights.group_by("plane").agg(last=ts.functions.max(now), name="j"),
        lambda: stream.flat_map(F.array(now), name="j"),
    ]
    for call in of_others:
        refused(call, NondeterministicError, "current_timestamp()", operator="j")


def test_a_source_may_have_the_recorded_time_of_its_micro_batch(log: DataFrame) -> None:
    """A replay repeats it, unlike the time that ``now()`` gives."""
    read_at = F.current_timestamp()
    ts.table(log, "id", timestamp=read_at, apply_as_deletes="at > current_date()", order_by=read_at)
    ts.table(log, "id", timestamp="at", sequence_by=F.unix_timestamp(), columns=[F.now().alias("seen")])
    refused(lambda: ts.table(log, "id", timestamp=F.now()), NondeterministicError, "now()", operator="table")
    refused(lambda: ts.table(log, "id", order_by=F.expr("'now' < _metadata.file_modification_time")),
        NondeterministicError, "'now'", operator="table",
    )  # fmt: skip


def test_what_only_looks_like_a_clock_passes(log: DataFrame) -> None:
    named = log.withColumnsRenamed({"plane": "now()", "word": "today", "at": "now"})
    table = ts.table(named, "id", timestamp="now", name="named")
    for condition in (
        F.col("`now()`") == "current_timestamp()",
        F.expr("`now()` = 'today' or `now()` like '%timestamp \\'now\\'%'"),
        (F.col("today") == "now()") | (F.col("now") > "2024-01-01"),
        F.expr("exists(array(seats), now -> now > 1)"),
        F.expr("aes_encrypt(`now()`, '0000111122223333', 'ECB') > 'a'"),
        F.expr("aes_encrypt(`now()`, '0000111122223333', 'GCM', 'DEFAULT', substr(`now()`, 12)) > 'a'"),
    ):
        table.filter(condition)

    for constant in (
        F.expr("cast(concat('2024', '-01-01') as date) > now"),
        F.expr("nullif(to_date(concat('2024-', '01-01')), cast(now as date)) > date'2024-01-02'"),
        F.expr(
            "cast(cast(now as date) as timestamp) >= timestamp'2024-01-02 12:00:00' and upper('a') > `today`"
        ),
        F.expr("cast(`today` as timestamp) > now and concat('to', `today`) > 'a'"),
    ):
        table.filter(constant)
    assert log.sparkSession.conf.get("spark.sql.optimizer.excludedRules", None) is None
    beside_a_column = F.expr("`today` > cast('today' as date)")
    refused(lambda: table.filter(beside_a_column), NondeterministicError, "a constant text", operator="named")

    def now(number: int) -> int:
        return number

    table.filter(F.udf(now, "int")("seats") > 1)
    ts.table(named, "id", timestamp="now", order_by="now()", apply_as_deletes="`now()` = 'now()'")


def test_what_spark_holds_for_fixed_passes(log: DataFrame, flights: ts.Table) -> None:
    """A value that is read once and written down, and a Python function."""
    ts.table(log, key="id", columns=[F.rand().alias("r")], timestamp="at")
    python = F.udf(lambda number: number, "int")
    flights.select(python("seats").alias("s")).filter(python("s") > 1)


# Joins


@pytest.mark.parametrize("on", [None, "plane"], ids=["key", "foreign key"])
def test_a_kind_of_join_that_is_not_known(flights: ts.Table, planes: ts.Table, on: str | None) -> None:
    error = refused(
        lambda: flights.join(planes, on=on, how="cross", name="j"),  # type: ignore[arg-type]
        ArgumentError,
        "'cross'",
        operator="j",
    )
    assert error.hint == "One of inner, left, right, outer, left_semi, left_anti."


def test_what_cannot_be_joined(
    spark: SparkSession, log: DataFrame, flights: ts.Table, planes: ts.Table, tmp_path: Path
) -> None:
    frame: Any = log
    refused(lambda: flights.join(frame), ArgumentError, "DataFrame", "tablestream.table", operator="flights")
    refused(lambda: flights.one_to_many(frame, on="id"), ArgumentError, "DataFrame", operator="flights")
    columns: Any = ["seats"]
    refused(lambda: flights.join(flights, select=columns, name="j"), ArgumentError, "a list", operator="j")
    suffixes: Any = "_2"
    refused(lambda: flights.join(planes, "plane", suffixes=suffixes, name="j"), ArgumentError, operator="j")
    elsewhere = ts.from_files(spark.newSession(), tmp_path / "log", "json", COLUMNS)
    other = ts.table(elsewhere, key="id", timestamp="at", name="other")
    refused(lambda: flights.join(other), MixedPlanError, "'other'", "sessions", operator="flights")
    refused(lambda: flights.one_to_many(other, on="id"), MixedPlanError, "sessions", operator="flights")


def test_one_to_many_is_inner_or_left(flights: ts.Table, planes: ts.Table) -> None:
    refused(
        lambda: planes.one_to_many(flights, on="plane", how="right"),  # type: ignore[arg-type]
        ArgumentError,
        "'right'",
        operator="planes_flights_one_to_many",
    )


def test_keys_that_cannot_be_compared(log: DataFrame, flights: ts.Table, planes: ts.Table) -> None:
    refused(
        lambda: flights.join(planes), KeyMismatchError, "(bigint)", "(string)", operator="flights_planes_join"
    )
    refused(lambda: flights.join(planes, on="seats", name="j"), KeyMismatchError, "(int)", operator="j")
    refused(lambda: flights.join(planes, on=["plane", "id"], name="j"), KeyMismatchError, operator="j")
    condition = refused(
        lambda: flights.join(planes, on=F.col("id") == F.col("seats"), name="j"),
        KeyMismatchError,
        operator="j",
    )
    assert condition.hint.startswith("on= is no condition. Give the column")
    computed = refused(
        lambda: flights.join(planes, on=F.col("seats") + 1, name="j"), KeyMismatchError, operator="j"
    )
    assert "on=(seats + 1).cast('string')" in computed.hint
    pairs = ts.table(log, key=["id", "plane"], timestamp="at")
    refused(
        lambda: flights.join(pairs, on="id", name="j"), KeyMismatchError, "(bigint, string)", operator="j"
    )


def test_columns_of_one_name(flights: ts.Table, planes: ts.Table) -> None:
    refused(
        lambda: flights.join(planes, on="plane", name="j"),
        ColumnCollisionError,
        "'seats'",
        "suffixes",
        operator="j",
    )
    joined = flights.join(planes, on="plane", suffixes=("", "_plane"))
    assert joined.columns == ["id", "plane", "seats", "at", "tags", "word", "seats_plane"]
    other = planes.select(F.col("seats").alias("SEATS"))
    refused(lambda: flights.join(other, on="plane", name="j"), ColumnCollisionError, "'SEATS'", operator="j")
    refused(
        lambda: flights.join(planes, on="plane", suffixes=("", ""), name="j"),
        ColumnCollisionError,
        operator="j",
    )
    refused(
        lambda: flights.join(planes, on="plane", select=lambda f, p: [f.seats, p.seats], name="j"),
        ColumnCollisionError,
        "'seats'",
        operator="j",
    )


def test_a_right_column_is_the_key_only_where_it_is_that_part_of_it(
    log: DataFrame, flights: ts.Table
) -> None:
    def refused_to_take(call: Callable[[], object]) -> None:
        with pytest.raises(ColumnCollisionError, match=r"'(id|twins_id)' is a key column.*alias"):
            call()

    twins = flights.select("seats", name="twins")
    refused_to_take(lambda: flights.join(twins, on="seats", select=lambda f, t: [f.at, t.id]))
    found = flights.join(twins, on="seats", select=lambda f, t: [f.id, f.at, t.id.alias("found")])
    assert found.columns == ["id", "at", "found"]
    assert flights.join(twins, select=lambda f, t: [f.at, t.id]).columns == ["id", "at"]
    assert flights.join(twins, "seats", "outer", lambda f, t: [f.at, t.id.alias("twins_id")]).columns == [
        "flights_id",
        "twins_id",
        "at",
    ]
    refused_to_take(lambda: flights.join(twins, "seats", "outer", lambda f, _: [f.id.alias("twins_id")]))

    other = ts.table(log, F.col("id").alias("k"), columns=["id", "seats"], timestamp="at")
    refused_to_take(lambda: flights.join(other, select=lambda f, o: [f.at, o.id]))
    left, right = (
        ts.table(log, [F.col("id").alias(a), F.col("seats").cast("bigint").alias(b)], columns=["id"])
        for a, b in (("id", "other"), ("other", "id"))
    )
    refused_to_take(lambda: left.join(right, select=lambda _, r: [r.id]))
    assert left.join(right, select=lambda one, _: [one.id, one.other]).columns == ["id", "other"]


def test_a_key_of_two_tables_keeps_its_columns_apart(
    log: DataFrame, flights: ts.Table, planes: ts.Table
) -> None:
    assert planes.one_to_many(flights, on="plane", suffixes=("_p", "_f")).key_columns == [
        "planes_plane",
        "id",
    ]
    twins = flights.select("seats", name="twins")
    assert flights.join(twins, on="id", how="outer", suffixes=("", "_2")).key_columns == [
        "flights_id",
        "twins_id",
    ]
    own = flights.join(flights, on="seats", how="right", suffixes=("", "_2"))
    assert own.key_columns == ["flights_id", "flights_2_id"]
    pairs = ts.table(log, key=["id", F.col("seats").alias("a_id")], columns=[], timestamp="at", name="a")
    refused(
        lambda: pairs.join(flights, on=["id"], how="outer", name="j"),
        ColumnCollisionError,
        "a_id",
        operator="j",
    )


# Plans


def test_tables_ordered_by_different_things(log: DataFrame, flights: ts.Table) -> None:
    def ordered(column: str) -> ts.Table:
        return ts.table(log, key="id", timestamp="at", order_by=column, columns=[], name=f"by_{column}")

    mixed = flights.join(ordered("seats"))
    refused(lambda: mixed.changes(), MixedPlanError, "flights: none", "by_seats")  # noqa: PLW0108
    types = ordered("id").join(ordered("seats"))
    refused(lambda: types.changes(), MixedPlanError, "long", "integer")  # noqa: PLW0108


def test_words_that_are_not_known(flights: ts.Table) -> None:
    refused(lambda: flights.changes(emit="last"), ArgumentError, "emit='last'")  # type: ignore[arg-type]
    refused(lambda: flights.changes(compat="flink"), ArgumentError, "compat='flink'")  # type: ignore[arg-type]
    refused(lambda: flights.changes(tombstones="no"), ArgumentError, "tombstones='no'")  # type: ignore[arg-type]
    refused(lambda: flights.to(ts.to_memory("x"), emit="last"), ArgumentError, "emit='last'")  # type: ignore[arg-type]
    refused(lambda: flights.changes(shards=0), ArgumentError, "shards=0")
    refused(lambda: flights.changes(shards=5000), ArgumentError, "shards=5000")


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "1", None])
def test_top_needs_a_number_of_rows(flights: ts.Table, n: Any) -> None:
    refused(
        lambda: flights.group_by("plane").top(n, "seats"), ArgumentError, f"n={n!r}", operator="flights_top"
    )


def test_what_top_refuses(flights: ts.Table) -> None:
    planes = flights.group_by("plane")
    calls: dict[str, Callable[[], object]] = {
        "has no order": lambda: planes.top(1, [], name="t"),
        "descending=[True] does not fit 2": lambda: planes.top(
            1, ["at", "seats"], descending=[True], name="t"
        ),
        "descending='no' does not fit 1": lambda: planes.top(1, "at", descending="no", name="t"),  # type: ignore[arg-type]
        "rank=' ' is not a name": lambda: planes.top(1, "at", rank=" ", name="t"),
    }
    for words, call in calls.items():
        refused(call, ArgumentError, words, operator="t")
    refused(lambda: planes.top(1, "tags", name="t"), UnsupportedTypeError, "tags", "map", operator="t")
    refused(lambda: planes.top(1, "rand()", name="t"), NondeterministicError, "rand", operator="t")
    refused(lambda: planes.top(1, "weather", name="t"), PlanError, "weather", operator="t")
    names: list[Callable[[], object]] = [
        lambda: planes.top(1, "at", rank="seats", name="t"),
        lambda: planes.top(1, "at", rank="plane", name="t"),
        lambda: planes.top(1, "at", rank="id", name="t"),
    ]
    for call in names:
        refused(call, ColumnCollisionError, "a column", operator="t")
    other = flights.group_by((F.col("id") % 10).alias("id"))
    refused(lambda: other.top(1, "at", name="t"), ColumnCollisionError, "'id'", operator="t")


def test_the_columns_of_top(flights: ts.Table) -> None:
    top = flights.group_by("plane").top(2, ["seats", -F.col("id")], descending=[True, False], rank="place")
    assert (top.name, top.key_columns) == ("flights_top", ["plane", "place"])
    assert top.columns == ["plane", "place", "id", "seats", "at", "tags", "word"]
    by_id = flights.group_by("id", value=["seats"]).top(1, "at")
    assert by_id.columns == ["id", "rank", "seats"]
    assert flights.group_by("plane", value=["id", "at"]).top(1, "at").columns == ["plane", "rank", "id", "at"]


@pytest.mark.parametrize("by", ["seats", F.col, "id"])
def test_top_keeps_a_column_by_which_it_ranks_once(flights: ts.Table, by: Any) -> None:
    """However it is named: the state has these columns."""
    named = by if isinstance(by, str) else by("seats")
    top: Any = flights.group_by("plane").top(1, named)._node
    assert [one.name for one in top.inputs] == [one.name for one in top.value]
    top = flights.group_by("plane", value=["seats"]).top(1, "at")._node
    assert len(top.inputs) == len(top.value) + 1


def test_a_session_that_keeps_its_state_elsewhere(
    spark: SparkSession, flights: ts.Table, planes: ts.Table
) -> None:
    joined = flights.join(planes.select(), on="plane")
    rocks = spark.conf.get(PROVIDER) or ""
    spark.conf.unset(PROVIDER)
    try:
        error = refused(lambda: joined.changes(), SessionSettingError, PROVIDER, "RocksDB")  # noqa: PLW0108
        assert isinstance(error, AnalysisException)
        assert "tablestream.configure(spark)" in error.hint
        flights.changes()  # keeps no state
    finally:
        spark.conf.set(PROVIDER, rocks)


def test_times_of_arrival_warn_where_something_goes_by_them(log: DataFrame) -> None:
    arguments: list[dict[str, Any]] = [{"history": "1 minute"}, {"reorder": "1 minute"}]
    for given in arguments:
        with pytest.warns(UserWarning, match="no timestamp=.*time of their micro-batch"):
            ts.table(log, "id", name="a", **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.table(log, "id", name="a")
        ts.table(log, "id", timestamp="at", history="1 minute", name="a")


def test_alignment_is_a_choice_or_a_length_of_time(flights: ts.Table) -> None:
    assert flights.changes(align=True).isStreaming
    assert flights.changes(align="5 minutes").isStreaming
    refused(lambda: flights.changes(align="soon"), ArgumentError, "align=", operator="the plan")


def test_more_shuffle_partitions_than_shards_warn(
    spark: SparkSession, flights: ts.Table, planes: ts.Table
) -> None:
    with (
        in_partitions(spark, 200),
        pytest.warns(UserWarning, match=r"shuffle\.partitions is 200.* 2 rounds") as caught,
    ):
        flights.join(planes.select(), on="plane").changes()
    assert caught[0].filename == __file__


def test_outputs_that_cannot_be_told_apart(flights: ts.Table, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    one, two = flights.to(ts.to_memory("x")), flights.to(ts.to_memory("y"))
    refused(lambda: ts.start(checkpoint=checkpoint), ArgumentError, "needs an output")
    refused(lambda: ts.start([one], checkpoint=checkpoint), ArgumentError, "A list is not an", "a star")  # type: ignore[arg-type]
    refused(lambda: ts.start(one, two, checkpoint=checkpoint), ArgumentError, "the name 'flights'")
    same_target = flights.to(ts.to_memory("x"), name="other")
    refused(lambda: ts.start(one, same_target, checkpoint=checkpoint), ArgumentError, "the target 'memory x'")
    assert not (tmp_path / "checkpoint").exists()


def test_what_cannot_be_started(flights: ts.Table, tmp_path: Path) -> None:
    """Nothing is written before it is refused."""
    checkpoint = str(tmp_path / "checkpoint")
    output, table = flights.to(ts.to_memory("x")), flights
    word: Any = "availableNow"
    refused(lambda: ts.start(table, checkpoint=checkpoint), ArgumentError, "A Table", "table.to")  # type: ignore[arg-type]
    refused(lambda: ts.start(output, checkpoint=""), ArgumentError, "checkpoint=''")
    refused(lambda: ts.start(output, checkpoint=5), ArgumentError, "checkpoint=5")  # type: ignore[arg-type]
    refused(
        lambda: ts.start(output, checkpoint=checkpoint, trigger=word), ArgumentError, '"availableNow": True'
    )
    assert not (tmp_path / "checkpoint").exists()


def test_rejected_records_need_a_log(flights: ts.Table) -> None:
    table = ts.to_delta("out")
    error = refused(
        lambda: flights.rejected().to(table),
        ArgumentError,
        "delta out keeps one row per key",
        operator="flights_rejected",
    )
    assert 'mode="changes"' in error.hint
    flights.rejected().to(ts.to_delta("out", mode="changes"))


# What a table says of itself


def test_on_that_names_the_whole_key_is_planned_as_a_join_on_the_key(
    flights: ts.Table, log: DataFrame
) -> None:
    def rounds(table: ts.Table, **options: Any) -> str:
        return ts.plan_text(table.to(ts.to_memory("planned")), **options).split(",")[0]

    other = flights.select()
    for on in ("id", "ID", F.col("id"), lambda row: row.id):
        joined = flights.join(other, on=on, how="left")
        assert rounds(joined) == "Plan: 1 round"
        assert rounds(joined, compat="kafka-streams") == "Plan: 2 rounds"
    assert rounds(flights.join(other, on=F.col("id") + 1)) == "Plan: 2 rounds"
    named = ts.table(log, "plane", columns=["seats"], timestamp="at", name="named")
    assert rounds(named.join(named, on="plane", suffixes=("", "_r"))) == "Plan: 1 round"
    assert rounds(named.join(named, on=F.lit("plane"), suffixes=("", "_r"))) == "Plan: 2 rounds"
    assert rounds(flights.join(other, on="id", how="outer", suffixes=("", "_r"))) == "Plan: 2 rounds"


def test_explain_has_the_options_of_changes(flights: ts.Table, capsys: pytest.CaptureFixture[str]) -> None:
    table = flights.join(flights.select(), on="seats")
    table.explain()
    plain = capsys.readouterr().out
    assert "Plan: 2 rounds, 16 shards\n" in plain
    assert ": every change\n" in plain
    table.explain(compat="kafka-streams", before=True, tombstones="minimal", shards=3)
    table.explain(emit="final")
    shown = capsys.readouterr().out
    assert "3 shards, compat kafka-streams\n" in shown
    assert ": every change, with the row before, minimal tombstones\n" in shown
    assert ": final change per key and micro-batch" in shown


def test_a_value_that_is_computed_otherwise_is_another_plan(log: DataFrame) -> None:
    def meaning(*columns: Column | str) -> str:
        return ts.table(log, "id", columns=columns)._node.meaning

    less = (F.col("seats") - 1).alias("seats")
    assert meaning("seats") != meaning(less)
    assert meaning("seats", F.rand().alias("r")) != meaning(less, F.rand().alias("r"))


def test_a_constant_in_sql_is_not_taken_for_a_column(log: DataFrame, flights: ts.Table) -> None:
    def meanings(condition: str) -> list[str]:
        tables = (
            ts.table(log, "id", apply_as_deletes=condition),
            flights.filter(condition),
            flights.filter_not(condition),
            flights.select("at", delete_when=condition),
            flights.select(F.when(F.col("seats") > 0, F.struct("at")), delete_when=condition),
            flights.with_columns(same=condition),
        )
        return [one._node.meaning for one in tables]

    pairs = list(zip(meanings("plane = 'plane'"), meanings("plane = plane"), strict=True))
    assert [one != other for one, other in pairs] == [True] * len(pairs)
    assert flights.filter("seats >\n 1")._node.meaning == "filter seats >  1"


def test_a_plan_that_is_built_again_says_the_same_of_itself(log: DataFrame) -> None:
    """So that a restart is no change: lambdas are numbered through a process, and functions have addresses."""

    def meanings() -> list[str]:
        python = F.udf(lambda number: number, "int")
        key = F.aggregate(F.array("id"), F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one).alias("k")
        table = ts.table(log, key=key, timestamp=F.coalesce("at", "at"), apply_as_deletes=python("seats") > 1)
        view = table.select(
            F.transform(F.array("seats"), lambda one: one + 1).alias("a"), F.lit(b"x").alias("b")
        )
        other = view.filter(python(F.size("a")) == 1).filter_not(F.exists("a", lambda one: one > 1))
        joined = view.join(
            other, on=F.lit(1).cast("bigint"), select=lambda one, _: [python(one.a[0]).alias("c")]
        )
        nodes = [one._node for one in (table, view, other, joined)]
        return [node.meaning for node in nodes]

    one, other = meanings(), meanings()
    assert one == other
    assert "lambda" in one[0]
    assert "X'78'" in one[1]


def test_columns_schema_and_text(flights: ts.Table, planes: ts.Table) -> None:
    assert (flights.name, flights.key_columns) == ("flights", ["id"])
    assert planes.columns == planes.schema.names == ["plane", "seats"]
    assert repr(planes) == "Table 'planes' [key plane: string] [seats: int]"
    assert repr(planes.rejected()) == "Rejected records of 'planes'"
    assert repr(planes.to(ts.to_memory("sight"), name="kept")) == "Output 'kept' to memory sight"
    names = flights.changes().columns
    assert names == [*flights.columns, "_change_type", "_timestamp", "_order"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("groupBy", "Use group_by."),
        ("mapValues", "Use map_values."),
        ("filterNot", "Use filter_not."),
        ("toStream", "Use to_stream."),
        ("withColumn", "Use with_columns(name=...)."),
        ("withColumnRenamed", "Use select(...)"),
        ("drop", "Use select(...) with the columns that stay"),
        ("where", "Use filter."),
        ("leftJoin", "Use join(..., how='left')."),
        ("groupByKey", "Use group_by with"),
        ("selectKey", "Use select_key."),
        ("flatMap", "Use flat_map."),
        ("agg", "Use group_by(...).agg("),
        ("limit", "Use group_by(...).top(n, order_by)."),
        ("dropDuplicates", "A table has one row of each key."),
        ("unionByName", "Use union."),
        ("show", "It has no rows to look at: see ts.read_state, or ts.testing.Driver in a test."),
        ("collect", "It has no rows to look at"),
        ("toPandas", "It has no rows to look at"),
        ("seats", "Columns are named in strings: F.col('seats')."),
    ],
)
def test_a_name_of_spark_or_kafka_streams_says_what_to_write(flights: ts.Table, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"'Table' object has no attribute '{name}'. {said}")):
        getattr(flights, name)


def test_other_names_are_missing_as_everywhere(flights: ts.Table) -> None:
    for handle in (flights, flights.to_stream(), flights.group_by("plane")):
        for name in ("nosuch", "_repr_latex_", "__deepcopy__"):
            assert not hasattr(handle, name)
        assert repr(copy.copy(handle)) == repr(handle)
        assert not hasattr(type(handle).__new__(type(handle)), "seats")
    with pytest.raises(AttributeError, match=r"Use select_key\."):
        flights.to_stream().selectKey  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"F\.col\('plane'\)"):
        flights.group_by("plane").plane  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"'nosuch'$"):
        flights.nosuch  # type: ignore[attr-defined]  # noqa: B018
