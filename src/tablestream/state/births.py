"""Births: the micro-batch in which each shard of each round first wrote state.

A shard whose whole state is gone looks like a new one. So the driver keeps a list of births beside the plan, and
compares it with the shards that found no state:

===============================================  =====================================================================
a shard finds no state in micro-batch n, and     then
===============================================  =====================================================================
the list does not have it                        it is new; if it writes state, it is born in n
the list has its birth before n                  its state is gone: `DamagedStateError`
the list has its birth in n or later             n is done again, or the query was set back to n: the birth is
                                                 forgotten, and happens again
===============================================  =====================================================================

Births of n are stored before n is committed, and before sinks are written. A shard is missed in n only if it was born
before n, so in a committed micro-batch. If the list, or a part of it, is lost, fewer lost shards are noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tablestream.errors import DamagedStateError
from tablestream.state.run import RESTORE_HINT
from tablestream.state.sealed import altered, seal, unseal

Place = tuple[int, int]
_WHAT = "list of shards"


class NewShard(NamedTuple):
    """A shard that found no state in a micro-batch, and whether it then wrote some."""

    round: int
    shard: int
    is_born: bool


@dataclass(frozen=True)
class BirthRecord:
    """One entry of the list: which shards were born in a micro-batch."""

    query_id: str
    """Entries of another query in the same directory do not count."""
    number: int
    """Later entries have larger numbers."""
    micro_batch: int
    """What earlier entries say about it, and about later ones, is void."""
    places: tuple[Place, ...]
    """(round, shard) of those that were born."""


def encode(record: BirthRecord) -> str:
    """Return an entry as text with a checksum."""
    return seal(json.dumps([record.query_id, record.number, record.micro_batch, record.places]))


def decode(text: str) -> BirthRecord:
    """Read what `encode` wrote; raise `DamagedStateError` for any other text."""
    content = unseal(text, _WHAT)
    if content == text:  # of older versions, which had no such list
        raise altered(_WHAT)
    query_id, number, micro_batch, places = json.loads(content)
    return BirthRecord(query_id, number, micro_batch, tuple((work, shard) for work, shard in places))


@dataclass(frozen=True)
class Births:
    """All births of a query's shards.

    Examples
    --------
    >>> births, first = Births("q"), [NewShard(1, 0, is_born=True)]
    >>> births = births.after(births.record(7, first))
    >>> births.record(7, first)  # micro-batch 7 is done again
    BirthRecord(query_id='q', number=1, micro_batch=7, places=((1, 0),))
    >>> births.check(8, first, {1: "totals"})
    Traceback (most recent call last):
    tablestream.errors.DamagedStateError: [TABLESTREAM_DAMAGED_STATE] The whole state of shard 0 of round 1 is gone...
    """

    query_id: str
    """The query."""
    born: Mapping[Place, int] = field(default_factory=dict)
    """The micro-batch of each birth, by (round, shard)."""
    number: int = 0
    """The number of the next entry."""

    @classmethod
    def of(cls, records: Iterable[BirthRecord], query_id: str) -> Births:
        """Put the entries of a query together, which come in any order."""
        births = cls(query_id)
        mine = (record for record in records if record.query_id == query_id)
        for record in sorted(mine, key=lambda record: record.number):
            births = births.after(record)
        return births

    def after(self, record: BirthRecord | None) -> Births:
        """Return the births with an entry added, if there is one."""
        if record is None:
            return self
        born = self.before(record.micro_batch) | dict.fromkeys(record.places, record.micro_batch)
        return replace(self, born=born, number=record.number + 1)

    def before(self, micro_batch: int) -> dict[Place, int]:
        """Return the births before a micro-batch."""
        return {place: born for place, born in self.born.items() if born < micro_batch}

    def check(self, micro_batch: int, new: Iterable[NewShard], operators: Mapping[int, str]) -> None:
        """Raise if a shard that found no state in a micro-batch was born before.

        `micro_batch`, `new`: the micro-batch, and the shards that found no state in it. `operators`: the names of each
        round's operators, for the error.
        """
        known = self.before(micro_batch)
        for one in new:
            place = one.round, one.shard
            if place in known:
                raise shard_gone(place, known[place], operators.get(one.round, ""))

    def record(self, micro_batch: int, new: Iterable[NewShard]) -> BirthRecord | None:
        """Return the entry that a micro-batch adds; None if it adds nothing."""
        places = tuple(sorted((one.round, one.shard) for one in new if one.is_born))
        known = self.before(micro_batch)
        if not places and len(known) == len(self.born):
            return None
        return BirthRecord(self.query_id, self.number, micro_batch, places)


def shard_gone(place: Place, born: int, operator: str = "") -> DamagedStateError:
    """The error for a shard without any state that had some."""
    work, shard = place
    return DamagedStateError(
        f"The whole state of shard {shard} of round {work} is gone from the state of record; the shard has had"
        f" state since micro-batch {born}.",
        hint=RESTORE_HINT,
        operator=operator,
    )
