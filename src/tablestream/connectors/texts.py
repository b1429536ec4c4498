"""Values in texts of JSON and CSV, exactly: Spark's parsers would change some of them, and say nothing.

Such values are read as they stand and become their column's type here. A value that does not fit is null, and its row
is malformed:

==================  ==============================================================  ==================================
column              fits                                                            Spark's parser alone
==================  ==============================================================  ==================================
timestamp,          a text in ISO form, with a year of four digits, or of more      ``202401`` is the year 202401, and
timestamp_ntz,      after a sign; a number in the unit that `times` says. Without   1704186000000 the year 55973;
date                it, a number in JSON counts seconds in a timestamp, and fits    ``12:00`` is at noon of the day on
                    no other column. Numbers reach the years 1 to 9999              which the row is read
decimal             a number with at most as many digits as the column has,         rounds; reads ``1,5`` as 15
                    after the point and before it; zeros at its end do not count
tinyint, in JSON    -128 to 127                                                     200 is -56
any but string,     the whole text is a number, or true or false; nothing           reads ``1d`` as 1, ``1e999`` as
in CSV              between quotes is null                                          infinity
==================  ==============================================================  ==================================

JSON's values are read as variants, which keep up to 38 digits and tell a number from a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, Literal, get_args

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.type_parts import parts
from tablestream.errors import ArgumentError
from tablestream.operators.calendar import FIRST_US, LAST_US

Unit = Literal["days", "seconds", "milliseconds", "microseconds", "nanoseconds", "isostring"]
Units = Unit | Mapping[str, Unit] | None

#: Microseconds in a unit.
_MICROS: dict[str, Decimal] = {
    "days": Decimal(86_400_000_000),
    "seconds": Decimal(1_000_000),
    "milliseconds": Decimal(1000),
    "microseconds": Decimal(1),
    "nanoseconds": Decimal("0.001"),
}
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_REAL = (T.FloatType, T.DoubleType)
_COUNT = r"^[+-]?[0-9]{1,19}$"
_INTEGER = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_POWER = r"^[+-]?([0-9]*)\.?([0-9]*)[eE]([+-]?[0-9]+)$"
_SPECIAL = r"(?i)^[+-]?(nan|inf|infinity)$"
_DAY = r"([0-9]{4}|[+-][0-9]{4,6})(-[0-9]{1,2}(-[0-9]{1,2}"
_ISO: dict[type[T.DataType], str] = {
    T.TimestampType: rf"^{_DAY}([T ].*)?)?)?$",
    T.TimestampNTZType: rf"^{_DAY}([T ][0-9:.]*)?)?)?$",
    T.DateType: rf"^{_DAY}([T ].*)?)?)?$",
}
_YEAR_0 = "^0000"


def checked_units(times: Any, columns: T.StructType) -> dict[str, Unit]:
    """Return the unit of each column with times that is named, and under an empty name that of all others."""
    if times is None:
        return {}
    named = dict(times) if isinstance(times, Mapping) else {"": times}
    timed = [one.name for one in columns if _has_times(one.dataType)]
    wrong = [name for name in named if name and name not in timed] if timed else [", ".join(columns.names)]
    if wrong:
        raise ArgumentError(
            f"times= is for columns with timestamps or dates, and {wrong[0]!r} has none.",
            hint=f"Columns with times: {', '.join(timed) or 'none'}.",
        )
    unknown = [unit for unit in named.values() if unit not in get_args(Unit)]
    if unknown:
        raise ArgumentError(
            f"times={unknown[0]!r} is not one of {', '.join(get_args(Unit))}.",
            hint='Give the unit of the numbers, as in times="milliseconds" or times={"at": "milliseconds"}.',
        )
    return named


@dataclass(frozen=True)
class Texts:
    """How the values of some columns are read."""

    columns: T.StructType
    """The columns that are wanted."""
    of: Literal["json", "csv"]
    """The format of the texts."""
    units: Mapping[str, Unit] = field(default_factory=dict)
    """What `checked_units` returns."""
    kept: tuple[type[T.DataType], ...] = ()
    """Types that Spark's parser reads, because the user says in which form they are."""

    @property
    def raw(self) -> T.StructType:
        """The columns as they are to be read."""
        return T.StructType([T.StructField(one.name, self._raw(one.dataType)) for one in self.columns])

    @property
    def unitless(self) -> bool:
        """Whether a number could be meant for a time whose unit is not given."""
        return any(_has_times(one.dataType) and self._unit(one.name) is None for one in self.columns)

    def values(self, raw: Mapping[str, Column]) -> dict[str, Column]:
        """Return the columns of what was read, null where a value does not fit."""
        return {
            one.name: self._value(raw[one.name], one.dataType, self._unit(one.name)) for one in self.columns
        }

    def misfits(self, raw: Mapping[str, Column]) -> dict[str, Column]:
        """Return whether a value does not fit, of each column that can have such values."""
        return {
            one.name: self._misfit(raw[one.name], one.dataType, self._unit(one.name))
            for one in self.columns
            if self._is_changed(one.dataType)
        }

    def _unit(self, name: str) -> Unit | None:
        return self.units.get(name) or self.units.get("")

    def _raw(self, kind: T.DataType) -> T.DataType:
        if isinstance(kind, T.StructType):
            return T.StructType([T.StructField(one.name, self._raw(one.dataType)) for one in kind])
        if isinstance(kind, T.ArrayType):
            return T.ArrayType(self._raw(kind.elementType))
        if isinstance(kind, T.MapType):
            return T.MapType(kind.keyType, self._raw(kind.valueType))
        if not self._is_text(kind):
            return _wide(kind) if isinstance(kind, T.DecimalType) else kind
        if self.of == "csv":
            return T.StringType()
        return T.ShortType() if isinstance(kind, T.ByteType) else T.VariantType()

    def _is_text(self, kind: T.DataType) -> bool:
        """Whether a scalar is converted here."""
        if isinstance(kind, self.kept):
            return False
        everywhere = (*_TIMES, T.DecimalType, T.ByteType)
        return isinstance(
            kind, everywhere if self.of == "json" else (*everywhere, *_WHOLE, *_REAL, T.BooleanType)
        )

    def _is_changed(self, kind: T.DataType) -> bool:
        """Whether a value, or a part of it, is looked at here."""
        return any(self._is_text(one) or isinstance(one, (*_TIMES, T.DecimalType)) for one in _scalars(kind))

    def _value(self, raw: Column, kind: T.DataType, unit: Unit | None) -> Column:
        if not self._is_changed(kind):
            return raw
        if isinstance(kind, T.StructType):
            parts = (self._value(raw[one.name], one.dataType, unit).alias(one.name) for one in kind)
            return F.when(raw.isNotNull(), F.struct(*parts))
        if isinstance(kind, T.ArrayType):
            return F.transform(raw, lambda one: self._value(one, kind.elementType, unit))
        if isinstance(kind, T.MapType):
            return F.transform_values(raw, lambda _, one: self._value(one, kind.valueType, unit))
        if not self._is_text(kind):
            found = raw.try_cast(kind)
            return F.when(F.year(raw).between(1, 9999) if isinstance(kind, _TIMES) else found == raw, found)
        return self._scalar(raw, kind, unit)

    def _misfit(self, raw: Column, kind: T.DataType, unit: Unit | None) -> Column:
        if isinstance(kind, T.StructType):
            parts = [one for one in kind if self._is_changed(one.dataType)]
            return reduce(or_, (self._misfit(raw[one.name], one.dataType, unit) for one in parts))
        if isinstance(kind, T.ArrayType):
            return _any(raw, lambda one: self._misfit(one, kind.elementType, unit))
        if isinstance(kind, T.MapType):
            return _any(F.map_values(raw), lambda one: self._misfit(one, kind.valueType, unit))
        given = self._given(raw) if self._is_text(kind) else raw
        return given.isNotNull() & self._value(raw, kind, unit).isNull()

    def _given(self, raw: Column) -> Column:
        """The text of a scalar; null if there is none."""
        return F.nullif(raw, F.lit("")) if self.of == "csv" else raw.cast("string")

    def _scalar(self, raw: Column, kind: T.DataType, unit: Unit | None) -> Column:
        text = self._given(raw)
        if isinstance(kind, _TIMES):
            return self._time(raw, text, kind, unit)
        if isinstance(kind, T.DecimalType):
            return _decimal(text, kind)
        if isinstance(kind, _REAL):
            found = text.try_cast(kind)
            return F.when(text.rlike(_SPECIAL) | (text.rlike(_NUMBER) & (F.abs(found) < float("inf"))), found)
        pattern = r"(?i)^(true|false)$" if isinstance(kind, T.BooleanType) else _INTEGER
        return F.when(text.rlike(pattern), text.try_cast(kind))

    def _time(self, raw: Column, text: Column, kind: T.DataType, unit: Unit | None) -> Column:
        """Read a text in ISO form, or a number, which only JSON tells from the text of a year."""
        is_iso = text.rlike(_ISO[type(kind)]) & ~text.rlike(_YEAR_0)
        is_text = F.to_json(raw).startswith('"') if self.of == "json" else F.lit(True)
        read = F.when(is_text & is_iso, text.try_cast(kind))
        default = "seconds" if self.of == "json" and isinstance(kind, T.TimestampType) else None
        factor = _MICROS.get(unit or default or "")
        if factor is None:
            return read
        counts = text.rlike(_COUNT) & (F.lit(unit is not None) | ~is_text)
        return F.when(counts, _counted(text, kind, factor)).otherwise(read)


def _any(values: Column, is_so: Any) -> Column:
    return F.coalesce(F.exists(values, is_so), F.lit(False))


def _has_times(kind: T.DataType) -> bool:
    return any(isinstance(one, _TIMES) for one in _scalars(kind))


def _scalars(kind: T.DataType) -> Iterator[T.DataType]:
    """The types without parts in a type, but for the keys of maps: these are not converted."""
    inner = [one for _, one in parts(kind)]
    if not inner:
        yield kind
    for one in inner[isinstance(kind, T.MapType) :]:
        yield from _scalars(one)


def _wide(kind: T.DecimalType) -> T.DecimalType:
    """The decimal with as many digits before the point, and after it as many as there can be."""
    return T.DecimalType(38, 38 - kind.precision + kind.scale)


def _counted(text: Column, kind: T.DataType, factor: Decimal) -> Column:
    """Return the time of a count since 1970 in UTC; a date needs a whole day. Less than a microsecond is cut off."""
    micros = F.floor(text.try_cast("decimal(19,0)") * F.lit(factor))
    known = micros.between(FIRST_US, LAST_US)
    if isinstance(kind, T.TimestampType):
        return F.when(known, F.timestamp_micros(micros.cast("bigint")))
    if isinstance(kind, T.DateType):
        a_day = F.lit(_MICROS["days"])
        days = F.floor(micros / a_day).cast("int")
        return F.when(known & (micros % a_day == 0), F.date_from_unix_date(days))
    seconds = (micros.cast("decimal(18,0)") * F.lit(Decimal("0.000001"))).cast("decimal(18,6)")
    return F.when(known, F.expr("TIMESTAMP_NTZ'1970-01-01'") + F.make_dt_interval(secs=seconds))


def _decimal(text: Column, kind: T.DecimalType) -> Column:
    """Return a number that the column holds with all its digits."""
    plain = text.rlike(rf"^[+-]?[0-9]*(\.[0-9]{{0,{kind.scale}}}0*)?$")
    return F.when(text.rlike(_NUMBER) & (plain | _fits_scale(text, kind.scale)), text.try_cast(kind))


def _fits_scale(text: Column, scale: int) -> Column:
    """Whether a number with an exponent has no digit but zeros after so many places behind the point."""
    whole, part, power = (F.regexp_extract(text, _POWER, group) for group in (1, 2, 3))
    digits = F.concat(whole, part)
    zeros = F.length(digits) - F.length(F.rtrim(digits, F.lit("0")))
    places = F.length(part) - zeros - power.try_cast("int")
    return text.rlike("[eE]") & ((zeros == F.length(digits)) | (places <= scale))
