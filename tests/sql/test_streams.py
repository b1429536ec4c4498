"""Streams in SQL: their joins with tables, versions as of a time, windows of time, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.sql.program import program_of
from tests.marks import quick_first
from tests.sql.test_refused import PLACE, plan
from tests.sql.world import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

Row = dict[str, Any]
COLUMNS = {
    "trades": "id int, sym string, qty int, seen timestamp, at timestamp",
    "keyed": "id int, sym string, qty int, seen timestamp, at timestamp",
    "orders": "id int, sym string, qty int, seen timestamp, at timestamp",
    "quotes": "sym string, price int, at timestamp",
    "firms": "sym string, name string, at timestamp",
}
KEYS = {"trades": None, "keyed": "id", "orders": "id", "quotes": "sym", "firms": "sym"}
BEGIN = datetime(1969, 12, 31, 23, 30)


@pytest.fixture(scope="module")
def relations(spark: SparkSession) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, columns in COLUMNS.items():
        frame, key = ts.testing.frame(spark, columns), KEYS[name]
        if name in {"trades", "keyed"}:
            found[name] = ts.stream(frame, key, timestamp="at", name=name)
        else:
            history = "3 days" if name == "quotes" else None
            found[name] = ts.table(frame, key, timestamp="at", history=history, name=name)  # type: ignore[arg-type]
    return found


def drawn_trade(drawn: random.Random, minute: int) -> Row:
    """A trade about a minute, which may be late. Many share a time, and some have no symbol or were not seen."""
    at = BEGIN + timedelta(minutes=minute - drawn.choice([0, 0, 1, 3]), seconds=drawn.choice([0, 0, 30]))
    seen = drawn.choice(
        [at, at + timedelta(minutes=drawn.randint(-20, 20), microseconds=drawn.randint(0, 2)), None]
    )
    sym = drawn.choice(["A", "B", "C", "Z", None])
    return {"sym": sym, "qty": drawn.choice([1, 2, 3, None]), "seen": seen, "at": at}


def drawn_quotes(drawn: random.Random, first: int, last: int, count: int) -> list[Row]:
    """Versions of quotes; several may share a time, and they come in any order."""
    return [
        {
            "sym": drawn.choice(["A", "B", "C"]),
            "price": drawn.choice([1, 2, 3, None]),
            "at": BEGIN + timedelta(minutes=drawn.randint(first, last)),
        }
        for _ in range(count)
    ]


def drawn_trades(drawn: random.Random, ids: Sequence[int], first: int, last: int) -> list[Row]:
    return [{"id": one} | drawn_trade(drawn, drawn.randint(first, last)) for one in ids]


class Running:
    """Queries in one driver, with all that their outputs emitted."""

    def __init__(self, relations: Mapping[str, Any], queries: Mapping[str, str]) -> None:
        self.outputs = {name: ts.sql(query, **relations) for name, query in queries.items()}
        self.driver = ts.testing.Driver(
            *(one.to(ts.to_memory(name), name=name) for name, one in self.outputs.items()), shards=2
        )
        self.records: dict[str, list[Any]] = {name: [] for name in queries}
        self.given: dict[str, list[Row]] = {}

    def run(self, rows: Mapping[str, list[Row]]) -> None:
        for name, some in rows.items():
            self.given.setdefault(name, []).extend(some)
            if name in self.driver._sources:
                self.driver.pipe(name, some)
        self.driver.run()
        for name in self.records:
            self.records[name] += self.driver.changes(name)

    def found(self, name: str, columns: Sequence[str]) -> Counter[tuple[Any, ...]]:
        is_table = isinstance(self.outputs[name], ts.Table)
        rows = self.driver.table(name) if is_table else self.records[name]
        return counted([row[column] for column in columns] for row in rows)

    def check_by_spark(self, spark: SparkSession, queries: Mapping[str, str]) -> None:
        """Compare with what Spark computes of all records: those of a table are its last ones."""
        for name, rows in self.given.items():
            is_table = name == "orders"
            kept = list({row["id"]: row for row in rows}.values()) if is_table else rows
            spark.createDataFrame(kept, COLUMNS[name]).createOrReplaceTempView(name)
        for name, query in queries.items():
            expected = spark.sql(query)
            assert self.found(name, expected.columns) == counted(expected.collect()), name


#: Queries that Spark computes of all records at once.
RECORDS = {
    "filtered": "SELECT id, qty + 1 AS more FROM trades WHERE qty > 1 OR sym IS NULL",
    "no key": "SELECT upper(sym) AS big FROM keyed WHERE NOT qty = 2",
    "groups": "SELECT sym, count(*) AS n, sum(qty) AS s, count(DISTINCT qty) AS d FROM trades GROUP BY sym HAVING count(*) > 1",
    "all": "SELECT count(*) AS n, max(qty) AS most FROM trades",
    "distinct": "SELECT DISTINCT sym, qty FROM keyed",
    "rollup": "SELECT sym, qty, count(*) AS n, grouping(qty) AS g FROM trades GROUP BY ROLLUP (sym, qty)",
    "union all": "SELECT sym, qty FROM trades UNION ALL SELECT upper(sym), 0 FROM trades WHERE qty = 1",
    "union all of keys": "SELECT id, sym FROM keyed UNION ALL SELECT id, 'none' FROM keyed",
    "union": "SELECT sym FROM trades UNION SELECT sym FROM trades WHERE qty = 1",
    "with": "WITH big AS (SELECT sym, qty FROM trades WHERE qty > 1) SELECT sym, max(qty) AS m FROM big GROUP BY 1",
}
WINDOWS = {
    "window": "SELECT window(seen, '5 minutes') AS w, count(*) AS n FROM trades GROUP BY window(seen, '5 minutes')",
    "unnamed": "SELECT window, sym, sum(qty) AS s FROM trades GROUP BY sym, window(seen, '7 minutes') HAVING count(*) > 1",
    "fields": "SELECT window.start, window.end AS e, count(*) AS n FROM trades GROUP BY window(seen, '1 hour 10 minutes')",
    "alias": "SELECT window(at, '2 minutes 30 seconds') AS w, count(*) AS n FROM keyed GROUP BY w",
    "start": "SELECT window(seen, '10 minutes', '10 minutes', '3 minutes').start AS s, max(qty) AS m FROM trades GROUP BY 1",
    "hops": """
        SELECT window.start, window.end, sym, count(*) AS n FROM trades
        GROUP BY window(seen, '10 minutes', '5 minutes'), sym
    """,
    "uneven hops": "SELECT window(seen, '7 minutes', '3 minutes') AS w, count(*) AS n FROM keyed GROUP BY 1",
    "hops from a start": "SELECT window.end, sum(qty) AS s FROM keyed GROUP BY window(at, '4 minutes', '3 minutes', '2 minutes')",
    "of each record": "SELECT id, window(seen, '5 minutes').start AS s FROM trades WHERE qty > 1",
    "hops of each record": "SELECT id, window(seen, '10 minutes', '5 minutes') AS w FROM keyed",
    "of a table": "SELECT window.start, count(*) AS n, sum(qty) AS s FROM orders GROUP BY window(seen, '5 minutes')",
    "hops of a table": "SELECT window, sym, count(*) AS n FROM orders GROUP BY window(seen, '10 minutes', '4 minutes'), sym",
}
#: The words of Flink, each with a query of Spark that means the same.
FLINK = {
    "tumble": (
        """
        SELECT window_start, window_end, window_time, count(*) AS n
        FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(seen), INTERVAL '5' MINUTES))
        GROUP BY window_start, window_end, window_time
        """,
        """
        SELECT window.start AS window_start, window.end AS window_end,
            window.end - INTERVAL '0.001' SECONDS AS window_time, count(*) AS n
        FROM trades GROUP BY window(seen, '5 minutes')
        """,
    ),
    "hop": (
        """
        SELECT t.window_start AS s, t.sym, sum(t.qty) AS q
        FROM HOP(TABLE trades, DESCRIPTOR(seen), INTERVAL '5' MINUTES, INTERVAL '15' MINUTES) AS t
        GROUP BY t.window_start, t.window_end, t.sym
        """,
        """
        SELECT window.start AS s, sym, sum(qty) AS q FROM trades GROUP BY window(seen, '15 minutes', '5 minutes'), sym
        """,
    ),
    "offsets": (
        """
        SELECT a.window_end AS e, count(*) AS n
        FROM TUMBLE(TABLE keyed, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '1' MINUTE) a GROUP BY a.window_end
        """,
        "SELECT window.end AS e, count(*) AS n FROM keyed GROUP BY window(at, '5 minutes', '5 minutes', '1 minute')",
    ),
    "table of a name": (
        """
        WITH big AS (SELECT id, seen FROM orders WHERE qty > 1)
        SELECT id, window_start FROM TABLE(HOP(TABLE big, DESCRIPTOR(seen), INTERVAL '5' MINUTES, INTERVAL 10 MINUTES))
        """,
        """
        SELECT id, w.start AS window_start
        FROM (SELECT id, window(seen, '10 minutes', '5 minutes') AS w FROM orders WHERE qty > 1)
        """,
    ),
}


def parts(names: Sequence[str], size: int) -> list[list[str]]:
    return [list(names[at : at + size]) for at in range(0, len(names), size)]


@pytest.mark.parametrize("names", quick_first(parts([*RECORDS, *WINDOWS, *FLINK], 9)))
def test_queries_of_records_give_what_batch_spark_gives(
    spark: SparkSession, relations: dict[str, Any], names: list[str]
) -> None:
    here = {**RECORDS, **WINDOWS, **{name: one for name, (one, _) in FLINK.items()}}
    there = {**RECORDS, **WINDOWS, **{name: one for name, (_, one) in FLINK.items()}}
    running, drawn = Running(relations, {name: here[name] for name in names}), random.Random(3)
    for number in range(3):
        ids = range(12 * number, 12 * number + 12)
        trades = drawn_trades(drawn, ids, 10 * number, 10 * number + 9)
        orders = drawn_trades(drawn, [drawn.randint(1, 6) for _ in range(8)], 0, 29)
        for place, one in enumerate(orders):  # the last one written is the row
            one["at"] = BEGIN + timedelta(minutes=10 * number, seconds=place)
        running.run({"trades": trades, "keyed": trades, "orders": orders})
        running.check_by_spark(spark, {name: there[name] for name in names})


#: Joins of records with versions, which DuckDB has as ASOF JOIN; with the conditions that it has elsewhere.
AS_OF = {
    "system time": "SELECT t.id, q.price FROM trades t JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON t.sym = q.sym",
    "left": "SELECT t.id, q.price, q.sym AS theirs FROM keyed t LEFT JOIN quotes FOR SYSTEM_TIME AS OF t.at q ON q.sym = t.sym",
    "asof": "SELECT t.id, q.price FROM keyed t ASOF JOIN quotes q ON t.sym = q.sym AND t.at >= q.at",
    "asof left": """
        SELECT t.id, q.price, q.at AS since FROM trades t ASOF LEFT JOIN quotes q ON t.sym = q.sym AND q.at <= t.at
    """,
    "with more": """
        SELECT t.id, f.name, q.price FROM trades t JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON t.sym = q.sym
        LEFT JOIN firms f ON f.sym = t.sym WHERE q.price > 1 AND t.qty < 3
    """,
    "renamed": """
        SELECT x.n, q.price FROM (SELECT id AS n, sym AS s, at AS happened FROM trades) x, quotes TIMESTAMP AS OF x.happened AS q
        WHERE q.sym = x.s
    """,
}
IN_DUCKDB = {
    "system time": "SELECT t.id, q.price FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.at >= q.at",
    "left": """
        SELECT t.id, q.price, q.sym AS theirs FROM keyed t ASOF LEFT JOIN quotes q ON t.sym = q.sym AND t.at >= q.at
    """,
    "asof": AS_OF["asof"],
    "asof left": AS_OF["asof left"],
    "with more": """
        SELECT t.id, f.name, q.price FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.at >= q.at
        LEFT JOIN firms f ON f.sym = t.sym WHERE q.price > 1 AND t.qty < 3
    """,
    "renamed": "SELECT t.id AS n, q.price FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.at >= q.at",
}


def in_duckdb(given: Mapping[str, list[Row]], query: str) -> tuple[list[str], Counter[tuple[Any, ...]]]:
    """A query over the last version of each time, and of each firm and order."""
    keys = {"quotes": ("sym", "at"), "firms": ("sym",), "orders": ("id",)}
    with duckdb.connect() as database:
        for name, columns in COLUMNS.items():
            rows = given.get(name, [])
            if name in keys:
                rows = list({tuple(row[key] for key in keys[name]): row for row in rows}.values())
            names = [one.split()[0] for one in columns.split(", ")]
            quoted = columns.replace(" at ", ' "at" ')  # a word of DuckDB
            database.execute(f"CREATE TABLE {name} ({quoted})")
            filled = pa.table([pa.array([row[one] for row in rows]) for one in names], names=names)
            database.register("filled", filled)
            database.execute(f"INSERT INTO {name} SELECT * FROM filled")
            database.unregister("filled")
        found = database.execute(query)
        return [one[0] for one in found.description or ()], counted(found.fetchall())


def firms() -> list[Row]:
    return [{"sym": sym, "name": f"firm {sym}", "at": BEGIN} for sym in "AB"]


@pytest.mark.parametrize("seed", quick_first((1, 2, 3)))
def test_records_find_the_version_of_their_time_as_in_duckdb(relations: dict[str, Any], seed: int) -> None:
    running, drawn = Running(relations, AS_OF), random.Random(seed)
    running.run({"quotes": drawn_quotes(drawn, 0, 30, 20), "firms": firms()})
    for number in range(2):
        trades = drawn_trades(drawn, range(20 * number, 20 * number + 20), 0, 40)
        running.run({"trades": trades, "keyed": trades})
    for name, query in IN_DUCKDB.items():
        columns, expected = in_duckdb(running.given, query)
        assert expected, name
        assert running.found(name, columns) == expected, name


def test_with_grace_records_find_late_versions_as_in_duckdb(relations: dict[str, Any]) -> None:
    text = (
        "SELECT /*+ BROADCAST(t), GRACE(q, '10 minutes') */ t.id, q.price, t.at"
        " FROM trades t LEFT JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON t.sym = q.sym"
    )
    running, drawn = Running(relations, {"waits": text}), random.Random(5)
    for number in range(6):
        first = 10 * number
        running.run({"trades": drawn_trades(drawn, range(first, first + 10), first, first + 9)})
        running.run({"quotes": drawn_quotes(drawn, first, first + 9, 5)})
    closed = [
        {"id": 100 + place, "sym": sym, "qty": 1, "seen": None, "at": BEGIN + timedelta(days=1)}
        for place, sym in enumerate("ABCZ")
    ]
    running.run({"trades": closed})
    query = (
        "SELECT t.id, q.price, t.at FROM trades t ASOF LEFT JOIN quotes q ON t.sym = q.sym AND t.at >= q.at"
    )
    columns, expected = in_duckdb({**running.given, "trades": running.given["trades"][:-4]}, query)
    assert running.found("waits", columns) == expected


#: The same for rows of a table, which follow the changes of both sides.
COMPARISONS = {"backward": ">=", "before": ">", "forward": "<=", "after": "<"}


def test_rows_of_a_table_follow_versions_as_in_duckdb(relations: dict[str, Any]) -> None:
    queries = {
        name: f"SELECT o.id, o.qty, q.price FROM orders o ASOF LEFT JOIN quotes q ON o.sym = q.sym AND o.seen {sign} q.at"
        for name, sign in COMPARISONS.items()
    }
    system = (
        "SELECT o.id, q.price FROM orders o JOIN quotes FOR SYSTEM_TIME AS OF o.seen AS q ON o.sym = q.sym"
    )
    there = queries | {"system": system.replace("FOR SYSTEM_TIME AS OF o.seen AS q", "q")}
    there["system"] = there["system"].replace("JOIN", "ASOF JOIN") + " AND o.seen >= q.at"
    running, drawn = Running(relations, queries | {"system": system}), random.Random(7)
    for number in range(3):
        orders = drawn_trades(drawn, [drawn.randint(1, 12) for _ in range(10)], 0, 40)
        for place, one in enumerate(orders):
            one["at"] = BEGIN + timedelta(hours=number, seconds=place)
        running.run({"orders": orders, "quotes": drawn_quotes(drawn, 0, 40, 12)})
        for name, query in there.items():
            columns, expected = in_duckdb(running.given, query)
            assert running.found(name, columns) == expected, f"{name} after micro-batch {number}"


LOOKUPS = {
    "inner": "SELECT t.id, f.name FROM trades t JOIN firms f ON t.sym = f.sym",
    "left": "SELECT t.id, f.name FROM keyed t LEFT JOIN firms f ON t.sym = f.sym AND f.name <> 'firm B'",
    "left with both": "SELECT t.id, f.name FROM keyed t LEFT JOIN firms f ON t.sym = f.sym AND length(f.name) > t.qty + 4",
    "table first": "SELECT f.name, t.id FROM firms f JOIN trades t ON t.sym = f.sym WHERE t.qty > 1",
    "right": "SELECT f.name, t.id FROM firms f RIGHT JOIN trades t ON t.sym = f.sym",
    "using": "SELECT id, sym, name FROM keyed JOIN firms USING (sym)",
    "using both": "SELECT name, id, sym FROM (SELECT sym, name, 4 AS id FROM firms) f JOIN keyed USING (sym, id)",
    "semi": "SELECT id FROM trades t LEFT SEMI JOIN firms f ON t.sym = f.sym",
    "anti": "SELECT id FROM trades t LEFT ANTI JOIN firms f ON t.sym = f.sym",
    "exists": "SELECT id FROM keyed t WHERE NOT EXISTS (SELECT 1 FROM firms f WHERE t.sym = f.sym)",
    "semi with more": "SELECT id FROM trades t LEFT SEMI JOIN firms f ON t.sym = f.sym AND length(f.name) > t.qty + 4",
    "not exists with a comparison": "SELECT id FROM keyed t WHERE NOT EXISTS (SELECT 1 FROM firms f WHERE t.sym < f.sym)",
    "in": "SELECT id FROM trades WHERE sym IN (SELECT sym FROM firms WHERE name <> 'firm B')",
    "scalar": "SELECT id, qty + (SELECT count(*) FROM firms) AS n FROM trades",
}


def test_records_look_up_the_rows_that_are_there(relations: dict[str, Any]) -> None:
    running, drawn = Running(relations, LOOKUPS), random.Random(11)
    running.run({"firms": firms()})
    running.run(dict.fromkeys(("trades", "keyed"), drawn_trades(drawn, range(30), 1, 20)))
    before = {name: len(rows) for name, rows in running.records.items()}
    for name, query in LOOKUPS.items():
        in_words = query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
        columns, expected = in_duckdb(running.given, in_words)
        assert expected, name
        assert running.found(name, columns) == expected, name
    running.run(
        {"firms": [{"sym": sym, "name": "another", "at": BEGIN + timedelta(days=1)} for sym in "ABCZ"]}
    )
    assert before == {name: len(rows) for name, rows in running.records.items()}


def test_a_query_of_streams_and_methods_make_the_same_plan(relations: dict[str, Any]) -> None:
    trades, keyed, quotes, orders = (relations[name] for name in ("trades", "keyed", "quotes", "orders"))
    at = "FOR SYSTEM_TIME AS OF"
    pairs = {
        f"SELECT t.id, q.price FROM keyed t LEFT JOIN quotes {at} t.at AS q ON t.sym = q.sym": keyed.join(
            quotes, on="sym", how="left", select=lambda _, q: [q.price]
        ),
        f"""SELECT /*+ GRACE(q, '1 hour', wall_clock => '1 minute', table_advances => true) */ t.id, q.price
            FROM keyed t JOIN quotes {at} t.at AS q ON t.sym = q.sym""": keyed.join(
            quotes,
            on="sym",
            grace="1 hour",
            wall_clock="1 minute",
            table_advances=True,
            select=lambda _, q: [q.price],
        ),
        "SELECT o.id, q.price FROM orders o ASOF JOIN quotes q ON o.sym = q.sym AND o.seen > q.at": orders.join(
            quotes, on="sym", as_of=ts.as_of("seen", strict=True), select=lambda _, q: [q.price]
        ),
        "SELECT sym, sum(qty) AS s FROM trades WHERE qty > 1 GROUP BY sym": trades.filter("qty > 1")
        .group_by("sym")
        .agg(agg_1=tf.sum("qty"))
        .select(F.expr("agg_1 AS s")),
    }
    for query, by_methods in pairs.items():
        by_query = ts.sql(query, **relations)
        narrowed = by_methods.select(*by_query.columns[len(by_query.key_columns) :])
        assert by_query.columns == narrowed.columns
        assert plan(by_query) in {plan(by_methods), plan(narrowed)}


#: Queries, and for each reason its line, column, clause and a part of its text.
REFUSED = {
    "SELECT t.id FROM trades t JOIN keyed k ON t.id = k.id": [
        (
            1,
            32,
            "JOIN",
            "The records of two streams are not joined with each other. Read one of them as a table",
        )
    ],
    "SELECT f.name FROM firms f LEFT JOIN trades t ON t.sym = f.sym": [
        (
            1,
            38,
            "JOIN",
            "Rows of a table do not wait for the records of a stream. Write the stream on the left",
        )
    ],
    "SELECT f.name FROM trades t FULL JOIN firms f ON t.sym = f.sym": [
        (1, 39, "JOIN", "do not wait for the records")
    ],
    "SELECT t.id FROM trades t JOIN firms f ON t.sym = f.name": [
        (1, 32, "JOIN", "Rows of firms are only found by their whole key here: sym.")
    ],
    "SELECT t.id FROM trades t LEFT SEMI JOIN firms f ON t.sym < f.name AND t.sym > f.name": [
        (1, 53, "ON", "Only equalities find the rows that a record of a stream has.")
    ],
    "SELECT t.id FROM trades t JOIN firms FOR SYSTEM_TIME AS OF t.at AS f ON t.sym = f.sym": [
        (1, 32, "AS OF", "firms has no versions. Give the table a history: history= of ts.table, or OPTIONS")
    ],
    "SELECT t.id FROM trades t JOIN quotes FOR SYSTEM_TIME AS OF t.seen AS q ON t.sym = q.sym": [
        (
            1,
            61,
            "AS OF",
            "A record of a stream finds the version of its own time: the last one up to it. Write it: at.",
        )
    ],
    "SELECT t.id FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.at > q.at": [
        (1, 67, "ASOF JOIN", "finds the version of its own time: the last one up to it. Write it: t.at.")
    ],
    "SELECT t.id FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.at >= q.price": [
        (1, 75, "ASOF JOIN", "This is not the time of the versions. Compare with it: q.at.")
    ],
    "SELECT t.id FROM trades t ASOF JOIN quotes q ON t.sym = q.sym": [
        (1, 27, "ASOF JOIN", "ON compares the times once. Write ON t.symbol = q.symbol AND t.at >= q.at.")
    ],
    "SELECT t.id FROM trades t JOIN quotes FOR SYSTEM_TIME AS OF '2024-01-01' AS q ON t.sym = q.sym": [
        (1, 61, "AS OF", "A fixed time, or that of the clock, chooses no version")
    ],
    "SELECT sym FROM quotes FOR SYSTEM_TIME AS OF at": [
        (1, 17, "AS OF", "Versions are found for the rows of another")
    ],
    "SELECT o.id FROM orders o JOIN quotes FOR SYSTEM_TIME AS OF o.seen AS q ON o.sym = q.sym AND o.qty = q.price": [],
    "SELECT o.id FROM orders o RIGHT JOIN quotes FOR SYSTEM_TIME AS OF o.seen AS q ON o.sym = q.sym": [
        (1, 38, "AS OF", "Versions are found for the rows of another input.")
    ],
    "SELECT o.id FROM orders o SEMI JOIN quotes FOR SYSTEM_TIME AS OF o.seen AS q ON o.sym = q.sym": [
        (1, 37, "AS OF", "Versions are found for the rows of another input.")
    ],
    "SELECT o.id FROM orders o JOIN quotes FOR SYSTEM_TIME AS OF o.seen AS q ON o.qty = q.price": [
        (1, 32, "AS OF", "Rows of quotes are only found by their whole key here: sym.")
    ],
    "SELECT /*+ GRACE(x, '1 hour') */ t.id FROM trades t JOIN quotes q ON t.sym = q.sym": [
        (1, 8, "GRACE", "The hint names a table of FROM and a duration.")
    ],
    "SELECT /*+ GRACE(q, '1 hour') */ o.id FROM orders o JOIN quotes q ON o.sym = q.sym": [
        (1, 58, "GRACE", "Only records of a stream wait for late versions.")
    ],
    "SELECT /*+ GRACE(q, '9 days') */ t.id FROM trades t JOIN quotes q ON t.sym = q.sym": [
        (1, 58, "JOIN", "keeps its versions for a shorter time")
    ],
    "SELECT count(*) AS n FROM trades GROUP BY session_window(seen, '5 minutes')": [
        (1, 43, "GROUP BY", "session_window cannot stand here.")
    ],
    "SELECT count(*) AS n FROM trades GROUP BY TUMBLE(seen, INTERVAL '5' MINUTE)": [
        (1, 43, "GROUP BY", "TUMBLE cannot stand here. Group by window(at, '5 minutes')")
    ],
    "SELECT count(*) AS n FROM trades GROUP BY window(seen, '5 minutes', '10 minutes')": [
        (1, 69, "window", "A window is at least as long as the distance to the next")
    ],
    "SELECT count(*) AS n FROM trades GROUP BY window(seen, '1 month')": [
        (1, 56, "window", "This is no duration.")
    ],
    "SELECT count(*) AS n FROM trades GROUP BY window(qty, '5 minutes')": [
        (1, 50, "window", "The time is of type int, and not a timestamp.")
    ],
    "SELECT window(at, '5 minutes') AS a, window(seen, '5 minutes') AS b FROM trades": [
        (1, 38, "window", "A query has windows of one kind.")
    ],
    "SELECT * FROM TABLE(CUMULATE(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '5' MINUTES))": [
        (
            1,
            15,
            "FROM",
            "CUMULATE in FROM is not maintained. Name a table or a subquery, or write TUMBLE(TABLE t",
        )
    ],
    "SELECT * FROM TUMBLE(TABLE trades, at, INTERVAL '5' MINUTES)": [
        (1, 36, "TUMBLE", "Its second argument is the column of the time. Write DESCRIPTOR(at).")
    ],
    "SELECT id FROM trades ORDER BY id LIMIT 2": [
        (1, 35, "ORDER BY", "A stream's records have no first ones.")
    ],
    "SELECT id, rank() OVER (ORDER BY qty) AS r FROM trades": [
        (1, 12, "OVER", "A stream's records have no window functions.")
    ],
    "SELECT id FROM trades UNION ALL SELECT id FROM orders": [
        (1, 8, "UNION", "Records of a stream are only put together with those of another one, by UNION.")
    ],
    "SELECT sym FROM trades EXCEPT SELECT sym FROM trades": [
        (1, 8, "EXCEPT", "only put together with those of")
    ],
    "SELECT sym FROM keyed UNION ALL SELECT sym FROM keyed": [
        (1, 8, "UNION", "The streams have keys that the queries do not show at the same places.")
    ],
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_a_stream_has_not_is_refused_with_what_to_write(relations: dict[str, Any], query: str) -> None:
    expected = REFUSED[query]
    if not expected:
        assert ts.sql(query, **relations).key_columns == ["id"]
        return
    with pytest.raises(ts.errors.SqlRefusedError) as refused:
        ts.sql(query, **relations)
    found = [(int(a), int(b), clause, said) for a, b, clause, said in PLACE.findall(str(refused.value))]
    assert [one[:3] for one in found] == [one[:3] for one in expected]
    assert [said for (*_, said), (*_, part) in zip(found, expected, strict=True) if part not in said] == []


def test_a_file_declares_streams_versions_and_windows() -> None:
    text = """
        CREATE STREAM trades (sym STRING, qty INT, at TIMESTAMP) USING json LOCATION 'trades' OPTIONS (timestamp 'at');
        CREATE TABLE quotes (sym STRING, price INT, at TIMESTAMP, PRIMARY KEY (sym)) USING json LOCATION 'quotes'
            OPTIONS (timestamp 'at', history '1 day');
        CREATE VIEW priced AS SELECT t.at, t.qty * q.price AS worth
            FROM trades t JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON t.sym = q.sym;
        CREATE MATERIALIZED VIEW worths USING delta LOCATION 'out' AS WITH big AS (SELECT * FROM priced WHERE worth > 1)
            SELECT window_start, sum(worth) AS worth
            FROM TABLE(TUMBLE(TABLE big, DESCRIPTOR(at), INTERVAL '5' MINUTES)) GROUP BY window_start;
        CREATE MATERIALIZED VIEW counts USING delta LOCATION 'counts' AS
            SELECT window_start, count(*) AS n FROM TUMBLE(TABLE priced, DESCRIPTOR(at), INTERVAL '5' MINUTES) GROUP BY 1;
    """
    program = program_of("trades.sql", text, {})
    assert [sorted(one.reads) for one in program.queries] == [["quotes", "trades"], ["priced"], ["priced"]]
    with pytest.raises(ts.errors.SqlFileError, match="Nothing is called pricedd"):
        program_of("trades.sql", text.replace("TABLE priced", "TABLE pricedd"), {})
