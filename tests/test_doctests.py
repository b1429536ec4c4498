"""Every example in a docstring runs; those that name ``spark`` get the shared session."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
#: Where examples stand, and from where the modules there are imported.
FOLDERS = {ROOT / "src": ROOT / "src", ROOT / "tests" / "reference": ROOT, ROOT / "scripts": ROOT}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

EXAMPLE_LINES = re.compile(r"^\s*(?:>>>|\.\.\.) .*$", re.MULTILINE)


def modules_with_examples(*, with_spark: bool) -> list[str]:
    """Name the modules that have examples, either those that use ``spark`` or those that do not."""
    found = []
    for folder, importable in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            lines = " ".join(EXAMPLE_LINES.findall(path.read_text(encoding="utf-8")))
            if ">>>" in lines and bool(re.search(r"\bspark\b(?!\.\w+ import)", lines)) is with_spark:
                name = ".".join(path.relative_to(importable).with_suffix("").parts)
                found.append(name.removesuffix(".__init__"))
    return found


def run_examples(module_name: str, names: dict[str, object]) -> None:
    """Run all examples of a module and fail with doctest's own report."""
    module = importlib.import_module(module_name)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names):
        runner.run(test, out=report.append)
    if runner.failures:
        pytest.fail("\n".join(report), pytrace=False)


@pytest.mark.parametrize("module_name", modules_with_examples(with_spark=False))
def test_examples(module_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(module_name, {})


@pytest.mark.parametrize("module_name", modules_with_examples(with_spark=True))
def test_examples_with_spark(
    module_name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(module_name, {"spark": spark})
