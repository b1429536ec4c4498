"""``FOR SYSTEM_TIME AS OF`` and ``ASOF JOIN``: the version of a row that was valid at a time of the other side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from tablestream.handles.as_of_time import as_of
from tablestream.sql.context import Context
from tablestream.sql.handles import node_of
from tablestream.sql.parse import TURNED, beginning
from tablestream.sql.rows import AsOf, Rows
from tablestream.sql.scope import Scope
from tablestream.sql.times import time_columns
from tablestream.streams import Stream
from tablestream.topology.graph import history_of

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
