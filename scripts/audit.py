"""Look for known vulnerabilities of the locked packages, ``python -m scripts.audit``.

pip-audit asks a service about each package of ``requirements/dev.txt``. It reports success for packages that the
service does not know, and also if the service has no vulnerabilities at all, as some mirrors of the package index. So
this script adds a package with known vulnerabilities to the list, and tells three outcomes apart by its exit code:

====  ==========================================================================================
code  meaning
====  ==========================================================================================
0     the service knows every package, and no vulnerability of the locked versions
1     a locked version has a known vulnerability
3     not audited: the service was not reached, or has no data on some packages
====  ==========================================================================================

``make`` ends with its own code 2 in the last two cases; the message says which it was. Options go to pip-audit, such as
``--vulnerability-service osv``. This script needs the standard library only, and pip-audit in ``build/tools``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
LOCKED = ROOT / "requirements" / "dev.txt"
PROGRAM = ROOT / "build" / "tools" / "bin" / "pip-audit"
#: A version with known vulnerabilities, of a package that is not locked: a service that does not say so has no data.
VULNERABLE = "django", "2.0"
CLEAN, FOUND, NOT_AUDITED = 0, 1, 3
SHOWN = 5  # names of packages in the message
ADVICE = """\
This says nothing about vulnerabilities. Run it where the service can be reached, or name another one:
make audit ARGS="--vulnerability-service osv\""""


def ask(program: Path, options: Iterable[str]) -> tuple[list[dict[str, Any]] | None, str]:
    """Run pip-audit; return what it reports on each package, or None and its last message if it ended before."""
    with TemporaryDirectory(prefix="tablestream-audit-") as directory:
        known = Path(directory, "known.txt")
        known.write_text("==".join(VULNERABLE), encoding="utf-8")
        lists = (f"--requirement={LOCKED}", f"--requirement={known}")
        fixed = ("--no-deps", "--disable-pip", "--format=json", "--progress-spinner=off")
        done = subprocess.run(
            [program, *lists, *fixed, *options], capture_output=True, text=True, check=False
        )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        return None, done.stderr.strip().rpartition("\n")[2]
    return found, ""


def verdict(packages: list[dict[str, Any]]) -> tuple[int, str]:
    """Return the exit code and the message for what pip-audit reports on each package.

    Examples
    --------
    >>> known = {"name": "django", "version": "2.0", "vulns": [{"id": "A"}]}
    >>> verdict([known, {"name": "polars", "version": "2.1.0", "vulns": []}])
    (0, 'No known vulnerabilities in 1 locked packages.')
    >>> code, message = verdict([known, {"name": "polars", "skip_reason": "not found"}])
    >>> print(code, message.splitlines()[0])
    3 NOT AUDITED: the service has no data on 1 of 1 locked packages: polars.
    """
    locked = [one for one in packages if one["name"] != VULNERABLE[0]]
    found = [line for one in locked for line in _vulnerabilities(one)]
    missing = _missing(locked, [one for one in packages if one["name"] == VULNERABLE[0]])
    said = [f"{len(found)} known vulnerabilities:", *found] if found else []
    said += [f"NOT AUDITED: {missing}.", ADVICE] if missing else []
    if not said:
        return CLEAN, f"No known vulnerabilities in {len(locked)} locked packages."
    return FOUND if found else NOT_AUDITED, "\n".join(said)


def _missing(locked: list[dict[str, Any]], known: list[dict[str, Any]]) -> str:
    """Say what the service does not know; empty if it knows all packages and has vulnerabilities."""
    skipped = [one["name"] for one in locked if "skip_reason" in one]
    if skipped:
        names = ", ".join(skipped[:SHOWN]) + (" and others" if len(skipped) > SHOWN else "")
        return f"the service has no data on {len(skipped)} of {len(locked)} locked packages: {names}"
    if not any(one.get("vulns") for one in known):
        return f"the service has no vulnerabilities, not even those of {' '.join(VULNERABLE)}"
    return ""


def _vulnerabilities(package: dict[str, Any]) -> list[str]:
    """Return a line for each known vulnerability of a package."""
    name = f"{package['name']} {package.get('version')}"
    return [
        f"  {name}: {one['id']}, fixed in {', '.join(one.get('fix_versions', [])) or 'no version'}"
        for one in package.get("vulns", [])
    ]


def main(program: Path = PROGRAM) -> None:
    """Ask the service, say what it says, and end with the code for it."""
    packages, problem = ask(program, sys.argv[1:])
    if packages is None:
        code, text = NOT_AUDITED, f"NOT AUDITED: pip-audit ended without a report.\n{problem}\n{ADVICE}"
    else:
        code, text = verdict(packages)
    print(text, file=sys.stderr if code else sys.stdout)
    sys.exit(code)


if __name__ == "__main__":
    main()
