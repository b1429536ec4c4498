"""The site builds strictly, has every public name, its links lead somewhere, and a browser shows it without faults."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from os.path import normpath
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import tablestream
from scripts.docs_pages import MERMAID, pages_of, with_mermaid, write_pages
from tests.look.browser import faults_of, needed_browser

ROOT = Path(__file__).parent.parent
CONFIG = (ROOT / "zensical.toml").read_text(encoding="utf-8")


def nav_pages(nav: Any) -> list[str]:
    """Return the pages of a navigation, at any depth."""
    if isinstance(nav, str):
        return [nav]
    return [page for one in (nav.values() if isinstance(nav, dict) else nav) for page in nav_pages(one)]


def build(directory: Path) -> subprocess.CompletedProcess[str]:
    """Build the pages of a directory strictly, with the repository's configuration."""
    config = CONFIG.replace("build/docs/", "").replace('paths = ["src"]', f'paths = ["{ROOT}/src"]')
    (directory / "zensical.toml").write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the site, which was built without a warning."""
    pytest.importorskip("zensical", reason="the extra `docs` is not installed")
    directory = tmp_path_factory.mktemp("site")
    write_pages(ROOT, directory / "pages")
    built = build(directory)
    assert built.returncode == 0, built.stdout + built.stderr
    return directory / "site"


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "api.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'id="tablestream\.(\w+)"', text))
    assert set(tablestream.__all__) - shown == set()
    assert 'id="tablestream.Table.join"' in text
    assert 'id="tablestream.functions.sum"' in text


def test_the_site_has_a_page_for_a_source_that_a_page_links_to(site: Path) -> None:
    (link, *_) = re.findall(
        r'href="\.\./(repository/[^"]*order\.py[^"]*)"', (site / "semantics/order-and-time.html").read_text()
    )
    text = re.sub(
        "<[^>]+>", "", (site / link).read_text(encoding="utf-8")
    )  # highlighted code is full of tags
    assert (ROOT / "src/tablestream/runtime/order.py").read_text(encoding="utf-8").splitlines()[0].strip(
        '"'
    ) in text


def broken_links(site: Path) -> list[str]:
    """Return the links, pictures and scripts of a site's pages that lead nowhere in it."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for page, text in texts.items()}
    broken = []
    for page, text in texts.items():
        for link in set(re.findall(r'\b(?:href|src)="([^"]*)"', text)):
            if re.match(r"\w+:", link):
                continue
            file, _, anchor = unquote(link).partition("#")
            base = site if file.startswith("/") else page.parent
            target = Path(normpath(base / file.lstrip("/"))) if file else page
            if not target.exists() or (anchor and anchor not in anchors.get(target, set())):
                broken.append(f"{page.relative_to(site)}: {link}")
    return broken


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert broken_links(site) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="one"><a href="#one"><a href="#two"><a href="b.html"><a href="a.html#two"><img src="c.png">'
        '<a href="https://x.example/#y"><a href="a.html"><a href="/a.html#one">'
    )
    found = broken_links(tmp_path)
    assert sorted(found) == [f"a.html: {link}" for link in ("#two", "a.html#two", "b.html", "c.png")]


def test_no_page_of_the_site_has_a_fault(site: Path) -> None:
    """But those that only show a file of the repository: they are all alike, and one is enough."""
    program = needed_browser()
    if not MERMAID.exists():
        pytest.skip("the script that draws diagrams is missing: `make mermaid` fetches it")
    pages = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    files = [page for page in pages if page.startswith("repository/")]
    looked_at = sorted(set(pages) - set(files)) + files[:1]
    found = faults_of(site, looked_at, program)
    assert set(found) == set(looked_at)
    assert {page: faults for page, faults in found.items() if faults} == {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["[a](nowhere.md)", "[a](index.md#nowhere)", "::: tablestream.nowhere"])
def test_a_fault_ends_the_strict_build(tmp_path: Path, fault: str) -> None:
    pytest.importorskip("zensical", reason="the extra `docs` is not installed")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# One\n", encoding="utf-8")
    assert build(tmp_path).returncode == 0
    (pages / "index.md").write_text(f"# One\n\n{fault}\n", encoding="utf-8")
    assert build(tmp_path).returncode != 0


def test_every_document_is_in_the_navigation_and_nothing_else(tmp_path: Path) -> None:
    listed = nav_pages(tomllib.loads(CONFIG)["project"]["nav"])
    documents = {page.name for page in (ROOT / "docs").glob("*.md")}
    documents |= {f"{page.parent.name}/" for page in (ROOT / "docs").glob("*/*.md")} - {"decisions/"}
    assert documents - set(listed) == set()
    assert len(listed) == len(set(listed))
    write_pages(ROOT, tmp_path / "pages")
    assert [page for page in listed if not (tmp_path / "pages" / page).exists()] == []


def test_a_directory_of_the_navigation_has_its_pages_by_their_places(tmp_path: Path) -> None:
    """A new page needs no line elsewhere."""
    directory = tmp_path / "repository" / "docs" / "rules"
    directory.mkdir(parents=True)
    (tmp_path / "repository" / "docs" / "decisions").mkdir()
    (directory / "README.md").write_text("# Rules\n\n[a](a.md)\n")
    (directory / "a.md").write_text("# Joins\n<!-- place: 20 -->\n\n[rules](./) [self](../rules/)\n")
    (directory / "z.md").write_text("# Sources\n<!-- place: 3 -->\n")
    pages = tmp_path / "pages"
    write_pages(tmp_path / "repository", pages)
    assert sorted(page.relative_to(pages).as_posix() for page in pages.rglob("*.md")) == [
        "decisions/index.md",
        "rules/README.md",
        "rules/a.md",
        "rules/z.md",
    ]
    assert (pages / "rules" / "README.md").read_text() == (
        "# Rules\n\n[a](a.md)\n\n## Pages\n\n<!--nav-->\n\n"
        "- [Overview](README.md)\n- [Sources](z.md)\n- [Joins](a.md)\n"
    )
    assert "[rules](README.md) [self](README.md)" in (pages / "rules" / "a.md").read_text()


def test_a_page_without_a_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n")
    with pytest.raises(ValueError, match="has no place in the navigation"):
        pages_of(tmp_path)


def test_no_two_pages_of_a_directory_have_one_place() -> None:
    for first in (ROOT / "docs").glob("*/README.md"):
        places = [place for place, _, _ in pages_of(first.parent)]
        assert len(places) == len(set(places)), first


def test_the_navigation_of_the_site_has_every_page_of_its_directories(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    named = [page for first in (ROOT / "docs").glob("*/README.md") for page in first.parent.glob("*.md")]
    places = {f"{page.parent.name}/{page.stem.replace('README', 'index')}.html" for page in named}
    assert len(places) > 30
    assert {place for place in places if f'href="./{place}" class="md-nav__link"' not in text} == set()


def test_links_lead_to_pages_and_code_is_left_alone(tmp_path: Path) -> None:
    repository, pages = tmp_path / "repository", tmp_path / "pages"
    (repository / "docs" / "decisions").mkdir(parents=True)
    (repository / "src").mkdir()
    (repository / "docs" / "decisions" / "001-one.md").write_text("# 001: One\n\n[back](../a.md#two)\n")
    (repository / "docs" / "a.md").write_text(
        "# A\n\n[b](../src/b.py) [c](decisions/) [d](https://d.example) [e](../E.md)\n\n"
        "```text\n[b](../src/b.py)\n```\n"
    )
    (repository / "src" / "b.py").write_text('"""Like ```this```."""\n')
    (repository / "E.md").write_text("# E\n\n[a](docs/a.md) [f](docs/f.svg)\n")
    (repository / "docs" / "f.svg").write_text("<svg/>")
    write_pages(repository, pages)
    assert (pages / "a.md").read_text() == (
        "# A\n\n[b](repository/src/b.py.md) [c](decisions/index.md) [d](https://d.example) [e](repository/E.md)\n\n"
        "```text\n[b](../src/b.py)\n```\n"
    )
    assert (pages / "repository" / "E.md").read_text() == "# E\n\n[a](../a.md) [f](../f.svg)\n"
    assert (pages / "decisions" / "index.md").read_text() == "# decisions\n\n- [001: One](001-one.md)\n"
    assert (pages / "decisions" / "001-one.md").read_text() == "# 001: One\n\n[back](../a.md#two)\n"
    assert "# src/b.py\n\n````python\n" in (pages / "repository" / "src" / "b.py.md").read_text()
    assert (pages / "f.svg").exists()


def test_a_page_with_a_diagram_loads_the_script_that_draws_it() -> None:
    text = "# A\n\n```mermaid\nflowchart TD\n```\n"
    assert with_mermaid("a.md", text) == text + '\n<script src="mermaid.min.js"></script>\n'
    assert 'src="../../mermaid.min.js"' in with_mermaid("repository/src/a.md", text)
    assert with_mermaid("a.md", "# A\n") == "# A\n"
