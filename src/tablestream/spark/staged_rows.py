"""Rows that Spark has computed, and the workers write: the last stage of a query in which no row comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tablestream.connectors.sink import Stage
from tablestream.spark.unpacking import NOTE, TaskFiles, micro_batch_id

_PORT = "__port"
REPORTS = pa.schema([(_PORT, pa.int32()), (NOTE, pa.string())])


def output_column(port: int) -> str:
    """The column of a query's frame with the rows of an output, as structs."""
    return f"__out{port}"


@dataclass(frozen=True)
class StagedRows:
    """An output whose columns Spark computes, and whose rows the workers write."""

    number: int
    """The output's port."""
    fields: pa.Schema
    """The Arrow types of the columns."""
    stage: Stage
    """Writes them."""

    @property
    def column(self) -> str:
        """The struct with the output's rows."""
        return output_column(self.number)

    def rows(self, batch: pa.RecordBatch, ports: pa.Array) -> pa.Table:
        """Take the output's rows."""
        mine = batch[self.column].filter(pc.equal(ports, self.number))
        return pa.Table.from_arrays(mine.flatten(), names=self.fields.names).cast(self.fields)


@dataclass(frozen=True)
class RowStager:
    """Writes the rows of outputs; passes on reports, and what each task has written is one more.

    `first`: as in `Staged`.
    """

    outputs: tuple[StagedRows, ...]
    first: int = 0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work off all record batches of a task."""
        by_port = {one.number: one for one in self.outputs}
        with TaskFiles(self.first + micro_batch_id()) as files:
            for batch in batches:
                ports = batch[_PORT]
                there = set(pc.unique(ports).to_pylist())
                for number in sorted(there & by_port.keys()):
                    files.of(number, by_port[number].stage).add(by_port[number].rows(batch, ports))
                if there - by_port.keys():
                    others = pc.invert(pc.is_in(ports, pa.array(list(by_port), pa.int32())))
                    yield batch.select([_PORT, NOTE]).filter(others)
            for number, said in files.close():
                yield pa.RecordBatch.from_pydict({_PORT: [number], NOTE: [said]}, REPORTS)
