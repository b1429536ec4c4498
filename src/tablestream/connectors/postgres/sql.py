"""The SQL of a PostgreSQL sink, and how names are written in it.

Names are taken as they are stored, and always quoted. Staging tables call their columns by number, so that no column
of the output can have the name of another one there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tablestream.errors import ArgumentError

MARKS = "tablestream_marks"
STAGE = "tablestream_stage"
#: What staging tables have beside the columns: whether it is a delete, its time, and the order of the changes.
EXTRA = (("gone", "boolean"), ("at", "timestamp with time zone"), ("n", "bigint"))

_LONGEST_NAME = 63
_OF_EVERY_TABLE = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
_PART = r'"(?:[^"]|"")+"|[^".]+'
_NAME = re.compile(rf"(?:(?P<schema>{_PART})\.)?(?P<table>{_PART})")


@dataclass(frozen=True)
class TableName:
    """A table, by its names as they are stored."""

    schema: str
    table: str

    @classmethod
    def of(cls, text: Any) -> TableName:
        """Take ``schema.table`` apart; the schema is ``public`` if it is missing."""
        found = _NAME.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ArgumentError(
                f"{text!r} does not name a table.",
                hint="""Write it as "schema.table"; put a part with a dot in quotes, as in '"a.b".c'.""",
            )
        return cls(*(checked(_plain(one)) for one in (found["schema"] or "public", found["table"])))

    def __str__(self) -> str:
        """Return the name as `of` reads it."""
        parts = (f'"{one}"' if set('."') & set(one) else one for one in (self.schema, self.table))
        return ".".join(parts)

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"


def _plain(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def checked(name: str) -> str:
    """Refuse what PostgreSQL cannot have as a name: an empty one, one that the server would cut, or with U+0000."""
    if not name or "\0" in name or len(name.encode()) > _LONGEST_NAME:
        raise ArgumentError(
            f"{name!r} cannot be a name in PostgreSQL, which has 1 to {_LONGEST_NAME} bytes.",
            hint="Rename the column with select(...), or give another name.",
        )
    return name


def checked_column(name: str) -> str:
    """Refuse what is no name (see `checked`), or that of a column that every table has."""
    if name in _OF_EVERY_TABLE:
        raise ArgumentError(
            f"{name!r} cannot be a column in PostgreSQL, where every table has one of this name.",
            hint="Rename the column with select(...).",
        )
    return checked(name)


def quoted(name: str) -> str:
    """Quote a name for PostgreSQL, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class TargetColumn:
    """A column of the target."""

    name: str
    type: str
    """The PostgreSQL type, as the server prints it."""
    is_key: bool
    nullable: bool = True


@dataclass(frozen=True)
class SoftDelete:
    """The column that a delete sets; its type is ``boolean`` or ``timestamp with time zone``."""

    name: str
    type: str

    @property
    def live(self) -> str:
        """The value of a row that is not deleted, in SQL."""
        return "false" if self.type == "boolean" else "NULL"

    @property
    def is_live(self) -> str:
        """The condition that the row ``t`` is not deleted, in SQL."""
        column = f"t.{quoted(self.name)}"
        return f"{column} IS NOT TRUE" if self.type == "boolean" else f"{column} IS NULL"


@dataclass(frozen=True)
class Statements:
    """The statements for one target."""

    target: TableName
    marks_schema: str
    """The schema of the marks and of staging tables."""
    columns: tuple[TargetColumn, ...]
    """The columns of the output, the key first."""
    soft_delete: SoftDelete | None = None
    """What a delete sets; None if it removes the row."""

    @property
    def _keys(self) -> list[tuple[int, TargetColumn]]:
        """The columns of the key, with their numbers."""
        return [(number, one) for number, one in enumerate(self.columns) if one.is_key]

    @property
    def marks(self) -> str:
        return f"{quoted(self.marks_schema)}.{quoted(MARKS)}"

    def create_table(self) -> str:
        """The table itself, as it is created: nulls in its key are equal."""
        lines = [
            f"{quoted(one.name)} {one.type}{'' if one.nullable else ' NOT NULL'}" for one in self.columns
        ]
        if self.soft_delete is not None:
            lines.append(f"{quoted(self.soft_delete.name)} {self.soft_delete.type}")
        keys = ", ".join(quoted(one.name) for _, one in self._keys)
        can_be_null = any(one.nullable for _, one in self._keys)
        unique = "UNIQUE NULLS NOT DISTINCT" if can_be_null else "PRIMARY KEY"
        return f"CREATE TABLE {self.target.sql} ({', '.join(lines)}, {unique} ({keys}))"

    def create_marks(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.marks} (query text, target text, micro_batch bigint NOT NULL,"
            " written timestamp with time zone NOT NULL, proof text, PRIMARY KEY (query, target))"
        )

    def add_proof(self) -> str:
        """Give a table of marks of an older version the column for proofs."""
        return f"ALTER TABLE {self.marks} ADD COLUMN IF NOT EXISTS proof text"

    def reserve_mark(self) -> str:
        """Make room for the mark of a query and a target, if there is none: of two drivers, the second waits."""
        return (
            f"INSERT INTO {self._marks} (query, target, micro_batch, written) VALUES (%s, %s, -1, pg_catalog.now())"
            " ON CONFLICT (query, target) DO NOTHING"
        )

    def find_mark(self) -> str:
        """The mark of a query and a target, also in a table of an older version, which has no proofs."""
        return (
            "SELECT m.micro_batch, coalesce(pg_catalog.to_jsonb(m) ->> 'proof', '')"
            f" FROM {self._marks} AS m WHERE m.query = %s AND m.target = %s"
        )

    def set_mark(self) -> str:
        return (
            f"UPDATE {self._marks} SET micro_batch = %s, proof = %s, written = pg_catalog.now()"
            " WHERE query = %s AND target = %s"
        )

    def drop_other_marks(self) -> str:
        """Drop the marks that other queries than one have for a target."""
        return f"DELETE FROM {self._marks} WHERE query <> %s AND target = %s"

    @property
    def _marks(self) -> str:
        """The table of the marks, for statements with arguments."""
        return self.marks.replace("%", "%%")

    def has_rows(self) -> str:
        return f"SELECT EXISTS (SELECT 1 FROM {self.target.sql})"

    def stage(self, name: str) -> str:
        return f"{quoted(self.marks_schema)}.{quoted(name)}"

    def stage_prefix(self, query_id: str) -> str:
        """How the names of a query's staging tables for this target begin."""
        digest = hashlib.sha256(f"{query_id}/{self.target.sql}".encode()).hexdigest()
        return f"{STAGE}_{digest[:16]}_"

    def stage_columns(self) -> str:
        named = [(f"c{number}", one.type) for number, one in enumerate(self.columns)]
        return ", ".join(f"{name} {kind}" for name, kind in (*named, *EXTRA))

    def create_stage(self, name: str) -> str:
        """A staging table that only a task writes."""
        return f"CREATE UNLOGGED TABLE {self.stage(name)} ({self.stage_columns()})"

    def create_temporary(self) -> str:
        """The staging table of what comes by the driver."""
        return f"CREATE TEMPORARY TABLE {STAGE} ({self.stage_columns()}) ON COMMIT DROP"

    def _changes(self, stage: str, *, repeated: bool) -> str:
        """The staged changes ``c``; if a key may have several, the last one counts."""
        keys = ", ".join(f"c{number}" for number, _ in self._keys)
        last = f"SELECT DISTINCT ON ({keys}) * FROM {stage} ORDER BY {keys}, n DESC"
        return f"({last if repeated else f'SELECT * FROM {stage}'}) AS c"

    def delete(self, stage: str, *, repeated: bool) -> str:
        """Apply the deletes of a staging table, before any upserts: a row may take another one's unique value."""
        live = "" if self.soft_delete is None else f"{self.soft_delete.is_live} AND "
        return self._delete(self._changes(stage, repeated=repeated), f"c.gone AND {live}", "c.at")

    def delete_others(self, stages: Mapping[str, bool]) -> str:
        """Delete what no staging table upserts, where they have all rows; the value says whether keys are repeated.

        Nulls in keys are equal in ``EXCEPT``, which needs no comparison of each row with each.
        """
        numbers = ", ".join(f"c.c{number}" for number, _ in self._keys)
        kept = "".join(
            f" EXCEPT SELECT {numbers} FROM {self._changes(stage, repeated=repeated)} WHERE NOT c.gone"
            for stage, repeated in stages.items()
        )
        names = ", ".join(f"t.{quoted(one.name)} AS c{number}" for number, one in self._keys)
        live = "" if self.soft_delete is None else f" WHERE {self.soft_delete.is_live}"
        gone = f"(SELECT {names} FROM {self.target.sql} AS t{live}{kept}) AS c"
        return self._delete(gone, "", "pg_catalog.now()")

    def _delete(self, gone: str, condition: str, at: str) -> str:
        """Delete the rows with the keys of ``c``, or set what a delete sets: a time to `at`."""
        same = " AND ".join(_same(number, one) for number, one in self._keys)
        soft = self.soft_delete
        if soft is None:
            return f"DELETE FROM {self.target.sql} AS t USING {gone} WHERE {condition}{same}"
        value = "true" if soft.type == "boolean" else at
        return (
            f"UPDATE {self.target.sql} AS t SET {quoted(soft.name)} = {value} FROM {gone}"
            f" WHERE {condition}{same}"
        )

    def upsert(self, stage: str, *, repeated: bool) -> str:
        changes = self._changes(stage, repeated=repeated)
        names = [quoted(one.name) for one in self.columns]
        values = [f"c.c{number}" for number in range(len(self.columns))]
        keyed = [quoted(one.name) for _, one in self._keys]
        if self.soft_delete is not None:
            names.append(quoted(self.soft_delete.name))
            values.append(self.soft_delete.live)
        sets = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keyed)
        return (
            f"INSERT INTO {self.target.sql} ({', '.join(names)}) SELECT {', '.join(values)} FROM {changes}"
            f" WHERE NOT c.gone ON CONFLICT ({', '.join(keyed)}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"
        )


def _same(number: int, key: TargetColumn) -> str:
    """A key column of the target ``t`` is that of the change ``c``; an index serves both forms."""
    name = f"t.{quoted(key.name)}"
    equal = f"{name} OPERATOR(pg_catalog.=) c.c{number}"
    return f"({equal} OR ({name} IS NULL AND c.c{number} IS NULL))" if key.nullable else equal


def copy_into(stage: str) -> str:
    """The COPY into a staging table."""
    return f"COPY {stage} FROM STDIN"
