"""``python -m tests.sql.random``: compare many random queries with DuckDB, after each micro-batch."""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

import tablestream as ts
from tests.conftest import long_session  # before Polars: it sets how many threads that has
from tests.sql.random_queries import for_duckdb, random_query
from tests.sql.world import MicroBatch, changes, compare, tables_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

#: So many queries share a driver, and what changes.
EACH = 6


@dataclass
class Report:
    """What became of queries, by their seeds."""

    ran: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    wrong: dict[int, str] = field(default_factory=dict)
    crashed: dict[int, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> dict[int, str]:
        return self.wrong | self.crashed

    def __str__(self) -> str:
        kinds = {"refused": self.refused, "wrong": self.wrong, "crashed": self.crashed}
        counts = ", ".join(f"{len(found):,} {kind}" for kind, found in kinds.items())
        return f"{len(self.ran):,} ran ({len(self.empty):,} of them without a row), {counts}"


@dataclass
class Runner:
    """Runs queries."""

    spark: SparkSession
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        self._tables = tables_of(self.spark)

    def run(self, seeds: Sequence[int]) -> None:
        """Run the queries of some seeds in one driver; if that fails, each alone."""
        outputs = {seed: found for seed in seeds if (found := self._made(seed)) is not None}
        if not outputs:
            return
        try:
            seen, _ = compare(
                {str(seed): one for seed, one in outputs.items()}, cut(seeds[0] // EACH), shards=1
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            if len(outputs) > 1:
                for seed in outputs:
                    self.run([seed])
            else:
                self._fail(seeds[0], error)
            return
        self.report.ran += outputs
        self.report.empty += [seed for seed in outputs if not seen[str(seed)]]

    def _made(self, seed: int) -> tuple[ts.Table | ts.Stream, str] | None:
        """The table of a query; None if it is refused, or fails."""
        query = random_query(seed)
        try:
            return ts.sql(query, **self._tables), for_duckdb(query)
        except ts.errors.SqlRefusedError as refused:
            self.report.refused.append(seed)
            self.report.reasons.update({_kind(message) for _, _, message, _ in refused.reasons})
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._fail(seed, error)
        return None

    def _fail(self, seed: int, error: Exception) -> None:
        found = self.report.wrong if isinstance(error, AssertionError) else self.report.crashed
        found[seed] = f"{type(error).__name__}: {error}"


def cut(seed: int) -> list[MicroBatch]:
    """Two micro-batches: the first fills all tables, the second changes some."""
    drawn = random.Random(seed)
    first, second = changes(seed, 2)
    return [first, {name: rows for name, rows in second.items() if drawn.random() < 0.7}]


def _kind(reason: str) -> str:
    """A reason without the names of a query."""
    return re.sub(r"'[^']*'|`[^`]*`|\b\w*\d\w*\b", "_", reason.splitlines()[0])


def main(arguments: list[str] | None = None) -> int:
    """Run queries; return 0 if each that is not refused gives what DuckDB gives."""
    options = _parser().parse_args(arguments)
    logging.disable(logging.WARNING)  # drops of null keys, which are as they should be
    began, told = monotonic(), set[int]()
    with TemporaryDirectory() as warehouse:
        runner, last = Runner(long_session(Path(warehouse))), options.first + options.seeds
        report = runner.report
        try:
            for first in range(options.first, last, EACH):
                runner.run(range(first, min(first + EACH, last)))
                for seed in report.failed.keys() - told:
                    _say(f"Seed {seed}: {report.failed[seed]}\n{random_query(seed)}")
                told |= report.failed.keys()
                if (first - options.first) % (EACH * 10) == 0:
                    _say(f"{monotonic() - began:,.0f} s: {report}")
        except KeyboardInterrupt:
            _say("Interrupted.")
    reasons = (f"  {count:>6}  {reason}" for reason, count in report.reasons.most_common())
    failed = ", ".join(map(str, sorted(report.failed))) or "none"
    _say(
        "\n".join([f"{monotonic() - began:,.0f} s: {report}", "Refused for:", *reasons, f"Failed: {failed}"])
    )
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
