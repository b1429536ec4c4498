"""Marks in a PostgreSQL database, and whether a table that the library made can be trusted.

The marks are a table that anybody may have made who can create tables in its schema. Whoever owns a table can give it
triggers, defaults, policies and rules, which run with the rights of the role that writes. So the library uses tables of
marks and staging tables only if they are plain tables of its own role, or of a superuser, and does so behind a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tablestream.connectors.marks import Mark
from tablestream.connectors.postgres.sql import MARKS, Statements, TableName, quoted
from tablestream.errors import DatabaseError

if TYPE_CHECKING:
    import psycopg

#: What can run somebody's code where a table is used, and each part's name for the message.
_SUSPECT = """
SELECT c.relkind::text, pg_catalog.pg_get_userbyid(c.relowner)::text,
  c.relowner = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = CURRENT_USER)
    OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.oid = c.relowner),
  EXISTS (SELECT 1 FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid),
  EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid),
  c.relrowsecurity OR EXISTS (SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid),
  EXISTS (SELECT 1 FROM pg_catalog.pg_attrdef d WHERE d.adrelid = c.oid),
  EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype NOT IN ('p', 'n')),
  EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid OR i.inhparent = c.oid),
  EXISTS (SELECT 1 FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND NOT x.indisprimary)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_PARTS = (
    "a trigger",
    "a rule",
    "row security",
    "a default",
    "a constraint",
    "a parent or a child",
    "an index of its own",
)
_COLUMNS = """
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = %s::text::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
_OF_MARKS = {
    "query": "text",
    "target": "text",
    "micro_batch": "bigint",
    "written": "timestamp with time zone",
    "proof": "text",
}
_SYSTEM = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"
_MAY_ASK = "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_STARTED = "SELECT pg_catalog.pg_postmaster_start_time()::text"
_DATABASE = "SELECT d.oid::text FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()"


def check_plain(connection: psycopg.Connection, schema: str, table: str) -> None:
    """Lock a table that the library made, and refuse one that somebody else made or gave code to."""
    name = f"{quoted(schema)}.{quoted(table)}"
    connection.execute(f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE")
    found = connection.execute(_SUSPECT, (schema, table)).fetchone()
    if found is None:
        return
    kind, owner, is_ours, *parts = found
    wrong = [part for part, there in zip(_PARTS, parts, strict=True) if there]
    if kind != "r":
        wrong.insert(0, "another kind than a table's")
    if not is_ours:
        wrong.insert(0, f"the owner {owner!r}, neither this role nor a superuser")
    if wrong:
        raise DatabaseError(
            f"The table {schema}.{table} has {', '.join(wrong)}: it would run code with the rights of this role.",
            hint="Find out who made it. Then drop it, or ALTER TABLE ... OWNER TO this role and remove what is said; or"
            " give marks_schema= a schema in which only this role can create tables.",
        )


def check_marks(connection: psycopg.Connection, statements: Statements) -> None:
    """Refuse a table of marks that cannot be trusted, and give one of an older version the column for proofs."""
    check_plain(connection, statements.marks_schema, MARKS)
    columns = dict(connection.execute(_COLUMNS, (statements.marks,)).fetchall())
    if "proof" not in columns:
        connection.execute(statements.add_proof())
        columns["proof"] = "text"
    if columns != _OF_MARKS:
        raise DatabaseError(
            f"The table {statements.marks_schema}.{MARKS} has other columns than marks have:"
            f" {', '.join(f'{name} {kind}' for name, kind in columns.items())}.",
            hint="Rename it, or give marks_schema= another schema.",
        )


@dataclass(frozen=True)
class Marks:
    """The marks of a query for one target, in a transaction."""

    connection: psycopg.Connection
    statements: Statements
    query_id: str

    def look(self) -> Mark | None:
        """Return the mark without a lock; None also if there is no table of marks."""
        there = self.connection.execute("SELECT pg_catalog.to_regclass(%s)", (self.statements.marks,))
        if there.fetchone() == (None,):
            return None
        check_plain(self.connection, self.statements.marks_schema, MARKS)
        return self._read("")

    def lock(self) -> Mark | None:
        """Lock the mark until the transaction ends, also one that is not there yet, and return it."""
        place = (self.query_id, self.statements.target.sql)
        self.connection.execute(self.statements.reserve_mark(), place)
        return self._read(" FOR UPDATE")

    def set(self, mark: Mark, *, whole: bool) -> None:
        """Write the mark. If all rows were replaced, those of other queries go."""
        place = (self.query_id, self.statements.target.sql)
        self.connection.execute(self.statements.set_mark(), (mark.micro_batch, mark.proof, *place))
        if whole:
            self.connection.execute(self.statements.drop_other_marks(), place)

    def _read(self, lock: str) -> Mark | None:
        place = (self.query_id, self.statements.target.sql)
        row = self.connection.execute(self.statements.find_mark() + lock, place).fetchone()
        return None if row is None or row[0] < 0 else Mark(row[0], row[1])


def identity(connection: psycopg.Connection, name: TableName) -> str:
    """Return what a table is, by whichever name its server is reached: the server's own id, the database, the table."""
    may_ask = connection.execute(_MAY_ASK).fetchone() == (True,)
    parts = [connection.execute(one).fetchone() for one in (_SYSTEM if may_ask else _STARTED, _DATABASE)]
    return " ".join(str(part and part[0]) for part in parts) + f" {name.sql}"
