"""The durable state in Spark: a shard's manifest, its plan and the chunks of its runs.

Two state variables serve all operators of a round: a value state with the manifest, and a map state with the
chunks. The plan's text and the list of tables are chunks without a trace.
"""

from __future__ import annotations

from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState

#: Chunks of no trace: (trace, run, chunk).
PLAN, TABLES = (-1, 0, 0), (-1, 1, 0)


def variables(round_number: int) -> tuple[str, str]:
    """Return the names of a round's two state variables: that of its manifests, and that of its chunks."""
    return f"manifest_{round_number}", f"runs_{round_number}"


class SparkStore:
    """A `StateStore` on the state of one stateful stage, for the shard that Spark currently processes.

    `handle`: the handle of the stage; the variables are created in the processor's ``init``. `round_number`: names the
    variables: ``manifest_1``, ``runs_1``.
    """

    def __init__(self, handle: StatefulProcessorHandle, round_number: int) -> None:
        manifest, runs = variables(round_number)
        self._manifest: ValueState = handle.getValueState(manifest, "manifest binary")
        self._runs: MapState = handle.getMapState(runs, "trace int, run bigint, chunk int", "chunk binary")

    def read_manifest(self) -> bytes | None:
        """See `StateStore`.

        Spark logs a warning if the value does not exist, as in every shard of a new query.
        """
        value = self._manifest.get() if self._manifest.exists() else None
        return None if value is None else bytes(value[0])

    def write_manifest(self, data: bytes) -> None:
        self._manifest.update((data,))

    def read_plan(self) -> str | None:
        data = self.read_chunk(*PLAN) if self._runs.containsKey(PLAN) else None
        return None if data is None else data.decode(errors="replace")  # it is only shown

    def write_plan(self, text: str) -> None:
        self.write_chunk(*PLAN, text.encode())

    def write_tables(self, text: str) -> None:
        self.write_chunk(*TABLES, text.encode())

    def read_chunk(self, trace: int, run: int, chunk: int) -> bytes | None:
        value = self._runs.getValue((trace, run, chunk))
        return None if value is None else bytes(value[0])

    def write_chunk(self, trace: int, run: int, chunk: int, data: bytes) -> None:
        self._runs.updateValue((trace, run, chunk), (data,))

    def remove_chunk(self, trace: int, run: int, chunk: int) -> None:
        self._runs.removeKey((trace, run, chunk))
