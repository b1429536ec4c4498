"""Prints what the recordings of Debezium's topics become here, beside what the database held.

Run ``python -m tests.cdc.captures``. ``--spark`` adds what streaming queries make of them, which takes long.
``docs/databases/recordings.md`` shows what was printed.

=======================  =========================================================================================
mode                     the recording is
=======================  =========================================================================================
whole                    one micro-batch up to each quiescent point
cut                      cut at random, into up to five micro-batches between two points
restarted                the same, and the operators go on from their state after each micro-batch
through Spark            one micro-batch up to every fifth quiescent point, of a streaming query
=======================  =========================================================================================

Without whole transactions each of three tables is compared at each quiescent point; with them the join, after every
commit that changes it. Through Spark it is the join both times. Each mode has to count the same drops.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

import tablestream as ts
from tablestream.operators.reasons import (
    ADDED_COLUMN,
    INCOMPLETE,
    MALFORMED,
    REPEATED,
    UNKNOWN_VALUE,
)
from tests.cdc.cutting import cut
from tests.cdc.operators import Captured, captured_row
from tests.cdc.recording import TABLES, Record, Row, commits, points, records, row_of
from tests.cdc.test_join import joined as through
from tests.cdc.test_join import states, steps_of, write
from tests.cdc.test_whole_transactions import difference, joined, rows_of
from tests.cdc.vectors import MODES, type_records
from tests.cdc.whole import Database
from tests.conftest import SPARK_SETTINGS
from tests.connectors.test_debezium_recorded import columns_of, compared, same
from tests.spark.change_logs import run

CAPTURES = ("plain1", "plain3", "schema1", "schema3", "flat1", "flat3", "interrupted_plain3")
FORMS = {"plain": "JSON without schemas", "schema": "JSON with schemas", "flat": "flattened, JSON"}
#: How often a recording is cut between two quiescent points, and whether operators go on from their state.
CUTS = {"whole": (0, False), "cut": (4, False), "restarted": (4, True)}
#: The connector's decimal.handling.mode, time.precision.mode and binary.handling.mode.
HANDLING = {
    "types1": ("precise", "adaptive", "bytes"),
    "types2": ("double", "connect", "base64"),
    "types3": ("string", "isostring", "hex"),
    "types4": ("precise", "adaptive_time_microseconds", "base64-url-safe"),
    "types5": ("string", "microseconds", "bytes"),
    "types6": ("double", "nanoseconds", "bytes"),
}
SPARK = "through Spark"
_SEED = 16
_REASONS = (UNKNOWN_VALUE, REPEATED, ADDED_COLUMN, INCOMPLETE, MALFORMED)
#: Through Spark tables are compared at every fifth quiescent point.
_EVERY = 5


@dataclass
class Outcome:
    """How many states were compared with the database, how many were equal, and what was counted on the way."""

    compared: int = 0
    equal: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, *, equal: bool) -> None:
        """Count a comparison."""
        self.compared += 1
        self.equal += equal

    @property
    def shown(self) -> str:
        """The cell of a table."""
        return f"{self.equal} of {self.compared}"


def database_of(capture: str) -> str:
    """The name of the recording's database."""
    return "interrupted_database" if capture.startswith("interrupted") else "database"


def each_table(capture: str, mode: str) -> Outcome:
    """Compare each table at each quiescent point."""
    most, restarts = CUTS[mode]
    found = Outcome()
    tables = {name: Captured([key], columns) for name, (key, columns) in TABLES.items()}
    batches, ends = cut(capture, database_of(capture), list(TABLES), _SEED, most=most)
    recorded = points(database_of(capture))
    for point, (begin, end) in zip(recorded, pairwise([0, *ends]), strict=True):
        for batch in batches[begin:end]:
            for name, table in tables.items():
                table.run(_of(batch, name))
                if restarts:
                    table.restart()
        for name, table in tables.items():
            rows = {captured_row(table, name, key, value) for key, value in table.rows.items()}
            found.add(equal=rows == {row_of(name, row) for row in point.tables[name]})
    found.counts = sum((table.dropped for table in tables.values()), Counter())
    return found


def each_commit(capture: str, mode: str) -> Outcome:
    """Compare what each commit changes in the join; of the interrupted snapshot, the join at the end."""
    most, restarts = CUTS[mode]
    found, state = Outcome(), Counter[Row]()
    tables = {f"shop.{name}": Captured([key], columns) for name, (key, columns) in TABLES.items()}
    by_name = {name.removeprefix("shop."): one for name, one in tables.items()}
    database, name = Database(tables), database_of(capture)
    steps = []
    for batch in cut(capture, name, list(TABLES), _SEED, transactions=True, most=most)[0]:
        for transaction in database.run(batch):
            after = joined(by_name)
            if transaction is not None and after != state:
                steps.append(difference(state, after))
            state = after
        if restarts:
            database.restart()
    if name == "database":
        wanted = [(rows_of(one["removed"]), rows_of(one["added"])) for one in _changing()]
        _compare(found, steps, wanted)
    else:  # its commits came between the rows of the snapshots
        found.add(equal=state == Counter(row_of("join", row) for row in points(name)[-1].tables["join"]))
    found.counts = sum((table.dropped for table in tables.values()), database.dropped)
    return found


def through_spark(spark: SparkSession, directory: Path, capture: str, *, transactions: bool) -> Outcome:
    """Compare the join that a streaming query maintains; with whole transactions after every commit."""
    name, found = database_of(capture), Outcome()
    batches, ends = cut(capture, name, list(TABLES), _SEED, transactions=transactions, most=0)
    followed = points(name)[::-_EVERY][::-1]
    bounds = [0, *ends[::-_EVERY][::-1]]
    batches = [list(chain(*batches[begin:end])) for begin, end in pairwise(bounds)]
    write(directory / "log", batches)
    sink = ts.to_memory(f"{directory.name}_{capture}_{transactions}")
    options = {"transactions": True, "transaction_timeout": None} if transactions else {}
    table = through(spark, directory / "log", capture.removeprefix("interrupted_"), **options)
    counts = run(table.to(sink), checkpoint=directory / "checkpoint", shards=2)
    rows = sink.rows()
    if transactions and name == "database":
        wanted = [(set(rows_of(one["removed"])), set(rows_of(one["added"]))) for one in _changing()]
        _compare(found, [one for one in steps_of(rows) if any(one)], wanted)
    else:
        states_ = states(rows, list(range(1, len(batches) + 1)))[-len(followed) :]
        for state, point in zip(states_, followed, strict=True):
            found.add(equal=state == {row_of("join", row) for row in point.tables["join"]})
    for label, count in counts.items():
        found.counts[label.split(": ")[-1]] += count
    return found


def _changing() -> list[dict[str, Any]]:
    """The commits that change the join."""
    return [one for one in commits() if one["removed"] or one["added"]]


def _compare(found: Outcome, steps: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Count the steps that are as wanted; a step that is missing or too many is not."""
    for step, one in zip_longest(steps, wanted):
        found.add(equal=step == one)


def _of(batch: Iterable[Record], table: str) -> list[Record]:
    """The records of a table."""
    return [one for one in batch if one.topic.endswith(f".shop.{table}")]


def replayed(capture: str, *, transactions: bool, modes: Iterable[str] = CUTS) -> dict[str, Outcome]:
    """Replay a recording in some modes."""
    replay = each_commit if transactions else each_table
    return {mode: replay(capture, mode) for mode in modes}


def cells_of(capture: str, outcomes: Mapping[str, Outcome], *, transactions: bool) -> dict[str, str]:
    """Return the cells of a recording's row; each mode is the header of a column.

    Raises
    ------
    AssertionError
        Two modes count other drops.
    """
    counts = [
        {name: n for name, n in one.counts.items() if n and (name in _REASONS or name.startswith("filled "))}
        for one in outcomes.values()
    ]
    assert all(one == counts[0] for one in counts), counts
    filled = [
        f"{name.removeprefix('filled ')}: {n}" for name, n in counts[0].items() if name.startswith("filled")
    ]
    form, partitions = capture.removeprefix("interrupted_")[:-1], capture[-1]
    return {
        "recording": f"`{capture}`",
        "form": FORMS[form],
        "partitions": partitions,
        "records": f"{len(records(capture)):,}",
        "whole transactions": "yes" if transactions else "no",
        **{mode: one.shown for mode, one in outcomes.items()},
        "filled": ", ".join(sorted(filled)) or "0",
        "rejected": str(counts[0].get(UNKNOWN_VALUE, 0)),
        "repeated": str(counts[0].get(REPEATED, 0)),
        "without a column": str(counts[0].get(ADDED_COLUMN, 0)),
    }


def row_of_types(mode: str) -> dict[str, str]:
    """Decode the recorded table with every type; return the cells of its row."""
    values = list(compared(mode))
    equal = sum(same(value, wanted) for _, value, wanted in values)
    decimals, times, binary = HANDLING[mode]
    return {
        "recording": f"`{mode}`",
        "decimal.handling.mode": decimals,
        "time.precision.mode": times,
        "binary.handling.mode": binary,
        "records": str(len(type_records(mode))),
        "columns": str(len(columns_of(mode).value.names)),
        "values equal": f"{equal} of {len(values)}",
    }


def markdown(rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """The lines of a table; the cells' names are its head."""
    for number, row in enumerate(rows):
        if number == 0:
            yield f"| {' | '.join(row)} |"
            yield f"|{'---|' * len(row)}"
        yield f"| {' | '.join(row.values())} |"


def main(*, with_spark: bool) -> None:
    """Print both tables."""
    rows = []
    for transactions in (False, True):
        for capture in CAPTURES:
            outcomes = replayed(capture, transactions=transactions)
            if with_spark:
                with TemporaryDirectory() as directory:
                    outcomes[SPARK] = through_spark(
                        session(), Path(directory), capture, transactions=transactions
                    )
            rows.append(cells_of(capture, outcomes, transactions=transactions))
            print(*rows[-1].values(), sep=" | ", file=sys.stderr)  # noqa: T201 - to see how far it is
    print(*markdown(rows), "", *markdown(map(row_of_types, MODES)), sep="\n")  # noqa: T201 - a command prints


def session() -> SparkSession:
    """A session with two cores."""
    builder = SparkSession.builder.master("local[2]")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


if __name__ == "__main__":
    main(with_spark="--spark" in sys.argv)
