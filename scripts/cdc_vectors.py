"""Make the vectors of `tests/golden/cdc` from a recording of Debezium's topics.

Run ``python -m scripts.cdc_vectors DIRECTORY``. The directory holds, as lines of JSON, ``types/types1.jsonl.gz`` to
``types6.jsonl.gz`` with the rows in ``types/all_types.jsonl`` and ``all_types_special.jsonl``, and
``plain1``, ``plain3``, ``flat1``, ``flat3``, ``schema1``, ``schema3`` with the suffix ``.jsonl.gz``.
A schema that several records share is written once.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "tests" / "golden" / "cdc"
MODES = {
    "types1": {},
    "types2": {"binary": "base64"},
    "types3": {"binary": "hex"},
    "types4": {"binary": "base64-url-safe"},
    "types5": {},
    "types6": {},
}
FORMS = ("plain1", "plain3", "flat1", "flat3", "schema1", "schema3")
TABLES = ("clients", "watchlist", "toast_types")
_MAX_TEXT = 20_000


def main(directory: Path) -> None:
    """Write all vectors."""
    schemas: list[Any] = []
    types = {
        name: {
            "options": options,
            "records": list(_records(directory / "types" / name, "all_types", schemas)),
        }
        for name, options in MODES.items()
    }
    rows = [
        json.loads(line, parse_float=str)
        for name in ("all_types", "all_types_special")
        for line in (directory / "types" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    _write("types", {"schemas": schemas, "modes": types, "rows": rows})
    schemas = []
    tables = {
        table: {form: list(_records(directory / form, table, schemas)) for form in FORMS} for table in TABLES
    }
    _write("tables", {"schemas": schemas, "tables": tables})


def _records(path: Path, table: str, schemas: list[Any]) -> Iterator[list[Any]]:
    """Key, value and headers of a table's records; a schema is replaced by its number."""
    with gzip.open(f"{path}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if not record["topic"].endswith(f".shop.{table}") or len(record["value"] or "") > _MAX_TEXT:
                continue
            headers = [one for one in record["headers"] if "context" not in one[0]]
            yield [_short(record["key"], schemas), _short(record["value"], schemas), headers]


def _short(text: str | None, schemas: list[Any]) -> Any:
    if text is None or not text.startswith('{"schema"'):
        return text
    wrapped = json.loads(text)
    if wrapped["schema"] not in schemas:
        schemas.append(wrapped["schema"])
    head = len('{"schema":' + json.dumps(wrapped["schema"], separators=(",", ":"), ensure_ascii=False))
    return [schemas.index(wrapped["schema"]), text[head + len(',"payload":') : -1]]


def _write(name: str, content: Any) -> None:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    (TARGET / f"{name}.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    print(name, len(text))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
