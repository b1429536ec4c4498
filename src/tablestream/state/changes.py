"""Frames of changes: the columns that every message carries, and how keys become numbers.

A *message* is one row of a Polars frame. Between rounds it carries its place in the total order. Inside a
round it carries two integers instead, because operators need no more:

=============  =========  =================================================================================
column         dtype      meaning
=============  =========  =================================================================================
``_t``         any        running maximum of the timestamp in its source partition (us), or ``order_by``
``_p``         String     source and source partition, as text that sorts
``_o``         Int64      position in the source partition
``_h0``, ...   Int64      one per hop: emission number, then rank of the port; parent first. The emission number of
                          ``_h0`` is the number of a record among those of one root
``_hs``        Int64      how many hops are part of the step; absent or 0: the step is the root's
``_seq``       Int64      (inside a round) dense number of the message in the shard's slice, from 1
``_step``      Int64      (inside a round) dense number of its root: the input record that caused it
``_ts``        Int64      the change's timestamp, microseconds since 1970
``_row_ts``    Int64      the row's own timestamp where it differs from the change's, else absent
``_live``      Boolean    false: a tombstone
``_latest``    Boolean    in a versioned table, false: the row has a later version
``_kh``        Int64      ``xxhash64`` of the key; ``_k0``, ``_k1``, ... are its columns
``_fh``        Int64      ``xxhash64`` of the foreign key; ``_f0``, ... are its columns
``_as_of``     Int64      the time as of which a row is joined, microseconds since 1970
=============  =========  =================================================================================

``(_t, _p, _o)`` is the *root*: the place of a row in its source. If the row was exploded before the table was made,
several records have the same root, and they are numbered. Two messages with the same root and number belong to the
same *step*, unless an operator on their way split the step: then the hops up to its emission number are part of the
step, too. Values are opaque struct columns, null in a tombstone.

The rows of all bootstraps of a plan have the source partition `BOOTSTRAP`. They are one step, before all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import numpy as np
import polars as pl

from tablestream.state.positions import Bools, Ints, all_same, put_back, stable_order, stacked, starts

TIME, PARTITION, POSITION = "_t", "_p", "_o"
ROOT = (TIME, PARTITION, POSITION)
STEP_HOPS = "_hs"
#: The source partition of rows that tables start with; sorts before those of records, which begin with a digit.
BOOTSTRAP = "!bootstrap"
SEQ, STEP = "_seq", "_step"
TS, ROW_TS, LIVE = "_ts", "_row_ts", "_live"
LATEST = "_latest"
KEY_HASH, FOREIGN_HASH = "_kh", "_fh"
AS_OF = "_as_of"
#: The column of a struct for a value without columns.
NOTHING = "__nothing"

Keys = tuple[str, ...]


def hop_columns(hops: int) -> list[str]:
    """Return the names of the first `hops` hop columns."""
    return [f"_h{number}" for number in range(hops)]


def key_columns(width: int) -> Keys:
    """Return the names of the columns of a key with `width` parts."""
    return tuple(f"_k{number}" for number in range(width))


def foreign_columns(width: int) -> Keys:
    """Return the names of the columns of a foreign key with `width` parts."""
    return tuple(f"_f{number}" for number in range(width))


def stable_hash(value: bytes) -> int:
    """Hash bytes to an Int64 that is the same in every process and version, so that it can be part of a state.

    Examples
    --------
    >>> stable_hash(b"a")
    3405396810240292928
    """
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little", signed=True)


def number_keys(hashes: str, keys: Iterable[str], frames: Sequence[pl.DataFrame]) -> list[Ints]:
    """Give every distinct key of some frames a dense number, the same in all of them.

    Keys are distinguished by their hash or, where two different keys share a hash, by the keys themselves. Nulls in a
    key are equal to each other. The order of the numbers has no meaning.

    `hashes`, `keys`: the columns of the hash (Int64) and of the key, in every frame. `frames`: the frames. Their other
    columns are ignored. Returns: per frame, the number of each row's key.

    Examples
    --------
    >>> one = pl.DataFrame({"_kh": [7, 9, 7], "_k0": ["a", "b", "c"]})
    >>> len(set(number_keys("_kh", ["_k0"], [one])[0]))
    3
    """
    columns = list(keys)
    every = stacked([frame[[hashes, *columns]] for frame in frames])
    numbers = _numbers(every, hashes, columns)
    bounds = accumulate((frame.height for frame in frames), initial=0)
    return [numbers[begin:end] for begin, end in pairwise(bounds)]


def _numbers(every: pl.DataFrame, hashes: str, keys: Sequence[str]) -> Ints:
    """Number keys by their hash, or, where two keys share a hash, by the keys themselves."""
    sorted_keys = in_hash_order(every, hashes, keys)
    if sorted_keys is None:
        distinct = every.unique(subset=keys, keep="first", maintain_order=True).with_row_index("_number")
        # Joined on the hash as well: Polars does not find NaN in a single column that it knows to be sorted.
        joined = every.join(distinct, on=[hashes, *keys], how="left", nulls_equal=True, maintain_order="left")
        return joined.get_column("_number").cast(pl.Int64).to_numpy()
    order, first = sorted_keys
    return put_back(np.asarray(np.cumsum(first) - 1), order)


def in_hash_order(every: pl.DataFrame, hashes: str, keys: Sequence[str]) -> tuple[Ints, Bools] | None:
    """Sort keys by their hash, and mark the first of each; None if two different keys share a hash.

    Returns: the positions of the keys, sorted by hash, and whether each is the first of its key.
    """
    # A null hash counts as 0. If there is a key with this hash as well, the comparison of keys tells them apart.
    column = every.get_column(hashes)
    numbers = (column.fill_null(0) if column.has_nulls() else column).to_numpy()
    order = stable_order(numbers)
    first = starts(numbers[order])
    again = np.flatnonzero(~first)
    return (order, first) if all_same(every, keys, order[again], order[again - 1]) else None


def last_by(frame: pl.DataFrame, group: Ints, also: Iterable[str] = ()) -> pl.DataFrame:
    """Return the last row of every group, or of every value of the columns `also` in it, in the frame's order.

    Groups are dense numbers, as `number_keys` gives them.
    """
    columns = list(also)
    if columns:
        pairs = frame[columns].hstack([pl.Series("_group", group)]).to_struct()
        return frame[pairs.is_last_distinct().arg_true()]
    return frame[pl.Series(last_rows(group))]


def last_rows(group: Ints) -> Ints:
    """Return the position of the last row of every group, in rising order. Groups are dense numbers."""
    last = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int64)
    # If a number appears several times, the last assignment wins.
    last[group] = np.arange(len(group))
    return np.sort(last[last >= 0])
