"""Lower the logical plan to the physical plan: place operators, number ports, connect readers.

Depth
    Each round is a stage behind the others, and Spark's planner calls itself for every part of a stage. A long line of
    rounds ends a query with a ``StackOverflowError``, which says nothing about the plan; one that Python itself cannot
    follow ends with a ``RecursionError``. So the number of rounds is bounded.
Rows that nobody reads
    If the n rows of a group come in one micro-batch, the list of them is emitted n times, with n / 2 values on average,
    although a maintained table shows only the last one. So an operator leaves out what is replaced if whoever reads it,
    and whoever reads these, needs only the last change of each key. Such operators are groups, and joins on the key
    that read what groups make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from tablestream.base.calling import user_line
from tablestream.errors import PlanError
from tablestream.operators.operator import keyed_changes
from tablestream.operators.upsert import Upsert
from tablestream.operators.versioned_table import VersionedUpsert
from tablestream.planner.catalogue import encode, stored_tables
from tablestream.planner.lowering import Draft, End, History, Lowering, Made, Read, Remembered, Types, Want
from tablestream.planner.physical_plan import Between, Ending, Output, PhysicalPlan, PlanOptions, Reader
from tablestream.planner.result import Result
from tablestream.planner.rules import place
from tablestream.runtime.alignment import Alignment, Held
from tablestream.runtime.ports import EVERY_SHARD, Port
from tablestream.runtime.rounds import BY_SOURCE, Placed, Round
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LATEST
from tablestream.topology.graph import (
    ancestors,
    base_of,
    filters_with_old_values,
    has_whole_transactions,
    history_of,
    operator_of,
    own_expressions,
    path_from_base,
    removes_rows,
    unique_names,
    view_path,
    ways,
)
from tablestream.topology.needed import needed_columns
from tablestream.topology.nodes import Aggregate, Field, Node, Source, Top
from tablestream.topology.over import Over
from tablestream.topology.streams import Merge

#: After every declared node: outputs rank last.
_LAST = 1 << 60
#: A chain of 20 foreign-key joins. In a Java stack of the default size, Spark planned these, and not 60 rounds.
MOST_ROUNDS = 40
_HINT = (
    "Look up several tables by foreign keys of one row in one step, with join_many: that takes three rounds in all."
    " Or write a table in the middle to a target, and read it with another query."
)


def lower(outputs: Sequence[Output], types: Types, options: PlanOptions) -> PhysicalPlan:
    """Lower a plan.

    `outputs`: the outputs that the plan computes. `types`: gives the Polars dtypes of columns. `options`: applies to
    the whole plan.
    """
    with within_stack():
        plan = _lowered(outputs, types, options)
    check_rounds(len(plan.rounds))
    return plan


def _lowered(outputs: Sequence[Output], types: Types, options: PlanOptions) -> PhysicalPlan:
    nodes = ancestors(*(output.node for output in outputs))
    names = unique_names(nodes)
    rejecting = {node for node in nodes if options.on_error.of(names[node]) == "reject"}
    columns = needed_columns((output.node for output in outputs), rejecting)
    lowering = Lowering(options, types, names, filters_with_old_values(nodes), place, columns)
    for output in outputs:
        lowering.produce_stream(output.node)
    made = lowering.upstream(base for output in outputs for base in _bases(lowering, output))
    drafts = [draft for one in made.values() for draft in one.drafts]
    keepers = _keepers(lowering, drafts) if options.evolvable else []
    final = _natively_final(drafts, outputs)
    memories = [_memory(lowering, output, final) for output in outputs]
    kept = [made[base_of(one.node)].round for one, memory in zip(outputs, memories, strict=True) if memory]
    rounds = [*(draft.round for draft in [*drafts, *keepers]), *(1 + number for number in kept)]
    last = max(rounds, default=0 if options.align is None else 1)
    ends = [
        _end(lowering, output, index, last + 1, memory)
        for index, (output, memory) in enumerate(zip(outputs, memories, strict=True))
    ]
    finished = _Finishing(lowering, made, drafts, keepers, ends, final, last).physical_plan()
    finished.check()
    return finished


def _bases(lowering: Lowering, output: Output) -> list[Node]:
    """The bases that an output needs. Of its rejected records: those whose operators can reject, if rows cannot."""
    bases = [base_of(way) for way, _ in ways(output.node)]
    if not output.rejected or lowering.options.on_error.rejects:
        return bases
    drafts = [draft for one in lowering.upstream(bases).values() for draft in one.drafts]
    rejecting = {draft.base for draft in drafts if draft.operator.rejects}
    reads = (read for draft in drafts for want in draft.inputs for read in want.reads)
    rejecting |= {read.side[0] for read in reads if read.side is not None}
    nodes = ancestors(output.node)
    return [operator_of(node, nodes) for node in nodes if node in rejecting]


def _keepers(lowering: Lowering, drafts: Sequence[Draft]) -> list[Draft]:
    """The operators that keep the tables of sources which no other operator keeps whole: a changed plan needs them."""
    whole = _whole(drafts)
    tables = [node for node in lowering.made if isinstance(node, Source) and not node.records]
    return [_keeper(lowering, source) for source in tables if source not in whole]


def _keeper(lowering: Lowering, source: Source) -> Draft:
    name, number = f"kept {lowering.names[source]}", 1 + lowering.made[source].round
    rows = Upsert(lowering.key_of(source), lowering.value_of(source), keep_rows=True)
    want = Want(((_LAST, 1), source.serial), number, KEY_HASH, f"{name}[rows]")
    reads = [lowering.read(source, want, source.key)]
    kept = Remembered(source, (rows.traces[0].name,), source.key)
    return Draft(None, name, number, rows, reads, remembers=(kept,))


def _whole(drafts: Sequence[Draft]) -> frozenset[Source]:
    """The sources whose tables operators remember as they are."""
    tables = (
        one.table for draft in drafts for one in draft.remembers if one.history is None and not one.waits
    )
    return frozenset(table for table in tables if isinstance(table, Source))


def _natively_final(drafts: Sequence[Draft], outputs: Sequence[Output]) -> set[Node]:
    """The bases whose operators can emit only final changes themselves, because every reader wants only these."""
    emitting = [draft for draft in drafts if None in draft.targets]
    able = {draft.base for draft in emitting if draft.base is not None}
    able -= {draft.base for draft in emitting if not draft.operator.can_be_final}
    able -= {base for draft in drafts for want in draft.inputs for base in want.senders}
    for output in outputs:
        if output.rejected:
            continue
        if not output.final or output.before or output.minimal or removes_rows(output.node):
            able.discard(base_of(output.node))
    return able


def _end(
    lowering: Lowering, output: Output, index: int, number: int, memory: Upsert | VersionedUpsert | None
) -> End:
    """Decide what sends an output's changes: their operator, the one that remembers its rows, or who reads a view."""
    node, base, key = output.node, base_of(output.node), output.node.key
    want = Want(((_LAST,), index), number, KEY_HASH, f"output {index + 1}")
    if output.rejected:
        if lowering.options.on_error.rejects:  # every table on the way is computed, and this one, too
            want = lowering.read_stream(node, want, key, is_silent=True)
        return End(output, want, None, None)
    if memory is not None:
        draft = _drafted(lowering, output, index, memory)
        return End(output, want, draft, Result.computed(node, latest=output.tells_latest))
    # What a view of a stream filters out or rekeys must be known before the last shuffle.
    if isinstance(base, Source | Merge) or (node.is_stream and base is not node):
        return End(output, lowering.read_stream(node, want, key), None, Result.computed(node))
    if _has_rows_to_catch(lowering, node, base):  # a packer has to see them
        latest = output.tells_latest and lowering.made[base].result.latest
        want = lowering.read(node, want, key, latest_only=output.latest_only)
        return End(output, want, None, Result.computed(node, latest=latest))
    return End(output, want, base, lowering.made[base].result)


def _has_rows_to_catch(lowering: Lowering, view: Node, base: Node) -> bool:
    """Whether a table may have rows for which an expression fails, and that do not end the query."""
    on_error, names = lowering.options.on_error, lowering.names
    return any(
        on_error.of(names[node]) != "fail" and any(one.may_fail for one in own_expressions(node))
        for node in {*view_path(view), base}
    )


def _drafted(lowering: Lowering, output: Output, index: int, operator: Upsert | VersionedUpsert) -> Draft:
    """Place the operator that remembers an output's rows."""
    node, name = output.node, f"output {index + 1}"
    number = 1 + lowering.produce(base_of(node))
    read = Want(((*path_from_base(node), _LAST), index), number, KEY_HASH, f"{name}[rows]")
    history = History(operator.history_us, name) if isinstance(operator, VersionedUpsert) else None
    rows = Remembered(node, (operator.traces[0].name,), node.key, history=history)
    remembers = (rows,) if output.before or history is not None else ()
    reads = [lowering.read(node, read, node.key, latest_only=not output.tells_latest)]
    return Draft(None, name, number, operator, reads, remembers=remembers)


def _memory(lowering: Lowering, output: Output, final: set[Node]) -> Upsert | VersionedUpsert | None:
    """The operator that remembers an output's rows, and so knows what each row was before, if it needs one."""
    if output.rejected:
        return None
    minimal = output.minimal or lowering.reads_minimal(output.node)
    whole = has_whole_transactions(output.node) and not output.final
    is_made_final = output.final and base_of(output.node) not in final
    if not (output.before or minimal or whole or is_made_final):
        return None
    keys, value = lowering.key_of(output.node), lowering.value_of(output.node)
    minimal, history_us = minimal or output.before, history_of(output.node)
    if history_us is None or not output.tells_latest:
        return Upsert(
            keys,
            value,
            keep_old=output.before,
            minimal=minimal,
            final=output.final,
            whole_steps=whole,
            repeats=lowering.options.compat,
        )
    return VersionedUpsert(
        keys,
        value,
        history_us,
        forgetful=lowering.options.compat,
        keep_old=output.before,
        minimal=minimal,
        final=output.final,
    )


@dataclass
class _Finishing:
    """Numbers the ports and connects operators with their readers."""

    lowering: Lowering
    made: dict[Node, Made]
    drafts: list[Draft]
    keepers: list[Draft]
    ends: list[End]
    final: set[Node]
    last: int

    def physical_plan(self) -> PhysicalPlan:
        """Make the physical plan."""
        readers: dict[Node, list[Reader]] = {}
        # Those of a source that do not wait come first.
        for read, reader in sorted(self._reading.items(), key=lambda one: one[0] in self._buffers):
            readers.setdefault(read.base, []).append(reader)
        return PhysicalPlan(
            options=self.lowering.options,
            names=self.lowering.names,
            rounds=self._rounds(),
            sources={source: tuple(readers.get(source, ())) for source in self._sources()},
            between=tuple(
                Between(port, self.made[base].result, self.made[base].round, tuple(readers[base]))
                for base, port in self._between.items()
            ),
            endings=tuple(
                Ending(**vars(end.output), port=self._ports[end.want], result=end.result) for end in self.ends
            ),
            whole=_whole(self._operators),
        )

    @cached_property
    def _operators(self) -> list[Draft]:
        """The operators, with those that remember the rows of outputs, and of sources."""
        return [*self.drafts, *(draft for end in self.ends for draft in end.memory), *self.keepers]

    @cached_property
    def _thin(self) -> set[Node]:
        """The bases whose operators may leave out rows. In compat every change counts."""
        return set() if self.lowering.options.compat else thinned(self._operators, self.ends)

    @cached_property
    def _wants(self) -> list[Want]:
        """The ports that operators and outputs read."""
        events = {want for one in self.made.values() for want in one.events}
        wants = list[Want]()
        for one in self.made.values():
            wants += (
                one.events
            )  # they come with the table that they are of: buffers are numbered in this order
            wants += [want for draft in one.drafts for want in draft.inputs if want not in events]
        for end in self.ends:
            wants += [*(want for draft in end.memory for want in draft.inputs), end.want]
        return wants + [want for draft in self.keepers for want in draft.inputs]

    @cached_property
    def _ports(self) -> dict[Want | Read, Port]:
        """The ports, with their numbers and ranks. What several views send to one port has a rank for each."""
        ranked: dict[Want | Read, Want] = {}
        for want in self._wants:
            ranked |= {want: want} if all(read.is_silent for read in want.reads) else {}
            ranked |= dict.fromkeys(want.reads, want)
        ranks = {one: rank for rank, one in enumerate(sorted(ranked, key=lambda one: one.order), start=1)}
        ports = {}
        for one, want in ranked.items():
            number = ranks[want if want in ranked else want.reads[0]]
            label, spread, copies = want.label, want.spread, want.copies
            ports[one] = Port(number, ranks[one], want.round, want.route, label, spread, copies)
        return ports | {want: ports[want.reads[0]] for want in self._wants if want not in ranked}

    @cached_property
    def _reads(self) -> dict[Read, Want]:
        """The views that are read, each with the port that reads it."""
        return {read: want for want in self._wants for read in want.reads}

    @cached_property
    def _reading(self) -> dict[Read, Reader]:
        """The reader of each view."""
        counted = dict[tuple[Node, int], Read]()  # a join that is also part of another operator counts once
        for read in self._reads:
            if read.side is not None:
                counted.setdefault(read.side, read)
        counting = set(counted.values())
        return {read: self._reader(want, read, counts=read in counting) for read, want in self._reads.items()}

    @cached_property
    def _buffers(self) -> dict[Read, Port]:
        """If records wait for each other: the ports at which those of the sources do, in the first round."""
        if self.lowering.options.align is None:
            return {}
        waiting = (read for read in self._reads if isinstance(read.base, Source) and not read.is_silent)
        numbered = enumerate(waiting, start=self._progress.number + 1)
        return {read: _buffer(self._ports[read], number) for number, read in numbered}

    @property
    def _progress(self) -> Port:
        """The port that hears how far the sources are, if records wait for each other."""
        return Port(1 + self._entries + len(self.made), 0, 1, EVERY_SHARD, "how far the sources are")

    @cached_property
    def _between(self) -> dict[Node, Port]:
        """The ports of the results that later rounds read."""
        read, made, first = {read.base for read in self._reads}, self.made, 1 + self._entries
        return {
            base: Port(first + number, 0, made[base].round + 1, KEY_HASH, self.lowering.names[base])
            for number, base in enumerate(made)
            if base in read and not isinstance(base, Source)
        }

    @cached_property
    def _entries(self) -> int:
        """How many ranks there are: the numbers that follow are free."""
        return max(port.rank for port in self._ports.values())

    @cached_property
    def _lacking(self) -> dict[Want, str]:
        """The ports that read tombstones without a time, and the lanes of these. In compat there are none."""
        found: dict[Want, str] = {}
        for want in [] if self.lowering.options.compat else self._wants:
            for base in (read.base for read in want.reads):
                if isinstance(base, Source) and base.lacks_times is not None:
                    lanes = base.lacks_times
                    found[want] = lanes if found.get(want, lanes) == lanes else BY_SOURCE
        return found

    def _sources(self) -> list[Source]:
        """Every source of the plan, in the order of declaration."""
        nodes = ancestors(*(end.output.node for end in self.ends))
        return [node for node in nodes if isinstance(node, Source)]

    def _reader(self, want: Want, read: Read, *, counts: bool) -> Reader:
        """Finish a reader. One that counts late changes also knows the ports that receive them."""
        join = read.side[0] if counts and read.side is not None else None
        return Reader(
            port=self._buffers.get(read, self._ports[read]),
            node=read.view,
            schema=self._schemas[want] if want in self._schemas else self._ending_schema(want, read.view),
            key=read.key,
            pointer=read.pointer,
            inputs=read.inputs,
            is_silent=read.is_silent,
            latest_only=read.latest_only,
            counted_by=None if join is None else self.lowering.names[join],
            rejecting=() if join is None else self._rejecting(join),
        )

    @cached_property
    def _schemas(self) -> dict[Want, pl.Schema]:
        """The columns of the messages that operators read."""
        return {
            want: schema
            for draft in self._operators
            for want, schema in zip(draft.inputs, draft.operator.inputs, strict=True)
        }

    def _ending_schema(self, want: Want, view: Node) -> pl.Schema:
        """The columns of a view that is an output."""
        columns = keyed_changes(self.lowering.key_of(view), self.lowering.value_of(view))
        (result,) = (end.result for end in self.ends if end.want is want)
        return pl.Schema({**columns, LATEST: pl.Boolean()}) if result and result.latest else columns

    def _rejecting(self, node: Node | None) -> tuple[Port, ...]:
        """The ports that receive what the operators of a node drop."""
        asking = (end for end in self.ends if end.output.rejected)
        return tuple(self._ports[end.want] for end in asking if node in ancestors(end.output.node))

    def _alignment(self) -> Alignment | None:
        """How records wait for each other; None: they do not."""
        lowering, sources = self.lowering, self._sources()
        if lowering.options.align is None:
            return None
        ordered = {source for source in sources if source.ordered_by is not None}
        held = tuple(
            Held(port.number, self._ports[read], self._reading[read].schema, read.base in ordered)
            for read, port in self._buffers.items()
        )
        kind = next((source.ordered_by for source in sources if source.ordered_by), None)
        (time,) = lowering.types((Field("time", kind),)).values() if kind else (pl.Int64(),)
        return Alignment(self._progress, held, len(sources), time, lowering.options.align.idle_us)

    def _rounds(self) -> tuple[Round, ...]:
        made = []
        for number in range(1, self.last + 1):
            drafts = [draft for draft in self._operators if draft.round == number]
            made.append(Round(number, tuple(map(self._placed, drafts)), self._description(drafts)))
        alignment = self._alignment()
        if alignment is not None:
            description = (*made[0].description, *alignment.description)
            made[0] = replace(made[0], description=description, alignment=alignment, waiting=self._waiting())
        held = () if alignment is None else alignment.held
        names = self.lowering.names
        aligned = [
            (read.name(names), self._reading[read], one)
            for read, one in zip(self._buffers, held, strict=True)
        ]
        tables = encode(stored_tables(self._operators, made, aligned, names))
        return tuple(replace(work, tables=tables) for work in made)

    def _placed(self, draft: Draft) -> Placed:
        ends = [
            self._ports[end.want]
            for end in self.ends
            if end.sender in (draft, draft.base) and end.sender is not None
        ]
        if draft.base in self._between:
            ends.append(self._between[draft.base])
        if draft.base is not None:
            ends += [self._ports[want] for want in self._wants if want.directly is draft.base]
        operator = draft.operator
        if draft.base in self.final:
            operator = operator.made_final()
        elif draft.base in self._thin:
            operator = operator.made_thin()
        targets = tuple(tuple(ends) if want is None else (self._ports[want],) for want in draft.targets)
        inputs = tuple(self._ports[want].number for want in draft.inputs)
        reads = (next(iter(want.reads), None) for want in draft.inputs)
        shown = tuple(draft.shown if read is None else self._reading[read].shown for read in reads)
        where = "" if draft.base is None else draft.base.where
        lacking = tuple(map(self._lacking.get, draft.inputs))
        return Placed(
            draft.name,
            operator,
            inputs,
            targets,
            draft.copied,
            self._rejecting(draft.base),
            shown,
            where,
            lacking,
        )

    def _description(self, drafts: Sequence[Draft]) -> tuple[str, ...]:
        """What the state of a round means: its operators, and every node that they depend on."""
        options = self.lowering.options
        lines = [f"shards: {options.shards}", f"compat: {'kafka-streams' if options.compat else 'none'}"]
        # Spark identifies the streams of a checkpoint by their position, and the order breaks ties by it.
        lines.append(f"sources: {', '.join(self.lowering.names[source] for source in self._sources())}")
        for draft in drafts:
            lines.append(f"operator {draft.name}: {type(draft.operator).__name__}")
            lines += [f"  remembers {spec.name}: {', '.join(spec.schema)}" for spec in draft.operator.traces]
            roots = [draft.base] if draft.base is not None else []
            roots += [end.output.node for end in self.ends if end.sender is draft]
            roots += [one.table for one in draft.remembers] if draft in self.keepers else []
            lines += self._meanings(roots)
        return tuple(lines)

    def _waiting(self) -> tuple[str, ...]:
        """What waits for outputs: sources, and views of them. What waits for operators is in their rounds."""
        views = [end.output.node for end in self.ends if end.sender is None and end.result is not None]
        return tuple(self._meanings([view for view in views if isinstance(base_of(view), Source | Merge)]))

    def _meanings(self, nodes: Sequence[Node]) -> list[str]:
        """What nodes mean, with every node that they depend on."""
        options, names = self.lowering.options, self.lowering.names
        lines = []
        for node in ancestors(*nodes):
            of = f" of {', '.join(names[parent] for parent in node.parents)}" if node.parents else ""
            known = "; knows old rows" if options.compat and node in self.lowering.knowing else ""
            lines.append(f"  {names[node]}{of}: {node.meaning}{known}")
        return lines


def _buffer(port: Port, number: int) -> Port:
    """The port of a buffer before another port."""
    # Records that go to several shards are copied when they leave the buffer, not before.
    route = FOREIGN_HASH if port.route == EVERY_SHARD else port.route
    return replace(port, number=number, round=1, route=route, label=f"{port.label} in order", copies=1)


def check_rounds(rounds: int) -> None:
    """Refuse a plan with more than `MOST_ROUNDS` rounds."""
    if rounds > MOST_ROUNDS:
        raise PlanError(
            f"The plan has {rounds} rounds, one behind the other; at most {MOST_ROUNDS} are possible.",
            hint=_HINT,
            where=user_line(),
        )


@contextmanager
def within_stack() -> Iterator[None]:
    """Refuse a plan that is too deep for Python's stack."""
    try:
        yield
    except RecursionError:
        raise PlanError(
            "The plan is too deep: too many tables are made one from the other.",
            hint=_HINT,
            where=user_line(),
        ) from None


def thinned(drafts: Sequence[Draft], ends: Sequence[End]) -> set[Node]:
    """Return the bases whose operators may leave out rows."""
    readers = _Readers(drafts, ends)
    thin: set[Node] = set()
    for draft in drafts:  # those upstream come first
        reads = (read.base for want in draft.inputs for read in want.reads)
        able = isinstance(draft.base, Aggregate | Top | Over) or not thin.isdisjoint(reads)
        if draft.base is not None and draft.operator.can_be_thin and able and readers.take_last(draft.base):
            thin.add(draft.base)
    return thin


@dataclass
class _Readers:
    """Follows changes from the operators that emit them to the outputs."""

    drafts: Sequence[Draft]
    ends: Sequence[End]
    known: dict[Node, bool] = field(default_factory=dict)

    @cached_property
    def _rejecting(self) -> set[Node]:
        """The nodes of which an output shows what they drop."""
        return {node for end in self.ends if end.output.rejected for node in ancestors(end.output.node)}

    @cached_property
    def _reading(self) -> dict[Want, Draft]:
        """The operator that reads each port."""
        return {want: draft for draft in self.drafts for want in draft.inputs}

    @cached_property
    def _outputs(self) -> dict[Want, End]:
        """The output that each port is of."""
        return {end.want: end for end in self.ends}

    def take_last(self, base: Node) -> bool:
        """Whether all that read what a base emits need only the last change of each key."""
        if base not in self.known:
            self.known[base] = base not in self._rejecting and all(map(self._takes_last, self._ports(base)))
        return self.known[base]

    def _ports(self, base: Node) -> Iterator[Want]:
        """The ports to which a base sends."""
        yield from (end.want for end in self.ends if end.sender is base)
        yield from (want for want in (*self._reading, *self._outputs) if base in want.senders)

    def _takes_last(self, want: Want) -> bool:
        """Whether what reads a port, and all that reads its results, needs only the last change of each key."""
        if want in self._outputs:
            return self._outputs[want].output.final
        draft = self._reading[want]
        own = [target for target in draft.targets if target is not None]
        if draft.base is None:  # the memory of an output
            own += [end.want for end in self.ends if end.sender is draft]
        if not (draft.operator.takes_last and all(map(self._takes_last, own))):
            return False
        return draft.base is None or None not in draft.targets or self.take_last(draft.base)
