"""The examples in the docstrings of connectors, run."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest

from tablestream.connectors import delta, files, memory

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("module", [delta, files, memory], ids=lambda module: module.__name__)
def test_examples(spark: SparkSession, module: ModuleType) -> None:
    result = doctest.testmod(module, extraglobs={"spark": spark})
    assert result.attempted > 0
    assert result.failed == 0
