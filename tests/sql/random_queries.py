"""Random queries over the small tables: joins, conditions, groups, subqueries, unions, first rows."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

#: Columns by table and by kind: those of one kind can be compared.
NUMBERS = {
    "people": ["id", "boss", "age"],
    "cities": ["size"],
    "visits": ["who", "day"],
    "notes": ["who", "stars"],
    "wages": ["id", "wage"],
}
TEXTS = {
    "people": ["city"],
    "cities": ["city", "country"],
    "visits": ["place"],
    "notes": ["note"],
    "wages": [],
}


@dataclass
class Maker:
    """Makes a query."""

    drawn: random.Random
    count: int = 0
    aliases: list[tuple[str, str]] = field(default_factory=list)

    def one(self, *values: str) -> str:
        return self.drawn.choice(values)

    def chance(self, share: float) -> bool:
        return self.drawn.random() < share

    def alias(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def query(self, depth: int = 0) -> str:
        if depth < 2 and self.chance(0.15):
            return self._combined(depth)
        return self._select(depth)

    def _combined(self, depth: int) -> str:
        word = self.one("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        sides = []
        for _ in range(2):
            table = self.one(*NUMBERS)
            a = self.alias()
            number = f"{a}.{self.drawn.choice(NUMBERS[table])}"
            sides.append(
                f"SELECT {number} AS n, {number} + 1 AS m FROM {table} {a}{self._where([(table, a)], depth)}"
            )
        return f" {word} ".join(sides)

    def _select(self, depth: int) -> str:
        inputs, text = self._from(depth)
        where = self._where(inputs, depth)
        if self.chance(0.35):
            return self._grouped(inputs, text, where)
        columns = self.drawn.sample(self._columns(inputs), min(3, len(self._columns(inputs))))
        if self.chance(0.1):
            columns[-1] = f"{self._window(inputs)} OVER (PARTITION BY {columns[0]}"
            columns[-1] += f" ORDER BY {self._number(inputs)})" if self.chance(0.5) else ")"
        distinct = "DISTINCT " if self.chance(0.15) else ""
        shown = ", ".join(f"{one} AS c{number}" for number, one in enumerate(columns))
        order = ""
        if self.chance(0.2):
            names = ", ".join(
                f"c{number}{self.one('', ' DESC', ' DESC NULLS FIRST', ' NULLS LAST')}"
                for number in range(len(columns))
            )
            order = f" ORDER BY {names} LIMIT {self.drawn.randint(1, 4)}"
        return f"SELECT {distinct}{shown} FROM {text}{where}{order}"

    def _grouped(self, inputs: list[tuple[str, str]], text: str, where: str) -> str:
        columns = self._columns(inputs)
        keys = self.drawn.sample(columns, self.drawn.randint(0, min(2, len(columns))))
        number = self._number(inputs)
        aggregates = [
            "count(*)", f"count(*) FILTER (WHERE {self._compared(inputs)})", f"avg({number})", f"count({number})", f"sum({number})", f"min({self.drawn.choice(columns)})",
            f"max({self.drawn.choice(columns)})", f"count(DISTINCT {self.drawn.choice(columns)})", f"sum({number}) + count(*)",
        ]  # fmt: skip
        items = [*keys, *self.drawn.sample(aggregates, 2)]
        shown = ", ".join(f"{one} AS c{place}" for place, one in enumerate(items))
        is_rollup = bool(keys) and self.chance(0.25)
        named = ", ".join(keys)
        group = f" GROUP BY {f'ROLLUP ({named})' if is_rollup else named}" if keys else ""
        # Without rows, ROLLUP has a total in DuckDB, and none in Spark.
        is_bound = is_rollup or self.chance(0.3)
        having = f" HAVING count(*) > {self.drawn.randint(0, 2)}" if is_bound else ""
        return f"SELECT {shown} FROM {text}{where}{group}{having}"

    def _window(self, inputs: list[tuple[str, str]]) -> str:
        number = self._number(inputs)
        return self.one(f"sum({number})", f"count({number})", f"max({number})", "count(*)")

    def _from(self, depth: int) -> tuple[list[tuple[str, str]], str]:
        table, a = self.one(*NUMBERS), self.alias()
        inputs, text = [(table, a)], f"{table} {a}"
        for _ in range(self.drawn.choice([0, 1, 1, 2, 2, 3])):
            other, b = self.one(*NUMBERS), self.alias()
            how = self.one("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
            on = self._equal(inputs, (other, b))
            if self.chance(0.2):
                on += f" AND {self._compared([*inputs, (other, b)])}"
            shown = (
                f"(SELECT * FROM {other} WHERE {self._simple(other)})"
                if depth < 2 and self.chance(0.15)
                else other
            )
            text += f" {how} {shown} {b} ON {on}"
            inputs.append((other, b))
        return inputs, text

    def _simple(self, table: str) -> str:
        return f"{self.drawn.choice(NUMBERS[table])} < {self.drawn.randint(1, 30)}"

    def _equal(self, inputs: list[tuple[str, str]], other: tuple[str, str]) -> str:
        table, a = self.drawn.choice(inputs)
        kinds = [NUMBERS, TEXTS] if TEXTS[table] and TEXTS[other[0]] else [NUMBERS]
        kind = self.drawn.choice(kinds)
        equal = self.one("=", "=", "=", "=", "IS NOT DISTINCT FROM")
        pairs = [
            f"{a}.{self.drawn.choice(kind[table])} {equal} {other[1]}.{self.drawn.choice(kind[other[0]])}"
        ]
        if self.chance(0.2):
            pairs.append(
                f"{a}.{self.drawn.choice(NUMBERS[table])} = {other[1]}.{self.drawn.choice(NUMBERS[other[0]])}"
            )
        return " AND ".join(pairs)

    def _columns(self, inputs: list[tuple[str, str]]) -> list[str]:
        return [f"{a}.{one}" for table, a in inputs for one in [*NUMBERS[table], *TEXTS[table]]]

    def _number(self, inputs: list[tuple[str, str]]) -> str:
        table, a = self.drawn.choice(inputs)
        return f"{a}.{self.drawn.choice(NUMBERS[table])}"

    def _compared(self, inputs: list[tuple[str, str]]) -> str:
        return f"{self._number(inputs)} {self.one('<', '>', '<>', '<=')} {self._number(inputs)}"

    def _where(self, inputs: list[tuple[str, str]], depth: int) -> str:
        parts = [self._condition(inputs, depth) for _ in range(self.drawn.choice([0, 0, 1, 1, 2]))]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _condition(self, inputs: list[tuple[str, str]], depth: int) -> str:
        number, kind = self._number(inputs), self.drawn.random()
        if kind < 0.25:
            return f"{number} > {self.drawn.randint(0, 4)}"
        if kind < 0.4:
            return f"({self._compared(inputs)} OR {number} IS NULL)"
        if kind > 0.9 and depth == 0:
            return f"({self._subquery(inputs)} OR {number} IS NULL)"
        if depth > 0 or kind < 0.5:
            return f"coalesce({number}, 0) <> 2"
        return self._subquery(inputs)

    def _subquery(self, inputs: list[tuple[str, str]]) -> str:
        number, kind = self._number(inputs), 0.5 + self.drawn.random() / 2
        table, a = self.one(*NUMBERS), self.alias()
        column = f"{a}.{self.drawn.choice(NUMBERS[table])}"
        if kind < 0.65:
            no = self.one("", "NOT ")
            more = f" AND {a}.{self.drawn.choice(NUMBERS[table])} > 1" if self.chance(0.4) else ""
            more += f" AND {column} < {self._number(inputs)}" if self.chance(0.2) else ""
            same = f"{a}.{self.drawn.choice(NUMBERS[table])}"
            return f"{no}EXISTS (SELECT 1 FROM {table} {a} WHERE {same} = {number}{more})"
        if kind < 0.85:
            no, where = (
                self.one("", "NOT "),
                self.one("", f" WHERE {column} IS NOT NULL", f" WHERE {column} > 1"),
            )
            return f"{number} {no}IN (SELECT {column} FROM {table} {a}{where})"
        function = self.one("max", "min", "count", "sum")
        same = self.one("", f" WHERE {a}.{self.drawn.choice(NUMBERS[table])} = {self._number(inputs)}")
        return f"{number} {self.one('<', '>=', '=')} (SELECT {function}({column}) FROM {table} {a}{same})"


def random_query(seed: int) -> str:
    """Return a query for a seed."""
    return Maker(random.Random(seed)).query()
