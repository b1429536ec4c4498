"""Bring recordings of Debezium's topics into the repository: ``python -m tests.cdc.bring_in DIRECTORY``.

DIRECTORY holds captures of one database (``<prefix>.jsonl.gz``), its commits and its state at quiescent points, and a
directory of an interrupted snapshot with the same. See `tests.cdc.recording` for what becomes of them.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from pathlib import Path
from typing import Any

from tests.cdc.recording import GOLDEN, TABLES


def _lines(path: Path) -> list[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _write(name: str, rows: list[Any]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    (GOLDEN / f"{name}.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def _records(path: Path) -> list[Any]:
    """The records of a capture; the headers that every record has are left out."""
    return [
        [
            one["topic"],
            one["partition"],
            one["offset"],
            one["timestamp"],
            one["key"],
            one["value"],
            [header for header in one["headers"] if not header[0].startswith("__debezium.context.")],
        ]
        for one in _lines(path)
    ]


def _database(directory: Path) -> list[Any]:
    """The database's state at each quiescent point, then its commits."""
    rows: list[Any] = []
    for point in json.loads((directory / "quiet.json").read_text(encoding="utf-8")):
        tables: dict[str, list[Any]] = {name: [] for name in (*TABLES, "join")}
        for line in _lines(directory / f"quiet_{point['quiet']:02d}.jsonl.gz"):
            if line["table"] in tables:
                tables[line["table"]].append(line["row"])
        rows.append({"after_commit": point["after_commit"], "ends": point["end_offsets"], "tables": tables})
    for one in _lines(directory / "commits.jsonl.gz"):
        removed, added = one.get("join_removed"), one.get("join_added")
        rows.append({"commit": one["commit"], "xid": one["xid"], "removed": removed, "added": added})
    return rows


def main(directory: Path) -> None:
    """Write the recordings."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for path in sorted(directory.glob("[a-z]*[0-9].jsonl.gz")):
        if not path.name.startswith("quiet"):
            _write(path.name.split(".")[0], _records(path))
    _write("database", _database(directory))
    interrupted = directory / "interrupted_snapshot"
    _write("interrupted_plain3", _records(interrupted / "plain3.jsonl.gz"))
    _write("interrupted_database", _database(interrupted))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
