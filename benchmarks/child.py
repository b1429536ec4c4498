"""One contestant's process: ``python -m benchmarks.child WORK`` reads ``task.json``, writes ``run.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.contestants import load
from benchmarks.launch import Task
from benchmarks.results import write_run
from benchmarks.spark_session import spark_session


def main() -> None:
    """Run the contestant that the task names."""
    work = Path(sys.argv[1])
    task = Task(**json.loads((work / "task.json").read_text()))
    spark = spark_session(task)
    try:
        write_run(load(task.contestant)(spark, task), work / "run.json")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
