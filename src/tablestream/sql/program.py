"""A file of statements that is right as far as it is known without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError
from sqlglot.optimizer.scope import Scope, traverse_scope

from tablestream.base.calling import written_at
from tablestream.errors import SqlFileError, SqlRefusedError, TablestreamError
from tablestream.sql.handles import Handle, hidden_columns, node_of, session_of, with_hidden
from tablestream.sql.outputs import SqlOutputs
from tablestream.sql.parse import trees, what_is_wrong
from tablestream.sql.problems import MistakeError, Problem, nearest
from tablestream.sql.query import from_select
from tablestream.sql.sources import Session, read_source, source_problems
from tablestream.sql.statements import Declared, SourceTable, View, statements
from tablestream.sql.targets import output_of, target_problems
from tablestream.sql.text import Text, read_text

_Made = TypeVar("_Made")
Named = Mapping[str, SourceTable | View]


@dataclass(frozen=True)
class Query:
    """A view with its query as a tree.

    Attributes
    ----------
    reads
        The places where the query names tables and views, by their names in lower case.
    """

    view: View
    tree: exp.Query
    reads: Mapping[str, int]


@dataclass(frozen=True)
class Program:
    """The statements of a file, in their order.

    Attributes
    ----------
    named
        Sources and views by their names in lower case.
    """

    text: Text
    named: Named
    queries: Sequence[Query]

    def build(self, spark: SparkSession) -> SqlOutputs:
        """Make all sources and views, and the outputs.

        Raises
        ------
        SqlFileError
            Some cannot be made; the error names all of them, except views that read one of them.
        """
        making, session = _Making(self.text), Session(spark)
        for one in self.named.values():
            if isinstance(one, SourceTable):
                making.make(one, partial(read_source, session, one))
        for query in self.queries:
            reads = [self.named[name].name for name in query.reads]
            if all(name in making.made for name in reads):
                tables = {name: making.made[name] for name in reads}
                making.make(query.view, partial(_selected, query, tables, self.text))
        read = {name for query in self.queries for name in query.reads}
        results = [one.view for one in self.queries if one.view.is_materialized]
        shown = [one.name for one in results if one.format is None and one.name.lower() not in read]
        tried = [
            making.tried(one, partial(output_of, one, making.made[one.name]))
            for one in results
            if one.format is not None and one.name in making.made
        ]
        if making.problems:
            raise self.text.error(making.problems)
        return SqlOutputs(tuple(one for one in tried if one), {name: making.made[name] for name in shown})


@dataclass(frozen=True)
class _Making:
    """What is made so far, by its name, and what is wrong with the rest."""

    text: Text
    made: dict[str, Handle] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def make(self, declared: Declared, maker: Callable[[], Handle]) -> None:
        """Make a source or a view."""
        made = self.tried(declared, maker)
        if made is not None:
            self.made[declared.name] = made

    def tried(self, declared: Declared, maker: Callable[[], _Made]) -> _Made | None:
        """Make something; None if that fails, which is noted."""
        try:
            with written_at(self.text.line(declared.at)):
                return maker()
        except MistakeError as mistake:
            self.problems.append(mistake.problem)
        except SqlRefusedError as error:
            self.problems.extend(
                Problem(self.text.at(line, column), message, instead)
                for line, column, message, instead in error.reasons
            )
        except TablestreamError as error:
            self.problems.append(Problem(declared.at, f"{declared.name}: {error.reason}", error.hint))
        except PySparkException as error:
            message = str(error).partition("\n")[0]
            self.problems.append(
                Problem(declared.at, f"{declared.name}: {message}", "This is what Spark says.")
            )
        return None


def _selected(query: Query, tables: Mapping[str, Handle], text: Text) -> Handle:
    """A query as a table with the name of its view; a view of all that another table has is that table."""
    made = from_select(query.tree, tables, text)
    if any(node_of(made) is node_of(one) for one in tables.values()):
        return made
    named = type(made)(replace(node_of(made), name=query.view.name), session_of(made))
    return with_hidden(named, hidden_columns(made))


def read_program(path: str | os.PathLike[str], variables: Mapping[str, str]) -> Program:
    """Read a file, and check what can be checked without Spark.

    Raises
    ------
    SqlFileError
        There is no such file, or something is wrong with its statements: the error names all of it.
    """
    file = Path(path)
    try:
        original = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SqlFileError(f"{file} cannot be read: {error}.", hint="Name a file of SQL in UTF-8.") from error
    return program_of(file.name, original, variables)


def program_of(name: str, original: str, variables: Mapping[str, str]) -> Program:
    """Check the text of a file; raises as `read_program`."""
    text, tokens = read_text(name, original, variables)
    found, problems = statements(text, tokens)
    queries = list[Query]()
    for view in (one for one in found if isinstance(one, View)):
        try:
            queries.append(_query(view, text))
        except MistakeError as mistake:
            problems.append(mistake.problem)
    named = dict[str, SourceTable | View]()
    for one in found:
        problems += _problems(text, one, named)
        named.setdefault(one.name.lower(), one)
    for query in queries:
        problems += _unknown(text, query, named)
    if not problems and not any(one.view.is_materialized for one in queries):
        problems.append(
            Problem(0, f"{name} has no result.", "Write CREATE MATERIALIZED VIEW name AS SELECT ....")
        )
    if problems:
        raise text.error(problems)
    return Program(text, named, queries)


def _query(view: View, text: Text) -> Query:
    """Parse the query of a view."""
    try:
        tree = trees(view.query, text.expanded)[0]
    except ParseError as error:
        raise _not_parsed(view, error) from error
    if not isinstance(tree, exp.Query):
        raise MistakeError(
            view.query[0].start, f"The query of {view.name} is no SELECT.", "Write AS SELECT ...."
        )
    return Query(view, tree, {_name(one): int(one.parts[0].meta["start"]) for one in _tables(view, tree)})


def _tables(view: View, tree: exp.Query) -> list[exp.Table]:
    """The tables that a query reads, without the names that it gives to its own parts."""
    try:
        scopes = traverse_scope(tree)
        sources = [one for scope in scopes for one in (*scope.sources.values(), *_of_functions(scope))]
    except OptimizeError as error:
        raise MistakeError(
            view.query[0].start, f"The query of {view.name} cannot be read: {error}.", "Correct it."
        ) from error
    return [one for one in sources if isinstance(one, exp.Table) and isinstance(one.this, exp.Identifier)]


def _of_functions(scope: Scope) -> Iterator[exp.Table]:
    """Yield the tables that table functions of a query read, as in ``TUMBLE(TABLE t, ...)``."""
    for one in scope.sources.values():
        call = one.this if isinstance(one, exp.Table) else None
        for table in call.find_all(exp.Table) if isinstance(call, exp.Anonymous) else ():
            if table.name not in scope.cte_sources:
                yield table


def _name(table: exp.Table) -> str:
    return ".".join(one.name for one in table.parts).lower()


def _not_parsed(view: View, error: ParseError) -> MistakeError:
    """The mistake at which the parser stopped."""
    first = error.errors[0]
    places = (one.start for one in view.query if (one.line, one.col) == (first["line"], first["col"]))
    message = f"The query of {view.name} cannot be read: {what_is_wrong(error)}."
    return MistakeError(next(places, view.query[0].start), message, "Write a SELECT of Spark.")


def _problems(text: Text, one: SourceTable | View, named: Named) -> Iterator[Problem]:
    """Yield what is wrong with a statement after others."""
    if one.name.lower() in named:
        place = text.line(named[one.name.lower()].at)
        yield Problem(one.at, f"{one.name} is declared already, at {place}.", "Give it another name.")
    yield from source_problems(one) if isinstance(one, SourceTable) else target_problems(one)


def _unknown(text: Text, query: Query, named: Named) -> Iterator[Problem]:
    """Yield the names in a query that no statement before it declares."""
    for name, at in query.reads.items():
        known = named.get(name)
        if known is None:
            hint = nearest(name, (one.name for one in named.values())) or "Declare it before this view."
            yield Problem(at, f"Nothing is called {name}.", hint)
        elif known.at >= query.view.at:
            place = text.line(known.at)
            yield Problem(at, f"{known.name} is declared later, at {place}.", "Move it before this view.")
