"""Drop records that a writer wrote again.

A writer is a query that writes to a topic; each topic partition is considered on its own. Every record
that it writes to a key has the number of its micro-batch, and a number that rises with the changes of the key in that
micro-batch. When a part of its work fails, it writes a stretch again, each key's records in the same order. It begins
a micro-batch only when the one before is completely written. So, for one writer and topic partition, a record is a
repeat exactly if

=============================================================  ======
its micro-batch is                                             and
=============================================================  ======
before the latest, by no more than `FAR`
the latest                                                     its number is not above the greatest of its key in it
=============================================================  ======

Numbers may be missing, because a compacted topic lacks records. For each writer and topic partition, only the keys of
the latest micro-batch are remembered. A record without a known writer passes.

No writer repeats what is further back. Such a record passes, and is not remembered: somebody else has written a header
with a great number in the writer's name, or the writer's checkpoint is an older copy.

References
----------
``docs/kafka.md``; ``docs/decisions/011-kafka.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.operator import PARENT, Context, Emission, Operator, keyed_changes, keyed_rows
from tablestream.operators.reasons import REPEATED
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, TS, last_by, number_keys
from tablestream.state.trace import TraceSpec

#: Writer and topic partition as one text; the record's key; the writer's micro-batch and number.
WRITER, WRITER_HASH, RECORD_KEY, MICRO_BATCH, NUMBER = "_w", "_wh", "_rk", "_mb", "_no"
_PLACE = {
    WRITER_HASH: pl.Int64(),
    WRITER: pl.String(),
    FOREIGN_HASH: pl.Int64(),
    RECORD_KEY: pl.Binary(),
    MICRO_BATCH: pl.Int64(),
    NUMBER: pl.Int64(),
}
_KEY = (WRITER, RECORD_KEY)
#: A task that was given up sends for minutes; so many micro-batches take longer.
FAR = 10_000


@dataclass(frozen=True)
class Deduplicate(Operator):
    """Drop repeated records.

    Parameters
    ----------
    keys
        The key columns and their dtypes; none for a stream without a key.
    value
        The dtype of the value.

    Notes
    -----
    Input: ``_kh``, key, ``_ts``, ``_live``, ``v``, and the columns that the writer added (null without a writer):
    ``_w``, its hash ``_wh``, ``_rk``, the hash ``_fh`` of both, ``_mb``, ``_no``. Output 0: ``_kh``, key, ``_ts``,
    ``_live``, ``v``. Cost: the records, and what is remembered of their writers.
    """

    keys: pl.Schema
    value: pl.DataType

    reasons = (REPEATED,)

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {"v": self.value, **_PLACE}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.value),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (
            TraceSpec(
                name="written",
                number=0,
                hash=WRITER_HASH,
                key=(WRITER,),
                unique=(RECORD_KEY,),
                unique_hash=FOREIGN_HASH,
                schema=pl.Schema({**_PLACE, LIVE: pl.Boolean()}),
            ),
        )

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Emit the records that are not repeats, and remember the latest micro-batch of each writer."""
        (arrived,) = inputs
        (spec,) = self.traces
        trace = context.trace(spec.name)
        new = arrived.select(SEQ, *_PLACE).drop_nulls(WRITER)
        stored = trace.lookup(new.select(WRITER_HASH, WRITER).unique())
        seen = _seen(stored, new)
        repeats = seen.filter(~pl.col("fresh"))[SEQ]
        passed = arrived
        if len(repeats):
            repeated = pl.col(SEQ).is_in(repeats.implode())
            context.tell(REPEATED, len(repeats), arrived.filter(repeated))
            passed = arrived.filter(~repeated)
        columns = [KEY_HASH, *self.keys, TS, LIVE, "v"]
        yield Emission(0, passed.select(pl.col(SEQ).alias(PARENT), *columns))
        trace.insert(_remembered(seen))


def _seen(stored: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Stored and arriving records, by writer and key.

    `fresh`: not a repeat (null for stored ones); `far`: too far back to be one.
    """
    writers = pl.concat(number_keys(WRITER_HASH, [WRITER], [stored, new]))
    keys = pl.concat(number_keys(FOREIGN_HASH, _KEY, [stored, new]))
    both = pl.concat([stored.select(pl.lit(0, pl.Int64).alias(SEQ), *_PLACE), new])
    both = both.with_columns(writers.alias("writer"), keys.alias("key"))
    latest = pl.col(MICRO_BATCH).cum_max().shift(1).over("writer")
    greatest = pl.col(NUMBER).cum_max().shift(1).over("key", MICRO_BATCH)
    later = (pl.col(MICRO_BATCH) > latest).fill_null(value=True)
    next_one = (pl.col(MICRO_BATCH) == latest) & (pl.col(NUMBER) > greatest).fill_null(value=True)
    far = (pl.col(MICRO_BATCH) < latest - FAR).fill_null(value=False)
    arrived = pl.col(SEQ) > 0
    return both.with_columns(
        pl.when(arrived).then(later | next_one | far).alias("fresh"), (arrived & far).alias("far")
    )


def _remembered(seen: pl.DataFrame) -> pl.DataFrame:
    """The changes of the trace: each key's last record in the latest micro-batch, and tombstones for the others."""
    is_latest = pl.col(MICRO_BATCH) == pl.col(MICRO_BATCH).max().over("writer")
    is_known = (pl.col(SEQ) == 0).any().over("key")
    judged = seen.with_columns(is_latest.alias(LIVE), is_known.alias("known"))
    passed = judged.filter(pl.col("fresh").fill_null(value=True) & ~pl.col("far"))
    last = last_by(passed, passed["key"])
    changed = last.filter(pl.when(LIVE).then(pl.col(SEQ) > 0).otherwise("known"))
    kept = pl.col(MICRO_BATCH, NUMBER)
    return changed.with_columns(pl.when(LIVE).then(kept))
