"""Backups that are restored while a query is stopped: of its checkpoint, of its targets, or of both.

A start has to refuse each target that is not at the checkpoint's moment, and only these. Then the user settles it: what
a target has too much is taken back; if it lacks something, the checkpoint of its moment is restored as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tablestream.errors import TargetError
from tests.simulation.happened import SimulationError
from tests.simulation.order import RESTORED, Event
from tests.simulation.sink import MarkingSink
from tests.simulation.store import AttemptStore, Place
from tests.simulation.world import Fault, Kind

if TYPE_CHECKING:
    from tests.simulation.driver import Driver


@dataclass(frozen=True)
class Backup:
    """What a backup of a checkpoint has."""

    offsets: list[tuple[int, int]]
    births: list[str]
    commits: list[Any]
    versions: dict[Place, dict[int, AttemptStore]]


def restore(driver: Driver, fault: Fault) -> None:
    """Bring something back to an earlier moment, and let the query be settled."""
    number = len(driver.commits)
    rng = driver.world.rng("restored", fault)
    if not number:
        return
    one, other = (rng.randint(max(1, number - 4), number) for _ in range(2))
    if fault.kind is not Kind.TARGETS_RESTORED:
        _restore_checkpoint(driver, one)
    if fault.kind is not Kind.CHECKPOINT_RESTORED:
        _restore_targets(driver, other)
    behind = [
        sink
        for sink in _used(driver)
        if sink.last is not None and sink.last.micro_batch + 1 < len(driver.commits)
    ]
    for sink in behind:
        expect(driver, sink, refused=True)
    if behind:
        _restore_checkpoint(
            driver, min(sink.last.micro_batch + 1 for sink in behind if sink.last is not None)
        )
    for sink in driver.sinks.values():
        if sink.last is not None and sink.last.micro_batch >= len(driver.commits):
            expect(driver, sink, refused=not _repeats(driver, sink))
            _settle(driver, sink)
            sink.go_back(len(driver.commits) + _repeats(driver, sink))
    driver.happened.count(fault, f"from {number} to {len(driver.commits)}")


def settled(driver: Driver, sink: MarkingSink) -> None:
    """Start with a target; one that other outputs left out for a while is behind, and goes on with the gap."""
    number = driver.moment(len(driver.commits)).number
    is_behind = sink.last is not None and sink.last.micro_batch + 1 < number
    expect(driver, sink, refused=is_behind)
    if is_behind:
        _settle(driver, sink)


def _used(driver: Driver) -> list[MarkingSink]:
    """The targets of the current outputs."""
    return [driver.sinks[target] for target in driver.variant.targets]


def _repeats(driver: Driver, sink: MarkingSink) -> bool:
    """Whether a target has the micro-batch that is planned and not committed, and nothing behind it."""
    moment = driver.moment(len(driver.commits))
    last = sink.last
    return (
        last is not None
        and bool(moment.proof)
        and (last.micro_batch, last.proof) == (moment.number, moment.proof)
    )


def _restore_checkpoint(driver: Driver, number: int) -> None:
    """Bring the checkpoint to the moment at which so many micro-batches were committed."""
    if number > len(driver.commits):
        return
    found = driver.backups[number - 1]
    del driver.backups[number:]
    driver.offsets, driver.births = list(found.offsets), list(found.births)
    driver.commits = list(found.commits)
    driver.cluster.state.versions = {place: dict(known) for place, known in found.versions.items()}
    driver.happened.order.append(Event(RESTORED, number))


def _restore_targets(driver: Driver, number: int) -> None:
    """Bring the targets back to the moment after so many micro-batches."""
    for sink in _used(driver):
        kept = [one for one in sink.history if one.micro_batch < number]
        if kept and sink.last != kept[-1]:
            sink.go_back(number)
            sink.last = kept[-1]


def expect(driver: Driver, sink: MarkingSink, *, refused: bool) -> None:
    """Start with a target that fits, or does not."""
    try:
        sink.at(driver.moment(len(driver.commits))).settle(None, None, None)
    except TargetError as error:
        if not refused:
            raise SimulationError(f"{sink.target} fits, and is refused: {error}") from error
    else:
        if refused:
            raise SimulationError(f"{sink.target} does not fit, and is not refused.")


def _settle(driver: Driver, sink: MarkingSink) -> None:
    """Settle a target, as a user does who says so."""
    sink.on_mismatch = "accept"
    sink.at(driver.moment(len(driver.commits))).settle(None, None, None)
    sink.on_mismatch = "refuse"
