"""The picture of a physical plan: its boxes and arrows, and the figures of a query that ran it.

The number of a port says at which input of which box an arrow ends. A table between two rounds is a port as well: its
arrows go on to the ports that read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from tablestream.pictures.figures import Figures, size
from tablestream.pictures.picture import Arrow, Box, Kind, Lane, Line, Picture, Role
from tablestream.planner.explain import copied, described, duration, emission, summary
from tablestream.planner.physical_plan import Ending, PhysicalPlan, Reader
from tablestream.runtime.alignment import Alignment
from tablestream.runtime.measures import ALIGNMENT, measured
from tablestream.runtime.ports import Port
from tablestream.runtime.rounds import Placed, Round
from tablestream.topology.graph import base_of
from tablestream.topology.nodes import Node, Source

#: The role in the label of a port, such as ``joined[right]``.
_ROLE = re.compile(r"\[([^\[\]]+)\]$")


def picture_of(plan: PhysicalPlan, figures: Figures | None = None) -> Picture:
    """Return the picture of a plan, with the figures of a query that runs it if they are given."""
    if figures is not None:
        figures.check(measured(plan.rounds))
    drawing = _Drawing(plan, figures)
    # The query that the figures are of may have run with another number of shards.
    captions = [summary(plan)] if figures is None else [summary(plan, shards=False), figures.caption]
    return Picture(tuple(captions), tuple(drawing.lanes()), tuple(dict.fromkeys(drawing.arrows())))


class _Drawing:
    """The names of the boxes of a plan, and what follows from them."""

    def __init__(self, plan: PhysicalPlan, figures: Figures | None) -> None:
        self._plan, self._figures = plan, figures
        sources = sorted(plan.sources, key=lambda one: one.serial)
        self._sources = {source: f"source{number}" for number, source in enumerate(sources, start=1)}
        operators = measured(plan.rounds)
        self._operators = {name: f"operator{number}" for number, name in enumerate(operators, start=1)}
        self._placed = [placed for work in plan.rounds for placed in work.operators]

    def lanes(self) -> Iterator[Lane]:
        yield Lane("Sources", tuple(self._source(source) for source in self._sources))
        for work in self._plan.rounds:
            yield Lane(f"Round {work.number}", tuple(self._round(work)), "shuffle")
        shuffle = "" if self._plan.ends_in_place else "last shuffle"
        yield Lane("Outputs", tuple(self._output(ending) for ending in self._plan.endings), shuffle)

    # Where arrows end

    @cached_property
    def _ends(self) -> dict[int, tuple[str, int | None]]:
        """The box and the input of each port's number."""
        found: dict[int, tuple[str, int | None]] = {}
        for placed in self._placed:
            name = self._operators[placed.name]
            found |= {number: (name, at) for at, number in enumerate(placed.inputs)}
        found |= {held.number: (self._operators[ALIGNMENT], None) for held in self._plan.held}
        outputs = enumerate(self._plan.endings, start=1)
        return found | {ending.port.number: (f"output{number}", None) for number, ending in outputs}

    @cached_property
    def _arriving(self) -> dict[int, str]:
        """What arrives at each port's number: its role, and the views through which it comes."""
        released = {held.number: held.target for held in self._plan.held}
        ports = {port.number: port for port in released.values()}
        ports |= {port.number: port for placed in self._placed for to in placed.targets for port in to}
        views: dict[int, dict[str, None]] = {}
        for reader in self._readers():
            port = released.get(reader.port.number, reader.port)
            ports[port.number] = port
            # Merged streams arrive at one port, each through its own view. Some views are the planner's own.
            if reader.node is not base_of(reader.node) and reader.node in self._plan.names:
                views.setdefault(port.number, {})[self._plan.names[reader.node]] = None
        return {number: _arrival(port, views.get(number, ())) for number, port in ports.items()}

    def _readers(self) -> Iterator[Reader]:
        for readers in self._plan.sources.values():
            yield from readers
        for between in self._plan.between:
            yield from between.readers

    # Arrows

    def arrows(self) -> Iterator[Arrow]:
        for source, name in self._sources.items():
            yield from (self._arrow(name, reader.port) for reader in self._plan.sources[source])
            yield from self._rejections(name, self._plan.rejecting(source))
        yield from (self._arrow(self._operators[ALIGNMENT], held.target) for held in self._plan.held)
        between = {one.port.number: one.readers for one in self._plan.between}
        for placed in self._placed:
            name = self._operators[placed.name]
            for port in (port for ports in placed.targets for port in ports):
                readers = between.get(port.number)
                ends = [port] if readers is None else [reader.port for reader in readers]
                yield from (self._arrow(name, end) for end in ends)
            yield from self._rejections(name, placed.rejecting)
        for reader in self._readers():
            yield from self._rejections(self._ends[reader.port.number][0], reader.rejecting)

    def _arrow(self, start: str, port: Port) -> Arrow:
        return Arrow(start, *self._ends[port.number])

    def _rejections(self, start: str, ports: Iterable[Port]) -> Iterator[Arrow]:
        return (Arrow(start, *self._ends[port.number], dropped=True) for port in ports)

    # Boxes

    def _source(self, source: Source) -> Box:
        name, title = self._sources[source], self._plan.names[source]
        lines = [_key(source)]
        lines += [Line("starts with a bootstrap")] if source.bootstrapped else []
        return Box(name, Kind.SOURCE, title, lines=(*lines, *self._drops(name)))

    def _round(self, work: Round) -> Iterator[Box]:
        if work.alignment is not None:
            yield self._waiting(work.alignment)
        yield from map(self._operator, work.operators)

    def _waiting(self, alignment: Alignment) -> Box:
        idle = "" if alignment.idle_us is None else f" (idle={duration(alignment.idle_us)})"
        lines = [Line(f"every source waits for the others{idle}"), *_remembered(["lanes", "waiting"])]
        lines += self._activity(ALIGNMENT, has_state=True)
        return Box(self._operators[ALIGNMENT], Kind.OPERATOR, ALIGNMENT, lines=tuple(lines))

    def _operator(self, placed: Placed) -> Box:
        name, operator = self._operators[placed.name], placed.operator
        lines = [Line(described(operator)), *_remembered(spec.name for spec in operator.traces)]
        lines += self._activity(placed.name, has_state=bool(operator.traces))
        inputs = tuple(self._arriving[number] for number in placed.inputs)
        return Box(name, Kind.OPERATOR, placed.name, inputs, (*lines, *self._drops(name)))

    def _output(self, ending: Ending) -> Box:
        name, _ = self._ends[ending.port.number]
        lines = [Line("dropped records")] if ending.rejected else [_key(ending.node), Line(emission(ending))]
        return Box(name, Kind.OUTPUT, self._plan.names[ending.node], lines=tuple(lines))

    # Figures

    def _activity(self, operator: str, *, has_state: bool) -> Iterator[Line]:
        """What an operator received and emitted, and the size of its state."""
        if self._figures is None:
            return
        one = self._figures.operators[operator]
        yield Line(f"{one.rows_in:,} rows in, {one.rows_out:,} out", Role.FIGURES)
        if one.state_rows is None or one.state_bytes is None:
            yield Line("state: not all shards have reported", Role.FIGURES)
        elif has_state:
            yield Line(f"state: {one.state_rows:,} rows, {size(one.state_bytes)}", Role.FIGURES)

    def _drops(self, box: str) -> Iterator[Line]:
        """The records that were dropped at a box, by reason."""
        if self._figures is None:
            return
        for (place, reason), count in self._figures.dropped.items():
            if self._droppers.get(place) == box:
                yield Line(f"{count:,} dropped: {reason}", Role.DROPS)

    @cached_property
    def _droppers(self) -> dict[str, str]:
        """The box of each name under which drops are counted: of an operator, a source, or a join with late changes."""
        joins = (reader for reader in self._readers() if reader.counted_by is not None)
        found = {str(reader.counted_by): self._ends[reader.port.number][0] for reader in joins}
        return found | self._operators | {self._plan.names[one]: name for one, name in self._sources.items()}


def _key(node: Node) -> Line:
    return Line(f"key {', '.join(one.name for one in node.key)}" if node.key else "no key")


def _remembered(names: Iterable[str]) -> list[Line]:
    return [Line(f"remembers {name}", Role.STATE) for name in names]


def _arrival(port: Port, views: Iterable[str]) -> str:
    """What arrives at a port, in the words of the plan; an operator's numbered inputs have a noun."""
    found = _ROLE.search(port.label)
    role = found[1] if found is not None else port.label
    role = f"input {role}" if role.isdecimal() else role
    shown = f"{role}: {', '.join(views)}" if views else role
    return f"{shown}{copied(port)}"
