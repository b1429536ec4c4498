"""Reads the tokens of one statement from its begin to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import Token, TokenType

from tablestream.sql.problems import MistakeError
from tablestream.sql.text import Text

_QUOTED = (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_CONSTANTS: dict[str, Any] = {"TRUE": True, "FALSE": False, "NULL": None}
#: What opens and closes in the type of a column.
_DEPTH = {"(": 1, "<": 1, "<<": 2, ")": -1, ">": -1, ">>": -2}


class Reader:
    """The tokens of a statement, and how far they are read."""

    def __init__(self, text: Text, tokens: Sequence[Token]) -> None:
        self._text, self._tokens, self._next = text, tokens, 0

    @property
    def is_done(self) -> bool:
        """Whether all tokens are read."""
        return self._next >= len(self._tokens)

    @property
    def at(self) -> int:
        """The place of the next token; behind the last one at the end."""
        return self._tokens[-1].end + 1 if self.is_done else self._tokens[self._next].start

    @property
    def word(self) -> str:
        """The next token in upper case; empty at the end, and for a text in quotes."""
        return self._word(self._next)

    @property
    def shown(self) -> str:
        """The next token as it is written, for a message."""
        return "The end" if self.is_done else self._written(self._tokens[self._next])

    @property
    def is_call(self) -> bool:
        """Whether a name and an opening parenthesis are next."""
        return self._is_name(self._next) and self._word(self._next + 1) == "("

    @property
    def is_named(self) -> bool:
        """Whether the name of an argument is next, as in ``schema => '...'``."""
        return self._is_name(self._next) and self._word(self._next + 1) in {"=>", "="}

    def is_next(self, word: str) -> bool:
        """Whether a word or a sign is next."""
        return self.word == word

    def takes(self, *words: str) -> bool:
        """Read these words if they are next, and say whether they were."""
        if any(self._word(self._next + number) != word for number, word in enumerate(words)):
            return False
        self._next += len(words)
        return True

    def skip(self) -> None:
        """Read the next token."""
        self._next += 1

    def rest(self) -> Sequence[Token]:
        """Read all that is left."""
        left, self._next = self._tokens[self._next :], len(self._tokens)
        return left

    def name(self, wanted: str) -> str:
        """Read a name, in backquotes or a word."""
        if not self._is_name(self._next):
            raise self.mistake(f"{self.shown} is not {wanted}.", f"Write {wanted} here.")
        self.skip()
        return self._tokens[self._next - 1].text

    def text(self, wanted: str) -> str:
        """Read a text in quotes."""
        if self.is_done or self._tokens[self._next].token_type not in _STRINGS:
            raise self.mistake(f"{self.shown} is not {wanted}.", f"Write {wanted} in quotes.")
        self.skip()
        return self._tokens[self._next - 1].text

    def option_name(self) -> str:
        """Read the name of an option: words with dots, or a text in quotes."""
        if not self.is_done and self._tokens[self._next].token_type in _STRINGS:
            return self.text("the name of an option")
        parts = [self.name("the name of an option")]
        while self.takes("."):
            parts.append(self.name("the name of an option"))
        return ".".join(parts)

    def literal(self) -> Any:
        """Read a text, a number, TRUE, FALSE or NULL."""
        if self.word in _CONSTANTS:
            self.skip()
            return _CONSTANTS[self._word(self._next - 1)]
        sign = "-" if self.takes("-") else ""
        if not self.is_done and self._tokens[self._next].token_type == TokenType.NUMBER:
            self.skip()
            digits = sign + self._tokens[self._next - 1].text
            return int(digits) if digits.lstrip("-").isdigit() else float(digits)
        return self.text("a value")

    def column(self, begin: int) -> tuple[str, bool]:
        """Read the rest of a column, and return its text from `begin` on; and whether it is the primary key."""
        depth, end, before = 0, begin, ""
        while not self.is_done and (depth or self.word not in {",", ")"}):
            if not depth and self.takes("PRIMARY KEY"):
                before, begin = f"{self._text.expanded[begin:end]} ", self.at
                continue
            depth += _DEPTH.get(self.word, 0)
            end = self._tokens[self._next].end + 1
            self.skip()
        return f"{before}{self._text.expanded[begin:end]}".strip(), bool(before)

    def mistake(self, message: str, hint: str) -> MistakeError:
        """Return the error of the next token."""
        return MistakeError(self.at, message, hint)

    def _word(self, number: int) -> str:
        if number >= len(self._tokens) or self._tokens[number].token_type in _QUOTED:
            return ""
        return " ".join(self._tokens[number].text.upper().split())  # a word such as PRIMARY KEY is one token

    def _is_name(self, number: int) -> bool:
        if number >= len(self._tokens):
            return False
        token = self._tokens[number]
        return token.token_type == TokenType.IDENTIFIER or self._word(number).replace("_", "a")[:1].isalpha()

    def _written(self, token: Token) -> str:
        return self._text.expanded[token.start : token.end + 1].partition("\n")[0]


def between(reader: Reader) -> Iterator[None]:
    """Yield before each item of a list in parentheses, which the caller reads; read what is around and between them."""
    if not reader.takes("("):
        raise reader.mistake(f"{reader.shown} is not the opening parenthesis of a list.", "Write ( here.")
    while not reader.takes(")"):
        yield
        if not reader.takes(",") and not reader.is_next(")"):
            raise reader.mistake(f"A comma or ) is missing before {reader.shown}.", "Write , or ) here.")
