"""Checks the options of the decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from pyspark.sql import types as T

from tablestream.arguments.kinds import check_string
from tablestream.base.calling import user_line
from tablestream.connectors.debezium import source as sources
from tablestream.connectors.debezium.columns import Columns
from tablestream.connectors.debezium.converters import arrow_type
from tablestream.connectors.debezium.placeholder import Placeholder
from tablestream.connectors.debezium.scalars import Binary, Decimals
from tablestream.connectors.debezium.types import Unit
from tablestream.errors import ArgumentError, UnsupportedTypeError

TimeMode = Literal["milliseconds", "microseconds", "nanoseconds", "isostring", "connect"]
_UNITS: dict[str, Unit] = {
    "milliseconds": "milliseconds",
    "microseconds": "microseconds",
    "nanoseconds": "nanoseconds",
    "isostring": "isostring",
    "connect": "milliseconds",
}


def units(times: TimeMode | Mapping[str, TimeMode]) -> dict[str, Unit]:
    """Return the unit of each column that is named, and under an empty name that of all others."""
    if isinstance(times, str):
        return {"": _UNITS[times]}
    return {name: _UNITS[mode] for name, mode in times.items()}


def check_modes(
    decimals: str, times: TimeMode | Mapping[str, TimeMode], binary: str, placeholder: str
) -> None:
    """Check the modes of the connector.

    Raises
    ------
    ArgumentError
        One is none of Debezium's.
    """
    _one_of("decimals", decimals, get_args(Decimals))
    _one_of("binary", binary, get_args(Binary))
    for mode in times.values() if isinstance(times, Mapping) else [times]:
        _one_of("times", mode, _UNITS)
    check_string(placeholder, "placeholder", "the connector's unavailable.value.placeholder")
    try:
        Placeholder(placeholder)
    except ValueError as error:
        raise ArgumentError(
            f"placeholder={placeholder!r} is not hexadecimal after 'hex:'.",
            hint="Give the connector's unavailable.value.placeholder as it is.",
        ) from error


def check_prefix(prefix: Any) -> None:
    """Check what begins the names of metadata.

    Raises
    ------
    ArgumentError
        It is empty: then nothing tells metadata from columns.
    """
    if not isinstance(prefix, str) or not prefix:
        raise ArgumentError(
            f"field_prefix={prefix!r} does not tell the metadata of flattened records from their columns.",
            hint="Set the connector's add.fields.prefix, such as '__', and give field_prefix= the same.",
        )


def check_columns(
    columns: Columns, unchanged: tuple[str, ...], source: tuple[str, ...], excepted: tuple[str, ...]
) -> None:
    """Check the columns and the names that refer to them.

    Raises
    ------
    ArgumentError
        A name is not known, or two columns share one.
    UnsupportedTypeError
        A column is of a type that no record has.
    """
    if not columns.key.fields:
        raise ArgumentError("The table has no key columns.", hint="Name at least one.")
    for name in source:
        if sources.field_type(name) is None:
            raise ArgumentError(
                f"source={name!r} is not a field of Debezium's 'source'.",
                hint="See tablestream.connectors.debezium.source for the fields of each connector.",
            )
    names = [*columns.key.names, *columns.value.names, *(f"source_{name}" for name in source)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ArgumentError(
            f"Several columns are called {', '.join(twice)}.",
            hint="Give each column once, in the key or in the value.",
        )
    unknown = [name for name in unchanged if name not in columns.value.names]
    if unknown:
        raise ArgumentError(
            f"unchanged= names {', '.join(unknown)}, which is no column of the value.",
            hint=f"The columns are: {', '.join(columns.value.names)}.",
        )
    both = [name for name in excepted if name in names]
    if both:
        raise ArgumentError(
            f"except_columns= names {', '.join(both)}, which is a column of the table.",
            hint="Leave it out of columns=, or out of except_columns=.",
        )
    for column in (*columns.key, *columns.value):
        _check_type(column)


def _check_type(column: T.StructField) -> None:
    if arrow_type(column.dataType) is None:
        raise UnsupportedTypeError(
            f"The column '{column.name}' is {column.dataType.simpleString()}, which no record of Debezium holds.",
            hint="Make it a string or a bigint, and convert it with select(...).",
            where=user_line(),
        )


def _one_of(option: str, given: Any, allowed: Iterable[str]) -> None:
    if given not in tuple(allowed):
        raise ArgumentError(
            f"{option}={given!r} is not one of {', '.join(allowed)}.",
            hint="Give the mode that the connector is configured with.",
        )
