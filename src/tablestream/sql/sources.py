"""What ``CREATE TABLE`` and ``CREATE STREAM`` become: the same calls as in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tablestream.connectors.delta.source import appended_rows, change_feed
from tablestream.connectors.files.source import from_files
from tablestream.connectors.kafka.source import from_kafka
from tablestream.databases.change_feed import from_change_feed
from tablestream.databases.debezium import Debezium, from_debezium
from tablestream.sources import global_table, stream, table
from tablestream.sql.handles import Handle
from tablestream.sql.options import Options, Step
from tablestream.sql.problems import Problem, nearest
from tablestream.sql.statements import Call, SourceTable
from tablestream.tables import Table

_MAKERS: Mapping[str, Callable[..., Handle]] = {
    "TABLE": table,
    "STREAM": stream,
    "GLOBAL TABLE": global_table,
}
_OF_MAKER = ("df", "key", "name", "bootstrap")
#: What the columns of a table are in a record: fields of a JSON object, or one column.
_JSON, _ONE_COLUMN = "json", {"string": "STRING", "binary": "BINARY"}


@dataclass(frozen=True)
class Session:
    """What the sources of a file share.

    Attributes
    ----------
    connectors
        The connectors of databases by their options. Tables of one connector see each transaction as a whole.
    """

    spark: SparkSession
    connectors: dict[str, Debezium] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A system that statements can read.

    Attributes
    ----------
    steps
        The functions that it calls before the table is made.
    read
        Returns the streaming DataFrame, or the table.
    columns
        Whether a statement must, can or cannot declare columns.
    own
        Whether `read` returns the table: the system says what its key and its deletes are.
    """

    steps: tuple[Step, ...]
    read: Callable[[Session, SourceTable, Options], Any]
    columns: str
    own: bool = False


def _files(session: Session, it: SourceTable, options: Options) -> DataFrame:
    kind: Any = it.system  # json, csv or parquet
    return from_files(session.spark, format=kind, schema=it.schema(), **options.of(from_files))


def _delta(session: Session, it: SourceTable, options: Options) -> DataFrame:  # noqa: ARG001 (as the others)
    return appended_rows(session.spark, **options.of(appended_rows))


def _change_feed(session: Session, it: SourceTable, options: Options) -> Table:
    frame = change_feed(session.spark, **options.of(change_feed))
    return from_change_feed(frame, list(it.key), name=it.name, **options.of(from_change_feed))


def _debezium(session: Session, it: SourceTable, options: Options) -> Table:
    given = options.of(from_debezium)
    settings = repr(sorted(given.items()))
    if settings not in session.connectors:
        session.connectors[settings] = from_debezium(session.spark, **given)
    topics = session.connectors[settings]
    return topics.table(key=list(it.key) or None, columns=it.schema() or None, **options.of(Debezium.table))


def _kafka(session: Session, it: SourceTable, options: Options) -> DataFrame:
    """Read topics. Columns of the primary key are those of the records' key, the others those of its value."""
    given = options.of(from_kafka)
    renamed = dict[str, str]()
    for part, names in _parts(it, given).items():
        given[part], renamed[part] = _record_format(it, given.get(part, _JSON), names)
    frame = from_kafka(session.spark, **given)
    return frame.withColumnsRenamed({part: name for part, name in renamed.items() if name})


def _parts(it: SourceTable, given: Mapping[str, Any]) -> dict[str, list[str]]:
    """The columns of the parts of a record; none if the statement leaves them to the format."""
    if not it.columns:
        return {}
    has_key = bool(it.key) and given.get("key", _JSON) is not None
    key = list(it.key) if has_key else []
    value = [name for name in it.columns if name not in key]
    return {"key": key, "value": value} if has_key else {"value": value}


def _record_format(it: SourceTable, word: Any, names: list[str]) -> tuple[str, str]:
    """The format of a part as `from_kafka` takes it, and how its one column is called if it has no name there."""
    return (it.schema(names), "") if word == _JSON else (str(word), names[0])


_OF_FILES = Source((Step(from_files, ("spark", "format", "schema")),), _files, "must")
_SOURCES: Mapping[str, Source] = {
    "json": _OF_FILES,
    "csv": _OF_FILES,
    "parquet": _OF_FILES,
    "kafka": Source((Step(from_kafka, ("spark",), derived=("value",)),), _kafka, "can"),
    "delta": Source((Step(appended_rows, ("spark",)),), _delta, "cannot"),
    "change_feed": Source(
        (Step(change_feed, ("spark",)), Step(from_change_feed, ("df", "key", "name"))),
        _change_feed,
        "cannot",
        own=True,
    ),
    "debezium": Source(
        (Step(from_debezium, ("source",)), Step(Debezium.table, ("self", "key", "columns"))),
        _debezium,
        "can",
        own=True,
    ),
}
_ELSEWHERE = {
    "avro": "Records in Avro come from topics: USING kafka OPTIONS (value avro('...')).",
    "postgres": "Changes of a database come from Debezium's topics: USING debezium.",
}


def source_problems(it: SourceTable) -> Iterator[Problem]:
    """Yield what is wrong with a source, as far as it is known without Spark."""
    if it.format is None:
        yield Problem(
            it.at, f"{it.name} does not say where it is read.", f"Write USING {', '.join(_SOURCES)}."
        )
        return
    source = _SOURCES.get(it.format.name)
    if source is None:
        hint = _ELSEWHERE.get(it.format.name) or nearest(it.format.name, _SOURCES)
        yield Problem(
            it.format.at, f"{it.format.name} is no source.", hint or f"There are {', '.join(_SOURCES)}."
        )
        return
    yield from _options(it, source).problems()
    yield from _of_columns(it, source)
    yield from _of_records(it)


def read_source(session: Session, it: SourceTable) -> Handle:
    """Make the table or the stream of a statement without problems."""
    source = _SOURCES[it.system]
    options = _options(it, source)
    found = source.read(session, it, options)
    if source.own:
        made: Handle = found
        return made
    maker = _MAKERS[it.kind]
    return maker(found, key=list(it.key) or None, name=it.name, **options.of(maker))


def _options(it: SourceTable, source: Source) -> Options:
    made = () if source.own else (Step(_MAKERS[it.kind], _OF_MAKER),)
    return Options(it, (*source.steps, *made))


def _of_columns(it: SourceTable, source: Source) -> Iterator[Problem]:
    """Yield what is wrong with the columns and the primary key of a table."""
    name = it.system
    is_inferred = source.columns == "can" and source.own and not it.columns
    if source.columns == "must" and not it.columns:
        hint = f"Write them in parentheses: {name} does not say them itself."
        yield Problem(it.at, f"{it.name} has no columns.", hint)
    elif source.columns == "cannot" and it.columns:
        message = f"{it.name} has columns, which {name} says itself."
        yield Problem(it.at, message, "Write no more than the PRIMARY KEY (...).")
    elif it.kind != "STREAM" and not it.key and not is_inferred:
        message = f"The table {it.name} has no primary key."
        yield Problem(it.at, message, "Write PRIMARY KEY (...) after its columns.")
    if source.own and it.kind != "TABLE":
        yield Problem(it.at, f"{name} has tables only.", "Write CREATE TABLE.")


def _of_records(it: SourceTable) -> Iterator[Problem]:
    """Yield what is wrong with the formats of a topic's records."""
    if it.system != "kafka":
        return
    given = {one.name.lower(): one for one in it.options}
    values = {name: one.value for name, one in given.items()}
    if not it.columns and "value" not in given:
        yield Problem(
            it.at, f"{it.name} has no columns.", "Write them in parentheses, or give the option value."
        )
    parts = _parts(it, values)
    if it.columns and "key" not in parts and values.get("key") is not None:
        yield Problem(
            given["key"].at,
            f"{it.name} has no primary key that key would be read for.",
            "Write PRIMARY KEY (...).",
        )
    for part, names in parts.items():
        yield from _of_part(
            it, part, names, values.get(part, _JSON), given[part].at if part in given else it.at
        )


def _of_part(it: SourceTable, part: str, names: list[str], word: Any, at: int) -> Iterator[Problem]:
    """Yield what is wrong with the format of a record's key or value."""
    if isinstance(word, Call):
        message = f"{it.name} has columns, which the schema of {word.function} says itself."
        yield Problem(at, message, "Write no more than the PRIMARY KEY (...).")
    elif word not in (_JSON, *_ONE_COLUMN):
        hint = f"Give {', '.join(map(repr, (_JSON, *_ONE_COLUMN)))}, or omit it."
        yield Problem(at, f"{part} {word!r} is no format for columns.", hint)
    elif word != _JSON:
        yield from _of_one_column(it, part, names, word, at)


def _of_one_column(it: SourceTable, part: str, names: list[str], word: str, at: int) -> Iterator[Problem]:
    kind = _ONE_COLUMN[word]
    if len(names) != 1 or kind not in it.columns[names[0]].upper().split():
        message = f"The {part} of the records is {word}, which is one column of type {kind}."
        yield Problem(at, message, f"Declare one such column for it, or omit {part} for a JSON object.")
    elif any(name.lower() == part for name in it.columns if name not in names):
        yield Problem(
            at, f"Another column is called {part}, as the {part} of the records.", "Give it another name."
        )
