"""Where a join as of a time ends: its rows are those of DuckDB's ``ASOF JOIN`` with the final inputs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from tests.plans.engine import Engine, Output
from tests.plans.tables import Record, as_of_join, materialized, source
from tests.properties.strategies import change_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.properties.strategies import Change

#: Longer than any log: nothing is too late.
HISTORY = 1_000_000
KEYS = ("x", "xx", "")
LEFT = st.tuples(
    st.just("L"),
    st.sampled_from(("o1", "o2", "o3", "o4")),
    st.one_of(
        st.none(),
        st.tuples(st.sampled_from("ab"), st.sampled_from(KEYS), st.integers(-2, 25)).map(
            lambda row: f"{row[0]}|{row[1]}@{row[2]}"
        ),
        st.sampled_from(("a|x@", "b@3")),  # without a time, or a key
    ),
)
RIGHT = st.tuples(st.just("R"), st.sampled_from(KEYS), st.one_of(st.none(), st.sampled_from("XYZ")))
#: A version that is no row ends the one before it; whoever looks forward does not see it.
QUERY = """
WITH l AS (SELECT k, v, regexp_extract(v, '[|]([^@]*)@', 1) AS f, try_cast(regexp_extract(v, '@(.*)', 1) AS int) AS t
           FROM lefts WHERE v IS NOT NULL),
     r AS (SELECT k, v, t FROM versions {rows})
SELECT l.k, '(' || l.v || ',' || coalesce(r.v, 'null') || ')' FROM l ASOF LEFT JOIN r
    ON l.f = r.k AND contains(l.v, '|') AND l.t {sign} r.t {kept}
"""


def final(log: Sequence[Change], *, how: str, forward: bool, strict: bool) -> dict[str, str]:
    """Ask DuckDB: the last record of each left key, and of each right key and time."""
    sign = ("<" if forward else ">") + ("" if strict else "=")
    query = QUERY.format(
        rows="WHERE v IS NOT NULL" if forward else "",
        sign=sign,
        kept="WHERE r.v IS NOT NULL" if how == "inner" else "",
    )
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE lefts (k text, v text); CREATE TABLE versions (k text, t int, v text)"
        )
        lefts = {key: value for side, key, value, _ in log if side == "L"}
        versions = {(key, ts): value for side, key, value, ts in log if side == "R"}
        if lefts:
            connection.executemany("INSERT INTO lefts VALUES (?, ?)", [list(row) for row in lefts.items()])
        if versions:
            rows = [[key, ts, value] for (key, ts), value in versions.items()]
            connection.executemany("INSERT INTO versions VALUES (?, ?, ?)", rows)
        return dict(connection.execute(query).fetchall())


@given(
    log=change_logs(st.one_of(LEFT, RIGHT), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=3).map(sorted),
    how=st.sampled_from(("left", "inner")),
    forward=st.booleans(),
    strict=st.booleans(),
)
def test_the_rows_are_those_of_an_asof_join_of_the_final_tables(
    log: list[Change], cuts: list[int], how: str, *, forward: bool, strict: bool
) -> None:
    sources = {"L": source("L"), "R": source("R")}
    right = materialized(sources["R"], HISTORY)
    node = as_of_join(sources["L"], right, how, forward=forward, strict=strict)  # type: ignore[arg-type]
    records = [Record(sources[side], key, value, ts) for side, key, value, ts in log]
    engine, rows = Engine([Output(node)]), dict[str | None, str | None]()
    for begin, end in pairwise([0, *cuts, len(records)]):
        rows.update((change.key[0], change.value) for change in engine.run(records[begin:end])[0])
        engine = engine.restarted()
    kept = {key: value for key, value in rows.items() if value is not None}
    assert kept == final(log, how=how, forward=forward, strict=strict)
