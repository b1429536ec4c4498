"""The text of a file of statements: places as people count them, variables, and what is not closed."""

from __future__ import annotations

import pytest

from tablestream.errors import SqlFileError
from tablestream.sql.text import read_text


def expanded(original: str, **variables: str) -> str:
    return read_text("q.sql", original, variables)[0].expanded


def refused(original: str, **variables: str) -> str:
    with pytest.raises(SqlFileError) as found:
        read_text("q.sql", original, variables)
    return str(found.value)


def test_a_variable_has_its_value_everywhere_but_in_remarks() -> None:
    assert (
        expanded("SELECT ${n} -- ${n}\n/* ${m} */ FROM '${n}'", n="7")
        == "SELECT 7 -- ${n}\n/* ${m} */ FROM '7'"
    )


@pytest.mark.parametrize(
    ("original", "value", "read"),
    [
        ("'${v}'", "it's", r"'it\'s'"),
        ("'${v}'", r"a\b", r"'a\\b'"),
        ("'${v}'", "; DROP", "'; DROP'"),
        ('"${v}"', 'say "a"', r'"say \"a\""'),
        ("`${v}`", "a`b", "`a``b`"),
        ("${v}", "a + 'b'", "a + 'b'"),
    ],
)
def test_a_value_in_quotes_is_a_part_of_the_text_and_cannot_end_it(
    original: str, value: str, read: str
) -> None:
    text, tokens = read_text("q.sql", original, {"v": value})
    assert text.expanded == read
    if original != "${v}":
        assert [one.text for one in tokens] == [value]


def test_a_value_is_not_looked_into_again() -> None:
    assert expanded("'${a}'", a="${b}", b="x") == "'${b}'"


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGS_OF_TEST", "data/logs")
    assert expanded("'${env:LOGS_OF_TEST}/a'") == "'data/logs/a'"


def test_all_variables_without_a_value_are_told_at_once_with_their_places() -> None:
    assert refused("SELECT ${logs},\n  '${env:NOTHING_HAS_IT}', ${x}", log="a") == (
        "[TABLESTREAM_SQL_FILE] q.sql has 3 mistakes. "
        "q.sql:1:8: The variable logs has no value. Did you mean log?\n"
        "q.sql:2:4: The environment has no variable NOTHING_HAS_IT. Export it before the command.\n"
        "q.sql:2:28: The variable x has no value. Give --set x=..., or variables= of ts.sql_file."
    )


def test_places_are_those_of_the_file_before_values_stand_in_it() -> None:
    text, tokens = read_text(
        "q.sql", "a ${long} b\n${lines} c ${long}d", {"long": "x" * 9, "lines": "1\n2\n3"}
    )
    places = {one.text: text.place(one.start) for one in tokens}
    assert places["a"] == "q.sql:1:1"
    assert places["b"] == "q.sql:1:11"
    assert places["3"] == "q.sql:2:1"
    assert places["c"] == "q.sql:2:10"
    assert text.line(tokens[-1].start) == "q.sql:2"


@pytest.mark.parametrize(
    ("original", "said"),
    [
        ("SELECT 1;\n SELECT 'a FROM b;\nSELECT 2", "q.sql:2:9: What begins here has no closing '."),
        ("SELECT `a", "q.sql:1:8: What begins here has no closing `."),
        ("SELECT 1; /* a -- */ /* b\nSELECT 2", "q.sql:1:22: What begins here has no closing */."),
    ],
)
def test_what_is_not_closed_is_told_with_its_place(original: str, said: str) -> None:
    assert said in refused(original)
