"""Lower the logical plan to the physical plan: place operators, number ports, connect readers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from tablestream.operators.operator import keyed_changes
from tablestream.operators.upsert import Upsert
from tablestream.operators.versioned_upsert import VersionedUpsert
from tablestream.planner.catalogue import encode, stored_tables
from tablestream.planner.depth import check_rounds, within_stack
from tablestream.planner.lowering import Draft, History, Lowering, Read, Remembered, Types, Want
from tablestream.planner.physical_plan import Between, Ending, Output, PhysicalPlan, PlanOptions, Reader
from tablestream.planner.result import Result
from tablestream.planner.rules import place
from tablestream.planner.thinning import thinned
from tablestream.runtime.alignment import Alignment, Held
from tablestream.runtime.rounds import BY_SOURCE, EVERY_SHARD, Placed, Port, Round
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
)
from tablestream.topology.needed import needed_columns
from tablestream.topology.nodes import Field, Node, Source
from tablestream.topology.streams import Merge

#: After every declared node: outputs rank last.
_LAST = 1 << 60


def lower(outputs: Sequence[Output], types: Types, options: PlanOptions) -> PhysicalPlan:
    """Lower a plan.

    Parameters
    ----------
    outputs
        The outputs that the plan computes.
    types
        Gives the Polars dtypes of columns.
    options
        Applies to the whole plan.

    Raises
    ------
    PlanError
        The plan is too deep.
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
        if output.rejected and not options.on_error.rejects:
            _produce_rejecting(lowering, output.node)
        else:
            lowering.produce_stream(output.node)
    final = _natively_final(lowering, outputs)
    endings = [_ending(lowering, output, index, final) for index, output in enumerate(outputs)]
    last = max([draft.round for draft in lowering.drafts], default=0 if options.align is None else 1)
    ending = {end.want for end in endings}
    for want in lowering.wants:
        if want in ending or want.into in ending:
            want.round = last + 1
    thin = thinned(lowering, [(end.output, end.want, end.base) for end in endings])
    finished = _Finishing(lowering, endings, final, thin, last).physical_plan()
    finished.check()
    return finished


@dataclass(frozen=True)
class _End:
    """An output before its port is numbered.

    `base` is the operator that sends to it or its `Upsert`. It is None if the port reads a view or rejected records.
    """

    output: Output
    want: Want
    base: Node | Draft | None
    result: Result | None


def _produce_rejecting(lowering: Lowering, output: Node) -> None:
    """Place the operators that can reject records on the way to an output. To find them, lower the whole way once."""
    columns = lowering.columns
    whole = Lowering(
        lowering.options, lowering.types, lowering.names, lowering.knowing, lowering.place, columns
    )
    whole.produce_stream(output)
    rejecting = {draft.base for draft in whole.drafts if draft.operator.rejects}
    rejecting |= {join for join, _ in whole.counting.values()}
    nodes = ancestors(output)
    for node in nodes:
        if node in rejecting:
            lowering.produce(operator_of(node, nodes))


def _natively_final(lowering: Lowering, outputs: Sequence[Output]) -> set[Node]:
    """The bases whose operators can emit only final changes themselves, because every reader wants only these."""
    emitting = [draft for draft in lowering.drafts if None in draft.targets]
    able = {draft.base for draft in emitting if draft.base is not None}
    able -= {draft.base for draft in emitting if not draft.operator.can_be_final}
    able -= {read.base for read in lowering.reads} | lowering.direct.keys()
    for output in outputs:
        if output.rejected:
            continue
        if not output.final or output.before or output.minimal or removes_rows(output.node):
            able.discard(base_of(output.node))
    return able


def _ending(lowering: Lowering, output: Output, index: int, final: set[Node]) -> _End:
    """Decide how an output's changes are emitted: directly by their operator, or through an `Upsert`."""
    base = base_of(output.node)
    want = Want(((_LAST,), index), 0, KEY_HASH, f"output {index + 1}")
    if output.rejected:
        lowering.wants.append(want)
        if lowering.options.on_error.rejects:  # every table on the way is computed, and this one, too
            silent = Want(((_LAST,), index), 0, KEY_HASH, want.label, into=want)
            lowering.read_stream(output.node, silent, output.node.key, is_silent=True)
        return _End(output, want, None, None)
    minimal = output.minimal or lowering.reads_minimal(output.node)
    whole = has_whole_transactions(output.node) and not output.final
    if not (output.before or minimal or whole or (output.final and base not in final)):
        # What a view of a stream filters out or rekeys must be known before the last shuffle.
        if isinstance(base, Source | Merge) or (output.node.is_stream and base is not output.node):
            lowering.read_stream(output.node, want, output.node.key)
            return _End(output, want, None, Result.computed(output.node))
        if _has_rows_to_catch(lowering, output.node, base):  # a packer has to see them
            latest = output.tells_latest and lowering.made[base].result.latest
            lowering.read(output.node, want, output.node.key, latest_only=output.latest_only)
            lowering.telling_latest |= {want} if latest else set()
            return _End(output, want, None, Result.computed(output.node, latest=latest))
        lowering.wants.append(want)
        return _End(output, want, base, lowering.made[base].result)
    operator = _remembering(lowering, output, minimal=minimal, whole=whole)
    draft = _drafted(lowering, output, index, operator)
    lowering.wants.append(want)
    return _End(output, want, draft, Result.computed(output.node, latest=output.tells_latest))


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
    lowering.read(node, read, node.key, latest_only=not output.tells_latest)
    history = History(operator.history_us, name) if isinstance(operator, VersionedUpsert) else None
    rows = Remembered(node, (operator.traces[0].name,), node.key, history=history)
    remembers = (rows,) if output.before or history is not None else ()
    draft = Draft(None, name, number, operator, [read], remembers=remembers)
    lowering.drafts.append(draft)
    return draft


def _remembering(
    lowering: Lowering, output: Output, *, minimal: bool, whole: bool
) -> Upsert | VersionedUpsert:
    """The operator that remembers an output's rows, and so knows what each row was before."""
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
    endings: list[_End]
    final: set[Node]
    thin: set[Node]
    last: int

    def physical_plan(self) -> PhysicalPlan:
        """Make the physical plan."""
        readers: dict[Node, list[Reader]] = {}
        for read in self.lowering.reads:
            readers.setdefault(read.base, []).append(self._reading[read.want])
        alignment, made = self._alignment(readers), self.lowering.made
        return PhysicalPlan(
            options=self.lowering.options,
            names=self.lowering.names,
            rounds=self._rounds(alignment),
            sources={source: tuple(readers.get(source, ())) for source in self._sources()},
            between=tuple(
                Between(port, made[base].result, made[base].round, tuple(readers[base]))
                for base, port in self._between.items()
            ),
            endings=tuple(
                Ending(**vars(end.output), port=self._ports[end.want], result=end.result)
                for end in self.endings
            ),
        )

    @cached_property
    def _ports(self) -> dict[Want, Port]:
        """The ports, with their numbers and ranks."""
        ranked = sorted(self.lowering.wants, key=lambda want: want.order)
        ranks = {want: rank for rank, want in enumerate(ranked, start=1)}
        return {
            want: Port(
                ranks[want.into or want], rank, want.round, want.route, want.label, want.spread, want.copies
            )
            for want, rank in ranks.items()
        }

    @cached_property
    def _reading(self) -> dict[Want, Reader]:
        """The reader of each port that reads a view."""
        return {read.want: self._reader(read) for read in self.lowering.reads}

    @cached_property
    def _between(self) -> dict[Node, Port]:
        """The ports of the results that later rounds read."""
        read, made = {read.base for read in self.lowering.reads}, self.lowering.made
        return {
            base: Port(
                len(self._ports) + number, 0, made[base].round + 1, KEY_HASH, self.lowering.names[base]
            )
            for number, base in enumerate(made, start=1)
            if base in read and not isinstance(base, Source)
        }

    @cached_property
    def _lacking(self) -> dict[Want, str]:
        """The ports that read tombstones without a time, and the lanes of these. In compat there are none."""
        found: dict[Want, str] = {}
        for read in [] if self.lowering.options.compat else self.lowering.reads:
            if isinstance(read.base, Source) and read.base.lacks_times is not None:
                want, lanes = read.want.into or read.want, read.base.lacks_times
                found[want] = lanes if found.get(want, lanes) == lanes else BY_SOURCE
        return found

    def _sources(self) -> list[Source]:
        """Every source of the plan, in the order of declaration."""
        nodes = ancestors(*(end.output.node for end in self.endings))
        return [node for node in nodes if isinstance(node, Source)]

    def _reader(self, read: Read) -> Reader:
        """Finish a reader. One that counts late changes also knows the ports that receive them."""
        counting = self.lowering.counting.get(read.want)
        return Reader(
            port=self._ports[read.want],
            node=read.view,
            schema=self._message_schema(read),
            key=read.key,
            pointer=read.pointer,
            inputs=read.inputs,
            is_silent=read.is_silent,
            latest_only=read.latest_only,
            counted_by=read.counted_by,
            rejecting=() if counting is None else self._rejecting(counting[0]),
        )

    def _rejecting(self, node: Node | None) -> tuple[Port, ...]:
        """The ports that receive what the operators of a node drop."""
        asking = (end for end in self.endings if end.output.rejected)
        return tuple(self._ports[end.want] for end in asking if node in ancestors(end.output.node))

    def _alignment(self, readers: dict[Node, list[Reader]]) -> Alignment | None:
        """If records wait for each other, let those of the sources wait in the first round."""
        lowering, sources = self.lowering, self._sources()
        if lowering.options.align is None:
            return None
        entering = [
            (read.base, read.want, read.is_silent) for read in lowering.reads if isinstance(read.base, Source)
        ]
        waiting = [(source, want) for source, want, is_silent in entering if not is_silent]
        numbers = itertools.count(1 + len(lowering.wants) + len(lowering.made))
        progress = Port(next(numbers), 0, 1, EVERY_SHARD, "how far the sources are")
        held = []
        readers.update((source, []) for source in sources)
        for source, want, is_silent in entering:
            if is_silent:
                readers[source].append(self._reading[want])
        for (source, want), number in zip(waiting, numbers, strict=False):
            reader, ordered = self._reading[want], source.ordered_by is not None
            held.append(Held(number, reader.port, reader.schema, ordered))
            # Records that go to several shards are copied when they leave the buffer, not before.
            route = FOREIGN_HASH if reader.port.route == EVERY_SHARD else reader.port.route
            label = f"{reader.port.label} in order"
            port = replace(reader.port, number=number, round=1, route=route, label=label, copies=1)
            readers[source].append(replace(reader, port=port))
        kind = next((source.ordered_by for source in sources if source.ordered_by), None)
        (time,) = lowering.types((Field("time", kind),)).values() if kind else (pl.Int64(),)
        return Alignment(progress, tuple(held), len(sources), time, lowering.options.align.idle_us)

    def _message_schema(self, read: Read) -> pl.Schema:
        """The columns of a reader's messages: the input of its operator, or the columns of an output."""
        lowering, want = self.lowering, read.want.into or read.want
        for draft in lowering.drafts:
            if want in draft.inputs:
                return draft.operator.inputs[draft.inputs.index(want)]
        columns = keyed_changes(lowering.key_of(read.view), lowering.value_of(read.view))
        return pl.Schema({**columns, LATEST: pl.Boolean()}) if want in lowering.telling_latest else columns

    def _rounds(self, alignment: Alignment | None) -> tuple[Round, ...]:
        made = []
        for number in range(1, self.last + 1):
            drafts = [draft for draft in self.lowering.drafts if draft.round == number]
            placed = tuple(map(self._placed, drafts))
            description = self._description(drafts)
            if alignment is not None and number == 1:
                description = (*description, *alignment.description)
                made.append(Round(number, placed, description, alignment, waiting=self._waiting()))
            else:
                made.append(Round(number, placed, description))
        tables = encode(stored_tables(self.lowering.drafts, made, self.lowering.names))
        return tuple(replace(work, tables=tables) for work in made)

    def _placed(self, draft: Draft) -> Placed:
        ends = [
            self._ports[end.want]
            for end in self.endings
            if end.base in (draft, draft.base) and end.base is not None
        ]
        if draft.base in self._between:
            ends.append(self._between[draft.base])
        if draft.base is not None:
            ends += [self._ports[want] for want in self.lowering.direct.get(draft.base, ())]
        operator = draft.operator
        if draft.base in self.final:
            operator = operator.made_final()
        elif draft.base in self.thin:
            operator = operator.made_thin()
        targets = tuple(tuple(ends) if want is None else (self._ports[want],) for want in draft.targets)
        inputs = tuple(self._ports[want].number for want in draft.inputs)
        rejecting, reading = self._rejecting(draft.base), self._reading
        shown = tuple(reading[want].shown if want in reading else draft.shown for want in draft.inputs)
        where = "" if draft.base is None else draft.base.where
        lacking = tuple(map(self._lacking.get, draft.inputs))
        return Placed(draft.name, operator, inputs, targets, draft.copied, rejecting, shown, where, lacking)

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
            roots += [end.output.node for end in self.endings if end.base is draft]
            lines += self._meanings(roots)
        return tuple(lines)

    def _waiting(self) -> tuple[str, ...]:
        """What waits for outputs: sources, and views of them. What waits for operators is in their rounds."""
        views = [end.output.node for end in self.endings if end.base is None and end.result is not None]
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
