"""Options of Spark's Kafka connector: some are set here, and no password is ever shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tablestream.arguments.kinds import check_mapping
from tablestream.connectors.source import Option
from tablestream.errors import ArgumentError, SessionSettingError

SERVERS = "kafka.bootstrap.servers"
#: What Kafka itself hides, certificates left out. ``sasl.jaas.config`` may hold a password, and need not.
_SECRET = {
    "kafka.ssl.key.password",
    "kafka.ssl.keystore.key",
    "kafka.ssl.keystore.password",
    "kafka.ssl.truststore.password",
}
_JAAS = "kafka.sasl.jaas.config"
_OPTIONS_REGEX = "spark.sql.redaction.options.regex"
_HIDES = {
    _OPTIONS_REGEX: "(?i)url",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key",
}
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def checked_options(
    given: Mapping[str, Option] | None, decided: Mapping[str, str], caller: str
) -> dict[str, str]:
    """Accept further options of a function, except those that are set here: `decided` has the hint for each.

    Its names are in lower case. No value is shown.
    """
    check_mapping(given, "options")
    options = {name: _text(value) for name, value in (given or {}).items()}
    for name in options:
        hint = decided.get(name.lower())
        if hint is not None:
            raise ArgumentError(f"{caller} sets the option {name!r} itself.", hint=hint)
    return options


def _text(value: Option) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked_servers(servers: Any) -> str:
    """Raise unless it names a server."""
    if not isinstance(servers, str) or not servers.strip():
        raise ArgumentError(
            "bootstrap_servers does not name a Kafka server.",
            hint="Write it as 'host:9092'; separate several with commas.",
        )
    return str(servers)


def check_hidden(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Refuse secrets that Spark would show: in plans and errors, it hides options by their names.

    Also refuse a session whose patterns only Java understands.
    """
    secrets = {
        name: value
        for name, value in options.items()
        if name.lower() in _SECRET or (name.lower() == _JAAS and "password" in value.lower())
    }
    if not secrets:
        return
    given = {setting: spark.conf.get(setting, usual) or usual for setting, usual in _HIDES.items()}
    patterns = [_compiled(setting, text) for setting, text in given.items()]
    shown = [
        name
        for name, value in secrets.items()
        if not any(pattern.search(name) or pattern.search(value) for pattern in patterns)
    ]
    if shown:
        pattern = "|".join([given[_OPTIONS_REGEX], *(re.escape(name) for name in shown)])
        raise SessionSettingError(
            f"Spark would show {', '.join(shown)} in its plans and errors.",
            hint=f"Set {_OPTIONS_REGEX}={pattern}",
        )


def _compiled(setting: str, text: str) -> re.Pattern[str]:
    """Compile a pattern that was written for Java."""
    try:
        return re.compile(text)
    except re.error as error:
        raise SessionSettingError(
            f"Cannot tell whether {setting}={text} hides this query's secrets: {error}.",
            hint="Write it so that Java and Python both accept it, with flags such as (?i) at the beginning.",
        ) from error


def check_connector(spark: SparkSession) -> None:
    """Refuse a session without Spark's Kafka connector on its class path."""
    try:
        _ = spark.readStream.format("kafka").options(**{SERVERS: "none:1", "subscribe": "none"}).load().schema
    except AnalysisException as error:
        raise SessionSettingError(
            "The session lacks Spark's Kafka connector.",
            hint=f"Start Spark with --packages {_CONNECTOR}:<Spark's version>, or with its jars in spark.jars.",
        ) from error
