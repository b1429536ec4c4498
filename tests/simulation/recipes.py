"""Random plans as data, so that one can be changed into another, and it is known what stays the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Aggregate, How, Node
from tests.plans import catalogue
from tests.plans.catalogue import has_a, never_b_a, without_b
from tests.plans.engine import Output
from tests.plans.tables import (
    SORTED,
    ForeignKey,
    Key,
    counted,
    filtered,
    first_of_key,
    foreign_key_join,
    grouped,
    kept,
    key_join,
    many_to_many,
    mapped,
    materialized,
    one_to_many,
    over,
    pointers,
    points,
    source,
    starred,
    suppressed,
    topped,
    unfolded,
)

SOURCES = ("A", "B", "C")


@dataclass(frozen=True)
class WithName:
    """A function with a name of its own in the texts of plans, where others look the same."""

    name: str
    function: ForeignKey

    def __call__(self, value: str, key: Key) -> str | Key | None:
        return self.function(value, key)


by_letter = WithName("by_letter", catalogue.by_letter)
by_key = WithName("by_key", catalogue.by_key)
second_pointer = WithName("second_pointer", points(1))


def _has_groups(*tables: Node) -> bool:
    """Whether a row without a match may have the key of another one: that of a group without a key."""
    return any(isinstance(one, Aggregate) for one in ancestors(*tables))


def _by_key(one: Node, other: Node, how: How) -> Node:
    kept: How = "left" if how == "outer" else "inner"
    return counted(foreign_key_join(one, other, kept if _has_groups(one, other) else how), by_key)


def _pairs(one: Node, other: Node) -> Node:
    return counted(one_to_many(one, other, "inner" if _has_groups(one, other) else "left"), by_key)


#: Operators whose state the rows of sources tell, over one table and over two. All tables have a key of one part.
ONE: dict[str, Callable[[Node], Node]] = {
    "with a": lambda one: filtered(one, has_a),
    "without a": lambda one: filtered(one, has_a, negate=True),
    "mapped": lambda one: mapped(one, without_b),
    "counted": counted,
    "counted by letter": lambda one: counted(one, by_letter),
    "windows": lambda one: over(one, by_letter),
    "elements": lambda one: counted(unfolded(one, pointers), by_letter),
}
TWO: dict[str, Callable[[Node, Node], Node]] = {
    "key inner": lambda one, other: key_join(one, other, "inner"),
    "key left": lambda one, other: key_join(one, other, "left"),
    "key right": lambda one, other: key_join(one, other, "right"),
    "key outer": lambda one, other: key_join(one, other, "outer", never_b_a),
    "foreign inner": lambda one, other: foreign_key_join(one, other, "inner"),
    "foreign left": lambda one, other: foreign_key_join(one, other, "left"),
    "foreign right": lambda one, other: _by_key(one, other, "right"),
    "foreign outer": lambda one, other: _by_key(one, other, "outer"),
    "foreign by the second": lambda one, other: foreign_key_join(one, other, "left", second_pointer),
    "foreign spread": lambda one, other: foreign_key_join(one, other, "left", spread=3),
    "foreign copied": lambda one, other: foreign_key_join(one, other, "left", copied=True),
    "star": lambda one, other: starred(one, (other, "left", points(0)), (other, "inner", second_pointer)),
    "pairs": _pairs,
    "many to many": lambda one, other: counted(many_to_many(one, other), by_letter),
}
#: Operators that remember what no row tells.
REFUSED: dict[str, Callable[[Node], Node]] = {
    "held": lambda one: suppressed(one, 4),
    "kept": lambda one: kept(one, 9),
    "versions": lambda one: materialized(one, 3),
    "top": lambda one: counted(topped(one, by_letter), by_letter),
    "first of key": lambda one: first_of_key(one, by_letter),
    "grouped": lambda one: grouped(one, by_letter, SORTED),
    "groups kept": lambda one: counted(one, by_letter, keep_empty=True),
}
REBUILT: list[str] = [*ONE, *TWO]
OPERATORS: Mapping[str, Callable[..., Node]] = {**ONE, **TWO, **REFUSED}
#: What an output shows beside changes; a table has one row per key.
KINDS: Mapping[str, Mapping[str, bool]] = {
    "log": {},
    "log with before": {"before": True},
    "log of differences": {"minimal": True},
    "table": {"final": True},
}


class Step(NamedTuple):
    """An operator over one or two tables, by their numbers: the sources come first."""

    operator: str
    tables: tuple[int, ...]


class Asked(NamedTuple):
    """An output: its kind, and the number of its table."""

    kind: str
    table: int


@dataclass(frozen=True)
class Recipe:
    """A plan: its operators, and the outputs."""

    steps: tuple[Step, ...]
    asked: tuple[Asked, ...]

    def outputs(self) -> tuple[Output, ...]:
        """Build the plan."""
        tables: list[Node] = [source(name) for name in SOURCES]
        for step in self.steps:
            build: Callable[..., Node] = OPERATORS[step.operator]
            tables.append(build(*(tables[one] for one in step.tables)))
        return tuple(Output(tables[one.table], **KINDS[one.kind]) for one in self.asked)

    def made_of(self, table: int) -> tuple[object, ...]:
        """Tell what a table is made of: of equal tables it is equal."""
        if table < len(SOURCES):
            return (SOURCES[table],)
        step = self.steps[table - len(SOURCES)]
        return step.operator, *map(self.made_of, step.tables)

    @property
    def targets(self) -> tuple[str, ...]:
        """Where the outputs are written."""
        return tuple(f"{one.kind} {one.table}" for one in self.asked)

    @property
    def used(self) -> set[str]:
        """The operators of all outputs."""
        parts = [self.made_of(one.table) for one in self.asked]
        used = set()
        while parts:
            name, *inputs = parts.pop()
            used.add(str(name))
            parts += inputs  # type: ignore[arg-type]
        return used

    def __str__(self) -> str:
        """Show it in a line."""
        steps = [f"{n}: {step.operator} {step.tables}" for n, step in enumerate(self.steps, 3)]
        return "; ".join([*steps, *(f"{one.kind} of {one.table}" for one in self.asked)])


def random_recipe(rng: random.Random) -> Recipe:
    """Make a plan of one to four operators."""
    steps = tuple(_step(rng, number) for number in range(rng.randint(1, 4)))
    return Recipe(steps, _asked(rng, steps))


def changed(rng: random.Random, recipe: Recipe) -> Recipe:
    """Change a plan: other operators, other inputs, more or fewer of them, other outputs; or make another plan."""
    if rng.random() < 0.15:
        return random_recipe(rng)
    steps = list(recipe.steps)
    for _ in range(rng.randint(0, 2)):
        number = rng.randint(0, len(steps))
        steps[number : number + 1] = [_step(rng, number)]
    recipe = replace(recipe, steps=tuple(steps))
    kept = tuple(one for one in recipe.asked if rng.random() < 0.8)
    more = _asked(rng, recipe.steps) if rng.random() < 0.6 or not kept else ()
    return replace(recipe, asked=tuple(dict.fromkeys([*kept, *more])))


def remembering(rng: random.Random, recipe: Recipe) -> Recipe:
    """Put an operator in a plan that remembers what no row tells."""
    number = rng.randrange(len(recipe.steps))
    steps = list(recipe.steps)
    steps[number] = Step(rng.choice(list(REFUSED)), steps[number].tables[:1])
    return replace(recipe, steps=tuple(steps))


def _step(rng: random.Random, number: int) -> Step:
    operators = REFUSED if rng.random() < 0.03 else REBUILT
    operator, tables = rng.choice(list(operators)), range(len(SOURCES) + number)
    inputs = rng.choice(tables[-3:]), rng.choice(tables)
    return Step(operator, inputs if operator in TWO else inputs[:1])


def _asked(rng: random.Random, steps: tuple[Step, ...]) -> tuple[Asked, ...]:
    tables = range(len(SOURCES) + len(steps))
    return tuple(
        {Asked(rng.choice(list(KINDS)), rng.choice(tables[-4:])): None for _ in range(rng.randint(1, 2))}
    )
