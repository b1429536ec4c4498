"""Run a program with a bare session on each Python and PySpark, ``python -m scripts.matrix``.

This writes the support matrix. Each environment is made empty, gets the wheel with the extra `connect`, runs
``tests/spark/test_bare_session.py`` against that installation, and is removed. The results are in ``docs/matrix.json``,
and the table of ``docs/compatibility.md`` is written from them. Environments that a run leaves out keep their older
results.

``--python 3.12`` and ``--spark 4.3`` choose some of them, and ``--table`` only writes the table again. An environment
whose Python this machine does not have is listed. The exit code is 1 if nothing ran, or an environment did not pass. It
needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "docs" / "matrix.json", ROOT / "docs" / "compatibility.md"
WORK = ROOT / "build" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: A bound that is a preview lets pip take previews until there is a release.
SPARKS = {"4.2": "pyspark[connect]==4.2.*", "4.3": "pyspark[connect]>=4.3.0.dev0,<4.4.0.dev0"}
TEST = "tests/spark/test_bare_session.py"
TOOLS = ("pytest", "pytest-timeout", "hypothesis")
CORE = ("numpy", "pandas", "polars", "protobuf", "pyarrow")
PLACE = re.compile(r"(?<=<!-- the matrix -->\n).*?(?=<!-- end of the matrix -->)", re.DOTALL)
PASSED = "passed"
PATIENCE = "spark.python.authenticate.socketTimeout 120s"


@dataclass(frozen=True)
class Result:
    """The outcome of the test in one environment.

    Attributes
    ----------
    python, pyspark, java
        Versions.
    classic, connect
        The outcome of each kind of session: ``passed``, ``failed`` or ``skipped``; ``not installed`` if pip found no
        set of packages.
    date
        The day of the run.
    packages
        The versions of the core's dependencies.
    """

    python: str
    pyspark: str
    java: str
    classic: str
    connect: str
    date: str
    packages: dict[str, str]

    @property
    def environment(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The minor versions of Python and PySpark. A later run replaces the result of the same environment."""
        return minor(self.python), minor(self.pyspark)

    @property
    def has_passed(self) -> bool:
        """Whether both kinds of session work."""
        return self.classic == self.connect == PASSED


def minor(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version.

    Examples
    --------
    >>> minor("3.11.7")
    (3, 11)
    """
    first, second, *_ = version.split(".")
    return int(first), int(second)


def find_python(version: str) -> Path | None:
    """Find a Python of a minor version on the path, or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = shutil.which(f"python{version}")
    candidates = [*([Path(named)] if named else []), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    return next((python for python in candidates if _is_version(python, version)), None)


def _is_version(python: Path, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return said.returncode == 0 and said.stdout.strip() == version


def build_wheel() -> Path:
    """Build the wheel that every environment gets."""
    shutil.rmtree(WORK, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={WORK}", str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = WORK.glob("tablestream-*.whl")
    return wheel


def try_environment(python: Path, spark: str, wheel: Path) -> Result:
    """Install the wheel beside a PySpark into an empty environment, and run the test there."""
    venv = WORK / "venv"
    subprocess.run([python, "-m", "venv", "--clear", venv], check=True)
    inside = venv / "bin" / "python"
    classic, connect = _tested(venv, inside, [f"{wheel}[connect]", SPARKS[spark], *TOOLS])
    listed = json.loads(_said(inside, "-m", "pip", "list", "--format", "json"))
    versions = {one["name"]: str(one["version"]) for one in listed}
    result = Result(
        python=_said(inside, "--version").split()[1],
        pyspark=versions.get("pyspark", spark),
        java=_java(),
        classic=classic,
        connect=connect,
        date=datetime.now(tz=UTC).date().isoformat(),
        packages={name: versions[name] for name in CORE if name in versions},
    )
    shutil.rmtree(venv)
    return result


def _tested(venv: Path, python: Path, packages: list[str]) -> tuple[str, str]:
    """Install packages and run the test; return its outcome in both kinds of session."""
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    if subprocess.run(install, check=False).returncode:
        return "not installed", "not installed"
    _be_patient(venv)
    found = _run_test(python)
    return found.get("classic", "failed"), found.get("connect", "failed")


def _be_patient(venv: Path) -> None:
    """Let Spark wait longer than 15 s for a Python worker to call back, which a loaded machine exceeds."""
    (pyspark,) = venv.glob("lib/python3*/site-packages/pyspark")
    (pyspark / "conf").mkdir(exist_ok=True)
    (pyspark / "conf" / "spark-defaults.conf").write_text(f"{PATIENCE}\n", encoding="utf-8")


def _said(*command: str | Path) -> str:
    """Return what a command printed; if nothing, its messages, where Java has its version."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout or done.stderr


def _java() -> str:
    """Return the major version of the Java that Spark starts with."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    found = re.search(r'version "(\d+)', _said(java, "-version"))
    return found[1] if found else "unknown"


def _run_test(python: Path) -> dict[str, str]:
    """Run the test with an environment's installation; return the outcome of each kind of session."""
    report = WORK / "report.xml"
    report.unlink(missing_ok=True)
    options = ["-p", "no:cacheprovider", f"--junitxml={report}"]
    # The sources of the repository must not stand before the installation.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-m", "pytest", TEST, *options]
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    return outcomes(report.read_text(encoding="utf-8")) if report.exists() else {}


def outcomes(report: str) -> dict[str, str]:
    """Return the outcome of each kind of session from pytest's report in XML.

    Examples
    --------
    >>> outcomes('<r><testcase name="test_x[classic]"/><testcase name="test_x[connect]"><error/></testcase></r>')
    {'classic': 'passed', 'connect': 'failed'}
    """
    found = {}
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 - pytest wrote it on this machine
        _, _, kind = case.attrib["name"].rstrip("]").partition("[")
        children = {child.tag for child in case}
        failed = "failed" if children & {"failure", "error"} else PASSED
        found[kind] = "skipped" if "skipped" in children else failed
    return found


def read_results() -> list[Result]:
    """Read the results that were recorded, in the order of their versions."""
    return [Result(**one) for one in json.loads(RESULTS.read_text(encoding="utf-8"))]


def write_results(new: Iterable[Result]) -> None:
    """Replace the results of the environments that ran, and write the table."""
    kept = {one.environment: one for one in [*(read_results() if RESULTS.exists() else []), *new]}
    ordered = [asdict(one) for _, one in sorted(kept.items())]
    RESULTS.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
    write_table()


def write_table() -> None:
    """Write the table of the recorded results into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(PLACE.sub(table(read_results()).replace("\\", r"\\"), page), encoding="utf-8")


def table(results: Iterable[Result]) -> str:
    r"""Return the results as a table of Markdown, with a line for each environment that has none.

    Examples
    --------
    >>> result = Result("3.12.1", "4.3.0", "17", "passed", "failed", "2026-01-02", {"polars": "2.1.0"})
    >>> print(table([result]).replace("\n\n", "\n").strip())
    | Python | PySpark | classic | Connect | Java | other packages | run on |
    |---|---|---|---|---|---|---|
    | 3.12.1 | 4.3.0 | passed | failed | 17 | polars 2.1.0 | 2026-01-02 |
    | 3.11 | 4.2 | not run | not run | | | |
    | 3.11 | 4.3 | not run | not run | | | |
    | 3.12 | 4.2 | not run | not run | | | |
    | 3.13 | 4.2 | not run | not run | | | |
    | 3.13 | 4.3 | not run | not run | | | |
    | 3.14 | 4.2 | not run | not run | | | |
    | 3.14 | 4.3 | not run | not run | | | |
    """
    lines = ["| Python | PySpark | classic | Connect | Java | other packages | run on |", f"|{'---|' * 7}"]
    done = set()
    for one in results:
        done.add((minor(one.python), minor(one.pyspark)))
        packages = ", ".join(f"{name} {version}" for name, version in one.packages.items())
        cells = (one.python, one.pyspark, one.classic, one.connect, one.java, packages, one.date)
        lines.append(f"| {' | '.join(cells)} |")
    missing = [pair for pair in product(PYTHONS, SPARKS) if tuple(map(minor, pair)) not in done]
    lines += [f"| {python} | {spark} | not run | not run | | | |" for python, spark in missing]
    return "\n".join(["", *lines, "", ""])


def run_all(pairs: Iterable[tuple[str, str]]) -> str | None:
    """Run the environments for which this machine has a Python, and list the others.

    Returns
    -------
    str or None
        Why the run is no success; None if at least one environment ran, and all that ran have passed.
    """
    found = [(version, spark, find_python(version)) for version, spark in pairs]
    runnable = [(python, spark) for _, spark, python in found if python is not None]
    failed = run_some(runnable) if runnable else 0
    for version, spark, python in found:
        if python is None:
            print(
                f"Not run: Python {version} with PySpark {spark}. There is no Python {version} on this machine."
            )
    if not runnable:
        return "Nothing was run. Install a Python of these versions, on the path or with pyenv, or choose another."
    return f"{failed} of {len(runnable)} environments did not pass." if failed else None


def run_some(environments: Iterable[tuple[Path, str]]) -> int:
    """Run environments, and record each result; return how many have not passed."""
    wheel, failed = build_wheel(), 0
    for python, spark in environments:
        result = try_environment(python, spark, wheel)
        print(result)
        write_results([result])
        failed += not result.has_passed
    return failed


def main() -> None:
    """Run the environments that the user chose, or write the table."""
    parser = argparse.ArgumentParser(description="Run a program on each Python and PySpark.")
    parser.add_argument(
        "--python", action="append", choices=PYTHONS, help="only this Python; may be repeated"
    )
    parser.add_argument("--spark", action="append", choices=list(SPARKS), help="only this PySpark")
    parser.add_argument("--table", action="store_true", help="only write the table from the recorded results")
    options = parser.parse_args()
    if options.table:
        write_table()
        return
    sys.exit(run_all(product(options.python or PYTHONS, options.spark or SPARKS)))


if __name__ == "__main__":
    main()
