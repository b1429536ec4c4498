"""The record-at-a-time reference of versioned tables: a store of versions, and what reads its changes.

Changes of a versioned table say whether they are the latest of their key. They go through views as they are; what
knows no versions, joins and groups, reads them through `LatestOnly`. KIP-889, KIP-914.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.reference.steps import Message, Operator, Output, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tests.reference.steps import Key, Value

NOT_PUT, LATEST = -(1 << 63), -1


class Version(NamedTuple):
    """A change of a versioned table, and whether its key has no later version."""

    key: Key
    value: Value
    ts: int
    latest: bool = True


@dataclass
class Versions:
    """The versions of one key by their times; None is a tombstone.

    `ends` and `deleted` are what compat remembers beside: when a version was recorded to end, and the times at which a
    tombstone came that ended nothing.
    """

    values: dict[int, Value] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)

    def row_at(self, ts: int | None) -> Row | None:
        """Return the version that begins at `ts`, if it is a row."""
        value = None if ts is None else self.values.get(ts)
        return None if ts is None or value is None else Row(value, ts)

    def newest(self) -> Row | None:
        """Return the newest version, if it is a row."""
        return self.row_at(max(self.values, default=None))


class VersionedRows:
    """A store of versions, as Kafka Streams' answers.

    A version is valid from its own time until that of the next one, tombstones included. `observed` is the largest time
    of any version that was put into the shard.

    =============================  ===================================================================
    call                           result
    =============================  ===================================================================
    put, ts < observed - history   `NOT_PUT`, and nothing is stored
    put, any other                 the time of the next later version, `LATEST` if there is none; a
    .                              version at the same time is replaced
    get                            the newest version, if it is a row; it never expires
    as_of, ts < observed - history the newest version, if it is a row and not later than ts
    as_of, any other               the version valid at ts, if it is a row
    delete                         as_of before, and then a tombstone is put
    =============================  ===================================================================

    Compat: a tombstone at exactly the time of the newest version takes that version away and leaves no trace, unless
    another version of the key was recorded to end at that time, or a tombstone came at it before. What is older and
    comes later is then the latest again.

    Parameters
    ----------
    history
        How far back versions are put and found, in the unit of the timestamps.
    shard
        Key -> its shard, which has an observed time of its own. One shard unless given.
    compat
        Forget such tombstones.

    Examples
    --------
    >>> rows = VersionedRows(10)
    >>> rows.put("k", "a", 10), rows.put("k", "b", 20), rows.put("k", "c", 15), rows.put("k", "z", 9)
    (-1, -1, 20, -9223372036854775808)
    >>> [rows.as_of("k", ts) for ts in (14, 15, 99)], rows.as_of("k", 9)
    ([Row(value='a', ts=10), Row(value='c', ts=15), Row(value='b', ts=20)], None)
    """

    def __init__(
        self, history: int, *, shard: Callable[[Key], Hashable] = lambda _key: 0, compat: bool = False
    ) -> None:
        self._history = history
        self._shard = shard
        self._compat = compat
        self._keys: dict[Key, Versions] = {}
        self._observed: dict[Hashable, int] = {}

    def is_expired(self, key: Key, ts: int) -> bool:
        """Whether a time lies before the history of a key's shard."""
        observed = self._observed.get(self._shard(key))
        return observed is not None and ts < observed - self._history

    def put(self, key: Key, value: Value, ts: int) -> int:
        """Write a version, unless it is expired."""
        return NOT_PUT if self.is_expired(key, ts) else self.write(key, value, ts)

    def write(self, key: Key, value: Value, ts: int) -> int:
        """Write a version, expired or not."""
        shard = self._shard(key)
        self._observed[shard] = max(self._observed.get(shard, ts), ts)
        versions = self._keys.setdefault(key, Versions())
        following = min((time for time in versions.values if time > ts), default=None)
        if self._compat:
            if following is None and _is_forgotten(versions, value, ts):
                del versions.values[ts]
                return LATEST
            _note_end(versions, value, ts, following)
        versions.values[ts] = value
        return LATEST if following is None else following

    def get(self, key: Key) -> Row | None:
        """Return the latest row of a key."""
        return self._keys.get(key, Versions()).newest()

    def as_of(self, key: Key, ts: int) -> Row | None:
        """Return the row of a key that was valid at a time."""
        versions = self._keys.get(key, Versions())
        if self.is_expired(key, ts):
            newest = versions.newest()
            return newest if newest is not None and newest.ts <= ts else None
        return versions.row_at(max((time for time in versions.values if time <= ts), default=None))

    def delete(self, key: Key, ts: int) -> Row | None:
        """Write a tombstone, unless it is expired, and return the row that was valid before."""
        if self.is_expired(key, ts):
            return None
        before = self.as_of(key, ts)
        self.write(key, None, ts)
        return before


def _is_forgotten(versions: Versions, value: Value, ts: int) -> bool:
    """Whether a tombstone takes away the newest version, at its time, and nothing tells of that time."""
    told = ts in versions.deleted or ts in versions.ends.values()
    return value is None and versions.values.get(ts) is not None and not told


def _note_end(versions: Versions, value: Value, ts: int, following: int | None) -> None:
    """Note which version ends by a put; a row that follows a tombstone in order ends nothing."""
    before = max((time for time in versions.values if time < ts), default=None)
    if following is not None:
        versions.ends.setdefault(ts, following)
    elif ts not in versions.values:
        if before is not None and (value is None or versions.values[before] is not None):
            versions.ends[before] = ts
        elif value is None:
            versions.deleted.add(ts)


class VersionedTable(Operator):
    """Keep the versions of a table, and tell its late changes from the latest.

    =====================================  ====================================================
    change                                 output
    =====================================  ====================================================
    expired: older than observed - history none; counted as dropped
    older than another of its key          itself, as one that is not the latest
    any other, also at the time of the     itself, as the latest
    newest
    =====================================  ====================================================

    Parameters
    ----------
    history, shard, compat
        As for `VersionedRows`.

    Examples
    --------
    >>> table = VersionedTable(5)
    >>> [table.step([(0, "k", value, ts)]) for value, ts in [("a", 10), ("b", 8), ("c", 4)]]
    [[Version(key='k', value='a', ts=10, latest=True)], [Version(key='k', value='b', ts=8, latest=False)], []]
    >>> table.dropped
    1
    """

    def __init__(
        self, history: int, *, shard: Callable[[Key], Hashable] = lambda _key: 0, compat: bool = False
    ) -> None:
        super().__init__(compat=compat)
        self._rows = VersionedRows(history, shard=shard, compat=compat)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Version]:
        """Answer one step: messages are (0, key, value or None, timestamp)."""
        put = [(m, self._rows.put(m.key, m.value, m.ts)) for m in (Message(*message) for message in messages)]
        accepted = [(message, end) for message, end in put if end != NOT_PUT]
        self.dropped += len(put) - len(accepted)
        return [Version(m.key, m.value, m.ts, end == LATEST) for m, end in accepted]


class VersionedView(Operator):
    """What a filter or a select makes of a versioned table: each change with another value.

    Late changes pass, too, and none is held back: a row that was filtered out is a tombstone each time.

    Parameters
    ----------
    mapper
        value -> value, or None where the row is left out. Never called for a tombstone.

    Examples
    --------
    >>> VersionedView(lambda value: value if value > 1 else None).step([Version("k", 1, 7, latest=False)])
    [Version(key='k', value=None, ts=7, latest=False)]
    """

    def __init__(self, mapper: Callable[[Value], Value], *, compat: bool = False) -> None:
        super().__init__(compat=compat)
        self._mapper = mapper

    def step(self, versions: Sequence[Version]) -> list[Version]:
        """Answer one step."""
        return [v._replace(value=None if v.value is None else self._mapper(v.value)) for v in versions]


class LatestOnly(Operator):
    """Read a versioned table where no versions are known: its latest changes alone.

    Their last one of each key is its row. Late ones are left out: joins count them as dropped, groups do not.

    Parameters
    ----------
    counts
        Whether what is left out is counted.

    Examples
    --------
    >>> side = LatestOnly(counts=True)
    >>> side.step([Version("k", "a", 10), Version("k", "b", 8, latest=False)]), side.dropped
    ([Output(key='k', value='a', ts=10)], 1)
    """

    def __init__(self, *, counts: bool, compat: bool = False) -> None:
        super().__init__(compat=compat)
        self._counts = counts

    def step(self, versions: Sequence[Version]) -> list[Output]:
        """Answer one step."""
        latest = [Output(version.key, version.value, version.ts) for version in versions if version.latest]
        self.dropped += self._counts * (len(versions) - len(latest))
        return latest
