"""The clauses of a query, with their places; no Spark."""

from __future__ import annotations

from tablestream.sql.clauses import Placed, place_of
from tablestream.sql.parse import parsed
from tablestream.sql.text import Text, read_text

QUERY = """
SELECT p.id, count(*) AS n
FROM (SELECT id, k FROM a WHERE k > 3) p, c
  LEFT JOIN b ON b.k = p.k   -- the from of another
WHERE EXISTS (SELECT 1 FROM c) AND p.id = c.id GROUP BY p.id
HAVING count(*) > 1 ORDER BY n LIMIT 3
"""


def placed(text: str) -> Placed:
    return Placed.of(parsed(text)[0], Text("", text, text), "q.py:1")


def shown(one: Placed) -> list[str]:
    return [f"{clause.place} {clause.text}" for clause in one.clauses.clauses]


def test_each_clause_has_its_place_and_the_beginning_of_its_text() -> None:
    assert shown(placed(QUERY)) == [
        "2:1 SELECT p.id, count(*) AS n",
        "3:1 FROM (...)",
        "3:7 SELECT id, k",
        "3:20 FROM a",
        "3:27 WHERE k > 3",
        "3:43 c",
        "4:3 LEFT JOIN b ON b.k = p.k",
        "5:1 WHERE EXISTS (...)",
        "5:15 SELECT 1",
        "5:24 FROM c",
        "5:48 GROUP BY p.id",
        "6:1 HAVING count(*) > 1",
        "6:21 ORDER BY n",
        "6:32 LIMIT 3",
    ]


def test_a_place_is_in_the_smallest_clause_around_it() -> None:
    found = placed(QUERY)
    for part, text in {
        "k > 3": "WHERE k > 3",
        "b.k = p.k": "LEFT JOIN b ON b.k = p.k",
        "n LIMIT": "ORDER BY n",
    }.items():
        clause = found.at(QUERY.index(part))
        assert clause is not None
        assert found.clauses.clauses[clause[1]].text == text
    assert found.at(0) is None


def test_queries_that_are_combined_have_a_clause_for_the_word_between_them() -> None:
    text = "SELECT a FROM t UNION ALL (SELECT b FROM u)"
    found = placed(text)
    assert shown(found) == [
        "1:1 SELECT a",
        "1:10 FROM t",
        "1:17 UNION ALL (...)",
        "1:28 SELECT b",
        "1:37 FROM u",
    ]
    assert found.at(place_of(parsed(text)[0], text)) == (found.clauses, 2)


def test_variables_are_shown_and_not_their_values() -> None:
    text, _ = read_text(
        "q.sql", "SELECT id\nFROM t WHERE token = '${t}' AND x = 1", {"t": "secret of many letters"}
    )
    found = Placed.of(parsed(text.expanded)[0], text, "")
    assert shown(found)[2] == "q.sql:2:8 WHERE token = '${t}' AND x = 1"


def test_a_long_text_is_shortened() -> None:
    (select, _) = shown(placed(f"SELECT {', '.join(f'column_{n}' for n in range(20))} FROM t"))
    assert len(select) < 70
    assert select.endswith(" ...")
