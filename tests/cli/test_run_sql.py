"""``tablestream run``, ``explain`` and ``diagram`` of a file of SQL statements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

import tablestream as ts
from examples import ten_lines
from tablestream.cli import app
from tablestream.cli.exit_codes import ExitCode
from tablestream.spark import generations
from tablestream.spark.stored_plan import stored_facts
from tablestream.topology.graph import ancestors
from tests.spark.change_logs import ChangeLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(ten_lines.__file__).parent / "holdings.sql"
TABLE = """
CREATE TABLE orders (id INT, sku STRING, amount INT, at TIMESTAMP, PRIMARY KEY (id))
  USING json LOCATION '${dir}/orders' OPTIONS (timestamp 'at', columns ('sku', 'amount'));
"""
#: The rows of the example's maintained table, from the whole logs.
BATCH = """
SELECT ticker, count(*) AS positions, sum(amount * price) AS worth
FROM (SELECT *, row_number() OVER (PARTITION BY position_id ORDER BY at DESC) AS n FROM {positions}) AS p
LEFT JOIN (SELECT *, row_number() OVER (PARTITION BY ticker ORDER BY at DESC) AS n FROM {tickers}) AS t
USING (ticker)
WHERE p.n = 1 AND coalesce(p.op, 'u') != 'd' AND coalesce(t.n, 1) = 1
GROUP BY ticker
"""


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def file(directory: Path, text: str) -> tuple[str, ...]:
    """Write a file of statements, and return what names it for a command."""
    path = directory / "query.sql"
    path.write_text(text, encoding="utf-8")
    return (str(path), "--set", f"dir={directory}")


def orders(directory: Path) -> ChangeLog:
    log = ChangeLog(directory / "orders", "id int, sku string, amount int, at timestamp")
    log.add([{"id": 1, "sku": "cup", "amount": 2, "at": "2024-01-02T09:00:00Z"}])
    return log


def test_the_example_runs_goes_on_and_has_what_batch_sql_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as the README's, in SQL: a log of changes, and a maintained table."""
    monkeypatch.chdir(tmp_path)
    ten_lines.write_log("positions", ten_lines.POSITIONS)
    ten_lines.write_log("tickers", ten_lines.TICKERS)
    words = ("run", str(EXAMPLE), "--set", f"logs={tmp_path}/logs", "--set", f"out={tmp_path}/out")
    command = (*words, "--checkpoint", str(tmp_path / "checkpoint"), "--once")

    def same_as_batch() -> None:
        logs: dict[str, Any] = {
            one: spark.read.json(f"{tmp_path}/logs/{one}") for one in ("positions", "tickers")
        }
        rows = spark.sql(BATCH, **logs).collect()
        kept = DeltaTable(f"{tmp_path}/out/by_ticker").to_pyarrow_table().to_pylist()
        assert sorted((one["ticker"], one["positions"], one["worth"]) for one in kept) == sorted(
            map(tuple, rows)
        )

    first = invoked(*command)
    assert first.exit_code == ExitCode.OK, first.output
    same_as_batch()
    more = Path("logs", "positions", "1.json")
    more.write_text('{"position_id": 3, "ticker": "BOLT", "amount": 5, "at": "2024-01-02T09:10:00Z"}\n')
    assert invoked(*command).exit_code == ExitCode.OK
    same_as_batch()
    log = spark.read.parquet(f"{tmp_path}/out/holdings").orderBy("_order")
    assert log.columns[:5] == ["position_id", "ticker", "amount", "price", "worth"]
    changes = [(one["position_id"], one["_change_type"], one["worth"]) for one in log.collect()]
    assert [number for number, _, _ in changes] == [1, 1, 2, 2, 2, 1, 1, 3]
    assert changes[-2:] == [(1, "delete", None), (3, "upsert", 20.0)]


@pytest.mark.usefixtures("spark")
def test_a_view_that_says_no_target_goes_where_the_command_says(tmp_path: Path) -> None:
    orders(tmp_path)
    text = TABLE + "CREATE MATERIALIZED VIEW all_orders AS SELECT * FROM orders;\n"
    text += "CREATE MATERIALIZED VIEW big AS SELECT * FROM all_orders WHERE amount > 1"
    target = file(tmp_path, text)
    shown = invoked("run", *target, "--checkpoint", str(tmp_path / "one"), "--once", "--json")
    assert shown.exit_code == ExitCode.OK, shown.output
    changes = [one for one in map(json.loads, shown.stdout.splitlines()) if one["event"] == "change"]
    assert [(one["output"], one["row"]["sku"]) for one in changes] == [("big", "cup")]
    files = tmp_path / "files"
    written = invoked(
        "run", *target, "--checkpoint", str(tmp_path / "two"), "--once", "--to", f"parquet:{files}"
    )
    assert written.exit_code == ExitCode.OK, written.output
    assert pl.read_parquet(f"{files}/*/*.parquet")["sku"].to_list() == ["cup"]

    all_written = file(tmp_path, text.replace("VIEW big", "VIEW big USING console"))
    refused = invoked("run", *all_written, "--checkpoint", str(tmp_path / "three"), "--to", "console")
    assert refused.exit_code == ExitCode.COULD_NOT_RUN
    assert "The outputs say themselves where they are written." in refused.stderr
    several = file(tmp_path, text + ";\n" + "CREATE MATERIALIZED VIEW few AS SELECT * FROM orders")
    refused = invoked("run", *several, "--checkpoint", str(tmp_path / "four"), "--to", "json:out")
    assert refused.exit_code == ExitCode.COULD_NOT_RUN
    assert "Two outputs have the target 'files out'." in refused.stderr


@pytest.mark.usefixtures("spark")
def test_the_plan_of_a_file_is_shown(tmp_path: Path) -> None:
    orders(tmp_path)
    view = "CREATE MATERIALIZED VIEW v USING console AS SELECT sku FROM orders WHERE sku <> '${sku}'"
    target = (*file(tmp_path, TABLE + view), "--set", "sku=x")
    explained = invoked("explain", *target)
    assert explained.exit_code == ExitCode.OK, explained.output
    assert "Source orders (key id)" in explained.stdout
    assert "Output v (key id)" in explained.stdout
    assert "Target console" in explained.stdout
    assert "query.sql:4:68 WHERE sku <> '${sku}'\n    becomes filter: without state\n" in explained.stdout
    drawn = invoked("diagram", *target)
    assert drawn.exit_code == ExitCode.OK, drawn.output
    assert "flowchart LR" in drawn.stdout
    wrong = view.replace("sku <>", "uuid() <> 'x' AND nope = 1 AND sku <>")
    refused = invoked("explain", *file(tmp_path, TABLE + wrong), "--set", "sku=x").stderr
    assert "query.sql has 2 mistakes." in refused
    assert refused.count("WHERE: ") == 2


def test_a_changed_file_goes_on_where_the_old_one_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """The view gets a column and another condition: its table is brought over from the rows in the state."""
    log, checkpoint = orders(tmp_path), tmp_path / "checkpoint"
    view = "CREATE MATERIALIZED VIEW v USING delta LOCATION '${dir}/v' AS\n"
    old = view + "SELECT sku, count(*) AS n FROM orders WHERE amount > 1 GROUP BY sku"
    new = view + "SELECT sku, count(*) AS n, sum(amount) AS total FROM orders GROUP BY sku"

    def ran(text: str, *options: str) -> Result:
        return invoked(
            "run", *file(tmp_path, TABLE + text), "--checkpoint", str(checkpoint), "--once", *options
        )

    log.add([{"id": 2, "sku": "cup", "amount": 1, "at": "2024-01-02T09:00:00Z"}])
    first = ran(old, "--evolvable", "--shards", "3")
    assert first.exit_code == ExitCode.OK, first.output
    assert "TABLESTREAM_PLAN_CHANGED" in ran(new).stderr
    second = ran(new, "--on-plan-change", "evolve")
    assert second.exit_code == ExitCode.OK, second.output
    assert DeltaTable(str(tmp_path / "v")).to_pyarrow_table().to_pylist() == [
        {"sku": "cup", "n": 2, "total": 3}
    ]
    facts = stored_facts(spark, generations.current(spark, str(checkpoint)).path)
    assert facts is not None
    assert facts.shards == 3


def test_mistakes_of_a_file_are_told_before_spark_starts(tmp_path: Path) -> None:
    target = file(tmp_path, TABLE.replace("timestamp 'at'", "timestmp 'at'") + "SELECT ${n}")
    refused = invoked("run", *target, "--set", "n=1", "--checkpoint", str(tmp_path / "checkpoint"))
    assert refused.exit_code == ExitCode.COULD_NOT_RUN
    assert refused.stderr.splitlines()[:2] == [
        "Error TABLESTREAM_SQL_FILE: query.sql has 2 mistakes.",
        "query.sql:3:48: The table orders of json has no option timestmp. Did you mean timestamp?",
    ]
    unkept = file(tmp_path, TABLE + "CREATE MATERIALIZED VIEW v AS SELECT * FROM orders")
    for words, why in (
        (("run", *unkept), "The query needs a checkpoint"),
        (("explain", str(tmp_path / "none.sql")), "cannot be read"),
        (("explain", target[0], "--set", "n"), "--set n is not a name with a value."),
        (("explain", "module:thing", "--set", "n=1"), "--set gives values to a file of SQL statements"),
    ):
        assert why in invoked(*words).stderr


def test_what_spark_refuses_is_told_for_each_statement(spark: SparkSession, tmp_path: Path) -> None:
    text = (
        "CREATE TABLE a (id INT, n INTT, PRIMARY KEY (id)) USING json LOCATION '${dir}';\n"
        "CREATE TABLE b (id INT, PRIMARY KEY (id)) USING json LOCATION '${dir}/none';\n"
        "CREATE TABLE c (id INT, n INT, PRIMARY KEY (id)) USING json LOCATION '${dir}' OPTIONS (timestamp 'n');\n"
        "CREATE VIEW d AS SELECT * FROM b;\n"
        "CREATE MATERIALIZED VIEW e AS SELECT * FROM d;\n"
        "CREATE TABLE f (id INT, n INT, PRIMARY KEY (id)) USING json LOCATION '${dir}';\n"
        "CREATE STREAM h (n INT) USING csv LOCATION '${dir}';\n"
        "CREATE MATERIALIZED VIEW i USING json LOCATION 'a' OPTIONS (before true) AS SELECT * FROM h;\n"
        "CREATE MATERIALIZED VIEW g AS\n  SELECT '${dir}' AS x, m FROM f WHERE n > rand();\n"
    )
    path = file(tmp_path, text)[0]
    with pytest.raises(ts.errors.SqlFileError) as found:
        ts.sql_file(spark, path, variables={"dir": str(tmp_path)})
    assert found.value.reason == "query.sql has 6 mistakes."
    told = found.value.hint.splitlines()
    assert told[0].startswith("query.sql:1:14: a: The schema 'id INT, n INTT' cannot be parsed.")
    assert told[1].startswith("query.sql:2:14: b: There is no directory ")
    assert told[2].startswith("query.sql:3:14: c: ")
    assert "timestamp" in told[2]
    assert told[3] == "query.sql:8:26: i is a stream, which has no option before. Omit it."
    assert told[4].startswith("query.sql:10:25: SELECT: There is no column m.")
    assert told[5].startswith("query.sql:10:40: WHERE: ")


def test_a_file_is_outputs_for_start_and_errors_name_its_lines(spark: SparkSession, tmp_path: Path) -> None:
    orders(tmp_path)
    path = file(tmp_path, TABLE + "CREATE MATERIALIZED VIEW v AS SELECT * FROM orders")[0]
    (output,) = ts.sql_file(spark, path, variables={"dir": str(tmp_path)})
    assert repr(output) == "Output 'v' to console"
    assert {one.where for one in ancestors(output.output.node)} == {"query.sql:2"}


def test_a_star_of_a_view_stands_for_the_columns_of_its_query(spark: SparkSession, tmp_path: Path) -> None:
    orders(tmp_path)
    views = "CREATE VIEW skus AS SELECT sku FROM orders;\nCREATE MATERIALIZED VIEW v AS SELECT DISTINCT * FROM skus"
    (output,) = ts.sql_file(spark, file(tmp_path, TABLE + views)[0], variables={"dir": str(tmp_path)})
    node = output.output.node
    assert [one.name for one in (*node.key, *node.value)] == ["sku"]
