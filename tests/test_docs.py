"""What the documents name exists, and they name what users meet: links, tests, error codes, reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark import errors as pyspark_errors

from tablestream import errors
from tablestream.base import data_text
from tablestream.connectors.debezium import foreign
from tablestream.connectors.postgres import sink as postgres
from tablestream.operators import deduplicate, reasons
from tablestream.operators.reduce import heads, parts
from tablestream.spark import options, round_worker, session

ROOT = Path(__file__).parent.parent
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(one for one in (ROOT / "docs").rglob("*.md") if one.parent != DECISIONS)]
)
#: Names that stand for any page.
NO_PAGES = {f"docs/{name}.md" for name in ("a", "b", "x", "rules")}
WAY_IN = ["README.md", "docs/index.md", "docs/install.md", "docs/concepts.md"]
#: A reader comes from one of these.
GUIDES = ["kafka-streams", "from-merge", "from-auto-cdc", "from-flink-sql", "from-incremental-views"]
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """Return a page as the repository names it."""
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return CODE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere; those to other sites are left out."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if link.startswith("http"):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", [*PAGES, *sorted(DECISIONS.glob("*.md"))], ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_every_page_that_the_code_names_is_there() -> None:
    """Also those in the messages of errors, and in docstrings."""
    files = [
        one for folder in ("src", "tests", "scripts", "examples") for one in (ROOT / folder).rglob("*.py")
    ]
    named = re.findall(r"\bdocs/[\w/-]+\.md\b", "".join(file.read_text(encoding="utf-8") for file in files))
    assert len(named) > 20
    assert {page for page in named if not (ROOT / page).exists()} - NO_PAGES == set()


@pytest.mark.parametrize(
    "page", [one for one in PAGES if one.parent != ROOT and one.name != "licences.md"], ids=name_of
)
def test_no_page_is_a_wall(page: Path) -> None:
    """Code counts as well. What is too long is divided, or goes to the page where its reader looks for it."""
    assert len(page.read_text(encoding="utf-8").split()) <= 3_000


@pytest.mark.parametrize(
    ("pages", "most"),
    [
        (["README.md"], 900),
        (["docs/performance.md"], 2_500),
        (WAY_IN, 4_300),
        *(([*WAY_IN, f"docs/{guide}.md"], 6_000) for guide in GUIDES),
    ],
)
def test_the_way_in_and_the_page_about_performance_stay_short(pages: list[str], most: int) -> None:
    """Code counts as well. What is too much goes to the page where its reader looks for it."""
    assert sum(len((ROOT / page).read_text(encoding="utf-8").split()) for page in pages) <= most


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[a](#one-two) [b](#three) [c](page.md) [d](other.md) [e](https://x.example)\n"
    )
    assert broken_links(page) == ["#three", "other.md"]


def test_every_test_that_a_page_names_exists() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    there = set(re.findall(r"def (test_\w+)\(", tests)) | {
        path.stem for path in (ROOT / "tests").rglob("*.py")
    }
    for page in PAGES:
        assert set(re.findall(r"`(test_\w+)`", prose(page))) - there == set(), page.name


def test_every_error_is_in_the_list() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    codes = {one.code for one in classes if issubclass(one, errors.TablestreamError) and "code" in vars(one)}
    listed = re.findall(
        r"^\| \[`(TABLESTREAM_\w+)`\]", prose(ROOT / "docs" / "errors" / "README.md"), re.MULTILINE
    )
    assert set(listed) == codes - {errors.TablestreamError.code}
    assert len(listed) == len(set(listed))


def test_the_list_of_errors_has_the_classes_of_each_code() -> None:
    """That of the library, and the closest one of PySpark, which callers may catch."""
    row = re.compile(r"^\| \[`(TABLESTREAM_\w+)`\]\(\w+\.md#\w+\) \| `(\w+)`, `(\w+)` \|", re.MULTILINE)
    listed = row.findall(prose(ROOT / "docs" / "errors" / "README.md"))
    assert len(listed) > 20
    for code, name, closest in listed:
        assert getattr(errors, name).code == code
        assert issubclass(getattr(errors, name), getattr(pyspark_errors, closest)), name


@pytest.mark.parametrize(
    ("page", "said", "number"),
    [
        ("semantics/README", r"`shards=`, default (\d+), fixed", options.DEFAULT_SHARDS),
        ("operations", r"shards \| (\d+) by default", options.DEFAULT_SHARDS),
        (
            "semantics/foreign-key-join",
            r"shard's copy is larger than (\d+) MB",
            round_worker._LARGE_COPY_BYTES >> 20,
        ),
        ("semantics/groups", r"a group with more than ([\d,]+) rows", heads.SMALL_GROUP),
        ("semantics/groups", r"parts of about (\d+) MiB", parts.PART_BYTES >> 20),
        ("semantics/postgresql", r"task has more than (\d+) KiB", postgres.INLINE_BYTES >> 10),
        ("semantics/dropped-records", r"every value of a record to (\d+) characters", data_text.LIMIT),
        ("semantics/materialize", r"minBatchesToRetain` \((\d+) unless", session.RETAINED_MICRO_BATCHES),
        ("databases/connector", r"an exponent beyond ([\d,]+),", foreign.MAX_EXPONENT),
        ("kafka", r"\(up to ([\d,]+) ranges\)", deduplicate.MOST_SPANS),
    ],
)
def test_a_number_on_a_page_is_that_of_the_code(page: str, said: str, number: int) -> None:
    text = " ".join(prose(ROOT / "docs" / f"{page}.md").split())
    assert [one.replace(",", "") for one in re.findall(said, text)] == [str(number)]


def test_every_reason_is_explained() -> None:
    page = "".join(prose(one) for one in PAGES)
    names = set(reasons.REASONS)
    assert {name for name in names if name not in page} == set()
    assert "filled <column>" in page
