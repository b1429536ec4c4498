"""What the state of a plan has of a source that it does not have whole: rows behind filters, some columns, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tablestream.planner.evolution import KeptRows
from tablestream.provenance.rules.foreign_key import NAMING
from tablestream.provenance.rules.groups import MEMBERS
from tablestream.provenance.rules.partitions import PARTITIONS, SIDES
from tablestream.provenance.steps import ROWS, Lineage, Step
from tablestream.topology.nodes import Filter, Materialize, OneToMany, Select, Source


@dataclass(frozen=True)
class _View:
    """A table that has rows of the source: under which conditions, and which of its columns are the source's."""

    conditions: tuple[str, ...]
    columns: Mapping[str, str]

    def kept(self, step: Step, *conditions: str, of: Mapping[str, str] | None = None) -> KeptRows:
        columns = self.columns if of is None else of
        return KeptRows(step.title, (*self.conditions, *conditions), tuple(dict.fromkeys(columns.values())))


def kept_rows(lineage: Lineage) -> Mapping[str, tuple[KeptRows, ...]]:
    """Find what the state has of each source, by the source's name in the plan."""
    sources = [step for step in lineage.steps.values() if step.kind == Source.__name__]
    return {step.name: tuple(dict.fromkeys(_of_source(lineage, step))) for step in sources}


def _of_source(lineage: Lineage, source: Step) -> Iterator[KeptRows]:
    views = {source.name: _View((), {one.name: one.name for one in source.value})}
    for step in lineage.steps.values():
        for side, parent in enumerate(step.parents):
            if parent in views:
                yield from _remembered(step, side, views[parent])
        view = _viewed(step, views.get(step.parents[0])) if step.parents else None
        if view is not None:
            views[step.name] = view
            if ROWS in step.tables and lineage.tables[step.tables[ROWS]].history is None:
                kept = view.kept(step)
                is_whole = step.kind == Materialize.__name__ and step.parents == (source.name,)
                yield KeptRows(kept.where, (), kept.columns, step.tables[ROWS]) if is_whole else kept


def _viewed(step: Step, below: _View | None) -> _View | None:
    """A step that has each row of the one below, or leaves it out; None: it is another one."""
    if below is None:
        return None
    if step.kind == Filter.__name__:
        return _View((*below.conditions, *step.texts), below.columns)
    if step.kind == Select.__name__:
        gone = (f"not ({step.deletes})",) if step.deletes else ()
        copied = {one.name: one.copied for one in step.columns}
        return _View((*below.conditions, *gone), _named(copied, below))
    return below if step.kind == Materialize.__name__ else None


def _remembered(step: Step, side: int, view: _View) -> Iterator[KeptRows]:
    """What an operator remembers of the rows of a side."""
    if MEMBERS in step.tables or PARTITIONS in step.tables:
        yield view.kept(step, of=_named({one.name: one.copied for one in step.inputs}, view))
    elif NAMING in step.tables and side == (step.kind == OneToMany.__name__):
        yield view.kept(step, *(f"{one} is not null" for one in step.texts))
    elif SIDES[side % 2] in step.tables:
        text = step.texts[side]
        yield view.kept(step, f"{text} is not null" if len(step.inputs) == 1 else f"none of {text} is null")


def _named(copied: Mapping[str, str | None], below: _View) -> dict[str, str]:
    """The columns of the source that copies of columns below are."""
    return {name: below.columns[of] for name, of in copied.items() if of is not None and of in below.columns}
