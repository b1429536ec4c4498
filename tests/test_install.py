"""The package asks for all that it needs, and for nothing else: its tests run in an environment that has more."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from scripts.licences import HEAD, NOT_FOR_USERS, UNKNOWN, closure, licence, needed, normalized

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "tablestream"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: Packages that are not declared, and not imported, each for a reason.
UNDECLARED = {
    "py4j": "PySpark asks for the one version that fits it",
    "pytest": "the module with its fixture is only for those who use it",
}
NOT_IMPORTED = {
    "protobuf": "PySpark's stateful Python workers import it",
    "delta-spark": "the sink writes through Spark's own interface",
}
#: What PySpark's stateful Python workers import, and what the library does.
NEEDED = {"pyspark", "polars", "pyarrow", "pandas", "numpy", "protobuf"}
#: Modules that are imported only where their extra is there, and what they need.
BEHIND_AN_EXTRA = {
    "tablestream.pictures.plot": "matplotlib",
    "tablestream.__main__": "rich",
    "tablestream.cli": "rich",
    "tablestream.connectors.debezium": "msgspec",
    "tablestream.operators.reduce.sketched": "datasketches",
    "tablestream.sql": "sqlglot",
}


def declared(lines: list[str]) -> set[str]:
    """Return the packages that requirements name."""
    return {normalized(Requirement(line).name) for line in lines} - {"tablestream"}


CORE = declared(PROJECT["dependencies"])
FOR_USERS = {name: declared(lines) for name, lines in EXTRAS.items() if name not in NOT_FOR_USERS}


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"tablestream"}


def distributions() -> dict[str, set[str]]:
    """Return for each third-party package that the library imports the distributions that have it."""
    known = packages_distributions()
    names = {name for path in SOURCES.rglob("*.py") for name in imported(path)}
    return {name: {normalized(one) for one in known.get(name, [name])} for name in names}


def test_an_installation_without_extras_has_what_stateful_python_needs() -> None:
    assert closure("tablestream", set()) >= NEEDED


def test_every_package_that_is_imported_is_declared() -> None:
    """A package that only comes along with another one may stop to do so."""
    asked = CORE.union(*FOR_USERS.values())
    missing = {name for name, having in distributions().items() if not having & asked}
    assert missing == set(UNDECLARED)


def test_every_declared_package_is_imported() -> None:
    used = {one for having in distributions().values() for one in having}
    assert CORE.union(*FOR_USERS.values()) - used == set(NOT_IMPORTED)


def test_the_extra_for_all_is_all_extras_for_users() -> None:
    (everything,) = EXTRAS["all"]
    included = {extra for name in Requirement(everything).extras for extra in (name, *_nested(name))}
    assert included == set(FOR_USERS)


def _nested(extra: str) -> set[str]:
    """Return the extras that an extra includes."""
    own = [Requirement(line) for line in EXTRAS[extra]]
    return {name for one in own if one.name == "tablestream" for name in one.extras}


IMPORT_ALL = """
import json, pathlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(sys.argv[1:])
sys.meta_path.insert(0, Blocked())
import tablestream, tablestream.testing

failed = {}
root = pathlib.Path(tablestream.__file__).parent
modules = [".".join(path.relative_to(root.parent).with_suffix("").parts) for path in root.rglob("*.py")]
for name in sorted(name.removesuffix(".__init__") for name in modules):
    if name.rpartition(".")[0] in failed:
        continue
    try:
        __import__(name)
    except (ModuleNotFoundError, SystemExit) as problem:
        missing = problem if isinstance(problem, ModuleNotFoundError) else problem.__cause__
        failed[name] = missing.name
print(json.dumps(failed))
"""


def without(packages: set[str]) -> dict[str, str]:
    """Import every module where some packages are missing; return those that cannot be imported, and what they lack."""
    command = [sys.executable, "-c", IMPORT_ALL, *packages]
    environment = {"PYTHONPATH": str(SOURCES.parent), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_only_what_belongs_to_an_extra_needs_its_packages() -> None:
    """The library and its test driver are imported without any package of an extra."""
    extras = set().union(*FOR_USERS.values()) - CORE
    blocked = {name for name, having in distributions().items() if having & extras}
    assert {"typer", "rich", "msgspec", "fastavro", "psycopg", "datasketches"} <= blocked
    assert {listed(name): lacks for name, lacks in without(blocked).items()} == BEHIND_AN_EXTRA


def listed(module: str) -> str:
    """Return the entry of `BEHIND_AN_EXTRA` for a module: itself or its package."""
    return next((one for one in BEHIND_AN_EXTRA if module.startswith(f"{one}.")), module)


def test_every_message_and_page_says_in_one_way_how_an_extra_is_installed() -> None:
    """The name alone is right for an index only, and none has the package."""
    sources = {path: path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
    assert {path.name for path, text in sources.items() if "pip install" in text} == {"extras.py"}
    pattern = r"install_hint\([\"'](\w+)[\"']\)"
    asked = {name for text in sources.values() for name in re.findall(pattern, text)}
    assert "cli" in asked
    assert asked <= set(FOR_USERS)
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    assert [page.name for page in pages if "install 'tablestream[" in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("extra", sorted(FOR_USERS))
def test_the_page_shows_what_an_extra_is_for_and_what_it_brings(extra: str) -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{extra}` \| (.+) \| (.+) \|$", text, re.MULTILINE)
    shown: set[str] = set(re.findall(r"`([\w-]+)(?:\[\w+\])?`", row[1]))
    assert shown == FOR_USERS[extra] | _nested(extra)


def test_the_page_shows_the_packages_of_the_core() -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| none \| .+ \| (.+) \|$", text, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`", row)) == CORE


def text_of_page() -> str:
    return (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")


def lowest_versions() -> dict[str, Version]:
    """Return the lowest version of each package that the core and the extras for users ask for."""
    lines = [*PROJECT["dependencies"], *(one for name in FOR_USERS for one in EXTRAS[name])]
    asked = [one for one in map(Requirement, lines) if one.name != "tablestream"]
    return {
        normalized(one.name): Version(bound.version)
        for one in asked
        for bound in one.specifier
        if bound.operator == ">="
    }


def test_the_lowest_versions_are_those_that_the_package_allows() -> None:
    """`make lowest` runs the tests with them."""
    lines = (ROOT / "requirements" / "lowest.txt").read_text(encoding="utf-8").splitlines()[1:]
    pins = {normalized(name): Version(version) for name, version in (line.split("==") for line in lines)}
    assert pins == lowest_versions()
    assert lines == sorted(lines)


@pytest.mark.parametrize("package", ["PySpark", "Polars", "PyArrow", "NumPy", "pandas"])
def test_the_page_shows_the_lowest_version_of_a_package(package: str) -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"^\| {package} \| ([\d.]+) or newer", text, re.MULTILINE)
    assert Version(shown) == lowest_versions()[package.lower()]


def licences() -> dict[str, tuple[str, str]]:
    """Return the page's licences and who needs them, by package."""
    rows: list[Any] = re.findall(r"^\| ([a-z][\w-]*) \| (.+) \| (.+) \|$", text_of_page(), re.MULTILINE)
    return {name: (said, by) for name, said, by in rows if name != "package"}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ([("License-Expression", "MIT"), ("License", "BSD License")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("Classifier", "License :: OSI Approved"), ("License", "BSD License\nAll of it.")], "BSD"),
        (
            [("Classifier", f"License :: OSI Approved :: {one} License") for one in ("MIT", "BSD")],
            "MIT OR BSD",
        ),
        ([("Classifier", "Programming Language :: Python")], UNKNOWN),
    ],
)
def test_a_licence_is_what_a_package_says_in_one_of_three_places(
    facts: list[tuple[str, str]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Message()
    for name, value in facts:
        package.add_header(name, value)
    monkeypatch.setattr("scripts.licences.metadata", lambda _: package)
    assert licence("any") == said


def test_every_dependency_has_its_licence_on_the_page() -> None:
    shown = licences()
    new = {one.name for one in needed() if shown.get(one.name) != (one.licence, ", ".join(one.needed_by))}
    assert not new, (
        f"docs/licences.md lacks {sorted(new)} or shows another licence. Look at it, and run `make licences`."
    )


def test_every_licence_on_the_page_is_known_and_of_a_package_that_is_locked() -> None:
    pins = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").splitlines()
    locked = {normalized(line.partition("==")[0]) for line in pins}
    assert set(licences()) - locked == set()
    assert [name for name, (said, _) in licences().items() if UNKNOWN in said.lower()] == []
    assert text_of_page().partition("| package |")[0] == HEAD
