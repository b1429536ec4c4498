"""Small tables that change, and what a query over them gives here and in DuckDB after each micro-batch."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

import tablestream as ts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

Row = dict[str, Any]
#: A micro-batch: rows by table; a row with ``gone`` deletes its key.
MicroBatch = dict[str, list[Row]]


@dataclass(frozen=True)
class Described:
    """A table of the tests: its columns in the types of Spark and of DuckDB, and its key."""

    columns: str
    key: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [one.split()[0] for one in self.columns.split(", ")]


TABLES = {
    "people": Described("id int, city string, boss int, age int, paid decimal(8,2)", ("id",)),
    "cities": Described("city string, country string, size int", ("city",)),
    "visits": Described("who int, day int, place string, spent double", ("who", "day")),
    "notes": Described("note string, who int, stars int", ("note",)),
    "wages": Described("id int, wage int", ("id",)),
}


def changes(seed: int, micro_batches: int = 3, most: int = 9) -> list[MicroBatch]:
    """Random changes: rows with nulls and duplicates, that move to other keys, are deleted and come again."""
    drawn = random.Random(seed)
    return [
        {name: [_row(name, drawn) for _ in range(drawn.randint(1, most))] for name in TABLES}
        for _ in range(micro_batches)
    ]


def _row(name: str, drawn: random.Random) -> Row:
    def some(*values: Any) -> Any:
        return drawn.choice([*values, None])

    city, number = some("Rome", "Oslo", "Lima", "Bonn"), drawn.randint(1, 5)
    row: Row = {
        "people": lambda: {
            "id": number,
            "city": city,
            "boss": some(1, 2, 3, 4),
            "age": some(20, 30, 30, 40),
            "paid": some(Decimal("10.50"), Decimal("20.25"), Decimal("0.01")),
        },
        "cities": lambda: {
            "city": drawn.choice(["Rome", "Oslo", "Lima", "Kiel"]),
            "country": some("IT", "NO", "PE"),
            "size": some(1, 2, 3, 30),
        },
        "visits": lambda: {
            "who": drawn.randint(1, 4),
            "day": drawn.randint(1, 3),
            "place": city,
            "spent": some(1.5, 2.25, 3.0),
        },
        "notes": lambda: {"note": drawn.choice("abcd"), "who": some(1, 2, 3, 9), "stars": some(1, 2, 3, 3)},
        "wages": lambda: {"id": number, "wage": some(1, 2, 2)},
    }[name]()
    return row | {"gone": drawn.random() < 0.2}


@dataclass
class World:
    """The rows of the tables, as DuckDB has them."""

    described: Mapping[str, Described] = field(default_factory=lambda: TABLES)
    rows: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=dict)

    def apply(self, batch: MicroBatch) -> None:
        """Apply a micro-batch to the rows."""
        for name, changed in batch.items():
            kept, key = self.rows.setdefault(name, {}), self.described[name].key
            for row in changed:
                place = tuple(row[part] for part in key)
                kept.pop(place, None)
                if not row["gone"]:
                    kept[place] = row

    def database(self) -> duckdb.DuckDBPyConnection:
        """The rows in DuckDB."""
        database = duckdb.connect()
        database.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for name, one in self.described.items():
            database.execute(f"CREATE TABLE {name} ({one.columns})")
            rows = [[row[column] for column in one.names] for row in self.rows.get(name, {}).values()]
            if rows:
                filled = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=one.names)
                database.register("filled", filled)
                database.execute(f"INSERT INTO {name} SELECT * FROM filled")
                database.unregister("filled")
        return database


def tables_of(spark: SparkSession, described: Mapping[str, Described] | None = None) -> dict[str, ts.Table]:
    """Each table, read from a log."""
    return {
        name: ts.table(
            ts.testing.frame(spark, f"{one.columns}, gone boolean"),
            list(one.key),
            apply_as_deletes="gone",
            except_columns="gone",
            name=name,
        )
        for name, one in (described or TABLES).items()
    }


def check(
    spark: SparkSession,
    queries: Mapping[str, str | tuple[str, str]],
    batches: Sequence[MicroBatch],
    described: Mapping[str, Described] | None = None,
    *,
    lively: bool = False,
    still: Collection[str] = (),
) -> None:
    """Run queries in one driver, and compare their tables with DuckDB's after each micro-batch.

    A query of two texts is that for Spark, then that for DuckDB. With `lively`, results have rows, and change in half
    of the micro-batches behind the first one, apart from those that are `still`.
    """
    tables = tables_of(spark, described)
    texts = {name: (one, one) if isinstance(one, str) else one for name, one in queries.items()}
    outputs = {name: (ts.sql(here, **tables), there) for name, (here, there) in texts.items()}
    seen, moved = compare(outputs, batches, described, shards=2)
    least = max(1, (len(batches) - 1) // 2)
    dull = [name for name in texts if min(seen[name], moved[name]) < least and name not in still]
    assert not (lively and dull), (dull, seen, moved)


def compare(
    outputs: Mapping[str, tuple[ts.Table | ts.Stream, str]],
    batches: Sequence[MicroBatch],
    described: Mapping[str, Described] | None = None,
    *,
    shards: int,
) -> tuple[Counter[str], Counter[str]]:
    """Compare tables with what DuckDB says to a query, after each micro-batch.

    Return in how many micro-batches each had rows, and in how many behind the first one it changed.
    """
    seen, moved = Counter[str](), Counter[str]()
    before = {name: Counter[tuple[Any, ...]]() for name in outputs}
    world = World(described or TABLES)
    driver = ts.testing.Driver(
        *(table.to(ts.to_memory(name), name=name) for name, (table, _) in outputs.items()), shards=shards
    )
    sources = set(driver._sources)
    for number, batch in enumerate(batches):
        world.apply(batch)
        for name in sources & set(batch):
            driver.pipe(name, batch[name])
        driver.run()
        with world.database() as database:
            for name, (_, there) in outputs.items():
                found = database.execute(there)
                columns = [one[0] for one in found.description or ()]
                expected = counted(found.fetchall())
                given = driver.table(name)
                seen[name] += bool(expected)
                moved[name] += number > 0 and expected != before[name]
                before[name] = expected
                places = {one.lower(): place for place, one in enumerate(given.schema.names)}
                actual = counted([row[places[one.lower()]] for one in columns] for row in given)
                assert actual == expected, (
                    f"{name} after micro-batch {number}: {actual - expected} | {expected - actual}"
                )
    return seen, moved


def counted(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a bag, with numbers of one kind."""
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}")
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value


def check_as_spark(spark: SparkSession, queries: Mapping[str, str], batches: Sequence[MicroBatch]) -> None:
    """Run queries in one driver, and compare their tables with what Spark makes of all rows, after each micro-batch."""
    tables = tables_of(spark)
    outputs = {name: ts.sql(text, **tables) for name, text in queries.items()}
    driver = ts.testing.Driver(*(one.to(ts.to_memory(name), name=name) for name, one in outputs.items()))
    world, sources = World(), set(driver._sources)
    for number, batch in enumerate(batches):
        world.apply(batch)
        for name in sources & set(batch):
            driver.pipe(name, batch[name])
        driver.run()
        for name in sources:
            rows = [[row[one] for one in TABLES[name].names] for row in world.rows[name].values()]
            spark.createDataFrame(rows, TABLES[name].columns).createOrReplaceTempView(name)
        for name, text in queries.items():
            expected = spark.sql(text)
            given = driver.table(name)
            assert set(expected.columns) <= set(given.schema.names), name
            types = [given.schema[one].dataType.simpleString() for one in expected.columns]
            assert types == [one.dataType.simpleString() for one in expected.schema], name
            actual = counted([row[one] for one in expected.columns] for row in given)
            wanted = counted(expected.collect())
            assert actual == wanted, (
                f"{name} after micro-batch {number}: {actual - wanted} | {wanted - actual}"
            )
