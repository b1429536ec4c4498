"""Rows as JSON text: how a session writes them, and reads them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tablestream.connectors.sink import literal

_TIME_PARSER = "spark.sql.legacy.timeParserPolicy"


def json_options(spark: SparkSession | None = None) -> dict[str, str]:
    """How a session writes rows as JSON, and reads them. Default: the active session."""
    spark = spark or SparkSession.getActiveSession()
    legacy = _is_legacy(spark)
    return {
        # Spark writes milliseconds by default, which would lose the order within a millisecond.
        # Five X write the seconds of a zone's offset, if any, such as -04:56:02 of New York before 1883. The legacy
        # formatter knows three, and no offsets with seconds.
        "timestampFormat": f"yyyy-MM-dd'T'HH:mm:ss.SSSSSS{'XXX' if legacy else 'XXXXX'}",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
        # A delete's null columns are written out: a log of deletes alone still has its columns.
        "ignoreNullFields": "false",
    }


def json_read_options() -> dict[str, str]:
    """How JSON that a user writes is read: with times in any form, unless its parser takes one for another."""
    return json_options() if _is_legacy(SparkSession.getActiveSession()) else {}


def _is_legacy(spark: SparkSession | None) -> bool:
    return spark is not None and (spark.conf.get(_TIME_PARSER, None) or "").upper() == "LEGACY"


def json_sql(value: str, **further: str) -> str:
    """Return a value, given as SQL, as JSON text in SQL; `further` are more options."""
    options = (json_options() | further).items()
    return f"to_json({value}, map({', '.join(literal(one) for pair in options for one in pair)}))"
