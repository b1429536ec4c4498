"""What ``make measure-code`` prints of a small package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import measure_code
from scripts.measure_code import Lines, lines_of

if TYPE_CHECKING:
    from pathlib import Path

MODULES = {
    "__init__": '"""A package."""\n',
    "one": "from small import two\n\n\ndef f():\n    from small.inner import deep\n    return deep\n",
    "two": "import typing\n\nif typing.TYPE_CHECKING:\n    from small import one\n    from small import three\n",
    "three": "from small import four\n",
    "four": "from small import three\n\n\n@len\ndef g():\n    pass\n",
    "inner/__init__": "",
    "inner/deep": "from small import one\n",
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        path = tmp_path / "small" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "small"


def test_lines_are_code_docstrings_or_neither() -> None:
    text = '"""One.\n\nTwo.\n"""\n\n# three\nx = (\n    """four\n\n    """\n)  # five\n\n\nclass A:\n    """Six."""\n'
    assert lines_of(text) == Lines(code=6, docstrings=5, rest=4)
    assert lines_of(text).total == len(text.splitlines())


def test_the_report_has_folders_importers_circles_and_functions(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_code.main([str(small)])
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "folder modules code docs rest lines",
        ". 5 13 1 5 19",
        "inner 2 1 0 0 1",
        "all 7 14 1 5 20",
        "",
        "modules with one importer: 3, with 12 lines",
        "6 small.four <- small.three",
        "1 small.inner.deep <- small.one",
        "5 small.two <- small.one",
        "",
        "import circles: 1",
        "2 modules: small.four, small.three",
        "",
        "import circles with imports for types: 2",
        "2 modules: small.four, small.three",
        "2 modules: small.one, small.two",
        "",
        "functions: 2",
        "lines: median 3, 90th percentile 3, longest 3 (small.one.f:4)",
    ]
