"""Reference operators for nodes of a plan, where the reference's own want something around them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tablestream.operators.reduce.fold import UserFunctions
from tablestream.topology.nodes import Aggregate
from tests import reference
from tests.plans.tables import Key, Row, Value, call, group_of, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tablestream.topology.nodes import Filter, Top
    from tablestream.topology.over import Over


class Groups(reference.Reference):
    """A table by groups: both halves of the reference's."""

    def __init__(self, node: Aggregate, *, compat: bool) -> None:
        super().__init__(compat=compat)
        self._node = node

        def selected(value: Value, key: Key) -> tuple[Key, Any] | None:
            assert value is not None
            return group_of(node, value, key), tuple(call(one.expression, value) for one in node.inputs)

        user, listed = node.functions, (tuple, _with, _without)
        if isinstance(user, UserFunctions):
            listed = (_started(user), _called(user, user.adder), _called(user, user.subtractor))
        silent = user is None and not compat  # counts and greatest values do not depend on when a row came
        self._rows = reference.GroupBy(selected, silent=silent, compat=compat)
        self._groups = reference.Aggregate(*listed, keep_empty=node.keep_empty, compat=compat)

    def step(self, messages: Sequence[tuple[int, Any, Any, int]]) -> list[reference.Output]:
        """Answer a step."""
        outputs = self._groups.step(self._rows.step(messages))
        return [output._replace(value=shown(self._node, output.value)) for output in outputs]


class TopRows(reference.Reference):
    """The first rows of a table's groups: both halves of the reference's."""

    def __init__(self, node: Top, *, compat: bool) -> None:
        super().__init__(compat=compat)

        def selected(value: Value, key: Key) -> tuple[Key, Any] | None:
            assert value is not None
            return group_of(node, value, key), (key, [call(one.expression, value) for one in node.inputs])

        def part(number: int) -> Callable[[Any], Any]:
            return lambda row: None if row[1][number] is None else row[1][number].encode()

        order = [(part(number), down) for number, down in node.order]
        self._rows = reference.GroupBy(selected, compat=compat)
        self._ranked = node.ranked
        self._top = reference.Top(node.n, order, lambda row: row[1][0], ranked=node.ranked, compat=compat)

    def step(self, messages: Sequence[tuple[int, Any, Any, int]]) -> list[reference.Output]:
        """Answer a step."""
        outputs = self._top.step(self._rows.step(messages))
        if not self._ranked:
            return outputs
        return [output._replace(key=(*output.key[0], output.key[1])) for output in outputs]


def shown(node: Aggregate, aggregate: Any) -> Any:
    """One column, or a tuple of several; declared aggregates are made of all rows of the group."""
    if aggregate is None or node.functions is not None:
        return aggregate[0] if isinstance(aggregate, tuple) else aggregate
    parts = tuple(
        len(aggregate)
        if measure.function == "count"
        else max((row[measure.column or 0] for row in aggregate), default=None)
        for measure in node.measures
    )
    return parts if len(parts) > 1 else parts[0]


def _with(_: Key, row: Any, rows: tuple[Any, ...]) -> Any:
    return (*rows, row)


def _without(_: Key, row: Any, rows: tuple[Any, ...]) -> Any:
    at = rows.index(row)
    return rows[:at] + rows[at + 1 :]


def _started(user: UserFunctions) -> Any:
    return user.initializer


def _called(user: UserFunctions, function: Callable[[Any, Any, Any], Any]) -> Any:
    """A function as a user's is called: with a row, and a key of one part as its value."""

    def called(key: Key, row: Any, aggregate: Any) -> Any:
        seen = Row(*aggregate) if user.initializer is None else aggregate
        return function(key[0] if len(key) == 1 else key, Row(*row), seen)

    return called


class RecordGroups(reference.Reference):
    """A stream's records by groups."""

    def __init__(self, node: Aggregate, *, compat: bool) -> None:
        super().__init__(compat=compat)
        self._node = node
        user = node.functions
        functions: tuple[Any, Any] = (tuple, _with)
        if isinstance(user, UserFunctions):
            functions = _started(user), _called(user, user.adder)
        self._groups = reference.StreamAggregate(*functions, compat=compat)

    def step(self, messages: Sequence[tuple[int, Any, Any, int]]) -> list[reference.Output]:
        """Answer a step."""
        node = self._node
        records = [
            (0, (None,), None, ts)
            if value is None
            else (
                0,
                group_of(node, value, key),
                tuple(call(one.expression, value) for one in node.inputs),
                ts,
            )
            for _, key, value, ts in messages
        ]
        outputs = self._groups.step(records)
        self.dropped = self._groups.dropped
        return [output._replace(value=shown(node, output.value)) for output in outputs]


def over_of(node: Over) -> reference.Over:
    """What tells rows of their partitions."""

    def told(rows: list[tuple[Any, Any]], number: int) -> Any:
        whole = [(value, call(node.inputs[1].expression, value)) for value, _ in rows]
        return windows(whole, number, by_rows=node.by_rows, between=node.between, ordered=bool(node.order))

    def order(value: Any) -> Any:
        return call(node.inputs[1].expression, value) if node.order else None

    descending = bool(node.order) and node.order[0][1]
    return reference.Over(partial(group_of, node), order, told, descending=descending)


def groups_of(node: Aggregate | Top, *, compat: bool) -> reference.Reference:
    """What makes groups of rows or records."""
    if not isinstance(node, Aggregate):
        return TopRows(node, compat=compat)
    return (RecordGroups if node.parent.is_stream else Groups)(node, compat=compat)


class Unfolded(reference.Reference):
    """Several records in place of each."""

    def __init__(self, *, compat: bool) -> None:
        super().__init__(compat=compat)

    def step(self, messages: Sequence[tuple[int, Any, Any, int]]) -> list[reference.Output]:
        """Answer a step."""
        return [
            reference.Output(key, element, ts)
            for _, key, elements, ts in messages
            for element in elements or ()
        ]


class Elements(reference.Reference):
    """A row for each element of a table's arrays, under the row's key and the element's position."""

    def __init__(self, *, compat: bool) -> None:
        super().__init__(compat=compat)
        self._arrays: dict[Key, list[Any]] = {}

    def step(self, messages: Sequence[tuple[int, Any, Any, int]]) -> list[reference.Output]:
        """Answer a step: the elements that are others after it than before it."""
        last = {key: (elements or [], ts) for _, key, elements, ts in messages}
        outputs = []
        for key, (after, ts) in last.items():
            before = self._arrays.pop(key, [])
            self._arrays[key] = after
            for position in range(max(len(before), len(after))):
                old, new = (one[position : position + 1] for one in (before, after))
                if old != new:
                    outputs.append(reference.Output((*key, position), new[0] if new else None, ts))
        return outputs


class Kept(reference.Reference):
    """The records for which a condition holds."""

    def __init__(self, node: Filter, *, compat: bool) -> None:
        super().__init__(compat=compat)
        self._node = node

    def step(self, messages: Sequence[tuple[int, Any, Any, int]]) -> list[reference.Output]:
        """Answer a step."""
        condition = self._node.condition
        return [
            reference.Output(key, value, ts)
            for _, key, value, ts in messages
            if (value is not None and bool(call(condition, value))) is not self._node.negate
        ]


class Passing(reference.Reference):
    """Changes or records as they come: what two streams are merged by, and a table becomes one."""

    def __init__(self, *, compat: bool) -> None:
        super().__init__(compat=compat)

    def step(self, messages: Sequence[tuple[int, Any, Any, int]]) -> list[reference.Output]:
        """Answer a step."""
        return [reference.Output(*change) for _, *change in messages]
