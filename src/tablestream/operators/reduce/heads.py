"""When a group has heads, and how many: a large group does not read all that it remembers for each change.

Only what is near a result can soon become the result. So of a large group the operator remembers this part once more,
as its *heads*, with a bound that says what the others are. `ranking` has the heads of rows, which come first in an
order; `ranked_counts` those of values, which are around the picked one.

=====================================  ===========================================================================
group                                  read in a micro-batch with messages to it
=====================================  ===========================================================================
small                                  all that is remembered
large, with heads                      its heads; all, too, if the heads do not have the result
=====================================  ===========================================================================

A group gets heads when all has been read, and is more than `SMALL_GROUP`. It loses heads of rows when they have run out
and it is small.

*Cost.* Of n rows there are at most 2 m heads, where m = max(`LEAST_HEADS`, sqrt(n)), and m when they are chosen. So
about m changes at the heads must come before all is read again: a change costs O(n / m) rows at worst. A change
elsewhere costs none. To show the first k rows instead of one, k - 1 more heads are kept.
"""

from __future__ import annotations

import numpy as np

from tablestream.state.positions import Bools, Ints

#: A group with more than `SMALL_GROUP` rows, or different values, has heads: at least `LEAST_HEADS` of them.
SMALL_GROUP, LEAST_HEADS = 1024, 256


def are_large(sizes: Ints) -> Bools:
    """Return which groups are large, from how many rows or different values they have."""
    return sizes > SMALL_GROUP


def most_heads(rows: Ints) -> Ints:
    """Return how many heads groups with so many rows are given."""
    # With Kafka Streams' defects a group may count fewer than no rows.
    return np.maximum(LEAST_HEADS, np.sqrt(np.maximum(rows, 0)).astype(np.int64))
