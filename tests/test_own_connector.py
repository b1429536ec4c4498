"""The connector in `examples/own_connector`, which uses nothing private: a table in SQLite, exactly once."""

from __future__ import annotations

import ast
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.own_connector import __main__ as example
from examples.own_connector.sqlite_sink import SqliteTable
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_imports_nothing_private() -> None:
    folder = Path(example.__file__).parent
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        found = [one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
        found += [name.name for one in ast.walk(tree) if isinstance(one, ast.Import) for name in one.names]
        ours = {one for one in found if one.startswith("tablestream")}
        assert ours <= {"tablestream"}, path


def test_a_table_in_sqlite_is_right_after_restarts_and_repetitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    example.add(tmp_path, (1, "ann", 100, 0), (2, "bob", 70, 0), (3, "ann", -30, 0))
    assert example.run(spark, tmp_path) == {"ann": 70, "bob": 70}
    example.add(tmp_path, (2, "bob", 0, 1), (3, "ann", -50, 0), (3, "ann", -45, 0))
    assert example.run(spark, tmp_path) == {"ann": 55}
    for log in (tmp_path / "checkpoint" / "commits").glob(
        "*1*"
    ):  # as if Spark had not noted the last micro-batch
        log.unlink()
    with closing(sqlite3.connect(tmp_path / "accounts.db")) as database, database:
        database.execute(
            "UPDATE balances SET balance = 56"
        )  # a micro-batch that is there is not written again
    assert example.run(spark, tmp_path) == {"ann": 56}


def test_a_target_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    example.add(tmp_path)
    sink = SqliteTable(str(tmp_path / "accounts.db"), "balances")
    none: Any = None
    with pytest.raises(ArgumentError, match="lacks the columns count"):
        sink.check(none, ["account", "count"])
