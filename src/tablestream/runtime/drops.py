"""What a query says about dropped records: the rules of the query, examples from the workers, and the sentences.

Workers count drops per task. With the count of each reason travels one example: the place of the record in its source,
and its key. The driver adds up the counts of a run, and says the first of each reason, then those that reach a power of
ten. With ``on_drop="fail"`` the worker raises instead, so that the micro-batch reaches no target.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tablestream.base.data_text import cut_text, data_text, leave_out_data, visible
from tablestream.errors import DroppedRecordError
from tablestream.operators.reasons import NULL_SEQUENCE, UNKNOWN_VALUE, reason_of
from tablestream.state.changes import BOOTSTRAP

OnDrop = Literal["warn", "fail", "ignore"]
#: Separates the parts of a source partition's name; sorts before every character that a part may contain.
SEPARATOR = "\t"
#: In place of a reason: how many records a source passed on.
ACCEPTED = "accepted"
#: Reasons of the operators that follow a source, and see each of its records once.
_BEHIND = frozenset({NULL_SEQUENCE, UNKNOWN_VALUE})


@dataclass(frozen=True)
class DropRules:
    """What a query does about dropped records, and whether its messages leave values out."""

    on_drop: OnDrop = "ignore"
    redact: bool = False

    def begin(self) -> None:
        """Begin a task: its messages follow the rules."""
        leave_out_data(self.redact)


ONLY_COUNTED = DropRules()


@dataclass
class Drops:
    """The drops of a task, by operator and reason, with an example of each.

    `accepted`: how many records each source passed on, if drops are told.
    """

    rules: DropRules = ONLY_COUNTED
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    accepted: Counter[str] = field(default_factory=Counter)

    def add(
        self, operator: str, reason: str, count: int, example: Callable[[], str], where: str = ""
    ) -> None:
        """Count records.

        `operator`, `reason`, `count`: what dropped them, why, and how many. `example`: makes the text about one of
        them; called once per reason, if drops are told. `where`: the user's line that built the operator.
        """
        if not count:
            return
        known = reason_of(reason)
        self.counts[operator, reason] += count
        if self.rules.on_drop == "ignore" or known.kind == "counted":
            return
        if (operator, reason) not in self.examples:
            self.examples[operator, reason] = example()
        if self.rules.on_drop == "fail" and known.kind == "lost":
            shown = _shown_example(self.examples[operator, reason])
            raise DroppedRecordError(
                f"A record was lost ({reason}), and on_drop is 'fail'. {known.meaning}{shown}",
                hint=f"{known.remedy} on_drop='warn' goes on without such records.",
                operator=operator,
                where=where,
            )

    def accept(self, source: str, count: int) -> None:
        """Count the records that a source passes on."""
        if self.rules.on_drop != "ignore":
            self.accepted[source] += count

    def notices(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield what the driver is told: a name, a reason or `ACCEPTED`, a count, and an example or nothing."""
        for (operator, reason), example in self.examples.items():
            yield operator, reason, self.counts[operator, reason], example
        for source, count in self.accepted.items():
            yield source, ACCEPTED, count, ""


def example_text(partition: str | None, position: int, key: str = "", unread: str = "") -> str:
    r"""Say which record is meant: its key as JSON, or what could not be read, and its place.

    Examples
    --------
    >>> example_text("0000\torders\t00000000000000000002", 7, '{"id":1}')
    'key {"id":1}, topic orders, partition 2, offset 7'
    """
    what = unread or (f"key {cut_text(key)}" if key else "")
    place = "" if partition is None else place_text(partition, position)
    return ", ".join(part for part in (what, place) if part)


def unread_text(text: str, *, explained: bool) -> str:
    """Show what could not be read. `explained`: it is JSON, which also says what is wrong, in words without data."""
    if not explained:
        return data_text(text)
    found = json.loads(text)
    error = found.pop("error")
    return f"{visible(error)}: {cut_text(json.dumps(found, ensure_ascii=False))}"


def place_text(partition: str, position: int) -> str:
    """Say where a record is: in a file or a block of one, in a topic, or else in a task of Spark."""
    if partition == BOOTSTRAP:
        return "a row of bootstrap="
    match partition.split(SEPARATOR)[1:]:
        case [_, path, start]:
            block = f" of the block from byte {int(start)}" if int(start) else ""
            return f"{visible(path)}, row {position}{block}"
        case [topic, number]:
            return f"topic {visible(topic)}, partition {int(number)}, offset {position}"
        case marks:
            return f"source partition {visible(' '.join(marks) or partition)}, row {position}"


@dataclass(frozen=True, slots=True)
class Notice:
    """What a task tells the driver: how many records, and one of them."""

    operator: str
    reason: str
    count: int
    example: str = ""

    @classmethod
    def of(cls, text: str) -> Notice:
        r"""Read what `tablestream.spark.blobs.notices` wrote, after its count.

        Examples
        --------
        >>> Notice.of("3\0orders: null-key\0key {}")
        Notice(operator='orders', reason='null-key', count=3, example='key {}')
        """
        count, name, example = text.split("\0", 2)
        operator, _, reason = name.rpartition(": ")
        return cls(operator, reason, int(count), example)


@dataclass
class DropReport:
    """Adds up the drops of a run of a query, and puts into sentences what is worth saying."""

    _totals: Counter[tuple[str, str]] = field(default_factory=Counter)
    _emptied: set[str] = field(default_factory=set)

    def hear(self, micro_batch: int, notices: Iterable[Notice]) -> list[str]:
        """Return what to say after a micro-batch: nothing, most often."""
        counts, examples = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
        for one in notices:
            place = one.operator, one.reason
            counts[place] += one.count
            if one.example:
                examples.setdefault(place, one.example)
        drops = {place: count for place, count in counts.items() if place[1] != ACCEPTED and count}
        accepted = {source: count for (source, reason), count in counts.items() if reason == ACCEPTED}
        said = list(self._losses_of_all(micro_batch, drops, accepted))
        for place, count in sorted(drops.items()):
            before = self._totals[place]
            self._totals[place] = before + count
            if len(str(before + count)) > len(str(before)) or not before:
                said.append(_sentences(*place, before + count, examples.get(place, "")))
        return said

    def _losses_of_all(
        self, micro_batch: int, drops: Mapping[tuple[str, str], int], accepted: Mapping[str, int]
    ) -> Iterator[str]:
        """Say which sources lost every record of a micro-batch; each once in a run."""
        for source in sorted(accepted.keys() - self._emptied):
            lost = {
                (reason, operator): count
                for (operator, reason), count in drops.items()
                if operator == source or (reason in _BEHIND and operator.startswith(f"{source}/"))
            }
            behind = sum(count for (_, operator), count in lost.items() if operator != source)
            if not lost or accepted[source] > behind:
                continue
            self._emptied.add(source)
            reasons = ", ".join(f"{count:,} {reason}" for (reason, _), count in sorted(lost.items()))
            yield (
                f"{visible(source)}: EVERY record of micro-batch {micro_batch} was lost ({reasons}). Is a column of the"
                " source named or typed otherwise than in the records?"
            )


def _sentences(operator: str, reason: str, count: int, example: str) -> str:
    known = reason_of(reason)
    records = f"{count:,} record{'s'[: count != 1]}"
    said = f"{operator}: {reason}, {records} so far in this run. {known.meaning}{_shown_example(example)}"
    return f"{visible(said)} {known.remedy}"


def _shown_example(example: str) -> str:
    return f" Example: {example}." if example else ""
