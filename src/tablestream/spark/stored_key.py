"""The rows of one key in the state, read in this process: Spark's workers are not needed for a few rows.

A key's rows are stored under the key's hash, and the manifests say which hashes each chunk has. So two small queries
are enough: one for the manifests of a round, one for the chunks that can have the hash.

Some tables are stored under another hash than that of their key, such as the result of a one-to-many join, which comes
from the shard of its foreign key. What is found under the key's hash is all there is of a key, because all its rows
have the same hash. What is not found may be there under another one: then the whole table must be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tablestream.planner.catalogue import StoredTable
from tablestream.spark import blobs
from tablestream.spark.build import key_hash
from tablestream.spark.columns import spark_type, typed
from tablestream.spark.stored_rows import StoredRows, shown
from tablestream.spark.stored_state import PLACE, StoredState
from tablestream.state import manifest as manifests
from tablestream.state.manifest import Manifest
from tablestream.state.shard import manifest_missing
from tablestream.state.store import MemoryStore

#: This process holds all chunks at once that can have the hash: in each shard, one of each run. It leaves more bytes
#: than these to the workers, each of which has a part of the shards.
_MOST_BYTES = 256 << 20

Place = tuple[int, int, int]


def stored_hash(table: StoredTable, parts: Sequence[str]) -> str:
    """Return the hash under which a key's rows are stored, as SQL; `parts` are those of the key, in order, as SQL."""
    width = len(table.traces[0].key)  # the key of a rank is its group's, and the rank
    kinds = [spark_type(one) for one in table.stored_key[:width]]
    return key_hash([typed(part, kind) for part, kind in zip(parts, kinds, strict=False)])


def rows_of_hash(state: StoredState, table: StoredTable, only: int, as_of_us: int | None) -> DataFrame | None:
    """Return the rows that are stored under a hash, as `read_state` shows them.

    Returns
    -------
    DataFrame
        Its rows are here: Spark does not read the state again. None: there are more bytes to look through than this
        process should hold.

    Raises
    ------
    DamagedStateError
        The state has no manifest of a shard, or lacks a chunk.
    """
    heads = _heads(state, table)
    wanted = {
        (shard, *place): size for shard, head in heads.items() for place, size in _places(table, head, only)
    }
    if sum(wanted.values()) > _MOST_BYTES:
        return None
    chunks: dict[int, dict[Place, bytes]] = {shard: {} for shard, *_ in wanted}
    for shard, place, data in _chunks(state, table, list(wanted)):
        chunks[shard][place] = data
    stored = StoredRows.of_table(table, as_of_us)
    batches = [
        batch
        for shard, read in chunks.items()
        for batch in stored.of(_Shard(state, table, shard, heads[shard], read), only)
    ]
    rows = pa.Table.from_batches(batches, stored.opened.fields)
    return state.spark.createDataFrame(rows, stored.schema).select(*shown(state.spark, table))


def _heads(state: StoredState, table: StoredTable) -> dict[int, bytes]:
    """Read the manifests of the table's shards; of a table that every shard has, that of one."""
    heads = {int(row[0]): bytes(row.data) for row in state.manifests(table.round).collect()}
    born = {shard for number, shard in state.births.before(state.micro_batch + 1) if number == table.round}
    shards = sorted(born | set(heads))
    shards = shards[:1] if table.copied else shards
    if not heads.keys() >= set(shards):
        raise manifest_missing()
    return {shard: heads[shard] for shard in shards}


def _places(table: StoredTable, head: bytes, only: int) -> Iterator[tuple[Place, int]]:
    """Yield the places and sizes of the chunks that can have a hash."""
    found: Manifest = manifests.decode(head)
    column = table.traces[0].hash
    for spec in table.traces:
        if spec.hash == column:
            for run in found.runs(spec.name):
                for number, chunk in enumerate(run.chunks):
                    if chunk.min_hash <= only <= chunk.max_hash:
                        yield (spec.number, run.number, number), chunk.size_bytes


def _chunks(
    state: StoredState, table: StoredTable, wanted: Sequence[tuple[int, int, int, int]]
) -> Iterator[tuple[int, Place, bytes]]:
    """Read chunks by their shards and places."""
    if wanted:
        places = ", ".join(f"({shard}, {trace}, {run}L, {chunk})" for shard, trace, run, chunk in wanted)
        here = F.expr(f"({', '.join((blobs.SHARD, *PLACE))}) IN ({places})")
        for row in state.chunks(table.round).where(here).collect():
            yield int(row[0]), (row.trace, row.run, row.chunk), bytes(row.data)


@dataclass
class _Shard(MemoryStore):
    """The state of a shard: what was read of it, and any other chunk as soon as it is asked for."""

    _state: StoredState
    _table: StoredTable
    _number: int
    _head: bytes
    _read: Mapping[Place, bytes]

    def __post_init__(self) -> None:
        """Take what was read."""
        super().__init__()
        self.manifest, self.chunks = self._head, dict(self._read)

    def read_chunk(self, trace: int, run: int, chunk: int) -> bytes | None:
        """See `StateStore`."""
        if (trace, run, chunk) not in self.chunks:
            for _, place, data in _chunks(self._state, self._table, [(self._number, trace, run, chunk)]):
                self.chunks[place] = data
        return super().read_chunk(trace, run, chunk)
