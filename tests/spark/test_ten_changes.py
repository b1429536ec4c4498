"""Ten changes of a running query: each goes on as a query does that had the new plan from the start."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import polars as pl
import pytest

import tablestream as ts
from benchmarks.ten_changes import CHANGES, KEYS, SCHEMAS, Outputs, Tables, fates, first_plan, requests
from tests.marks import quick_each
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

Rows = dict[str, list[tuple[Any, ...]]]

#: What each log has before the change, and after it. A row that has only a key is deleted.
BEFORE: Rows = {
    "orders": [
        *((n, n % 5 or None, n % 3, 10 * n) for n in range(12)), (3, 1, 0, 95), (10,), (6, 2, 1, 4)
    ],
    "customers": [*((n, f"name {n}", n % 2) for n in range(4)), (3,)],
    "items": [(0, "cup"), (1, "pot")],
    "cities": [(0, "Here"), (1, "There"), (2, "Nowhere")],
}  # fmt: skip
AFTER: Rows = {
    "orders": [(12, 2, 1, 60), (9,), (8, 1, 2, 81), (7,), (7, 3, 1, 70)],
    "customers": [(1, "other", 0), (2,), (3, "back", 1)],
    "items": [(1,), (2, "pan")],
    "cities": [(1, "Elsewhere"), (0,)],
}


@dataclass
class Query:
    """A query over four logs, with all that it writes below one directory."""

    spark: SparkSession
    place: Path
    logs: Mapping[str, ChangeLog]

    @classmethod
    def below(cls, spark: SparkSession, place: Path) -> Query:
        """Make the logs."""
        logs = {name: ChangeLog(place / "logs" / name, schema) for name, schema in SCHEMAS.items()}
        return cls(spark, place, logs)

    @property
    def written(self) -> Path:
        """The checkpoint and the targets."""
        return self.place / "written"

    @property
    def checkpoint(self) -> Path:
        return self.written / "checkpoint"

    @property
    def tables(self) -> Tables:
        def table(name: str) -> ts.Table:
            frame = self.logs[name].read(self.spark)
            return ts.table(frame, KEYS[name], apply_as_deletes="gone", except_columns=["gone"], name=name)

        return Tables(**{name: table(name) for name in SCHEMAS})

    def add(self, rows: Rows) -> None:
        """Write a file to each log."""
        for name, some in rows.items():
            columns = [one.split()[0] for one in SCHEMAS[name].split(", ")]
            self.logs[name].add(
                [dict(zip(columns, row, strict=False)) | {"gone": len(row) == 1} for row in some]
            )

    def log(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """The changes in a log of files, in their order."""
        files, shown = f"{self.written / name}/*/*.parquet", ", ".join([*columns, "_change_type"])
        with duckdb.connect() as database:
            log = database.from_query("FROM read_parquet(?, union_by_name => true)", params=[files])
            return log.order("_order").project(shown).fetchall()

    def rows(self, name: str, columns: Sequence[str]) -> set[tuple[Any, ...]]:
        """The table that a log leaves, or the maintained one."""
        directory = self.written / name
        if (directory / "_delta_log").exists():
            table = pl.DataFrame(deltalake.DeltaTable(str(directory)).to_pyarrow_table())
            return set(table.select(columns).rows())
        last = {row[0]: row for row in self.log(name, columns)}
        return {row[:-1] for row in last.values() if row[-1] != "delete"}


@pytest.fixture(scope="module")
def query(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Query:
    """The query as it is before the change, with a copy of all that it wrote."""
    made = Query.below(spark, tmp_path_factory.mktemp("query"))
    made.add(BEFORE)
    run(*requests(first_plan(made.tables), made.written), checkpoint=made.checkpoint, evolvable=True)
    shutil.copytree(made.written, made.place / "copy")
    made.add(AFTER)
    return made


@pytest.fixture(scope="module")
def always(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Query:
    """One query with the outputs of all plans from the start; those of a change are called by it."""
    made = Query.below(spark, tmp_path_factory.mktemp("always"))
    made.add(BEFORE)
    made.add(AFTER)
    tables, outputs = made.tables, Outputs()
    for change, of in {"": first_plan, **{name: one.plan for name, one in CHANGES.items()}}.items():
        known = CHANGES[change].fates if change else first_plan(tables)
        outputs |= {f"{change} {name}".strip(): table for name, table in of(tables).items() if name in known}
    logs = [
        table.to(ts.to_files(made.written / name), name=name.replace(" ", "_"))
        for name, table in outputs.items()
    ]
    run(*logs, checkpoint=made.checkpoint)
    return made


@pytest.mark.parametrize("name", quick_each(CHANGES, 5))
def test_a_changed_query_goes_on_as_if_it_had_been_so_from_the_start(
    query: Query, always: Query, name: str
) -> None:
    change = CHANGES[name]
    shutil.rmtree(query.written)
    shutil.copytree(query.place / "copy", query.written)
    outputs = change.plan(query.tables)
    plan = requests(outputs, query.written)
    assert fates(ts.evolve(*plan, checkpoint=query.checkpoint, shards=change.shards)) == change.fates
    run(*plan, checkpoint=query.checkpoint)
    for output, table in outputs.items():
        columns = list(dict.fromkeys([*table.key_columns, *table.columns]))
        if output in change.fates:
            assert query.rows(output, columns) == always.rows(f"{name} {output}", columns)
        elif output == "sums":
            assert query.rows(output, columns) == always.rows(output, columns)
        else:
            assert query.log(output, columns) == always.log(output, columns)
