"""CSV as Python's ``csv``, pandas and RFC 4180 write it, read by `from_files` without options."""

from __future__ import annotations

import csv
from itertools import count
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablestream.connectors.files.rows import csv_defaults
from tablestream.connectors.files.source import from_files
from tablestream.connectors.source import CORRUPT_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    Cells = Sequence[tuple[int, str | None, str | None]]
    Writer = Callable[[Path, Cells], None]
    Read = Callable[..., list[Row]]

COLUMNS = "id INT, a STRING, b STRING"
AWKWARD = [
    'a "b" c', '"', '""', "\\", "a\\", '\\"', "a\nb", "a\r\nb", "a\rb", "\n", "\r\n", " a ", "\t", "#x", "null",
    "a,b", ",", '"a', 'a"', "é", "\u2028", "\x85", "\x0b", "\x1c", "'x'", "=1", "1", "-", "\\N", "NaN", "\ufeffx",
    "\x00", '\x00"', '"\x00,', '\x00""\x00', "\x00\n",
]  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
anything = st.none() | st.sampled_from(AWKWARD) | texts | st.text(' ,"\\\r\na', max_size=5)


@pytest.fixture(scope="module")
def read(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Read all files of a directory once."""

    def run(directory: Path, columns: str = COLUMNS, **arguments: object) -> list[Row]:
        rows: list[Row] = []
        frame = from_files(spark, directory, "csv", columns, **arguments)  # type: ignore[arg-type]
        writer = frame.writeStream.foreachBatch(lambda part, _: rows.extend(part.collect()))
        place = str(tmp_path_factory.mktemp("checkpoint"))
        started = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        started.awaitTermination()
        return rows

    return run


def by_csv(*, header: bool = False, **dialect: object) -> Writer:
    def write(file: Path, rows: Cells) -> None:
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, **dialect)  # type: ignore[arg-type]
            if header:
                writer.writerow(("id", "a", "b"))
            writer.writerows(rows)

    return write


def by_pandas(**options: object) -> Writer:
    def write(file: Path, rows: Cells) -> None:
        pd.DataFrame(rows, columns=["id", "a", "b"], dtype=object).to_csv(file, index=False, **options)

    return write


HEADLESS: list[Writer] = [
    by_csv(),  # lines end with \r\n
    by_csv(lineterminator="\n"),
    by_csv(quoting=csv.QUOTE_ALL),
    by_csv(quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n"),
    by_pandas(header=False),
    by_pandas(header=False, lineterminator="\r\n"),
]
WITH_HEADER: list[Writer] = [
    by_csv(header=True, lineterminator="\n"),
    by_pandas(),
    by_pandas(quoting=csv.QUOTE_ALL),
]


def numbered(cells: Sequence[tuple[str | None, str | None]], numbers: count[int]) -> Cells:
    return [(next(numbers), a, b) for a, b in cells]


@settings(max_examples=2)
@given(st.lists(st.tuples(anything, anything), min_size=40, max_size=60))
def test_what_pythons_csv_and_pandas_write_is_read_as_it_was(
    read: Read, tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str | None, str | None]]
) -> None:
    known = [(one, two) for one in AWKWARD for two in (one, "z")]
    # A carriage return that ends a row's last text belongs to the line end (see the next test but one).
    cells = [(a, None if b is not None and b.endswith("\r") else b) for a, b in known + cells]
    for writers, options in ((HEADLESS, None), (WITH_HEADER, {"header": True})):
        directory, numbers = tmp_path_factory.mktemp("log"), count()
        wanted: dict[int, tuple[str | None, str | None]] = {}
        for number, write in enumerate(writers):
            rows = numbered(cells, numbers)
            write(directory / f"{number}.csv", rows)
            wanted |= {number: (a, b) for number, a, b in rows}
        found = read(directory, options=options)
        assert [row[CORRUPT_RECORD] for row in found if row[CORRUPT_RECORD] is not None] == []
        got = {row.id: (row.a, row.b) for row in found}
        assert len(found) == len(wanted)
        # Writers do not tell null from an empty text.
        assert {one: tuple(text or None for text in pair) for one, pair in got.items()} == {
            one: tuple(text or None for text in pair) for one, pair in wanted.items()
        }


def test_null_and_an_empty_text_are_told_apart_by_quotes(read: Read, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    (directory / "1.csv").write_bytes(b'1,,""\r\n"2","",\r\n"",null,NULL\r\n')
    rows = read(directory)
    assert [tuple(row) for row in rows] == [
        (1, None, "", None),
        (2, "", None, None),
        (None, "null", "NULL", None),
    ]
    (again,) = read(directory, "id INT, a STRING, b STRING", options={"nullValue": "null"})[2:]
    assert tuple(again) == (None, None, "NULL", None)


@pytest.mark.exhaustive
def test_line_ends_of_every_kind_are_read(read: Read, tmp_path: Path) -> None:
    r"""What the page on reading files says of blank lines, of \r\n within quotes, and of a last carriage return."""
    directory = tmp_path / "log"
    directory.mkdir()
    (directory / "1.csv").write_bytes(b'1,"a\r\nb",c\r\n\r\n2,x,"y\r\nz"\r\n3,,\r\n\n4,p,"q\r"\r\n')
    assert [tuple(row) for row in read(directory)] == [
        (1, "a\r\nb", "c", None), (2, "x", "y\r\nz", None), (3, None, None, None), (4, "p", "q", None),
    ]  # fmt: skip
    (directory / "1.csv").write_bytes(b'id,a,b\r\n1,"a\r\nb","c\n"\r\n\r\n2,,"d\r"\r\n')
    rows = read(directory, options={"header": True})
    assert [tuple(row) for row in rows] == [(1, "a\nb", "c\n", None), (2, None, "d\r", None)]
    (directory / "1.csv").write_bytes(b"a\r\n\r\nb\r\n")
    assert [row.a for row in read(directory, "a STRING")] == ["a", "b"]
    (directory / "1.csv").write_bytes(b"1,a,b\r2,c,d\r")
    assert [row.id for row in read(directory, options={"lineSep": "\r"})] == [1, 2]


@pytest.mark.exhaustive
def test_an_open_quote_reaches_to_the_end_of_the_file_and_lacks_fields(read: Read, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    (directory / "1.csv").write_text('1,a,b\n2,"open,b\n3,c,d\n')
    assert [row[CORRUPT_RECORD] for row in read(directory, mode="drop")] == [None, '2,"open,b\n3,c,d']


def test_options_of_the_user_win(read: Read, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    (directory / "1.csv").write_text("1;'a\\'b';c\\\n2;d;e\n")
    rows = read(directory, options={"sep": ";", "quote": "'", "ESCAPE": "\\", "multiline": False})
    assert [tuple(row) for row in rows] == [(1, "a'b", "c\\", None), (2, "d", "e", None)]
    (directory / "1.csv").write_text("1;02.01.2024;1,5\n2;2024-01-02;x\n3;03.01.2024;2,005\n")
    options = {"sep": ";", "dateFormat": "dd.MM.yyyy", "locale": "de"}
    rows = read(directory, "id INT, a DATE, b DECIMAL(4,2)", options=options)
    assert [str(row.a) for row in rows] == ["2024-01-02", "None", "2024-01-03"]
    assert [str(row[CORRUPT_RECORD])[:12] for row in rows] == ["None", "2;2024-01-02", "3;2024-01-03"]
    assert str(rows[0].b) == "1.50"


@pytest.mark.exhaustive
def test_another_quote_is_doubled_as_well(read: Read, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    cells = [(0, "it's", '"'), (1, "'", "a\"'\n"), (2, '"x"', "''"), (3, "\x00'", "z")]
    by_csv(quotechar="'", lineterminator="\n")(directory / "1.csv", cells)
    rows = read(directory, options={"quote": "'"})
    assert [tuple(row) for row in rows] == [(*cell, None) for cell in cells]
    (directory / "1.csv").write_text("0,'it''s'\n")
    (row,) = read(directory, "id INT, a INT", options={"quote": "'"}, mode="drop")
    assert row[CORRUPT_RECORD] == "0,'it''s'"
    assert csv_defaults({"quote": ""})["escape"] == '"'


@pytest.mark.parametrize("given", [{"header": "true"}, {"linesep": "\r\n"}, {"multiline": False}])
def test_a_line_end_is_set_only_where_spark_would_guess_it(given: dict[str, str | bool]) -> None:
    assert csv_defaults({})["lineSep"] == "\n"
    assert "lineSep" not in csv_defaults(given)
