"""Every type of Spark's goes through: as a value of key joins and foreign-key joins, and as a key."""

from __future__ import annotations

import os
import shutil
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import zip_longest
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F

import tablestream as ts
from tests.spark.change_logs import START, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("as_users_have_it")

#: PySpark cannot show a timestamp of the first day of year 1 as Python's datetime.
FIRST, LAST = datetime(1, 1, 2), datetime(9999, 12, 31, 23, 59, 59, 999999)

#: Per type values that are easily lost; every column holds null, too.
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-(2**7), 2**7 - 1],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1, 0],
    "float": [nan, -0.0, inf, 1.5, 3.4028234663852886e38],
    "double": [nan, -0.0, -inf, 5e-324, 1.7976931348623157e308],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("0.00"), Decimal("1.10")],
    "decimal(38,18)": [Decimal("-99999999999999999999.999999999999999999"), Decimal("1E-18")],
    "decimal(38,0)": [Decimal(10**38 - 1), Decimal(0)],
    "string": ["", "\U0001f600\x00", "\uff5e", "a" * 1000, "\n\t'\"`"],
    "string collate UTF8_LCASE": ["Lower", "lower"],
    "binary": [b"", b"\x00\xff", bytes(300)],
    "date": [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)],
    "timestamp": [FIRST, LAST, datetime(1969, 12, 31, 23, 59, 59, 999999)],
    "timestamp_ntz": [FIRST, LAST, datetime(2024, 2, 29, 12, 30, 15, 1)],
    "interval day to second": [timedelta(microseconds=-1), timedelta(days=106751990), timedelta(0)],
    "interval hour": [timedelta(hours=-99999)],
    "struct<a: int, b: string>": [(1, "b"), (None, "b"), (None, None)],
    "struct<a: struct<b: struct<c: int>>>": [(((1,),),), (((None,),),), ((None,),), (None,)],
    "array<double>": [[nan, -0.0, None, 1.0], [], [None]],
    "array<array<int>>": [[[1, 2], [3]], [None, [], [None]]],
    "array<struct<a: int, b: binary>>": [[(1, b"x"), (None, None)], [None], []],
    "array<timestamp_ntz>": [[FIRST, None, LAST]],
    "array<string collate UTF8_LCASE>": [["A", None, "a"]],
    "map<string, int>": [{"a": 1, "": None}, {}, {str(n): n for n in range(50)}],
    "map<date, struct<p: int, q: timestamp>>": [{date(1, 1, 1): (1, LAST), LAST.date(): None}, {}],
    "map<int, map<string, array<decimal(10,2)>>>": [{1: {"x": [Decimal("1.10"), None]}, 2: {}, 3: None}],
    "struct<m: map<string, array<struct<d: date>>>>": [({"k": [(date(2024, 1, 1),), (None,), None]},), ({},)],
}
COLUMNS = {f"c{number}": kind for number, kind in enumerate(VALUES)}


def stream(spark: SparkSession, path: Path, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Write rows as one Parquet file, and read it as a stream."""
    written = path.with_suffix(".written")
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(written))
    path.mkdir()
    for file in written.glob("*.parquet"):
        shutil.move(file, path)
    return ts.from_files(spark, path, "parquet", schema)


def shown(row: Row, names: Sequence[str]) -> list[str]:
    """Values as text, in which NaN equals itself and -0.0 is not 0.0."""
    return [repr(row[name]) for name in names]


def test_values_come_out_of_joins_as_they_went_in(spark: SparkSession, tmp_path: Path) -> None:
    """Both sides of a foreign-key join, then, through the columns between two rounds, of a key join.

    The rows point at each other in a ring. The first one has nothing but nulls. Parquet has no struct without
    fields, so that column is made here.
    """
    rows = [(None,) * len(VALUES), *zip_longest(*VALUES.values())]
    numbered = [(n, (n + 1) % len(rows), *row) for n, row in enumerate(rows)]
    schema = ", ".join(["id int", "next int", *(f"{name} {kind}" for name, kind in COLUMNS.items())])
    empty = F.when(F.col("id") > 0, F.struct()).alias("empty")
    frame = stream(spark, tmp_path / "in", numbered, schema).select("*", empty)
    table = ts.table(frame, key="id", timestamp=F.timestamp_seconds("id"), name="table")
    names = [name for name in table.columns if name != "id"]
    pointed, same = (
        table.select(*(F.col(name).alias(f"{side}_{name}") for name in names), name=side)
        for side in ("pointed", "same")
    )
    joined = table.join(pointed, on="next", how="left").join(same, how="outer")
    sink = ts.to_memory("types")
    run(joined.to(sink), checkpoint=tmp_path / "checkpoint")

    given = spark.read.schema(schema).parquet(str(tmp_path / "in")).select("*", empty)
    by_id = {row["id"]: row for row in given.collect()}
    last = {row["id"]: row for row in sink.rows()}
    assert len(last) == len(rows)
    for number, row in last.items():
        own, pointed_at = shown(by_id[number], names), shown(by_id[(number + 1) % len(rows)], names)
        assert shown(row, names) == own
        assert shown(row, [f"same_{name}" for name in names]) == own
        assert shown(row, [f"pointed_{name}" for name in names]) == pointed_at
    kinds = {one.name: one.dataType.simpleString() for one in joined.changes().schema}
    for one in given.schema:
        assert {kinds[f"{side}{one.name}"] for side in ("", "same_", "pointed_") if one.name != "id"} <= {
            one.dataType.simpleString()
        }


#: Per type keys that are told apart, and some that are equal: NaN to itself, -0.0 to 0.0, also within others.
KEYS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [1, -1],
    "bigint": [2**62, 2**62 + 1],
    "float": [nan, -0.0, 0.0, nan, inf],
    "double": [nan, 0.0, -0.0, nan, 5e-324],
    "decimal(38,18)": [
        Decimal("1E-18"),
        Decimal("-1E-18"),
        Decimal("99999999999999999999.999999999999999999"),
    ],
    "string": ["", "a", "A", "a ", "\u00e9", "e\u0301", "\U0001f600"],
    "binary": [b"", b"\x00", b"\x00\x00", b"\xff"],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [FIRST, LAST],
    "timestamp_ntz": [FIRST, LAST],
    "interval day to second": [timedelta(0), timedelta(microseconds=-1)],
    "struct<a: double, b: string>": [
        (nan, "x"),
        (nan, "x"),
        (-0.0, None),
        (0.0, None),
        (None, None),
        (None, ""),
    ],
    "array<double>": [[], [nan], [-0.0, None], [0.0, None], [None], [nan]],
    "array<struct<a: float, b: binary>>": [[(-0.0, b"")], [(0.0, b"")], [None], [(None, None)]],
}


def canonical(key: Any) -> Any:
    """A key as something that is equal where the key is."""
    if isinstance(key, float):
        return "NaN" if key != key else key + 0.0  # noqa: PLR0124 - that is what NaN is
    return tuple(map(canonical, key)) if isinstance(key, list | tuple) else key


def test_keys_are_told_apart_and_found_again(spark: SparkSession, tmp_path: Path) -> None:
    """Each type as the key of a table that a second micro-batch changes, and that rows point at."""
    padded = list(zip_longest(*KEYS.values()))
    halves = [[(number, *keys) for number, keys in enumerate(padded, start)] for start in (0, len(padded))]
    names = [f"k{number}" for number in range(len(KEYS))]
    schema = ", ".join(["id int", *(f"{name} {kind}" for name, kind in zip(names, KEYS, strict=True))])
    log = tmp_path / "log"
    log.mkdir()
    for number, half in enumerate(halves):
        stream(spark, tmp_path / f"half{number}", half, schema)
        (file,) = (tmp_path / f"half{number}").iterdir()
        os.utime(file, (START + number, START + number))
        file.rename(log / f"{number}.parquet")
    frame = ts.from_files(spark, log, "parquet", schema, max_files_per_trigger=1)
    at = F.timestamp_seconds("id")
    pointing = ts.table(frame, key="id", timestamp=at, name="pointing")
    sinks = {name: ts.to_memory(name) for name in names}
    outputs = []
    for name in names:
        table = ts.table(frame, key=name, columns=["id"], timestamp=at, name=name)
        found = pointing.join(table, on=name, select=lambda _, to: [to.id.alias("found"), to[to.names[0]]])
        outputs.append(found.to(sinks[name], name=name))
    counts = run(*outputs, checkpoint=tmp_path / "checkpoint")

    rows = [row for half in halves for row in half]
    for place, name in enumerate(names, start=1):
        keyed = {row[0]: canonical(row[place]) for row in rows if row[place] is not None}
        last = {key: number for number, key in keyed.items()}
        final = {row["id"]: row for row in sinks[name].rows()}
        assert {number: row["found"] for number, row in final.items()} == {
            number: last[key] for number, key in keyed.items()
        }, name
        assert {number: canonical(row[name]) for number, row in final.items()} == keyed, name
        assert "-0.0" not in repr([row[name] for row in final.values()])
        assert counts[f"{name}: null-key"] == len(rows) - len(keyed)


WIDER = {
    "tinyint": "bigint",
    "int": "decimal(12,2)",
    "decimal(5,2)": "decimal(10,4)",
    "float": "double",
    "date": "timestamp_ntz",
    "interval hour": "interval day to second",
    "array<int>": "array<bigint>",
    "struct<a: date, b: smallint>": "struct<a: timestamp_ntz, b: int>",
}


def test_keys_of_two_types_are_compared_as_the_wider_one(spark: SparkSession, tmp_path: Path) -> None:
    """In a foreign-key join from the narrow type and in a key join; the result is keyed by the wider type."""
    given = [
        1,
        12,
        Decimal("1.20"),
        0.5,
        date(2024, 2, 29),
        timedelta(hours=25),
        [1, None],
        (date(2024, 1, 1), 7),
    ]
    narrow = [f"n{number}" for number in range(len(WIDER))]
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(narrow, WIDER, strict=True))
    frame = stream(spark, tmp_path / "in", [(1, *given)], f"id int, {schema}")
    casts = [
        F.col(name).cast(kind).alias(f"w_{name}") for name, kind in zip(narrow, WIDER.values(), strict=True)
    ]
    frame = frame.select("*", *casts)
    at = F.lit(FIRST)
    pointing = ts.table(frame, key="id", timestamp=at, name="pointing")
    sinks, outputs = {}, []
    for name, kind in zip(narrow, WIDER.values(), strict=True):
        tables = [
            ts.table(frame, key=key, columns=["id"], timestamp=at, name=key) for key in (name, f"w_{name}")
        ]
        joined = {
            f"{name} by key": tables[0].join(tables[1], suffixes=("", "_w")),
            f"{name} foreign": pointing.select(name).join(tables[1], on=name, suffixes=("", "_w")),
        }
        wide = frame.select(f"w_{name}").schema[0].dataType
        assert joined[f"{name} by key"].schema[0].dataType.simpleString() == wide.simpleString(), kind
        for title, one in joined.items():
            sinks[title] = ts.to_memory(title)
            outputs.append(one.to(sinks[title], name=title))
    run(*outputs, checkpoint=tmp_path / "checkpoint")
    for title, sink in sinks.items():
        (row,) = {repr(row[0]): row for row in sink.rows()}.values()
        assert row["_change_type"] == "upsert", title
    assert sinks["n1 by key"].rows()[0]["n1"] == Decimal("12.00")
