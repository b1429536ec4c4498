"""The same plan gives the same changes under Spark Connect and on a cluster as in an ordinary local session.

The executors of the cluster have no tablestream but the one that is shipped to them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.programs import done
from tests.spark.deployment import CONNECT, STANDALONE, run_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent


def run_apart(deployment: str, directory: Path) -> None:
    """Run the plan in a process of its own."""
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))}
    command = "-m", "tests.spark.deployment", deployment, str(directory)
    ended = done(*command, variables=paths, directory=directory)
    assert ended.returncode == 0, ended.stderr[-5000:]


def changes(directory: Path, table: str) -> list[dict[str, Any]]:
    """Read the changes in their order; the files of the logs have the same names in every directory."""
    lines = [
        line.replace(str(directory), "")
        for file in (directory / table).glob("micro_batch=*/part-*.json")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(map(json.loads, lines), key=lambda change: (*change["_order"].values(), change["id"]))


def noted(directory: Path, what: str) -> object:
    return json.loads((directory / f"{what}.json").read_text(encoding="utf-8"))


def plan(directory: Path) -> list[str]:
    """Read the text by which a restarted query knows its plan."""
    files = (directory / "checkpoint/tablestream").glob("part-*")
    return [json.loads(file.read_text(encoding="utf-8"))["value"] for file in files]


@pytest.fixture(scope="module")
def ordinary(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ordinary")
    run_plan(spark, directory)
    return directory


@pytest.mark.parametrize("deployment", [CONNECT, STANDALONE])
def test_a_deployment_gives_the_changes_of_a_local_session(
    ordinary: Path, tmp_path: Path, deployment: str
) -> None:
    """Over three micro-batches with a restart between them; so are the plan, what was counted, and a table's state."""
    run_apart(deployment, tmp_path)
    for table in ("sold", "sent"):
        expected = changes(ordinary, table)
        assert {change["_order"]["micro_batch"] for change in expected} == {0, 1, 2}
        assert {change["_change_type"] for change in expected} == {"upsert", "delete"}
        assert changes(tmp_path, table) == expected
    assert noted(tmp_path, "counts") == noted(ordinary, "counts")
    assert noted(tmp_path, "orders") == noted(ordinary, "orders") != []
    assert plan(tmp_path) == plan(ordinary)
