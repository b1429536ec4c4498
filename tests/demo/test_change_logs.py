"""Change logs in files: written, dated, read again, and what they come to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, get_args

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.demo.change_logs import (
    MOMENT,
    ChangeLog,
    Format,
    LogSpec,
    final_table,
    final_versions,
    write_log,
)

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2013, 1, 1, tzinfo=UTC)
FORMATS = get_args(Format)


def spec(file_format: Format, parts: int = 1) -> LogSpec:
    values = {"name": pl.String(), "people": pl.Int32(), "area": pl.Float64()}
    return LogSpec("towns", "code", file_format, values, parts=parts)


def log(file_format: Format, changes: list[tuple[int, str, str | None]], parts: int = 1) -> ChangeLog:
    """Make a log of (step, key, name); no name is a delete."""
    rows = pl.DataFrame(
        {
            "code": [key for _, key, _ in changes],
            "name": [name for _, _, name in changes],
            "people": [None if name is None else number for number, (_, _, name) in enumerate(changes)],
            "area": [None if name is None else number / 3 for number, (_, _, name) in enumerate(changes)],
            "op": ["d" if name is None else "u" for _, _, name in changes],
            "changed_at": [START + timedelta(microseconds=number) for number in range(len(changes))],
            "step": [step for step, _, _ in changes],
            "part": [0] * len(changes),
        },
        schema={**spec(file_format).schema, "step": pl.Int32(), "part": pl.Int32()},
    )
    return ChangeLog(spec(file_format, parts), rows)


CHANGES = [
    (0, "a", 'Saint "Mary", by the sea'),
    (0, "b", "Boston"),
    (0, "c", "\\N"),
    (2, "a", None),
    (2, "b", "New Boston"),
    (2, "d", None),
    (2, "c", None),
    (2, "c", "Ca\u0301diz"),
]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_log_comes_to_the_last_row_of_each_key_that_is_no_delete(
    tmp_path: Path, file_format: Format
) -> None:
    write_log(log(file_format, CHANGES), tmp_path / "towns", steps=3)
    table = final_table(spec(file_format), tmp_path / "towns").sort("code")
    assert table.rows() == [("b", "New Boston", 4, 4 / 3), ("c", "Ca\u0301diz", 7, 7 / 3)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_name_with_quotes_commas_and_backslashes_survives(tmp_path: Path, file_format: Format) -> None:
    write_log(log(file_format, CHANGES[:3]), tmp_path / "towns", steps=1)
    names = final_table(spec(file_format), tmp_path / "towns").sort("code")["name"]
    assert names.to_list() == ['Saint "Mary", by the sea', "Boston", "\\N"]


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_step_has_its_files_and_later_ones_are_newer(tmp_path: Path, file_format: Format) -> None:
    files = write_log(log(file_format, CHANGES, parts=2), tmp_path / "towns", steps=3)
    assert [file.name for file in files] == [
        f"step-{step:03}-part-{part}.{file_format}" for step in range(3) for part in range(2)
    ]
    modified = [file.stat().st_mtime for file in files]
    assert modified == sorted(set(modified))


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_empty_log_comes_to_an_empty_table_of_the_same_columns(
    tmp_path: Path, file_format: Format
) -> None:
    write_log(log(file_format, []), tmp_path / "towns", steps=2)
    table = final_table(spec(file_format), tmp_path / "towns")
    assert table.is_empty()
    assert table.columns == ["code", "name", "people", "area"]


@given(
    changes=st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from(["x", "y"])), max_size=12),
    steps=st.integers(1, 4),
    file_format=st.sampled_from(FORMATS),
)
def test_however_it_is_cut_a_log_comes_to_what_a_dict_does(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[str, str | None]],
    steps: int,
    file_format: Format,
) -> None:
    told = [(number * steps // len(changes), key, name) for number, (key, name) in enumerate(changes)]
    state: dict[str, str] = {}
    for key, name in changes:
        state.pop(key, None)
        if name is not None:
            state[key] = name
    directory = tmp_path_factory.mktemp("log") / "towns"
    write_log(log(file_format, told), directory, steps)
    table = final_table(spec(file_format), directory)
    assert dict(table.select("code", "name").rows()) == state


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_versions_of_a_key_are_its_last_rows_at_each_moment(tmp_path: Path, file_format: Format) -> None:
    told = [(0, "b", "x"), (0, "a", "old"), (1, "a", "late"), (1, "a", None), (1, "a", "new"), (2, "b", None)]
    moments = [START + timedelta(days=day) for day in (5, 5, 3, 3, 5, 9)]
    towns = log(file_format, told)
    rows = towns.rows.with_columns(changed_at=pl.Series(moments, dtype=MOMENT))
    write_log(replace(towns, rows=rows), tmp_path / "towns", steps=3)
    versions = final_versions(spec(file_format), tmp_path / "towns")
    assert versions.select("code", "changed_at", "name").rows() == [
        ("a", moments[2], None), ("a", moments[1], "new"), ("b", moments[0], "x"), ("b", moments[5], None),
    ]  # fmt: skip


def test_the_schema_is_given_to_spark_in_its_words() -> None:
    described = LogSpec("t", "k", "json", {"at": MOMENT, "n": pl.Int64()}, pl.Int32())
    assert described.ddl == "k INT, at TIMESTAMP, n BIGINT, op STRING, changed_at TIMESTAMP"
