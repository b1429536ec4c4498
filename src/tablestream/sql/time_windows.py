"""Windows of time: ``window()`` as a column, and the table functions ``TUMBLE`` and ``HOP`` of Flink.

A window is a column of the rows that it has, computed from each row alone. Windows that do not overlap add a column; of
those that overlap, a row comes once for each. No window closes: a late record counts in its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import types as T
from sqlglot import exp

from tablestream.arguments.words import microseconds
from tablestream.connectors.sink import quoted
from tablestream.sql.context import Context
from tablestream.sql.handles import flat_mapped, selected_type
from tablestream.sql.parse import beginning
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope

_WINDOW = "window"
_MILLISECOND_US = 1000


@dataclass(frozen=True)
class Windows:
    """Windows of one length: how long each is, how far apart they begin, and when one of them does since 1970."""

    size_us: int
    slide_us: int
    start_us: int = 0

    @property
    def count(self) -> int:
        """The most windows that have one time."""
        return -(-self.size_us // self.slide_us)

    def last_begin(self, time: str) -> str:
        """When the last window that has a time begins, in microseconds, as SQL."""
        micros = f"unix_micros({time})"
        return f"{micros} - pmod({micros} - {self.start_us}L, {self.slide_us}L)"


def time_functions_in(node: exp.Expr) -> Iterator[exp.Anonymous]:
    """The calls of ``window()`` of an expression, without those of its subqueries."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == _WINDOW:
        yield node
    elif not isinstance(node, exp.Query):
        for one in node.iter_expressions():
            yield from time_functions_in(one)


def with_windows(select: exp.Select, rows: Rows, scope: Scope) -> Rows:
    """Compute what ``window()`` is in a query; the scope then finds its column, also as ``window``."""
    context = scope.context
    parts = ("group", "having", "qualify", "order")
    nodes = [*select.expressions, *(one for part in parts if (one := select.args.get(part)) is not None)]
    calls = {scope.same(one): one for node in nodes for one in time_functions_in(node)}
    if not calls:
        return rows
    (same, call), *more = calls.items()
    if more:
        raise context.refuse(
            more[0][1],
            _WINDOW,
            "A query has windows of one kind.",
            "Compute the others in a query around it.",
        )
    windows = _windows(call, call.expressions, context)
    time = _time(call.expressions[0], rows, scope)
    name = unique(_WINDOW, rows.table.columns, rows.fold)
    rows = _added(rows, windows, time, {name: "named_struct('start', {0}, 'end', {1})"}, call, context)
    scope.made[same] = quoted(name)
    if rows.fold(_WINDOW) not in {rows.fold(one.name) for one in rows.visible}:
        rows = replace(rows, visible=(*rows.visible, Visible("", _WINDOW, name)))
    scope.rows = rows
    return rows


def table_function(call: exp.Anonymous, rows: Rows, context: Context) -> Rows:
    """The rows that ``TUMBLE`` or ``HOP`` makes of others: with their window's beginning, end and last time."""
    given = call.expressions
    is_hop, time = call.name.upper() == "HOP", given[1] if len(given) > 1 else call
    if not (isinstance(time, exp.Anonymous) and time.name.upper() == "DESCRIPTOR" and time.expressions):
        raise context.refuse(
            time, call.name.upper(), "Its second argument is the column of the time.", "Write DESCRIPTOR(at)."
        )
    # The length, then the distance: HOP has them the other way round, and for TUMBLE they are one.
    lengths = [*given[3:4], *given[2:3], *given[4:]] if is_hop else [*given[2:3], *given[2:]]
    windows = _windows(call, [time, *lengths], context)
    scope = Scope(rows, context, call.name.upper())
    columns = {
        "window_start": "{0}",
        "window_end": "{1}",
        "window_time": f"{{1}} - INTERVAL {_MILLISECOND_US} MICROSECONDS",
    }
    source = rows.visible[0].source
    made = _added(rows, windows, _time(time.expressions[0], rows, scope), columns, call, context)
    return replace(made, visible=(*rows.visible, *(Visible(source, one, one) for one in columns)))


def _windows(call: exp.Anonymous, given: list[exp.Expr], context: Context) -> Windows:
    """The windows of a call: its arguments are the time, the length, the distance and when a window begins."""
    if not 2 <= len(given) <= 4:
        raise context.refuse(
            call,
            call.name,
            "It takes a time and a length, and then a distance and a start.",
            "Write window(at, '10 minutes', '5 minutes').",
        )
    size, *others = (length_of(one, _WINDOW, context) for one in given[1:])
    slide = others[0] if others else size
    start = others[1] if len(others) > 1 else 0
    if not 0 < slide <= size or start >= slide:
        raise context.refuse(
            given[-1],
            call.name,
            "A window is at least as long as the distance to the next, and starts within it.",
            "Write the length first, as in window(at, '10 minutes', '5 minutes').",
        )
    return Windows(size, slide, start)


def length_of(node: exp.Expr, clause: str, context: Context) -> int:
    """A duration in microseconds: a text, or an interval."""
    text = node.name if node.is_string else ""
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        text = f"{node.this.name} {node.args['unit'].name if node.args.get('unit') else ''}"
    length = microseconds(text.lower().strip().removeprefix("interval "))
    if length is None or length < 0:
        raise context.refuse(
            node, clause, "This is no duration.", "Write it as '5 minutes' or INTERVAL '5' MINUTES."
        )
    return length


def _time(node: exp.Expr, rows: Rows, scope: Scope) -> str:
    """The time of a row, as SQL."""
    text, context = scope.sql(node), scope.context
    with context.reasons.placed(beginning(node), _WINDOW):
        kind = selected_type(rows.table, text)
    if not isinstance(kind, T.TimestampType):
        raise context.refuse(
            node,
            _WINDOW,
            f"The time is of type {kind.simpleString()}, and not a timestamp.",
            "Cast it, as in CAST(at AS TIMESTAMP).",
        )
    return f"({text})"


def _added(
    rows: Rows, windows: Windows, time: str, columns: dict[str, str], call: exp.Expr, context: Context
) -> Rows:
    """The rows with columns of their windows; a row without a time is in none.

    `columns` are SQL over when a window begins, ``{0}``, and when it ends, ``{1}``.
    """
    begin = windows.last_begin(time)
    with context.reasons.placed(beginning(call), _WINDOW):
        if windows.count == 1:
            made = _of(columns, begin, windows.size_us)
            table = rows.table.filter(f"{time} IS NOT NULL").with_columns(**made)
            return replace(rows, table=table)
        begin = f"{begin} - w * {windows.slide_us}L"
        values = [quoted(one) for one in rows.table.columns if one not in rows.table.key_columns]
        texts = _of(columns, begin, windows.size_us)
        struct = ", ".join([*values, *(f"{text} AS {quoted(name)}" for name, text in texts.items())])
        there = f"filter(sequence(0, {windows.count - 1}), w -> {begin} + {windows.size_us}L > unix_micros({time}))"
        array = f"transform({there}, w -> struct({struct}))"
        number = unique("window_number", [*rows.table.columns, *columns], rows.fold)
        return replace(rows, table=flat_mapped(rows.table, array, number))


def _of(columns: dict[str, str], begin: str, size_us: int) -> dict[str, str]:
    """Columns of a window that begins at a time in microseconds."""
    bounds = f"timestamp_micros({begin})", f"timestamp_micros({begin} + {size_us}L)"
    return {name: text.format(*bounds) for name, text in columns.items()}
