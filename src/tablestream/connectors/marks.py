"""Marks: what a target says about the last micro-batch that it has, and whether that fits the checkpoint.

A mark is the number of a micro-batch and its proof: a digest of what Spark wrote into the checkpoint when it planned
the micro-batch, which has the offsets and the time. Spark writes it once, so a micro-batch that is repeated has the
same proof. One that is planned anew under the same number, because an older checkpoint was restored, has another. So a
proof belongs to one history of a query. A target moves its mark with every micro-batch, with changes or without.

Before a micro-batch is written:

==============================================  =====================================================================
the target's mark                               what follows
==============================================  =====================================================================
the micro-batch before, with its proof          it is written
this micro-batch, with its proof                it is there already, and is passed over
a later one                                     refused: the target is ahead, as after an older checkpoint is restored
an earlier one                                  refused: the target is behind, as after a backup of it is restored
one of these two, with another proof            refused: another history, as after a copied checkpoint was continued
none, and nothing in the target                 the first micro-batch is written. Later ones are refused if the target
                                                keeps one row per key: it would get the later changes only
none, and rows in the target                    refused: they are not this query's
of an older version, without a proof            goes by its number, and may be behind: empty micro-batches left no mark
==============================================  =====================================================================

What is refused can be settled: a sink says how by `OnMismatch`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, Protocol, Self, get_args, runtime_checkable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tablestream.arguments.words import check_known
from tablestream.connectors.sink import KeyedSink, Sink
from tablestream.errors import TargetError

OnMismatch = Literal["refuse", "rebuild", "accept"]
"""What a sink does about a target that does not fit the checkpoint."""

Evolves = Literal["", "new", "brought over", "told anew"]
"""What becomes of a target as a query evolves."""

_PROOF_DIGITS = 32


@dataclass(frozen=True)
class Mark:
    """The last micro-batch that a target has of a query; an empty proof is an older version's."""

    micro_batch: int
    proof: str = ""


@dataclass(frozen=True)
class Moment:
    """A micro-batch in the history of a query."""

    number: int
    query_id: str
    """The micro-batch and its query; no query is in the checkpoint if the id is empty."""
    proof: str = ""
    before: str = ""
    """The proofs of this micro-batch and of the one before; empty if the checkpoint has none, because it is not planned
    yet."""
    rebuilt: frozenset[str] = frozenset()
    """Other proofs of the micro-batch before: those of targets which were written when the query evolved."""
    evolves: Evolves = ""
    """If the query evolves, all rows of the output come: the target is ``"new"``, or has the old plan's rows and is
    ``"brought over"``, or is a log that is ``"told anew"``. `before` is then the proof of what the old plan has written
    last, under this number or the one before."""

    @property
    def earlier(self) -> Moment:
        return Moment(self.number - 1, self.query_id, self.before, rebuilt=self.rebuilt)


@dataclass(frozen=True)
class Found:
    """What there is in a target."""

    place: str
    """The target, for messages: ``The table public.amounts``."""
    mark: Mark | None
    """The query's last mark, if there is one."""
    is_empty: bool
    """Whether it has no rows, or does not exist."""
    follows: bool
    """Whether a micro-batch changes rows that earlier ones wrote, so that none may be missing."""


@runtime_checkable
class PlacedSink(Sink, Protocol):
    """A sink that is told which micro-batch it writes in the history of the query."""

    def at(self, moment: Moment) -> Self:
        """Return the same sink for one micro-batch."""


@runtime_checkable
class LogSink(PlacedSink, Protocol):
    """A log that can be told anew: it gets all rows of the output, and deletes of keys that are gone.

    `write` adds the deletes at a moment that says so.
    """

    @property
    def retells(self) -> bool:
        """Whether it is such a log."""


@runtime_checkable
class MarkedSink(PlacedSink, Protocol):
    """A sink whose target keeps a mark.

    `write` looks at the mark, and writes micro-batch and mark in one act.
    """

    def settle(self, spark: SparkSession, columns: StructType, stored: Callable[[], DataFrame]) -> None:
        """Before the query starts, refuse a target that does not fit the checkpoint, or settle it as the user said.

        Parameters
        ----------
        spark
            The session.
        columns
            The key and value columns.
        stored
            Returns the rows of the output after the micro-batch before, from the state; raises if it lacks them.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkingSink(KeyedSink):
    """What the library's own sinks with marks share: what the user says of a mismatch, and the micro-batch."""

    on_mismatch: OnMismatch = "refuse"
    moment: Moment | None = None

    def __post_init__(self) -> None:
        check_known("on_mismatch", self.on_mismatch, get_args(OnMismatch))

    def at(self, moment: Moment) -> Self:
        """Return the same sink for one micro-batch."""
        return replace(self, moment=moment)

    @property
    def starting(self) -> Moment:
        """The micro-batch with which the query starts."""
        assert self.moment is not None  # noqa: S101 - the runner sets it
        return self.moment

    @property
    def replaces(self) -> bool:
        """Whether a target that is settled gets all rows, and loses others."""
        evolves = self.moment is not None and bool(self.moment.evolves)
        return self.on_mismatch == "rebuild" or (evolves and self.on_mismatch == "refuse")

    @property
    def widens(self) -> bool:
        """Whether a target gets the value columns that it lacks: it is brought over as the query evolves."""
        return self.moment is not None and self.moment.evolves == "brought over"

    @property
    def tells_anew(self) -> bool:
        """Whether a log gets all rows, and deletes of keys that are gone."""
        return self.moment is not None and self.moment.evolves == "told anew"

    @property
    def proof(self) -> str:
        """The proof of the micro-batch; empty if it is written by hand."""
        return "" if self.moment is None else self.moment.proof


def proof_of(lines: Sequence[str]) -> str:
    """Return the proof of a micro-batch from what the checkpoint has about it; empty if that is nothing."""
    if not lines:
        return ""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_PROOF_DIGITS]


class Verdict(Enum):
    """What is to be done with a micro-batch, or with its target."""

    WRITE = "it is the next one"
    DONE = "the target has it"
    SETTLE = "the target does not fit, and the user says what to do"


def judged(
    found: Found, number: int, moment: Moment | None, on_mismatch: OnMismatch, *, starting: bool = False
) -> Verdict:
    """Say what is to be done; raises `TargetError` if target and checkpoint do not fit.

    A start settles every target but that of a new query: its first micro-batch does so. If a target does not fit later,
    somebody else has changed it meanwhile.
    """
    try:
        if moment is not None and moment.evolves:
            return Verdict.SETTLE if _is_replaced(found, moment) else Verdict.WRITE
        return Verdict.DONE if has(found, number, moment) else Verdict.WRITE
    except TargetError:
        if on_mismatch == "refuse" or (number > 0 and not starting):
            raise
        return Verdict.WRITE if starting and number == 0 else Verdict.SETTLE


def _is_replaced(found: Found, moment: Moment) -> bool:
    """Whether the rows of a target are replaced as the query evolves; False if it has none.

    What a failed attempt has written has the number of the moment, and another proof than the old plan's. A log keeps
    what the old plan has written.
    """
    mark = found.mark
    if mark is None:
        if not found.is_empty:
            raise _refused(found, "has rows that are not this query's")
        return False
    is_new = moment.evolves == "new"
    is_old = mark.proof == moment.before or (mark.proof in moment.rebuilt and not is_new)
    if is_new if is_old else mark.micro_batch != moment.number:
        raise _refused(
            found,
            f"has {_up_to(mark.micro_batch)} of this query already, by another output or name, or by an attempt to"
            " evolve that failed before the old plan went on",
            "Write to a new target, or delete what is there; then evolve again.",
        )
    return not (is_old and moment.evolves == "told anew")


def has(found: Found, number: int, moment: Moment | None) -> bool:
    """Whether a target has a micro-batch already; False if it is the next one.

    Without the moment in a history, as where `Sink.write` is called by hand, the numbers decide. Raises `TargetError`
    as the module's table says.
    """
    mark = found.mark
    if moment is None:
        return mark is not None and mark.micro_batch >= number
    if mark is None:
        return _is_first(found, moment)
    if mark.micro_batch > number or (mark.micro_batch == number and not moment.proof):
        raise _refused(
            found,
            f"has {_up_to(mark.micro_batch)}, and the checkpoint {_up_to(moment.number - 1)}, as"
            " after an older checkpoint was restored",
        )
    if mark.proof:
        _check_proof(found, mark, moment)
    return mark.micro_batch == number


def _check_proof(found: Found, mark: Mark, moment: Moment) -> None:
    """Compare a mark, which is not ahead, with the checkpoint."""
    before = {moment.before} - {""} | moment.rebuilt
    if mark.proof in before and mark.micro_batch < moment.number:
        return  # also if it was passed over while logs were told anew, as a micro-batch of its own
    wanted = {moment.number: {moment.proof}, moment.number - 1: before}
    if mark.micro_batch not in wanted:
        raise _refused(
            found,
            f"has {_up_to(mark.micro_batch)}, and the checkpoint {_up_to(moment.number - 1)}: those"
            " between are missing, as after a backup of the target was restored",
        )
    if mark.proof not in wanted[mark.micro_batch]:
        raise _refused(
            found,
            f"has another micro-batch {mark.micro_batch} than the checkpoint: they belong to two histories of the"
            " query, as when an older checkpoint was restored, or a copy of it was continued",
        )


def _is_first(found: Found, moment: Moment) -> bool:
    if not found.is_empty:
        raise _refused(found, "has rows that are not this query's")
    if moment.number > 0 and found.follows:
        raise _refused(
            found,
            f"has nothing of this query, whose micro-batches 0 to {moment.number - 1} are done: it would get the later"
            " changes only",
        )
    return False


def _up_to(micro_batch: int) -> str:
    return "no micro-batch" if micro_batch < 0 else f"the micro-batches up to {micro_batch}"


def _refused(found: Found, why: str, hint: str = "") -> TargetError:
    whole = (
        "brings it over whole, from the state" if found.follows else "takes back what the checkpoint lacks"
    )
    return TargetError(
        f"{found.place} {why}.",
        hint=hint
        or "Restore the checkpoint and the target of one moment. Or write to a new target with a new checkpoint."
        f' Or give the sink on_mismatch="rebuild", which {whole}, or on_mismatch="accept", which goes on with what is'
        " there; and remove the argument when the query has started.",
    )


def no_rebuild(place: str) -> TargetError:
    """The error about a log that cannot be brought to the checkpoint."""
    return TargetError(
        f"{place} cannot be rebuilt: it lacks changes that the state does not have either, or those that it has are of"
        " another history.",
        hint='Write to a new log; or give on_mismatch="accept", which goes on with what is there.',
    )
