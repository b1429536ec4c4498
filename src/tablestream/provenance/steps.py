"""What a checkpoint keeps of a plan so that its rows can be explained: steps, and the tables in the state.

It is JSON. Expressions are texts for people; none is evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from tablestream.planner import catalogue
from tablestream.planner.catalogue import StoredTable, StoredTables
from tablestream.topology.nodes import Field, Fields

#: Rises when an older version could not read it. 2: joins as of a time are followed.
FORMAT_VERSION = 2
#: The role of a table in the state that has the rows of a step.
ROWS = "rows"


@dataclass(frozen=True)
class Column:
    """How a column of a step is computed.

    Attributes
    ----------
    name
        The column.
    text
        Its expression, for people.
    side, copied
        If it is a column of an input as it is: the number of the input, and the column's name there.
    """

    name: str
    text: str
    side: int = 0
    copied: str | None = None


@dataclass(frozen=True)
class Step:
    """A node of the plan.

    Attributes
    ----------
    name, title
        Its unique name in the plan, and the name that users know.
    kind
        Which rule explains it.
    words
        What it is called, such as ``inner join``.
    key, value
        Its columns.
    parents
        The names of the steps that it reads.
    is_stream
        Whether it has records, which are not kept.
    how
        The kind of a join.
    texts
        For people: a condition, or the expressions of a foreign key or a group.
    columns
        How its columns are computed, if it computes any.
    inputs
        What is remembered of the rows of groups, in the order of the table that has it, then the group.
    deletes
        The expression that deletes rows, for people; empty: none does.
    unless
        If what deletes a row is that an input has one: the number of the input.
    meets_nulls
        Whether the sides of a join meet under a key with a null.
    tables
        The names of the tables in the state that tell of it, by their role.
    """

    name: str
    title: str
    kind: str
    words: str
    key: Fields
    value: Fields
    parents: tuple[str, ...] = ()
    is_stream: bool = False
    how: str = ""
    texts: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    inputs: tuple[Column, ...] = ()
    deletes: str = ""
    unless: int | None = None
    meets_nulls: bool = False
    tables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lineage:
    """The steps of a plan and the tables in its state by name, and the step of each output by the output's name."""

    steps: Mapping[str, Step]
    tables: Mapping[str, StoredTable]
    outputs: Mapping[str, str]

    @cached_property
    def by_title(self) -> Mapping[str, Step]:
        """The steps by the names that users know; of several with one name the last."""
        return {one.title: one for one in self.steps.values()}


def encode(lineage: Lineage) -> str:
    """Write the text that `decode` reads."""
    document = {
        "version": FORMAT_VERSION,
        "outputs": dict(lineage.outputs),
        "steps": [_facts(one) for one in lineage.steps.values()],
        "tables": catalogue.encode(StoredTables(tuple(lineage.tables.values()))),
    }
    return json.dumps(document, separators=(",", ":"))


def decode(text: str) -> Lineage | None:
    """Read the text that `encode` wrote; None if a later version wrote it."""
    document = json.loads(text)
    if document.get("version") not in {1, FORMAT_VERSION}:
        return None
    steps = [_step(one) for one in document["steps"]]
    tables = catalogue.decode(document["tables"]).tables
    return Lineage(
        {one.name: one for one in steps}, {table.name: table for table in tables}, document["outputs"]
    )


def _facts(step: Step) -> dict[str, Any]:
    """What says something; the rest is as it is by default."""
    return {name: value for name, value in asdict(step).items() if value not in (None, "", (), {}, False)}


def _step(facts: dict[str, Any]) -> Step:
    fields: dict[str, Any] = {
        name: tuple(Field(**one) for one in facts.pop(name, ())) for name in ("key", "value")
    }
    columns: dict[str, Any] = {
        name: tuple(Column(**one) for one in facts.pop(name, ())) for name in ("columns", "inputs")
    }
    texts: dict[str, Any] = {name: tuple(facts.pop(name, ())) for name in ("parents", "texts")}
    return Step(**fields, **texts, **columns, **facts)
