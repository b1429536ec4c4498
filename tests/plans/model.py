"""A whole plan of reference operators, record after record: what the engine is compared with.

Each operator is one of `tests.reference`; here stands only how changes pass from one to the next.

Default mode
    A record is one step. Nodes are worked in the order of their declaration (parents first), and each gets all
    messages of the step at once. Where a table reaches an operator by several ways (a diamond), that means: all
    effects of the record on the operator are applied, then each output key emits at most once. A view with a
    filter tells nothing of a row that it has neither before nor after, also where a select on top of the filter
    deletes (in compat such a select repeats its tombstones). The order in which one step's rows of a group change
    is not settled.

Compat mode
    One message after the other, each to its end before the next (depth first): the children of a table in the
    order of their declaration, the right role of a foreign-key join before its left one, also where both read one
    table through views. Ports of one operator that read one table are written together, before the first of them
    answers, and those of key joins that read a source before anyone answers its change.
    A tree of key joins is one operator, as its inner joins keep no table of their own: a row read from them is
    made of the rows of its inputs as they are now. The same is why a change of a key join has two times: its own,
    and the one of the row as it is read later (`ChangeTime`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from tablestream.topology.graph import ancestors, base_of, fused, history_of, is_filtered, view_path
from tablestream.topology.nodes import (
    Aggregate,
    Filter,
    ForeignKeyJoin,
    Join,
    Keep,
    KeyJoin,
    ManyToMany,
    Materialize,
    Node,
    OneToMany,
    Select,
    Source,
    Suppress,
    Top,
)
from tablestream.topology.over import Over
from tablestream.topology.streams import FlatMap, SelectKey, StreamJoin, ToStream, ToTable
from tests import reference
from tests.plans.engine import Step
from tests.plans.tables import Change, Key, Record, Value, call, foreign_key_of, new_key, pointed
from tests.plans.twins import Elements, Kept, Passing, Unfolded, groups_of, over_of
from tests.reference import (
    AsOfJoin,
    LatestOnly,
    TableSource,
    Version,
    VersionedTable,
    VersionedView,
)
from tests.reference.steps import Delta, LatestRows
from tests.reference.steps import Row as StoredRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tablestream.planner.physical_plan import Output
    from tablestream.topology.nodes import AsOf

#: Place, role, and what is done with the changes of a base and its views.
Reader: TypeAlias = "tuple[tuple[int, ...], int, Callable[[dict[Node, Moved]], None]]"
#: Ports of the reference's joins that point at a row.
POINTING, POINTED_AT = 0, 1


class ChangeTime(int):
    """A change's time, with the time that the row has when it is read later."""

    row_ts: int

    @classmethod
    def of(cls, ts: int, row_ts: int) -> ChangeTime:
        """Make one."""
        time = cls(ts)
        time.row_ts = row_ts
        return time


class Moved(NamedTuple):
    """A change on its way; `latest`: of a versioned table, whether its key has no later version."""

    key: Key
    value: Value
    ts: ChangeTime
    latest: bool = True


class RowTimes(LatestRows):
    """A table that keeps each row's own time."""

    def put(self, key: Any, value: Value, ts: int) -> Delta:
        """Write a row."""
        delta = super().put(key, value, ts)
        if value is not None:
            self._rows[key] = StoredRow(value, ts.row_ts if isinstance(ts, ChangeTime) else ts)
        return delta


@dataclass
class Operator:
    """A reference operator in its place: the node it makes, and what it reads at each port."""

    node: Node
    twin: Any
    reads: tuple[Node, ...]
    pending: dict[int, Delta] = field(default_factory=dict)
    latest: dict[int, LatestOnly] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Let its tables keep the rows' own times, and what knows no versions read the latest alone."""
        if isinstance(self.node, Join | Aggregate | Top | Over | FlatMap) and not isinstance(
            self.node, StreamJoin
        ):
            versioned = [port for port, read in enumerate(self.reads) if history_of(read) is not None]
            versioned = versioned if self.is_rows_only else [port for port in versioned if port == POINTING]
            self.latest = {port: LatestOnly(counts=self._counts(port)) for port in versioned}
        if not isinstance(self.node, Join) or isinstance(self.node, ManyToMany) or not self.is_rows_only:
            return
        tables = [RowTimes() for _ in self.reads]
        self.twin._inputs.tables[:] = tables
        if not isinstance(self.node, KeyJoin):
            self.twin._left, self.twin._right = tables

    @property
    def is_rows_only(self) -> bool:
        """Whether it is no join that looks into the versions of its right table."""
        as_of = isinstance(self.node, ForeignKeyJoin) and self.node.as_of is not None
        return not (as_of or isinstance(self.node, StreamJoin))

    def _counts(self, port: int) -> bool:
        """Whether what is late at a port is counted here: joins count it, of a tree each its own sides."""
        if isinstance(self.node, KeyJoin) and len(self.reads) > len(self.node.parents):
            return len(leaves_of(self.node)[port][1]) == 1
        return isinstance(self.node, Join)

    @property
    def dropped(self) -> int:
        """How many records were dropped here."""
        return int(self.twin.dropped) + sum(side.dropped for side in self.latest.values())

    @property
    def splits_steps(self) -> bool:
        """Whether each of its outputs is a step of its own by default."""
        return isinstance(self.node, StreamJoin) and self.node.grace is not None

    def sees(self, port: int, change: Moved) -> bool:
        """Whether a change concerns a port: late ones of a versioned table may not."""
        return port not in self.latest or bool(self.latest[port].step([Version(*change)]))

    def moved(self, outputs: Sequence[reference.Output]) -> list[Moved]:
        """Return outputs of the twin as changes of the node."""
        if isinstance(
            self.twin, reference.Filter | Passing | Kept | Unfolded | Elements
        ):  # hands the times on
            return [Moved(key, value, cast("ChangeTime", ts)) for key, value, ts in outputs]
        changes = []
        for key, value, ts in outputs:
            row = self.twin._row(self.twin._tree, key) if isinstance(self.node, KeyJoin) else None
            changes.append(Moved(self._key(key), value, ChangeTime.of(ts, ts if row is None else row.ts)))
        return changes

    def _key(self, key: Any) -> Key:
        node = self.node
        if isinstance(node, OneToMany | ManyToMany) or (
            isinstance(node, ForeignKeyJoin) and node.keeps_unmatched
        ):
            sides = zip(key, node.parents, strict=True)
            return tuple(part for side, table in sides for part in side or (None,) * len(table.key))
        return tuple(key)

    def step(self, messages: Sequence[tuple[int, Moved]]) -> list[Moved]:
        """Answer a step."""
        seen = [(port, change) for port, change in messages if self.sees(port, change)]
        if isinstance(self.twin, VersionedView):
            told = self.twin.step([Version(*change) for _, change in seen])
            return [Moved(key, value, cast("ChangeTime", ts), latest) for key, value, ts, latest in told]
        outputs = self.twin.step([(port, *change[:3]) for port, change in seen])
        if isinstance(self.twin, VersionedTable):
            return [Moved(key, value, ChangeTime.of(ts, ts), latest) for key, value, ts, latest in outputs]
        return self.moved(outputs)

    def write(self, port: int, change: Moved) -> None:
        """Write a change to a port's table and answer it later."""
        if change.latest or port not in self.latest:
            self.pending[port] = self.twin._inputs.tables[port].put(*change[:3])

    def answer(self, port: int, change: Moved) -> list[Moved]:
        """Answer one message to a join; its port may have been written before."""
        if not isinstance(self.node, Join) or not self.is_rows_only:
            return self.step([(port, change)])
        if not self.sees(port, change):
            return []
        written = self.pending.pop(port, None)
        delta = self.twin._inputs.tables[port].put(*change[:3]) if written is None else written
        if isinstance(self.node, KeyJoin):
            return self.moved(list(self.twin._outputs(change.key, {port: delta})))
        one: dict[Key, Delta] = {change.key: delta}
        sides = (one, {}) if port == POINTED_AT else ({}, one)
        return self.moved(list(self.twin._settle(*sides)))


class Model:
    """Runs a plan of reference operators; the twin of `Engine`.

    Parameters
    ----------
    outputs
        What is asked for; ``emit``, ``before`` and the like are not looked at.
    compat
        The plan's mode.
    shard
        A key's shard: what is held back is held by shards.
    """

    def __init__(
        self, outputs: Sequence[Output], *, compat: bool = False, shard: Callable[[Key], int] = lambda _: 0
    ) -> None:
        self.compat = compat
        self._shard = shard
        self._outputs = [output.node for output in outputs]
        self._nodes = ancestors(*self._outputs)
        self._sources = {node: TableSource(compat=compat) for node in self._nodes if isinstance(node, Source)}
        self._operators = {node: self._operator(node) for node in self._nodes if _has_operator(node)}
        selects = (node for node in self._nodes if isinstance(node, Select) and not node.is_stream)
        views = (node for node in selects if is_filtered(node) and history_of(node) is None)
        self._silent = {node: _keeping_all(node) for node in views}
        self._position = 0
        self._answers: list[list[Step]] = []
        self._readers: dict[Node, list[Reader]] = {}

    @property
    def dropped(self) -> int:
        """How many records the operators dropped."""
        sources, operators = self._sources.values(), self._operators.values()
        return sum(one.dropped for one in sources) + sum(one.dropped for one in operators)

    @property
    def late(self) -> int:
        """How many records came too late to wait."""
        twins = [operator.twin for operator in self._operators.values()]
        return sum(twin.late for twin in twins if isinstance(twin, AsOfJoin))

    def steps(self, records: Sequence[Record]) -> list[list[Step]]:
        """Work off records; per output the changes, each with the number of its record, from 1."""
        self._answers = [[] for _ in self._outputs]
        for record in records:
            self._position += 1
            if record.source not in self._sources:
                continue
            if record.source.records:
                read = [reference.Output(record.whole, record.value, record.ts)]
            else:
                read = self._sources[record.source].change(0, record.parts, record.value, record.ts)
            changes = [Moved(key, value, ChangeTime.of(ts, ts)) for key, value, ts in read]
            if self.compat:
                for change in changes:
                    self._emit(record.source, change)
            else:
                self._step({record.source: changes})
        return self._answers

    def start(self, rows: Sequence[Record]) -> list[list[Step]]:
        """Work off the rows of all bootstraps as one step, with the number 0."""
        self._answers = [[] for _ in self._outputs]
        made: dict[Node, list[Moved]] = {}
        for row in rows:
            if row.source in self._sources:
                read = self._sources[row.source].change(0, row.parts, row.value, row.ts)
                changes = [Moved(key, value, ChangeTime.of(ts, ts)) for key, value, ts in read]
                made.setdefault(row.source, []).extend(changes)
        self._step(made)
        return self._answers

    def _answer(self, node: Node, change: Moved) -> None:
        for output, answers in zip(self._outputs, self._answers, strict=True):
            if output is node:
                answers.append(Step(self._position, Change(change.key, change.value, int(change.ts))))

    # Default mode

    def _step(self, made: dict[Node, list[Moved]]) -> None:
        """Work off a step, of which a node's changes are made; what then leaves by itself is a step each."""
        apart: list[tuple[Node, Moved]] = []
        for node in self._nodes:
            if node not in made:
                made[node] = self._made(node, made)
                if node in self._operators and self._operators[node].splits_steps:
                    apart += [(node, change) for change in made[node]]
                    made[node] = []
            for change in made[node]:
                self._answer(node, change)
        for node, change in apart:
            self._step({node: [change]})

    def _made(self, node: Node, made: dict[Node, list[Moved]]) -> list[Moved]:
        """Make a node's changes of a step of those of its parents."""
        if isinstance(node, Select):
            selected = [_selected(node, change) for change in made[node.parent]]
            keep = self._silent.get(node)
            return keep.step([(0, change) for change in selected]) if keep else selected
        if isinstance(node, SelectKey):
            return [_rekeyed(node, change) for change in made[node.parent]]
        if isinstance(node, ToStream) and not is_filtered(node.parent):
            return made[node.parent]
        if node not in self._operators:
            return []
        operator = self._operators[node]
        messages = [(port, change) for port, read in enumerate(operator.reads) for change in made[read]]
        return operator.step(messages) if messages else []

    # Compat mode

    def _emit(self, base: Node, change: Moved) -> None:
        """Pass a change to all that read its table, each to its end before the next."""
        self._answer(base, change)
        self._write_together(base, change)
        if base not in self._readers:
            self._readers[base] = sorted(self._find_readers(base), key=lambda reader: reader[:2])
        seen = {base: change}
        for _, _, visit in self._readers[base]:
            visit(seen)

    def _find_readers(self, base: Node) -> Iterator[Reader]:
        """Find views of a table and ports that read it or a view of it."""
        for node in self._nodes:
            is_view = isinstance(node, Filter) or not _has_operator(node)
            if is_view and node is not base and base_of(node) is base:
                yield _way(node), 0, partial(self._view, node)
        for operator in self._operators.values():
            if base is base_of(operator.reads[0]) and _is_pointing_at_itself(operator.node):
                first = min((*_way(read), operator.node.serial) for read in operator.reads)
                yield first, 0, partial(self._both_roles, operator)
            elif not isinstance(operator.node, Filter) and not _is_pointing_at_itself(operator.node):
                for port, read in enumerate(operator.reads):
                    if base_of(read) is base:
                        place, role = _place(operator, port)
                        if place[0] == 0:
                            yield place, role, partial(self._written_first, operator, port, base)
                        else:
                            yield (*_way(read), *place), role, partial(self._one_role, operator, port)

    def _view(self, node: Any, seen: dict[Node, Moved]) -> None:
        if node.parent not in seen:
            return
        change = seen[node.parent]
        if isinstance(node, Select):
            seen[node] = _selected(node, change)
        elif isinstance(node, SelectKey):
            seen[node] = _rekeyed(node, change)
        elif isinstance(node, ToStream):
            seen[node] = change
        else:
            for kept in self._operators[node].step([(0, change)]):
                seen[node] = kept
        if node in seen:
            self._answer(node, seen[node])

    def _one_role(self, operator: Operator, port: int, seen: dict[Node, Moved]) -> None:
        if operator.reads[port] in seen:
            for answer in operator.answer(port, seen[operator.reads[port]]):
                self._emit(operator.node, answer)

    def _written_first(self, operator: Operator, port: int, base: Node, seen: dict[Node, Moved]) -> None:
        """Pass a change to a port before its views are seen by others."""
        view = operator.reads[port]
        self._one_role(operator, port, {view: _seen_through(view, base, seen[base])})

    def _both_roles(self, operator: Operator, seen: dict[Node, Moved]) -> None:
        """Pass a change to a join of a table with itself; filters keep tombstones for absent rows back."""
        messages = []
        for port, read in enumerate(operator.reads):
            base = base_of(read)
            change = _seen_through(read, base, seen[base])
            is_row = change.value is not None or operator.twin._inputs.tables[port].get(change.key)
            if is_row or not is_filtered(read) or history_of(read) is not None:
                messages.append((port, change))
        for answer in operator.step(messages):
            self._emit(operator.node, answer)

    def _write_together(self, base: Node, change: Moved) -> None:
        """Write a table at all ports of an operator that read it."""
        for operator in self._operators.values():
            if isinstance(operator.node, KeyJoin):
                ports = [port for port, read in enumerate(operator.reads) if base_of(read) is base]
                for port in ports if len(ports) > 1 or isinstance(base, Source) else ():
                    operator.write(port, _seen_through(operator.reads[port], base, change))

    # Operators

    def _operator(self, node: Node) -> Operator:
        if node.is_stream or isinstance(node, ToTable | Materialize | FlatMap):
            return self._of_records(node)
        if isinstance(node, Filter):
            return Operator(node, self._filter(node), node.parents)
        if isinstance(node, KeyJoin):
            return self._key_join(node)
        if isinstance(node, Aggregate | Top | Over):
            twin = over_of(node) if isinstance(node, Over) else groups_of(node, compat=self.compat)
            return Operator(node, twin, node.parents)
        if isinstance(node, Suppress | Keep):
            return Operator(node, self._waiting(node), node.parents)
        assert isinstance(node, ForeignKeyJoin | OneToMany | ManyToMany)
        return self._matching(node)

    def _waiting(self, node: Suppress | Keep) -> reference.Suppress | reference.Keep:
        if isinstance(node, Suppress):
            assert node.max_bytes is None
            return reference.Suppress(
                node.until_us, max_records=node.max_records, shard=self._shard, compat=self.compat
            )

        def time(value: Value, key: Key, ts: int) -> int | None:
            found: int | None = ts if node.by is None else call(node.by, value, key)
            return found

        return reference.Keep(node.keep_us, time, shard=self._shard, freezes=node.freezes)

    def _matching(self, node: ForeignKeyJoin | OneToMany | ManyToMany) -> Operator:
        if isinstance(node, ManyToMany):
            by = (partial(_pointed, node.on), partial(_pointed, node.right_on))
            return Operator(node, reference.ManyToMany(*by, joiner=_joiner(node)), node.parents)
        return self._pointing(node)

    def _filter(self, node: Filter) -> reference.Filter | VersionedView:
        holds = _condition(node)
        if history_of(node) is not None:
            return VersionedView(lambda value: value if holds(value) else None, compat=self.compat)
        return reference.Filter(holds, old_values=self._knows_old_values(node), compat=self.compat)

    def _pointing(self, node: ForeignKeyJoin | OneToMany) -> Operator:
        if isinstance(node, ForeignKeyJoin) and node.as_of is not None:
            return self._as_of_table(node, node.as_of)

        def points_at(value: Value, key: Key) -> Key | None:
            return foreign_key_of(node, value, key)

        joiner = _joiner(node)
        stores = (0, 0) if _is_pointing_at_itself(node) else (0, 1)
        if isinstance(node, OneToMany):
            how: Literal["inner", "left"] = "inner" if node.how == "inner" else "left"
            pairs = reference.OneToMany(
                points_at, how, joiner=joiner, store_ids=stores, silent=[1], compat=self.compat
            )
            return Operator(node, pairs, (node.right, node.left))
        join = reference.ForeignKeyJoin(
            points_at, node.how, joiner=joiner, store_ids=stores, silent=[1], compat=self.compat
        )
        return Operator(node, join, node.parents)

    def _as_of_table(self, node: ForeignKeyJoin, as_of: AsOf) -> Operator:
        def pointer(value: Value, key: Key) -> tuple[Key, int] | None:
            pointed, time = foreign_key_of(node, value, key), call(as_of.micros, value, key)
            return None if pointed is None or time is None else (pointed, time)

        history = history_of(node.right)
        assert history is not None
        how: Literal["inner", "left"] = "inner" if node.how == "inner" else "left"
        join = reference.AsOfTableJoin(
            pointer,
            how,
            history=history,
            forward=as_of.forward,
            joiner=_joiner(node),
            shard=self._shard,
            compat=self.compat,
        )
        return Operator(node, join, node.parents)

    def _of_records(self, node: Node) -> Operator:
        """What makes records, or a table of them, or keeps a table."""
        if isinstance(node, StreamJoin):
            return self._stream_join(node)
        if isinstance(node, Materialize) and node.history_us is not None:
            table = VersionedTable(node.history_us, shard=self._shard, compat=self.compat)
            return Operator(node, table, node.parents)
        if isinstance(node, Filter):
            return Operator(node, Kept(node, compat=self.compat), node.parents)
        unfolded = Unfolded if node.is_stream else Elements
        twins: dict[type[Node], Callable[..., Any]] = {FlatMap: unfolded, ToTable: reference.ToTable}
        return Operator(node, twins.get(type(node), Passing)(compat=self.compat), node.parents)

    def _stream_join(self, node: StreamJoin) -> Operator:
        def points_at(value: Value, key: Key) -> Key | None:
            return foreign_key_of(node, value, key)

        how: Literal["inner", "left"] = "inner" if node.how == "inner" else "left"
        history, joiner = history_of(node.right), _joiner(node)
        if history is None:
            join = reference.StreamGlobalTableJoin(points_at, how, joiner=joiner, compat=self.compat)
            return Operator(node, join, node.parents)
        as_of = AsOfJoin(
            points_at,
            how,
            history=history,
            grace=None if node.grace is None else node.grace.period_us,
            table_advances=node.grace is not None and node.grace.table_advances,
            copied=node.copied,
            joiner=joiner,
            shard=self._shard,
            compat=self.compat,
        )
        return Operator(node, as_of, node.parents)

    def _key_join(self, node: KeyJoin) -> Operator:
        """In default mode a join is binary: that n tables are one operator must not show."""
        if not self.compat:
            tree = reference.Join(0, 1, node.how, _joiner(node))
            # Joins on one key compare the rows of their tables, not those of the joins within.
            silent = [port for port, side in enumerate(node.parents) if fused(side) is None]
            return Operator(
                node, reference.KeyJoin(tree, silent=silent, nulls_match=node.own_times), node.parents
            )
        tree, _ = _tree(node, 0)
        reads = tuple(leaf for leaf, _ in leaves_of(node))
        return Operator(node, reference.KeyJoin(tree, compat=True), reads)

    def _knows_old_values(self, node: Filter) -> bool:
        """Whether Kafka Streams' filter has the old row at hand (semantics: which tables send old values).

        It has if its input is no bare source, if something behind it asks for old values, or if it, or a filter
        on top of it, was declared when a join, groups or suppress had already made the source keep its rows.
        """
        base = base_of(node)
        if not isinstance(base, Source | ToTable) or self._asked(node):
            return True
        readers = [reader for reader in self._nodes if isinstance(reader, Join | Aggregate | Suppress)]
        keeping = [reader.serial for reader in readers if base in map(base_of, reader.parents)]
        filters = [one.serial for one in self._nodes if isinstance(one, Filter) and node in view_path(one)]
        return any(reader < one for reader in keeping for one in filters)

    def _asked(self, node: Node) -> bool:
        """Whether a reader of a table asks it for old values."""
        for child in self._nodes:
            if node not in child.parents or child.is_stream:
                continue
            if isinstance(child, ForeignKeyJoin | OneToMany | Aggregate | Suppress):
                return True
            if isinstance(child, KeyJoin):
                kept = {"inner": (), "left": (0,), "right": (1,), "outer": (0, 1)}[child.how]
                if any(child.parents[side] is node for side in kept):
                    return True
            if self._asked(child):
                return True
        return False


def _pointed(on: Sequence[object], value: Value, key: Key) -> Key | None:
    return pointed(on, value, key)


def _keeping_all(node: Node) -> Operator:
    """A filter that holds back only tombstones for absent rows."""
    return Operator(node, reference.Filter(lambda _: True), node.parents)


def _has_operator(node: Node) -> bool:
    if isinstance(node, ToStream):
        return is_filtered(node.parent)
    return not isinstance(node, Source | Select | SelectKey)


def _is_pointing_at_itself(node: Node) -> bool:
    """Whether both sides of a foreign-key join are views of one table."""
    if not isinstance(node, ForeignKeyJoin | OneToMany):
        return False
    return base_of(node.left) is base_of(node.right)


def _way(view: Node) -> tuple[int, ...]:
    """The way to a view: the serials of its steps, the one on the base first."""
    return tuple(step.serial for step in view_path(view))[-2::-1]


def _place(operator: Operator, port: int) -> tuple[tuple[int, ...], int]:
    """The place of a port among the readers of its table: the way to its operator, and the role there."""
    if isinstance(operator.node, KeyJoin):
        return leaves_of(operator.node)[port][1], port
    if isinstance(operator.node, StreamJoin):
        # The table is written before anyone else reads it.
        return ((operator.node.serial,), 1) if port == 0 else ((0, operator.node.serial), 0)
    if not isinstance(operator.node, Join):
        return (operator.node.serial,), 1
    return (operator.node.serial,), {POINTED_AT: 0, POINTING: 1}[port]


def _rekeyed(node: SelectKey, change: Moved) -> Moved:
    return change._replace(key=new_key(node, change.value, change.key))


def _selected(node: Select, change: Moved) -> Moved:
    value = None if change.value is None else call(node.columns[0].expression, change.value)
    return change._replace(value=value)


def _condition(node: Filter) -> Callable[[Value], bool]:
    return lambda value: bool(call(node.condition, value)) is not node.negate


def _joiner(node: Join) -> Callable[[Value, Value], Value]:
    return lambda left, right: call(node.select[0].expression, left, right)


def _seen_through(view: Node, base: Node, change: Moved) -> Moved:
    """A change of a base as a view on it shows it."""
    if view is base:
        return change
    if isinstance(view, Select):
        return _selected(view, _seen_through(view.parent, base, change))
    assert isinstance(view, Filter)
    below = _seen_through(view.parent, base, change)
    holds = below.value is not None and _condition(view)(below.value)
    return below if holds else below._replace(value=None)


def _inner_join(side: Node) -> tuple[KeyJoin, list[Select]] | None:
    """The key join that a side is, and the selects on top of it; none if the side keeps a table of its own."""
    selects: list[Select] = []
    while isinstance(side, Select) and side.delete_when is None:
        selects.append(side)
        side = side.parent
    return (side, selects) if isinstance(side, KeyJoin) and side.delete_when is None else None


def leaves_of(join: KeyJoin) -> list[tuple[Node, tuple[int, ...]]]:
    """The tables that a tree of key joins reads, each with its way up to the tree's root."""
    found: list[tuple[Node, tuple[int, ...]]] = []
    for side in join.parents:
        inner = _inner_join(side)
        if inner is None:
            found.append((side, (join.serial,)))
            continue
        above = tuple(select.serial for select in reversed(inner[1]))
        found += [(leaf, (*way, *above, join.serial)) for leaf, way in leaves_of(inner[0])]
    return found


def _tree(join: KeyJoin, port: int) -> tuple[reference.Join, int]:
    """The reference's tree of a join whose first input is `port`, and the next port."""
    sides: list[reference.Join | int] = []
    through: list[list[Select]] = []
    for side in join.parents:
        inner = _inner_join(side)
        if inner is None:
            sides.append(port)
            port += 1
            through.append([])
        else:
            subtree, port = _tree(inner[0], port)
            sides.append(subtree)
            through.append(inner[1])
    joiner = _joiner(join)

    def joined(left: Value, right: Value) -> Value:
        for side, selects in enumerate(through):
            for select in reversed(selects):
                if side == 0 and left is not None:
                    left = call(select.columns[0].expression, left)
                if side == 1 and right is not None:
                    right = call(select.columns[0].expression, right)
        return joiner(left, right)

    return reference.Join(sides[0], sides[1], join.how, joined), port
