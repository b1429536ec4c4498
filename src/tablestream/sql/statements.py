"""The statements of a file: what each declares, with the place of all that can be wrong in it.

sqlglot splits the text into tokens and parses queries. What stands around a query is Spark's DDL with words that Spark
has not, such as ``CREATE STREAM``; it is read here. Columns stay text, which Spark parses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType

from tablestream.sql.problems import MistakeError, Problem, nearest
from tablestream.sql.reader import Reader, between
from tablestream.sql.text import Text

_SOURCES = ("TABLE", "STREAM", "GLOBAL TABLE")
_KINDS = (*_SOURCES, "VIEW", "MATERIALIZED VIEW")
_CLAUSES = {
    "TABLE": ("USING", "LOCATION", "OPTIONS", "TBLPROPERTIES", "COMMENT"),
    "VIEW": ("COMMENT", "AS"),
    "MATERIALIZED VIEW": ("USING", "LOCATION", "OPTIONS", "TBLPROPERTIES", "COMMENT", "AS"),
}
_FORM = f"Write CREATE {', '.join(_KINDS[:-1])} or {_KINDS[-1]}."
_TARGET = "Write the query with its target: CREATE MATERIALIZED VIEW name USING delta LOCATION 'path' AS SELECT ...."
_NAMED = "Give the query a name: CREATE VIEW name AS SELECT ..., or CREATE MATERIALIZED VIEW with a target."
#: What to write for the statements of other engines, by the word that is not known.
_STATEMENT_INSTEAD = {
    "INSERT": _TARGET,
    "SINK": _TARGET,
    "SELECT": _NAMED,
    "WITH": _NAMED,
    "SOURCE": "Write CREATE TABLE for rows that change, or CREATE STREAM for records that stand for themselves.",
}
#: The same for their clauses.
_CLAUSE_INSTEAD = {
    "WITH": "Write USING, LOCATION and OPTIONS, as in USING json LOCATION 'path' OPTIONS (timestamp 'at').",
}
#: Words that say when a statement counts. In a file each counts, once.
_NEEDLESS = {"OR", "REFRESH", "TEMPORARY", "TEMP"}
_OMIT = "Omit it: a file declares each name once."


@dataclass(frozen=True)
class Call:
    """A value that a function makes, such as ``avro('...')``."""

    function: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    at: int


@dataclass(frozen=True)
class Given:
    """An option as it is written: its name, with dots, and its value."""

    name: str
    value: Any
    at: int


@dataclass(frozen=True)
class Format:
    """What stands after ``USING``."""

    name: str
    at: int


@dataclass(frozen=True)
class Declared:
    """What every statement declares: a name, and perhaps a system that it reads or writes.

    Attributes
    ----------
    at
        Where the name stands.
    """

    kind: str
    name: str
    at: int
    format: Format | None
    options: tuple[Given, ...]

    @property
    def system(self) -> str:
        """The name after ``USING``; empty: there is none."""
        return self.format.name if self.format else ""


@dataclass(frozen=True)
class SourceTable(Declared):
    """``CREATE TABLE`` or ``CREATE STREAM``.

    Attributes
    ----------
    columns
        The text of each column by its name: the name and its type.
    key
        The names of the columns of the primary key, with their places.
    """

    columns: Mapping[str, str]
    key: Mapping[str, int]

    def schema(self, names: Sequence[str] | None = None) -> str:
        """Return columns as Spark's DDL; all of them unless `names` says which."""
        return ", ".join(text for name, text in self.columns.items() if names is None or name in names)


@dataclass(frozen=True)
class View(Declared):
    """``CREATE VIEW`` or ``CREATE MATERIALIZED VIEW``.

    Attributes
    ----------
    query
        The tokens after ``AS``.
    """

    query: tuple[Token, ...]

    @property
    def is_materialized(self) -> bool:
        """Whether it is a result of the file, and not only a name for a query."""
        return self.kind == "MATERIALIZED VIEW"


def statements(text: Text, tokens: Sequence[Token]) -> tuple[list[SourceTable | View], list[Problem]]:
    """Read the statements of a file, and what is wrong with the others."""
    found, problems = list[SourceTable | View](), list[Problem]()
    for part in _parts(tokens):
        try:
            found.append(_statement(Reader(text, part)))
        except MistakeError as mistake:
            problems.append(mistake.problem)
    return found, problems


def _parts(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement, without the semicolon."""
    part = list[Token]()
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            part.append(token)
        elif part:
            yield part
            part = []
    if part:
        yield part


def _statement(reader: Reader) -> SourceTable | View:
    begin = reader.at
    if not reader.takes("CREATE"):
        raise reader.mistake(
            f"{reader.shown} begins no statement of a file.", _STATEMENT_INSTEAD.get(reader.word, _FORM)
        )
    kind = _kind(reader, begin)
    at = reader.at
    if reader.takes("IF", "NOT", "EXISTS"):
        raise MistakeError(at, "IF NOT EXISTS has no meaning here.", _OMIT)
    name = reader.name(f"the name of the {kind.lower()}")
    if reader.takes("."):
        raise MistakeError(at, f"The name {name} has a dot.", "Give a name without a catalog or a schema.")
    is_source = kind in _SOURCES
    columns, key = _columns(reader) if is_source else ({}, {})
    if not is_source and reader.is_next("("):
        raise reader.mistake(
            "A view has no list of columns.", "Name the columns in the SELECT, as in count(*) AS n."
        )
    form, options, query = _clauses(reader, "TABLE" if is_source else kind, kind)
    if is_source:
        return SourceTable(kind, name, at, form, options, columns, key)
    if not query:
        raise MistakeError(at, f"The view {name} has no query.", "End the statement with AS SELECT ....")
    return View(kind, name, at, form, options, tuple(query))


def _kind(reader: Reader, begin: int) -> str:
    for kind in sorted(_KINDS, key=len, reverse=True):
        if reader.takes(*kind.split()):
            return kind
    if reader.word in _NEEDLESS:
        raise reader.mistake(f"{reader.shown} has no meaning here.", _OMIT)
    raise MistakeError(
        begin, f"CREATE {reader.shown} is no statement of a file.", _STATEMENT_INSTEAD.get(reader.word, _FORM)
    )


def _clauses(
    reader: Reader, clauses_of: str, kind: str
) -> tuple[Format | None, tuple[Given, ...], Sequence[Token]]:
    """Read what follows the name and the columns, up to the query."""
    form, options = None, list[Given]()
    while not reader.is_done:
        at, clause = reader.at, reader.word
        if clause not in _CLAUSES[clauses_of]:
            known = _CLAUSES[clauses_of]
            raise reader.mistake(
                f"{reader.shown} is no clause of CREATE {kind}.",
                _CLAUSE_INSTEAD.get(clause) or nearest(clause, known) or f"It takes {', '.join(known)}.",
            )
        reader.skip()
        if clause == "AS":
            return form, tuple(options), reader.rest()
        if clause == "USING":
            if form is not None:
                raise MistakeError(at, "USING is given twice.", "Keep one.")
            form = Format(reader.name("a format").lower(), at)
        elif clause == "LOCATION":
            options.append(Given("path", reader.text("a path"), at))
        elif clause == "COMMENT":
            reader.text("a comment")
        else:
            options += _options(reader)
    return form, tuple(options), ()


def _options(reader: Reader) -> Iterator[Given]:
    """Yield what stands in the parentheses after ``OPTIONS``: names with values; ``=`` may stand between them."""
    for _ in between(reader):
        at, name = reader.at, reader.option_name()
        reader.takes("=")
        yield Given(name, _value(reader), at)


def _value(reader: Reader) -> Any:
    """Read a value: a text, a number, TRUE, FALSE, NULL, a list in parentheses, or a call."""
    if reader.is_next("("):
        return [_value(reader) for _ in between(reader)]
    if reader.is_call:
        return _call(reader)
    return reader.literal()


def _call(reader: Reader) -> Call:
    at, function = reader.at, reader.name("a function").lower()
    arguments, named = list[Any](), dict[str, Any]()
    for _ in between(reader):
        if reader.is_named:
            name = reader.name("an argument")
            reader.skip()
            named[name] = _value(reader)
        else:
            arguments.append(_value(reader))
    return Call(function, tuple(arguments), named, at)


def _columns(reader: Reader) -> tuple[dict[str, str], dict[str, int]]:
    """Read the columns in parentheses, and the primary key among them."""
    columns, key = dict[str, str](), dict[str, int]()
    if not reader.is_next("("):
        return columns, key
    for _ in between(reader):
        if reader.takes("CONSTRAINT"):
            reader.name("the name of the constraint")
        at = reader.at
        if reader.takes("PRIMARY KEY"):
            _check_one_key(key, at)
            key = {name: place for place, name in _names(reader)}
            reader.takes("NOT", "ENFORCED")  # as in Flink: nobody enforces it
            continue
        name = reader.name("a column")
        if name.lower() in map(str.lower, columns):
            raise MistakeError(at, f"The column {name} is there twice.", "Give it another name.")
        columns[name], is_key = reader.column(at)
        if is_key:
            _check_one_key(key, at)
            key = {name: at}
    return columns, _as_declared(key, columns)


def _names(reader: Reader) -> Iterator[tuple[int, str]]:
    for _ in between(reader):
        yield reader.at, reader.name("a column")


def _check_one_key(key: Mapping[str, int], at: int) -> None:
    if key:
        raise MistakeError(
            at, "The table has two primary keys.", "Write one, PRIMARY KEY (a, b), for several columns."
        )


def _as_declared(key: Mapping[str, int], columns: Mapping[str, str]) -> dict[str, int]:
    """The key's columns with their names as they are declared; raise if one is not."""
    if not columns:
        return dict(key)
    declared = {name.lower(): name for name in columns}
    for name, at in key.items():
        if name.lower() not in declared:
            raise MistakeError(
                at,
                f"The column {name} of the primary key is not declared.",
                nearest(name, columns) or f"The columns are {', '.join(columns)}.",
            )
    return {declared[name.lower()]: at for name, at in key.items()}
