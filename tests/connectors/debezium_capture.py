"""Records that Debezium's MariaDB connector wrote, recorded once, with the rows that the database had in the end.

``made`` in the file says how: the server, the connector, its settings and all statements. The prefixes ``a`` to ``d``
of the topics are connectors with other modes.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.cdc.recording import Record

_FILE = Path(__file__).parent.parent / "golden" / "debezium" / "mariadb_captured.json.gz"


@cache
def _content() -> Any:
    return json.loads(gzip.decompress(_FILE.read_bytes()))


def topic(name: str) -> list[Record]:
    """The records of a topic."""
    return [
        Record(name, 0, n, 0, _payload(key), _payload(value), headers)
        for n, (key, value, headers) in enumerate(_content()["topics"][name])
    ]


def database(table: str) -> list[dict[str, Any]]:
    """The rows of a table in the end; those of ``types`` as texts."""
    rows: list[dict[str, Any]] = _content()["database"][table]
    return rows


def kinds() -> dict[str, str]:
    """The columns of ``types`` with their types in the database."""
    return dict(_content()["kinds"])


def _payload(given: Any) -> str | None:
    """A key or value; its schema is one of those that the records share."""
    if given is None or isinstance(given, str):
        return given
    schema = json.dumps(_content()["schemas"][given[0]], separators=(",", ":"), ensure_ascii=False)
    return f'{{"schema":{schema},"payload":{given[1]}}}'
