"""The public API is the recorded one: a change is made on purpose, and shows in a file."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import tablestream
from scripts.public_api import ADVICE, breaks, difference, public_api, recorded

RECORD = recorded()


def test_the_public_api_is_the_recorded_one() -> None:
    differing = difference(RECORD, public_api())
    assert not differing, f"{differing}\n\n{ADVICE}"


def test_the_record_has_every_public_name_and_no_other() -> None:
    names = set(re.findall(r"^(?:def|class) (\w+)", RECORD, re.MULTILINE))
    names |= set(re.findall(r"^(KEY) = ", RECORD, re.MULTILINE))  # others that look like it are types
    assert names == set(tablestream.__all__)
    modules = {name for name in names if f"class {name}:  # a module\n" in RECORD}
    assert modules == {"errors", "functions", "testing"}
    for name in modules:
        _, _, behind = RECORD.partition(f"class {name}:  # a module\n")
        inside, *_ = re.split(r"^(?=\S)", behind, maxsplit=1, flags=re.MULTILINE)
        for member in re.findall(r"^    (?:def|class) (\w+)", inside, re.MULTILINE):
            assert hasattr(importlib.import_module(f"tablestream.{name}"), member)


def test_every_public_name_is_imported_when_it_is_used_and_not_before() -> None:
    """Spark's workers import the package for one module of a stage."""
    ran = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True)
    before, *names = ran.stdout.splitlines()
    assert before == "tablestream"
    assert names == tablestream.__all__


LAZY = """
import os, sys
import tablestream as ts
assert os.environ["PYSPARK_DRIVER_PYTHON"]  # read by a Spark Connect server that the program starts next
print(*(name for name in sys.modules if name.startswith("tablestream")))
for name in ts.__all__:
    found = getattr(ts, name)
    assert name in dir(ts)
    print(getattr(found, "__name__", getattr(found, "name", "")).removeprefix("tablestream."))
"""


def test_a_submodule_has_no_name_of_the_api_unless_it_is_one() -> None:
    """An import of the submodule would put it in the place of the function or class. `sql` can be called as both."""
    modules = {one.name for one in pkgutil.iter_modules(tablestream.__path__)}
    assert modules & set(tablestream.__all__) == {"errors", "functions", "testing", "sql"}
    package: Any = importlib.import_module("tablestream.sql")
    with pytest.raises(tablestream.errors.ArgumentError, match="1 is not a query"):
        package(1)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tablestream' has no attribute 'tabel'"):
        _ = tablestream.tabel  # type: ignore[attr-defined]


def test_every_line_of_the_record_is_python() -> None:
    compile(RECORD, "api.txt", "exec")


SOURCE = """
    from package.inner import Kept, f, g
    from package.sub import thing as thing
    __all__ = ["Kept", "f", "g", "thing"]
"""
INNER = """
    How = Literal["left", "right"]
    class _Base:
        def told(self, how: How = "left") -> None: ...
        def _hidden(self) -> None: ...
    class Kept(_Base):
        size: int
        def __init__(self, node: Node) -> None: ...
        @classmethod
        def made(cls, /, a, *rest, b=1, **others) -> Kept: ...
    def f(a: int, /, b: str = "x", *, c: bool | None = None) -> Kept: ...
    def g(): ...
    def _h(): ...
"""
SHOWN = """
    class Kept(_Base):
        @classmethod
        def made(cls, /, a, *rest, b = 1, **others) -> Kept: ...
        size: int
        def told(self, how: How = 'left') -> None: ...

    def f(a: int, /, b: str = 'x', *, c: bool | None = None) -> Kept: ...

    def g(): ...

    def thing(): ...

    How = Literal['left', 'right']
"""


def written(directory: Path, inner: str = INNER) -> str:
    """Write a package, and return its public API without the first line."""
    package = directory / "package"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    (package / "inner.py").write_text(textwrap.dedent(inner), encoding="utf-8")
    (package / "sub.py").write_text("def thing(): ...\n", encoding="utf-8")
    (package / "thing.py").write_text("def other(): ...\n", encoding="utf-8")  # as a function is named
    return public_api(directory, "package").partition("\n\n")[2]


def test_a_package_is_recorded_with_all_that_callers_use(tmp_path: Path) -> None:
    assert written(tmp_path) == textwrap.dedent(SHOWN).lstrip()


@pytest.mark.parametrize(
    ("old", "new", "is_broken"),
    [
        ("def g(): ...", "def g(more): ...", True),
        ("def g(): ...", "def g(more=1): ...", False),
        ("def g(): ...", "def g(**more): ...", False),
        ('b: str = "x", *, c', 'b: str = "y", *, c', True),
        ('how: How = "left"', "how: How", True),
        ("        size: int\n", "", True),
        ('"left", "right"', '"left"', False),
        ("-> Kept", "-> None", False),
    ],
)
def test_a_difference_is_found_and_breaks_are_named(
    tmp_path: Path, old: str, new: str, *, is_broken: bool
) -> None:
    """Griffe does not judge types: such a difference is found all the same."""
    before, after = written(tmp_path), written(tmp_path, INNER.replace(old, new))
    assert before != after
    assert difference(before, after)
    assert bool(breaks(before, after)) is is_broken


def test_what_users_do_not_call_is_no_difference(tmp_path: Path) -> None:
    inner = (
        INNER.replace("def _h(", "def _i(").replace("_hidden", "_gone").replace("node: Node", "other: int")
    )
    assert difference(written(tmp_path), written(tmp_path, inner)) == ""
