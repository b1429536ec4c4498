"""The state of record in Spark: a shard's manifest, its plan and the chunks of its runs.

Two state variables serve all operators of a round: a value state with the manifest, and a map state with the
chunks; the plan's text is the chunk of no trace.
"""

from __future__ import annotations

from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState

_PLAN = (-1, 0, 0)


class SparkStore:
    """A `StateStore` on the state of one stateful stage, for the shard that Spark works on at the moment.

    Parameters
    ----------
    handle
        Of the stage; the variables are made in the processor's ``init``.
    round_number
        Names the variables: ``manifest_1``, ``runs_1``.
    """

    def __init__(self, handle: StatefulProcessorHandle, round_number: int) -> None:
        self._manifest: ValueState = handle.getValueState(f"manifest_{round_number}", "manifest binary")
        self._runs: MapState = handle.getMapState(
            f"runs_{round_number}", "trace int, run bigint, chunk int", "chunk binary"
        )

    def read_manifest(self) -> bytes | None:
        """See `StateStore`."""
        value = self._manifest.get()
        return None if value is None else bytes(value[0])

    def write_manifest(self, data: bytes) -> None:
        """See `StateStore`."""
        self._manifest.update((data,))

    def read_plan(self) -> str | None:
        """See `StateStore`."""
        data = self.read_chunk(*_PLAN)
        return None if data is None else data.decode()

    def write_plan(self, text: str) -> None:
        """See `StateStore`."""
        self.write_chunk(*_PLAN, text.encode())

    def read_chunk(self, trace: int, run: int, chunk: int) -> bytes | None:
        """See `StateStore`."""
        value = self._runs.getValue((trace, run, chunk))
        return None if value is None else bytes(value[0])

    def write_chunk(self, trace: int, run: int, chunk: int, data: bytes) -> None:
        """See `StateStore`."""
        self._runs.updateValue((trace, run, chunk), (data,))

    def remove_chunk(self, trace: int, run: int, chunk: int) -> None:
        """See `StateStore`."""
        self._runs.removeKey((trace, run, chunk))
