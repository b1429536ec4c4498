"""Exact sums of floats, columnar: a number is a row of limbs, and the sums of many rows are sums of columns.

A float is a whole multiple of a power of two. A window of bits that begins at the smallest bit of all values and ends
above the largest sum holds every sum exactly: ``limb 0 + limb 1 * 2**32 + ...``, in units of ``2**exponent``.

===============  ===================================================================
limbs            values
===============  ===================================================================
summed           64 bits each, of any sign: so many rows can be added without carries
carried          32 bits each, from 0; the last one has the sign
===============  ===================================================================

Values of very different sizes need a wide window, up to 2,100 bits. `summed` then returns None, and the caller adds
Python integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from tablestream.operators.reduce.groups import GroupEvents
from tablestream.state.positions import Ints

Floats = npt.NDArray[np.float64]

#: A whole number, and the power of two that it is a multiple of.
Scaled: TypeAlias = tuple[int, int]

_BITS = 32
_BYTES = 4
_MASK = np.int64((1 << _BITS) - 1)
_WORD = np.uint64(_BITS)
#: The bits of a float's whole number.
_MANTISSA = 53
#: The widest window.
_MAX_LIMBS = 8
#: The range of no numbers: within that of all others.
_EMPTY = (1 << 20, -(1 << 20))


@dataclass(frozen=True)
class Limbs:
    """Numbers in units of ``2**exponent``, as summed limbs: an array per limb."""

    exponent: int
    limbs: tuple[Ints, ...]

    def at(self, positions: Ints) -> Limbs:
        """Take the numbers at some positions."""
        return Limbs(self.exponent, tuple(limb[positions] for limb in self.limbs))

    def numbers(self) -> list[int]:
        """The numbers, in units."""
        whole = np.stack(_carried(self.limbs)) & _MASK
        data, width = whole.astype("<u4").T.tobytes(), _BYTES * len(whole)
        return [
            int.from_bytes(data[at : at + width], "little", signed=True) for at in range(0, len(data), width)
        ]

    def floats(self) -> Floats:
        """The numbers rounded to the nearest float, ties to even; infinite beyond the largest one."""
        limbs = _carried(self.limbs)
        negative = limbs[-1] < 0
        whole = np.stack(_carried([np.where(negative, -limb, limb) for limb in limbs])).astype(np.uint64)
        row = np.arange(whole.shape[1])
        top = len(whole) - 1 - np.argmax(whole[::-1] != 0, axis=0)
        high, middle, low = (np.where(top >= n, whole[top - n, row], np.uint64(0)) for n in range(3))
        # The 64 highest bits. The last one also says whether any bit below is set: that settles ties.
        shift = (_BITS - np.frexp(high.astype(np.float64))[1]).astype(np.uint64)
        bits = ((high << _WORD | middle) << shift) | (low >> (_WORD - shift))
        below = low & ((np.uint64(1) << (_WORD - shift)) - np.uint64(1)) != 0
        for number, limb in enumerate(whole[:-3]):
            below |= (limb != 0) & (number < top - 2)
        exponent = self.exponent + _BITS * (top - 1) - shift.astype(np.int64)
        with np.errstate(over="ignore"):
            found = np.ldexp((bits | below).astype(np.float64), exponent.astype(np.intc))
        return np.asarray(np.where(negative, -found, found))


def summed(events: GroupEvents, new: pl.Series, old: pl.Series, base: Sequence[Scaled]) -> Limbs | None:
    """Return the running sums of added values minus removed ones in each group, or None if the window is too wide.

    `events`: the messages. `new`, `old`: the value that each adds and removes. Null, NaN and infinities count as 0.
    `base`: the sum before the first message of each group.
    """
    added, removed = _Parts.of(new), _Parts.of(old)
    low, high = zip(added.range, removed.range, _range_of(base), strict=True)
    exponent = min(low)
    width = max(high) - exponent + (2 * len(events)).bit_length() + 2
    count = max(2, -(-width // _BITS))
    if count > _MAX_LIMBS:
        return None
    moves = np.zeros((count, len(events)), dtype=np.int64)
    added.put(moves, exponent, 1)
    removed.put(moves, exponent, -1)
    known = _split(base, exponent, count)
    return Limbs(exponent, tuple(events.running(*pair) for pair in zip(moves, known, strict=True)))


@dataclass(frozen=True)
class _Parts:
    """Finite floats as whole numbers times powers of two. The exponent of 0 says nothing."""

    whole: Ints
    exponent: Ints

    @classmethod
    def of(cls, values: pl.Series) -> _Parts:
        floats = values.cast(pl.Float64).fill_null(0.0).to_numpy()
        mantissa, exponent = np.frexp(np.where(np.isfinite(floats), floats, 0.0))
        return cls((mantissa * (1 << _MANTISSA)).astype(np.int64), exponent.astype(np.int64) - _MANTISSA)

    @property
    def range(self) -> tuple[int, int]:
        """The smallest exponent, and the one above the largest bit."""
        exponents = self.exponent[self.whole != 0]
        if not len(exponents):
            return _EMPTY
        return int(exponents.min()), int(exponents.max()) + _MANTISSA

    def put(self, moves: Ints, exponent: int, sign: int) -> None:
        """Add the numbers, or subtract them, to limbs. Each reaches into three limbs at most."""
        first, shift = np.divmod(np.where(self.whole != 0, self.exponent - exponent, 0), _BITS)
        magnitude, signs = np.abs(self.whole), sign * np.sign(self.whole)
        low, high = (magnitude & _MASK) << shift, (magnitude >> _BITS) << shift
        parts = signs * (low & _MASK), signs * ((low >> _BITS) + (high & _MASK)), signs * (high >> _BITS)
        lowest, highest = int(first.min(initial=len(moves))), int(first.max(initial=-1))
        for number in range(lowest, highest + 1):
            mine = 1 if lowest == highest else first == number
            for above, part in enumerate(parts[: len(moves) - number]):  # above the last limb every part is 0
                moves[number + above] += mine * part


def _range_of(numbers: Sequence[Scaled]) -> tuple[int, int]:
    """The smallest exponent, and the one above the largest bit."""
    some = [(whole, exponent) for whole, exponent in numbers if whole]
    if not some:
        return _EMPTY
    return min(exponent for _, exponent in some), max(one.bit_length() + exponent for one, exponent in some)


def _split(numbers: Sequence[Scaled], exponent: int, count: int) -> tuple[Ints, ...]:
    """Whole numbers as so many limbs."""
    width = _BYTES * count
    data = b"".join(
        (whole << (own - exponent) if whole else 0).to_bytes(width, "little", signed=True)
        for whole, own in numbers
    )
    limbs = np.frombuffer(data, "<u4").reshape(-1, count).T.astype(np.int64)
    limbs[-1] = limbs[-1].astype(np.uint32).view(np.int32)
    return tuple(limbs)


def _carried(limbs: Sequence[Ints]) -> list[Ints]:
    """Carry what is beyond 32 bits to the next limb."""
    found = list(limbs)
    for number in range(len(found) - 1):
        found[number + 1] = found[number + 1] + (found[number] >> _BITS)
        found[number] = found[number] & _MASK
    return found
