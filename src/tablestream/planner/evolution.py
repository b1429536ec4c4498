"""What a checkpoint keeps of its plan so that a query can evolve into another one, and what becomes of each part then.

========  ===================================  ====================================================================
part      when                                 fate
========  ===================================  ====================================================================
source    the state has its table whole        kept: its rows enter the new plan in one step. So it has a table with
                                               materialize() directly on the source
source    the old plan did not have it         new: it is read from where its frame begins
source    the new plan does not have it        removed
source    its log is to be read                read again, from where the query began; refused if it ever started with
                                               rows, or Spark would begin elsewhere
source    neither                              refused
output    same target, same meaning            silent: the target gets later changes only. If logs are read again,
                                               only streams are: another order of records can make another table
output    another target                       new: the whole table comes out once
output    same target, maintained              brought over: the target gets the new table in one transaction
output    same target, a log                   told anew: it gets all rows, and deletes of keys that are gone; refused
                                               if its columns are others, or it cannot be read
output    the new plan does not have it        removed: the target is left as it is
operator                                       rebuilt from the rows of its sources; refused if they do not say what it
                                               remembers, and the logs are not to be read; or if they are, and a clock,
                                               suppress or freeze decides what a stream has told
========  ===================================  ====================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tablestream.planner.group_rules import sees_order
from tablestream.planner.physical_plan import Ending, PhysicalPlan
from tablestream.topology.graph import ancestors, history_of, named_as, unique_names
from tablestream.topology.nodes import (
    Aggregate,
    Captured,
    Deduplicate,
    Field,
    Fields,
    ForeignKeyJoin,
    Join,
    Keep,
    Materialize,
    Node,
    Reorder,
    SequenceBy,
    Source,
    Suppress,
    Top,
    Transactions,
)
from tablestream.topology.streams import Grace, StreamJoin

Fate = Literal[
    "kept", "read again", "new", "removed", "rebuilt", "silent", "brought over", "told anew", "refused"
]
#: How the reason begins for which a source is refused that `evolvable` would have kept.
NOT_WHOLE = "the state does not have it whole"
_MOST_NAMES = 10
#: The name of a source's second stream, which has the rows that it starts with.
_BOOTSTRAP = "{}!bootstrap"


@dataclass(frozen=True)
class SourceFacts:
    """A source: how it is declared, its columns, whether the state has it whole, and no other one is called so."""

    text: str
    key: Fields
    value: Fields
    is_whole: bool
    is_alone: bool = True


@dataclass(frozen=True)
class OutputFacts:
    """An output: its name, what it emits, and its columns.

    `key`: None if it is no table, or if an older version has stored this.
    """

    name: str
    meaning: str
    key: Fields | None = None
    value: Fields = ()

    @classmethod
    def of(cls, plan: PhysicalPlan, ending: Ending, name: str) -> OutputFacts:
        """Find the facts of an output."""
        node = ending.node
        key = None if ending.rejected or node.is_stream else node.key
        return cls(name, _meaning(plan, ending), key, () if key is None else node.value)


@dataclass(frozen=True)
class Facts:
    """What a later plan is compared with.

    Attributes
    ----------
    positions
        The streams of the query, in the order in which Spark numbers them: sources, and the rows that they start with.
    sources, outputs
        By their names, and by their targets.
    shards, evolvable
        Options of the plan, which a later start keeps if it does not say otherwise.
    started_with_rows
        The sources that have ever had rows of a ``bootstrap=``.
    """

    positions: tuple[str, ...]
    sources: Mapping[str, SourceFacts]
    outputs: Mapping[str, OutputFacts]
    shards: int
    evolvable: bool
    started_with_rows: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: PhysicalPlan, targets: Mapping[str, str]) -> Facts:
        """Find the facts of a plan. `targets`: the outputs' names, in their order, and targets."""
        called = Counter(one.name for one in plan.sources)
        # Under a source's name the state has its versions, if it has them.
        versioned = {named_as(one, plan.names) for one in plan.names if history_of(one) is not None}
        whole = {one for one in plan.whole if plan.names[one] not in versioned}
        sources = {
            plan.names[one]: SourceFacts(one.text, one.key, one.value, one in whole, called[one.name] == 1)
            for one in plan.sources
        }
        outputs = {
            target: OutputFacts.of(plan, ending, name)
            for ending, (name, target) in zip(plan.endings, targets.items(), strict=True)
        }
        started = tuple(sorted(plan.names[one] for one in plan.bootstrapped))
        options = plan.options
        return cls(tuple(_positions(plan)), sources, outputs, options.shards, options.evolvable, started)

    def following(self, old: Facts) -> Facts:
        """The facts if the checkpoint has had others before."""
        started = {*self.started_with_rows, *old.started_with_rows} & self.sources.keys()
        return replace(self, started_with_rows=tuple(sorted(started)))

    @property
    def document(self) -> dict[str, Any]:
        """A JSON object, which `read` reads."""
        return asdict(self)

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Facts:
        """Read a `document`."""
        sources = {name: SourceFacts(**_with_fields(one)) for name, one in facts["sources"].items()}
        outputs = {target: OutputFacts(**_with_fields(one)) for target, one in facts["outputs"].items()}
        positions = tuple(facts["positions"])
        started = tuple(facts.get("started_with_rows", ()))
        return cls(positions, sources, outputs, facts["shards"], facts["evolvable"], started)


@dataclass(frozen=True)
class KeptRows:
    """What the old state has of a source's rows in one place.

    `where`: the table or operator. `conditions`: which rows it has; empty: all. `columns`: what it has of their values.
    `table`: the name of the table that is the source's as it is; empty: none is.
    """

    where: str
    conditions: tuple[str, ...]
    columns: tuple[str, ...]
    table: str = ""


#: By sources' names. Without a name, it is not known what the state has of this source.
Remains = Mapping[str, Sequence[KeptRows]]


def table_of(old: Facts, name: str, remains: Remains) -> str:
    """The table in the state that is a source's as it is; empty: there is none."""
    return (
        name
        if old.sources[name].is_whole
        else next((one.table for one in remains.get(name, ()) if one.table), "")
    )


def records_wait(text: str) -> bool:
    """Whether the text of a plan says that records wait for others (``align=``)."""
    return any(line.startswith("align: ") for line in text.splitlines())


@dataclass(frozen=True)
class PartFate:
    """What becomes of a source, an operator or an output, and why."""

    part: Literal["source", "operator", "output"]
    name: str
    fate: Fate
    why: str


def fates(
    old: Facts,
    new: Facts,
    plan: PhysicalPlan,
    maintained: Collection[str],
    logs: Collection[str] = (),
    *,
    is_same: bool = False,
    refill: bool = False,
    begun_elsewhere: Collection[str] = (),
    remains: Remains | None = None,
    waits: bool = False,
) -> tuple[PartFate, ...]:
    """Say what becomes of each part of a query if it evolves.

    Parameters
    ----------
    old, new, plan
        The facts of the checkpoint; those of the new plan, and the plan.
    maintained
        The targets of the new plan that have one row per key, and can be brought over.
    logs
        Those that can be read to find the keys that their readers know.
    is_same
        Whether both plans have the same state: then another select of a log counts from now on, as at any start.
    refill
        Whether the logs of all sources are read again, in place of the rows in the state.
    begun_elsewhere
        The sources that Spark would not read again from where the query began.
    remains
        What the old state has of sources that it does not have whole.
    waits
        Whether records of the old plan wait for others: they are read, and in no table yet.
    """
    return (
        *_of_sources(old, new, plan, begun_elsewhere, remains or {}, refill=refill),
        *(_rebuilt_operators(old, new, plan) if refill else _of_operators(plan, waits=waits)),
        *_of_outputs(old, new, maintained, logs, is_same=is_same, refill=refill),
    )


def _of_sources(
    old: Facts,
    new: Facts,
    plan: PhysicalPlan,
    begun_elsewhere: Collection[str],
    remains: Remains,
    *,
    refill: bool,
) -> Iterator[PartFate]:
    fate: Fate = "read again" if refill else "kept"
    because = "its log is read from where the query began" if refill else "the state has it whole"
    started = {*old.started_with_rows, *new.started_with_rows}
    for source in plan.sources:
        name = plan.names[source]
        if refill and name in started:
            yield PartFate("source", name, "refused", "the rows of its bootstrap= are in no log")
            continue
        if name not in old.sources:
            yield PartFate("source", name, "new", "it is read from where its frame begins")
            continue
        before, now = old.sources[name], new.sources[name]
        has_table = bool(table_of(old, name, remains))
        why = "" if refill else _not_kept(before, now, source, remains.get(name), has_table=has_table)
        if refill and name in begun_elsewhere:
            why = "it is a Delta table, of which Spark would read a later version in place of the first ones"
        if not why and not (before.is_alone and now.is_alone) and old.positions != new.positions:
            why = "several tables are called so, and it is not clear which one this is: give each a name="
        yield PartFate("source", name, "refused" if why else fate, why or because)
    for name in old.sources.keys() - new.sources.keys():
        yield PartFate("source", name, "removed", "the new plan does not read it")


def _not_kept(
    old: SourceFacts, new: SourceFacts, source: Source, kept: Sequence[KeptRows] | None, *, has_table: bool
) -> str:
    """Why the rows of a source cannot enter the new plan; empty if they can."""
    if source.records:
        return "it is a stream, whose records the state does not keep"
    if old.text != new.text or old.key != new.key:
        return f"it is declared in another way than before: {new.text}, not {old.text}"
    if not has_table:
        return NOT_WHOLE if kept is None else f"{NOT_WHOLE}: {_partly(kept, old.value, new.value)}"
    missing = [one.name for one in new.value if one not in old.value]
    return f"the state has it whole, but lacks {_columns(missing)}" if missing else ""


def _partly(kept: Sequence[KeptRows], old: Fields, new: Fields) -> str:
    """What the state has of a source, and what the new plan needs beyond it. The columns: as they are declared."""
    if not kept:
        return "it has none of its rows as they are"
    anywhere = {name for part in kept for name in part.columns}
    everywhere = {name for part in kept if not part.conditions for name in part.columns}
    missing = [one.name for one in new if one.name not in anywhere]
    elsewhere = [one.name for one in new if one.name in anywhere - everywhere]
    lacking = [_columns(missing)] if missing else []
    if all(part.conditions for part in kept):
        lacking.insert(0, "all other rows")
    elif elsewhere:
        lacking.append(f"{_columns(elsewhere)} of all other rows")
    has = "; ".join(_part(one, [field.name for field in old]) for one in kept)
    return f"it has {has}" + (f"; it lacks {' and '.join(lacking)}" if lacking else "")


def _part(kept: KeptRows, declared: Sequence[str]) -> str:
    columns = [name for name in declared if name in kept.columns]
    only = "" if len(columns) == len(declared) else _columns(columns) if columns else "the keys"
    rows = " and ".join(
        kept.conditions if len(kept.conditions) == 1 else [f"({one})" for one in kept.conditions]
    )
    if not rows and not only:
        return f"its rows as {kept.where} remembers them"
    of = f"rows where {rows}" if rows else ""
    return f"only {' of '.join(filter(None, (only, of)))} (in {kept.where})"


def _columns(names: Sequence[str]) -> str:
    shown, more = ", ".join(names[:_MOST_NAMES]), len(names) - _MOST_NAMES
    what = "the column" if len(names) == 1 else "the columns"
    return f"{what} {shown}" + (f" and {more} more" if more > 0 else "")


def _of_operators(plan: PhysicalPlan, *, waits: bool) -> Iterator[PartFate]:
    for node in ancestors(*(ending.node for ending in plan.endings)):
        why = not_rebuilt(node)
        if why:
            yield PartFate("operator", plan.names[node], "refused", why)
    if plan.options.align is not None or waits:
        yield PartFate("operator", "align=", "refused", "records that wait for others are not in a table")
    if plan.options.compat:
        yield PartFate("operator", "compat=", "refused", "Kafka Streams builds its tables from topics alone")
    yield from _all_rebuilt(plan, "from the rows of its sources")


def _rebuilt_operators(old: Facts, new: Facts, plan: PhysicalPlan) -> Iterator[PartFate]:
    """The fates of operators whose sources are read again. What a stream has told must not be decided anew."""
    told = zip(plan.endings, new.outputs.items(), strict=True)
    streams = [one.node for one, (target, output) in told if output.key is None and target in old.outputs]
    for node in ancestors(*streams):
        waiting = node.grace if isinstance(node, StreamJoin) else node
        clock = "timeout_us" if isinstance(node, Transactions) else "wall_clock_us"
        if getattr(waiting, clock, None) is not None:
            yield _told_twice(plan, node, "the clock decides what it emits")
        elif isinstance(node, Suppress) or (isinstance(node, Keep) and node.freezes):
            yield _told_twice(plan, node, "it emits by the order of all keys, which can be another one now")
        elif isinstance(waiting, Grace | Reorder | Keep) and old.shards != plan.options.shards:
            why = f"what waits in it, waits by shard: it needs shards={old.shards}, as before"
            yield PartFate("operator", plan.names[node], "refused", why)
    yield from _all_rebuilt(plan, "from the records of its sources")


def _told_twice(plan: PhysicalPlan, node: Node, why: str) -> PartFate:
    told = f"{why}: a stream would tell records twice, or never. Write it to a new target"
    return PartFate("operator", plan.names[node], "refused", told)


def _all_rebuilt(plan: PhysicalPlan, why: str) -> Iterator[PartFate]:
    names = (placed.name for work in plan.rounds for placed in work.operators)
    yield from (PartFate("operator", name, "rebuilt", why) for name in names)


def not_rebuilt(node: Node) -> str:
    """Why the rows of sources do not say what a node remembers; empty if they do."""
    is_dated = isinstance(node, ForeignKeyJoin) and node.as_of is not None
    is_dated |= isinstance(node, Join) and node.complete_history
    reasons = (
        (isinstance(node, Suppress | Reorder), "it holds changes back until a time, and rows do not wait"),
        (isinstance(node, Keep), "it remembers how far time has come, also by rows that are gone"),
        (
            isinstance(node, SequenceBy | Deduplicate | Captured | Transactions),
            "it remembers places in a log, which rows do not have",
        ),
        (
            isinstance(node, Materialize) and node.history_us is not None,
            "it remembers earlier versions of rows",
        ),
        (is_dated, "it joins earlier versions of rows"),
        (_sees_arrival(node), "it remembers in which order rows arrived, which a table does not say"),
        (
            isinstance(node, Aggregate) and node.keep_empty and bool(node.on),
            "it remembers groups without rows",
        ),
        (
            node.is_stream and not isinstance(node, Source),
            "it is a stream, whose records the state does not keep",
        ),
    )
    return next((why for holds, why in reasons if holds), "")


def _sees_arrival(node: Node) -> bool:
    """Whether the order in which rows arrived decides a result. Top rows stand in it unless their order has the key."""
    if isinstance(node, Top):
        ordered_by = {node.inputs[of].expression.text for of, _ in node.order}
        return not (node.ranked and ordered_by.issuperset(one.name for one in node.parent.key))
    return isinstance(node, Aggregate) and sees_order(node)


def _of_outputs(
    old: Facts,
    new: Facts,
    maintained: Collection[str],
    logs: Collection[str],
    *,
    is_same: bool,
    refill: bool,
) -> Iterator[PartFate]:
    for target, output in new.outputs.items():
        before, is_sure = old.outputs.get(target), not refill or output.key is None
        if before is None:
            yield PartFate("output", output.name, "new", f"{target} gets the whole table once")
        elif before.meaning == output.meaning and is_sure:
            yield PartFate("output", output.name, "silent", f"{target} gets later changes only")
        elif is_same and is_sure and target not in maintained:
            yield PartFate("output", output.name, "silent", f"{target} gets later changes as they are now")
        elif target in maintained:
            why = f"{target} gets the new table as it is{_left_over(before, output)}"
            yield PartFate("output", output.name, "brought over", why)
        elif why := _not_told(before, output, is_log=target in logs):
            yield PartFate("output", output.name, "refused", f"{target} {why}: write to a new target")
        else:
            why = f"{target} gets all rows, and deletes of keys that are gone"
            yield PartFate("output", output.name, "told anew", why)
    for target in old.outputs.keys() - new.outputs.keys():
        yield PartFate("output", old.outputs[target].name, "removed", f"{target} is left as it is")


def _left_over(old: OutputFacts, new: OutputFacts) -> str:
    """Which columns a maintained target keeps that the output no longer has."""
    names = {one.name for one in (*(new.key or ()), *new.value)}
    gone = [one.name for one in (*(old.key or ()), *old.value) if one.name not in names]
    return f"; {_columns(gone)} {'stays' if len(gone) == 1 else 'stay'} in it" if gone else ""


def _not_told(old: OutputFacts, new: OutputFacts, *, is_log: bool) -> str:
    """Why a log cannot be told anew; empty if it can."""
    if not is_log:
        return "has readers that have followed another table"
    if old.key is None or new.key is None:
        return "is not known to hold a table"
    if old.key != new.key:
        return f"has the key {_listed(old.key)}, and the output {_listed(new.key)}"
    types = {one.name: one.type for one in old.value}
    other = [one.name for one in new.value if types.get(one.name, one.type) != one.type]
    return f"has other types in {', '.join(other)}" if other else ""


def _listed(fields: Fields) -> str:
    return "(" + ", ".join(f"{one.name} {one.type}" for one in fields) + ")"


def _positions(plan: PhysicalPlan) -> Iterator[str]:
    """The streams in the order in which a plan's stages read them."""
    entering: list[tuple[int, str]] = []
    for source, readers in plan.sources.items():
        name = plan.names[source]
        entering.append((min((one.port.round for one in readers), default=0), name))
        if source.bootstrapped:
            first = plan.bootstrap_readers(source)
            entering.append((min((one.port.round for one in first), default=0), _BOOTSTRAP.format(name)))
    rounds = [work.number for work in plan.rounds]
    yield from (name for number in rounds for of, name in entering if of == number)
    yield from (name for of, name in entering if of not in rounds)


def _meaning(plan: PhysicalPlan, ending: Ending) -> str:
    """What an output emits: its options, and every table that it depends on."""
    words = ("final", "before", "minimal", "rejected", "latest_only", "numbered")
    options = [name for name in words if getattr(ending, name)]
    lines = [f"{plan.options.compat} {plan.options.align} {' '.join(options)}"]
    nodes = _inputs_first(ending.node)
    names = unique_names(nodes) | {one: plan.names[one] for one in nodes if isinstance(one, Source)}
    for node in nodes:
        parents = ", ".join(names[parent] for parent in node.parents)
        lines.append(f"{names[node]} of {parents}: {node.meaning}")
    return "\n".join(lines)


def _inputs_first(node: Node) -> list[Node]:
    """A node behind all that it depends on. Other outputs, and the order of declaration, do not change the order."""
    found: dict[Node, None] = {}
    open_nodes = [(node, False)]
    while open_nodes:
        one, is_done = open_nodes.pop()
        if is_done:
            found[one] = None
        elif one not in found:
            open_nodes += [(one, True), *((parent, False) for parent in reversed(one.parents))]
    return list(found)


def _with_fields(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a part of the plan, with the columns of its key and its value."""
    columns = {name: facts.get(name) for name in ("key", "value")}
    return dict(facts) | {
        name: tuple(Field(**field) for field in given) for name, given in columns.items() if given is not None
    }
