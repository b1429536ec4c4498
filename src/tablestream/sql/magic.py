"""The cell magic ``%%tablestream`` of notebooks: a query over the tables of the notebook."""

from __future__ import annotations

from typing import Any

from tablestream.errors import ArgumentError
from tablestream.sql.call import sql
from tablestream.streams import Stream
from tablestream.tables import Table


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%tablestream`` to a notebook: what ``%load_ext tablestream.sql.magic`` calls.

    The cell is a query, for `tablestream.sql`. It names the tables and streams by the notebook's own variables, except
    those that begin with an underscore. The result is shown, and ``%%tablestream NAME`` keeps it as the variable NAME.

    Parameters
    ----------
    shell
        The ``InteractiveShell`` of IPython.
    """

    def tablestream(line: str, cell: str) -> Table | Stream:
        """Maintain a query over the notebook's tables: ``%%tablestream NAME``, with the query in the next lines."""
        name, variables = line.strip(), shell.user_ns
        if name and not name.isidentifier():
            raise ArgumentError(
                f"{name!r} is not the name of a variable.", hint="Write `%%tablestream NAME`, or no name."
            )
        tables = {
            known: one
            for known, one in variables.items()
            if isinstance(one, Table | Stream) and not known.startswith("_")
        }
        made = sql(cell, **tables)
        if name:
            variables[name] = made
        return made

    shell.register_magic_function(tablestream, "cell")
