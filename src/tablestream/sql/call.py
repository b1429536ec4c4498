"""`sql`: a query as a table."""

from __future__ import annotations

from tablestream.arguments.kinds import check_installed
from tablestream.errors import ArgumentError
from tablestream.streams import Stream
from tablestream.tables import GlobalTable, Table


def sql(query: str, /, **tables: Table | Stream | GlobalTable) -> Table | Stream:
    """Make a table of a query in SQL.

    The query becomes the same plan as methods of tables do: it is maintained change by change, and never recomputed.
    One that cannot be maintained is refused, with every reason.

    Parameters
    ----------
    query
        A ``SELECT`` in Spark's SQL. Expressions mean what they mean in Spark.
    **tables
        The tables and streams that the query names, by the names that it has for them.

    Returns
    -------
    Table or Stream
        Its key follows from the query: filters, and joins by the key of the other side, keep the key; groups have
        theirs. Key columns that the query does not name are columns of the result, too.

    Raises
    ------
    SqlRefusedError
        The query cannot be parsed or maintained: the message has every reason, with its line and column, and what to
        write instead.
    ArgumentError
        `query` is no text, or there is no table; the extra ``sql`` is not installed.

    Examples
    --------
    >>> import tablestream as ts
    >>> positions = ts.table(ts.testing.frame(spark, "id int, ticker string, amount int"), "id", name="positions")
    >>> tickers = ts.table(ts.testing.frame(spark, "ticker string, price double"), "ticker", name="tickers")
    >>> holdings = ts.sql('''
    ...     SELECT p.id, p.ticker, p.amount * t.price AS worth
    ...     FROM positions p JOIN tickers t ON p.ticker = t.ticker
    ... ''', positions=positions, tickers=tickers)
    >>> driver = ts.testing.Driver(holdings)
    >>> driver.pipe("positions", [{"id": 1, "ticker": "ACME", "amount": 3}])
    >>> driver.pipe("tickers", [{"ticker": "ACME", "price": 10.5}])
    >>> print(driver.run())
    id | ticker | worth | _change_type | _timestamp
    1  | ACME   | 31.5  | upsert       | 1970-01-01 00:00:00
    """
    check_installed("sqlglot", "sql", "SQL")
    from sqlglot import exp

    from tablestream.sql.parse import parsed
    from tablestream.sql.query import from_select
    from tablestream.sql.text import Text

    if not isinstance(query, str):
        raise ArgumentError(f"{query!r} is not a query.", hint="Write it as a text.")
    for name, one in tables.items():
        if not isinstance(one, Table | Stream):
            raise ArgumentError(f"{name}={one!r} is not a table.", hint="Create it with tablestream.table.")
    by_name: dict[str, str] = {}
    for name in tables:
        other = by_name.setdefault(name.lower(), name)
        if other != name:
            said = f"{other} and {name} are one name here: upper and lower case are the same."
            raise ArgumentError(said, hint="Give each table its own.")
    statements = parsed(query)
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise ArgumentError("sql() takes one query.", hint="Write one SELECT, without other statements.")
    return from_select(statements[0], tables, Text("", query, query))
