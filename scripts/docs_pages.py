"""Prepare the pages of the documentation site, ``python -m scripts.docs_pages build/docs/pages``.

The documents in ``docs/`` link to each other, and to files of the repository: sources, tests, the changelog. In the
repository all of these links work. A site has only pages, so this script writes a page for every file that a page
links to, and for every file that such a page links to, and points the links to these pages:

====================  =========================================================
in the repository      on the site
====================  =========================================================
``docs/x.md``         ``x.md``
another ``x.md``      ``repository/x.md``
another text file     ``repository/x.py.md``, which shows the file as code
a directory           ``repository/x/index.md``, which lists its files
``docs/x/``           its ``README.md``, with a list of its pages, which is their navigation as well
an image              the image
====================  =========================================================

The pages of such a directory are in the order of their places, which each of them has in a remark, such as
``<!-- place: 30 -->``. So a new page needs no line elsewhere.

A page with a diagram in Mermaid's language gets the script that draws it, if `scripts.fetch_mermaid` fetched it. This
script needs the standard library only, and changes nothing outside the directory that it is given.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MERMAID = ROOT / "build" / "mermaid" / "mermaid.min.js"
CODE = re.compile(r"^(```+|~~~+).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
IMAGES = {".svg", ".png"}
LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".json": "json", ".yml": "yaml", ".sql": "sql"}
PLACE = re.compile(r"^<!-- place: (\d+) -->$", re.MULTILINE)
#: What a search for anything would find among the first.
HISTORY = {"CHANGELOG.md", "CONTRIBUTING.md"}
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def is_section(root: Path, path: str) -> bool:
    """Return whether a path is a directory of documents that has a first page."""
    return path.startswith("docs/") and (root / path / "README.md").is_file()


def on_site(root: Path, path: str) -> str:
    """Return the place on the site of a file or directory of the repository."""
    inside = path.removeprefix("docs/")
    place = inside if inside != path else f"repository/{path}"
    if (root / path).is_dir():
        return f"{place}/README.md" if is_section(root, path) else f"{place}/index.md"
    return place if Path(path).suffix in IMAGES | {".md"} else f"{place}.md"


def prose(text: str) -> list[tuple[bool, str]]:
    """Split a document into prose, marked True, and blocks of code."""
    parts, end = [], 0
    for block in CODE.finditer(text):
        parts += [(True, text[end : block.start()]), (False, block.group())]
        end = block.end()
    return [*parts, (True, text[end:])]


def targets(root: Path, path: str, text: str) -> dict[str, str]:
    """Return for each link of a document that leads to the repository the file or directory that it names."""
    found = {}
    for is_prose, part in prose(text):
        for link in LINK.findall(part) if is_prose else []:
            file = link.partition("#")[0]
            name = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
            if file and not re.match(r"\w+:", link) and (root / name).exists():
                found[link] = name
    return found


def relinked(root: Path, path: str, text: str) -> str:
    """Point the links of a document to pages of the site."""
    names = targets(root, path, text)
    start = posixpath.dirname(on_site(root, path))

    def moved(link: re.Match[str]) -> str:
        if link.group() not in names:
            return link.group()
        anchor = "".join(link.group().partition("#")[1:])
        return posixpath.relpath(on_site(root, names[link.group()]), start or ".") + anchor

    return "".join(LINK.sub(moved, part) if is_prose else part for is_prose, part in prose(text))


def code_page(root: Path, path: str) -> str:
    """Show a file as code."""
    text = (root / path).read_text(encoding="utf-8")
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"{UNSEARCHED}# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def listing(root: Path, path: str) -> str:
    """List the files of a directory: documents as links with their titles, others by name."""
    lines = []
    for file in sorted((root / path).iterdir()):
        title = re.match(r"# (.*)", file.read_text(encoding="utf-8")) if file.suffix == ".md" else None
        lines.append(f"- [{title.group(1)}]({file.name})" if title else f"- `{file.name}`")
    return "\n".join([f"# {path.removeprefix('docs/')}", "", *lines, ""])


def place_of(name: str, text: str) -> int:
    """Return the place of a page in its directory."""
    if found := PLACE.search(text):
        return int(found.group(1))
    message = f"{name} has no place in the navigation: write one under its title, such as <!-- place: 30 -->"
    raise ValueError(message)


def pages_of(directory: Path) -> list[tuple[int, str, str]]:
    """Return place, title and name of each page of a directory behind its first page, in their order."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in directory.glob("*.md")}
    return sorted(
        (place_of(name, text), text.partition("\n")[0].removeprefix("# "), name)
        for name, text in texts.items()
        if name != "README.md"
    )


def contents(directory: Path) -> str:
    """List the pages of a directory for the end of its first page: the navigation is the list behind the remark."""
    lines = [f"- [{title}]({name})" for _, title, name in pages_of(directory)]
    return "\n".join(["", "## Pages", "", "<!--nav-->", "", "- [Overview](README.md)", *lines, ""])


def page(root: Path, path: str) -> str:
    """Return the text of the page for a document, a text file or a directory."""
    if (root / path).is_dir():
        return listing(root, path)
    if Path(path).suffix != ".md":
        return code_page(root, path)
    text = relinked(root, path, (root / path).read_text(encoding="utf-8"))
    text = f"{UNSEARCHED}{text}" if path in HISTORY else text
    directory, name = posixpath.split(path)
    return text + contents(root / directory) if name == "README.md" and is_section(root, directory) else text


def with_mermaid(page: str, text: str) -> str:
    """Let a page load the script that draws its diagrams; the theme looks for one that is loaded before its own."""
    if not re.search(r"^```mermaid$", text, re.MULTILINE):
        return text
    script = posixpath.relpath(MERMAID.name, posixpath.dirname(page) or ".")
    return f'{text}\n<script src="{script}"></script>\n'


def linked(root: Path, path: str) -> set[str]:
    """Return what a file or directory of the repository links to."""
    if (root / path).is_dir():
        return {f"{path}/{file.name}" for file in (root / path).glob("*.md")}
    if Path(path).suffix != ".md":
        return set()
    return set(targets(root, path, (root / path).read_text(encoding="utf-8")).values())


def write_pages(root: Path, into: Path) -> None:
    """Write the pages of all documents, and of all files that they link to, into an empty directory."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    draws = MERMAID.exists()
    for file in [*(root / "docs").glob("*.css"), *([MERMAID] if draws else [])]:
        shutil.copy(file, into)
    waiting = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")} | {
        "docs/decisions"
    }
    written: set[str] = set()
    while waiting:
        path = waiting.pop()
        written.add(path)
        target = into / on_site(root, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(path).suffix in IMAGES:
            shutil.copy(root / path, target)
        else:
            text = page(root, path)
            text = with_mermaid(on_site(root, path), text) if draws else text
            target.write_text(text, encoding="utf-8")
        waiting |= {one for one in linked(root, path) if not is_section(root, one)} - written


if __name__ == "__main__":
    write_pages(ROOT, Path(sys.argv[1]))
