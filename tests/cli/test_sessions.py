"""The session of a command, as the environment says it."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tablestream.cli import sessions as module

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("remote", "is_logged"), [("local[2]", True), ("sc://host", False)])
def test_a_server_that_starts_with_the_session_writes_into_the_log(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    remote: str,
    *,
    is_logged: bool,
) -> None:
    """On the screen it would show each job's progress, and stack traces after Ctrl-C."""
    made = object()

    def started() -> object:
        subprocess.run(["/bin/sh", "-c", "echo A server starts. >&2"], check=True)
        return made

    spark = SimpleNamespace(getActiveSession=lambda: None, builder=SimpleNamespace(getOrCreate=started))
    monkeypatch.setattr(module, "SparkSession", spark)
    monkeypatch.setenv("SPARK_REMOTE", remote)
    log = tmp_path / "log"
    with module.sessions(log) as session:
        assert session() is made
    with module.sessions() as session:
        assert session() is made
    assert log.exists() == is_logged
    assert capfd.readouterr().err == ("" if is_logged else "A server starts.\n" * 2)
