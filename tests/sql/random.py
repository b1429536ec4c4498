"""``python -m tests.sql.random``: compare many random queries with DuckDB, after each micro-batch."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

import tablestream as ts
from tests.conftest import long_session  # before Polars: it sets how many threads that has
from tests.sql.random_queries import random_query
from tests.sql.random_tables import TABLES, changes
from tests.sql.world import World, compare, counted, tables_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tests.sql.random_queries import Asked
    from tests.sql.world import MicroBatch

#: So many queries share a driver, and what changes. A query is drawn so often, until its result changes.
EACH, DRAWS = 8, 3
#: What is counted in the queries that run.
FEATURES = {
    "view": "CREATE VIEW", "WITH": "WITH w", "3 tables and more": "JOIN.* JOIN", "5 tables and more": "(JOIN.*){4}", "commas": r"\w t\d+, \w+ t\d",
    "LEFT JOIN": "LEFT JOIN", "RIGHT JOIN": "RIGHT JOIN", "FULL JOIN": "FULL JOIN", "LEFT SEMI JOIN": "SEMI", "LEFT ANTI JOIN": "ANTI",
    "CROSS JOIN": r"CROSS JOIN (?!UNNEST)", "join by inequality": r"ON [^ ]+ [<>]=? ", "<=>": "<=>", "USING, NATURAL": "USING|NATURAL", "VALUES": "VALUES",
    "UNNEST, LATERAL VIEW": "UNNEST|LATERAL", "EXISTS": r"(?<!NOT )EXISTS", "NOT EXISTS": "NOT EXISTS", "IN (SELECT)": r"(?<!NOT )IN \(SELECT",
    "NOT IN (SELECT)": r"NOT IN \(SELECT", "ANY, ALL": r"ANY \(|[<>=] ALL \(", "subquery as a value": r"[<>=,] \(SELECT (?:max|min|sum|count)", "UNION": "UNION", "INTERSECT": "INTERSECT",
    "EXCEPT": "EXCEPT", "GROUP BY": "GROUP BY", "ROLLUP, CUBE, GROUPING SETS": "ROLLUP|CUBE|GROUPING SETS", "HAVING": "HAVING", "FILTER": "FILTER",
    "DISTINCT aggregate": r"\(DISTINCT", "SELECT DISTINCT": "SELECT DISTINCT", "window": "OVER", "ROWS": " ROWS ", "RANGE": " RANGE ",
    "IGNORE NULLS": "IGNORE NULLS", "first rows": "QUALIFY|its_place", "ORDER BY ... LIMIT": "LIMIT", "quoted": "`", "INTERVAL": "INTERVAL",
}  # fmt: skip


@dataclass
class Report:
    """What became of queries, by their seeds. The grammar makes none that should be refused."""

    queries: dict[int, Asked] = field(default_factory=dict)
    ran: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    wrong: dict[int, str] = field(default_factory=dict)
    crashed: dict[int, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    #: Results, those with rows, and those that are other than in the micro-batch before.
    results: int = 0
    seen: int = 0
    moved: int = 0

    @property
    def failed(self) -> dict[int, str]:
        return self.refused | self.wrong | self.crashed

    def __str__(self) -> str:
        kinds = {"refused": self.refused, "wrong": self.wrong, "crashed": self.crashed}
        counts = ", ".join(f"{len(found):,} {kind}" for kind, found in kinds.items())
        empty, moved = (
            f"{part / max(self.results, 1):.0%}" for part in (self.results - self.seen, self.moved)
        )
        return f"{len(self.ran):,} ran, {counts}; of {self.results:,} results {empty} were empty, {moved} changed"

    def features(self) -> Counter[str]:
        """In how many of the queries that ran each feature was."""
        texts = [str(self.queries[seed]) for seed in self.ran]
        return Counter(
            {
                name: sum(re.search(form, text) is not None for text in texts)
                for name, form in FEATURES.items()
            }
        )


@dataclass
class Runner:
    """Runs queries."""

    spark: SparkSession
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        self._tables = tables_of(self.spark, TABLES)

    def run(self, first: int, last: int) -> None:
        """Run the queries of the seeds from first to last, in drivers of a few."""
        for start in range(first, last, EACH):
            batches = changes(start // EACH)
            queries = lively(range(start, min(start + EACH, last)), batches)
            self.report.queries |= queries
            before = self._plans()
            made = {seed: table for seed, query in queries.items() if (table := self._made(seed, query))}
            assert self._plans() == before, f"The queries of {list(queries)} changed their tables."
            self._compare(made, batches)

    def _compare(self, made: dict[int, ts.Table | ts.Stream], batches: Sequence[MicroBatch]) -> None:
        """Compare queries in one driver; if that fails, each half of them."""
        outputs = {str(seed): (table, self.report.queries[seed].duckdb) for seed, table in made.items()}
        if not outputs:
            return
        try:
            seen, moved = compare(outputs, batches, TABLES, shards=1 + min(made) % 2)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            if len(made) > 1:
                half = dict(list(made.items())[: len(made) // 2])
                self._compare(half, batches)
                self._compare({seed: table for seed, table in made.items() if seed not in half}, batches)
            else:
                self._fail(min(made), error)
            return
        self.report.ran += made
        self.report.results += len(made) * len(batches)
        self.report.seen += seen.total()
        self.report.moved += moved.total()

    def _made(self, seed: int, query: Asked) -> ts.Table | ts.Stream | None:
        """The table of a query; None if it is refused, or fails."""
        tables: dict[str, ts.Table | ts.Stream] = dict(self._tables)
        try:
            for name, view in query.views.items():
                tables[name] = ts.sql(view.spark, **tables)
            return ts.sql(query.query.spark, **tables)
        except ts.errors.SqlRefusedError as refused:
            self.report.refused[seed] = str(refused)
            self.report.reasons.update({_kind(message) for _, _, message, _ in refused.reasons})
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._fail(seed, error)
        return None

    def _plans(self) -> list[str]:
        return [ts.plan_text(table.to(ts.to_memory(name))) for name, table in self._tables.items()]

    def _fail(self, seed: int, error: Exception) -> None:
        found = self.report.wrong if isinstance(error, AssertionError) else self.report.crashed
        found[seed] = f"{type(error).__name__}: {error}"


def lively(seeds: Sequence[int], batches: Sequence[MicroBatch]) -> dict[int, Asked]:
    """Return a query for each seed: the first of some draws that has rows, and changes, in most micro-batches."""
    world, databases = World(TABLES), []
    with ExitStack() as stack:
        for batch in batches:
            world.apply(batch)
            databases.append(stack.enter_context(world.database()))

        def is_lively(query: Asked) -> bool:
            results = [counted(database.execute(query.duckdb).fetchall()) for database in databases]
            moved = sum(before != after for before, after in pairwise([Counter(), *results]))
            return min(moved, sum(map(bool, results))) > len(batches) // 2

        draws = {seed: [random_query(seed, draw) for draw in range(DRAWS)] for seed in seeds}
        return {seed: next(filter(is_lively, drawn), drawn[-1]) for seed, drawn in draws.items()}


def _kind(reason: str) -> str:
    """A reason without the names of a query."""
    return re.sub(r"'[^']*'|`[^`]*`|\b\w*\d\w*\b", "_", reason.splitlines()[0])


def main(arguments: list[str] | None = None) -> int:
    """Run queries; return 0 if each gives what DuckDB gives."""
    options = _parser().parse_args(arguments)
    logging.disable(logging.WARNING)  # drops of null keys, which are as they should be
    began, told = monotonic(), set[int]()
    with TemporaryDirectory() as warehouse:
        runner, last = Runner(long_session(Path(warehouse))), options.first + options.seeds
        report = runner.report
        try:
            for first in range(options.first, last, EACH):
                runner.run(first, min(first + EACH, last))
                for seed in sorted(report.failed.keys() - told):
                    _say(f"Seed {seed}: {report.failed[seed]}\n{report.queries[seed]}")
                told |= report.failed.keys()
                _say(f"{monotonic() - began:,.0f} s: {report}")
        except KeyboardInterrupt:
            _say("Interrupted.")
    _say(f"{monotonic() - began:,.0f} s: {report}")
    for title, counts in {"Ran with": report.features(), "Refused for": report.reasons}.items():
        _say("\n".join([f"{title}:", *(f"  {count:>6,}  {what}" for what, count in counts.most_common())]))
    _say(f"Failed: {', '.join(map(str, sorted(report.failed))) or 'none'}")
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sql.random", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds (default: 100)")
    return parser


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command prints


if __name__ == "__main__":
    sys.exit(main())
