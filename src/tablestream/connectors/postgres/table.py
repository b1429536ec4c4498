"""What is known about an existing table of PostgreSQL, and whether an output can be written to it.

=======================================================  ==================================================
refused                                                  because
=======================================================  ==================================================
no such table, unless it may be created                  the message has the statement that creates it
a view, a foreign table                                  they take no ``ON CONFLICT``
a column of the output is missing                        its values would be lost
a type that does not hold all values                     they would be changed
a generated column, an identity ``ALWAYS``               PostgreSQL makes its values itself
another column that is not null and has no default       new rows have no value for it
no unique index over exactly the key                     a key could have two rows
a nullable key column, unless nulls are not distinct     a null key would be inserted again and again
a key column whose collation is not deterministic        two keys would be one row
=======================================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from tablestream.connectors.postgres.sql import SoftDelete, Statements, TableName, TargetColumn, quoted
from tablestream.connectors.postgres.types import created_as, fits
from tablestream.errors import DatabaseError, PlanError

if TYPE_CHECKING:
    import psycopg

_SOFT_TYPES = ("timestamp with time zone", "boolean")
#: The first version in which nulls can be equal in a unique key, as libpq tells it.
_NULLS_NOT_DISTINCT = 150_000
_TABLE = """
SELECT c.oid::bigint, c.relkind::text, pg_catalog.pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
  a.attgenerated::text <> '' OR a.attidentity::text = 'a', a.atthasdef OR a.attidentity::text <> '',
  coalesce(c.collisdeterministic, true)
FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = %s::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT ARRAY(SELECT a.attname::text FROM generate_series(0, i.indnkeyatts - 1) p
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[p]),
  coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)
FROM pg_catalog.pg_index i WHERE i.indrelid = %s::bigint::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
"""

#: Which of some rights the role lacks. Rights on the columns that the output has are enough, except for DELETE.
_DATABASE_RIGHTS = (
    "SELECT p FROM unnest(%s::text[]) p WHERE NOT pg_catalog.has_database_privilege(%s::text, p)"
)
_SCHEMA_RIGHTS = "SELECT p FROM unnest(%s::text[]) p WHERE NOT pg_catalog.has_schema_privilege(%s::text, p)"
_TABLE_RIGHTS = """
SELECT p FROM unnest(%s::text[]) p, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND NOT CASE p WHEN 'DELETE'
  THEN pg_catalog.has_table_privilege(c.oid, p) ELSE pg_catalog.has_any_column_privilege(c.oid, p) END
"""


@dataclass(frozen=True)
class Stored:
    """A column of an existing table."""

    name: str
    type: str
    nullable: bool
    made_by_server: bool
    has_default: bool
    deterministic: bool


@dataclass(frozen=True)
class ExistingTable:
    """An existing table: its kind, whether it is the role's own, its columns by name, its unique keys.

    Of each key, whether nulls are equal in it.
    """

    kind: str
    is_ours: bool
    columns: dict[str, Stored]
    keys: tuple[tuple[frozenset[str], bool], ...]


def look_at(connection: psycopg.Connection, name: TableName) -> ExistingTable | None:
    """Read about a table from the catalogue of the server. None if it does not exist."""
    found = connection.execute(_TABLE, (name.schema, name.table)).fetchone()
    if found is None:
        return None
    oid, kind, is_ours = found
    columns = [Stored(*row) for row in connection.execute(_COLUMNS, (oid,))]
    keys = tuple((frozenset(names), nulls) for names, nulls in connection.execute(_KEYS, (oid,)))
    return ExistingTable(kind, is_ours, {one.name: one for one in columns}, keys)


def described(
    name: TableName, marks_schema: str, key: StructType, value: StructType, soft_delete: str | None
) -> Statements:
    """The statements for a table that does not exist yet: its columns have the types that Spark's are created as."""
    fields = [*((one, True) for one in key.fields), *((one, False) for one in value.fields)]
    if soft_delete is not None and any(one.name == soft_delete for one, _ in fields):
        raise PlanError(
            f"The output itself has a column {soft_delete!r}, which soft_delete= would set.",
            hint="Name another column of the table, or exclude this one with select(...).",
        )
    columns = tuple(
        TargetColumn(
            one.name, created_as(one.dataType, one.name), is_key, nullable=one.nullable or not is_key
        )
        for one, is_key in fields
    )
    soft = None if soft_delete is None else SoftDelete(soft_delete, _SOFT_TYPES[0])
    return Statements(name, marks_schema, columns, soft)


def fitted(wanted: Statements, table: ExistingTable, kinds: StructType) -> Statements:
    """Return the statements for an existing table and the output's columns, or refuse it as the module's table says."""
    refuse = _Refusal(wanted)
    if table.kind not in {"r", "p"}:
        raise refuse("is no table", "Name a table, and not a view or a foreign table.")
    _check_there(wanted, table, refuse)
    columns = tuple(_fitted(one, table, kinds, refuse) for one in wanted.columns)
    soft = _fitted_soft(wanted.soft_delete, table, refuse)
    _check_others(table, {one.name for one in columns} | ({soft.name} if soft else set()), refuse)
    _check_key([one.name for one in columns if one.is_key], table, refuse)
    return replace(wanted, columns=columns, soft_delete=soft)


@dataclass(frozen=True)
class _Refusal:
    """Makes the error about a table that does not fit."""

    wanted: Statements

    @property
    def alter(self) -> str:
        """How a statement begins that changes the table."""
        return f"ALTER TABLE {self.wanted.target.sql}"

    def __call__(self, why: str, hint: str = "") -> PlanError:
        usual = f"A table that fits: {self.wanted.create_table()}"
        return PlanError(f"The table {self.wanted.target} {why}.", hint=hint or usual)


def missing(wanted: Statements, server_version: int, *, create: bool) -> Statements:
    """Return the statements for a table that does not exist, or refuse it if it may not, or cannot, be created.

    `server_version` is as libpq tells it: 150004 for 15.4. Only from 15 on can a key with nulls be unique.
    """
    nullable = [one.name for one in wanted.columns if one.is_key and one.nullable]
    if not nullable or server_version >= _NULLS_NOT_DISTINCT:
        if not create:
            raise no_table(wanted)
        return wanted
    without = replace(wanted, columns=tuple(replace(one, nullable=not one.is_key) for one in wanted.columns))
    if not create:
        raise no_table(without)
    raise PlanError(
        f"The key column {nullable[0]!r} can be null, and PostgreSQL {server_version // 10_000} has no unique key over"
        f" nulls: the table {wanted.target} cannot be created.",
        hint=f"Use PostgreSQL 15. If no key is null, create it yourself: {without.create_table()}",
    )


def no_table(wanted: Statements) -> PlanError:
    """The error about a table that does not exist."""
    return PlanError(
        f"There is no table {wanted.target}.",
        hint=f"Create it, or give create=True, with: {wanted.create_table()}",
    )


def table_gone(wanted: Statements) -> PlanError:
    """The error about a table that an earlier micro-batch of the same checkpoint left there."""
    return PlanError(
        f"The table {wanted.target}, to which this query has written, is not there any more.",
        hint="Restore it and start the query again; or start it with a new checkpoint, which writes all rows. To go on"
        f" with the changes from here on only, create it empty: {wanted.create_table()}",
    )


def _check_there(wanted: Statements, table: ExistingTable, refuse: _Refusal) -> None:
    """Refuse a table that lacks columns of the output, all of them at once."""
    missing = _missing(wanted, table)
    if missing:
        statement = widening(wanted, table)
        raise refuse(
            f"has no column {', '.join(repr(one.name) for one in missing)}",
            f"Exclude what it lacks with select(...), or: {statement}" if statement else "",
        )


def _missing(wanted: Statements, table: ExistingTable) -> list[TargetColumn]:
    return [one for one in wanted.columns if one.name not in table.columns]


def widening(wanted: Statements, table: ExistingTable) -> str:
    """The statement that adds the value columns that a table lacks; empty if it lacks none, or a column of the key."""
    missing = _missing(wanted, table)
    if not missing or any(one.is_key for one in missing):
        return ""
    added = ", ".join(f"ADD COLUMN {quoted(one.name)} {one.type}" for one in missing)
    return f"{_Refusal(wanted).alter} {added}"


def widened(wanted: Statements, table: ExistingTable) -> ExistingTable:
    """The table as it is behind `widening`."""
    added = _missing(wanted, table) if widening(wanted, table) else ()
    columns = {one.name: Stored(one.name, one.type, True, False, False, True) for one in added}
    return replace(table, columns=table.columns | columns)


def _fitted(wanted: TargetColumn, table: ExistingTable, kinds: StructType, refuse: _Refusal) -> TargetColumn:
    """A column with the type that it has in the table."""
    found = table.columns[wanted.name]
    if found.made_by_server:
        raise refuse(f"makes the values of the column {wanted.name!r} itself")
    kind: Any = kinds[wanted.name].dataType
    if not fits(kind, found.type, wanted.name, is_key=wanted.is_key):
        what = "key column" if wanted.is_key else "column"
        raise refuse(
            f"has the {what} {wanted.name!r} of type {found.type}, which does not hold all values of Spark's"
            f" {kind.simpleString()}",
            f"{refuse.alter} ALTER COLUMN {quoted(wanted.name)} TYPE {wanted.type}; or cast the column.",
        )
    if wanted.is_key and not found.deterministic:
        raise refuse(
            f"compares the key column {wanted.name!r} by a collation in which different texts are equal"
        )
    return replace(wanted, type=found.type, nullable=found.nullable)


def _fitted_soft(wanted: SoftDelete | None, table: ExistingTable, refuse: _Refusal) -> SoftDelete | None:
    if wanted is None:
        return None
    found = table.columns.get(wanted.name)
    if found is None or found.type not in _SOFT_TYPES or found.made_by_server:
        raise refuse(
            f"has no column {wanted.name!r} of type {' or '.join(_SOFT_TYPES)} for soft_delete=",
            f"{refuse.alter} ADD COLUMN {quoted(wanted.name)} {_SOFT_TYPES[0]}" if found is None else "",
        )
    if found.type != "boolean" and not found.nullable:
        raise refuse(
            f"has the column {wanted.name!r} NOT NULL, but rows that are not deleted have a null there"
        )
    return replace(wanted, type=found.type)


def _check_others(table: ExistingTable, ours: set[str], refuse: _Refusal) -> None:
    """Refuse columns that new rows would lack."""
    for one in table.columns.values():
        if one.name not in ours and not (one.nullable or one.has_default or one.made_by_server):
            raise refuse(
                f"has the column {one.name!r} NOT NULL and without a default, and the output lacks it",
                f"Add the column to the output; or: {refuse.alter} ALTER COLUMN {quoted(one.name)} DROP NOT NULL",
            )


def _check_key(names: Sequence[str], table: ExistingTable, refuse: _Refusal) -> None:
    """Refuse a table in which a key could have two rows."""
    said = ", ".join(map(repr, names))
    fitting = [nulls_not_distinct for columns, nulls_not_distinct in table.keys if columns == set(names)]
    if not fitting:
        raise refuse(f"has no primary key or unique index over exactly the key {said}")
    nullable = [name for name in names if table.columns[name].nullable]
    if nullable and not any(fitting):
        raise refuse(
            f"takes several rows with a null in the key column {nullable[0]!r}",
            f"Set it NOT NULL, or (from PostgreSQL 15 on) make the index UNIQUE NULLS NOT DISTINCT over {said}.",
        )


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
        (f"DATABASE {quoted(database)}", _DATABASE_RIGHTS, (["TEMPORARY"], database)),
        *((f"SCHEMA {quoted(name)}", _SCHEMA_RIGHTS, (rights, name)) for name, rights in schemas.items()),
        (target.sql, _TABLE_RIGHTS, (on_table, target.schema, target.table)),
    ]
    for what, query, arguments in wanted:
        lacking = [right for (right,) in connection.execute(query, arguments)]
        if lacking:
            yield what, ", ".join(lacking)
