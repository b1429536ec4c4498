"""Settings of a session that are changed for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


def set_all(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    """Set some settings; None unsets one."""
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set what is needed inside, and restore what was there."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        set_all(spark, settings)
        yield
    finally:
        set_all(spark, before)
