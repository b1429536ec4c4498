"""Random queries over the small tables, which mean the same to Spark and to DuckDB.

Where the two differ, a query does not ask: `concat` of null, `count_if` of nulls, averages of decimals, divisions by zero, the total of no
rows in ROLLUP, and which of equal rows comes first. In DuckDB a quoted name has double quotes: see `for_duckdb`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Column(NamedTuple):
    """A column, or an expression, and its kind: those of one kind can be compared."""

    text: str
    kind: str


class Query(NamedTuple):
    """A query, and its columns."""

    text: str
    columns: list[Column]


TABLES = {
    "people": {"id": "number", "city": "text", "boss": "number", "age": "number", "paid": "decimal"},
    "cities": {"city": "text", "country": "text", "size": "number"},
    "visits": {"who": "number", "day": "number", "place": "text", "spent": "double"},
    "notes": {"note": "text", "who": "number", "stars": "number"},
    "wages": {"id": "number", "wage": "number"},
}
#: Tables with one name in common, for USING and NATURAL.
ALIKE = [("people", "wages", "id"), ("people", "cities", "city"), ("visits", "notes", "who")]
NUMERIC = {"number", "decimal", "double"}
JOINS = ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
SETS = ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
#: Expressions of a kind: letters stand for others, of the kinds number, text, decimal, double and truth.
EXPRESSIONS = {
    "number": [
        "{n} + 1", "{n} * 2", "{n} - {n}", "abs({n} - 3)", "{n} % 3", "coalesce({n}, 0)", "coalesce({n}, {n})", "nullif({n}, 2)", "greatest({n}, {n})",
        "least({n}, 3)", "length({t})", "instr({t}, 'o')", "CASE WHEN {b} THEN {n} ELSE {n} END", "CASE WHEN {b} THEN {n} END", "CAST({n} AS BIGINT)",
        "CASE {n} WHEN 1 THEN 10 WHEN 2 THEN {n} ELSE 0 END", "-{n}",
    ],
    "text": [
        "upper({t})", "lower({t})", "substr({t}, 1, 2)", "{t} || '-' || {t}", "coalesce({t}, 'none')", "nullif({t}, 'Rome')", "replace({t}, 'o', 'oo')",
        "trim({t})", "CASE WHEN {b} THEN {t} ELSE 'it''s' END", "CAST({n} AS STRING)", "reverse({t})",
    ],
    "decimal": ["{d} + 1", "{d} * 2", "coalesce({d}, 0.50)", "CASE WHEN {b} THEN {d} END", "nullif({d}, 0.01)", "{d} + {d}"],
    "double": ["{f} * 2", "{f} / 4", "coalesce({f}, CAST({n} AS DOUBLE))", "CAST({n} AS DOUBLE)", "{n} / nullif({n}, 0)", "CAST({d} AS DOUBLE)"],
    "truth": ["{b}", "coalesce({b}, false)"],
}  # fmt: skip
CONDITIONS = [
    "{n} > 1", "{n} < {n}", "{n} <> {n}", "{n} <= {n}", "{n} = {n}", "{n} IS NULL", "{t} IS NOT NULL", "NOT ({b})", "({b} OR {b})", "({b} AND {b})",
    "{n} IN (1, 2, NULL)", "{n} NOT IN (1, 3)", "{n} NOT IN (2, NULL)", "{t} IN ('Rome', 'Lima', NULL)", "{t} NOT IN ('Oslo')", "{n} BETWEEN 1 AND {n}",
    "{n} NOT BETWEEN 2 AND 3", "{t} LIKE '%o%'", "{t} NOT LIKE 'R_m%'", "({b}) IS TRUE", "({b}) IS NOT FALSE", "({b}) IS NULL", "{n} IS DISTINCT FROM {n}",
    "{n} IS NOT DISTINCT FROM {n}", "{t} = {t}", "{t} < 'O'", "{d} > 1.5", "{d} <= 20.25", "{f} < {n}", "{f} >= 2.25", "coalesce({n}, 0) <> 2",
]  # fmt: skip
AGGREGATES = {
    "number": [
        "count(*)", "count({any})", "sum({n})", "min({n})", "max({n})", "count(DISTINCT {any})", "sum(DISTINCT {n})", "count(*) FILTER (WHERE {b})",
        "sum({n}) FILTER (WHERE {b})", "sum({n}) + count(*)", "max({n}) - min({n})", "count(CASE WHEN {b} THEN 1 END)", "coalesce(sum({n}), 0)",
    ],
    "double": ["avg({n})", "sum({f})", "avg({f})", "max({f})", "avg(DISTINCT {n})", "stddev_samp({n})", "sum({n}) / count(*)"],
    "decimal": ["sum({d})", "min({d})", "max({d}) FILTER (WHERE {b})", "sum(DISTINCT {d})"],
    "text": ["min({t})", "max({t})", "max({t}) FILTER (WHERE {b})"],
    "truth": ["bool_and({b})", "bool_or({b})", "count(*) > 2"],
}  # fmt: skip
LITERALS = {"n": "2", "t": "'Rome'", "d": "10.50", "f": "CAST(1.5 AS DOUBLE)"}
LETTERS = {"n": "number", "t": "text", "d": "decimal", "f": "double"}


@dataclass
class Maker:
    """Makes a query."""

    drawn: random.Random
    #: Common table expressions by their names.
    known: dict[str, list[Column]] = field(default_factory=dict)
    #: The columns of the queries around this one.
    outer: list[Column] = field(default_factory=list)
    depth: int = 0
    count: list[int] = field(default_factory=lambda: [0])

    def one(self, *values: str) -> str:
        return self.drawn.choice(values)

    def chance(self, share: float) -> bool:
        return self.drawn.random() < share

    def alias(self) -> str:
        self.count[0] += 1
        return f"t{self.count[0]}"

    def inside(self, outer: list[Column] | None = None) -> Maker:
        return replace(self, depth=self.depth + 1, outer=outer or [])

    # Queries

    def query(self) -> Query:
        if self.depth == 0 and self.chance(0.12):
            return self._with()
        if self.depth < 2 and self.chance(0.14):
            return self._combined()
        if self.depth < 2 and self.chance(0.06):
            return self._ranked()
        return self._select()

    def _with(self) -> Query:
        made = self.inside().query()
        name = f"w{self.alias()}"
        text, columns = replace(self, known={name: made.columns, **self.known}, depth=0)._select()
        return Query(f"WITH {name} AS ({made.text}) {text}", columns)

    def _combined(self) -> Query:
        kinds = self.drawn.choices(
            ["number", "text", "number", "decimal", "double"], k=self.drawn.randint(1, 3)
        )
        sides = [self._side(kinds) for _ in range(self.drawn.choice([2, 2, 2, 3]))]
        text = sides[0].text
        for number, side in enumerate(sides[1:]):
            text = f"({text})" if number else text
            text += f" {self.one(*SETS)} {side.text}"
        return Query(text, sides[0].columns)

    def _side(self, kinds: list[str]) -> Query:
        columns, text = self._from(most=1)
        items = [Column(self._expression(columns, kind), kind) for kind in kinds]
        return self._shown(items, f" FROM {text}{self._where(columns, 0.4)}", prefix=self.one("c", "d", "n"))

    def _ranked(self) -> Query:
        """The first rows of each group."""
        columns, text = self._from(most=1)
        items = self._some(columns, 3)
        order = ", ".join(f"{one.text}{self.one('', ' DESC')}" for one in items)
        part = f"PARTITION BY {items[0].text} " if self.chance(0.8) else ""
        inner = self._shown(items, "")
        number = f"ROW_NUMBER() OVER ({part}ORDER BY {order})"
        most = self.drawn.randint(1, 2)
        where = self._where(columns, 0.4)
        if self.chance(0.3):
            return Query(f"{inner.text} FROM {text}{where} QUALIFY {number} <= {most}", inner.columns)
        a = self.alias()
        names = ", ".join(one.text for one in inner.columns)
        inside = f"{inner.text}, {number} AS place FROM {text}{where}"
        return Query(f"SELECT {names} FROM ({inside}) {a} WHERE place <= {most}", inner.columns)

    def _select(self) -> Query:
        columns, text = self._from()
        behind = f" FROM {text}{self._where(columns, 0.6)}"
        if self.chance(0.33):
            return self._grouped(columns, behind)
        items = self._some(columns, self.drawn.randint(1, 3))
        if self.chance(0.3):
            kind = self.one(*EXPRESSIONS)
            items.append(Column(self._expression(columns, kind, always=True), kind))
        if self.depth == 0 and self.chance(0.08):
            items.append(self._in_select(columns))
        elif self.depth < 2 and self.chance(0.1):
            items.append(self._window(columns, items))
        distinct = "DISTINCT " if self.chance(0.12) else ""
        made = self._shown(items, behind, distinct)
        if not self.chance(0.15):
            return made
        ordered = [
            f"{one.text}{self.one('', ' DESC', ' DESC NULLS FIRST', ' NULLS LAST')}" for one in made.columns
        ]
        limit = f" LIMIT {self.drawn.randint(1, 4)}{self.one('', '', ' OFFSET 1')}"
        return Query(f"{made.text} ORDER BY {', '.join(ordered)}{limit}", made.columns)

    def _shown(self, items: list[Column], behind: str, distinct: str = "", prefix: str = "c") -> Query:
        is_quoted = self.chance(0.08)
        names = [f"`{prefix} {n}`" if is_quoted else f"{prefix}{n}" for n in range(len(items))]
        shown = ", ".join(f"{one.text} AS {name}" for one, name in zip(items, names, strict=True))
        named = [Column(name, one.kind) for one, name in zip(items, names, strict=True)]
        return Query(f"SELECT {distinct}{shown}{behind}", named)

    def _grouped(self, columns: list[Column], behind: str) -> Query:
        keys = [
            Column(self._expression(columns, one.kind, always=True), one.kind) if self.chance(0.2) else one
            for one in self._some(columns, self.drawn.randint(0, 2))
        ]
        keys = list({one.text: one for one in keys}.values())
        kinds = self.drawn.choices(["number", "number", "double", "decimal", "text", "truth"], k=2)
        made = [Column(self._filled(self.one(*AGGREGATES[kind]), columns), kind) for kind in kinds]
        named, group, is_set = ", ".join(one.text for one in keys), "", False
        if keys:
            is_set = self.chance(0.25)
            sets = f"GROUPING SETS (({named}), ({keys[0].text}), ())"
            group = self.one(f"ROLLUP ({named})", f"CUBE ({named})", sets) if is_set else named
            group = f" GROUP BY {group}"
        if is_set and self.chance(0.3):
            made.append(Column(f"grouping({keys[0].text})", "number"))
        having = ""
        if is_set or self.chance(0.25):
            having = f" HAVING count(*) > {self.drawn.randint(0, 2)}"
            if self.chance(0.3):
                having += f" AND {self._filled(self.one('max({n}) > 1', 'min({t}) IS NOT NULL', 'sum({n}) <> 3'), columns)}"
        return self._shown([*keys, *made], f"{behind}{group}{having}")

    def _window(self, columns: list[Column], items: list[Column]) -> Column:
        part = f"PARTITION BY {items[0].text}"
        every = ", ".join(one.text for one in columns)
        some = self.drawn.choice(columns)
        kind = self.drawn.random()
        if kind < 0.35:
            made, order = (
                self._filled(
                    self.one("sum({n})", "count({any})", "max({n})", "count(*)", "min({n})"), columns
                ),
                "",
            )
        elif kind < 0.6:
            made, order = (
                self._filled(self.one("sum({n})", "count(*)", "max({n})", "rank()", "dense_rank()"), columns),
                some.text,
            )
        else:
            value = self.drawn.choice(columns)
            function = self.one("lag({})", "lead({})", "first_value({})").format(value.text)
            return Column(f"{function} OVER ({part} ORDER BY {every})", value.kind)
        ordered = f" ORDER BY {order}{self.one('', ' DESC')}" if order else ""
        return Column(f"{made} OVER ({part}{ordered})", "number")

    # FROM

    def _from(self, most: int = 4) -> tuple[list[Column], str]:
        if self.chance(0.1):
            return self._alike()
        columns, text = self._input()
        for _ in range(
            self.drawn.choice([0, 0, 1, 1, 1, 2, 2, 3, 4])
            if self.depth == 0
            else self.drawn.choice([0, 0, 1])
        ):
            if most == 0:
                break
            most -= 1
            other, shown = self._input()
            on = self._equal(columns, other)
            if on is None:
                continue
            if self.chance(0.2):
                on += f" AND {self._condition(columns + other)}"
            text += f" {self.one(*JOINS)} {shown} ON {on}"
            columns = columns + other
        return columns, text

    def _input(self) -> tuple[list[Column], str]:
        a = self.alias()
        if self.known and self.chance(0.6):
            name = self.one(*self.known)
            return [Column(f"{a}.{one.text}", one.kind) for one in self.known[name]], f"{name} {a}"
        if self.depth < 2 and self.chance(0.12):
            made = self.inside().query()
            return [Column(f"{a}.{one.text}", one.kind) for one in made.columns], f"({made.text}) {a}"
        table = self.one(*TABLES)
        return [Column(f"{a}.{name}", kind) for name, kind in TABLES[table].items()], f"{table} {a}"

    def _alike(self) -> tuple[list[Column], str]:
        """Two tables with the columns of one name made one."""
        sides = list(self.drawn.choice(ALIKE))
        name = sides.pop()
        self.drawn.shuffle(sides)
        a, b = self.alias(), self.alias()
        how = self.one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        is_natural = self.chance(0.3)
        text = f"{sides[0]} {a} {'NATURAL ' if is_natural else ''}{how} {sides[1]} {b}"
        columns = [Column(name, TABLES[sides[0]][name])]
        for table, alias in zip(sides, (a, b), strict=True):
            columns += [Column(f"{alias}.{one}", kind) for one, kind in TABLES[table].items() if one != name]
        return columns, text if is_natural else f"{text} USING ({name})"

    def _equal(self, columns: list[Column], other: list[Column]) -> str | None:
        pairs = [(a, b) for a in columns for b in other if a.kind == b.kind and a.kind != "truth"]
        if not pairs:
            return None
        chosen = self.drawn.choices(pairs, k=self.drawn.choice([1, 1, 1, 1, 2]))
        parts = [
            f"{a.text} {self.one('=', '=', '=', '=', 'IS NOT DISTINCT FROM')} {b.text}" for a, b in chosen
        ]
        if self.chance(0.05) and chosen[0][0].kind == "number":
            parts[0] = f"{chosen[0][0].text} + 1 = {chosen[0][1].text}"
        return " AND ".join(parts)

    # Expressions

    def _some(self, columns: list[Column], most: int) -> list[Column]:
        return self.drawn.sample(columns, min(most, len(columns)))

    def _expression(self, columns: list[Column], kind: str, *, always: bool = False, deep: int = 0) -> str:
        """A column of a kind, or an expression; of a literal, if there is no such column."""
        own = [one.text for one in columns if one.kind == kind]
        if (kind == "truth" and not own) or always or (deep < 2 and self.chance(0.15)):
            return self._filled(self.one(*EXPRESSIONS[kind]), columns, deep + 1)
        if own:
            return self.drawn.choice(own)
        return next(LITERALS[letter] for letter, of in LETTERS.items() if of == kind)

    def _filled(self, form: str, columns: list[Column], deep: int = 1) -> str:
        """A form with an expression for each of its letters."""
        parts, rest = "", form
        while "{" in rest:
            before, _, rest = rest.partition("{")
            letter, _, rest = rest.partition("}")
            parts += before
            if letter == "any":
                parts += self.drawn.choice(columns).text
            elif letter == "b":
                parts += self._condition(columns, deep + 1)
            else:
                made = self._expression(columns, LETTERS[letter], deep=deep + 1)
                parts += (
                    made if made.replace(".", "").replace("`", "").replace(" ", "").isalnum() else f"({made})"
                )
        return parts + rest

    def _condition(self, columns: list[Column], deep: int = 0) -> str:
        forms = [one for one in CONDITIONS if deep < 2 or "{b}" not in one]
        kinds = {letter for letter, kind in LETTERS.items() if any(one.kind == kind for one in columns)}
        fit = [one for one in forms if any(f"{{{letter}}}" in one for letter in kinds) or "{b}" in one]
        return self._filled(self.one(*(fit or ["1 = 1"])), columns, deep)

    def _where(self, columns: list[Column], share: float) -> str:
        parts: list[str] = []
        while self.chance(share) and len(parts) < 3:
            share /= 2
            is_subquery = self.depth < 2 and self.chance(0.3)
            part = self._subquery(columns) if is_subquery else self._condition(columns)
            parts.append(self.one(part, part, part, f"({part} OR {self._condition(columns)})"))
        if self.outer and self.chance(0.7):
            same = self._equal(columns, self.outer)
            parts += [] if same is None else [same]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    # Subqueries

    def _inner(self, columns: list[Column]) -> tuple[list[Column], str]:
        inner = self.inside(columns)
        its, text = inner._from(most=1)
        return its, f" FROM {text}{inner._where(its, 0.3)}"

    def _subquery(self, columns: list[Column]) -> str:
        kind, no = self.drawn.random(), self.one("", "NOT ")
        if kind < 0.35:
            return f"{no}EXISTS (SELECT 1{self._inner(columns)[1]})"
        if kind < 0.7:
            its, behind = self._inner(columns if self.chance(0.15) else [])
            fit = [one for one in its if one.kind in {"number", "text"}] or [Column("1", "number")]
            item = self.drawn.choice(fit)
            return f"{self._expression(columns, item.kind)} {no}IN (SELECT {item.text}{behind})"
        return (
            f"{self._expression(columns, 'number')} {self.one('<', '>=', '=', '<>')} {self._value(columns)}"
        )

    def _value(self, columns: list[Column]) -> str:
        """A subquery that is a number."""
        its, behind = self._inner(columns if self.chance(0.5) else [])
        return f"(SELECT {self._filled(self.one('max({n})', 'min({n})', 'count(*)', 'sum({n})', 'count(DISTINCT {any})'), its)}{behind})"

    def _in_select(self, columns: list[Column]) -> Column:
        if self.chance(0.6):
            return Column(self._value(columns), "number")
        return Column(self._subquery(columns), "truth")


def random_query(seed: int) -> str:
    """Return a query for a seed, as Spark reads it."""
    return Maker(random.Random(seed)).query().text


def for_duckdb(query: str) -> str:
    """Return the same query as DuckDB reads it."""
    return query.replace("`", '"')
