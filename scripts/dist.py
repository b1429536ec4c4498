"""Build the sdist and the wheel into a directory, and run the wheel, ``python -m scripts.dist dist``.

1. Build the sdist, and the wheel from the sdist, each in an environment of its own.
2. Look at what is in them, and for links of the long description that a package index cannot follow.
3. Install the wheel into an empty environment, with the core's dependencies only, and run a join in an empty directory.
   Then add the extra `cli`, and print the version.

It needs the package index. What is in the files is also checked by a quick test, which builds them without the index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "examples" / "ten_lines.py"
LAST_CHANGE = "|1          |NULL  |NULL  |NULL |NULL  |delete      |2024-01-02 09:06:00|"
#: What the sdist has at its top: all that the tests need, and what the build adds.
SDIST = {
    *("src", "tests", "docs", "examples", "scripts", "benchmarks", "requirements"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "zensical.toml"),
    *("pyproject.toml", "PKG-INFO", ".gitignore"),
}
#: Files of the package that are no modules.
DATA = {"py.typed", "spark/log4j2.properties"}
#: The targets of links and images, as Markdown and HTML write them.
TARGETS = re.compile(r"""\]\(([^)\s]+)\)|^\[[^\]]+\]:\s*(\S+)|\b(?:href|src)=["']([^"']+)""", re.MULTILINE)


def problems_of_wheel(wheel: Path, package: Path = ROOT / "src" / "tablestream") -> list[str]:
    """Return a line for each file that a wheel should not have, or lacks."""
    sources = {path.relative_to(package).as_posix() for path in package.rglob("*.py")} | DATA
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    info = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    expected = {f"tablestream/{name}" for name in sources} | {f"{info}/{name}" for name in about}
    return _differences("the wheel", names, expected)


def problems_of_sdist(sdist: Path) -> list[str]:
    """Return a line for each name at the top of an sdist that it should not have, or lacks."""
    with tarfile.open(sdist) as opened:
        paths = [PurePosixPath(name) for name in opened.getnames()]
    found = _differences("the sdist", {path.parts[1] for path in paths if len(path.parts) > 1}, SDIST)
    return found + [f"the sdist has {path}" for path in paths if path.suffix in {".pyc", ".jar", ".whl"}]


def problems_of_description(wheel: Path) -> list[str]:
    """Say which links of a wheel's long description lead nowhere on a package index: those without an address."""
    description = str(_metadata(wheel).get_payload())
    targets = [next(filter(None, found)) for found in TARGETS.findall(description)]
    dead = [target for target in targets if not target.startswith(("https://", "http://"))]
    return [f"the long description links to {target}" for target in dead] + (
        [] if description.strip() else ["the wheel has no long description"]
    )


def _differences(what: str, found: set[str], expected: set[str]) -> list[str]:
    return [f"{what} has {name}" for name in sorted(found - expected)] + [
        f"{what} lacks {name}" for name in sorted(expected - found)
    ]


def build(directory: Path) -> tuple[Path, Path]:
    """Build into a directory, which has nothing but what an earlier build left; return the sdist and the wheel."""
    others = [one.name for one in directory.glob("*") if not one.name.endswith((".whl", ".tar.gz"))]
    if others:
        raise SystemExit(f"{directory} has other files than an earlier build's: {', '.join(sorted(others))}.")
    shutil.rmtree(directory, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", directory, ROOT)
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return sdist, wheel


def run_wheel(wheel: Path, directory: Path) -> None:
    """Install a wheel into an empty environment, and run a join and the command line there."""
    python, here = directory / "venv" / "bin" / "python", directory / "empty"
    here.mkdir()
    shutil.copy(PROGRAM, directory / "program.py")
    _run(sys.executable, "-m", "venv", directory / "venv")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*install, wheel)
    _run(python, "-m", "pip", "check")
    _expect(LAST_CHANGE, _run(python, directory / "program.py", here / "data", cwd=here))
    _expect(f"tablestream {_metadata(wheel)['Version']}", _installed_command(install, wheel, python, here))


def _installed_command(install: tuple[str | Path, ...], wheel: Path, python: Path, here: Path) -> str:
    """Add the extra of the command line, and return what its option ``--version`` prints."""
    _run(*install, f"{wheel}[cli]")
    return _run(python.with_name("tablestream"), "--version", cwd=here)


def _metadata(wheel: Path) -> Message:
    name = "-".join(wheel.name.split("-")[:2])
    with zipfile.ZipFile(wheel) as opened:
        return HeaderParser().parsestr(opened.read(f"{name}.dist-info/METADATA").decode())


def _expect(line: str, printed: str) -> None:
    if line not in printed.splitlines():
        sys.exit(f"The program did not print: {line}")


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command without the sources on the path; return what it printed, or end with its exit code."""
    print("$", *command, flush=True)
    dropped = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def main() -> None:
    """Build, look and run."""
    if len(sys.argv) != 2:
        sys.exit("Give the directory to build into: python -m scripts.dist dist")
    sdist, wheel = build(Path(sys.argv[1]).resolve())
    problems = problems_of_sdist(sdist) + problems_of_wheel(wheel) + problems_of_description(wheel)
    if problems:
        sys.exit("\n".join(problems))
    with TemporaryDirectory(prefix="tablestream-dist-") as directory:
        run_wheel(wheel, Path(directory))
    print(f"{sdist.name} and {wheel.name} are good.")


if __name__ == "__main__":
    main()
