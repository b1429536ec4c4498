"""An engine whose records go through a source's packer, as Spark hands them over: with their own times and orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from tablestream.connectors.source import Origin
from tablestream.spark import blobs
from tablestream.spark.packing import Consumer, SourcePacker
from tablestream.state.changes import KEY_HASH, LIVE, POSITION
from tests.plans.engine import Engine, Inbox
from tests.plans.filled import filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from tablestream.planner.physical_plan import Reader
    from tablestream.runtime.ports import Port
    from tests.plans.tables import Change, Record


class Raw(NamedTuple):
    """A record of the only source. `own` is the time of its Kafka record; others may be null."""

    partition: int
    position: int
    key: str
    value: str | None
    own: int
    time: int | None
    order: int | None = None
    sequence: int | None = None


@dataclass
class PackedEngine(Engine):
    """Runs a plan with one source, whose key and value are strings."""

    _filled: dict[Port, pl.Schema] = field(default_factory=dict)

    def feed(self, records: Sequence[Raw]) -> list[Change]:
        """Work off one micro-batch; the changes of the first output."""
        return self.run(cast("Sequence[Record]", records))[0]

    def _enter(self, records: Sequence[Any], inbox: Inbox) -> None:
        ((source, readers),) = self.plan.sources.items()
        consumers = tuple(map(self._consumer, readers))
        packer = SourcePacker(
            source.name,
            0,
            Origin(partition=("topic",), continues=True),
            ordered=source.ordered_by is not None,
            consumers=consumers,
            shards=self.shards,
        )
        ports = {reader.port.number: reader.port for reader in readers}
        # Spark reads one partition after the other.
        rows = [self._row(one, consumers) for one in sorted(records, key=lambda one: one[:2])]
        for batch in packer(
            [pa.RecordBatch.from_pylist(rows, schema=self._schema(consumers))] if rows else []
        ):
            for _, number, _, blob in zip(*(one.to_pylist() for one in batch.columns), strict=True):
                if number in ports:
                    for frame in blobs.decode([blob]):
                        self._deliver(ports[number], frame, inbox)
                else:
                    self.dropped[source.name, blob.decode()] += 1

    def _number(self, row: dict[str, Any]) -> int:
        """The position of the record in its partition."""
        return int(row[POSITION])

    def _consumer(self, reader: Reader) -> Consumer:
        outputs = {ending.port for ending in self.plan.endings}
        columns = tuple(one for one in reader.schema if one not in {"_ts", "_row_ts", "v"})
        self._filled[reader.port] = reader.schema
        return Consumer(reader.port, columns, ("__value_0",), own_time=reader.port in outputs)

    def _row(self, record: Raw, consumers: Sequence[Consumer]) -> dict[str, Any]:
        is_live = record.value is not None
        row = {
            "__ts": record.time, "__own": None if is_live else record.own, "__null_key": False,
            "__mark0": record.partition, "__position": record.position, "__time": record.order,
            "__value_0": record.value,
        }  # fmt: skip
        usual: dict[str, Any] = {KEY_HASH: self.hasher((record.key,)), "_k0": record.key, LIVE: is_live}
        said = {"__sequence": record.sequence}
        for one in consumers:
            message = usual | filled(self._filled[one.port], said, is_live, 0, self.hasher)
            row |= {one.prefix + name: message[name] for name in one.columns}
        return row

    def _schema(self, consumers: Sequence[Consumer]) -> pa.Schema:
        long, text, truth = pa.int64(), pa.string(), pa.bool_()
        kinds = {"_kh": long, "_k0": text, "_live": truth, "_sq": long}
        own = {
            "__ts": long, "__own": long, "__null_key": truth, "__mark0": long, "__position": long, "__time": long,
            "__value_0": text,
        }  # fmt: skip
        own |= {one.prefix + name: kinds[name] for one in consumers for name in one.columns}
        return pa.schema(list(own.items()))
