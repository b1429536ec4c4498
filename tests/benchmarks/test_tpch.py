"""TPC-H's logs have its proportions and change what they should, and its queries give what DuckDB gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tablestream as ts
from benchmarks.cli import main
from benchmarks.contestants import CONTESTANTS, load
from benchmarks.in_duckdb import TypesDifferError, differing_rows, last_rows, opened
from benchmarks.launch import Task
from benchmarks.tpch.logs import KEYS, SCHEMAS, prepare_logs
from benchmarks.tpch.population import FIRST_DAY, LAST_DAY, Scale
from benchmarks.tpch.queries import QUERIES, Logs
from tests.benchmarks.through_driver import read, register, worked_off

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCALE = Scale(0.001, 0.1, 3)
#: More groups than a mistake could leave by chance.
GROUPS = {"q3": 5, "q5": 2, "q10": 30}
READS = {
    "q3": ("customer", "orders", "lineitem"),
    "q5": tuple(SCHEMAS),
    "q10": ("nation", "customer", "orders", "lineitem"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_logs(SCALE, tmp_path_factory.mktemp("tpch"))


def test_the_load_has_the_published_proportions_and_types(folder: Path) -> None:
    load_of = {kind: read(folder, kind)[0] for kind in SCHEMAS}
    assert {kind: len(log) for kind, log in load_of.items() if kind != "lineitem"} == {
        "region": 5,
        "nation": 25,
        "supplier": 100,
        "customer": 150,
        "orders": 1_500,
    }
    orders, lines = load_of["orders"], load_of["lineitem"]
    assert len(lines) / len(orders) == pytest.approx(4, rel=0.05)
    assert {key % 3 for key in orders["o_custkey"].to_pylist()} == {1, 2}
    assert {key % 32 for key in orders["o_orderkey"].to_pylist()} == set(range(1, 9))
    days = [day.toordinal() - 719_163 for day in orders["o_orderdate"].to_pylist()]
    assert FIRST_DAY <= min(days) < FIRST_DAY + 20
    assert LAST_DAY - 20 < max(days) <= LAST_DAY
    for kind, log in load_of.items():
        assert sorted(log.column_names) == sorted(column.split()[0] for column in SCHEMAS[kind].split(", "))
    assert lines.schema.field("l_extendedprice").type == pa.decimal128(15, 2)
    assert orders.schema.field("o_orderdate").type == pa.date32()


def test_an_order_charges_what_its_lines_charge(folder: Path) -> None:
    with opened(folder, KEYS) as database:
        sql = """
            select count(*), count(*) filter (abs(total - o_totalprice) >= 0.01 * lines) from orders join (
                select l_orderkey, count(*) as lines,
                sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as total
                from lineitem group by l_orderkey
            ) on l_orderkey = o_orderkey
        """
        assert database.sql(sql).fetchall() == [(1_500 + len(comes_back(folder)), 0)]


def comes_back(folder: Path) -> set[int]:
    """Orders that are changed after they were deleted, in one refresh."""
    found = set()
    for log in read(folder, "orders")[1:]:
        rows = zip(log["o_orderkey"].to_pylist(), log["deleted"].to_pylist(), strict=True)
        gone: set[int] = set()
        for key, deleted in rows:
            if deleted:
                gone.add(key)
            elif key in gone:
                found.add(key)
    return found


def test_refreshes_insert_change_and_delete_orders_and_move_the_others(folder: Path) -> None:
    with opened(folder, KEYS) as database:
        lines_of_none = database.sql(
            "select count(*) from lineitem where l_orderkey not in (select o_orderkey from orders)"
        ).fetchall()
    assert lines_of_none == [(0,)]
    orders, customers = read(folder, "orders"), read(folder, "customer")
    known = set(orders[0]["o_orderkey"].to_pylist())
    for log in orders[1:]:
        upserted = log.filter(pc.invert(log["deleted"]))
        keys = set(upserted["o_orderkey"].to_pylist())
        assert len(log) == 450
        assert (len(keys), len(keys - known)) == (300, 150)
        known |= keys
    keyed = [log.select(["c_custkey", "c_nationkey"]).to_pylist() for log in customers]
    nations = [{row["c_custkey"]: row["c_nationkey"] for row in log} for log in keyed]
    moved = [key for key, nation in nations[1].items() if nations[0][key] != nation]
    assert len(nations[1]) == 15
    assert len(moved) > 10


def test_every_change_has_a_time_of_its_own_and_files_follow_each_other(folder: Path) -> None:
    last = None
    times: Counter[object] = Counter()
    for number in range(SCALE.micro_batches):
        logs = [read(folder, kind)[number] for kind in ("supplier", "customer", "orders", "lineitem")]
        of_file = [time for log in logs for time in log["changed_at"].to_pylist()]
        assert all(log["changed_at"].to_pylist() == sorted(log["changed_at"].to_pylist()) for log in logs)
        assert last is None or last < min(of_file)
        last = max(of_file)
        times.update(of_file)
    assert set(times.values()) == {1}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", QUERIES)
def test_queries_give_what_duckdb_gives(spark: SparkSession, folder: Path, name: str) -> None:
    query = QUERIES[name]
    groups = query.groups(Logs(lambda kind: ts.testing.frame(spark, SCHEMAS[kind])))
    results = {"groups": (groups, query.sql), "result": (query.result(groups), query.result_sql)}
    driver = worked_off(folder, READS[name], {kind: table for kind, (table, _) in results.items()})
    with opened(folder, KEYS) as database:
        for kind, (_, sql) in results.items():
            register(database, kind, driver.table(kind))
            rows, wrong = differing_rows(database, f"select * from {kind}", sql)
            assert wrong == 0, kind
            assert rows >= min(GROUPS[name], query.limit or GROUPS[name]), kind
            of = database.sql(sql)
            assert str(of.types[of.columns.index("revenue")]) == "DECIMAL(38,4)"


@pytest.mark.exhaustive
def test_a_contestant_says_how_many_rows_are_not_those_of_duckdb(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_logs(replace(SCALE, micro_batches=2), tmp_path)
    right = QUERIES["q3"]
    fewer = f"{right.sql} having sum(l_extendedprice) < (select max(l_extendedprice) from lineitem)"
    monkeypatch.setitem(QUERIES, "q3", replace(right, sql=fewer))
    task = Task("tpch-q3", str(folder), str(tmp_path), jars="", micro_batches=2)
    run = load("tpch-q3")(spark, task)
    logs = [log for kind in ("customer", "orders", "lineitem") for log in read(folder, kind)]
    assert run.rows_in == sum(map(len, logs))
    with opened(folder, KEYS) as database:
        key = ["one", "rank"]
        expected = differing_rows(database, last_rows(tmp_path / "changes", key), right.result_sql)
        assert expected == (run.facts["rows of the final table"], 0)
        wrong = differing_rows(database, last_rows(tmp_path / "changes", key), QUERIES["q3"].result_sql)[1]
    assert wrong > 0
    assert run.facts["equal to DuckDB"] == f"NO: {wrong} rows differ"


def test_rows_and_types_are_compared_exactly() -> None:
    with duckdb.connect() as database:
        one, other = "select 1 as n, 1.10 as x", "select 2 as y, 1.10 as x, 1 as n"
        assert differing_rows(database, other, one) == (1, 0)
        assert differing_rows(database, f"{other} union all {other}", one) == (2, 1)
        assert differing_rows(database, "select 1 as n, 1.11 as x", one) == (1, 2)
        assert differing_rows(database, "select 1 as n, null::decimal(3,2) as x", one) == (1, 2)
        with pytest.raises(TypesDifferError, match=r"DECIMAL\(4,3\)"):
            differing_rows(database, "select 1 as n, 1.100 as x", one)


def test_every_query_is_a_contestant() -> None:
    names = {name for name in CONTESTANTS if name.startswith("tpch-")}
    assert names == {f"tpch-{name}" for name in QUERIES} | {"tpch-q5-sql"}
    for name in names - {"tpch-q5-sql"}:
        assert load(name).args == (name.removeprefix("tpch-"),)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--refreshed", "1.5", "give a share between 0 and 1"),
        ("--scale", "0", "give a number above 0"),
        ("--trades", "10", "--trades: give at least 100 for each micro-batch"),
        ("--fan-out", "2", "--fan-out: give at least 1 for each micro-batch"),
        ("--growth", "1000", "--growth: give at least 100 for each micro-batch"),
    ],
)
def test_sizes_that_leave_a_micro_batch_empty_are_refused(
    capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
) -> None:
    with pytest.raises(SystemExit):
        main(["tpch-q3", option, value])
    assert message in capsys.readouterr().err
