"""``tablestream demo`` runs, explains its columns, and leaves nothing behind."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tablestream.cli import app
from tablestream.cli.demo import _AFTER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.usefixtures("spark")
def test_the_demo_shows_every_change_of_a_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = CliRunner().invoke(app, ["demo"])
    assert told.exit_code == 0, told.output
    changes = [line.replace("│", "").split() for line in told.stdout.splitlines() if line.startswith("│")]
    assert changes == [
        ["1", "ACME", "100", "-", "upsert", "09:00:00"],
        ["1", "ACME", "100", "10.5", "upsert", "09:01:00"],
        ["2", "ACME", "50", "10.5", "upsert", "09:02:00"],
        ["2", "BOLT", "60", "-", "upsert", "09:03:00"],
        ["2", "BOLT", "60", "4.0", "upsert", "09:04:00"],
        ["1", "ACME", "100", "11.0", "upsert", "09:05:00"],
        ["1", "-", "-", "-", "delete", "09:06:00"],
    ]
    assert _AFTER in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80
    assert list(tmp_path.glob("tablestream-demo-*")) == []
    columns = list(json.loads(CliRunner().invoke(app, ["demo", "--json"]).stdout.splitlines()[0]))
    assert columns == ["id", "ticker", "amount", "price", "_change_type", "_timestamp"]
    assert all(name in _AFTER for name in columns)
