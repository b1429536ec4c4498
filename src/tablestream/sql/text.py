"""The text of a file of statements: its places as people count them, and the variables in it."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import Token
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError

from tablestream.errors import SqlFileError
from tablestream.sql.problems import Problem, nearest

DIALECT = Dialect.get_or_raise("spark")
_VARIABLE = re.compile(r"\$\{([^}\n]*)\}")
_ENVIRONMENT = "env:"
_CLOSED = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`""", re.DOTALL)
_OPENED = re.compile(r"/\*|['\"`]")
#: What ends a text in quotes, and so is escaped in a value that stands there.
_ESCAPES: dict[str, dict[str, str | int | None]] = {
    "'": {"\\": "\\\\", "'": "\\'"},
    '"': {"\\": "\\\\", '"': '\\"'},
    "`": {"`": "``"},
}


@dataclass(frozen=True)
class Text:
    """The text of a file after its variables have their values.

    Attributes
    ----------
    name
        The name of the file.
    original
        What the file has.
    expanded
        What is read: `original` with values.
    """

    name: str
    original: str
    expanded: str
    _anchors: tuple[tuple[int, int, bool], ...] = field(default=((0, 0, False),), repr=False)

    def place(self, at: int) -> str:
        """Return ``file:line:column`` in the original of a place in the expanded text."""
        place = self._original(at)
        line = self.original.count("\n", 0, place) + 1
        return f"{self.name}:{line}:{place - self.original.rfind(chr(10), 0, place)}"

    def said(self, begin: int, end: int) -> str:
        """Return what the original has between two places of the expanded text: variables, not their values."""
        return self.original[self._original(begin) : self._original(end)]

    def _original(self, at: int) -> int:
        begin, original, is_value = self._anchors[bisect_right(self._anchors, at, key=lambda one: one[0]) - 1]
        return original if is_value else original + at - begin

    def at(self, line: int, column: int) -> int:
        """Return the place in the expanded text of one of its lines and columns."""
        lines = self.expanded.splitlines(keepends=True)
        return sum(map(len, lines[: line - 1])) + column - 1

    def line(self, at: int) -> str:
        """Return ``file:line``."""
        return self.place(at).rpartition(":")[0]

    def error(self, problems: Iterable[Problem]) -> SqlFileError:
        """Return the error that tells all that is wrong, in the order of the file."""
        told = sorted(problems, key=lambda one: one.at)
        if len(told) == 1:
            (only,) = told
            return SqlFileError(f"{self.place(only.at)}: {only.message}", hint=only.hint)
        lines = (f"{self.place(one.at)}: {one.message} {one.hint}" for one in told)
        return SqlFileError(f"{self.name} has {len(told)} mistakes.", hint="\n".join(lines))


def read_text(name: str, original: str, variables: Mapping[str, str]) -> tuple[Text, list[Token]]:
    """Put values in the place of variables, and return the text with its tokens.

    A value inside quotes is a part of the text there and cannot end it. Elsewhere it is SQL. Variables in remarks are
    passed over.

    Raises
    ------
    SqlFileError
        Variables have no value, or quotes are not closed.
    """
    plain = Text(name, original, original)
    tokens = _tokens(plain)
    found = list(_variables(original, tokens))
    missing = [one for one in found if _value(one[0], variables) is None]
    if missing:
        raise plain.error(_missing(variable.group(1), variable.start(), variables) for variable, _ in missing)
    if not found:
        return plain, tokens
    pieces, anchors, done, length = list[str](), [(0, 0, False)], 0, 0
    for variable, quote in found:
        value = (_value(variable, variables) or "").translate(str.maketrans(_ESCAPES.get(quote, {})))
        pieces += [original[done : variable.start()], value]
        length += variable.start() - done
        anchors += [(length, variable.start(), True), (length + len(value), variable.end(), False)]
        done, length = variable.end(), length + len(value)
    text = Text(name, original, "".join([*pieces, original[done:]]), tuple(anchors))
    return text, _tokens(text)


def _variables(original: str, tokens: Sequence[Token]) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each variable outside remarks, with the character that begins what it stands in, such as a quote."""
    starts = [one.start for one in tokens]
    for found in _VARIABLE.finditer(original):
        before = bisect_right(starts, found.start()) - 1
        if before >= 0 and found.start() <= tokens[before].end:
            yield found, original[tokens[before].start]


def _value(variable: re.Match[str], variables: Mapping[str, str]) -> str | None:
    name = variable.group(1)
    if name.startswith(_ENVIRONMENT):
        return os.environ.get(name.removeprefix(_ENVIRONMENT))
    return variables.get(name)


def _missing(name: str, at: int, variables: Mapping[str, str]) -> Problem:
    if name.startswith(_ENVIRONMENT):
        name = name.removeprefix(_ENVIRONMENT)
        return Problem(at, f"The environment has no variable {name}.", "Export it before the command.")
    return Problem(
        at,
        f"The variable {name} has no value.",
        nearest(name, variables) or f"Give --set {name}=..., or variables= of ts.sql_file.",
    )


def _tokens(text: Text) -> list[Token]:
    """Split a text into tokens.

    Raises
    ------
    SqlFileError
        Quotes or a remark are not closed.
    """
    try:
        tokens: list[Token] = DIALECT.tokenize(text.expanded)
    except TokenError as error:
        rest = _CLOSED.sub(lambda one: " " * len(one.group()), text.expanded)
        opened = _OPENED.search(rest)
        at, end = (opened.start(), opened.group().replace("/*", "*/")) if opened else (0, "quote")
        problem = Problem(at, f"What begins here has no closing {end}.", f"Write {end} where it ends.")
        raise text.error([problem]) from error
    return tokens
