"""Plans over tables of strings: the nodes, with expressions that are Python functions.

A table has a key of one or more strings and one string column, its value.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tablestream.operators.reduce.fold import UserFunctions
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import (
    Aggregate,
    AsOf,
    Captured,
    Deduplicate,
    Field,
    Fields,
    Filter,
    ForeignKeyJoin,
    How,
    Keep,
    KeyJoin,
    ManyToMany,
    Materialize,
    Named,
    Node,
    OneToMany,
    Reorder,
    Select,
    Source,
    Suppress,
    Top,
    Transactions,
)
from tablestream.topology.over import Over, WindowMeasure
from tablestream.topology.streams import FlatMap, Grace, Merge, SelectKey, StreamJoin, ToStream, ToTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Key: TypeAlias = tuple[str | None, ...]
Value: TypeAlias = str | None
Joiner: TypeAlias = "Callable[[Value, Value], Value]"
ForeignKey: TypeAlias = "Callable[[str, Key], str | Key | None]"
"""(value, key) -> the key pointed at; a single string for a key of one part."""

STRING, LONG, INTEGER = json.dumps("string"), json.dumps("long"), json.dumps("integer")
STRINGS = json.dumps({"type": "array", "elementType": "string", "containsNull": True})
VALUE = (Field("v", STRING),)


class Record(NamedTuple):
    """An input record of a source; a single string is a key of one part, none a null key.

    `written`: its writer, and the writer's micro-batch and number.
    """

    source: Source
    key: str | Key | None
    value: Value
    ts: int
    written: tuple[str, int, int] | None = None

    @property
    def parts(self) -> Key | None:
        """The key as a tuple; none if a part is null."""
        return None if None in self.whole else self.whole

    @property
    def whole(self) -> Key:
        """The key as a tuple, with nulls."""
        return self.key if isinstance(self.key, tuple) else (self.key,)


class Change(NamedTuple):
    """A change of an output: key parts, value (none: a tombstone; with ``before``: old and new), time."""

    key: Key
    value: Any
    ts: int


@dataclass(frozen=True)
class Python:
    """A Python function as an expression; `columns`: those that it uses."""

    function: Callable[..., Any]
    columns: frozenset[str] | None = None

    may_fail = False

    @property
    def text(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", "function")


def called(text: str) -> Python:
    """Declare an expression that is written so."""

    def function(*_: Any) -> None:
        return None

    function.__name__ = text
    return Python(function)


def source(name: str, *, width: int = 1) -> Source:
    """Declare a change log whose key has `width` parts."""
    return Source(name, "", _key(width), VALUE, frame=None, text="")


def stream(name: str, *, width: int = 1) -> Source:
    """Declare a stream of records whose key has `width` parts."""
    return Source(name, "", _key(width), VALUE, frame=None, text="", records=True)


def rekeyed(parent: Node, by: ForeignKey | None = None, *, width: int = 1) -> SelectKey:
    """Give records another key, by default the value's first pointer."""
    key = _key(width)
    named = (Named(one.name, part) for one, part in zip(key, _on(by, width), strict=True))
    return SelectKey(f"{parent.name}_key", "", key, VALUE, parent, tuple(named))


def unfolded(parent: Node, function: Callable[[str], list[str | None] | None]) -> FlatMap:
    """Put several records, or none, in place of each; of a table, several rows with the position in their key."""
    arrays = (Named("elements", Python(function)),)
    array = Select(f"{parent.name}_array", "", parent.key, (Field("elements", STRINGS),), parent, arrays)
    key = parent.key if parent.is_stream else (*parent.key, Field("position", INTEGER))
    return FlatMap(f"{parent.name}_flat", "", key, VALUE, array, takes_apart=False)


def merged(left: Node, right: Node) -> Merge:
    """Put the records of two streams together."""
    return Merge(f"{left.name}_{right.name}", "", left.key, VALUE, left, right)


def to_stream(table: Node) -> ToStream:
    """Take the changes of a table as records."""
    return ToStream(f"{table.name}_stream", "", table.key, VALUE, table)


def to_table(records: Node) -> ToTable:
    """Read records as a table."""
    return ToTable(f"{records.name}_table", "", records.key, VALUE, records)


def materialized(table: Node, history: int | None = None) -> Materialize:
    """Keep a table, and with a history its versions, in the unit of its timestamps."""
    return Materialize(f"{table.name}_kept", "", table.key, VALUE, table, history)


def captured(name: str, transactions: Transactions | None = None, *, follows_moves: bool = True) -> Captured:
    """Declare a table that is captured from a database."""
    given = source(name)
    return Captured(f"{name}_rows", "", given.key, VALUE, given, follows_moves, "auto", name, transactions)


def whole_transactions() -> Transactions:
    """Declare the transactions of a database."""
    return Transactions("whole", "", (), (), Source("ends", "", (), VALUE, None, "", records=True), 5)


def deduplicated(given: Source) -> Deduplicate:
    """Drop what a source's writer wrote again."""
    return Deduplicate(f"{given.name}_once", "", given.key, VALUE, given)


def reordered(given: Node, bound: int) -> Reorder:
    """Put what comes into the order of its times, in their unit."""
    return Reorder(f"{given.name}_reordered", "", given.key, VALUE, given, bound)


def looked_up(
    records: Node,
    table: Node,
    how: How = "inner",
    on: ForeignKey | None = None,
    joiner: Joiner | None = None,
    *,
    copied: bool = False,
    grace: Grace | None = None,
    corrections: bool = False,
) -> StreamJoin:
    """Join records with the rows that they point at, by default with the value's first pointer."""
    name, select, gone = f"{records.name}_{table.name}", *_select(joiner)
    parts = _on(on, len(table.key))
    return StreamJoin(
        name,
        "",
        (*records.key, Field("record_id", LONG)) if corrections else records.key,
        VALUE,
        records,
        table,
        how,
        select,
        gone,
        parts,
        table.key,
        copied=copied,
        grace=grace,
        corrections=corrections,
    )


def new_key(node: SelectKey, value: Value, key: Key) -> Key:
    """Evaluate a record's new key; without a value it is null."""
    return tuple(None if value is None else call(one.expression, value, key) for one in node.columns)


def filtered(parent: Node, condition: Callable[[str], bool], *, negate: bool = False) -> Filter:
    """Declare a filter."""
    return Filter(f"{parent.name}_filter", "", parent.key, VALUE, parent, Python(condition), negate)


def mapped(parent: Node, function: Callable[[str], Value], *, total: bool = False) -> Select:
    """Declare a select; `total`: the function never returns none, so no row goes."""
    gone = None if total else Python(lambda value: function(value) is None)
    return Select(f"{parent.name}_map", "", parent.key, VALUE, parent, (Named("v", Python(function)),), gone)


def pair(left: Value, right: Value) -> str:
    """Join two values as text."""
    return f"({'null' if left is None else left},{'null' if right is None else right})"


def points(number: int) -> ForeignKey:
    """Give a foreign key: the `number`-th of the pointers ``|x`` in a value, none if it has fewer."""

    def pointer(value: str, key: Key) -> str | None:
        del key
        found = re.findall(r"\|([^|,()@]*)", value)
        return found[number] if number < len(found) else None

    return pointer


def pointers(value: str) -> list[str | None]:
    """Give all pointers of a value, each as a value."""
    return [f"|{found}" for found in re.findall(r"\|([^|,()]*)", value)]


def as_text(number: str) -> str:
    """Give a value, such as a number, as one that points at it."""
    return f"|{number}"


def key_join(
    left: Node,
    right: Node,
    how: How = "inner",
    joiner: Joiner | None = None,
    *,
    complete_history: bool = False,
) -> KeyJoin:
    """Declare a key join; a joiner other than `pair` may return none, which deletes."""
    name, select, gone = f"{left.name}_{right.name}", *_select(joiner)
    return KeyJoin(
        name, "", left.key, VALUE, left, right, how, select, gone, complete_history=complete_history
    )


def foreign_key_join(
    left: Node,
    right: Node,
    how: How = "inner",
    on: ForeignKey | None = None,
    joiner: Joiner | None = None,
    *,
    copied: bool = False,
    on_key: bool = False,
    complete_history: bool = False,
    spread: int | None = None,
    as_of: AsOf | None = None,
) -> ForeignKeyJoin:
    """Declare a foreign-key join, by default on the value's first pointer; `copied`: every shard has the right rows."""
    width = len(left.key) + (len(right.key) if how in {"right", "outer"} else 0)
    name, select, gone = f"{left.name}_{right.name}", *_select(joiner)
    parts = _on(on, len(right.key))
    return ForeignKeyJoin(
        name, "", _key(width), VALUE, left, right, how, select, gone, parts, right.key, copied=copied, on_key=on_key,
        complete_history=complete_history, spread=spread, as_of=as_of,
    )  # fmt: skip


def as_of_join(
    left: Node,
    right: Node,
    how: How = "inner",
    on: ForeignKey | None = None,
    joiner: Joiner | None = None,
    *,
    forward: bool = False,
    strict: bool = False,
) -> ForeignKeyJoin:
    """Declare a join as of the time that a value names, as in ``a|x@7``; `strict`: not at that very time.

    For a value that names none it is some time.
    """

    def as_of(value: str, key: Key) -> int | None:
        del key
        _, named, time = value.partition("@")
        shift = strict * (1 if forward else -1)
        if not named:
            return zlib.crc32(value.encode()) % 40 + shift
        return int(time) + shift if time else None

    time = AsOf(Python(as_of), forward, "as_of")
    return foreign_key_join(left, right, how, on, joiner, as_of=time)


def starred(center: Node, *joins: tuple[Node, How, ForeignKey], copied: bool = False) -> Node:
    """Declare a star join, as `tablestream.handles.star` makes it: a lookup for each table, and one join on the key."""
    node = center
    for table, how, on in joins:
        looked_up = ForeignKeyJoin(
            f"{table.name}_looked_up", "", center.key, VALUE, center, table, "left", (), None,
            _on(on, len(table.key)), table.key, copied=copied, right_only=True,
        )  # fmt: skip
        select, gone = _select(None)
        node = KeyJoin(
            f"{node.name}_{table.name}",
            "",
            center.key,
            VALUE,
            node,
            looked_up,
            how,
            select,
            gone,
            own_times=True,
        )
    return node


def one_to_many(
    one: Node, many: Node, how: How = "inner", on: ForeignKey | None = None, joiner: Joiner | None = None
) -> OneToMany:
    """Declare the join seen from the one, by default on the first pointer of the many's value."""
    width = len(one.key) + len(many.key)
    name, select, gone = f"{one.name}_{many.name}", *_select(joiner)
    return OneToMany(
        name, "", _key(width), VALUE, one, many, how, select, gone, _on(on, len(one.key)), one.key
    )


def many_to_many(
    left: Node,
    right: Node,
    on: ForeignKey | None = None,
    right_on: ForeignKey | None = None,
    joiner: Joiner | None = None,
    *,
    width: int = 1,
) -> ManyToMany:
    """Declare the join of rows with equal pointers, by default the first ones of both."""
    name, select, gone = f"{left.name}_{right.name}", *_select(joiner)
    key = _key(len(left.key) + len(right.key))
    sides = (_on(on, width), _on(right_on, width))
    return ManyToMany(name, "", key, VALUE, left, right, "inner", select, gone, *sides, _key(width))


class Row(NamedTuple):
    """What the functions of a group see of a row."""

    v: str


def aggregated(
    initializer: Callable[[], str] | None,
    adder: Callable[[str, str, str], Value],
    subtractor: Callable[[str, str, str], Value],
) -> UserFunctions:
    """Functions of (group, row, aggregate), all as text; without an initializer a reduction."""

    def called(function: Callable[[str, str, str], Value]) -> Callable[[Any, Any, Any], Any]:
        def of_rows(key: Any, row: Any, aggregate: Any) -> Any:
            text = aggregate.v if initializer is None else aggregate
            made = function("/".join(map(str, key)) if isinstance(key, tuple) else str(key), row.v, text)
            return (made,) if initializer is None and made is not None else made

        return of_rows

    return UserFunctions(initializer, called(adder), called(subtractor), ("k0",), ("v",), ("v",))


def _short(text: str) -> str:
    """Stand for a row in an aggregate: its first letter and its pointers, and a digest if it is long."""
    if len(text) <= 12 and "," not in text:
        return text
    pointers = re.findall(r"\|[^|,()]*", text)[:2]
    return f"{text[0]}{zlib.crc32(text.encode()) % 1000}{''.join(pointers)}"


def _signed(sign: str, *, ordered: bool = True) -> Callable[[str, str, str], str]:
    """Write a row down with a sign."""

    def noted(group: str, row: str, text: str) -> str:
        one = f"{sign}{group}:{_short(row)}"
        return f"{text},{one}" if ordered else ",".join(sorted([*text.split(","), one]))

    return noted


_ADDED, _SUBTRACTED = _signed("+"), _signed("-")
#: Write down what comes and what goes, in order.
HISTORY = aggregated(lambda: "a", _ADDED, _SUBTRACTED)
#: The same, whatever the order.
SORTED = aggregated(lambda: "a", _signed("+", ordered=False), _signed("-", ordered=False))
#: A reduction.
REDUCED = aggregated(None, _ADDED, _SUBTRACTED)
#: Some rows delete their group as they come, others as they go.
DELETING = aggregated(
    lambda: "a",
    lambda group, row, text: None if row.endswith("1") else _ADDED(group, row, text),
    lambda group, row, text: None if row.startswith("b") else _SUBTRACTED(group, row, text),
)


def grouped(
    parent: Node,
    by: ForeignKey | None = None,
    functions: UserFunctions = HISTORY,
    *,
    of: Callable[[str], Value] | None = None,
    width: int = 1,
    keep_empty: bool = False,
) -> Aggregate:
    """Declare groups by a key of `width` parts, by default the value's first pointer; `of`: what is aggregated."""
    inputs = (Named("v", Python(of or (lambda value: value))),)
    key = _key(width)
    functions = replace(functions, key=tuple(one.name for one in key))
    return Aggregate(
        f"{parent.name}_by", "", key, VALUE, parent, _on(by, width), inputs, VALUE, (), functions, keep_empty
    )


def counts(
    parent: Node, by: ForeignKey | None = None, *, width: int = 1, keep_empty: bool = False
) -> Aggregate:
    """Declare groups and count their rows; the value is a number."""
    return Aggregate(
        f"{parent.name}_n", "", _key(width), (Field("n", LONG),), parent, _on(by, width), (), (),
        (Measure("count", None),), None, keep_empty,
    )  # fmt: skip


def counted(
    parent: Node, by: ForeignKey | None = None, *, width: int = 1, keep_empty: bool = False
) -> Select:
    """Declare groups with the greatest of their rows and their number, as text."""
    value, measures = (Field("most", STRING), Field("n", LONG)), (Measure("max", 0), Measure("count", None))
    inputs = (Named("most", Python(lambda value: value)),)
    node = Aggregate(
        f"{parent.name}_n", "", _key(width), value, parent, _on(by, width), inputs, VALUE, measures, None,
        keep_empty,
    )  # fmt: skip
    columns = (Named("v", Python(lambda row: f"{row[0] or 'null'},{row[1]}")),)
    return Select(f"{node.name}_text", "", node.key, VALUE, node, columns)


def topped(
    parent: Node,
    by: ForeignKey | None = None,
    n: int = 2,
    *,
    order: tuple[tuple[Callable[[str], Value], bool], ...] = (),
    width: int = 1,
) -> Top:
    """Declare the first rows of groups by `order`, and then the greatest values first; equal rows look the same."""
    inputs = [Named("v", Python(lambda value: value)), *(Named("by", Python(of)) for of, _ in order)]
    fields = (*VALUE, *(Field(f"i{number}", STRING) for number in range(len(order))))
    ranked = [(number, down) for number, (_, down) in enumerate(order, 1)]
    return Top(
        f"{parent.name}_top", "", (*_key(width), Field("rank", LONG)), VALUE, parent, _on(by, width), tuple(inputs),
        fields, (*ranked, (0, True)), n,
    )  # fmt: skip


def first_of_key(
    parent: Node,
    by: ForeignKey | None = None,
    *,
    order: tuple[tuple[Callable[[str], Value], bool], ...] = (),
    width: int = 1,
    greatest: bool = False,
) -> Top:
    """Declare the first row of each new key by `order`, and then with `greatest` the greatest value; else the last."""
    top = topped(parent, by, 1, order=order, width=width)
    by_order = top.order if greatest else top.order[:-1]
    return replace(top, name=f"{parent.name}_rekeyed", key=_key(width), order=by_order, ranked=False)


#: The window functions of `over`, with the inputs that they are of: the value, what rows are ordered by, the length.
_OF_VALUE, _OF_ORDER, _OF_LENGTH = range(3)
_MEASURES = (
    WindowMeasure("row_number"), WindowMeasure("rank"), WindowMeasure("dense_rank"), WindowMeasure("lag", _OF_VALUE),
    WindowMeasure("lead", _OF_ORDER, _OF_VALUE, 2), WindowMeasure("first_value", _OF_VALUE),
    WindowMeasure("last_value", _OF_ORDER), WindowMeasure("count"), WindowMeasure("count", _OF_ORDER),
    WindowMeasure("sum", _OF_LENGTH), WindowMeasure("avg", _OF_LENGTH), WindowMeasure("min", _OF_ORDER),
    WindowMeasure("max", _OF_VALUE),
)  # fmt: skip
DOUBLE = json.dumps("double")
_TOLD = [INTEGER] * 3 + [STRING] * 4 + [LONG] * 3 + [DOUBLE, STRING, STRING]


def windows(
    rows: Sequence[tuple[Any, str | None]],
    number: int,
    *,
    by_rows: bool = False,
    between: tuple[float | None, float | None] = (None, 0),
    ordered: bool = True,
) -> tuple[Any, ...]:
    """Tell a row of a partition, whose rows have a value and what orders it, what `_MEASURES` are."""
    value, order = rows[number]
    peers = (
        [place for place, row in enumerate(rows) if row[1] == order] if ordered else list(range(len(rows)))
    )
    near = [number, number] if by_rows else [peers[0], peers[-1]]
    begin, end = (None if far is None else int(at + far) for at, far in zip(near, between, strict=True))
    frame = [
        row for at, row in enumerate(rows) if (begin is None or at >= begin) and (end is None or at <= end)
    ]
    before = {row[1] for row in rows[: peers[0]]}
    orders = [row[1] for row in frame if row[1] is not None]
    lengths = [len(row[0]) for row in frame]
    return (
        value, number + 1, peers[0] + 1, len(before) + 1, rows[number - 1][0] if number else None,
        rows[number + 2][1] if number + 2 < len(rows) else value, frame[0][0] if frame else None,
        frame[-1][1] if frame else None, len(frame), len(orders), sum(lengths) if frame else None,
        sum(lengths) / len(frame) if frame else None, min(orders, default=None),
        max((row[0] for row in frame), default=None),
    )  # fmt: skip


def told(row: tuple[Any, ...]) -> str:
    """Show what a row is told, as text."""
    return ",".join("null" if one is None else str(one) for one in row)


def over(
    parent: Node,
    by: ForeignKey | None = None,
    order: Callable[[str], Value] | None = lambda value: value[0],
    *,
    descending: bool = False,
    by_rows: bool = False,
    between: tuple[float | None, float | None] = (None, 0),
    width: int = 1,
) -> Select:
    """Declare window functions of rows with the same pointer, as text; None: rows have no order."""
    functions = (lambda value: value, order or (lambda value: value[:1]), len)
    inputs = tuple(Named(f"i{place}", Python(one)) for place, one in enumerate(functions))
    fields = (*VALUE, Field("by", STRING), Field("length", LONG))
    made = tuple(Field(f"w{place}", kind) for place, kind in enumerate(_TOLD))
    ordered = () if order is None else ((_OF_ORDER, descending),)
    node = Over(
        f"{parent.name}_over", "", parent.key, (*VALUE, *made), parent, _on(by, width), _key(width), inputs, fields,
        ordered, _MEASURES, by_rows, between,
    )  # fmt: skip
    return Select(f"{node.name}_text", "", node.key, VALUE, node, (Named("v", Python(told)),))


def _key(width: int) -> Fields:
    return tuple(Field(f"k{number}", STRING) for number in range(width))


def _select(joiner: Joiner | None) -> tuple[tuple[Named, ...], Python | None]:
    gone = None if joiner is None else Python(lambda left, right: joiner(left, right) is None)
    return (Named("v", Python(joiner or pair)),), gone


def _on(on: ForeignKey | None, width: int) -> tuple[Python, ...]:
    """One expression per part of the key pointed at, over value and key."""
    whole = on or points(0)

    def part(number: int) -> Python:
        def nth(value: str, key: Key) -> str | None:
            found = whole(value, key)
            return found[number] if isinstance(found, tuple) else found

        nth.__name__ = getattr(whole, "name", "nth")  # the plans of stored states have no other name
        return Python(nth)

    return tuple(part(number) for number in range(width))


def group_of(node: Aggregate | Top | Over, value: str, key: Key) -> Key:
    """Evaluate the group of a row; parts of it may be null."""
    return tuple(call(part, value, key) for part in node.on)


def foreign_key_of(join: ForeignKeyJoin | OneToMany | StreamJoin, value: Value, key: Key) -> Key | None:
    """Evaluate a join's foreign key; none if the row is absent or a part is null."""
    return pointed(join.on, value, key)


def pointed(on: Sequence[object], value: Value, key: Key) -> Key | None:
    """Evaluate what a row points at; none if the row is absent or a part is null."""
    if value is None:
        return None
    parts = tuple(part.function(value, key) for part in on if isinstance(part, Python))
    return None if None in parts else parts


def call(expression: object, *arguments: Any) -> Any:
    """Evaluate an expression."""
    assert isinstance(expression, Python)
    return expression.function(*arguments)


def suppressed(
    table: Node,
    until: int,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
    fail_when_full: bool = False,
    wall_clock: int | None = None,
) -> Suppress:
    """Hold the changes of a table back, in the unit of its timestamps."""
    return Suppress(
        f"{table.name}_suppress", "test", table.key, table.value, table, until, max_records=max_records,
        max_bytes=max_bytes, fail_when_full=fail_when_full, wall_clock_us=wall_clock,
    )  # fmt: skip


def kept(
    table: Node,
    length: int,
    by: Callable[[str, Key], int | None] | None = None,
    wall_clock: int | None = None,
) -> Keep:
    """Forget the rows of a table that are older than a length, in the unit of its timestamps or of `by`."""
    time = None if by is None else Python(by)
    return Keep(f"{table.name}_keep", "test", table.key, table.value, table, length, time, wall_clock)


def frozen(table: Node, length: int, by: Callable[[str, Key], int | None]) -> Keep:
    """Leave the rows of a table as they are once they are older than a length."""
    return replace(kept(table, length, by), name=f"{table.name}_freeze", freezes=True)


def named_time(value: str, key: Key) -> int | None:
    """The time that a value names, as in ``a@7``; null in ``a@``. For a value that names none it is some time."""
    del key
    _, named, time = value.partition("@")
    if not named:
        return zlib.crc32(value.encode()) % 12
    return int(time) if time else None
