"""The systems that statements name: what each reads and writes is what its functions in Python make of the options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import tablestream as ts
from tablestream.connectors.delta import source
from tablestream.connectors.files.source import from_files
from tablestream.connectors.kafka.source import from_kafka
from tablestream.sql.options import Options, Step
from tablestream.sql.outputs import SqlOutputs
from tablestream.sql.program import program_of
from tablestream.sql.sources import Session, read_source
from tablestream.sql.statements import SourceTable
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Captured
from tests.spark.change_logs import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

V = "CREATE MATERIALIZED VIEW v AS SELECT * FROM t"
KAFKA = "USING kafka OPTIONS (topic 'a', bootstrap_servers 'h:1'"


def arguments(options: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return what a function gets of the options of a statement."""
    using = "kafka" if function is from_kafka else "json"
    text = f"CREATE TABLE t (id INT PRIMARY KEY) USING {using} OPTIONS ({options});\n{V}"
    table = program_of("q.sql", text, {}).named["t"]
    return Options(table, (Step(function, ()),)).of(function)


def test_options_are_arguments_by_their_names() -> None:
    assert arguments(
        "path 'a', MODE 'drop', Options.header 'true', options.Sep ';', times.at 'seconds'", from_files
    ) == {
        "path": "a",
        "mode": "drop",
        "options": {"header": "true", "Sep": ";"},
        "times": {"at": "seconds"},
    }


@pytest.mark.parametrize("value", ["100", "'100'"])
def test_a_number_may_stand_in_quotes_as_in_spark(value: str) -> None:
    assert arguments(f"path 'a', max_files_per_trigger {value}", from_files)["max_files_per_trigger"] == 100


@pytest.mark.parametrize(
    ("value", "meant"), [("TRUE", True), ("'true'", True), ("'False'", False), ("('a', 'b')", ["a", "b"])]
)
def test_a_truth_may_stand_in_quotes_as_in_spark(value: str, meant: object) -> None:
    found = arguments(f"topic '1', bootstrap_servers 'h:1', deduplicate {value}", from_kafka)
    assert (found["topic"], found["deduplicate"]) == ("1", meant)


def built(spark: SparkSession, text: str) -> SqlOutputs:
    return program_of("q.sql", text, {}).build(spark)


def tables(*statements: str) -> str:
    """Return a file with tables t0, t1, ..., each with a view v0, v1, ... of it."""
    return "\n".join(
        f"CREATE {one.replace(' t ', f' t{n} ')};\nCREATE MATERIALIZED VIEW v{n} AS SELECT * FROM t{n};"
        for n, one in enumerate(statements)
    )


def test_records_of_topics_have_the_columns_of_the_key_in_their_key(
    delta_spark: SparkSession,
) -> None:
    found = built(
        delta_spark,
        tables(
            f"TABLE t (id INT, name STRING, n BIGINT, PRIMARY KEY (id)) {KAFKA})",
            f"TABLE t (id STRING, n INT, PRIMARY KEY (id)) {KAFKA}, key 'string')",
            f"TABLE t (id STRING, text STRING, PRIMARY KEY (id)) {KAFKA}, key 'string', value 'string')",
            f"TABLE t (id INT, n INT, PRIMARY KEY (id)) {KAFKA}, key NULL, tombstones 'drop')",
            f"TABLE t (PRIMARY KEY (id)) {KAFKA}, key 'id INT', value 'n INT')",
            f"TABLE t (PRIMARY KEY (key)) {KAFKA}, key 'string', value avro('{AVRO}'))",
            f"STREAM t (id INT, n INT) {KAFKA})",
        ),
    ).unwritten
    assert [(one.key_columns, one.columns) for one in found.values()] == [
        (["id"], ["id", "name", "n"]),
        (["id"], ["id", "n"]),
        (["id"], ["id", "text"]),
        (["id"], ["id", "n"]),
        (["id"], ["id", "n"]),
        (["key"], ["key", "price"]),
        ([], ["id", "n"]),
    ]


@pytest.mark.parametrize(
    ("kind", "made"), [("TABLE", ts.Table), ("STREAM", ts.Stream), ("GLOBAL TABLE", ts.GlobalTable)]
)
def test_the_kind_of_a_statement_is_that_of_its_rows(
    spark: SparkSession, tmp_path: Path, kind: str, made: type
) -> None:
    text = f"CREATE {kind} t (id INT PRIMARY KEY, n INT) USING csv LOCATION '{tmp_path}';\n{V}"
    declared = program_of("q.sql", text, {}).named["t"]
    assert isinstance(declared, SourceTable)
    found = read_source(Session(spark), declared)
    assert (type(found), found.name, found.columns) == (made, "t", ["id", "n"])


def test_a_session_without_delta_lake_is_told_what_it_lacks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "lacking", lambda _: ["spark.sql.extensions"])
    with pytest.raises(
        ts.errors.SqlFileError, match=r"q\.sql:1:14: t0: The session lacks Delta Lake"
    ) as found:
        built(spark, tables("TABLE t (PRIMARY KEY (id)) USING change_feed LOCATION 'lake'"))
    assert "--conf spark.sql.extensions=io.delta.sql" in found.value.hint


def test_tables_of_one_connector_share_its_transactions(delta_spark: SparkSession) -> None:
    options = "prefix 'shop', bootstrap_servers 'h:1', transactions 'true', name"
    table = "TABLE t (id INT PRIMARY KEY) USING debezium OPTIONS"
    found = built(delta_spark, tables(f"{table} ({options} 'a.b')", f"{table} ({options} 'a.c')")).unwritten
    nodes = ancestors(*(view.to(ts.to_console()).output.node for view in found.values()))
    one, other = (node.transactions for node in nodes if isinstance(node, Captured))
    assert one is other
    assert one is not None


AVRO = '{"type": "record", "name": "Q", "fields": [{"name": "price", "type": "double"}]}'


@pytest.mark.filterwarnings("ignore:.*without positions")
def test_tables_of_delta_lake_and_of_databases_have_their_own_columns(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    rows = pa.table({"id": [1], "n": ["a"]})
    write_deltalake(lake, rows, configuration={"delta.enableChangeDataFeed": "true"})
    debezium = "USING debezium OPTIONS (prefix 'shop', bootstrap_servers 'h:1', name 'public.orders')"
    found = built(
        delta_spark,
        tables(
            f"TABLE t (PRIMARY KEY (id)) USING change_feed LOCATION '{lake}'",
            f"STREAM t USING delta LOCATION '{lake}'",
            f"TABLE t (id INT, n STRING, PRIMARY KEY (id)) {debezium}",
        ),
    ).unwritten
    assert [(one.key_columns, one.columns) for one in found.values()] == [
        (["id"], ["id", "n"]),
        ([], ["id", "n"]),
        (["id"], ["id", "n"]),
    ]


def test_a_table_forgets_rows_that_are_older_than_its_option_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"id": number, "at": f"2024-01-{number:02} 00:00:00"} for number in (1, 5, 6)]
    (tmp_path / "in" / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    table = "TABLE t (id INT PRIMARY KEY, at TIMESTAMP) USING json"
    text = tables(f"{table} LOCATION '{tmp_path / 'in'}' OPTIONS (timestamp 'at', keep '2 days')")
    view = built(spark, text).unwritten["v0"]
    sink = ts.to_memory("kept by an option")
    run(view.to(sink), checkpoint=tmp_path / "checkpoint", shards=1)
    left = {row["id"]: row["_change_type"] for row in sink.rows()}
    assert left == {1: "delete", 5: "upsert", 6: "upsert"}


def test_targets_get_their_options(spark: SparkSession, tmp_path: Path) -> None:
    text = f"CREATE TABLE t (id INT PRIMARY KEY) USING json LOCATION '{tmp_path}';\n"
    for number, target in enumerate(TARGETS):
        text += f"CREATE MATERIALIZED VIEW v{number} {target} AS SELECT * FROM t;\n"
    outputs = built(spark, text).written
    assert [(one.name, one.sink) for one in outputs] == [
        (f"v{number}", sink) for number, sink in enumerate(TARGETS.values())
    ]
    assert [one.output.before for one in outputs] == [False, True, False, False, False, False, False]


#: What statements say, and the sink in Python.
TARGETS: dict[str, ts.Sink] = {
    "USING delta LOCATION 'a'": ts.to_delta("a"),
    "USING delta LOCATION 'a' OPTIONS (mode 'changes', before true, storage_options.REGION 'x')": ts.to_delta(
        "a", mode="changes", storage_options={"REGION": "x"}
    ),
    "USING parquet LOCATION 'a' TBLPROPERTIES (options.compression = 'zstd')": ts.to_files(
        "a", options={"compression": "zstd"}
    ),
    "USING json LOCATION 'a'": ts.to_files("a", "json"),
    "USING postgres OPTIONS (table 'public.t', conninfo 'host=h', create 'true')": ts.to_postgres(
        "public.t", "host=h", create=True
    ),
    "USING kafka OPTIONS (topic 'a', bootstrap_servers 'h:1', key 'string')": ts.to_kafka(
        "a", bootstrap_servers="h:1", key="string"
    ),
    "USING console OPTIONS (n_rows 5)": ts.to_console(n_rows=5),
}
