"""Marks in a Delta table: the metadata of the commits, which Delta writes in one act with the rows.

A commit also carries Delta's ``txnAppId`` and ``txnVersion``, so that of two processes only one writes a micro-batch.
Older versions of the library wrote only these. What is settled by ``on_mismatch=`` gets a ``txnAppId`` of its own:
under the former one Delta would skip the micro-batches that are done again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tablestream.connectors.marks import Mark, Moment
from tablestream.connectors.small_texts import json_object

#: The commits that are looked at first: the last one has the mark, unless the user changed the table since then.
_LAST_COMMITS = 10
_KEY = "tablestream"


@dataclass(frozen=True)
class DeltaMark:
    """A mark as it stands in the metadata of a commit."""

    query: str
    micro_batch: int
    proof: str
    """See `Mark`."""
    app_id: str
    """The ``txnAppId`` of the commit, and of those after it."""
    whole: bool = False
    """Whether the commit replaced all rows: marks of other queries before it count no more."""

    @property
    def mark(self) -> Mark:
        """What the contract of marks needs."""
        return Mark(self.micro_batch, self.proof)

    @property
    def text(self) -> str:
        """The metadata of the commit."""
        return json.dumps({_KEY: asdict(self)}, separators=(",", ":"))


def usual_app_id(query_id: str) -> str:
    """The ``txnAppId`` of a query that was never settled."""
    return f"tablestream/{query_id}"


def new_app_id(query_id: str) -> str:
    """A ``txnAppId`` that no commit has yet."""
    return f"{usual_app_id(query_id)}/{uuid.uuid4().hex[:16]}"


class CommitHistory(Protocol):
    """What a table says of its commits."""

    def commits(self, limit: int | None = None) -> list[Commit]:
        """Return the last commits, or all that the table still knows, the newest first."""

    def last_version(self, app_id: str) -> int | None:
        """Return the last ``txnVersion`` of a ``txnAppId``."""


@dataclass(frozen=True)
class Commit:
    """A commit of a Delta table; times are microseconds since 1970."""

    version: int
    at: int
    operation: str
    """Its version, its time and what it did."""
    metadata: str | None
    """Its ``userMetadata``."""
    to_version: int | None = None
    to_time: int | None = None
    """Where ``RESTORE`` brought the table."""


def last_mark(history: CommitHistory, query_id: str) -> DeltaMark | None:
    """Find the last mark of a query in a table that exists."""
    for limit in (_LAST_COMMITS, None):
        commits = history.commits(limit)
        for mark in _marks(commits):
            if mark.query == query_id:
                return mark
            if mark.whole:
                return None
        if len(commits) < _LAST_COMMITS:
            break
    if any(commit.operation == "RESTORE" for commit in commits):
        return None  # what Delta knows of its writers, a table keeps when it is restored
    # The mark of an older version of the library, or one whose commit Delta has removed from the history.
    version = history.last_version(usual_app_id(query_id))
    return None if version is None else DeltaMark(query_id, version, "", usual_app_id(query_id))


def has_mark(history: CommitHistory, moment: Moment) -> bool:
    """Whether a table was ever at a micro-batch, as far as its history tells."""
    wanted = (moment.query_id, moment.number, moment.proof)
    return any((one.query, one.micro_batch, one.proof) == wanted for one in _marks(history.commits()))


def _marks(commits: Iterable[Commit]) -> Iterator[DeltaMark]:
    """Yield the marks, the newest first. A table that was restored has those of the version to which it was."""
    to_version, to_time = None, None
    for commit in commits:
        is_undone = (to_version is not None and commit.version > to_version) or (
            to_time is not None and commit.at > to_time
        )
        if is_undone:
            continue
        if commit.operation == "RESTORE":
            to_version, to_time = commit.to_version, commit.to_time
        elif (mark := _read(commit.metadata)) is not None:
            yield mark


def _read(text: str | None) -> DeltaMark | None:
    document: Any = (json_object(text or "") or {}).get(_KEY)
    return DeltaMark(**document) if isinstance(document, dict) else None
