"""What a query meets when it starts again: a start that is refused, and a checkpoint of an older version.

A refused start changes nothing. `ts.start` refuses another plan before the query starts. The workers refuse it too, in
the first shard with state that has something to do: so it is for a query that the user starts. They also refuse a state
in another format. A run that has only shards without state to do does not notice: here it ends before its sinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from tablestream.errors import DamagedStateError, PlanChangedError, StateError
from tablestream.state import manifest as manifests
from tablestream.state.sealed import unseal
from tests.simulation.happened import DriverDied, SimulationError
from tests.simulation.order import STARTS, Event
from tests.simulation.refusals import OtherPlan, other_plans
from tests.simulation.store import AttemptStore
from tests.simulation.world import Fault, Kind

if TYPE_CHECKING:
    from tests.simulation.driver import Driver, SimulatedEngine


def refuse(driver: Driver, fault: Fault) -> None:
    """Start the query with something that is refused."""
    with _nothing_changes(driver):
        if fault.kind is Kind.REFUSED_FORMAT:
            event = _other_format(driver)
        else:
            event = _other_plan(driver, fault, *_chosen(driver, fault))
    if event:
        driver.happened.count(fault, event)


def made_older(driver: Driver) -> None:
    """Write the checkpoint as older versions did: texts without checksums, and no list of births.

    The list stays if a shard's whole state will be gone: without it, such a shard looks like a new one.
    """
    for store in (store for known in driver.cluster.state.versions.values() for store in known.values()):
        store.plan = store.plan and unseal(store.plan, "plan")
        store.tables = store.tables and unseal(store.tables, "tables")
    if not any(fault.kind is Kind.SHARD_GONE for fault in driver.world.faults):
        driver.births.clear()


def _chosen(driver: Driver, fault: Fault) -> tuple[OtherPlan, int]:
    """The plan and the number of shards that the query is started with."""
    world = driver.world
    rng = world.rng("refused", fault)
    if fault.kind is Kind.REFUSED_SHARDS:
        same = OtherPlan("the number of shards", world.case.outputs(), world.compat, world.case.align)
        return same, rng.choice([shards for shards in range(1, 6) if shards != world.shards])
    return rng.choice(other_plans(world.case, compat=world.compat)), world.shards


def _other_plan(driver: Driver, fault: Fault, other: OtherPlan, shards: int) -> str:
    """Let `ts.start` refuse a plan or, if the user starts the query, the workers."""
    engine = driver.engine_of(other.outputs, other.compat, shards, other.align)
    try:
        engine.plan.check_same(driver.plan)
    except PlanChangedError as error:
        _check_shown(error)
    else:
        raise SimulationError(f"A plan that differs in {other.difference} is not refused.")
    is_runnable = (
        len(engine.plan.rounds) == len(driver.engine.plan.rounds) and other.align == driver.engine.align
    )
    if fault.where % 2 == 0 or not is_runnable:  # Spark itself refuses another number of rounds
        return f"{other.difference}, by the start"
    return f"{other.difference}, by the workers" if _is_refused(driver, engine, PlanChangedError) else ""


def _other_format(driver: Driver) -> str:
    """Let the workers of a version that has another format refuse the state."""
    world = driver.world
    engine = driver.engine_of(driver.variant.outputs, world.compat, world.shards, world.case.align)
    with mock.patch.object(manifests, "FORMAT_VERSION", manifests.FORMAT_VERSION + 1):
        return "by the workers" if _is_refused(driver, engine, StateError) else ""


def _is_refused(driver: Driver, engine: SimulatedEngine, wanted: type[StateError]) -> bool:
    """Run a micro-batch up to the sinks; say whether the workers refused it."""
    number = len(driver.commits)
    driver.happened.order.append(Event(STARTS))
    driver.cluster.begin(number)
    try:
        driver.begin(engine, number)
    except (DriverDied, DamagedStateError) as ended:
        driver.happened.note(f"what should be refused ends with {type(ended).__name__}")
        return False
    except StateError as error:
        if type(error) is not wanted:
            raise
        if wanted is PlanChangedError:
            _check_shown(error)
        return True
    for place in sorted(engine.touched):
        store = driver.cluster.state.at(place, number)
        known, now = (one.plan.rounds[place[0] - 1].fingerprint for one in (driver.engine, engine))
        if _is_whole(store) and (wanted is StateError or known != now):
            raise SimulationError(f"Round and shard {place}: the workers do not refuse the state.")
    return False


def _check_shown(error: StateError) -> None:
    """The error of another plan shows what differs."""
    lines = str(error).splitlines()
    if not any(line.startswith("-") and not line.startswith("---") for line in lines) and not any(
        line.startswith("+") and not line.startswith("+++") for line in lines
    ):
        raise SimulationError(f"The error does not show what differs: {error}")


def _is_whole(store: AttemptStore) -> bool:
    return store.manifest is not None and not (store.is_gone or store.lost_manifest)


@contextmanager
def _nothing_changes(driver: Driver) -> Iterator[None]:
    """Compare the checkpoint and the sinks before and after."""
    before = _stored(driver)
    yield
    after = _stored(driver)
    changed = [name for name, value in before.items() if value != after[name]]
    if changed:
        raise SimulationError(f"A start that was refused changed {', '.join(changed)}.")


def _stored(driver: Driver) -> dict[str, Any]:
    """What the committed micro-batches left, and what the sinks have."""
    number, state = len(driver.commits), driver.cluster.state
    stores = {place: state.at(place, number) for place in state.versions}
    return {
        "the state": {
            place: (store.manifest, store.plan, store.tables, dict(store.chunks), set(store.timers_ms))
            for place, store in stores.items()
            if store.manifest is not None
        },
        "the plan": driver.plan,
        "the list of births": list(driver.births),
        "the commit log": number,
        "the sinks": {
            target: ({number: list(steps) for number, steps in sink.data.items()}, set(sink.marks))
            for target, sink in driver.sinks.items()
        },
    }
