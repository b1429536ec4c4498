"""The clauses of a parsed query: where each stands, and which of them a place is in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from tablestream.sql.parse import beginning, ending
from tablestream.sql.text import Text
from tablestream.topology.clauses import Clause, Clauses, Written

#: The clauses of a query, by their parts of the tree, with the word that each begins with.
_WORDS = {
    "from_": "FROM",
    "where": "WHERE",
    "group": "GROUP",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "order": "ORDER",
    "limit": "LIMIT",
    "offset": "OFFSET",
}
_COMBINED = "UNION|INTERSECT|EXCEPT|MINUS"
#: How much of a clause is shown.
_SHOWN = 60


@dataclass(frozen=True)
class Placed:
    """The clauses of a query, with where the text of each begins and ends."""

    clauses: Clauses
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, query: exp.Expr, text: Text, where: str) -> Placed:
        """The clauses of a query and of all queries within it, in the order of the text."""
        spans = tuple(sorted(set(_spans(query, text.expanded))))
        following = [*(begin for begin, _ in spans[1:]), len(text.expanded)]
        found = (
            Clause(text.place(begin).removeprefix(":"), _shown(text.said(begin, min(end, following))))
            for (begin, end), following in zip(spans, following, strict=True)
        )
        return cls(Clauses(where, tuple(found)), spans)

    def at(self, place: int) -> Written | None:
        """The smallest clause around a place."""
        around = [(end - begin, n) for n, (begin, end) in enumerate(self.spans) if begin <= place < end]
        return (self.clauses, min(around)[1]) if around else None


def _spans(query: exp.Expr, text: str) -> Iterator[tuple[int, int]]:
    """Yield where clauses begin and end."""
    for join in query.find_all(exp.Join):
        begin = beginning(join)
        yield beginning(join.this) if text[begin] == "," else begin, ending(join)
    for one in query.find_all(exp.Query):
        if isinstance(one, exp.SetOperation):
            yield place_of(one, text), beginning(one.expression)
        if isinstance(one, exp.Select) and one.expressions:
            first, last = one.expressions[0], one.expressions[-1]
            yield _word("SELECT", beginning(first), text), ending(last)
        for part, word in _WORDS.items():
            node = one.args.get(part)
            if isinstance(node, exp.Expr) and (begin := beginning(node)):
                yield _word(word, begin, text), ending(node)


def place_of(query: exp.Expr, text: str) -> int:
    """Where a query begins; of two that are combined, where the word between them stands."""
    is_combined = isinstance(query, exp.SetOperation)
    return _word(_COMBINED, beginning(query.expression), text) if is_combined else beginning(query)


def _word(words: str, before: int, text: str) -> int:
    """Where the last of some words before a place begins."""
    found = (one.start() for one in re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE))
    return max((at for at in found if at <= before), default=before)


def _shown(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split()).rstrip(" ,;")
    line = f"{line}...)" if line.endswith("(") else line
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN].rpartition(' ')[0]} ..."
