"""Text tables: what is written is what is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.errors import ArgumentError
from tablestream.testing.notation import parsed, shown

TEXTS = st.one_of(st.none(), st.sampled_from(["null", "", "a | b", '"', ' "x" ', "\n", "--", "|"]), st.text())


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[TEXTS] * n), min_size=1)))
def test_a_table_that_is_written_is_read_back(rows: list[tuple[str | None, ...]]) -> None:
    names = tuple(f"c{number}" for number in range(len(rows[0])))
    assert parsed(shown(names, rows)) == (names, rows)


def test_rulings_outer_bars_and_empty_cells() -> None:
    text = """
    | id | name |
    |----|------|
    | 1  |      |
    | -  | x"y  |
    """
    assert parsed(text) == (("id", "name"), [("1", None), ("-", 'x"y')])


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no header"), ("a | b\n1", "1 cells"), ("a\n1 | 2", "2 cells"), ('a\n"x', "begins with a quote")],
)
def test_what_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        parsed(text)
