"""`%%tablestream` in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tablestream.errors import ArgumentError, SqlRefusedError
from tablestream.sql.magic import load_ipython_extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class Shell:
    """What the extension uses of IPython's shell."""

    def __init__(self, **variables: Any) -> None:
        self.user_ns: dict[str, Any] = variables
        self.magics: dict[str, Callable[[str, str], Any]] = {}

    def register_magic_function(self, function: Callable[[str, str], Any], kind: str) -> None:
        assert kind == "cell"
        self.magics[function.__name__] = function


@pytest.fixture
def shell(spark: SparkSession) -> Shell:
    positions = ts.table(
        ts.testing.frame(spark, "id int, ticker string, amount int"), "id", name="held positions"
    )
    shell = Shell(positions=positions, _1=positions, amount=3)
    load_ipython_extension(shell)
    return shell


def test_a_cell_is_a_query_over_the_notebooks_tables_and_its_result_a_variable(shell: Shell) -> None:
    cell = shell.magics["tablestream"]
    large = cell("large", "SELECT ticker FROM positions WHERE amount > 10\n")
    assert shell.user_ns["large"] is large
    assert large.key_columns == ["id"]
    assert cell("", "SELECT * FROM large").schema.names == ["id", "ticker"]
    assert set(shell.user_ns) == {"positions", "_1", "amount", "large"}


def test_what_is_no_table_has_no_name_in_a_cell(shell: Shell) -> None:
    for name in ("amount", "_1"):
        with pytest.raises(SqlRefusedError, match=name):
            shell.magics["tablestream"]("", f"SELECT * FROM {name}")
    with pytest.raises(ArgumentError, match="not the name of a variable"):
        shell.magics["tablestream"]("two names", "SELECT * FROM positions")
