"""The wheel has the package and nothing else, and the sdist builds the same wheel.

`make dist` also installs the wheel, and runs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from importlib.util import find_spec
from pathlib import Path

import pytest

import tablestream
from scripts.dist import problems_of_description, problems_of_sdist, problems_of_wheel

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling, of the extra `dev`, is not installed"
)


def built(source: Path, into: Path, *targets: str) -> None:
    """Build with this environment's hatchling, which needs no package index."""
    wanted = [option for target in targets for option in ("--target", target)]
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(into), *wanted]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=600)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the wheel and the sdist."""
    directory = tmp_path_factory.mktemp("dist")
    built(ROOT, directory, "sdist", "wheel")
    return directory


def only(directory: Path, pattern: str) -> Path:
    """Return the one file of a pattern."""
    (found,) = directory.glob(pattern)
    return found


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_files_have_all_that_they_should_and_nothing_else(dist: Path) -> None:
    assert problems_of_wheel(only(dist, "*.whl")) == []
    assert problems_of_sdist(only(dist, "*.tar.gz")) == []


def test_the_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(only(dist, "*.tar.gz")) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it from 3.11.4
        opened.extractall(tmp_path)  # noqa: S202 - it was built above
    built(only(tmp_path, "tablestream-*"), tmp_path / "again", "wheel")
    assert contents(only(tmp_path / "again", "*.whl")) == contents(only(dist, "*.whl"))


def test_the_wheel_says_what_it_is(dist: Path) -> None:
    files = contents(only(dist, "*.whl"))
    info = f"tablestream-{tablestream.__version__}.dist-info"
    metadata = HeaderParser().parsestr(files[f"{info}/METADATA"].decode())
    assert metadata["Version"] == tablestream.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"tablestream = tablestream.cli:main" in files[f"{info}/entry_points.txt"]


def test_the_long_description_has_no_link_that_only_the_repository_can_follow(dist: Path) -> None:
    """The files that it names in their place are in the sdist."""
    from scripts.long_description import long_description

    assert problems_of_description(only(dist, "*.whl")) == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", readme)}
    with tarfile.open(only(dist, "*.tar.gz")) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    files = names | {f"{parent}/" for name in names for parent in Path(name).parents}
    shown = long_description(readme)
    assert linked
    assert {file for file in linked if f"`{file}`" not in shown or file not in files} == set()


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("[a](docs/a.md#b)", "docs/a.md#b"),
        ("![a](docs/a.svg)", "docs/a.svg"),
        ('<img src="docs/a.svg">', "docs/a.svg"),
        ("[a][b]\n\n[b]: docs/b.md", "docs/b.md"),
        ("[a](#part)", "#part"),
    ],
)
def test_a_dead_link_of_the_long_description_is_found(tmp_path: Path, text: str, dead: str) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.writestr("x-1.dist-info/METADATA", f"Name: x\n\n[a](https://a.example) {text}\n")
    assert problems_of_description(wheel) == [f"the long description links to {dead}"]


def test_an_empty_long_description_is_found(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.writestr("x-1.dist-info/METADATA", "Name: x\n\n")
    assert problems_of_description(wheel) == ["the wheel has no long description"]


def test_code_and_addresses_of_the_readme_stay_and_links_to_files_become_their_names() -> None:
    from scripts.long_description import long_description

    code = "```python\nf = d[a](x.md)\n```"
    readme = f"# A\n\n{code}\n[x.md](x.md), [`x.md`](x.md) ![a\npicture](p.svg) [b](https://b.example)"
    _, text = long_description(readme).split(code)
    assert text == "\n`x.md`, `x.md` a\npicture (`p.svg`) [b](https://b.example)"
    assert code in long_description(readme)


def test_a_file_too_much_and_one_that_is_missing_are_found(dist: Path, tmp_path: Path) -> None:
    files = contents(only(dist, "*.whl"))
    planted = tmp_path / only(dist, "*.whl").name
    with zipfile.ZipFile(planted, "w") as opened:
        for name, data in files.items():
            if name != "tablestream/py.typed":
                opened.writestr(name, data)
        opened.writestr("tests/test_x.py", b"")
    assert problems_of_wheel(planted) == [
        "the wheel has tests/test_x.py",
        "the wheel lacks tablestream/py.typed",
    ]
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as sdist:
        sdist.add(__file__, "tablestream-1/src/x.jar")
    assert problems_of_sdist(tmp_path / "x.tar.gz")[-1] == "the sdist has tablestream-1/src/x.jar"
    assert "the sdist lacks LICENSE" in problems_of_sdist(tmp_path / "x.tar.gz")
