"""The package asks for all that it needs: its tests run in an environment that has more."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement

#: What PySpark's stateful Python workers import, and what the library does.
NEEDED = {"pyspark", "polars", "pyarrow", "pandas", "numpy", "protobuf"}


def closure(name: str, found: set[str]) -> set[str]:
    """All distributions that come with one that is installed without extras."""
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return found
    for requirement in map(Requirement, lines):
        other = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if (requirement.marker is None or requirement.marker.evaluate({"extra": ""})) and other not in found:
            found = closure(other, found | {other})
    return found


def test_an_installation_without_extras_has_what_stateful_python_needs() -> None:
    assert closure("tablestream", set()) >= NEEDED
