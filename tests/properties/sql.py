"""Plans over Python functions, as `tests.plans` declares them, said again as SQL for DuckDB."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import (
    Aggregate,
    Filter,
    ForeignKeyJoin,
    Join,
    KeyJoin,
    ManyToMany,
    Node,
    OneToMany,
    Select,
    Source,
    Top,
)
from tests.plans import catalogue, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What the translations use.
MACROS = """
CREATE MACRO pair(l, r) AS '(' || coalesce(l, 'null') || ',' || coalesce(r, 'null') || ')';
CREATE MACRO never_b_a(l, r) AS
    CASE WHEN NOT (starts_with(coalesce(l, ''), 'b') AND starts_with(coalesce(r, 'a'), 'a')) THEN pair(l, r) END;
CREATE MACRO without_b(v) AS CASE WHEN NOT (starts_with(v, 'b') OR starts_with(v, '(b')) THEN v || '!' END;
CREATE MACRO counted(v) AS max(v) || ',' || count(*);
CREATE MACRO pointer(v, n) AS regexp_extract_all(v, '\\|([^|,()]*)', 1)[n];
"""

#: Of one row or of two: their values by name.
VALUES: dict[Any, str] = {
    catalogue.has_a: "contains({v}, 'a')",
    catalogue.odd: "length({v}) % 2 = 1",
    catalogue.without_b: "without_b({v})",
    catalogue.marked: "{v} || '?'",
    catalogue.never_b_a: "never_b_a({l}, {r})",
    tables.pair: "pair({l}, {r})",
}
#: What a row points at or is grouped by: a part of a key each, over the row's alias and the last part of its key.
POINTERS: dict[Any, tuple[str, ...]] = {
    catalogue.own_key: ("CASE WHEN NOT starts_with({row}.v, 'b') THEN {row}.k0 END",),
    catalogue.both_pointers: ("pointer({row}.v, 1)", "pointer({row}.v, 2)"),
    catalogue.by_letter: ("{row}.v[1]",),
    catalogue.by_key: ("{row}.{last}",),
    catalogue.by_both: ("pointer({row}.v, 1)", "{row}.{last}"),
}


def query(node: Node) -> str:
    """Say a node as SQL over tables named like its sources, with columns ``k0``, ... and ``v``.

    What is said of groups is `tests.plans.tables.counted`, of rows that are there.
    """
    nodes = [one for one in ancestors(node) if not isinstance(one, Source)]
    steps = ", ".join(f"{_name(one)} AS MATERIALIZED ({_step(one)})" for one in nodes)
    return f"{f'WITH {steps} ' if steps else ''}SELECT * FROM {_name(node)}"


def _name(node: Node) -> str:
    return node.name if isinstance(node, Source) else f"n{node.serial}"


def _keys(node: Node, row: str) -> list[str]:
    return [f"{row}.k{number}" for number in range(len(node.key))]


def _select(key: Sequence[str], value: str, rows: str) -> str:
    """Select the rows that a function did not take away."""
    keys = ", ".join(f"{part} AS k{number}" for number, part in enumerate(key))
    return f"SELECT * FROM (SELECT {keys}, {value} AS v FROM {rows}) WHERE v IS NOT NULL"


def _step(node: Node) -> str:
    if isinstance(node, Filter):
        holds = _value(node.condition, v="v")
        return f"SELECT * FROM {_name(node.parent)} WHERE {'NOT ' if node.negate else ''}({holds})"
    if isinstance(node, Select):
        told = "v" if isinstance(node.parent, Aggregate) else _value(node.columns[0].expression, v="v")
        return _select(_keys(node, "x"), told, f"{_name(node.parent)} AS x")
    if isinstance(node, Aggregate):
        assert node.measures
        assert not node.keep_empty
        groups = _pointed(node.on, node.parent, "x")
        keys = ", ".join(f"{part} AS k{number}" for number, part in enumerate(groups))
        return f"SELECT {keys}, counted(v) AS v FROM {_name(node.parent)} AS x GROUP BY {', '.join(groups)}"
    if isinstance(node, Top):
        return _top(node)
    assert isinstance(node, Join)
    if isinstance(node, ManyToMany):
        return _many_to_many(node)
    return _key_join(node) if isinstance(node, KeyJoin) else _pointing(node)


def _top(node: Top) -> str:
    """Rank the rows of groups by their values; `tests.plans.tables.topped` without further orders."""
    assert node.order == ((0, True),)
    groups = _pointed(node.on, node.parent, "x")
    *keys, rank = [f"k{number}" for number in range(len(groups) + 1)]
    named = ", ".join(f"{part} AS {key}" for part, key in zip(groups, keys, strict=True))
    ranked = f"row_number() OVER (PARTITION BY {', '.join(groups)} ORDER BY v DESC)"
    rows = f"SELECT {named}, {ranked} AS {rank}, v FROM {_name(node.parent)} AS x"
    shown = "*" if node.ranked else f"* EXCLUDE ({rank})"
    return f"SELECT {shown} FROM ({rows}) WHERE {rank} <= {node.n}"


def _key_join(node: KeyJoin) -> str:
    pairs = list(zip(_keys(node.left, "l"), _keys(node.right, "r"), strict=True))
    equal = "IS NOT DISTINCT FROM" if node.own_times or node.how == "outer" else "="
    same = " AND ".join(f"{one} {equal} {other}" for one, other in pairs)
    how = "FULL" if node.how == "outer" else node.how
    rows = f"{_name(node.left)} AS l {how} JOIN {_name(node.right)} AS r ON {same}"
    return _select([f"coalesce({one}, {other})" for one, other in pairs], _both(node, "l.v", "r.v"), rows)


def _many_to_many(node: ManyToMany) -> str:
    sides = zip(_pointed(node.on, node.left, "l"), _pointed(node.right_on, node.right, "r"), strict=True)
    same = " AND ".join(f"{one} = {other}" for one, other in sides)
    rows = f"{_name(node.left)} AS l JOIN {_name(node.right)} AS r ON {same}"
    return _select([*_keys(node.left, "l"), *_keys(node.right, "r")], _both(node, "l.v", "r.v"), rows)


def _pointing(node: Join) -> str:
    """A join by a foreign key, seen from either side, and the rows that nothing points at."""
    assert isinstance(node, ForeignKeyJoin | OneToMany)
    pairs = isinstance(node, OneToMany)
    many, one = (node.right, node.left) if pairs else (node.left, node.right)
    row, to = ("r", "l") if pairs else ("l", "r")
    pointers = zip(_keys(one, to), _pointed(node.on, many, row), strict=True)
    same = " AND ".join(f"{key} = {pointer}" for key, pointer in pointers)
    kept = "LEFT " if not pairs and node.how in {"left", "outer"} else ""
    keys = {row: _keys(many, row), to: _keys(one, to)}
    nulls = {side: ["NULL::VARCHAR"] * len(parts) for side, parts in keys.items()}
    rows = f"{_name(many)} AS {row} {kept}JOIN {_name(one)} AS {to} ON {same}"
    paired = nulls[to] if node.keeps_unmatched else []
    key = keys[to] + keys[row] if pairs else keys[row] + paired
    joined = _select(key, _both(node, "l.v", "r.v"), rows)
    if not node.keeps_unmatched:
        return joined
    alone = keys[to] + nulls[row] if pairs else nulls[row] + keys[to]
    told = _both(node, *(f"{side}.v" if side == to else "NULL::VARCHAR" for side in ("l", "r")))
    unmatched = _select(alone, told, f"{_name(one)} AS {to} ANTI JOIN {_name(many)} AS {row} ON {same}")
    return f"{joined} UNION ALL {unmatched}"


def _both(node: Join, left: str, right: str) -> str:
    return _value(node.select[0].expression, l=left, r=right)


def _value(expression: Any, **columns: str) -> str:
    return VALUES[expression.function].format(**columns)


def _pointed(on: Sequence[Any], table: Node, row: str) -> list[str]:
    """Say each part of what a row points at; `tests.plans.tables.points` is known by its number."""
    said = []
    for part in on:
        known = inspect.getclosurevars(part.function).nonlocals
        whole, number = known["whole"], known["number"]
        if whole in POINTERS:
            said.append(POINTERS[whole][number].format(row=row, last=f"k{len(table.key) - 1}"))
        else:
            said.append(f"pointer({row}.v, {inspect.getclosurevars(whole).nonlocals['number'] + 1})")
    return said
