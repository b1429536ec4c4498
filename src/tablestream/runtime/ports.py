"""Ports: where a message goes.

A message names the port that it is for: one input of one operator, an output of the plan, or a table between rounds.

Ranks
    A message causes emissions, and each emission may go to several ports. Of two messages with the same parent, the
    one emitted first comes first, with everything that it causes. Of two messages of the same emission, the one to
    the port of lower rank comes first. Ports rank by the declaration order of the nodes that read them, right roles
    before left ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.state.changes import KEY_HASH
from tablestream.state.positions import Ints

#: The port of counters: what operators dropped, by reason.
METRICS = -1
#: The port of what the driver is told about drops: counts with examples.
NOTICES = -2
#: The route of messages that go to every shard.
EVERY_SHARD = "*"
#: More than a plan has ports. A hop column is the emission number times this, plus the port's rank.
RANKS = 1 << 20


@dataclass(frozen=True)
class Port:
    """One input of an operator, an output of the plan, or a table between two rounds."""

    number: int
    rank: int
    """The number by which messages name it, and its rank among the ports. Merged streams share one number, and each has
    its own rank."""
    round: int
    """The round that reads it. For outputs, one more than the last round."""
    route: str
    """The hash column that decides a message's shard. `EVERY_SHARD`: each shard gets a copy."""
    label: str
    """For people: ``operator.input``."""
    spread: int = 1
    """Over how many shards the messages of one route are spread, by the hash of their key."""
    copies: int = 1
    """How many shards get each message: those over which what reads it is spread."""

    def shards_of(self, messages: pl.DataFrame, shards: int) -> Ints:
        """Return the shard of each message; if several shards get copies of it, the first of them.

        If the port's messages are spread, those of one route live in as many shards, one behind the other, and the key
        of a message decides between them.
        """
        route = messages[self.route]
        if route.has_nulls():  # a record with a null foreign key goes where its key lives
            route = messages.select(pl.coalesce(self.route, KEY_HASH)).to_series()
        shard = _modulo(route, shards)
        if self.spread == 1:
            return shard
        return (shard + _modulo(messages[KEY_HASH], self.spread)) % shards

    def copied_to(self, shard: int, shards: int) -> list[int]:
        """Return the shards that get a message whose first shard is known.

        Examples
        --------
        >>> Port(1, 1, 2, "_fh", "right", copies=4).copied_to(14, 16)
        [14, 15, 0, 1]
        """
        return [(shard + number) % shards for number in range(self.copies)]


def _modulo(hashes: pl.Series, number: int) -> Ints:
    return (hashes.reinterpret(signed=False) % number).to_numpy().astype(np.int64)
