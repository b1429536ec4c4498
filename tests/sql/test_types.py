"""Values of unlike types are compared as Spark compares them."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tests.sql.world import Described, MicroBatch, check, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "few": Described("k int, t string, d double, m decimal(8,2), day date", ("k",)),
    "many": Described("k bigint, n int, m decimal(12,4), moment timestamp, x int", ("k",)),
    "texts": Described("t string, x int", ("t",)),
    "floats": Described("d double, x int", ("d",)),
    "times": Described("moment timestamp, x int", ("moment",)),
}
COMPARED: dict[str, str | tuple[str, str]] = {
    "int and bigint": "SELECT f.k, m.x FROM few f LEFT JOIN many m ON f.k = m.k",
    "bigint key and double": "SELECT f.k, m.k AS mk, m.x FROM few f LEFT JOIN many m ON f.d = m.k",
    "double key and bigint": "SELECT m.k, f.d, f.x FROM many m FULL JOIN floats f ON f.d = m.k",
    "text and int key": (
        "SELECT t.t, f.k FROM texts t LEFT JOIN few f ON t.t = f.k",
        "SELECT t.t, f.k FROM texts t LEFT JOIN few f ON CAST(t.t AS BIGINT) = f.k",
    ),
    "int and text key": (
        "SELECT m.k, t.t, t.x FROM many m LEFT JOIN texts t ON m.n = t.t",
        "SELECT m.k, t.t, t.x FROM many m LEFT JOIN texts t ON m.n = CAST(t.t AS BIGINT)",
    ),
    "using": (
        "SELECT t, x FROM (SELECT k AS t FROM many) m JOIN texts USING (t)",
        "SELECT k AS t, t.x FROM many m JOIN texts t ON m.k = CAST(t.t AS BIGINT)",
    ),
    "decimals": "SELECT f.k, m.k AS mk FROM few f JOIN many m ON f.m = m.m",
    "date and time": "SELECT f.k, m.k AS mk FROM few f JOIN many m ON f.day = m.moment",
    "date and key": "SELECT f.k, t.x FROM few f LEFT JOIN times t ON f.day = t.moment",
    "null finds null": (
        "SELECT f.k, m.k AS mk FROM few f JOIN many m ON f.t <=> m.n",
        "SELECT f.k, m.k AS mk FROM few f JOIN many m ON CAST(f.t AS BIGINT) IS NOT DISTINCT FROM m.n",
    ),
    "in": (
        "SELECT k FROM few WHERE t IN (SELECT n FROM many)",
        "SELECT k FROM few WHERE CAST(t AS INT) IN (SELECT n FROM many)",
    ),
    "not in": (
        "SELECT k FROM many WHERE n NOT IN (SELECT t FROM texts)",
        "SELECT k FROM many WHERE n NOT IN (SELECT CAST(t AS INT) FROM texts)",
    ),
    "exists": "SELECT k FROM many m WHERE EXISTS (SELECT 1 FROM floats f WHERE f.d = m.k)",
    "a value": "SELECT k, (SELECT max(m.x) FROM many m WHERE m.moment = f.day) AS x FROM few f",
    "a row": "SELECT k, (SELECT x FROM times t WHERE t.moment = f.day) AS x FROM few f",
}

UNTYPED: dict[str, str | tuple[str, str]] = {
    "null": "SELECT k, NULL AS a, CASE WHEN k > 1 THEN NULL END AS b FROM few",
    "union": "SELECT k, NULL AS x FROM few UNION ALL SELECT k, NULL FROM many UNION ALL SELECT x, d FROM floats",
    "except": "SELECT NULL AS x FROM few EXCEPT SELECT x FROM floats",
    "aggregates": "SELECT t, max(NULL) AS m, count(NULL) AS n FROM few GROUP BY t",
    "subquery": "SELECT q.x, f.k FROM few f JOIN (SELECT k, NULL AS x FROM many) q ON f.k = q.k",
    "nothing is equal": "SELECT f.k, q.n FROM few f LEFT JOIN (SELECT NULL AS x, n FROM many) q ON f.k = q.x",
    "in": "SELECT k FROM few WHERE k NOT IN (SELECT NULL FROM many)",
    "where": "SELECT k FROM few WHERE NULL",
    "arrays": (
        "SELECT k, array() AS x FROM few UNION ALL SELECT k, array(n) FROM many",
        "SELECT k, [] AS x FROM few UNION ALL SELECT k, [n] FROM many",
    ),
}


def changes(seed: int, micro_batches: int) -> list[MicroBatch]:
    """Random changes: values that are equal in one type and not in another, nulls, moves and deletes."""
    drawn = random.Random(seed)
    days = [date(2024, 1, 1), date(2024, 1, 2), None]
    times = [datetime(2024, 1, 1), datetime(2024, 1, 2), datetime(2024, 1, 2, 5)]
    large = 2**53

    def row(name: str) -> dict[str, Any]:
        numbers = [1, 2, 3]
        money = [Decimal("1.50"), Decimal("2.00"), None]
        made: dict[str, dict[str, Any]] = {
            "few": {
                "k": drawn.choice(numbers),
                "t": drawn.choice(["1", "01", "2", None]),
                "d": drawn.choice([1.0, 2.5, float(large), None]),
                "m": drawn.choice(money),
                "day": drawn.choice(days),
            },
            "many": {
                "k": drawn.choice([1, 2, large, large + 1]),
                "n": drawn.choice([*numbers, None]),
                "m": drawn.choice(money),
                "moment": drawn.choice([*times, None]),
                "x": drawn.choice(numbers),
            },
            "texts": {"t": drawn.choice(["1", "01", "2", "002"]), "x": drawn.choice(numbers)},
            "floats": {"d": drawn.choice([1.0, 2.5, float(large)]), "x": drawn.choice(numbers)},
            "times": {"moment": drawn.choice(times), "x": drawn.choice(numbers)},
        }
        return made[name] | {"gone": drawn.random() < 0.2}

    return [
        {name: [row(name) for _ in range(drawn.randint(1, 4))] for name in TABLES}
        for _ in range(micro_batches)
    ]


def test_keys_of_unlike_types_are_compared_as_spark_compares_them(spark: SparkSession) -> None:
    check(spark, COMPARED, changes(1, 4), TABLES)


def test_columns_of_nothing_but_null_are_texts_and_take_the_type_of_a_union(spark: SparkSession) -> None:
    check(spark, UNTYPED, changes(2, 3), TABLES)
    tables = tables_of(spark, TABLES)
    kinds = {name: ts.sql(str(UNTYPED[name]), **tables).schema for name in ("null", "union", "except")}
    assert [one.dataType.simpleString() for one in kinds["null"]] == ["int", "string", "string"]
    assert [kinds[name]["x"].dataType.simpleString() for name in ("union", "except")] == ["double", "int"]


def test_a_key_that_a_cast_can_make_equal_to_another_is_no_whole_key(spark: SparkSession) -> None:
    tables = tables_of(spark, TABLES)
    assert ts.sql("SELECT f.k, m.x FROM few f JOIN many m ON f.k = m.k", **tables).key_columns == ["k"]
    assert ts.sql("SELECT f.k, m.x FROM few f JOIN many m ON f.d = m.k", **tables).key_columns == ["k", "m_k"]


def test_what_spark_does_not_compare_is_refused(spark: SparkSession) -> None:
    with pytest.raises(
        ts.errors.SqlRefusedError, match="type int cannot be compared with one of type timestamp"
    ):
        ts.sql("SELECT f.k FROM few f JOIN times t ON f.k = t.moment", **tables_of(spark, TABLES))
