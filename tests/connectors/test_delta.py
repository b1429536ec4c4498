"""Delta as a target: the maintained table follows the changes, and a replayed micro-batch is seen once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import tablestream as ts
from tablestream.connectors.delta.by_spark import TXN_APP_ID, TXN_VERSION, SparkTable
from tablestream.connectors.delta.marks import DeltaMark, last_mark
from tablestream.connectors.delta.sink import DeltaMode, DeltaSink, DeltaWriter, to_delta
from tablestream.connectors.marks import Moment
from tablestream.connectors.sink import CHANGE_COLUMNS
from tablestream.errors import ArgumentError, PlanError, SessionSettingError, TargetError
from tests.connectors.changes import KEY, changes
from tests.marks import quick_first, repeat
from tests.pages import DOCS
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tablestream.tables import Table


class Target:
    """A Delta sink with what a test does to it."""

    def __init__(self, spark: SparkSession, sink: DeltaSink) -> None:
        self.spark, self.sink = spark, sink.keyed_by(KEY)

    def write(self, frame: DataFrame, micro_batch_id: int, query: str = "q", output: str = "out") -> None:
        self.sink.write(frame, micro_batch_id, query, output)

    def read(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.sink.path)

    def rows(self) -> list[tuple[object, ...]]:
        return sorted((tuple(row) for row in self.read().collect()), key=repr)

    def commits(self) -> int:
        """Count the commits of micro-batches: delta-rs creates the table in a commit of its own."""
        return sum('"txn"' in path.read_text() for path in Path(self.sink.path, "_delta_log").glob("*.json"))


#: What both writers do in the same way is shown with one of them before `make test-all`, but for these.
BOTH = pytest.mark.parametrize("writer", ["delta-rs", "spark"], indirect=True)


@pytest.fixture(params=quick_first(["delta-rs", "spark"]))
def writer(request: pytest.FixtureRequest) -> DeltaWriter:
    chosen: DeltaWriter = request.param
    return chosen


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path, writer: DeltaWriter) -> Target:
    return Target(delta_spark, to_delta(tmp_path / "table", writer=writer))


@BOTH
def test_table_is_made_changed_and_deleted_from(table: Target) -> None:
    table.write(changes(table.spark, 0, (1, "a", "x"), (2, "b", "y"), (3, "c", None)), 0)
    assert table.rows() == [(1, "a", "x"), (2, "b", "y")]
    table.write(changes(table.spark, 1, (1, "a", "x2"), (2, "b", None), (4, "d", "new"), (5, "e", None)), 1)
    assert table.rows() == [(1, "a", "x2"), (4, "d", "new")]


@BOTH
def test_last_change_of_a_key_wins_by_order(table: Target) -> None:
    first = ((1, "a", "old"), (1, "a", None), (2, "b", "x"), (1, "a", "last"), (2, "b", None))
    table.write(changes(table.spark, 0, *first).orderBy(F.col("_order").desc()), 0)
    assert table.rows() == [(1, "a", "last")]
    second = ((1, "a", None), (2, "b", "y"), (2, "b", "z"), (1, "a", "again"))
    table.write(changes(table.spark, 1, *second).orderBy(F.col("_order").desc()), 1)
    assert table.rows() == [(1, "a", "again"), (2, "b", "z")]


@BOTH
def test_null_is_a_key_like_any_other(table: Target) -> None:
    table.write(changes(table.spark, 0, (None, "a", "x"), (1, None, "y"), (None, None, "z")), 0)
    table.write(changes(table.spark, 1, (None, "a", "x2"), (1, None, None), (None, None, "z2")), 1)
    assert table.rows() == [(None, "a", "x2"), (None, None, "z2")]


@BOTH
def test_a_log_gets_the_further_hops_of_a_query_that_has_evolved(
    delta_spark: SparkSession, tmp_path: Path, writer: DeltaWriter
) -> None:
    log = Target(delta_spark, to_delta(tmp_path / "log", mode="changes", writer=writer))
    log.write(changes(delta_spark, 0, (1, "a", "x")), 0)
    further = changes(delta_spark, 1, (1, "a", "y"))
    log.write(further.withColumn("_order", F.expr("struct(_order.*, 7L AS hop_1)")), 1)
    log.write(changes(delta_spark, 2, (1, "a", None)), 2)  # back in the plan before
    rows = log.read().orderBy("_order").select("v", "_order.hop_1").collect()
    assert [tuple(row) for row in rows] == [("x", None), ("y", 7), (None, None)]
    if writer == "delta-rs":
        with pytest.raises(PlanError, match="has no column 'more'"):
            log.write(changes(delta_spark, 3, (1, "a", "z")).withColumn("more", F.lit(1)), 3)


@BOTH
def test_replayed_micro_batch_is_skipped(table: Target) -> None:
    zero = changes(table.spark, 0, (1, "a", "x"))
    one = changes(table.spark, 1, (1, "a", None), (2, "b", "y"))
    for frame, number in ((zero, 0), (zero, 0), (one, 1), (zero, 0), (one, 1)):
        table.write(frame, number)
    assert table.rows() == [(2, "b", "y")]
    assert table.commits() == 2


def test_another_query_is_not_taken_for_a_replay(table: Target) -> None:
    table.write(changes(table.spark, 0, (1, "a", "x")), 0)
    table.write(changes(table.spark, 0, (2, "b", "y")), 0, query="another")
    assert len(table.rows()) == 2


def test_an_output_that_is_renamed_before_a_replay_writes_nothing_twice(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    log = Target(delta_spark, to_delta(tmp_path / "log", mode="changes"))
    for output in ("before", "after"):
        log.write(changes(delta_spark, 0, (1, "a", "x")), 0, output=output)
    assert log.read().count() == 1


def test_empty_micro_batch_makes_the_table_and_then_commits_only_its_mark(table: Target) -> None:
    table.write(changes(table.spark, 0), 0)
    assert table.read().columns == ["k1", "k.2", "v"]
    table.write(changes(table.spark, 1), 1)
    assert (table.commits(), table.rows()) == (2, [])
    assert last_mark(SparkTable(table.spark, table.sink.path), "q") == DeltaMark("q", 1, "", "tablestream/q")


def test_before_images_are_passed_over(table: Target) -> None:
    table.write(changes(table.spark, 0, (1, "a", "x"), (2, "b", "y"), kinds="insert insert"), 0)
    kinds = "update_preimage update_postimage delete"
    table.write(changes(table.spark, 1, (1, "a", "x"), (1, "a", "x2"), (2, "b", "y"), kinds=kinds), 1)
    assert table.rows() == [(1, "a", "x2")]


def test_table_of_keys_alone(table: Target) -> None:
    table.write(changes(table.spark, 0, (1, "a", "x")).drop("v"), 0)
    table.write(changes(table.spark, 1, (1, "a", "x"), (2, "b", "y")).drop("v"), 1)
    assert table.rows() == [(1, "a"), (2, "b")]


def test_table_made_by_the_user_keeps_its_other_columns(table: Target) -> None:
    empty = table.spark.createDataFrame([], "extra INT, v STRING, k1 INT, `k.2` STRING")
    empty.write.format("delta").partitionBy("k1").save(table.sink.path)
    table.write(changes(table.spark, 0, (1, "a", "x")), 0)
    assert table.rows() == [(None, "x", 1, "a")]


@BOTH
def test_table_without_a_column_is_refused(table: Target) -> None:
    table.spark.createDataFrame([], "k1 INT, `k.2` STRING").write.format("delta").save(table.sink.path)
    with pytest.raises(PlanError, match="no column 'v'") as refused:
        table.write(changes(table.spark, 0, (1, "a", "x")), 0)
    table.spark.sql(refused.value.hint.partition("or: ")[2])
    table.write(changes(table.spark, 0, (1, "a", "x")), 0)
    assert table.rows() == [(1, "a", "x")]


#: The columns of `logged`, and a column of a table that does not hold all values.
PRICES = {"price": "DECIMAL(10,4)", "amount": "BIGINT", "part": "STRUCT<n: DOUBLE, names: ARRAY<STRING>>"}
TOO_NARROW = {
    "price": ("DECIMAL(10,1)", "price", "decimal(10,1)", "decimal(10,4)"),
    "amount": ("INT", "amount", "int", "bigint"),
    "part": ("STRUCT<n: INT, names: ARRAY<STRING>>", "part.n", "int", "double"),
}


def logged(spark: SparkSession, directory: Path, first: int = 1) -> Table:
    """A table of a changelog, to which two rows are added, a micro-batch each."""
    columns = "id INT, " + ", ".join(f"{one} {PRICES[one]}" for one in PRICES)
    log = ChangeLog(directory / "orders", columns, files=first)
    row = {"price": 1.2345, "amount": 2**40, "part": {"n": 1.7, "names": ["a"]}}
    log.add([row | {"id": first}], [row | {"id": first + 1}])
    return ts.table(log.read(spark), "id", name="orders")


def existing(spark: SparkSession, path: Path, **columns: str) -> DeltaSink:
    """An empty Delta table with the columns of `logged`, some of other types."""
    columns = {"id": "INT"} | PRICES | columns
    ddl = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    spark.sql(f"CREATE TABLE delta.`{path}` ({ddl}) USING delta")
    return to_delta(path)


@pytest.mark.parametrize("column", quick_first(TOO_NARROW))
def test_a_table_that_does_not_hold_all_values_is_refused_at_the_start(
    delta_spark: SparkSession, tmp_path: Path, column: str
) -> None:
    narrow, name, stored, wanted = TOO_NARROW[column]
    sink = existing(delta_spark, tmp_path / "out", **{column: narrow})
    output = logged(delta_spark, tmp_path).to(sink)
    with pytest.raises(PlanError) as refused:
        ts.start(output, checkpoint=tmp_path / "checkpoint", shards=1)
    assert refused.value.reason == (
        f"The Delta table at {tmp_path}/out has the column '{name}' of type {stored}, which does not hold all values of"
        f" the output's {wanted}."
    )
    assert "Cast the column in select(...)" in refused.value.hint
    assert not (tmp_path / "checkpoint").exists()


def test_a_wider_table_gets_every_value_as_it_is(delta_spark: SparkSession, tmp_path: Path) -> None:
    wider = "STRUCT<names: ARRAY<STRING>, n: DOUBLE>"
    sink = existing(delta_spark, tmp_path / "out", id="BIGINT", price="DECIMAL(12,5)", part=wider)
    run(logged(delta_spark, tmp_path).to(sink), checkpoint=tmp_path / "checkpoint", shards=1)
    rows = Target(delta_spark, sink).read().orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(n, Decimal("1.23450"), 2**40, (["a"], 1.7)) for n in (1, 2)]


@pytest.mark.parametrize("ansi", quick_first(["true", "false"]))
@pytest.mark.parametrize(
    ("key", "least", "texts"),
    [
        ("DECIMAL(20,0)", "9007199254740992", ("9007199254740992", "9007199254740993")),
        ("DECIMAL(20,7)", "-1.0000003BD", ("-1.0000003", "-0.0000003")),
        ("INT", "1", ("1", "2")),
    ],
)
def test_a_key_is_compared_as_the_text_that_the_table_has(
    delta_spark: SparkSession, tmp_path: Path, key: str, least: str, texts: tuple[str, str], ansi: str
) -> None:
    """Spark compares a decimal with a text as doubles, and reads the texts of the table as integers for an integer."""
    delta_spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 'out'}` (k1 STRING, `k.2` STRING, v STRING) USING delta"
    )
    table = Target(delta_spark, to_delta(tmp_path / "out"))
    delta_spark.sql(f"INSERT INTO delta.`{tmp_path / 'out'}` VALUES ('no number', 'a', 'mine')")
    for number, rows in enumerate(([(0, "a", "x"), (1, "a", "y")], [(1, "a", "z")])):
        read = changes(delta_spark, number, *rows)
        delta_spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            table.write(read.withColumn("k1", F.expr(f"CAST(k1 + {least} AS {key})")), number)
        finally:
            delta_spark.conf.unset("spark.sql.ansi.enabled")
    found = {row[0]: row[2] for row in table.rows()}
    assert found == {texts[0]: "x", texts[1]: "z", "no number": "mine"}


def test_a_table_that_is_changed_while_the_query_runs_is_refused(table: Target) -> None:
    table.write(changes(table.spark, 0, (1, "a", "x")), 0)
    narrow = table.spark.createDataFrame([], "k1 TINYINT, `k.2` STRING, v STRING")
    narrow.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(table.sink.path)
    with pytest.raises(PlanError, match="'k1' of type tinyint"):
        table.write(changes(table.spark, 1, (400, "a", "x")), 1)
    assert table.rows() == []


@pytest.mark.parametrize("mode", quick_first(["table", "changes"]))
def test_a_table_that_was_deleted_is_not_created_anew(
    delta_spark: SparkSession, tmp_path: Path, mode: DeltaMode
) -> None:
    """Not even an empty micro-batch creates it. The first one does, if it is repeated: it has all rows."""
    table = Target(delta_spark, to_delta(tmp_path / "out", mode=mode))
    first, second = changes(delta_spark, 0, (1, "a", "x")), changes(delta_spark, 1, (2, "b", "y"))
    table.write(first, 0)
    rmtree(table.sink.path)
    for frame, number in ((second, 1), (changes(delta_spark, 2), 2)):
        with pytest.raises(PlanError, match="is not there any more") as refused:
            table.write(frame, number)
        assert "with a new checkpoint" in refused.value.hint
        assert not Path(table.sink.path).exists()
    table.write(first, 0)
    assert table.read().count() == 1
    rmtree(table.sink.path)
    first.drop(*(CHANGE_COLUMNS if mode == "table" else ())).limit(0).write.format("delta").save(
        table.sink.path
    )
    table.write(second, 1)
    assert [row.k1 for row in table.read().collect()] == [2]


@pytest.mark.parametrize("mode", quick_first(["table", "changes"]))
def test_an_output_that_is_added_later_creates_its_table(
    delta_spark: SparkSession, tmp_path: Path, mode: DeltaMode
) -> None:
    table = Target(delta_spark, to_delta(tmp_path / "out", mode=mode))
    table.write(changes(delta_spark, 7, (1, "a", "x")), 7)
    assert table.read().count() == 1


def test_a_query_whose_table_is_deleted_ends(delta_spark: SparkSession, tmp_path: Path) -> None:
    sink = to_delta(tmp_path / "out")
    run(logged(delta_spark, tmp_path).to(sink), checkpoint=tmp_path / "checkpoint", shards=1)
    rmtree(tmp_path / "out")
    with pytest.raises(TargetError, match="has nothing of this query, whose micro-batches 0 to 1 are done"):
        run(logged(delta_spark, tmp_path, 3).to(sink), checkpoint=tmp_path / "checkpoint", shards=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", quick_first(["table", "changes"]))
def test_a_table_of_an_older_version_goes_on(
    delta_spark: SparkSession, tmp_path: Path, mode: DeltaMode
) -> None:
    """Its marks are Delta's alone. A repeated micro-batch is passed over, and a checkpoint that is older is refused."""
    older = changes(delta_spark, 4, (1, "a", "x"))
    rows = older.drop(*(CHANGE_COLUMNS if mode == "table" else ()))
    writer = rows.write.format("delta").option("txnAppId", "tablestream/q").option("txnVersion", 4)
    writer.save(str(tmp_path / "out"))
    sink, none = to_delta(tmp_path / "out", mode=mode).keyed_by(KEY), StructType()
    for moment in (Moment(3, "q", "p3", "p2"), Moment(4, "q", "", "p3")):
        with pytest.raises(TargetError, match="has the micro-batches up to 4"):
            sink.at(moment).settle(delta_spark, none, lambda: older)
    with pytest.raises(TargetError, match="has rows that are not this query's"):
        sink.at(Moment(4, "other", "p4", "p3")).settle(delta_spark, none, lambda: older)
    repeated, following = Moment(4, "q", "p4", "p3"), Moment(5, "q", "p5", "p4")
    sink.at(repeated).settle(delta_spark, none, lambda: older)
    sink.at(repeated).write(older, 4, "q", "out")
    sink.at(following).write(changes(delta_spark, 5, (2, "b", "y")), 5, "q", "out")
    sink.at(following).write(changes(delta_spark, 5, (2, "b", "y")), 5, "q", "out")
    assert sorted(row.k1 for row in delta_spark.read.format("delta").load(sink.path).collect()) == [1, 2]
    with pytest.raises(TargetError, match="has another micro-batch 5"):
        sink.at(Moment(6, "q", "p6", "copied")).settle(delta_spark, none, lambda: older)
    delta_spark.sql(f"RESTORE TABLE delta.`{sink.path}` TO VERSION AS OF 0")
    assert last_mark(SparkTable(delta_spark, sink.path), "q") is None


@pytest.mark.parametrize(("by", "error"), [("spark", AnalysisException), ("delta-rs", PlanError)])
def test_a_log_of_another_type_is_refused(
    delta_spark: SparkSession, tmp_path: Path, by: DeltaWriter, error: type[Exception]
) -> None:
    log = Target(delta_spark, to_delta(tmp_path / "log", mode="changes", writer=by))
    log.write(changes(delta_spark, 0, (1, "a", "x")), 0)
    wider = changes(delta_spark, 1, (1, "a", "x")).withColumn("k1", F.lit(2**40))
    with pytest.raises(error, match="k1"):
        log.write(wider, 1)


def test_nested_values_and_non_null_columns(table: Target) -> None:
    one = "SELECT 1 AS k1, 'a' AS `k.2`, named_struct('m', map('k', array(1.5D))) AS `{v}`"
    meta = (
        ", 'upsert' AS _change_type, current_timestamp() AS _timestamp, struct(0L AS micro_batch) AS _order"
    )
    spark = table.spark
    escaped = (one + meta).replace("{v}", "v")
    table.write(spark.sql(escaped), 0)
    table.write(spark.sql(escaped).withColumn("k1", F.lit(None).cast("int")), 1)
    assert [row[0] for row in table.rows()] == [1, None]


@BOTH
def test_settings_are_left_as_they_were(table: Target) -> None:
    table.write(changes(table.spark, 0, (1, "a", "x")), 0)
    table.write(changes(table.spark, 1, (1, "a", "y")), 1)
    assert table.spark.conf.get(TXN_APP_ID, None) is None
    assert table.spark.conf.get(TXN_VERSION, None) is None


def test_relative_path(delta_spark: SparkSession, tmp_path: Path) -> None:
    # Spark resolves it by the JVM's working directory, which is that of this process at the start.
    start = tmp_path.relative_to("/")
    depth = len(str(tmp_path.cwd()).strip("/").split("/"))
    table = Target(delta_spark, to_delta("../" * depth + str(start / "relative")))
    for number in (0, 1):
        table.write(changes(delta_spark, number, (1, "a", str(number))), number)
    assert table.rows() == [(1, "a", "1")]


def test_every_change_is_appended_once(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = Target(delta_spark, to_delta(tmp_path / "log", mode="changes"))
    zero = changes(delta_spark, 0, (1, "a", "x"), (1, "a", None))
    one = changes(delta_spark, 1, (1, "a", "y"))
    for frame, number in ((zero, 0), (zero, 0), (one, 1), (zero, 0), (one, 1)):
        table.write(frame, number)
    in_order = table.read().orderBy("_order").select("v", "_change_type").collect()
    assert [tuple(row) for row in in_order] == [("x", "upsert"), (None, "delete"), ("y", "upsert")]


NAMES = [
    "unit price",
    "a,b",
    'say "x"; (y)',
    "it's",
    "a.b",
    "{x}",
    "tab\t",
    "line\n",
    "=",
    "a`b",
    "",
    "select",
    "x" * 300,
]


@pytest.mark.parametrize("mode", quick_first(["table", "changes"]))
def test_columns_can_have_any_name(delta_spark: SparkSession, tmp_path: Path, mode: DeltaMode) -> None:
    """Also as a key, and inside a struct."""
    sink = to_delta(tmp_path / "named", mode=mode).keyed_by(["unit price", "a.b"])
    written = [changes(delta_spark, n, (1, "a", "x"), (2, "b", "y" if n == 0 else None)) for n in range(2)]
    inner = F.struct(F.lit(1).alias("unit price")).alias("inner one")
    keyed = [
        F.col("k1").alias("unit price"),
        F.col("`k.2`").alias("a.b"),
        *(F.col(one) for one in CHANGE_COLUMNS),
    ]
    values = [F.col("v").alias(name) for name in NAMES if name not in {"unit price", "a.b"}]
    frames = [frame.select(*keyed, *values, inner) for frame in written]
    sink.check_types(delta_spark, frames[0].drop(*CHANGE_COLUMNS).schema)
    for number, frame in enumerate(frames):
        sink.write(frame, number, "named", "out")
    sink.check_types(delta_spark, frames[0].drop(*CHANGE_COLUMNS).schema)
    rows = delta_spark.read.format("delta").load(sink.path)
    assert rows.count() == (1 if mode == "table" else 4)
    assert {row["unit price"] for row in rows.select("`inner one`.`unit price`").collect()} == {1}


def _struct(ddl: str) -> StructType:
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType)
    return made


def test_names_that_no_delta_table_can_have_are_refused(delta_spark: SparkSession, tmp_path: Path) -> None:
    sink = to_delta(tmp_path / "refused")
    for ddl, why in (
        ("id int, ID int", "'id' and 'ID' are one name to Delta"),
        ("id int, s array<struct<a: int, A: int>>", "'a' and 'A' are one name"),
        ("a int, b int, A int, B int", "'a' and 'A' are one name"),
        ("id int, _Row_id_ int", "MERGE has a column '_Row_id_' of its own"),
    ):
        with pytest.raises(ArgumentError, match=why):
            sink.check_types(delta_spark, _struct(ddl))
    to_delta(tmp_path / "log", mode="changes").check_types(delta_spark, _struct("id int, _row_id_ int"))


def test_arguments_that_are_refused() -> None:
    with pytest.raises(ArgumentError, match="merge"):
        to_delta("out", mode="merge")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="empty"):
        to_delta("")


def test_only_a_maintained_table_needs_no_more_than_the_last_change() -> None:
    assert to_delta("out").needs_final
    assert not to_delta("out", mode="changes").needs_final


@pytest.mark.parametrize(
    ("shuffles", "chosen", "expected"),
    [("3", None, "3"), repeat(pytest.param("200", None, "50")), repeat(pytest.param("3", "7", "7"))],
)
def test_the_setting_for_the_tasks_that_list_files_is_that_of_shuffles(
    delta_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shuffles: str,
    chosen: str | None,
    expected: str,
) -> None:
    listing = "spark.databricks.delta.snapshotPartitions"
    session = delta_spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", shuffles)
    session.conf.unset(listing)
    if chosen is not None:
        session.conf.set(listing, chosen)
    seen = []
    write = DataFrameWriter.save

    def spy(self: DataFrameWriter, *given: Any) -> None:
        seen.append(session.conf.get(listing))
        write(self, *given)

    monkeypatch.setattr(DataFrameWriter, "save", spy)
    table = Target(session, to_delta(tmp_path / "table", writer="spark"))
    table.write(changes(session, 0, (1, "a", "x")), 0)
    assert seen == [expected]
    assert session.conf.get(listing, None) == chosen


def test_session_without_delta_is_refused(delta_spark: SparkSession) -> None:
    to_delta("out", writer="spark").check(delta_spark, ())
    other = delta_spark.newSession()
    other.conf.set("spark.sql.catalog.spark_catalog", "another")
    with pytest.raises(
        SessionSettingError, match=r"spark\.sql\.catalog\.spark_catalog is not set"
    ) as refused:
        to_delta("out", writer="spark").check(other, ())
    _, code = refused.value.hint.split(":\n", 1)
    lines, _ = code.rsplit("\n", 1)
    compile(lines, "program.py", "exec")
    recipe = " ".join((DOCS / "recipes.md").read_text(encoding="utf-8").split())
    settings = [line.strip() for line in lines.split("\n") if ".config(" in line]
    assert [line for line in settings if line in recipe] == settings
    assert len(settings) == 2
