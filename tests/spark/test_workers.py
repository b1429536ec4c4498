"""Which Python runs on workers, and what is said of one that cannot run a plan."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import py4j
import pyspark
import pytest

import tablestream as ts
from tablestream.connectors.workers import prepare_workers, use_driver_python
from tablestream.errors import SessionSettingError
from tablestream.spark import processes
from tablestream.testing import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(master: str, **settings: str) -> Any:
    """As much of a session as is asked."""
    given = {"spark.master": master, **{f"spark.{name}": value for name, value in settings.items()}}
    return SimpleNamespace(
        conf=SimpleNamespace(get=given.get), sparkContext=SimpleNamespace(pythonExec="python3")
    )


def python_of(spark: Any) -> str:
    use_driver_python(spark)
    return str(spark.sparkContext.pythonExec)


def python(directory: Path, command: str) -> Path:
    """A program that runs Python by a command of the shell."""
    program = directory / "python"
    program.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def test_workers_of_a_local_master_run_the_python_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert python_of(session("local[2]")) == sys.executable
    assert python_of(session("local-cluster[2,1,1024]")) == sys.executable
    assert python_of(session("spark://somewhere:7077")) == "python3"
    assert python_of(session("local[2]", **{"pyspark.python": "/mine"})) == "python3"
    monkeypatch.setenv("PYSPARK_PYTHON", "/mine")
    assert python_of(session("local[2]")) == "python3"


def test_a_python_that_lacks_packages_is_told_in_one_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in (pyspark, py4j):  # which Spark brings along
        (tmp_path / package.__name__).symlink_to(Path(str(package.__file__)).parent)
    bare = python(
        tmp_path, f'PYTHONPATH="$PYTHONPATH:{tmp_path}" exec {sys.executable} -S "$@"'
    )  # no site-packages
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    # An installed tablestream is missing as well; one that is only on the path is not.
    missing = "has no (tablestream, )?polars, pyarrow, pandas, protobuf"
    with pytest.raises(SessionSettingError, match=missing) as caught:
        prepare_workers(spark)
    assert f"set it to {sys.executable}" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_python_that_does_not_start_is_told_in_one_sentence(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python")
    with pytest.raises(
        SessionSettingError, match=r'does not start .*Cannot run program "/no/python"'
    ) as caught:
        prepare_workers(spark)
    assert "\n" not in str(caught.value)


def test_another_version_of_python_is_told_with_the_one_that_is_needed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, where packages would not help."""
    other = python(tmp_path, f'exec {sys.executable} "$@"')
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(other))
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.1")  # what workers compare theirs with
    monkeypatch.setattr("tablestream.connectors.workers.is_local", lambda _: False)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(SessionSettingError, match=f"Spark's workers run Python {version}, and") as caught:
        prepare_workers(spark)
    assert caught.value.hint.startswith(f"Set PYSPARK_PYTHON to a Python {version} on the executors")
    assert "\n" not in str(caught.value)


def test_processes_that_spark_starts_for_a_query_do_not_tell_their_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what users print there comes out."""
    printed, main = io.StringIO(), ModuleType("__main__")
    main.__spec__ = SimpleNamespace(name="pyspark.sql.connect.streaming.worker.foreach_batch_worker")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "stdout", printed)
    processes.quieten()
    processes.quieten()
    for line in (
        "Streaming ForeachBatch worker Started batch 0",
        "mine",
        "",
        "Streaming ForeachBatch worker Completed",
    ):
        print(line, flush=True)  # noqa: T201 - as that process does
    assert printed.getvalue() == "mine\n\n"


def test_other_processes_print_what_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    processes.quieten()
    assert sys.stdout is printed


DECLARING = """
import sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(
    name="pyspark.sql.streaming.transform_with_state_driver_worker"
)
import tablestream.spark.processor
print(*{"pandas", "polars", "pyarrow", "tablestream.tables"}.intersection(sys.modules))
"""


def test_a_process_that_only_declares_state_loads_none_of_the_libraries_of_operators() -> None:
    """Every query starts such processes, one after the other, before its first result."""
    ran = subprocess.run([sys.executable, "-c", DECLARING], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_the_first_call_of_a_session_may_be_from_debezium_with_a_frame(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decoder is created for the workers at once."""
    records = frame(spark, "topic string, partition int, offset bigint, key binary, value binary")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    ts.from_debezium(records, "shop").table("public.orders", "id", "id int, n int")
    assert spark.sparkContext.pythonExec == sys.executable
