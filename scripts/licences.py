"""List the licences of all packages that an installation brings, ``python -m scripts.licences``.

This writes ``docs/licences.md``. The packages are those that the core and each extra for users ask for, with all that
these ask for in turn, as they are installed in this environment. The licence is what a package says about itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, metadata
from pathlib import Path

from packaging.requirements import Requirement

PAGE = Path(__file__).parent.parent / "docs" / "licences.md"
PACKAGE = "tablestream"
#: Extras for work on the library itself, and the one that is all others.
NOT_FOR_USERS = {"docs", "dev", "all"}
#: SPDX's names for what packages say that do not use them.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
}
UNKNOWN = "unknown"
HEAD = """\
# Licences

tablestream is under the [Apache License 2.0](../LICENSE). Its installation brings these packages, each under its own
licence: those of the core always, the others with the extra that is named. `make licences` writes this page from what
the packages say about themselves, in the versions of `requirements/dev.txt`. A package can contain parts of others
under licences of their own, as PySpark contains jars.

Java is not among them, nor are the jars of Delta Lake and of Spark's Kafka connector, which you give to Spark yourself.

"""


@dataclass(frozen=True)
class Needed:
    """A package that an installation brings.

    Attributes
    ----------
    name
        Its name, in lower case with dashes.
    licence
        What it says about itself.
    needed_by
        ``core``, or the extras that bring it.
    """

    name: str
    licence: str
    needed_by: tuple[str, ...]


def normalized(name: str) -> str:
    """Return the one spelling of a package's name.

    Examples
    --------
    >>> normalized("Delta_Spark")
    'delta-spark'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(name: str, extras: set[str]) -> Iterator[Requirement]:
    """Yield what an installed package asks for here, with some of its extras."""
    for one in map(Requirement, distribution(name).requires or []):
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield one


def closure(name: str, extras: set[str]) -> set[str]:
    """Return all packages that come with an installed one and some of its extras, itself left out.

    Parameters
    ----------
    name
        The package.
    extras
        Its extras; none: the package alone.
    """
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(normalized(name), frozenset(extras))]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        found.add(place[0])
        try:
            waiting += [
                (normalized(one.name), frozenset(one.extras)) for one in requirements(place[0], set(place[1]))
            ]
        except PackageNotFoundError:
            continue  # for another system, or a package that Spark's own extra asks for and does not need
    return found - {normalized(name)}


def user_extras() -> list[str]:
    """Return the extras that users install."""
    return [one for one in metadata(PACKAGE).get_all("Provides-Extra") or [] if one not in NOT_FOR_USERS]


def licence(name: str) -> str:
    """Return the licence that an installed package says it has."""
    facts = metadata(name)
    if "License-Expression" in facts:
        return facts["License-Expression"]
    classifiers = [one for one in facts.get_all("Classifier") or [] if one.startswith("License ::")]
    named = [one.rpartition(" :: ")[2] for one in classifiers if not one.endswith(":: OSI Approved")]
    texts = facts.get_all("License") or [UNKNOWN]  # some packages give the whole text
    said = named or [text.strip().partition("\n")[0] for text in texts]
    return " OR ".join(SPDX.get(one, one) for one in said)


def needed() -> list[Needed]:
    """Return the packages of the core and of all extras for users that are installed here."""
    core = closure(PACKAGE, set())
    by_extra = {extra: closure(PACKAGE, {extra}) - core for extra in user_extras()}
    found = []
    for name in sorted(core.union(*by_extra.values())):
        brings = [extra for extra, names in by_extra.items() if name in names]
        try:
            found.append(Needed(name, licence(name), tuple(brings) if name not in core else ("core",)))
        except PackageNotFoundError:
            continue
    return sorted(found, key=lambda one: (one.needed_by != ("core",), one.name))


def page(packages: list[Needed]) -> str:
    """Return the page of some packages.

    Examples
    --------
    >>> print(page([Needed("polars", "MIT", ("core",))]).splitlines()[-1])
    | polars | MIT | core |
    """
    lines = [f"| {one.name} | {one.licence} | {', '.join(one.needed_by)} |" for one in packages]
    return HEAD + "\n".join(["| package | licence | needed by |", "|---|---|---|", *lines]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(needed()), encoding="utf-8")
