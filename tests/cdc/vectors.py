"""Records that Debezium wrote, recorded once: `scripts/cdc_vectors.py` makes the files."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).parent.parent / "golden" / "cdc"
FORMS = ("plain1", "plain3", "flat1", "flat3", "schema1", "schema3")
MODES = ("types1", "types2", "types3", "types4", "types5", "types6")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@cache
def _content(name: str) -> Any:
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def table_records(table: str, form: str) -> list[Record]:
    """The records of a table in one of `FORMS`."""
    content = _content("tables")
    return [_record(one, content["schemas"]) for one in content["tables"][table][form]]


def type_records(mode: str) -> list[Record]:
    """The records of the table with every type, in one of `MODES`."""
    content = _content("types")
    return [_record(one, content["schemas"]) for one in content["modes"][mode]["records"]]


def type_options(mode: str) -> dict[str, Any]:
    """The options of a decoder for one of `MODES`."""
    return dict(_content("types")["modes"][mode]["options"])


def type_rows() -> dict[int, dict[str, Any]]:
    """The rows of the table with every type as the database prints them, by id; numbers with a point are texts."""
    return {row["id"]: row for row in _content("types")["rows"]}


def arrays(records: list[Record]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Records as the decoder takes them."""
    headers = [[{"key": name, "value": value} for name, value in one[2]] for one in records]
    keys, values = ([one[i] for one in records] for i in (0, 1))
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(headers, HEADERS)


def _record(given: list[Any], schemas: list[Any]) -> Record:
    headers = [(name, None if text is None else text.encode()) for name, text in given[2]]
    return _payload(given[0], schemas), _payload(given[1], schemas), headers


def _payload(given: Any, schemas: list[Any]) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    schema = json.dumps(schemas[given[0]], separators=(",", ":"), ensure_ascii=False)
    return f'{{"schema":{schema},"payload":{given[1]}}}'.encode()
