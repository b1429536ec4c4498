"""Random queries over the tables of `random_tables`, which mean the same to Spark and to DuckDB.

Where the two differ, a query does not ask: `concat` of null, `count_if` of nulls, averages of decimals, divisions by zero, the total of no
rows in ROLLUP, `NOT IN` of rows with nulls, and which of equal rows comes first. Where they write the same in other words, a text has both: see `both`.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.sql import random_tables


def both(spark: str, duckdb: str) -> str:
    """A part of a query in the words of each."""
    return f"⟨{spark}¦{duckdb}⟩"


BOTH = re.compile("⟨([^⟨¦⟩]*)¦([^⟨¦⟩]*)⟩")


class Column(NamedTuple):
    """A column, or an expression, and its kind: those of one kind can be compared."""

    text: str
    kind: str


class Query(NamedTuple):
    """A query, and its columns."""

    text: str
    columns: list[Column]

    @property
    def spark(self) -> str:
        return _in_words(self.text, 1)

    @property
    def duckdb(self) -> str:
        return _in_words(self.text, 2).replace("`", '"')


def _in_words(text: str, which: int) -> str:
    while BOTH.search(text):
        text = BOTH.sub(lambda found: found[which], text)
    return text


KINDS = {
    "int": "number", "string": "text", "decimal(8,2)": "decimal", "double": "double", "date": "date", "timestamp": "time",
}  # fmt: skip
TABLES = {
    name: {column: KINDS[of] for column, of in (one.split() for one in described.columns.split(", "))}
    for name, described in random_tables.TABLES.items()
}
#: Tables with one name in common, for USING and NATURAL.
ALIKE = [("people", "wages", "id"), ("people", "cities", "city"), ("visits", "notes", "who")]
JOINS = ["JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
SETS = ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
SAME = both("<=>", "IS NOT DISTINCT FROM")
#: Expressions of a kind: letters stand for others, of the kinds number, text, decimal, double, date (y), time (h) and truth.
EXPRESSIONS = {
    "number": [
        "{n} + 1", "{n} * 2", "{n} - {n}", "abs({n} - 3)", "{n} % 3", "coalesce({n}, 0)", "coalesce({n}, {n})", "nullif({n}, 2)", "greatest({n}, {n})",
        "least({n}, 3)", "length({t})", "instr({t}, 'a')", "CASE WHEN {b} THEN {n} ELSE {n} END", "CASE WHEN {b} THEN {n} END", "CAST({n} AS BIGINT)",
        "CASE {n} WHEN 1 THEN 10 WHEN 2 THEN {n} ELSE 0 END", "-{n}", "day({y})", "hour({h})", both("datediff(", "-datediff('day', ") + "{y}, {y})",
    ],
    "text": [
        "upper({t})", "lower({t})", "substr({t}, 1, 1)", "{t} || '-' || {t}", "coalesce({t}, 'none')", "nullif({t}, 'a')", "replace({t}, 'b', 'bb')",
        "trim({t})", "CASE WHEN {b} THEN {t} ELSE 'it''s' END", "CAST({n} AS STRING)", "reverse({t})", "CAST({y} AS STRING)",
    ],
    "decimal": ["{d} + 1", "{d} * 2", "coalesce({d}, 0.50)", "CASE WHEN {b} THEN {d} END", "nullif({d}, 0.01)", "{d} + {d}", "CAST({n} AS DECIMAL(8,2))"],
    "double": ["{f} * 2", "{f} / 4", "coalesce({f}, CAST({n} AS DOUBLE))", "CAST({n} AS DOUBLE)", "{n} / nullif({n}, 0)", "CAST({d} AS DOUBLE)"],
    "date": ["{y} + 1", "{y} - 2", "coalesce({y}, DATE '2024-01-03')", "CASE WHEN {b} THEN {y} END", "greatest({y}, {y})", "CAST({h} AS DATE)"],
    "time": [
        "{h} + INTERVAL '12' HOUR", "{h} - INTERVAL '30' MINUTE", "{h} + INTERVAL '1' DAY", "coalesce({h}, TIMESTAMP '2024-01-03 12:00:00')",
        "CAST({y} AS TIMESTAMP)", "CASE WHEN {b} THEN {h} ELSE {h} END",
    ],
    "truth": ["{b}", "coalesce({b}, false)"],
}  # fmt: skip
CONDITIONS = [
    "{n} > 0", "{n} >= 1", "{n} <= 3", "{n} < {n}", "{n} <> {n}", "{n} <= {n}", "{n} = {n}", "{n} IS NULL", "{t} IS NOT NULL", "NOT ({b})", "({b} OR {b})",
    "({b} OR {b})", "({b} AND {b})", "{n} IN (1, 2, NULL)", "{n} NOT IN (1, 3)", "{n} NOT IN (2)", "{n} NOT IN (2, NULL)", "{t} IN ('a', 'b', 'd', NULL)",
    "{t} NOT IN ('c')", "{n} BETWEEN 1 AND {n}", "{n} BETWEEN 0 AND 2", "{n} NOT BETWEEN 2 AND 3", "{t} LIKE '%a%'", "{t} NOT LIKE 'b_'", "({b}) IS TRUE",
    "({b}) IS NOT FALSE", "({b}) IS NULL", "{n} IS DISTINCT FROM {n}", f"{{n}} {SAME} {{n}}", "{t} = {t}", "{t} < 'd'", "{t} <> {t}", "{d} > 0.25",
    "{d} <= 1.5", "{f} < {n}", "{f} >= 1", "coalesce({n}, 0) <> 2", "{y} >= DATE '2024-01-02'", "{y} < {y}", "{y} = CAST({h} AS DATE)",
    "{y} BETWEEN DATE '2024-01-02' AND DATE '2024-01-04'", "{h} > TIMESTAMP '2024-01-01 06:00:00'", "{h} < {h} + INTERVAL '12' HOUR", "{h} <= {h}",
]  # fmt: skip
AGGREGATES = {
    "number": [
        "count(*)", "count({any})", "sum({n})", "min({n})", "max({n})", "count(DISTINCT {any})", "sum(DISTINCT {n})", "count(*) FILTER (WHERE {b})",
        "sum({n}) FILTER (WHERE {b})", "sum({n}) + count(*)", "max({n}) - min({n})", "count(CASE WHEN {b} THEN 1 END)", "coalesce(sum({n}), 0)",
        "count(DISTINCT {any}) FILTER (WHERE {b})",
    ],
    "double": ["avg({n})", "sum({f})", "avg({f})", "max({f})", "avg(DISTINCT {n})", "stddev_samp({n})", "sum({n}) / count(*)"],
    "decimal": ["sum({d})", "min({d})", "max({d}) FILTER (WHERE {b})", "sum(DISTINCT {d})"],
    "text": ["min({t})", "max({t})", "max({t}) FILTER (WHERE {b})"],
    "date": ["min({y})", "max({y})"],
    "time": ["min({h})", "max({h}) FILTER (WHERE {b})"],
    "truth": ["bool_and({b})", "bool_or({b})", "count(*) > 2"],
}  # fmt: skip
#: Window functions of a number, by what they need behind PARTITION BY: nothing, some order, an order of all columns.
OVER_ALL = ["sum({n})", "count({any})", "max({n})", "count(*)", "min({n})", "count(*) FILTER (WHERE {b})"]
RANKS = [
    "rank()",
    "dense_rank()",
    "percent_rank()",
    "cume_dist()",
    "sum({n})",
    "count(*)",
    "max({n})",
    "count({any})",
]
PLACES = ["row_number()", "ntile(2)", "ntile(3)"]
#: Those whose value is that of a column.
VALUES_OF = [
    "lag({})", "lead({})", "lag({}, 2)", "first_value({})", "last_value({})", "nth_value({}, 2)", "lag({} IGNORE NULLS)", "lead({} IGNORE NULLS)",
    "first_value({} IGNORE NULLS)", "last_value({} IGNORE NULLS)", "nth_value({}, 2 IGNORE NULLS)",
]  # fmt: skip
FRAMES = [
    "1 PRECEDING AND CURRENT ROW", "1 PRECEDING AND 1 FOLLOWING", "UNBOUNDED PRECEDING AND 1 PRECEDING", "CURRENT ROW AND UNBOUNDED FOLLOWING",
    "1 FOLLOWING AND 2 FOLLOWING", "2 PRECEDING AND 1 PRECEDING", "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
]  # fmt: skip
#: What a frame by RANGE writes for the distance 1.
DISTANCES = {"number": "1", "date": "INTERVAL '1' DAY", "time": "INTERVAL '12' HOUR"}
#: Names that need quotes, or that the library could give to columns of its own.
NAMES = [
    "a b", "c.d", "Ab", "select", "_k0", "all_rows", "branch", "by_1", "copy", "element", "exists", "found", "group_1", "in_1", "grouping_set", "key", "n", "nulls",
    "place", "position", "rank", "row_key", "rows", "subquery_n", "there", "value", "t1", "people",
]  # fmt: skip
LITERALS = {
    "number": "2", "text": "'a'", "decimal": "0.50", "double": "CAST(1.5 AS DOUBLE)", "date": "DATE '2024-01-03'", "time": "TIMESTAMP '2024-01-02 12:00:00'",
}  # fmt: skip
DOMAINS = ["number", "text", "decimal", "double", "date", "time"]
LETTERS = {"n": "number", "t": "text", "d": "decimal", "f": "double", "y": "date", "h": "time"}


class Asked(NamedTuple):
    """A query, and the views that it may name: each may name those before it."""

    views: dict[str, Query]
    query: Query

    @property
    def duckdb(self) -> str:
        views = ", ".join(f"{name} AS ({view.duckdb})" for name, view in self.views.items())
        return f"WITH {views} SELECT * FROM ({self.query.duckdb})" if views else self.query.duckdb

    def __str__(self) -> str:
        views = [f"CREATE VIEW {name} AS {view.spark};" for name, view in self.views.items()]
        return "\n".join([*views, self.query.spark])


@dataclass
class Maker:
    """Makes a query."""

    drawn: random.Random
    #: Common table expressions and views by their names.
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

    def asked(self) -> Asked:
        """A query, perhaps over views."""
        views: dict[str, Query] = {}
        for name in ["v", "w"][: self.drawn.choice([0, 0, 0, 0, 1, 2])]:
            views[name] = self.inside().query()
            self.known = {**self.known, name: views[name].columns}
        return Asked(views, self.query())

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
            ["number", "number", "number", "text", "text", "text", *DOMAINS],
            k=self.drawn.choice([1, 1, 1, 2]),
        )
        sides = [self._side(kinds) for _ in range(self.drawn.choice([2, 2, 2, 2, 3]))]
        text = sides[0].text
        for number, side in enumerate(sides[1:]):
            text = f"({text})" if number else text
            text += f" {self.one(*SETS)} {side.text}"
        return Query(text, sides[0].columns)

    def _side(self, kinds: list[str]) -> Query:
        columns, behind = self._read(0.3, most=1)
        items = [Column(self._expression(columns, kind), kind) for kind in kinds]
        return self._shown(items, behind, prefix=self.one("c", "d", "n"))

    def _ranked(self) -> Query:
        """The first rows of each group."""
        columns, behind = self._read(0.4, most=1)
        items = self._some(columns, 3)
        order = ", ".join(f"{one.text}{self.one('', ' DESC')}" for one in items)
        part = f"PARTITION BY {items[0].text} " if self.chance(0.8) else ""
        inner = self._shown(items, "")
        number = f"ROW_NUMBER() OVER ({part}ORDER BY {order})"
        most = self.drawn.randint(1, 2)
        if self.chance(0.4):
            return Query(f"{inner.text}{behind} QUALIFY {number} <= {most}", inner.columns)
        names = ", ".join(one.text for one in inner.columns)
        inside = f"{inner.text}, {number} AS its_place{behind}"
        return Query(
            f"SELECT {names} FROM ({inside}) {self.alias()} WHERE its_place <= {most}", inner.columns
        )

    def _select(self) -> Query:
        columns, behind = self._read(0.45)
        if self.chance(0.33):
            return self._grouped(columns, behind)
        items = self._some(columns, self.drawn.randint(1, 3))
        if self.chance(0.3):
            kind = self.one(*_kinds(columns), "truth")
            items.append(Column(self._expression(columns, kind, always=True), kind))
        if self.depth == 0 and self.chance(0.1):
            items.append(self._in_select(columns))
        elif self.depth < 2 and self.chance(0.3):
            items.append(self._window(columns, items))
        distinct = "DISTINCT " if self.chance(0.12) else ""
        made = self._shown(items, behind, distinct)
        if not self.chance(0.15):
            return made
        ordered = [
            f"{one.text}{self.one('', ' DESC', ' DESC NULLS FIRST', ' NULLS LAST')}" for one in made.columns
        ]
        most = self.drawn.randint(1, 4)
        limit = self.one(f" LIMIT {most}", f" LIMIT {most}", f" LIMIT {most} OFFSET 1", " OFFSET 1")
        return Query(f"{made.text} ORDER BY {', '.join(ordered)}{limit}", made.columns)

    def _shown(self, items: list[Column], behind: str, distinct: str = "", prefix: str = "c") -> Query:
        names = [f"{prefix}{n}" for n in range(len(items))]
        if self.chance(0.15):
            names = [f"`{name}`" for name in self.drawn.sample(NAMES, len(items))]
        shown = ", ".join(f"{one.text} AS {name}" for one, name in zip(items, names, strict=True))
        named = [Column(name, one.kind) for one, name in zip(items, names, strict=True)]
        return Query(f"SELECT {distinct}{shown}{behind}", named)

    def _grouped(self, columns: list[Column], behind: str) -> Query:
        keys = [
            Column(self._expression(columns, one.kind, always=True), one.kind) if self.chance(0.2) else one
            for one in self._some(columns, self.drawn.randint(0, 2))
        ]
        keys = list({one.text: one for one in keys}.values())
        kinds = self.drawn.choices(["number", "truth", *_kinds(columns)], k=2)
        made = [Column(self._filled(self._form(AGGREGATES[kind], columns), columns), kind) for kind in kinds]
        named, group, is_set = ", ".join(one.text for one in keys), "", False
        if keys:
            is_set = self.chance(0.3)
            sets = f"GROUPING SETS (({named}), ({keys[0].text}), ())"
            group = self.one(f"ROLLUP ({named})", f"CUBE ({named})", sets) if is_set else named
            group = f" GROUP BY {group}"
        if is_set and self.chance(0.3):
            made.append(Column(f"grouping({keys[0].text})", "number"))
        if keys and not is_set and self.chance(0.12):
            over = f"OVER (ORDER BY count(*){self.one('', ' DESC')}, {named} ROWS 1 PRECEDING)"
            made.append(Column(f"{self.one('sum(count(*))', 'max(count(*))', 'count(*)')} {over}", "number"))
        having = ""
        if is_set or self.chance(0.3):
            having = f" HAVING count(*) > {self.drawn.choice([0, 0, 1])}"
            if self.chance(0.3):
                forms = ["max({n}) > 1", "min({t}) IS NOT NULL", "sum({n}) <> 3", "count(DISTINCT {any}) < 4"]
                having += f" AND {self._filled(self._form(forms, columns), columns)}"
            if self.depth == 0 and self.chance(0.1):
                having += f" AND count(*) {self.one('<=', '>=', '<>')} {self._value([])}"
        return self._shown([*keys, *made], f"{behind}{group}{having}")

    def _window(self, columns: list[Column], items: list[Column]) -> Column:
        part = f"PARTITION BY {items[0].text}" if self.chance(0.8) else ""
        every = ", ".join(f"{one.text}{self.one('', '', ' DESC')}" for one in columns)
        some, kind = self.drawn.choice(columns), self.drawn.random()
        order, frame = "", ""
        if kind < 0.4:  # equal rows are alike: the order tells all others apart
            value = self.drawn.choice(columns)
            order = f"ORDER BY {every}"
            if self.chance(0.4):
                frame = f" ROWS BETWEEN {self.one(*FRAMES)}"
            forms = (
                [one for one in VALUES_OF if "lag" not in one and "lead" not in one] if frame else VALUES_OF
            )
            return Column(f"{self.one(*forms).format(value.text)} OVER ({part} {order}{frame})", value.kind)
        if kind < 0.5:
            forms, order = PLACES, f"ORDER BY {every}"
        elif kind < 0.7:
            forms, order = RANKS, f"ORDER BY {some.text}{self.one('', ' DESC', ' NULLS LAST')}"
        else:
            forms = OVER_ALL
            distance = DISTANCES.get(some.kind)
            if distance and self.chance(0.7):
                order = f"ORDER BY {some.text}{self.one('', ' DESC')}"
                frame = f" RANGE BETWEEN {re.sub('[12]', distance, self.one(*FRAMES))}"
            elif self.chance(0.6):
                order, frame = f"ORDER BY {every}", f" ROWS BETWEEN {self.one(*FRAMES)}"
        made = self._filled(self._form(forms, columns), columns)
        is_double = made.startswith(("percent", "cume"))
        return Column(f"{made} OVER ({part} {order}{frame})", "double" if is_double else "number")

    # FROM and WHERE

    def _read(self, share: float, most: int = 4) -> tuple[list[Column], str]:
        """Columns of some inputs, and the text that reads them, with conditions by that share."""
        if self.chance(0.08):
            columns, text, conditions = self._commas(min(most, self.drawn.choice([1, 1, 2, 3])))
        elif self.chance(0.1):
            (columns, text), conditions = self._alike(), []
        else:
            (columns, text), conditions = self._joined(most), []
        if most > 1 and self.chance(0.04):
            columns, text = self._view(columns, text)
        return columns, f" FROM {text}{self._where(columns, share, conditions)}"

    def _joined(self, most: int) -> tuple[list[Column], str]:
        columns, text = self._input()
        wanted = [0, 0, 1, 1, 1, 2, 2, 3, 4] if self.depth == 0 else [0, 0, 1]
        can_multiply = True
        for _ in range(min(most, self.drawn.choice(wanted))):
            kind = self.drawn.random()
            if kind < 0.05:
                columns, text = self._elements(columns, text)
                continue
            other, shown = self._input()
            on = self._equal(columns, other)
            if can_multiply and (on is None or kind < 0.2):
                can_multiply = False
                if kind < 0.13:
                    columns, text = columns + other, f"{text} CROSS JOIN {shown}"
                    continue
                on = self._unequal(columns, other)
            if on is None:
                continue
            if kind > 0.9 and self.depth == 0:
                other, shown, on = self._in_parentheses(other, shown, on)
            if self.chance(0.2):
                on += f" AND {self._condition(columns + other)}"
            if self.chance(0.08):
                text += (
                    f" {self.one(both('LEFT SEMI', 'SEMI'), both('LEFT ANTI', 'ANTI'))} JOIN {shown} ON {on}"
                )
                continue
            text += f" {self.one(*JOINS)} {shown} ON {on}"
            columns = columns + other
        is_constant = text.startswith("(VALUES") and "JOIN" not in text  # which alone is refused
        return self._joined(most) if is_constant else (columns, text)

    def _commas(self, more: int) -> tuple[list[Column], str, list[str]]:
        columns, text = self._input()
        conditions = []
        for _ in range(more):
            other, shown = self._input()
            conditions.append(self._equal(columns, other) or self._condition(columns + other))
            columns, text = columns + other, f"{text}, {shown}"
        self.drawn.shuffle(conditions)
        return columns, text, conditions

    def _in_parentheses(self, columns: list[Column], text: str, on: str) -> tuple[list[Column], str, str]:
        """An input joined with another one before the join around them."""
        other, shown = self._input()
        inner = self._equal(columns, other)
        if inner is None:
            return columns, text, on
        return columns + other, f"({text} {self.one('JOIN', 'LEFT JOIN')} {shown} ON {inner})", on

    def _constants(self) -> tuple[list[Column], str]:
        a = self.alias()
        rows = self.one("(1, 'a'), (2, 'b')", "(0, 'c')", "(3, 'a'), (NULL, 'd'), (3, 'e')")
        return [Column(f"{a}.x", "number"), Column(f"{a}.y", "text")], f"(VALUES {rows}) AS {a}(x, y)"

    def _elements(self, columns: list[Column], text: str) -> tuple[list[Column], str]:
        elements, kind = self._array(columns)
        a = self.alias()
        shown = both(f"UNNEST(array({elements})) AS {a}(e)", f"unnest([{elements}]) AS {a}(e)")
        return [*columns, Column(f"{a}.e", kind)], f"{text} CROSS JOIN {shown}"

    def _view(self, columns: list[Column], text: str) -> tuple[list[Column], str]:
        elements, kind = self._array(columns)
        a = self.alias()
        lateral = f" LATERAL VIEW {self.one('', 'OUTER ')}explode(array({elements})) {a} AS e"
        return [*columns, Column(f"{a}.e", kind)], text + both(
            lateral, f" CROSS JOIN unnest([{elements}]) AS {a}(e)"
        )

    def _array(self, columns: list[Column]) -> tuple[str, str]:
        kind = self.drawn.choice(columns).kind
        own = [one.text for one in columns if one.kind == kind]
        return ", ".join(self.drawn.sample(own, min(len(own), 2))), kind

    def _input(self) -> tuple[list[Column], str]:
        a = self.alias()
        if self.known and self.chance(0.6):
            name = self.one(*self.known)
            return [Column(f"{a}.{one.text}", one.kind) for one in self.known[name]], f"{name} {a}"
        if self.depth < 2 and self.chance(0.12):
            made = self.inside().query()
            return [Column(f"{a}.{one.text}", one.kind) for one in made.columns], f"({made.text}) {a}"
        if self.chance(0.04):
            return self._constants()
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
        pairs = _pairs(columns, other)
        if not pairs:
            return None
        to_first = [(a, b) for a, b in pairs if b is other[0]]  # often the key
        drawn_from = to_first if to_first and self.chance(0.4) else pairs
        chosen = self.drawn.choices(drawn_from, k=self.drawn.choice([1, 1, 1, 1, 1, 1, 1, 2]))
        parts = [f"{a.text} {self.one('=', '=', '=', '=', SAME)} {b.text}" for a, b in chosen]
        if self.chance(0.05) and chosen[0][0].kind == "number":
            parts[0] = f"{chosen[0][0].text} + 1 = {chosen[0][1].text}"
        return " AND ".join(parts)

    def _unequal(self, columns: list[Column], other: list[Column]) -> str | None:
        pairs = _pairs(columns, other)
        if not pairs:
            return None
        a, b = self.drawn.choice(pairs)
        return f"{a.text} {self.one('<', '<=', '>', '>=', '<>')} {b.text}"

    def _where(self, columns: list[Column], share: float, conditions: list[str]) -> str:
        parts = list(conditions)
        while self.chance(share) and len(parts) < len(conditions) + 3:
            share /= 2
            is_subquery = self.depth < 2 and self.chance(0.3)
            part = self._subquery(columns) if is_subquery else self._condition(columns)
            parts.append(self.one(part, part, f"({part} OR {self._condition(columns)})"))
        if self.outer:
            if self.chance(0.9) and (same := self._equal(columns, self.outer)):
                parts.append(same)
            if self.chance(0.25):
                parts.append(self._unequal(columns, self.outer) or "1 = 1")
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    # Expressions

    def _some(self, columns: list[Column], most: int) -> list[Column]:
        return self.drawn.sample(columns, min(most, len(columns)))

    def _expression(self, columns: list[Column], kind: str, *, always: bool = False, deep: int = 0) -> str:
        """A column of a kind, or an expression; of a literal, if there is no such column."""
        own = [one.text for one in columns if one.kind == kind]
        if (kind == "truth" and not own) or always or (deep < 2 and self.chance(0.15)):
            return self._filled(self._form(EXPRESSIONS[kind], columns), columns, deep + 1)
        if own:
            return self.drawn.choice(own)
        return LITERALS[kind]

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
                columns = [
                    one for one in columns if one.text != made
                ] or columns  # nothing is compared with itself
                parts += made if re.fullmatch(r"[\w.` ]+", made) else f"({made})"
        return parts + rest

    def _condition(self, columns: list[Column], deep: int = 0) -> str:
        forms = [one for one in CONDITIONS if deep < 2 or "{b}" not in one]
        return self._filled(self._form(forms, columns), columns, deep)

    def _form(self, forms: list[str], columns: list[Column]) -> str:
        """A form whose letters have columns, if there is one."""
        missing = [letter for letter, kind in LETTERS.items() if all(one.kind != kind for one in columns)]
        fit = [form for form in forms if not any(f"{{{letter}}}" in form for letter in missing)]
        return self.drawn.choice(fit or forms)

    # Subqueries

    def _inner(self, columns: list[Column]) -> tuple[list[Column], str]:
        return self.inside(columns)._read(0.25, most=1)

    def _subquery(self, columns: list[Column]) -> str:
        kind, no = self.drawn.random(), self.one("", "NOT ")
        if kind < 0.35:
            return f"{no}EXISTS (SELECT 1{self._inner(columns)[1]})"
        if kind < 0.7:
            its, behind = self._inner(columns if self.chance(0.15) else [])
            fit = [one for one in its if one.kind != "truth"] or [Column("1", "number")]
            item = self.drawn.choice(fit)
            some = item.text
            if no and self.chance(0.6):  # with a null among them, NOT IN is never true
                some = f"coalesce({some}, {LITERALS[item.kind]})"
            return f"{self._expression(columns, item.kind)} {no}IN (SELECT {some}{behind})"
        compared = f"{self._expression(columns, 'number')} {self.one('<=', '>=', '<', '<>')}"
        if kind < 0.8:
            its, behind = self._inner([])
            return f"{compared} {self.one('ANY', 'ALL')} (SELECT {self._expression(its, 'number')}{behind})"
        return f"{compared} {self._value(columns)}"

    def _value(self, columns: list[Column]) -> str:
        """A subquery that is a number."""
        its, behind = self._inner(columns if self.chance(0.5) else [])
        return f"(SELECT {self._filled(self.one('max({n})', 'min({n})', 'count(*)', 'sum({n})', 'count(DISTINCT {any})'), its)}{behind})"

    def _in_select(self, columns: list[Column]) -> Column:
        if self.chance(0.6):
            return Column(self._value(columns), "number")
        return Column(self._subquery(columns), "truth")


def _pairs(columns: list[Column], other: list[Column]) -> list[tuple[Column, Column]]:
    """Columns that can be compared."""
    return [(a, b) for a in columns for b in other if a.kind == b.kind and a.kind != "truth"]


def _kinds(columns: list[Column]) -> list[str]:
    return [kind for kind in DOMAINS if any(one.kind == kind for one in columns)] or ["number"]


def random_query(seed: int, draw: int = 0) -> Asked:
    """Return a query for a seed; another one for each draw."""
    return Maker(random.Random(f"{seed} {draw}")).asked()
