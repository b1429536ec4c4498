"""Imports go one way, Spark stays in its place, and no module grows too long.

The order of the layers is a contract in ``pyproject.toml`` that ``make lint`` checks; here stand the rules about who
may import Spark, and the bridge to it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent / "src" / "tablestream"

WITHOUT_SPARK = ("topology", "planner", "runtime", "operators", "state", "pictures")
SPARKS_OWN = ("pyspark", "delta", "py4j")
NOT_HANDLES = ("errors",)


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import, those for types alone and inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_within(name: str, package: str) -> bool:
    """Say whether a dotted name is the package or something in it."""
    return name == package or name.startswith(f"{package}.")


def may_import_spark(folder: str) -> bool:
    """Say whether a folder of the package ('' for its top) may import Spark's packages."""
    return folder not in WITHOUT_SPARK


def may_import_bridge(folder: str, module: str) -> bool:
    """Say whether a module may import ``tablestream.spark``: handles, the bridge, the test driver, commands."""
    return folder in {"spark", "handles", "databases", "sql", "testing", "cli"} or (
        folder == "" and module not in NOT_HANDLES
    )


def violations(package: Path) -> list[str]:
    """List every import in the package that breaks one of the two rules."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        folder = parts[0] if len(parts) > 1 else ""
        for line, name in imports(path.read_text(encoding="utf-8")):
            spark_here = any(is_within(name, own) for own in SPARKS_OWN) and not may_import_spark(folder)
            bridge_here = is_within(name, "tablestream.spark") and not may_import_bridge(folder, path.stem)
            if spark_here or bridge_here:
                found.append(f"{'/'.join(parts)}:{line} imports {name}")
    return found


def test_spark_is_imported_only_where_it_may_be() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "is_refused"),
    [
        ("operators/x.py", "import pyspark.sql", True),
        ("state/x.py", "from pyspark import sql", True),
        ("topology/x.py", "if TYPE_CHECKING:\n    from pyspark.sql import Column", True),
        ("planner/deep/x.py", "def f():\n    import delta", True),
        ("connectors/x.py", "from pyspark.sql import DataFrame", False),
        ("operators/x.py", "import pysparkling", False),
        ("operators/x.py", "from tablestream.spark import pack", True),
        ("connectors/x.py", "from tablestream import spark", True),
        ("errors.py", "import tablestream.spark.runner", True),
        ("tables.py", "from tablestream.spark.runner import run", False),
        ("spark/x.py", "from tablestream.spark import pack", False),
        ("testing/x.py", "from tablestream.spark import pack", False),
    ],
)
def test_a_planted_import_is_judged(tmp_path: Path, file: str, line: str, *, is_refused: bool) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line, encoding="utf-8")
    assert bool(violations(tmp_path)) is is_refused


def test_every_package_and_module_of_the_top_has_its_layer() -> None:
    contracts = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contracts["tool"]["importlinter"]["contracts"][0]["layers"]
    named = sorted(name for layer in layers for name in re.split("[:|]", layer.replace(" ", "")))
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert named == sorted(folders | {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"})


def test_no_module_is_longer_than_600_lines() -> None:
    """A longer one hides a noun: find it, and give it a module of its own."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert [(path, count) for path, count in lines.items() if count > 600] == []
