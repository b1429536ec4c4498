"""The changes that a query of faults gave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def changes(directory: Path, table: str) -> list[dict[str, Any]]:
    """Read all changes of an output in their order; a change that was written twice is there twice."""
    found = []
    for file in (directory / table).glob("micro_batch=*/part-*.json"):
        for line in file.read_text(encoding="utf-8").splitlines():
            change = json.loads(line)
            change["_order"]["partition"] = change["_order"]["partition"].rpartition("/")[2]
            found.append(change)
    return sorted(found, key=lambda change: json.dumps(change["_order"]))
