"""``FOR SYSTEM_TIME AS OF`` and ``ASOF JOIN``: the version of a row that was valid at a time of the other side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from tablestream.handles.as_of_time import as_of
from tablestream.spark.row import LEFT, side_column
from tablestream.spark.sources import frame_of_source
from tablestream.sql.context import Context
from tablestream.sql.handles import Handle, node_of
from tablestream.sql.parse import TURNED, beginning
from tablestream.sql.rows import AsOf, Rows
from tablestream.sql.scope import Scope
from tablestream.streams import Stream
from tablestream.topology.graph import history_of
from tablestream.topology.nodes import (
    Deduplicate,
    Filter,
    Materialize,
    Named,
    Node,
    Reorder,
    Select,
    Source,
)
from tablestream.topology.streams import Merge, SelectKey, StreamJoin

_GRACE = "GRACE"
_WAITS = ("grace", "wall_clock", "table_advances")
#: What compares a time of the left side with that of the versions: whether later ones count, and not the same time.
_COMPARED: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.GTE: (False, False),
    exp.GT: (False, True),
    exp.LTE: (True, False),
    exp.LT: (True, True),
}


def of_version(version: exp.Expr, rows: Rows, context: Context) -> Rows:
    """The rows of a table with ``FOR SYSTEM_TIME AS OF``."""
    time = version.args.get("expression")
    if version.name != "TIMESTAMP" or version.args.get("kind") != "AS OF" or time is None:
        raise context.refuse(
            version, "AS OF", "Only one time chooses a version.", "Write FOR SYSTEM_TIME AS OF t.at."
        )
    if time.find(exp.Column) is None:
        raise context.refuse(
            time,
            "AS OF",
            "A fixed time, or that of the clock, chooses no version of a maintained query.",
            "Name a time of the other side, as in FOR SYSTEM_TIME AS OF t.at; JOIN alone reads the last version.",
        )
    return replace(rows, as_of=AsOf("AS OF", time))


def of_asof_join(
    node: exp.Join, rows: Rows, on: Sequence[exp.Expr], context: Context
) -> tuple[Rows, list[exp.Expr]]:
    """The rows of ``ASOF JOIN``, and its conditions without the one that compares the times."""
    scope = Scope(rows, context, "ASOF JOIN")
    found, others = list[AsOf](), list[exp.Expr]()
    for one in on:
        side = _sides(one, scope) if isinstance(one, exp.Binary) and type(one) in _COMPARED else None
        if side is None:
            others.append(one)
            continue
        kind, time, version = side
        column = scope.column(version)
        if column is None or column.column not in time_columns(rows.table):
            raise context.refuse(
                version,
                "ASOF JOIN",
                "This is not the time of the versions.",
                _own_time(rows, "Compare with it"),
            )
        forward, strict = _COMPARED[kind]
        found.append(AsOf("ASOF JOIN", time, forward, strict))
    if len(found) != 1 or rows.as_of is not None:
        raise context.refuse(
            node,
            "ASOF JOIN",
            "ON compares the times once.",
            "Write ON t.symbol = q.symbol AND t.at >= q.at.",
        )
    return replace(rows, as_of=found[0]), others


def _sides(node: exp.Binary, right: Scope) -> tuple[type[exp.Expr], exp.Expr, exp.Expr] | None:
    """How a condition compares the left side with the right: its kind, and both sides."""
    left_is_right, right_is_right = right.can_tell([node.left]), right.can_tell([node.right])
    if right_is_right and not left_is_right:
        return type(node), node.left, node.right
    if left_is_right and not right_is_right:
        return TURNED[type(node)], node.right, node.left
    return None


def with_waits(rows: Sequence[Rows], select: exp.Select, context: Context) -> list[Rows]:
    """Inputs with what ``/*+ GRACE(input, '5 minutes') */`` says of them."""
    hint, found = select.args.get("hint"), list(rows)
    for one in hint.expressions if hint is not None else []:
        if not isinstance(one, exp.Anonymous) or one.name.upper() != _GRACE:
            continue
        given = one.expressions
        alias = given[0].name if given and isinstance(given[0], exp.Column) else ""
        places = [at for at, it in enumerate(found) if it.sources == {it.fold(alias)}]
        named = {it.this.name: it.expression for it in given[1:] if isinstance(it, exp.Kwarg)}
        plain = [it for it in given[1:] if not isinstance(it, exp.Kwarg)]
        values = {**dict(zip(_WAITS, plain, strict=False)), **named}
        is_known = set(values) <= set(_WAITS) and len(plain) <= 1 and "grace" in values
        if not places or not is_known or not all(map(_is_constant, values.values())):
            raise context.reasons.at(
                context.text.rfind("/*+", 0, beginning(select.expressions[0])),
                _GRACE,
                "The hint names a table of FROM and a duration.",
                "Write GRACE(q, '5 minutes'), and then wall_clock => '1 minute' or table_advances => true.",
            )
        waits = {name: it.this for name, it in values.items()}
        as_of_one = found[places[0]].as_of or AsOf(_GRACE)
        found[places[0]] = replace(found[places[0]], as_of=replace(as_of_one, waits=waits))
    return found


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(node, exp.Boolean) or node.is_string


def as_of_options(left: Rows, right: Rows, context: Context) -> dict[str, Any]:
    """The arguments of a join with the right rows as of a time of the left ones."""
    said = right.as_of
    if said is None:
        return {}
    if history_of(node_of(right.table)) is None:
        raise context.reasons.at(
            right.place,
            said.clause,
            f"{right.table.name} has no versions.",
            "Give the table a history: history= of ts.table, or OPTIONS (history '1 day') in a file.",
        )
    if isinstance(left.table, Stream):
        return _of_record(said, left, context)
    if said.waits or said.time is None:
        raise context.reasons.at(
            right.place,
            _GRACE,
            "Only records of a stream wait for late versions.",
            "Leave the hint out: rows of a table follow late versions.",
        )
    scope = Scope(left, context, said.clause)
    return {
        "as_of": as_of(scope.plain(said.time), "forward" if said.forward else "backward", strict=said.strict)
    }


def _of_record(said: AsOf, left: Rows, context: Context) -> dict[str, Any]:
    """The arguments of a stream's join, which is always as of the record's own time."""
    column = None if said.time is None else Scope(left, context, said.clause).column(said.time)
    own = time_columns(left.table)
    is_own = column is not None and column.column in own
    if said.time is not None and (not is_own or said.forward or said.strict):
        raise context.reasons.at(
            beginning(said.time),
            said.clause,
            "A record of a stream finds the version of its own time: the last one up to it.",
            _own_time(left, "Write it") + " For other times, read the records as a table.",
        )
    return dict(said.waits)


def _own_time(rows: Rows, do: str) -> str:
    """Say which column is the time of rows."""
    own = time_columns(rows.table)
    shown = {one.column: f"{one.source}.{one.name}" for one in rows.visible if one.source}
    names = [shown.get(one, one) for one in sorted(own)]
    if not names:
        return f"No column of {rows.table.name} is known to be its time."
    return f"{do}: {' or '.join(names)}."


def time_columns(handle: Handle) -> frozenset[str]:
    """The columns that hold the time of each record, as they were read and nothing else."""
    return _times_of(node_of(handle))


def _times_of(node: Node) -> frozenset[str]:
    if isinstance(node, Source):
        return frame_of_source(node).time_columns
    if isinstance(node, Merge):
        return _times_of(node.left) & _times_of(node.right)
    found = frozenset[str]()
    if isinstance(node, Filter | Reorder | Deduplicate | Materialize):
        found = _times_of(node.parent)
    elif isinstance(node, Select):
        before = _times_of(node.parent)
        found = _renamed(node.columns, before) | _in_key(node.parent, node, before)
    elif isinstance(node, SelectKey):
        before = _times_of(node.parent)
        found = _renamed(node.columns, before) | (before & {one.name for one in node.value})
    elif isinstance(node, StreamJoin) and not node.corrections:
        before = _times_of(node.left)
        sides = frozenset(side_column(LEFT, one) for one in before)
        found = _renamed(node.select, sides) | _in_key(node.left, node, before)
    return found


def _in_key(before: Node, after: Node, names: frozenset[str]) -> frozenset[str]:
    """The columns of a key, which may have other names after than before."""
    return frozenset(new.name for old, new in zip(before.key, after.key, strict=True) if old.name in names)


def _renamed(columns: tuple[Named, ...], names: frozenset[str]) -> frozenset[str]:
    """The names under which columns are in the result, unless something was computed of them."""
    return frozenset(one.name for one in columns if one.expression.text.replace("`", "") in names)
