"""`sql_file`: a file of SQL statements as outputs of a query."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tablestream.arguments.kinds import check_installed, check_mapping, check_session
from tablestream.connectors.console.sink import to_console
from tablestream.spark.requests import OutputRequest

if TYPE_CHECKING:
    from tablestream.sql.program import Program


def sql_file(
    spark: SparkSession, path: str | os.PathLike[str], *, variables: Mapping[str, str] | None = None
) -> list[OutputRequest]:
    """Read a file of SQL statements that declares sources, views and targets, as outputs for `start`.

    Parameters
    ----------
    spark
        The session.
    path
        The file. ``docs/sql.md`` has its statements.
    variables
        The values of ``${name}`` in it. ``${env:NAME}`` is a variable of the environment.

    Returns
    -------
    list of OutputRequest
        The materialized views that say where they are written. Those that do not say it go to the console, unless
        another view reads them.

    Raises
    ------
    ArgumentError
        An argument has the wrong type, or the extra ``sql`` is not installed.
    SqlFileError
        Something is wrong with the file. The error names all that is, with line and column.

    Examples
    --------
    >>> import tablestream as ts
    >>> outputs = ts.sql_file(spark, "holdings.sql", variables={"logs": "logs"})  # doctest: +SKIP
    >>> query = ts.start(*outputs, checkpoint="out/checkpoint")  # doctest: +SKIP
    """
    check_session(spark)
    check_mapping(variables, "variables")
    return program(path, variables or {}).build(spark).to([to_console()])


def program(path: str | os.PathLike[str], variables: Mapping[str, Any]) -> Program:
    """Read a file, and check what can be checked without Spark.

    Raises
    ------
    ArgumentError
        The extra ``sql`` is not installed.
    SqlFileError
        Something is wrong with the file.
    """
    check_installed("sqlglot", "sql", "SQL")
    from tablestream.sql.program import read_program

    return read_program(path, {name: str(value) for name, value in variables.items()})
