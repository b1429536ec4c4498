"""SQL: a query becomes a table. It parses, checks and calls the methods of tables; the engine knows no SQL.

`tablestream.sql` is this package and the function of `query.py` alike: a package can be imported before the function is
asked for.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """The package, which can be called as the function `tablestream.sql`."""

    def __call__(self, query: str, /, **tables: Any) -> Any:
        from tablestream.sql.call import sql

        return sql(query, **tables)


sys.modules[__name__].__class__ = _CallablePackage
