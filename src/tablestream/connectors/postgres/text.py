r"""Rows as the text that PostgreSQL's COPY reads, made column by column from Arrow.

=====================  ==============================================================================
value                  text
=====================  ==============================================================================
null                   ``\N``
number, boolean        as Arrow prints it, which loses nothing; also ``nan``, ``inf``, ``-inf``
timestamp              in UTC with ``+00``, whatever the session's time zone; years from 4713 BC on
timestamp_ntz          without a zone
infinite timestamps    ``infinity`` and ``-infinity``: Debezium's numbers for them
binary                 ``\x`` and hexadecimal digits
array                  ``{"a","b",NULL}``
struct, map, others    JSON: NaN and infinities are strings, binary is Base64, times are ISO 8601
=====================  ==============================================================================

PostgreSQL cannot store the character U+0000, text that is not UTF-8 and times before 4713 BC: `UnstorableError`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tablestream.connectors.infinity import NAMES
from tablestream.connectors.postgres.types import JSON, UUID, longest
from tablestream.operators.calendar import DAY_US

_NULL = r"\N"
_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
#: Days since 1970 of the first day that PostgreSQL has, and behind the last date.
_FIRST_DAY, _DATES_END = -2_440_588, 2_145_042_906
_YEAR = re.compile(r"(-?\d+)(.*)")
_NO_NUMBERS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}

Texts = list[str | None]


@dataclass
class UnstorableError(Exception):
    """A value that PostgreSQL cannot store."""

    row: int
    """Its place in the array."""
    why: str
    """The end of the sentence "The value ..."."""
    column: int = 0
    """The number of the column."""


def copy_text(arrays: Sequence[pa.Array], types: Sequence[str]) -> bytes:
    r"""Return columns of these types, as the server prints them, as the text of a COPY, or raise `UnstorableError`.

    Examples
    --------
    >>> copy_text([pa.array([1, None]), pa.array(["a\tb", "c"])], ["bigint", "text"])
    b'1\ta\\tb\n\\N\tc\n'
    """
    columns = []
    for number, (array, stored) in enumerate(zip(arrays, types, strict=True)):
        try:
            columns.append(pc.fill_null(_escaped(array, stored), _NULL))
        except UnstorableError as error:
            raise UnstorableError(error.row, error.why, number) from None
    lines = pc.binary_join_element_wise(*columns, "\t")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _escaped(array: pa.Array, stored: str) -> pa.Array:
    """The texts of a column, in which a tab or a backslash is no tab or backslash to COPY."""
    text = _column(array, stored)
    if not (_is_text(array) or pa.types.is_nested(array.type) or _is_bytes(array)):
        return text
    for character, escape in _ESCAPES:
        text = pc.replace_substring(text, character, escape)
    return text


def _column(array: pa.Array, stored: str) -> pa.Array:
    """The texts of a column as its type in PostgreSQL reads them."""
    if stored in JSON and not _is_text(array):
        return pa.array(_json(array), pa.string())
    if stored == "double precision":
        array = array.cast(pa.float64())  # the text of a float would be read as another double
    text = _plain(array)
    most = longest(stored)
    if most is not None:
        _refuse(pc.greater(pc.utf8_length(text), most), f"is longer than its column's {most} characters")
    if stored == UUID:
        valid = pc.match_substring_regex(text, _UUID)
        _refuse(pc.invert(valid), "is no UUID of 32 hexadecimal digits in lower case, with four hyphens")
    return text


def _is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type) or pa.types.is_large_string(array.type))


def _is_bytes(array: pa.Array) -> bool:
    return bool(pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type))


def _refuse(wrong: pa.Array, why: str) -> None:
    """Raise if an array of booleans is true anywhere."""
    place = pc.index(wrong, True).as_py()
    if place >= 0:
        raise UnstorableError(place, why)


def _plain(array: pa.Array) -> pa.Array:
    """Values as PostgreSQL's own types read them."""
    kind = array.type
    if _is_text(array):
        return _checked_text(array)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _mapped(array, lambda value: "\\x" + value.hex())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.array(_moments(array, _as_postgres), pa.string())
    if pa.types.is_list(kind):
        return pa.array(_lists(array, _plain_list, _array_literal), pa.string())
    return array.cast(pa.string())


def _checked_text(array: pa.Array) -> pa.Array:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise UnstorableError(_first_not_utf8(array), "is not UTF-8") from None
    _refuse(pc.match_substring(array, "\0"), "contains the character U+0000")
    return array.cast(pa.string())


def _first_not_utf8(array: pa.Array) -> int:
    for place, value in enumerate(array.cast(pa.binary()).to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return place
    return 0


def _mapped(array: pa.Array, function: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if one is None else function(one) for one in array.to_pylist()], pa.string())


def _moments(array: pa.Array, say: Callable[[str, str], str]) -> Texts:
    """The texts of dates and times, by way of NumPy, whose years have no bounds."""
    is_date = pa.types.is_date(array.type)
    unit, width = ("D", pa.int32()) if is_date else ("us", pa.int64())
    zone = "" if is_date or array.type.tz is None else "+00"
    values = array.cast(width).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    factor = 1 if is_date else DAY_US
    infinite = np.isin(values, [] if is_date else list(NAMES))
    outside = (values < _FIRST_DAY * factor) & ~infinite
    if is_date:
        outside |= values >= _DATES_END
    if outside.any():
        raise UnstorableError(int(outside.argmax()), "is not between the years 4713 BC and 5874897")
    texts = np.datetime_as_string(values.astype(f"datetime64[{unit}]")).tolist()
    zones = [zone] * len(texts)
    for place in np.flatnonzero(infinite).tolist():
        texts[place], zones[place] = NAMES[int(values[place])], ""
    nulls = array.is_null().to_pylist()
    return [None if null else say(*said) for null, *said in zip(nulls, texts, zones, strict=True)]


def _as_postgres(text: str, zone: str) -> str:
    """The year 0 of ISO 8601 is the year 1 BC."""
    if text in NAMES.values() or (text[0] != "-" and not text.startswith("0000")):
        return text + zone
    found = _YEAR.fullmatch(text)
    assert found is not None  # noqa: S101 - NumPy's form
    return f"{1 - int(found[1]):04d}{found[2]}{zone} BC"


def _lists(array: pa.Array, inside: Callable[[pa.Array], Texts], joined: Callable[[Texts], str]) -> Texts:
    """The texts of lists: those of all elements, in the pieces that the lists are."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    try:
        elements = inside(array.flatten())
    except UnstorableError as error:
        row = int(np.searchsorted(ends, error.row, side="right"))
        raise UnstorableError(row, f"has an element that {error.why}") from None
    nulls = array.is_null().to_pylist()
    starts = (ends - lengths).tolist()
    return [
        None if null else joined(elements[start:end])
        for null, start, end in zip(nulls, starts, ends.tolist(), strict=True)
    ]


def _plain_list(array: pa.Array) -> Texts:
    texts: Texts = _plain(array).to_pylist()
    return texts


def _array_literal(elements: Texts) -> str:
    said = ("NULL" if one is None else '"' + re.sub(r'(["\\])', r"\\\1", one) + '"' for one in elements)
    return "{" + ",".join(said) + "}"


def _json(array: pa.Array) -> Texts:
    """Values as JSON; None for a null."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _json_structs(array)
    if pa.types.is_map(kind):
        return _json_maps(array)
    if pa.types.is_list(kind):
        return _lists(array, _json, lambda parts: "[" + ",".join(one or "null" for one in parts) + "]")
    return _json_flat(array)


def _json_flat(array: pa.Array) -> Texts:
    """Values without parts as JSON."""
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _plain_list(array)
    if pa.types.is_floating(kind):
        return [_NO_NUMBERS.get(one, one) if one else one for one in _plain_list(array)]
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _moments(array, lambda text, zone: json.dumps(text + ("Z" if zone else "")))
    if _is_bytes(array):
        return _plain_list(_mapped(array, lambda value: json.dumps(base64.b64encode(value).decode())))
    return [None if one is None else json.dumps(one, ensure_ascii=False) for one in _plain_list(array)]


def _json_structs(array: pa.Array) -> Texts:
    names = [json.dumps(one.name, ensure_ascii=False) for one in array.type]
    fields = [_json(one) for one in array.flatten()]
    nulls = array.is_null().to_pylist()
    rows = zip(*fields, strict=True) if fields else (() for _ in nulls)
    return [
        None if null else "{" + ",".join(f"{n}:{v or 'null'}" for n, v in zip(names, row, strict=True)) + "}"
        for null, row in zip(nulls, rows, strict=True)
    ]


def _json_maps(array: pa.Array) -> Texts:
    """Objects, whose keys are texts: that of a key is its JSON."""
    entry = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])

    def entries(pairs: pa.Array) -> Texts:
        keys, values = pairs.flatten()
        said = [key if key.startswith('"') else json.dumps(key) for key in map(str, _json(keys))]
        return [f"{key}:{value or 'null'}" for key, value in zip(said, _json(values), strict=True)]

    return _lists(array.cast(pa.list_(entry)), entries, lambda parts: "{" + ",".join(map(str, parts)) + "}")
