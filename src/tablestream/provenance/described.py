"""What a rule has to say of a node of the plan, and what it can ask of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tablestream.planner.catalogue import StoredTable, StoredTables, decode
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.provenance.steps import Column
from tablestream.state.changes import LIVE
from tablestream.topology.needed import SIDES
from tablestream.topology.nodes import Expression, Field, Fields, Join, Named, Node

#: Returns the column that an expression is as it is, of a row or, behind a name of `SIDES`, of a side.
Copied = Callable[[Expression], str | None]


class NotPlacedError(LookupError):
    """A node has no operator: it is only there for what an output rejects."""


@dataclass(frozen=True)
class Parts:
    """What a rule says of a node: the attributes of a `Step` that it decides, with nodes and tables themselves."""

    words: str
    parents: tuple[Node, ...] = ()
    how: str = ""
    texts: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    inputs: tuple[Column, ...] = ()
    deletes: str = ""
    unless: int | None = None
    meets_nulls: bool = False
    tables: Mapping[str, StoredTable] = field(default_factory=dict)


@dataclass(frozen=True)
class Described:
    """A plan that is described."""

    plan: PhysicalPlan
    copied: Copied

    @property
    def catalogue(self) -> StoredTables:
        """The tables that can be read from the state by their names."""
        texts = (work.tables for work in self.plan.rounds[:1])
        return next((decode(text) for text in texts), StoredTables(()))

    def columns(self, named: Sequence[Named]) -> tuple[Column, ...]:
        """How columns are computed."""
        return tuple(self._column(one) for one in named)

    def deleting(self, gone: Expression | None) -> tuple[str, int | None]:
        """What deletes rows, and the number of the input whose row does it, if it is just that there is one."""
        if gone is None:
            return "", None
        flags = {f"{prefix}.": side for side, prefix in enumerate(SIDES)}
        return gone.text, flags.get(self.copied(gone) or gone.text)

    def join(self, node: Join) -> Parts:
        """Say of a join what is said of every kind."""
        deletes, unless = self.deleting(node.delete_when)
        return Parts(
            f"{node.how} join",
            node.parents,
            how=node.how,
            columns=self.columns(node.select),
            deletes=deletes,
            unless=unless,
        )

    def trace(
        self,
        operator: str,
        trace: str,
        key: Mapping[str, Field],
        value: Fields = (),
        *,
        column: str = "v",
        scattered: bool = False,
    ) -> StoredTable:
        """Return a trace of an operator as a table.

        `key`: columns of the trace, the ones that it is looked up by first. Without `value` it has no ``v``.
        `column`: the one with the value. `scattered`: as of `StoredTable`.

        Raises
        ------
        NotPlacedError
            The plan has no such operator.
        """
        placed = {one.name: work for work in self.plan.rounds for one in work.operators}
        if operator not in placed:
            raise NotPlacedError(operator)
        work = placed[operator]
        spec = next(one for one in work.traces if one.name == f"{operator}/{trace}")
        parts = tuple(Field(f"key {number}", one.type) for number, one in enumerate(key.values()))
        columns = tuple(Field(f"value {number}", one.type) for number, one in enumerate(value))
        return StoredTable(
            name=spec.name if column == "v" else f"{spec.name} {column}",
            round=work.number,
            operator=operator,
            fingerprint=work.fingerprint,
            key=parts,
            value=columns,
            stored_key=parts,
            traces=(spec,),
            column=column if column in spec.schema else LIVE,
            columns=tuple(key),
            scattered=scattered,
        )

    def _column(self, one: Named) -> Column:
        found = self.copied(one.expression)
        text = one.expression.text
        if found is None:
            return Column(one.name, text)
        for side, prefix in enumerate(SIDES):
            if found.startswith(f"{prefix}."):
                return Column(one.name, text, side, found.removeprefix(f"{prefix}."))
        return Column(one.name, text, 0, found)
