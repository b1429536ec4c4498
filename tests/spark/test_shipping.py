"""The package on its way to executors that do not have it; that it arrives is told by `test_deployments`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tablestream
from tablestream.connectors.shipping import packed, ship
from tablestream.errors import ArgumentError

PACKAGE = Path(tablestream.__file__).parent


class Session:
    """As much of a session as is asked."""

    def __init__(self, master: str) -> None:
        self.given: list[str] = []
        self.conf = SimpleNamespace(get={"spark.master": master}.get)
        self.sparkContext = SimpleNamespace(addPyFile=self.given.append)


def shipped(session: Any) -> list[str]:
    ship(session)
    ship(session)
    return list(session.given)


def test_a_session_on_a_cluster_is_given_the_package_once() -> None:
    (path,) = shipped(Session("spark://somewhere:7077"))
    assert shipped(Session("yarn")) == [path]
    assert path == packed(PACKAGE)


@pytest.mark.parametrize("master", ["local", "local[2,4]", "local-cluster[2,1,1024]"])
def test_executors_on_this_machine_have_it(master: str) -> None:
    assert shipped(Session(master)) == []


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTREAM_SHIP", "no")
    assert shipped(Session("yarn")) == []
    monkeypatch.setenv("TABLESTREAM_SHIP", "never")
    with pytest.raises(ArgumentError, match=r"TABLESTREAM_SHIP is 'never'\..* Set it to 'yes' or 'no'"):
        shipped(Session("yarn"))


def test_the_zip_is_the_package(tmp_path: Path) -> None:
    """It is imported from there alone, and what is imported from a zip is not shipped again."""
    path = packed(PACKAGE)
    modules = {str(file.relative_to(PACKAGE.parent)) for file in PACKAGE.rglob("*.py")}
    assert set(zipfile.ZipFile(path).namelist()) == modules
    code = (
        "from types import SimpleNamespace as made; import tablestream\n"
        "from tablestream.connectors.shipping import ship\n"
        "ship(made(sparkContext=made(), conf=made(get={'spark.master': 'yarn'}.get))); print(tablestream.__file__)"
    )
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == f"{path}/tablestream/__init__.py"


def test_equal_modules_make_equal_zips(tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        (tmp_path / name / "package" / "below").mkdir(parents=True)
        (tmp_path / name / "package" / "below" / "module.py").write_text("1" if name == "other" else "2")
    one, two, other = (Path(packed(tmp_path / name / "package")) for name in ("one", "two", "other"))
    assert one.name == two.name != other.name
    first = one.read_bytes()
    packed.cache_clear()
    assert Path(packed(tmp_path / "one" / "package")).read_bytes() == first
