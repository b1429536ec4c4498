"""Slices of messages that are not packed, as `tablestream.spark.round_worker` makes them of blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tablestream.runtime.slices import RECORD, SLICE_ROWS, Inbox, slice_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestream.runtime.rounds import Round


def sliced(work: Round, inbox: Inbox, rows: int = SLICE_ROWS) -> Iterator[Inbox]:
    """Divide the messages of one shard in a round, if they are more than `rows` and the round can be sliced."""
    if not work.can_be_sliced or sum(frame.height for frames in inbox.values() for frame in frames) <= rows:
        yield inbox
        return
    frames = [(port, frame) for port, mine in inbox.items() for frame in mine]
    numbers = slice_numbers([frame.select(RECORD) for _, frame in frames], rows)
    for number in range(1 + max(int(of_rows.max()) for of_rows in numbers if len(of_rows))):
        taken: dict[int, list[pl.DataFrame]] = {}
        for (port, frame), of_rows in zip(frames, numbers, strict=True):
            taken.setdefault(port, []).append(frame.filter(pl.Series(of_rows == number)))
        yield taken
