"""Texts in the state, such as a plan's, with a checksum as their first line."""

from __future__ import annotations

import re

from tablestream.errors import DamagedStateError
from tablestream.state.run import RESTORE_HINT, checksum

_SEALED = re.compile(r"([0-9a-f]{32})\n(.*)", re.DOTALL)


def seal(text: str) -> str:
    """Return the text with its checksum.

    Examples
    --------
    >>> seal("round 1").splitlines()[1]
    'round 1'
    >>> unseal(seal("round 1"), "plan")
    'round 1'
    """
    return f"{checksum(text.encode())}\n{text}"


def unseal(sealed: str, what: str) -> str:
    """Return the text that `seal` sealed; raise `DamagedStateError` if it is another one.

    Older versions wrote texts without a checksum, as JSON: these are returned as they are.
    """
    if sealed.startswith(("[", "{")):
        return sealed
    parts = _SEALED.fullmatch(sealed)
    if parts is None or checksum(parts[2].encode()) != parts[1]:
        raise altered(what)
    return parts[2]


def altered(what: str) -> DamagedStateError:
    """The error for a text that is not the one that was sealed."""
    return DamagedStateError(f"The text of the {what} in the state of record was altered.", hint=RESTORE_HINT)
