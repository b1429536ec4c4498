"""Which operators may leave out rows that are replaced in the same micro-batch, because no reader looks at them.

If the n rows of a group come in one micro-batch, the list of them is emitted n times, with n / 2 values on average,
although a maintained table shows only the last one. So an operator leaves out what is replaced if whoever reads it, and
whoever reads these, needs only the last change of each key. Such operators are groups, and joins on the key that read
what groups make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tablestream.planner.lowering import Draft, End, Want
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Aggregate, Node, Top


def thinned(drafts: Sequence[Draft], ends: Sequence[End]) -> set[Node]:
    """Return the bases whose operators may leave out rows."""
    readers = _Readers(drafts, ends)
    thin: set[Node] = set()
    for draft in drafts:  # those upstream come first
        reads = (read.base for want in draft.inputs for read in want.reads)
        able = isinstance(draft.base, Aggregate | Top) or not thin.isdisjoint(reads)
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
