"""Numbers of records as columns: every digit, or an error.

============  ============================================  =================================================
Kind          The record has                                The column may be
============  ============================================  =================================================
boolean       true, false; without a schema also 0, 1       boolean
integer       a number without a fraction                   any integer, decimal, float, double; 0 and 1: boolean
real          a number; "NaN", "Infinity", "-Infinity"      float, double, decimal, any integer
decimal       bytes with a scale; {scale, value}; a         decimal, string, any integer, float, double
              number; as text also "NAN" and the like
bits          bytes, the lowest first                       binary, string of 0 and 1; or as an integer
============  ============================================  =================================================

Without a schema an integer or a real number may be a decimal, too: {scale, value}, or text if the connector writes
decimals as text. Bytes need a decimal column, which says their scale.

A decimal becomes a float or double only if that prints as the same number: 0.1 does, one of 30 digits does not.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.base.type_lattice import BITS
from tablestream.connectors.debezium.foreign import MAX_EXPONENT, decimal_of
from tablestream.connectors.debezium.scalars import MisfitError, Modes, Scalar, raw_bytes
from tablestream.connectors.debezium.types import number
from tablestream.connectors.debezium.wire import Wire
from tablestream.connectors.spark_types import arrow_type

_SPECIAL = {
    "NaN": math.nan,
    "NAN": math.nan,
    "Infinity": math.inf,
    "POSITIVE_INFINITY": math.inf,
    "-Infinity": -math.inf,
    "NEGATIVE_INFINITY": -math.inf,
}
_MAX_BYTES = 1 << 10  # an unscaled number of 2,400 digits
_MAX_BITS = 1 << 16
_EXACT = Context(prec=5000, Emax=10**6, Emin=-(10**6), traps=[Inexact, InvalidOperation])
#: So many digits tell a float from all others.
_FLOAT_DIGITS = 9

Number = int | Decimal | float
"""A float only for NaN and the infinities."""


def boolean(_wire: Wire, target: T.DataType, _modes: Modes) -> Scalar | None:
    """Convert true and false."""
    if not isinstance(target, T.BooleanType):
        return None
    return Scalar(_true_or_false, pa.bool_(), plain=bool)


def integer(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    """Convert a number without a fraction."""
    if isinstance(target, T.BooleanType):
        return boolean(wire, target, modes)
    found = _numeric(target, _plain_number)
    return _or_decimal(found, target, modes) if found is not None and wire.guessed else found


def real(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    """Convert a binary floating-point number."""
    if isinstance(target, T.DoubleType):
        found = Scalar(lambda value: _double(_plain_number(value)), pa.float64(), plain=float)
    elif isinstance(target, T.FloatType):
        narrow = wire.base == "double" and not wire.guessed
        found = Scalar(lambda value: _float(_plain_number(value), exact=narrow), pa.float32())
    else:
        return _numeric(target, _plain_number)
    return _or_decimal(found, target, modes) if wire.guessed else found


def decimal(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    """Convert a decimal number, in any of its forms."""
    scale = number(wire.parameter("scale"))
    textual = wire.guessed and modes.decimals == "string"

    def read(value: Any) -> Number:
        if isinstance(value, (str, bytes)):
            return _text_number(value) if textual else _unscaled_or_mode(value, scale, guessed=wire.guessed)
        return variable(value) if isinstance(value, dict) else _plain_number(value)

    def read_double(value: Any) -> Number:
        return _plain_number(value) if isinstance(value, str) else read(value)

    doubles = wire.guessed and modes.decimals == "double"
    return _of_decimal(target, read_double if doubles else read)


def text_decimal(target: T.DataType) -> Scalar | None:
    """Convert text that is a decimal number: ``decimal.handling.mode=string``."""
    return None if isinstance(target, T.StringType) else _of_decimal(target, _text_number)


def bits(wire: Wire, target: T.DataType, _modes: Modes) -> Scalar | None:
    """Convert bits."""
    length = number(wire.parameter("length")) or 1
    if isinstance(target, T.BinaryType):
        return Scalar(raw_bytes, pa.binary(), plain=bytes)
    if isinstance(target, T.StringType):
        return Scalar(lambda value: _bit_text(raw_bytes(value), length), pa.string())
    return _numeric(target, lambda value: _bit_number(raw_bytes(value)))


def _bit_text(payload: bytes, length: int) -> str:
    """Write bits; those at the end of the bytes may be left out if they are 0."""
    if length > max(_MAX_BITS, 8 * len(payload)):
        raise MisfitError(f"lacks more bits of {length} than a text gets")
    return format(int.from_bytes(payload, "little"), "b").zfill(length)


def _bit_number(payload: bytes) -> int:
    if len(payload) > _MAX_BYTES:
        raise MisfitError("has too many bits for a number")
    return int.from_bytes(payload, "little")


def plain_text(value: Number) -> str:
    """Write a number with all its digits and without an exponent."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def variable(value: Any) -> Number:
    """Read a decimal that carries its scale."""
    if not isinstance(value, dict) or set(value) != {"scale", "value"} or type(value["scale"]) is not int:
        raise MisfitError("is not a scale and a value")
    return _unscaled(value["value"], value["scale"])


def _of_decimal(target: T.DataType, read: Callable[[Any], Number]) -> Scalar | None:
    if isinstance(target, T.StringType):
        return Scalar(lambda value: plain_text(read(value)), pa.string())
    return _numeric(target, read)


def _numeric(target: T.DataType, read: Callable[[Any], Number]) -> Scalar | None:
    """Convert to an integer or a decimal, or a whole number to a float or double."""
    if isinstance(target, T.IntegralType):
        fits = _fitting(target)
        plain = int if read is _plain_number else None
        return Scalar(lambda value: fits(_whole(read(value))), arrow_type(target, ""), plain=plain)
    if isinstance(target, T.DecimalType):
        return Scalar(
            lambda value: _in_decimal(read(value), target), pa.decimal128(target.precision, target.scale)
        )
    if isinstance(target, (T.FloatType, T.DoubleType)):
        narrow = isinstance(target, T.FloatType)
        return Scalar(
            lambda value: _same(read(value), _printed_float if narrow else _double), arrow_type(target, "")
        )
    return None


def _or_decimal(number: Scalar, target: T.DataType, modes: Modes) -> Scalar:
    """Convert decimals as well as numbers, where no schema says which of them the column has."""
    exact = _numeric(
        target, lambda value: variable(value) if isinstance(value, dict) else _text_number(value)
    )
    textual = modes.decimals == "string"

    def one(value: Any) -> Any:
        if exact is not None and (isinstance(value, dict) or (textual and isinstance(value, str))):
            return exact.one(value)
        if isinstance(value, str) and value not in _SPECIAL:
            raise MisfitError(
                "is not a number: decimals as bytes need a decimal column, and decimals as text decimals='string'"
            )
        return number.one(value)

    return replace(number, one=one)


def _plain_number(value: Any) -> Number:
    if type(value) is int or isinstance(value, Decimal):
        return value
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else value
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    raise MisfitError("is not a number")


def _text_number(value: Any) -> Number:
    if isinstance(value, str):
        if value in _SPECIAL:
            return _SPECIAL[value]
        try:
            found = decimal_of(value)
        except (ArithmeticError, ValueError) as error:
            raise MisfitError("is not a number") from error
        if (
            found.is_finite()
            and value.isascii()
            and "_" not in value
            and abs(_exponent(found)) <= MAX_EXPONENT
        ):
            return found
        raise MisfitError("is not a number")
    return _plain_number(value)


def _unscaled_or_mode(value: Any, scale: int | None, *, guessed: bool) -> Decimal:
    try:
        return _unscaled(value, scale)
    except MisfitError as error:
        if not guessed:
            raise
        raise MisfitError(f"{error}: set decimals= to the connector's decimal.handling.mode") from error


def _unscaled(value: Any, scale: int | None) -> Decimal:
    if scale is None:
        raise MisfitError("has no scale")
    payload = raw_bytes(value)
    if not payload or len(payload) > _MAX_BYTES or abs(scale) > MAX_EXPONENT:
        raise MisfitError("is not a decimal number")
    return _EXACT.scaleb(Decimal(int.from_bytes(payload, "big", signed=True)), -scale)


def _exponent(value: Decimal) -> int:
    return value.adjusted() if value else 0


def _whole(value: Number) -> int:
    if isinstance(value, float) or abs(_exponent(Decimal(value))) > MAX_EXPONENT or value != int(value):
        raise MisfitError("is not a whole number")
    return int(value)


def _fitting(target: T.DataType) -> Callable[[int], int]:
    limit = 1 << (BITS[type(target)] - 1)

    def fits(value: int) -> int:
        if -limit <= value < limit:
            return value
        raise MisfitError(f"is too large for {target.simpleString()}")

    return fits


def _in_decimal(value: Number, target: T.DecimalType) -> Decimal:
    """Return the number with the column's scale."""
    if isinstance(value, float):
        raise MisfitError(f"has no place in {target.simpleString()}")
    found = Decimal(value)
    if found and _exponent(found) >= target.precision - target.scale:
        raise MisfitError(f"is too large for {target.simpleString()}")
    try:
        return _EXACT.quantize(found, Decimal((0, (1,), -target.scale)))
    except (Inexact, InvalidOperation) as error:
        raise MisfitError(f"has more digits than {target.simpleString()} holds") from error


def _double(value: Number) -> float:
    found = float(value)
    if math.isinf(found) and not isinstance(value, float):
        raise MisfitError("is too large for double")
    if type(value) is int and int(found) != value:
        raise MisfitError("has more digits than double holds")
    return found


def _float(value: Number, *, exact: bool) -> float:
    found = _double(value)
    try:  # "<" checks the range
        narrow: float = struct.unpack("<f", struct.pack("<f", found))[0]
    except OverflowError as error:
        raise MisfitError("is too large for float") from error
    if exact and narrow != found and not math.isnan(found):
        raise MisfitError("has more digits than float holds")
    return narrow


def _printed_float(value: Number) -> float:
    """Return the float nearest to a number, as the double that has as many digits as the number."""
    found = _float(value, exact=False)
    if isinstance(value, float) or found == value:
        return found
    digits = len(Decimal(value).normalize(_EXACT).as_tuple().digits)
    return float(f"{found:.{min(digits, _FLOAT_DIGITS)}g}")


def _same(value: Number, convert: Callable[[Number], float]) -> float:
    """Convert, and check that the result prints as the same number."""
    try:
        found = convert(value)
    except (OverflowError, ValueError) as error:
        raise MisfitError("is not a number") from error
    if not isinstance(value, float) and Decimal(repr(found)) != value:
        raise MisfitError("has more digits than the column holds")
    return found


def _true_or_false(value: Any) -> bool:
    """Read a boolean; a topic of MySQL can have 0 and 1 for some rows, and true and false for others."""
    if type(value) is bool or (type(value) is int and value in {0, 1}):
        return bool(value)
    raise MisfitError("is not true or false")
