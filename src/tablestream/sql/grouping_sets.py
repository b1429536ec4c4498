"""GROUPING SETS, ROLLUP and CUBE: each row once for each set, with null for the columns that the set leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.context import Context
from tablestream.sql.handles import flat_mapped
from tablestream.sql.parse import beginning
from tablestream.sql.rows import Rows, unique, unique_names
from tablestream.sql.scope import Scope
from tablestream.streams import Stream

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
#: The most sets: each row comes once for each.
_MOST = 128


@dataclass(frozen=True)
class Sets:
    """The sets of groups, each with the numbers of the columns that it has.

    Attributes
    ----------
    column
        The part of the key with the number of the set.
    sets
        The sets.
    count
        How many columns there are.
    """

    column: str
    sets: tuple[frozenset[int], ...]
    count: int

    def lacks(self, number: int) -> str:
        """SQL's GROUPING of a column: 1 if its null stands for all values."""
        having = ", ".join(str(at) for at, one in enumerate(self.sets) if number in one)
        lacks = f"CASE WHEN {quoted(self.column)} IN ({having}) THEN 0 ELSE 1 END" if having else "1"
        return f"CAST({lacks} AS TINYINT)"

    @property
    def mask(self) -> str:
        """SQL's GROUPING_ID: a bit for each column, the first one the highest, 1 where the set leaves it out."""
        bits = [1 << (self.count - 1 - number) for number in range(self.count)]
        masks = [sum(bit for number, bit in enumerate(bits) if number not in one) for one in self.sets]
        return f"CAST(array({', '.join(map(str, masks))})[{quoted(self.column)}] AS BIGINT)"


def sets_in(group: exp.Group, nodes: Sequence[exp.Expr], context: Context) -> list[list[exp.Expr]]:
    """The columns of each set; a plain GROUP BY has one set, of all columns."""
    if group.args.get("totals"):
        raise context.refuse(group, "GROUP BY", "WITH TOTALS is not maintained.", "Write GROUPING SETS.")
    behind = [one for part in ("rollup", "cube", "grouping_sets") for one in group.args.get(part) or ()]
    found: list[list[exp.Expr]] = [[]]
    if behind:  # GROUP BY a, b WITH ROLLUP; GROUP BY a, b GROUPING SETS (...)
        found = _alternatives(behind[0], nodes)
    else:
        for node in nodes:
            found = [[*before, *more] for before in found for more in _alternatives(node, ())]
    if len(found) > _MOST:
        raise context.refuse(
            group,
            "GROUP BY",
            f"It has {len(found)} sets, and {_MOST} are the most.",
            "Name the sets you need.",
        )
    return found


def asks_for_sets(group: exp.Expr | None, nodes: Sequence[exp.Expr]) -> bool:
    """Whether expressions of a query with sets, maybe of one alone, ask which columns its sets have."""
    asked = any(one.find(exp.Grouping, exp.GroupingId) for one in nodes)
    return asked and group is not None and group.find(*_SETS) is not None


def _alternatives(node: exp.Expr, nodes: Sequence[exp.Expr]) -> list[list[exp.Expr]]:
    """The sets that an element stands for; without elements of its own it has all columns."""
    if not isinstance(node, _SETS):
        return [_columns(node)]
    elements = node.expressions or list(nodes)
    if isinstance(node, exp.GroupingSets):
        lists = [_alternatives(one, ()) if isinstance(one, _SETS) else [_columns(one)] for one in elements]
        return [*chain.from_iterable(lists)]
    parts = [_columns(one) for one in elements]
    if isinstance(node, exp.Rollup):
        return [[*chain(*parts[:count])] for count in range(len(parts), -1, -1)]
    counts = range(len(parts), -1, -1)
    return [[*chain(*some)] for count in counts for some in combinations(parts, count)]


def _columns(node: exp.Expr) -> list[exp.Expr]:
    """The columns of one set in parentheses, or of none."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this if isinstance(node, exp.Paren) else node]


def repeated(
    rows: Rows, named: Mapping[str, exp.Expr], sets: Sequence[frozenset[int]], scope: Scope
) -> tuple[Rows, list[str], Sets]:
    """Return each row once for each set; the columns that groups are made of; and the sets.

    `named` are the expressions of the groups by their names there, beside which the number of the set stands.
    """
    table, nodes = rows.table, list(named.values())
    number = unique("grouping_set", [*table.columns, *named], rows.fold)
    names = unique_names(["grouped_by"] * len(nodes), [*table.columns, number], rows.fold)
    texts = scope.sqls(nodes)
    values = [quoted(one) for one in table.columns if one not in table.key_columns]
    structs = []
    is_stream = isinstance(table, Stream)
    for count, one in enumerate(sets):
        shown = [
            f"CASE WHEN {'true' if at in one else 'false'} THEN {text} END AS {name}"
            for at, (name, text) in enumerate(zip(names, texts, strict=True))
        ]
        numbered = [f"{count} AS {quoted(number)}"] if is_stream else []
        structs.append(f"struct({', '.join([*values, *shown, *numbered])})")
    with scope.context.reasons.placed(beginning(nodes[0]) if nodes else 0, "GROUP BY"):
        made = flat_mapped(table, f"array({', '.join(structs)})", number)
    return replace(rows, table=made), names, Sets(number, tuple(sets), len(nodes))


def grouping_texts(
    nodes: Sequence[exp.Expr], columns: Sequence[exp.Expr], sets: Sets | None, scope: Scope
) -> dict[str, str]:
    """The SQL of GROUPING and GROUPING_ID in expressions, by what `Scope.same` says of them."""
    found: dict[str, str] = {}
    known = [scope.same(one) for one in columns]
    for node in (one for given in nodes for one in given.find_all(exp.Grouping, exp.GroupingId)):
        named = [scope.same(one) for one in (node.expressions or ([node.this] if node.this else []))]
        is_one = isinstance(node, exp.Grouping) and len(named) == 1 and named[0] in known
        is_all = isinstance(node, exp.GroupingId) and named in ([], known)
        if sets is None or not (is_one or is_all):
            raise scope.context.refuse(
                node,
                "SELECT",
                "GROUPING takes one column of GROUPING SETS, ROLLUP or CUBE, and GROUPING_ID all of them.",
                "Name them as GROUP BY does.",
            )
        found[scope.same(node)] = sets.lacks(known.index(named[0])) if is_one else sets.mask
    return found
