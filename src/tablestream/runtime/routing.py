"""Which shards the messages to a port go to."""

from __future__ import annotations

import numpy as np
import polars as pl

from tablestream.runtime.rounds import Port
from tablestream.state.changes import KEY_HASH
from tablestream.state.positions import Ints


def shards_of(messages: pl.DataFrame, port: Port, shards: int) -> Ints:
    """Return the shard of each message; if several shards get copies of it, the first of them.

    If the port's messages are spread, those of one route live in as many shards, one behind the other, and the key of a
    message decides between them.
    """
    route = messages[port.route]
    if route.has_nulls():  # a record with a null foreign key goes where its key lives
        route = messages.select(pl.coalesce(port.route, KEY_HASH)).to_series()
    shard = _modulo(route, shards)
    if port.spread == 1:
        return shard
    return (shard + _modulo(messages[KEY_HASH], port.spread)) % shards


def _modulo(hashes: pl.Series, number: int) -> Ints:
    return (hashes.reinterpret(signed=False) % number).to_numpy().astype(np.int64)


def copied_to(shard: int, port: Port, shards: int) -> list[int]:
    """Return the shards that get a message whose first shard is known.

    Examples
    --------
    >>> copied_to(14, Port(1, 1, 2, "_fh", "right", copies=4), 16)
    [14, 15, 0, 1]
    """
    return [(shard + number) % shards for number in range(port.copies)]
