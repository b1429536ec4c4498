"""Makes what the statements of a file declare: tables, views and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pyspark.errors import PySparkException
from sqlglot import exp

from tablestream.base.calling import written_at
from tablestream.errors import SqlRefusedError, TablestreamError
from tablestream.sql.handles import Handle, hidden_columns, node_of, session_of, with_hidden
from tablestream.sql.outputs import SqlOutputs
from tablestream.sql.problems import MistakeError, Problem
from tablestream.sql.query import from_select
from tablestream.sql.sources import Session, read_source
from tablestream.sql.statements import Declared, SourceTable, View
from tablestream.sql.targets import output_of
from tablestream.sql.text import Text

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Building:
    """What is made so far, by its name, and what is wrong with the rest."""

    text: Text
    session: Session
    made: dict[str, Handle] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def source(self, declared: SourceTable) -> None:
        """Make a table or a stream."""
        self._make(declared, partial(read_source, self.session, declared))

    def view(self, declared: View, tree: exp.Query, reads: Sequence[str]) -> None:
        """Make a view, unless something that it reads could not be made."""
        if all(name in self.made for name in reads):
            tables = {name: self.made[name] for name in reads}
            self._make(declared, partial(self._selected, declared.name, tree, tables))

    def _selected(self, name: str, tree: exp.Query, tables: Mapping[str, Handle]) -> Handle:
        """A query as a table with the name of its view; a view of all that another table has is that table."""
        made = from_select(tree, tables, self.text)
        if any(node_of(made) is node_of(one) for one in tables.values()):
            return made
        named = type(made)(replace(node_of(made), name=name), session_of(made))
        return with_hidden(named, hidden_columns(made))

    def outputs(self, written: Sequence[View], shown: Sequence[View]) -> SqlOutputs:
        """Make the outputs of views that say where they are written, and of those that are only shown.

        Raises
        ------
        SqlFileError
            Something could not be made.
        """
        results = {one.name: self.made[one.name] for one in (*written, *shown) if one.name in self.made}
        tried = [
            self._tried(one, partial(output_of, one, results[one.name]))
            for one in written
            if one.name in results
        ]
        if self.problems:
            raise self.text.error(self.problems)
        return SqlOutputs(tuple(one for one in tried if one), {one.name: results[one.name] for one in shown})

    def _make(self, declared: Declared, maker: Callable[[], Handle]) -> None:
        made = self._tried(declared, maker)
        if made is not None:
            self.made[declared.name] = made

    def _tried(self, declared: Declared, maker: Callable[[], _Made]) -> _Made | None:
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
