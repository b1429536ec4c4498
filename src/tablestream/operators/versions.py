"""The versions of a key: what was valid when, as far back as the history reaches.

A version is valid from its own time until the time of the next one. ``observed`` is the largest time of any version
that the shard has seen, and ``bound`` is ``observed - history``.

======================  ===============================================================================
call                    result
======================  ===============================================================================
put at ``t``            replaces a version at ``t``; latest if no version is later
as of ``t >= bound``    the version with the largest time up to ``t``, if that is a row
as of ``t < bound``     the newest version, if it is a row and its time is up to ``t``
======================  ===============================================================================

``forgetful`` (as in Kafka Streams): a tombstone at exactly the newest version's time removes that version and leaves
no trace, unless a version of the key ended, or was deleted, at that time before. An older version that arrives later
is then the latest one again.

References
----------
KIP-889; ``docs/semantics/versioned-tables.md``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import polars as pl

from tablestream.operators.events import ints, stored_rows
from tablestream.operators.operator import Context
from tablestream.operators.reasons import EXPIRED
from tablestream.state.changes import LATEST, LIVE, SEQ, STEP, TS, number_keys
from tablestream.state.positions import Ints, gather
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: How many records `columns_of` holds at a time.
_RECORDS = 500
#: Which input a change is from, its position there, and how far back the history reaches at its place.
INPUT, POSITION, BOUND = "input", "position", "bound"
FROM, TO, EXISTS, CLOSED, DELETED = "_from", "_to", "_exists", "_closed", "_deleted"
#: A version that changed: a put of its key, and the place of its payload.
_CHANGED: Mapping[str, type[pl.DataType]] = {
    "position": pl.Int64,
    FROM: pl.Int64,
    TO: pl.Int64,
    "row": pl.Int64,
    CLOSED: pl.Int64,
    DELETED: pl.Boolean,
    LIVE: pl.Boolean,
}


@dataclass
class History:
    """The versions of one key, by time."""

    times: list[int] = field(default_factory=list)
    """When each version begins, rising."""
    rows: list[int] = field(default_factory=list)
    """The place of each version's payload; -1: a tombstone."""
    closed: list[int | None] = field(default_factory=list)
    deleted: list[bool] = field(default_factory=list)
    """Per version, when it was recorded to end, and whether a version was deleted at its time; only for
    ``forgetful``."""
    touched: set[int] = field(default_factory=set)
    """The times at which something changed."""

    def put(self, time: int, row: int, *, forgetful: bool = False) -> bool:
        """Write a version; return whether it is the latest one."""
        at = bisect_left(self.times, time)
        known = at < len(self.times) and self.times[at] == time
        latest = at + known == len(self.times)
        self.touched.add(time)
        if at:
            self.touched.add(self.times[at - 1])
        if known and latest and forgetful and row < 0 <= self.rows[at] and not self._is_marked(time):
            for column in (self.times, self.rows, self.closed, self.deleted):
                del column[at]
            return True
        if known:
            if not latest and self.closed[at] is None:
                self.closed[at] = self.times[at + 1]
            self.rows[at] = row
            return latest
        self._close(at, time, row, latest=latest)
        self.times.insert(at, time)
        self.rows.insert(at, row)
        self.closed.insert(at, None if latest else self.times[at + 1])
        self.deleted.insert(at, latest and row < 0 and not (at and self.closed[at - 1] == time))
        return latest

    def _close(self, at: int, time: int, row: int, *, latest: bool) -> None:
        """Record that the version before ends, unless it is a tombstone and a row follows as the latest version."""
        if not at:
            return
        before = self.closed[at - 1]
        if (latest and (self.rows[at - 1] >= 0 or row < 0)) or (
            not latest and before is not None and before > time
        ):
            self.closed[at - 1] = time

    def _is_marked(self, time: int) -> bool:
        """Whether a version ended, or was deleted, at a time."""
        return time in self.closed or self.deleted[bisect_left(self.times, time)]

    def is_followed(self, time: int) -> bool:
        """Whether a version is later than a time."""
        return bool(self.times) and self.times[-1] > time

    def newest(self) -> int:
        """The payload of the newest version; -1 if there is none, or it is a tombstone."""
        return self.rows[-1] if self.rows else -1

    def as_of(self, time: int, bound: int | None) -> int:
        """The payload of the version that was valid at a time; -1 if there was none, or it is forgotten."""
        if bound is not None and time < bound:
            return self.newest() if self.times and self.times[-1] <= time else -1
        at = bisect_right(self.times, time)
        return self.rows[at - 1] if at else -1

    def following(self, time: int) -> int:
        """The payload of the first row that begins at a time or later; -1 if there is none."""
        return next((row for row in islice(self.rows, bisect_left(self.times, time), None) if row >= 0), -1)

    def row_before(self, time: int) -> int | None:
        """When the last row before a time began; None if there is none."""
        known = range(bisect_left(self.times, time) - 1, -1, -1)
        return next((self.times[at] for at in known if self.rows[at] >= 0), None)

    def floor(self, time: int) -> tuple[int | None, int]:
        """When the version that is valid at a time began, and its payload; None and -1 if there is none."""
        at = bisect_right(self.times, time)
        return (self.times[at - 1], self.rows[at - 1]) if at else (None, -1)

    def end(self, time: int) -> int | None:
        """When the version that begins at a time ends; None: it is the newest."""
        at = bisect_right(self.times, time)
        return self.times[at] if at < len(self.times) else None

    def between(self, begin: int, end: int | None) -> list[int]:
        """The times in ``(begin, end)`` at which a version begins."""
        last = len(self.times) if end is None else bisect_left(self.times, end)
        return self.times[bisect_right(self.times, begin) : last]

    def during(self, begin: int, end: int | None) -> Iterator[tuple[int, int | None, int]]:
        """Cut a time span where versions begin: the begin, the end and the payload of each part."""
        begins = [begin, *self.between(begin, end)]
        for start, stop in zip(begins, [*begins[1:], end], strict=True):
            yield start, stop, self.as_of(start, None)

    def cover(self, begin: int, end: int | None, row: int) -> list[int]:
        """Make a row valid from one time to another; return the times at which a version changes."""
        touched = [begin, *self.between(begin, end)]
        if end is not None and self.place(end) is None:
            self.put(end, self.as_of(end, None))
            touched.append(end)
        for time in touched:
            if time != end:
                self.put(time, row)
        return touched

    def place(self, time: int) -> int | None:
        """The place of the version that begins at a time, if one does."""
        at = bisect_left(self.times, time)
        return at if at < len(self.times) and self.times[at] == time else None

    def forget(self, bound: int) -> None:
        """Forget versions that had ended by a time.

        Other keys' versions move that time, so results must not depend on when this runs.
        """
        over = bisect_right(self.times, bound) - 1
        if over >= 0 and over == len(self.times) - 1 and self.rows[over] < 0:
            over += 1
        if over > 0:
            self.touched.update(self.times[:over])
            for column in (self.times, self.rows, self.closed, self.deleted):
                del column[:over]


@dataclass(frozen=True)
class Versions:
    """A versioned table in a trace."""

    key_hash: str
    keys: pl.Schema
    """The column with the key's hash; the key columns and their dtypes."""
    value: pl.DataType
    """The dtype of the value."""
    history_us: int
    """How far back versions are kept, in microseconds."""
    forgetful: bool = False
    """As in Kafka Streams; see above."""
    name: str = "versions"
    """Of the trace."""

    @property
    def trace(self) -> TraceSpec:
        """The trace with one row per version."""
        head = {
            self.key_hash: pl.Int64(),
            **self.keys,
            FROM: pl.Int64(),
            TO: pl.Int64(),
            EXISTS: pl.Boolean(),
        }
        marks = {CLOSED: pl.Int64(), DELETED: pl.Boolean()} if self.forgetful else {}
        return TraceSpec(
            name=self.name,
            hash=self.key_hash,
            key=tuple(self.keys),
            unique=(FROM,),
            schema=pl.Schema({**head, **marks, LIVE: pl.Boolean(), "v": self.value}),
            expires=TO,
        )

    @property
    def changes(self) -> pl.Schema:
        """The columns of the table's changes."""
        head = {self.key_hash: pl.Int64(), **self.keys, TS: pl.Int64(), LIVE: pl.Boolean()}
        return pl.Schema({**head, LATEST: pl.Boolean(), "v": self.value})

    def bound(self, observed: int | None) -> int | None:
        """How far back the history reaches; None before the first version."""
        return None if observed is None else observed - self.history_us

    def bounds(self, times: pl.Series, observed: int | None) -> tuple[pl.Series, int | None]:
        """Observe times in their order; return how far back the history reaches at each, and the largest one."""
        highest = times.cum_max()
        if observed is not None:
            highest = highest.clip(lower_bound=observed)
        return highest - self.history_us, int(highest[-1]) if len(highest) else observed

    def in_time(self, inputs: Sequence[pl.DataFrame], context: Context) -> pl.DataFrame:
        """Order the changes of all inputs by place, and drop and count those that are too late.

        A change is too late if it is older than the history and not the latest of its row. Messages without ``_latest``
        are never too late. The result has ``_seq``, ``_step``, ``_ts``, ``_live``, `INPUT`, `POSITION` and `BOUND`.
        """
        changes = pl.concat(
            [
                frame.select(
                    pl.col(name) if name in frame.columns else pl.lit(value=True).alias(name)
                    for name in (SEQ, STEP, TS, LIVE, LATEST)
                ).with_columns(
                    pl.lit(number).alias(INPUT), pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION)
                )
                for number, frame in enumerate(inputs)
            ]
        ).sort(SEQ)
        bounds, context.observed = self.bounds(changes[TS], context.observed)
        is_late = ~changes[LATEST] & (changes[TS] < bounds)
        late = changes.filter(is_late)
        for number, frame in enumerate(inputs):
            context.reject(EXPIRED, frame[late.filter(input=number)[POSITION]], number)
        return changes.drop(LATEST).with_columns(bounds.alias(BOUND)).filter(~is_late)

    def opened(self, trace: Trace, puts: pl.DataFrame, asked: pl.DataFrame | None = None) -> OpenVersions:
        """Read the versions of the keys that are written or looked up."""
        frames = [puts] if asked is None else [puts, asked]
        stored = stored_rows(trace, *frames)
        kid, *kids = number_keys(self.key_hash, self.keys, [stored, *frames])
        return OpenVersions(self, stored, puts, self._histories(stored, kid), [one.tolist() for one in kids])

    def _histories(self, stored: pl.DataFrame, kid: Ints) -> dict[int, History]:
        """The stored versions of each key, by time."""
        row = pl.when(EXISTS).then(pl.int_range(pl.len(), dtype=pl.Int64)).otherwise(-1)
        marks = (
            (CLOSED, DELETED)
            if self.forgetful
            else (pl.lit(None).alias(CLOSED), pl.lit(value=False).alias(DELETED))
        )
        columns = stored.select(pl.Series("_kid", kid), FROM, TO, row.alias("_row"), *marks).sort(
            "_kid", FROM
        )
        histories: dict[int, History] = {}
        for key, time, at, closed, deleted in _with_gaps(columns).iter_rows():
            history = histories.setdefault(key, History())
            history.times.append(time)
            history.rows.append(at)
            history.closed.append(closed)
            history.deleted.append(deleted)
        return histories


def _with_gaps(versions: pl.DataFrame) -> pl.DataFrame:
    """Add a tombstone where a version ended and what came next is no longer stored; drop the ends.

    Runs are merged separately. So a version that has expired may still be stored when those after it, which have
    expired too, are not.
    """
    followed = (pl.col("_kid").shift(-1) == pl.col("_kid")) & (pl.col(FROM).shift(-1) == pl.col(TO))
    ends = versions.filter(
        (pl.col("_row") >= 0) & pl.col(TO).is_not_null() & ~followed.fill_null(value=False)
    )
    if ends.is_empty():
        return versions.drop(TO)
    gaps = ends.with_columns(
        pl.col(TO).alias(FROM),
        pl.lit(-1, pl.Int64).alias("_row"),
        pl.lit(None).alias(CLOSED),
        pl.lit(value=False).alias(DELETED),
    )
    return pl.concat([versions, gaps.cast(versions.schema)]).sort("_kid", FROM).drop(TO)


def valid_versions(versions: pl.DataFrame, bound: int, as_of: int | None = None) -> pl.DataFrame:
    """Filter stored versions: those valid at `as_of` or, without it, at any time since `bound`."""
    if as_of is None:
        valid = pl.col(TO).is_null() | (pl.col(TO) > bound)
    else:
        valid = (pl.col(FROM) <= as_of) & (pl.col(TO).is_null() | (pl.col(TO) > as_of))
    return versions.filter(valid)


def columns_of(records: Iterable[Sequence[Any]], schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Make a frame of records. Few of them exist at a time, so the garbage collector has few to visit."""
    columns: list[list[Any]] = [[] for _ in schema]
    remaining = iter(records)
    while part := list(islice(remaining, _RECORDS)):
        for column, values in zip(columns, zip(*part, strict=True), strict=True):
            column.extend(values)
    return pl.DataFrame(
        [pl.Series(name, column, dtype=schema[name]) for name, column in zip(schema, columns, strict=True)]
    )


@dataclass
class OpenVersions:
    """The versions of some keys while a micro-batch is processed."""

    versions: Versions
    stored: pl.DataFrame
    puts: pl.DataFrame
    """The stored versions of the keys, and the ones to write: `payload` has the values of both, in this order."""
    histories: dict[int, History]
    """By the number of the key."""
    numbers: list[list[int]]
    """The number of each put's key, and of each key that is looked up."""
    _keys: dict[int, int] = field(default_factory=dict)

    @property
    def payload(self) -> pl.Series:
        """The values that the places in a `History` refer to."""
        return pl.concat([self.stored["v"], self.puts["v"]], rechunk=False)

    def put(self, position: int, time: int, *, exists: bool) -> bool:
        """Write a put; return whether it is the latest version of its key."""
        return self.written(position).put(
            time, self.row(position, exists=exists), forgetful=self.versions.forgetful
        )

    def is_known(self, position: int, time: int, observed: int | None, *, latest: bool) -> bool:
        """Whether it is known what follows a put. If nothing follows a late one, a tombstone may be forgotten."""
        bound = self.versions.bound(observed)
        if latest or self.versions.forgetful or bound is None:
            return True
        return time >= bound or self.written(position).is_followed(time)

    def written(self, position: int) -> History:
        """The versions of a put's key, which are stored again at the end."""
        key = self.key(position)
        self._keys.setdefault(key, position)
        return self.histories.setdefault(key, History())

    def key(self, position: int) -> int:
        """The number of a put's key."""
        return self.numbers[0][position]

    def row(self, position: int, *, exists: bool = True) -> int:
        """The place of a put's payload; -1 if it is a tombstone."""
        return self.stored.height + position if exists else -1

    def asked(self, position: int) -> History:
        """The versions of a key that is looked up."""
        return self.histories.setdefault(self.numbers[1][position], History())

    def as_of(self, position: int, time: int, observed: int | None) -> int:
        """The place of the version that is valid for a lookup; -1: none."""
        history = self.histories.get(self.numbers[1][position])
        return -1 if history is None else history.as_of(time, self.versions.bound(observed))

    def remember(self, trace: Trace, observed: int | None) -> None:
        """Write the versions that changed, and remove expired ones."""
        found = columns_of(self._changed(), _CHANGED)
        if found.is_empty():
            return
        keys = self.puts.select(self.versions.key_hash, *self.versions.keys)[found["position"]]
        rows = keys.hstack(found).with_columns(
            pl.col("row").ge(0).alias(EXISTS), gather(self.payload, ints(found["row"])).alias("v")
        )
        trace.insert(rows, expired_before=self.versions.bound(observed))

    def _changed(self) -> Iterator[tuple[int, int, int | None, int, int | None, bool, bool]]:
        """The columns `_CHANGED` of every version that changed."""
        for key, position in self._keys.items():
            history = self.histories[key]
            for time in sorted(history.touched):
                at, end = history.place(time), history.end(time)
                if at is None:
                    yield position, time, None, -1, None, False, False
                    continue
                if end is None and history.rows[at] < 0 and not self.versions.forgetful:
                    end = time  # once it expires, older changes are too late
                yield position, time, end, history.rows[at], history.closed[at], history.deleted[at], True
