"""The load: changes of items and customers into two topics, at a steady rate.

``python -m benchmarks.soak.load SERVERS SECONDS CHANGES_PER_S`` runs until the time is over. What it sends hangs on the
number of the second only, so whoever checks the results can make it again with `changes_of_second`.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer

ITEMS, CUSTOMERS = "items", "customers"
ITEM_KEYS, CUSTOMER_KEYS = 100_000, 5_000
#: Of a hundred changes one is a customer's, and four take an item away.
CUSTOMER_SHARE, DELETED_SHARE = 0.01, 0.04
_SEED = 20_261_121
_PARTS_OF_A_SECOND = 20
_MAX_WAITING = 5_000_000
_PATIENCE_S = 120.0


class Change(NamedTuple):
    """A record: what changes, its key, and the number of the change; for an item its customer, none if it goes."""

    topic: str
    key: str
    number: int
    customer: str | None

    @property
    def value(self) -> bytes | None:
        """The record's value."""
        if self.topic == CUSTOMERS:
            return f'{{"name":"name {self.number}"}}'.encode()
        if self.customer is None:
            return None
        return f'{{"customer":"{self.customer}","number":{self.number}}}'.encode()


def changes_of_second(second: int, per_s: int) -> list[Change]:
    """Return the changes of one second, in their order; numbers count on from second to second."""
    rng = np.random.default_rng((_SEED, second))
    kinds = rng.random(per_s)
    items = rng.integers(0, ITEM_KEYS, per_s).tolist()
    customers = rng.integers(0, CUSTOMER_KEYS, per_s).tolist()
    changes = []
    for place, kind in enumerate(kinds.tolist()):
        number, customer = second * per_s + place, f"customer-{customers[place]}"
        if kind < CUSTOMER_SHARE:
            changes.append(Change(CUSTOMERS, customer, number, None))
        else:
            gone = kind < CUSTOMER_SHARE + DELETED_SHARE
            changes.append(Change(ITEMS, f"item-{items[place]}", number, None if gone else customer))
    return changes


def send(servers: str, seconds: int, per_s: int) -> None:
    """Send all changes, each second's in parts; say how far behind the clock the end was."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "log_level": 0,
            # What is sent while there is no broker waits.
            "queue.buffering.max.messages": _MAX_WAITING,
        }
    )
    start = time.monotonic()
    for second in range(seconds):
        changes = changes_of_second(second, per_s)
        size = -(-len(changes) // _PARTS_OF_A_SECOND)
        for part in range(_PARTS_OF_A_SECOND):
            for change in changes[part * size : (part + 1) * size]:
                producer.produce(change.topic, change.value, change.key, on_delivery=_delivered)
            producer.poll(0)
            due = start + second + (part + 1) / _PARTS_OF_A_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
    if producer.flush(_PATIENCE_S):
        raise RuntimeError("the broker did not take all of the load")
    print(f"{time.monotonic() - start - seconds:.1f}", flush=True)


def _delivered(error: object, _: object) -> None:
    if error is not None:
        raise RuntimeError(f"the broker refused a record: {error}")


if __name__ == "__main__":
    send(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
