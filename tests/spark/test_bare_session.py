"""A session without any setting, in a program without any environment: it runs, and fast.

The program is started by the path of its Python, as from a virtual environment that was not activated. The ``python3``
of its PATH is another.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tablestream
from tests.cli.programs import done
from tests.conftest import QUICK_JAVA
from tests.marks import quick_first

PROGRAM = Path(__file__).with_name("bare_session.py")
#: What the guards that read Spark's texts find, on each PySpark of the support matrix.
GUARDS = {
    "texts": "id, (id + 1), upper(ticker)",
    **dict.fromkeys(("order mixed", "order of a join", "order of a subquery"), "TABLESTREAM_ARGUMENT"),
    **dict.fromkeys(("session", "clock"), "TABLESTREAM_NONDETERMINISTIC"),
    **dict.fromkeys(("star", "window"), "TABLESTREAM_PLAN"),
}


def environment(directory: Path) -> dict[str, str]:
    """Give no more than Java needs, and a ``python3`` that runs nothing.

    Java compiles with its first compiler only: that is no setting of Spark's, and the program takes half the time.
    """
    other = directory / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'not this Python' >&2\nexit 1\n", encoding="utf-8")
    other.chmod(0o755)
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    paths = [str(other.parent), *os.environ["PATH"].split(os.pathsep)]
    package = Path(tablestream.__file__).parent.parent
    quick = {"JDK_JAVA_OPTIONS": QUICK_JAVA}
    return kept | quick | {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(package)}


def run_bare(directory: Path, *arguments: str) -> str:
    """Run the program in an empty directory; return what it and what it started wrote to standard error."""
    here = directory / "empty"
    here.mkdir()
    ended = done(str(PROGRAM), *arguments, others=environment(directory), directory=here)
    assert ended.returncode == 0, ended.stderr[-5000:]
    return ended.stderr


@pytest.mark.spark
@pytest.mark.parametrize("kind", quick_first(["classic", "connect"]))
def test_a_program_without_any_setting_runs(tmp_path: Path, kind: str) -> None:
    """Its session stays as it was, and a restart with other settings keeps the number of partitions."""
    errors = run_bare(tmp_path, kind, str(tmp_path / "data"))
    found: dict[str, Any] = json.loads((tmp_path / "data" / "found.json").read_text(encoding="utf-8"))
    assert found["changes"][-1] == [2, "A", "10 EUR"]
    assert [1, "A", "10 EUR"] in found["changes"]
    assert sorted(found["started"][:2]) == [[1, "Z"], [3, "C"]]
    assert sorted(found["started"][2:]) == [[1, "A"], [2, "A"]]
    assert found["guards"] == GUARDS
    assert found["same settings"]
    assert found["Ctrl-C interrupts"]
    assert found["state"] == ["10 EUR"]
    assert set(found["partitions"]) == {"2"}
    refused, allowed = found["refusals"]
    assert "tablestream.configure(spark)" in refused
    assert allowed == ""
    names = ("providerClass", "changelogCheckpointing.enabled", "shuffle.partitions", "minBatchesToRetain")
    assert len(found["set"]) == len(names)
    assert all(any(name in one for one in found["set"]) for name in names)
    assert "Python worker Starting execution" not in errors
    assert "doesn't contain" not in errors  # state of a new query that is not there yet
    assert errors.count("ForeachBatch worker Started batch") <= 3  # the first of each run
