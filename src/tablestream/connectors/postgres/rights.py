"""The rights that the role of a connection needs, and a refusal that says what to grant before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.connectors.postgres.sql import quoted
from tablestream.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tablestream.connectors.postgres.sql import Statements

#: Which of some rights the role lacks. Rights on the columns that the output has are enough, except for DELETE.
_DATABASE = "SELECT p FROM unnest(%s::text[]) p WHERE NOT pg_catalog.has_database_privilege(%s::text, p)"
_SCHEMA = "SELECT p FROM unnest(%s::text[]) p WHERE NOT pg_catalog.has_schema_privilege(%s::text, p)"
_TABLE = """
SELECT p FROM unnest(%s::text[]) p, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND NOT CASE p WHEN 'DELETE'
  THEN pg_catalog.has_table_privilege(c.oid, p) ELSE pg_catalog.has_any_column_privilege(c.oid, p) END
"""


def check_rights(connection: psycopg.Connection, statements: Statements, *, there: bool, place: str) -> None:
    """Refuse a role that could not write a micro-batch to a table, which exists or has to be created.

    The error, which names the server `place`, has the statements that grant what is lacking.
    """
    role, database = connection.execute("SELECT CURRENT_USER::text, current_database()::text").fetchone() or (
        "",
        "",
    )
    grants = [
        f"GRANT {rights} ON {what}"
        for what, rights in _lacking(connection, statements, database, there=there)
    ]
    if grants:
        raise DatabaseError(
            f"The role {role!r} lacks rights to write {statements.target} in PostgreSQL at {place}.",
            hint="; ".join(f"{one} TO {quoted(role)}" for one in grants),
        )


def _lacking(
    connection: psycopg.Connection, statements: Statements, database: str, *, there: bool
) -> Iterator[tuple[str, str]]:
    """What the role lacks: the place as a GRANT names it, and its rights there."""
    target = statements.target
    on_table = ["SELECT", "INSERT", "UPDATE", *(["DELETE"] if statements.soft_delete is None else [])]
    schemas = {target.schema: ["USAGE"] if there else ["USAGE", "CREATE"]}
    schemas[statements.marks_schema] = ["USAGE", "CREATE"]
    wanted: list[tuple[str, str, tuple[object, ...]]] = [
        # Staging tables are in the schema of the marks, and temporary if the changes come by the driver.
        (f"DATABASE {quoted(database)}", _DATABASE, (["TEMPORARY"], database)),
        *((f"SCHEMA {quoted(name)}", _SCHEMA, (rights, name)) for name, rights in schemas.items()),
        (target.sql, _TABLE, (on_table, target.schema, target.table)),
    ]
    for what, query, arguments in wanted:
        lacking = [right for (right,) in connection.execute(query, arguments)]
        if lacking:
            yield what, ", ".join(lacking)
