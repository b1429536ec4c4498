"""Drop records that a writer wrote again.

A writer is a query that writes to a topic; each topic partition is considered on its own. Every record
that it writes to a key has the number of its micro-batch, and a number that rises with the changes of the key in that
micro-batch. When a part of its work fails, it writes a stretch again, each key's records in the same order. It begins
a micro-batch only when the one before is completely written. So, for one writer and topic partition, its *current*
micro-batch is the last one that began, and a record is a repeat exactly if

==========================  ======
its micro-batch is          and
==========================  ======
one that began before
the current one             its number is not above the greatest of its key in it
==========================  ======

Numbers may be missing, because a compacted topic lacks records. A record without a known writer passes.

For each writer and topic partition, the keys of the current micro-batch are remembered, and which micro-batches
began, as spans of numbers. A writer's numbers rise. Where one begins below another, somebody else has written a
header in its name, its checkpoint is an older copy, or a topic has lost the first record of a micro-batch but not its
repeat: this is counted. So a forged number hides records of its own micro-batch, and the rest of the one that was
being written, but none of those between.

References
----------
``docs/kafka.md``; ``docs/decisions/011-kafka.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.operator import PARENT, Context, Emission, Filled, OfTable, keyed_rows
from tablestream.operators.reasons import REPEATED, RESUMED
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, TS, last_by, number_keys
from tablestream.state.trace_spec import TraceSpec

#: Writer and topic partition as one text; the record's key; the writer's micro-batch and number.
WRITER, WRITER_HASH, RECORD_KEY, MICRO_BATCH, NUMBER = "_w", "_wh", "_rk", "_mb", "_no"
_WRITTEN = {
    WRITER_HASH: Filled(pl.Int64(), "CASE WHEN __writer IS NOT NULL THEN xxhash64(__writer) END"),
    WRITER: Filled(pl.String(), "__writer"),
    FOREIGN_HASH: Filled(
        pl.Int64(), "CASE WHEN __writer IS NOT NULL THEN xxhash64(__writer, __record_key) END"
    ),
    RECORD_KEY: Filled(pl.Binary(), "__record_key"),
    MICRO_BATCH: Filled(pl.Int64(), "__micro_batch"),
    NUMBER: Filled(pl.Int64(), "__number", of_each=True),
}
_PLACE = {name: one.dtype for name, one in _WRITTEN.items()}
_KEY = (WRITER, RECORD_KEY)
#: A span is a row of the same trace, with this behind the writer's name. Its key and its number are the first
#: micro-batch, its micro-batch is the last one.
_SPANS = "\tspans"
_FIRST, _LAST = "first", "last"
#: States of older versions have no spans: so many micro-batches before the current one count as begun.
FAR = 10_000
#: The most spans that are kept of a writer: those of the greatest numbers.
MOST_SPANS = 1_000


@dataclass(frozen=True)
class Deduplicate(OfTable):
    """Drop repeated records.

    Notes
    -----
    Input: ``_kh``, key, ``_ts``, ``_live``, ``v``, and the columns that the writer added (null without a writer):
    ``_w``, its hash ``_wh``, ``_rk``, the hash ``_fh`` of both, ``_mb``, ``_no``. Output 0: ``_kh``, key, ``_ts``,
    ``_live``, ``v``. Cost: the records, and what is remembered of their writers.
    """

    reasons = (REPEATED, RESUMED)

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {"v": self.value, **_WRITTEN}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (
            TraceSpec(
                name="written",
                hash=WRITER_HASH,
                key=(WRITER,),
                unique=(RECORD_KEY,),
                unique_hash=FOREIGN_HASH,
                schema=pl.Schema({**_PLACE, LIVE: pl.Boolean()}),
            ),
        )

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Emit the records that are not repeats, and remember the current micro-batch of each writer."""
        (arrived,) = inputs
        (spec,) = self.traces
        trace = context.trace(spec.name)
        new = arrived.select(SEQ, *_PLACE).drop_nulls(WRITER)
        writers = new.select(WRITER_HASH, WRITER).unique()
        stored = trace.lookup(writers)
        spans = _spans(trace.lookup(writers.with_columns(pl.col(WRITER) + _SPANS)), stored)
        seen = _seen(stored, new, spans)
        repeats = seen.filter(~pl.col("fresh"))[SEQ]
        passed = arrived
        if len(repeats):
            repeated = pl.col(SEQ).is_in(repeats.implode())
            context.tell(REPEATED, len(repeats), arrived.filter(repeated))
            passed = arrived.filter(~repeated)
        resumed = seen.filter("resumes")[SEQ]
        if len(resumed):
            context.tell(RESUMED, len(resumed), arrived.filter(pl.col(SEQ).is_in(resumed.implode())))
        columns = [KEY_HASH, *self.keys, TS, LIVE, "v"]
        yield Emission(0, passed.select(pl.col(SEQ).alias(PARENT), *columns))
        trace.insert(pl.concat([_remembered(seen), _changed(spans, seen)]))


def _spans(rows: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """The micro-batches of each writer that began, without gaps from the first to the last."""
    first, last = pl.col(NUMBER).alias(_FIRST), pl.col(MICRO_BATCH).alias(_LAST)
    known = rows.select(WRITER_HASH, pl.col(WRITER).str.strip_suffix(_SPANS), first, last)
    older = stored.join(known, on=WRITER, how="anti").unique(WRITER, maintain_order=True)
    assumed = older.select(WRITER_HASH, WRITER, (pl.col(MICRO_BATCH) - FAR).alias(_FIRST), last)
    return pl.concat([known, assumed])


def _seen(stored: pl.DataFrame, new: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Stored and arriving records, by writer and key.

    `begins`: the first record of a micro-batch; `resumes`: and a later one began before; `current`: the micro-batch
    that began last; `fresh`: not a repeat (null for stored ones).
    """
    both = pl.concat([stored.select(pl.lit(0, pl.Int64).alias(SEQ), *_PLACE), new])
    (writers,) = number_keys(WRITER_HASH, [WRITER], [both])
    (keys,) = number_keys(FOREIGN_HASH, _KEY, [both])
    both = both.with_columns(pl.Series("writer", writers), pl.Series("key", keys))
    begun = _begun(both.filter(pl.col(SEQ) > 0), spans)
    both = both.join(begun, on=SEQ, how="left", maintain_order="left")
    arrived, begins = pl.col(SEQ) > 0, pl.col("resumes").is_not_null()
    current = pl.when(begins | ~arrived).then(MICRO_BATCH).forward_fill().over("writer")
    greatest = pl.col(NUMBER).cum_max().shift(1).over("key", MICRO_BATCH)
    is_next = (pl.col(MICRO_BATCH) == current) & (pl.col(NUMBER) > greatest).fill_null(value=True)
    return both.with_columns(
        begins.alias("begins"), current.alias("current"), pl.when(arrived).then(is_next).alias("fresh")
    )


def _begun(new: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The records with which micro-batches begin, and whether a later micro-batch of the writer began before."""
    firsts = new.filter(pl.col(MICRO_BATCH).is_first_distinct().over("writer"))
    firsts = firsts.select(SEQ, WRITER, MICRO_BATCH).sort(MICRO_BATCH)
    found = firsts.join_asof(
        spans.sort(_FIRST), left_on=MICRO_BATCH, right_on=_FIRST, by=WRITER, check_sortedness=False
    )
    begun = found.filter((pl.col(MICRO_BATCH) > pl.col(_LAST)).fill_null(value=True)).sort(SEQ)
    last = spans.group_by(WRITER).agg(pl.col(_LAST).max().alias("greatest"))
    begun = begun.join(last, on=WRITER, how="left", maintain_order="left")
    before = pl.max_horizontal("greatest", pl.col(MICRO_BATCH).cum_max().shift(1).over(WRITER))
    return begun.select(SEQ, (pl.col(MICRO_BATCH) < before).fill_null(value=False).alias("resumes"))


def _remembered(seen: pl.DataFrame) -> pl.DataFrame:
    """The changes of the trace: each key's last record in the current micro-batch, and tombstones for the others."""
    is_current = pl.col(MICRO_BATCH) == pl.col("current").last().over("writer")
    is_known = (pl.col(SEQ) == 0).any().over("key")
    judged = seen.with_columns(is_current.alias(LIVE), is_known.alias("known"))
    passed = judged.filter(pl.col("fresh").fill_null(value=True))
    last = last_by(passed, ints(passed["key"]))
    changed = last.filter(pl.when(LIVE).then(pl.col(SEQ) > 0).otherwise("known"))
    kept = pl.col(MICRO_BATCH, NUMBER)
    return changed.with_columns(pl.when(LIVE).then(kept)).select(*_PLACE, LIVE)


def _changed(spans: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """The changes of the trace: spans that grew, and tombstones for those that are parts of others now."""
    first, last = pl.col(MICRO_BATCH).alias(_FIRST), pl.col(MICRO_BATCH).alias(_LAST)
    begun = seen.filter("begins").select(WRITER_HASH, WRITER, first, last)
    ordered = pl.concat([spans, begun]).sort(WRITER, _FIRST)
    before = pl.col(_LAST).cum_max().shift(1).over(WRITER)
    ordered = ordered.with_columns((pl.col(_FIRST) > before + 1).fill_null(value=True).alias("apart"))
    ordered = ordered.with_columns(pl.col("apart").cum_sum(reverse=True).over(WRITER).alias("after"))
    ordered = ordered.with_columns((pl.col("after") - pl.col("apart")).alias("after"))
    united = ordered.group_by(WRITER_HASH, WRITER, "after", maintain_order=True).agg(
        pl.col(_FIRST).min(), pl.col(_LAST).max()
    )
    kept = united.filter(pl.col("after") < MOST_SPANS).drop("after")
    grown = kept.join(spans, on=kept.columns, how="anti")
    gone = spans.join(kept, on=[WRITER, _FIRST], how="anti")
    return pl.concat([_rows(grown, live=True), _rows(gone, live=False)])


def _rows(spans: pl.DataFrame, *, live: bool) -> pl.DataFrame:
    """Spans as rows of the trace, or their tombstones."""
    first, last = pl.col(_FIRST), pl.col(_LAST)
    values = (last.alias(MICRO_BATCH), first.alias(NUMBER))
    return spans.select(
        WRITER_HASH,
        pl.col(WRITER) + _SPANS,
        first.alias(FOREIGN_HASH),
        first.cast(pl.String).cast(pl.Binary).alias(RECORD_KEY),
        *(values if live else [pl.lit(None, pl.Int64).alias(name) for name in (MICRO_BATCH, NUMBER)]),
        pl.lit(live).alias(LIVE),
    )
