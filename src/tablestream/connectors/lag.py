"""How far behind its end a source is: what each system says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Behind:
    """How far a query is behind the end of a source.

    Attributes
    ----------
    system
        The system: ``"kafka"``, ``"files"``, ``"delta"``, or ``"unknown"``.
    count, unit
        How much is not read yet, and what is counted: ``"records"``, ``"files"`` or ``"versions"``. None: unknown.
    records
        How many records that is; None where only reading them would tell.
    time_s
        The time between the last record, file or version that was read and the newest one, in seconds, by the clock
        of the source; 0 if all is read. None: unknown.
    why
        Why something is not known; otherwise empty.
    """

    system: str
    count: int | None = None
    unit: str = ""
    records: int | None = None
    time_s: float | None = None
    why: str = ""
