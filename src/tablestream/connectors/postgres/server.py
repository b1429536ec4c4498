"""Connections to a PostgreSQL server: where it is, how a session is set up, and errors that show no password.

Every transaction is set up alike, whatever the role, the database or the server has as its defaults:

=======================================  ===============================================================
setting                                  why
=======================================  ===============================================================
read committed                           who waits for a mark must see what the other transaction wrote
``row_security`` off                     rows that a policy hides are an error, and are not passed over
``synchronous_commit`` not off           what is committed survives a crash of the server
``idle_in_transaction_session_timeout``  a driver that stands still does not keep the others waiting
keepalives on both sides                 the same for one whose machine or network is gone
``search_path`` begins with pg_catalog   nobody's function takes the place of a built-in one. Names in statements are
                                         whole; the rest of the path is for triggers of the user's table
no prepared statements                   poolers that hand out a connection per transaction can be used
=======================================  ===============================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tablestream.base.data_text import cut_sentence, cut_text, leaves_out_data, visible_lines
from tablestream.base.extras import install_hint
from tablestream.errors import ArgumentError, DatabaseError

if TYPE_CHECKING:
    import psycopg

_SECRETS = ("password", "sslpassword", "oauth_client_secret")
#: For libpq, where the user says nothing: a server that is gone is noticed after about a minute.
_USUAL = {
    "application_name": "tablestream",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
#: The function is called by its whole name: until then the path is the role's or the database's.
_PATH = """
SELECT pg_catalog.set_config('search_path',
  pg_catalog.concat_ws(', ', 'pg_catalog', pg_catalog.current_setting('search_path')), true)
"""
_SETTINGS = """
SELECT set_config('row_security', 'off', true),
 set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
   ELSE current_setting('synchronous_commit') END, true),
 set_config('idle_in_transaction_session_timeout', '60s', true),
 set_config('tcp_keepalives_idle', '30', true), set_config('tcp_keepalives_interval', '10', true),
 set_config('tcp_keepalives_count', '3', true)
"""


@dataclass(frozen=True)
class Server:
    """A database, by libpq's connection string, which may contain a password and is never shown."""

    conninfo: str = field(repr=False)

    @classmethod
    def of(cls, conninfo: Any) -> Server:
        """Check a connection string; no error shows it."""
        if not isinstance(conninfo, str):
            raise _bad_conninfo()
        server = cls(conninfo)
        _ = server.parameters
        return server

    @cached_property
    def parameters(self) -> dict[str, str]:
        """What the string says, by libpq's names."""
        _import()
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            found = conninfo_to_dict(self.conninfo)
        except ProgrammingError:
            raise _bad_conninfo() from None  # its message shows a part of the string
        return {name: str(value) for name, value in found.items() if value is not None}

    @property
    def place(self) -> str:
        """Host, port and database, without user and password."""
        said = self.parameters
        if "service" in said:
            return f"service {said['service']}"
        host = said.get("host") or said.get("hostaddr") or os.environ.get("PGHOST", "localhost")
        port = said.get("port") or os.environ.get("PGPORT", "5432")
        user = said.get("user") or os.environ.get("PGUSER", "")
        return f"{host}:{port}/{said.get('dbname') or os.environ.get('PGDATABASE') or user}"

    @contextmanager
    def transaction(self, what: str) -> Iterator[psycopg.Connection]:
        """Connect, and run one transaction: committed at the end, rolled back by an error.

        `what` is done, for errors, as in "write a micro-batch". Raises `DatabaseError` if the server does not answer,
        or refuses something, and `ArgumentError` if this process, such as an executor's, has no psycopg.
        """
        _import()
        import psycopg

        try:
            with self._connect() as connection:
                connection.execute(_PATH)
                connection.execute(_SETTINGS)
                yield connection
        except psycopg.Error as error:
            raise self._failed(what, error) from None  # the text of the original may show a password

    def _connect(self) -> psycopg.Connection:
        import psycopg

        usual = {name: value for name, value in _USUAL.items() if name not in self.parameters}
        connection = psycopg.connect(self.conninfo, prepare_threshold=None, client_encoding="UTF8", **usual)  # type: ignore[arg-type]
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    def _failed(self, what: str, error: psycopg.Error) -> DatabaseError:
        said = (error.diag.message_primary, error.diag.message_detail, error.diag.context)
        text = ". ".join(cut_text(part) for part in said if part)
        text = text or visible_lines(cut_sentence(str(error).strip()))  # of a connection, without data
        secrets = [self.parameters[name] for name in _SECRETS if self.parameters.get(name)]
        if leaves_out_data() or any(one in str(error) or one in text for one in secrets):
            text = type(error).__name__
        state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
        return DatabaseError(
            f"Cannot {what} in PostgreSQL at {self.place}: {text}{state}",
            hint="Mend the cause and start the query again: it writes the micro-batch, unless it is there already.",
        )


def _import() -> None:
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ArgumentError(
            "Writing to PostgreSQL needs the package psycopg, in the driver and in Spark's workers.",
            hint=install_hint("postgres"),
        ) from error


def _bad_conninfo() -> ArgumentError:
    return ArgumentError(
        "conninfo= of to_postgres is no connection string of libpq.",
        hint="Write it as 'host=db dbname=shop user=writer' or 'postgresql://writer@db/shop'.",
    )
