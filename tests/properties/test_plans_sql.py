"""Where a plan ends: its outputs, kept as a table, are what SQL makes of the final inputs, in DuckDB.

Some plans have SQL of their own; that of random ones is made from their nodes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans.catalogue import by_key, has_a
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.tables import Change as PlanChange
from tests.plans.tables import (
    Record,
    counted,
    filtered,
    foreign_key_join,
    key_join,
    mapped,
    one_to_many,
    points,
    source,
    topped,
)
from tests.properties.sql import MACROS, query
from tests.properties.strategies import Change, change_logs
from tests.properties.test_plans import Case, cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tablestream.topology.nodes import Node, Source

Table: TypeAlias = "dict[tuple[str | None, ...], str]"

KEYS = ("x", "xx", "y", "")


class Plan(NamedTuple):
    """A plan over tables a, b, c, and the same as SQL over tables a, b, c with columns k and v."""

    build: Callable[[Source, Source, Source], Node]
    sql: str


def without_b(value: str) -> str | None:
    return None if value.startswith("b") else value


PLANS = {
    "a to b by foreign key, left": Plan(
        lambda a, b, _: foreign_key_join(a, b, "left"),
        "SELECT a.k, pair(a.v, b.v) FROM a LEFT JOIN b ON b.k = pointer(a.v, 1)",
    ),
    "a to b by foreign key, outer": Plan(
        lambda a, b, _: foreign_key_join(a, b, "outer"),
        """
        SELECT a.k, NULL, pair(a.v, b.v) FROM a LEFT JOIN b ON b.k = pointer(a.v, 1)
        UNION ALL
        SELECT NULL, b.k, pair(NULL, b.v) FROM b ANTI JOIN a ON b.k = pointer(a.v, 1)
        """,
    ),
    "a to b by both its foreign keys": Plan(
        lambda a, b, _: foreign_key_join(foreign_key_join(a, b, "left"), b, "inner", points(1)),
        """
        WITH first AS (SELECT a.k, pair(a.v, b.v) AS v FROM a LEFT JOIN b ON b.k = pointer(a.v, 1))
        SELECT first.k, pair(first.v, b.v) FROM first JOIN b ON b.k = pointer(first.v, 2)
        """,
    ),
    "a to itself": Plan(
        lambda a, _, __: foreign_key_join(a, a, "inner"),
        "SELECT one.k, pair(one.v, two.v) FROM a AS one JOIN a AS two ON two.k = pointer(one.v, 1)",
    ),
    "three tables on one key": Plan(
        lambda a, b, c: key_join(key_join(a, b, "outer"), key_join(c, a), "left"),
        """
        WITH one AS (SELECT coalesce(a.k, b.k) AS k, pair(a.v, b.v) AS v FROM a FULL JOIN b ON a.k = b.k),
        two AS (SELECT c.k, pair(c.v, a.v) AS v FROM c JOIN a ON a.k = c.k)
        SELECT one.k, pair(one.v, two.v) FROM one LEFT JOIN two ON one.k = two.k
        """,
    ),
    "a to the join of b and c, through a filter and a map": Plan(
        lambda a, b, c: foreign_key_join(
            filtered(a, has_a), key_join(mapped(b, without_b), c, "right"), "left"
        ),
        """
        WITH bs AS (SELECT * FROM b WHERE NOT starts_with(v, 'b')),
        two AS (SELECT c.k, pair(bs.v, c.v) AS v FROM bs RIGHT JOIN c ON bs.k = c.k)
        SELECT a.k, pair(a.v, two.v) FROM a LEFT JOIN two ON two.k = pointer(a.v, 1)
        WHERE contains(a.v, 'a')
        """,
    ),
    "a with the many b": Plan(
        lambda a, b, _: one_to_many(a, b, "left"),
        "SELECT a.k, b.k, pair(a.v, b.v) FROM a LEFT JOIN b ON a.k = pointer(b.v, 1)",
    ),
    "a and what it points at, pointed at in turn": Plan(
        lambda a, b, c: foreign_key_join(c, foreign_key_join(a, b, "inner"), "right"),
        """
        WITH ab AS (SELECT a.k, pair(a.v, b.v) AS v FROM a JOIN b ON b.k = pointer(a.v, 1))
        SELECT c.k, NULL, pair(c.v, ab.v) FROM c JOIN ab ON ab.k = pointer(c.v, 1)
        UNION ALL
        SELECT NULL, ab.k, pair(NULL, ab.v) FROM ab ANTI JOIN c ON ab.k = pointer(c.v, 1)
        """,
    ),
    "groups of a": Plan(
        lambda a, _, __: counted(a),
        "SELECT pointer(v, 1), counted(v) FROM a GROUP BY pointer(v, 1)",
    ),
    "groups of a by a pointer that may be null, filtered": Plan(
        lambda a, _, __: filtered(counted(filtered(a, has_a), points(1)), has_a),
        """
        SELECT pointer(v, 2), counted(v) FROM a WHERE contains(v, 'a') GROUP BY pointer(v, 2)
        HAVING contains(counted(v), 'a')
        """,
    ),
    "groups of a to b by foreign key": Plan(
        lambda a, b, _: counted(foreign_key_join(a, b, "outer"), by_key),
        """
        WITH ab AS (
            SELECT NULL AS k, pair(a.v, b.v) AS v FROM a LEFT JOIN b ON b.k = pointer(a.v, 1)
            UNION ALL
            SELECT b.k, pair(NULL, b.v) FROM b ANTI JOIN a ON b.k = pointer(a.v, 1)
        )
        SELECT k, counted(v) FROM ab GROUP BY k
        """,
    ),
    "a to the groups of itself": Plan(
        lambda a, _, __: foreign_key_join(a, counted(a, points(1)), "left"),
        """
        WITH groups AS (SELECT pointer(v, 2) AS k, counted(v) AS v FROM a GROUP BY pointer(v, 2))
        SELECT a.k, pair(a.v, groups.v) FROM a LEFT JOIN groups ON groups.k = pointer(a.v, 1)
        """,
    ),
    "the first two of each group of a to b by foreign key": Plan(
        lambda a, b, _: topped(foreign_key_join(a, b, "left"), points(1)),
        """
        WITH ab AS (SELECT pair(a.v, b.v) AS v FROM a LEFT JOIN b ON b.k = pointer(a.v, 1)),
        ranked AS (
            SELECT pointer(v, 2), row_number() OVER (PARTITION BY pointer(v, 2) ORDER BY v DESC) AS rank, v FROM ab
        )
        SELECT * FROM ranked WHERE rank <= 2
        """,
    ),
    "b with the groups of a, grouped again": Plan(
        lambda a, b, _: counted(key_join(b, counted(a), "left"), points(1)),
        """
        WITH groups AS (SELECT pointer(v, 1) AS k, counted(v) AS v FROM a GROUP BY pointer(v, 1)),
        joined AS (SELECT pair(b.v, groups.v) AS v FROM b LEFT JOIN groups ON groups.k = b.k)
        SELECT pointer(v, 2), counted(v) FROM joined GROUP BY pointer(v, 2)
        """,
    ),
}


@st.composite
def logs(draw: st.DrawFn) -> list[list[Change]]:
    """Records of a, b and c that point at each other's keys, cut into micro-batches."""
    pointers = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2)
    value = st.builds(lambda letter, to: "|".join([letter, *to]), st.sampled_from("ab"), pointers)
    rows = st.tuples(st.sampled_from("abc"), st.sampled_from(KEYS), st.one_of(value, value, value, st.none()))
    log = draw(change_logs(rows, max_size=60))
    places = sorted(draw(st.lists(st.integers(0, len(log)), max_size=2)))
    return [log[start:end] for start, end in pairwise([0, *places, len(log)])]


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(MACROS)
    return connection


def final_tables(pieces: list[list[Change]]) -> dict[str, dict[str | None, str]]:
    tables: dict[str, dict[str | None, str]] = {name: {} for name in "abc"}
    for name, key, value, _ in (record for piece in pieces for record in piece):
        tables[name].pop(key, None)
        if value is not None:
            tables[name][key] = value
    return tables


def in_sql(database: duckdb.DuckDBPyConnection, sql: str, pieces: list[list[Change]]) -> Table:
    for name, rows in final_tables(pieces).items():
        fill(database, name, ["k"], list(rows.items()))
    return fetched(database, sql)


def fill(
    database: duckdb.DuckDBPyConnection, name: str, key: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    columns = ", ".join(f"{column} VARCHAR" for column in [*key, "v"])
    database.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
    if rows:
        database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * (len(key) + 1))})", rows)


def fetched(database: duckdb.DuckDBPyConnection, sql: str) -> Table:
    found: list[tuple[Any, ...]] = database.execute(sql).fetchall()
    table = {row[:-1]: row[-1] for row in found}
    assert len(table) == len(found)
    return table


def kept(table: Table, changes: Iterable[PlanChange]) -> None:
    """Apply changes to a table."""
    for change in changes:
        table.pop(change.key, None)
        if change.value is not None:
            table[change.key] = change.value


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=settings().max_examples // 2)
@given(pieces=logs())
def test_a_plan_ends_as_sql_over_the_final_inputs(
    database: duckdb.DuckDBPyConnection, name: str, pieces: list[list[Change]]
) -> None:
    sources = {name: source(name) for name in "abc"}
    engine = Engine([Output(PLANS[name].build(*sources.values()))], shards=1)
    table: Table = {}
    for piece in pieces:
        kept(table, engine.run([Record(sources[at], key, value, ts) for at, key, value, ts in piece])[0])
        engine = engine.restarted()
    assert table == in_sql(database, PLANS[name].sql, pieces)


@given(case=cases(ordered=False, in_sql=True))
def test_a_random_plan_ends_as_sql_over_the_final_inputs(
    database: duckdb.DuckDBPyConnection, case: Case
) -> None:
    """By default alone: in compat a key self-join keeps stale rows, and empty groups stay."""
    engine = Engine([Output(node) for node in case.nodes], shards=case.shards)
    ended: list[Table] = [{} for _ in case.nodes]
    inputs: dict[Source, Table] = {one: {} for one in sources_of(case.nodes)}
    for piece in case.pieces:
        for table, changes in zip(ended, engine.run(piece), strict=True):
            kept(table, changes)
        for record in piece:
            if record.parts is not None:
                kept(inputs[record.source], [PlanChange(record.parts, record.value, record.ts)])
        engine = engine.restarted()
    for one, rows in inputs.items():
        names = [f"k{number}" for number in range(len(one.key))]
        fill(database, one.name, names, [(*key, value) for key, value in rows.items()])
    for node, table in zip(case.nodes, ended, strict=True):
        assert table == fetched(database, query(node)), node.name
