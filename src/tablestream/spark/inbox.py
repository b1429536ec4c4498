"""The packed messages of one shard in a round: opened whole, or slice by slice if they are many."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tablestream.runtime.slices import RECORD, SLICE_BYTES, SLICE_ROWS, Inbox, slice_numbers
from tablestream.spark import blobs

if TYPE_CHECKING:
    from tablestream.runtime.rounds import Round
    from tablestream.state.positions import Bools


@dataclass
class PackedInbox:
    """Blobs by port, how many messages they have, and about how many bytes these take; read once."""

    packed: dict[int, list[bytes]] = field(default_factory=dict)
    rows: int = 0
    size_bytes: int = 0

    @property
    def ports(self) -> Collection[int]:
        """The ports that messages have arrived at; ask before they are opened."""
        return self.packed.keys()

    def add(self, port: int, rows: int, blob: bytes) -> None:
        """Add a blob."""
        self.packed.setdefault(port, []).append(blob)
        self.rows += rows
        self.size_bytes += blobs.size_bytes(blob)

    @property
    def _slice_rows(self) -> int:
        """How many messages fit a slice, if they are equally large."""
        return min(SLICE_ROWS, max(1, self.rows * SLICE_BYTES // max(self.size_bytes, 1)))

    def opened(self, work: Round) -> Iterator[Inbox]:
        """Open the messages, slice by slice if they are too many or too large, and the round can be sliced.

        Of many messages, only the places are in memory at once. A blob is opened once for its places, and then for
        each slice that it has messages of: of one or two where a source is in order, of all where times are at random.

        Raises
        ------
        DamagedMessagesError
            A blob was altered on the way.
        """
        if not work.can_be_sliced or self.rows <= self._slice_rows:
            yield {port: blobs.decode(self.packed.pop(port)) for port in list(self.packed)}
            return
        every = [(port, blob) for port, mine in self.packed.items() for blob in mine]
        places = [blobs.decode_columns(blob, RECORD) for _, blob in every]
        numbers = slice_numbers(places, self._slice_rows)
        del places
        for number in range(1 + max(int(of_blob.max()) for of_blob in numbers)):
            taken: dict[int, list[tuple[bytes, Bools]]] = {}
            for (port, blob), of_blob in zip(every, numbers, strict=True):
                if (mine := of_blob == number).any():
                    taken.setdefault(port, []).append((blob, mine))
            yield {port: blobs.decode(*zip(*parts, strict=True)) for port, parts in taken.items()}
